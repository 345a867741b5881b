//! Collation as a whole: orders recorded from CouchDB, random values, skipping.
#![expect(clippy::unwrap_used, reason = "tests")]

mod numbers;
mod strings;

use std::cmp::Ordering;

use super::{Collation, compare, encode, encoded_len, group_prefix, version};
use crate::json::Value;
use crate::testing::Random;

fn encoded(json: &str, collation: Collation) -> Vec<u8> {
    let mut out = Vec::new();
    encode(Value::trusted(json.as_bytes()), collation, &mut out);
    out
}

/// Returns the result of `compare`, which that of the encodings must equal. Neither may be a prefix of the other.
fn check_pair(a: &str, b: &str, collation: Collation) -> Ordering {
    let order = compare(Value::trusted(a.as_bytes()), Value::trusted(b.as_bytes()), collation);
    let (key_a, key_b) = (encoded(a, collation), encoded(b, collation));
    assert_eq!(key_a.cmp(&key_b), order, "{a} and {b} in {collation:?}: {key_a:02x?} {key_b:02x?}");
    let prefix = key_a.starts_with(&key_b) || key_b.starts_with(&key_a);
    assert_eq!(prefix, order.is_eq(), "one encoding is a prefix of the other: {a} and {b} in {collation:?}");
    order
}

/// `values` must be in strictly ascending order.
fn check_ascending(values: &[&str], collation: Collation) {
    for (i, a) in values.iter().enumerate() {
        for (j, b) in values.iter().enumerate() {
            assert_eq!(check_pair(a, b, collation), i.cmp(&j), "{a} and {b} in {collation:?}");
        }
    }
}

fn random_value(random: &mut Random, depth: usize) -> String {
    match random.below(if depth == 0 { 7 } else { 10 }) {
        0 => random.pick(&["null", "false", "true"]).to_owned(),
        1..=3 => numbers::random_number(random),
        4..=6 => strings::random_literal(random),
        7 | 8 => {
            let elements: Vec<_> = (0..random.below(4)).map(|_| random_value(random, depth - 1)).collect();
            format!("[{}]", elements.join(","))
        }
        _ => {
            let members = (0..random.below(4))
                .map(|_| format!("{}:{}", strings::random_literal(random), random_value(random, depth - 1)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
    }
}

#[test]
fn types_are_in_the_recorded_order() {
    check_ascending(
        &[
            "null",
            "false",
            "true",
            "-10000000000.0",
            "-1",
            "-0.5",
            "0",
            "0.5",
            "1",
            "2",
            "10",
            "123456.75",
            r#""""#,
            r#""a""#,
            r#""b""#,
            r#""z""#,
            "[]",
            "[null]",
            "[1]",
            "[1,2]",
            "[2]",
            r#"["a"]"#,
            r#"["a","b"]"#,
            r#"["b"]"#,
            "[[]]",
            "[{}]",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":1,"b":1}"#,
            r#"{"a":2}"#,
            r#"{"b":1}"#,
            r#"{"b":2}"#,
            r#"{"b":2,"a":1}"#,
            r#"{"b":2,"c":2}"#,
        ],
        Collation::Unicode,
    );
}

#[test]
fn arrays_and_objects_are_in_the_recorded_order() {
    check_ascending(
        &[
            "[]",
            "[null]",
            "[null,null]",
            "[true]",
            "[0]",
            "[1]",
            "[1,0]",
            r#"[1,"a"]"#,
            "[1,[0]]",
            "[2]",
            r#"["a"]"#,
            r#"["a","a"]"#,
            r#"["a","b"]"#,
            r#"["a",{}]"#,
            r#"["b"]"#,
            "[[1]]",
            "[[1],2]",
            "[{}]",
        ],
        Collation::Unicode,
    );
    check_ascending(
        &[
            "{}",
            r#"{"":0}"#,
            r#"{"a":null}"#,
            r#"{"a":1}"#,
            r#"{"a":1,"b":1}"#,
            r#"{"a":1,"b":2}"#,
            r#"{"a":[]}"#,
            r#"{"a":{"x":1}}"#,
            r#"{"A":1}"#,
            r#"{"aa":1}"#,
            r#"{"b":1}"#,
            r#"{"b":1,"a":1}"#,
        ],
        Collation::Unicode,
    );
}

#[test]
fn raw_order_is_the_recorded_one() {
    check_ascending(
        &[
            "-1",
            "0",
            "1",
            "1.5",
            "false",
            "null",
            "true",
            "{}",
            r#"{"a":1}"#,
            "[]",
            "[1]",
            r#"["a"]"#,
            r#""""#,
            r#""0""#,
            r#""A""#,
            r#""B""#,
            r#""a""#,
            r#""aa""#,
            r#""b""#,
            r#""z""#,
            r#""é""#,
            r#""日""#,
        ],
        Collation::Raw,
    );
    check_ascending(
        &[
            r#""""#,
            r#""\u0000""#,
            r#""\u0000\u0000""#,
            r#""\u0000\u0001""#,
            r#""\u0000a""#,
            r#""\u0001""#,
            r#""\u0001\u0000""#,
            r#""\u0001\u0002""#,
            r#""\u0002""#,
            r#""\u0002\u0001""#,
            r#""\n""#,
        ],
        Collation::Raw,
    );
}

#[test]
fn random_values_compare_as_their_encodings() {
    let random = &mut Random::new();
    for _ in 0..4 {
        let values: Vec<_> = (0..250).map(|_| random_value(random, 3)).collect();
        for collation in [Collation::Unicode, Collation::Raw] {
            for (index, a) in values.iter().enumerate() {
                for b in &values[..=index] {
                    let order = check_pair(a, b, collation);
                    assert_eq!(compare_text(b, a, collation), order.reverse(), "{b} and {a} in {collation:?}");
                }
            }
        }
    }
}

fn compare_text(a: &str, b: &str, collation: Collation) -> Ordering {
    compare(Value::trusted(a.as_bytes()), Value::trusted(b.as_bytes()), collation)
}

#[test]
fn encodings_are_skipped_without_decoding() {
    let random = &mut Random::new();
    for _ in 0..6 {
        for collation in [Collation::Unicode, Collation::Raw] {
            for _ in 0..2_000 {
                let (value, next) = (random_value(random, 4), random_value(random, 1));
                let mut bytes = encoded(&value, collation);
                let len = bytes.len();
                bytes.extend(encoded(&next, collation));
                assert_eq!(encoded_len(&bytes), len, "{value} before {next} in {collation:?}");
                // Truncated input does not lead out of the input.
                for cut in 0..len {
                    assert!(encoded_len(&bytes[..cut]) <= cut, "{value} cut at {cut}");
                }
            }
        }
    }
}

#[test]
fn groups_are_beginnings_of_arrays() {
    let check = |array: &str, elements: usize, group: Option<&str>| {
        for collation in [Collation::Unicode, Collation::Raw] {
            let bytes = encoded(array, collation);
            let mut expected = encoded(group.unwrap_or(array), collation);
            if group.is_some() {
                assert_eq!(expected.pop(), Some(0));
            }
            assert_eq!(group_prefix(&bytes, elements), expected, "{elements} of {array} in {collation:?}");
        }
    };
    check("[1,2,3]", 0, Some("[]"));
    check("[1,2,3]", 2, Some("[1,2]"));
    check(r#"[1.0,2e0,"x"]"#, 2, Some("[1,2]"));
    check("[1,2]", 2, Some("[1,2]"));
    check("[1]", 2, None);
    check("[]", 1, None);
    check(r#"[[1,[2]],{"a":[0,""],"b":{}},"x",-7,null]"#, 1, Some("[[1,[2]]]"));
    check(r#"[[1,[2]],{"a":[0,""],"b":{}},"x",-7,null]"#, 2, Some(r#"[[1,[2]],{"a":[0,""],"b":{}}]"#));
    check(r#"[[1,[2]],{"a":[0,""],"b":{}},"x",-7,null]"#, 4, Some(r#"[[1,[2]],{"a":[0,""],"b":{}},"x",-7]"#));
    for scalar in ["null", "7", r#""abc""#, r#"{"a":[1,2]}"#] {
        check(scalar, 1, None);
    }
}

#[test]
fn random_groups_are_equal_if_their_elements_are() {
    let random = &mut Random::new();
    for _ in 0..6 {
        for collation in [Collation::Unicode, Collation::Raw] {
            for _ in 0..2_000 {
                let [a, b, c, d, e] = [(); 5].map(|()| random_value(random, 2));
                let group = |array: &str| group_prefix(&encoded(array, collation), 2).to_vec();
                let group_of_three = group(&format!("[{a},{b},{c}]"));
                assert_eq!(group_of_three, group(&format!("[{a},{b},{d},{e}]")), "{a} {b} {c} {d} in {collation:?}");
                assert_eq!(group_of_three, group(&format!("[{a},{b}]")), "{a} {b} {c} in {collation:?}");
                assert_ne!(group_of_three, group(&format!("[{a}]")), "{a} {b} {c} in {collation:?}");
                assert_eq!(
                    group_of_three.cmp(&group(&format!("[{a},{e},{d}]"))),
                    compare_text(&b, &e, collation),
                    "{a} {b} {e} in {collation:?}"
                );
            }
        }
    }
}

#[test]
fn deep_nesting_is_no_problem() {
    let depth = crate::json::MAX_DEPTH;
    let deep = |inner: &str| format!("{}{inner}{}", "[".repeat(depth), "]".repeat(depth));
    assert_eq!(check_pair(&deep("1"), &deep("2"), Collation::Unicode), Ordering::Less);
    assert_eq!(encoded_len(&encoded(&deep("1"), Collation::Unicode)), encoded(&deep("1"), Collation::Unicode).len());
}

#[test]
fn version_names_the_library_in_use() {
    let lock = include_str!("../../../../Cargo.lock");
    let locked = lock.split("[[package]]").find(|package| package.contains("name = \"icu_collator\"")).unwrap();
    let number = locked.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    assert!(version().split(' ').any(|part| part == format!("icu_collator-{number}")), "{} {number}", version());
}
