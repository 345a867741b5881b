//! [`Documents`]: generated documents and their expected query results, determined by a seed alone. Any document, and
//! the expected sums of views, can be computed without the earlier ones. The *founding* document contains a date and a
//! score; the founding view sums the scores of each month.

use clap::ValueEnum;
use std::collections::BTreeMap;
use std::io::Write;
use std::ops::Range;

/// xoshiro256++, seeded by splitmix64.
#[derive(Clone, Debug)]
pub(crate) struct Random([u64; 4]);

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl Random {
    pub(crate) fn new(seed: u64) -> Random {
        let mut state = seed;
        Random(std::array::from_fn(|_| splitmix(&mut state)))
    }

    pub(crate) fn of(seed: u64, stream: u64, index: u64) -> Random {
        let mut state = seed ^ stream.rotate_left(32);
        let base = splitmix(&mut state);
        Random::new(base ^ index.wrapping_mul(0xD6E8_FEB8_6659_FD93))
    }

    pub(crate) fn next(&mut self) -> u64 {
        let s = &mut self.0;
        let result = s[0].wrapping_add(s[3]).rotate_left(23).wrapping_add(s[0]);
        let shifted = s[1] << 17;
        s[2] ^= s[0];
        s[3] ^= s[1];
        s[1] ^= s[2];
        s[0] ^= s[3];
        s[2] ^= shifted;
        s[3] = s[3].rotate_left(45);
        result
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(limit)) >> 64) as u64
    }

    /// Random base64 characters compress badly and need no escapes.
    pub(crate) fn base64(&mut self, length: usize, out: &mut Vec<u8>) {
        let end = out.len() + length;
        while out.len() < end {
            let mut bits = self.next();
            for _ in 0..10.min(end - out.len()) {
                out.push(BASE64[(bits & 63) as usize]);
                bits >>= 6;
            }
        }
    }
}

fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Shape {
    /// The small founding document, padded to `size` bytes if it is shorter.
    Score { size: usize },
    /// The founding document followed by 0 to 100 members of 800 base64 characters.
    Big,
    /// As [`Shape::Big`], with the members that views read at the end.
    BigTail,
    /// `{"n":…,"value":…,"padding":"…"}`
    Padded { padding: usize },
}

impl Shape {
    pub(crate) fn name(self) -> String {
        match self {
            Shape::Score { size: 0 } => "small documents".into(),
            Shape::Score { size } => format!("documents of {size} bytes"),
            Shape::Big => "big documents".into(),
            Shape::BigTail => "big documents, touched members last".into(),
            Shape::Padded { padding } => format!("padding of {padding} bytes"),
        }
    }
}

/// Order of document ids.
#[derive(ValueEnum, Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum IdOrder {
    Sequential,
    /// 128 random bits.
    Random,
}

impl IdOrder {
    pub(crate) fn name(self) -> &'static str {
        match self {
            IdOrder::Sequential => "sequential",
            IdOrder::Random => "random",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Documents {
    pub(crate) shape: Shape,
    pub(crate) order: IdOrder,
    pub(crate) seed: u64,
    pub(crate) count: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) year: u32,
    pub(crate) month: u32,
    day: u32,
    pub(crate) score: u64,
}

/// Exclusive upper bound of scores and of the `value` of padded documents.
pub(crate) const SCORES: u64 = 1_000;
const FIRST_YEAR: u64 = 2011;
const YEARS: u64 = 6;
const EXTRA_MEMBERS: u64 = 101;
const EXTRA_LENGTH: usize = 800;
const ID_STREAM: u64 = 1;
const BODY_STREAM: u64 = 2;

impl Documents {
    /// 32 hexadecimal digits in either order, so that both orders store the same number of bytes.
    pub(crate) fn id(&self, index: u64) -> String {
        match self.order {
            IdOrder::Sequential => format!("{:016x}{index:016x}", Random::of(self.seed, ID_STREAM, 0).next()),
            IdOrder::Random => {
                let mut random = Random::of(self.seed, ID_STREAM, index);
                format!("{:016x}{:016x}", random.next(), random.next())
            }
        }
    }

    pub(crate) fn score(&self, index: u64) -> Score {
        Score::draw(&mut Random::of(self.seed, BODY_STREAM, index))
    }

    pub(crate) fn value(&self, index: u64) -> u64 {
        Random::of(self.seed, BODY_STREAM, index).below(SCORES)
    }

    /// Omits braces, so that callers can put `_id` and `_rev` before the members.
    pub(crate) fn write_members(&self, index: u64, out: &mut Vec<u8>) {
        let mut random = Random::of(self.seed, BODY_STREAM, index);
        let start = out.len();
        match self.shape {
            Shape::Score { size } => {
                Score::draw(&mut random).write(&mut random, out);
                let overhead = out.len() - start + r#"{,"padding":""}"#.len();
                if size > overhead {
                    out.extend_from_slice(br#","padding":""#);
                    random.base64(size - overhead, out);
                    out.push(b'"');
                }
            }
            Shape::Big => {
                Score::draw(&mut random).write(&mut random, out);
                for extra in 0..random.below(EXTRA_MEMBERS) {
                    out.push(b',');
                    write_extra(extra, &mut random, out);
                }
            }
            Shape::BigTail => {
                let score = Score::draw(&mut random);
                for extra in 0..random.below(EXTRA_MEMBERS) {
                    write_extra(extra, &mut random, out);
                    out.push(b',');
                }
                score.write(&mut random, out);
            }
            Shape::Padded { padding } => {
                let value = random.below(SCORES);
                append(out, format_args!(r#""n":{index},"value":{value},"padding":""#));
                random.base64(padding, out);
                out.push(b'"');
            }
        }
    }

    pub(crate) fn body(&self, index: u64) -> Vec<u8> {
        let mut out = vec![b'{'];
        self.write_members(index, &mut out);
        out.push(b'}');
        out
    }

    pub(crate) fn bulk_body(&self, range: Range<u64>) -> Vec<u8> {
        let mut out = br#"{"docs":["#.to_vec();
        for index in range.clone() {
            if index > range.start {
                out.push(b',');
            }
            append(&mut out, format_args!(r#"{{"_id":"{}","#, self.id(index)));
            self.write_members(index, &mut out);
            out.push(b'}');
        }
        out.extend_from_slice(b"]}");
        out
    }

    /// Sum of the scores of each month: the expected result of the founding view with `?group=true`, in its order.
    pub(crate) fn sums_by_month(&self) -> BTreeMap<(u32, u32), u64> {
        let mut sums = BTreeMap::new();
        for index in 0..self.count {
            let score = self.score(index);
            *sums.entry((score.year, score.month)).or_default() += score.score;
        }
        sums
    }
}

impl Score {
    fn draw(random: &mut Random) -> Score {
        Score {
            year: (FIRST_YEAR + random.below(YEARS)) as u32,
            month: 1 + random.below(12) as u32,
            day: 1 + random.below(28) as u32,
            score: random.below(SCORES),
        }
    }

    fn write(self, random: &mut Random, out: &mut Vec<u8>) {
        let Score { year, month, day, score } = self;
        append(
            out,
            format_args!(
                r#""metadata":{{"docType":"userscore","createdAt":"{year}-{month:02}-{day:02}"}},"username":"user{:05}","score":{score}"#,
                random.below(100_000)
            ),
        );
    }
}

fn write_extra(number: u64, random: &mut Random, out: &mut Vec<u8>) {
    append(out, format_args!(r#""extra{number:03}":""#));
    random.base64(EXTRA_LENGTH, out);
    out.push(b'"');
}

fn append(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a vector cannot fail");
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use serde_json::Value;

    fn documents(shape: Shape, order: IdOrder) -> Documents {
        Documents { shape, order, seed: 7, count: 500 }
    }

    #[test]
    fn same_seed_same_documents() {
        for shape in [Shape::Score { size: 0 }, Shape::Big, Shape::BigTail, Shape::Padded { padding: 50 }] {
            let one = documents(shape, IdOrder::Random);
            assert_eq!(one.bulk_body(3..9), one.bulk_body(3..9));
            let other = Documents { seed: 8, ..one };
            assert_ne!(one.bulk_body(3..9), other.bulk_body(3..9));
        }
        let first = documents(Shape::Score { size: 0 }, IdOrder::Sequential).bulk_body(0..1);
        let expected = r#"{"docs":[{"_id":""#;
        assert!(first.starts_with(expected.as_bytes()));
        assert_eq!(Random::new(1).next(), 0xCFC5_D07F_6F03_C29B);
    }

    #[test]
    fn documents_are_json_with_the_summed_member() {
        for shape in [Shape::Score { size: 0 }, Shape::Score { size: 256 }, Shape::Big, Shape::BigTail] {
            let documents = documents(shape, IdOrder::Random);
            let mut sums: BTreeMap<(u32, u32), u64> = BTreeMap::new();
            let bulk: Value = serde_json::from_slice(&documents.bulk_body(0..documents.count)).unwrap();
            for document in bulk["docs"].as_array().unwrap() {
                let date = document["metadata"]["createdAt"].as_str().unwrap();
                let key = (date[..4].parse().unwrap(), date[5..7].parse().unwrap());
                *sums.entry(key).or_default() += document["score"].as_u64().unwrap();
            }
            assert_eq!(sums, documents.sums_by_month(), "{shape:?}");
        }
    }

    #[test]
    fn sizes_are_as_asked() {
        let padded = documents(Shape::Score { size: 256 }, IdOrder::Random);
        assert!((0..100).all(|index| padded.body(index).len() == 256));
        let big = documents(Shape::Big, IdOrder::Random);
        let mean = (0..500).map(|index| big.body(index).len()).sum::<usize>() / 500;
        assert!((35_000..46_000).contains(&mean), "{mean}");
        let body = documents(Shape::Padded { padding: 1000 }, IdOrder::Random).body(4);
        let value: Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(value["padding"].as_str().unwrap().len(), 1000);
        assert_eq!(value["n"], 4);
    }

    #[test]
    fn sequential_ids_grow_and_random_ids_differ() {
        let sequential = documents(Shape::Big, IdOrder::Sequential);
        assert!((1..300).all(|index| sequential.id(index - 1) < sequential.id(index)));
        let random = documents(Shape::Big, IdOrder::Random);
        let ids: std::collections::BTreeSet<String> = (0..500).map(|index| random.id(index)).collect();
        assert_eq!(ids.len(), 500);
        assert!(ids.iter().all(|id| id.len() == sequential.id(0).len()));
    }
}
