use std::fmt::Write as _;

use settee_model::testing::Random;

pub(super) const NAMES: [&str; 12] = ["a", "b", "c", "o", "l", "s", "n", "type", "1", "10", "length", "toString"];

pub(super) const STRINGS: [&str; 26] = [
    "",
    "a",
    "b",
    "ab",
    "Ab cD",
    "10",
    "9",
    " 7 ",
    "-0",
    "1e3",
    "0x1f",
    "1.50",
    "é",
    "ÀÉß",
    "😀x",
    "x,y,,z",
    "2010-01-15",
    "2016-12-19T23:59:58.120Z",
    "2012-02-30",
    "a\\\"b\\\\c\\n",
    "Infinity",
    "true",
    "the quick  brown fox",
    "ZZZ",
    "\\u2028",
    "user@example.com",
];

pub(super) const NUMBERS: [&str; 20] = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "10",
    "0.1",
    "0.5",
    "1.5",
    "2.5",
    "-2.5",
    "1.005",
    "1e21",
    "123456789",
    "2147483648",
    "4294967296",
    "-2147483649",
    "9007199254740993",
    "1e-7",
    "1325376000000",
];

fn value(random: &mut Random, depth: usize, out: &mut String) {
    match random.below(if depth > 2 { 6 } else { 10 }) {
        0 => out.push_str(random.pick(&["true", "false", "null"])),
        1 | 2 => out.push_str(random.pick(&NUMBERS)),
        3..6 => write!(out, "\"{}\"", random.pick(&STRINGS)).unwrap(),
        6 | 7 => {
            out.push('[');
            let same = random.below(4);
            for number in 0..random.below(5) {
                out.push_str(if number == 0 { "" } else { "," });
                match same {
                    0 => out.push_str(random.pick(&NUMBERS)),
                    1 => write!(out, "\"{}\"", random.pick(&STRINGS)).unwrap(),
                    _ => value(random, depth + 1, out),
                }
            }
            out.push(']');
        }
        _ => object(random, depth + 1, out),
    }
}

fn object(random: &mut Random, depth: usize, out: &mut String) {
    out.push('{');
    let mut names = NAMES.to_vec();
    for number in 0..random.below(6) {
        out.push_str(if number == 0 { "" } else { "," });
        let last = if random.chance(90) { names.len().min(10) } else { names.len() };
        let name = names.remove(random.below(last));
        write!(out, "\"{name}\":").unwrap();
        value(random, depth, out);
    }
    out.push('}');
}

pub(crate) fn document(random: &mut Random) -> String {
    let mut out = format!("{{\"_id\":\"{}\",\"_rev\":\"1-abc\"", random.pick(&STRINGS));
    for (name, kind) in [("a", 0), ("b", 0), ("n", 1), ("s", 2), ("l", 3), ("o", 4), ("type", 2), ("10", 1), ("2", 2)] {
        if random.chance(20) {
            continue;
        }
        write!(out, ",\"{name}\":").unwrap();
        match if random.chance(10) { 0 } else { kind } {
            1 => out.push_str(random.pick(&NUMBERS)),
            2 => write!(out, "\"{}\"", random.pick(&STRINGS)).unwrap(),
            3 => {
                out.push('[');
                for number in 0..random.below(5) {
                    out.push_str(if number == 0 { "" } else { "," });
                    value(random, 1, &mut out);
                }
                out.push(']');
            }
            4 => object(random, 0, &mut out),
            _ => value(random, 0, &mut out),
        }
    }
    out.push('}');
    out
}
