//! Support for tests: a seeded generator ([`Random`]), and expectations in files ([`check_file`]). Every run uses a new
//! seed and prints it; `SETTEE_SEED=…` repeats it. `SETTEE_TEST_SCALE=…` multiplies the rounds ([`scaled`]).

use std::fs;
use std::hash::{BuildHasher, RandomState};
use std::path::Path;

#[derive(Clone, Debug)]
pub struct Random(u64);

impl Default for Random {
    fn default() -> Random {
        Random::new()
    }
}

impl Random {
    /// Creates a generator with the seed in `SETTEE_SEED`, or a new one, which is printed.
    pub fn new() -> Random {
        let given = std::env::var("SETTEE_SEED").ok().and_then(|seed| seed.parse().ok());
        let seed = given.unwrap_or_else(|| RandomState::new().hash_one(0));
        eprintln!("SETTEE_SEED={seed}");
        Random(seed)
    }

    /// Creates a generator with a fixed seed: the same numbers in every run.
    pub fn of(seed: u64) -> Random {
        // The multiplication separates the sequences of adjacent seeds.
        Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    #[expect(clippy::should_implement_trait, reason = "an iterator would wrap what never ends in options")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, or 0 if `limit` is 0.
    pub fn below<N: TryFrom<u64> + TryInto<u64>>(&mut self, limit: N) -> N {
        let limit = limit.try_into().unwrap_or(1).max(1);
        N::try_from(self.next() % limit).unwrap_or_else(|_| unreachable!("it is below a number of that type"))
    }

    /// Returns true with probability 1 in `many`.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    #[must_use]
    pub fn fork(&mut self) -> Random {
        Random(self.next())
    }

    pub fn pick<T: Copy>(&mut self, among: &[T]) -> T {
        among[self.below(among.len())]
    }

    pub fn shuffle<T>(&mut self, values: &mut [T]) {
        for index in (1..values.len()).rev() {
            values.swap(index, self.below(index + 1));
        }
    }

    pub fn number(&mut self) -> u64 {
        self.next() >> self.below(64_u32)
    }

    pub fn bytes(&mut self, longest: usize) -> Vec<u8> {
        let len = self.below(longest + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// Returns an object whose text has slightly more than `longest` bytes at most.
    pub fn body(&mut self, longest: usize) -> String {
        let padding = self.below(longest + 1);
        format!("{{\"n\":{},\"p\":\"{}\"}}", self.below(1000), "x".repeat(padding))
    }

    /// Returns valid JSON text with random whitespace and sometimes repeated names.
    pub fn json(&mut self) -> String {
        let mut out = String::new();
        self.json_value(4, &mut out);
        out
    }

    pub fn json_object(&mut self) -> String {
        let mut out = String::new();
        self.json_object_into(4, &mut out);
        out
    }

    fn space(&mut self, out: &mut String) {
        if self.one_in(4) {
            out.push_str(self.pick(&[" ", "\n", "\t ", "\r\n", "            "]));
        }
    }

    fn json_value(&mut self, depth: usize, out: &mut String) {
        self.space(out);
        match self.below(if depth == 0 { 6 } else { 10 }) {
            0 => out.push_str(self.pick(&["true", "false", "null"])),
            1 | 2 => self.json_number(out),
            3..=5 => self.json_string(out),
            6 | 7 => {
                let bytes_only = self.one_in(3);
                let mut comma = "[";
                for _ in 0..self.below(6) {
                    out.push_str(comma);
                    comma = ",";
                    if bytes_only {
                        out.push_str(&self.below(256).to_string());
                    } else {
                        self.json_value(depth - 1, out);
                    }
                }
                out.push_str(if comma == "[" { "[]" } else { "]" });
            }
            _ => self.json_object_into(depth, out),
        }
        self.space(out);
    }

    fn json_object_into(&mut self, depth: usize, out: &mut String) {
        let members = if self.one_in(10) { 17 + self.below(40) } else { self.below(6) };
        let depth = if members > 6 { 0 } else { depth.saturating_sub(1) };
        out.push('{');
        for index in 0..members {
            if index > 0 {
                out.push(',');
            }
            self.space(out);
            if self.one_in(3) {
                out.push_str(self.pick(&[
                    r#""a""#,
                    r#""\u0061""#,
                    r#""_id""#,
                    r#""n\n""#,
                    r#""é""#,
                    r#""\u00e9""#,
                    r#""""#,
                ]));
            } else {
                self.json_string(out);
            }
            self.space(out);
            out.push(':');
            self.json_value(depth, out);
        }
        self.space(out);
        out.push('}');
    }

    fn json_number(&mut self, out: &mut String) {
        let fixed =
            ["0", "-0", "-1", "255", "256", "1e3", "-0.0", "5e-324", "1.7976931348623157e308", "9007199254740993"];
        match self.below(5) {
            0 => out.push_str(self.pick(&fixed)),
            1 => out.push_str(&self.next().to_string()),
            2 => out.push_str(&self.next().cast_signed().to_string()),
            3 => out.push_str(&format!("{:e}", self.next() as f64 / 1e15)),
            _ => out.push_str(&format!("-{}{}{:05}", self.next() | 1 << 63, self.next(), self.below(100_000))),
        }
    }

    fn json_string(&mut self, out: &mut String) {
        let pieces = ["a", "bc", "defghijk", "{", "}", "[", "]", ",", ":", "é", "日", "😀", "\u{7f}", " ", "_"];
        let escapes = ["\\\"", "\\\\", "\\/", "\\n", "\\b", "\\u0000", "\\u00e9", "\\ud83d\\ude00", "\\uFFFE"];
        out.push('"');
        let length = if self.one_in(10) { self.below(60) } else { self.below(4) };
        for _ in 0..length {
            out.push_str(if self.one_in(5) { self.pick(&escapes) } else { self.pick(&pieces) });
        }
        out.push('"');
    }
}

/// Multiplies `rounds` by `SETTEE_TEST_SCALE`, 1 by default; only the long gate uses a larger scale.
pub fn scaled(rounds: u64) -> u64 {
    let scale = std::env::var("SETTEE_TEST_SCALE").map_or(Ok(1), |scale| scale.parse());
    rounds * scale.unwrap_or_else(|_| panic!("SETTEE_TEST_SCALE must be a whole number"))
}

impl Random {
    /// Returns random numbers of a range in ascending order: `count` at scale 1, all of them at a large scale.
    pub fn sample(&mut self, range: std::ops::Range<u64>, count: u64) -> Vec<u64> {
        let mut numbers: Vec<u64> = range.collect();
        while numbers.len() as u64 > scaled(count) {
            let index = self.below(numbers.len());
            numbers.remove(index);
        }
        numbers
    }
}

const FUZZ_ROUNDS: u64 = 20_000;

const FUZZ_BYTES: usize = 400;

/// Compares `text` with the file `name` in `folder`. `SETTEE_UPDATE=1` writes the file instead.
#[track_caller]
pub fn check_file(folder: &str, name: &str, text: &str) {
    let path = Path::new(folder).join(name);
    if std::env::var_os("SETTEE_UPDATE").is_some() {
        fs::write(&path, text).expect("tests may write next to their sources");
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    for (number, (line, expected)) in text.lines().zip(expected.lines()).enumerate() {
        assert_eq!(line, expected, "{name}:{}; if this is meant, run again with SETTEE_UPDATE=1", number + 1);
    }
    assert_eq!(text.lines().count(), expected.lines().count(), "{name}; if this is meant: SETTEE_UPDATE=1");
}

/// Calls `check` with mutations of `seeds`, into which `words` are inserted. A failure shows the input.
pub fn fuzz(seeds: &[&[u8]], words: &[&str], check: impl Fn(&[u8])) {
    let mut random = Random::new();
    let mut pool: Vec<Vec<u8>> = seeds.iter().map(|seed| seed.to_vec()).collect();
    for seed in seeds {
        check_shown(seed, &check);
    }
    for _ in 0..scaled(FUZZ_ROUNDS) {
        let mut input = random.pick_one(&pool).to_vec();
        for _ in 0..=random.below(4) {
            random.mutate(&mut input, &pool, words);
        }
        input.truncate(FUZZ_BYTES);
        check_shown(&input, &check);
        if pool.len() < 256 {
            pool.push(input);
        } else if random.one_in(8) {
            let index = seeds.len() + random.below(pool.len() - seeds.len());
            pool[index] = input;
        }
    }
}

fn check_shown(input: &[u8], check: impl Fn(&[u8])) {
    struct Shown<'a>(&'a [u8]);

    impl Drop for Shown<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("the input is b\"{}\"", self.0.escape_ascii());
            }
        }
    }

    let _shown = Shown(input);
    check(input);
}

impl Random {
    fn pick_one<'a>(&mut self, among: &'a [Vec<u8>]) -> &'a [u8] {
        among.get(self.below(among.len())).map_or(&[], Vec::as_slice)
    }

    fn part(&mut self, bytes: &[u8]) -> std::ops::Range<usize> {
        let start = self.below(bytes.len() + 1);
        start..start + self.below((bytes.len() - start).min(32) + 1)
    }

    fn mutate(&mut self, input: &mut Vec<u8>, pool: &[Vec<u8>], words: &[&str]) {
        let at = self.below(input.len() + 1);
        match self.below(6) {
            0 => {
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= 1 << self.below(8);
                }
            }
            1 => input.insert(at, self.next() as u8),
            2 => drop(input.drain(self.part(input))),
            3 => {
                let repeated = input[self.part(input)].to_vec();
                input.splice(at..at, repeated);
            }
            4 => {
                let other = self.pick_one(pool);
                let taken = other[self.part(other)].to_vec();
                input.splice(self.part(input), taken);
            }
            _ => {
                let word = if words.is_empty() { "" } else { self.pick(words) };
                input.splice(at..at, word.bytes());
            }
        }
    }
}
