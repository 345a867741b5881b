//! The order of JSON values as Erlang terms, which CouchDB uses where it does not collate. Numbers, `false`, `null`,
//! `true`, objects, arrays, strings. The first member that differs decides the order of objects, by its name or else by
//! its value. Strings are compared by their bytes.

use std::cmp::Ordering;

use crate::collate::{self, Collation};
use crate::json::{Kind, Value};

/// Compares two values as Erlang terms.
#[must_use]
pub fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    rank(a).cmp(&rank(b)).then_with(|| match a.kind() {
        Kind::Null | Kind::Bool => Ordering::Equal,
        Kind::Number => collate::compare(a, b, Collation::Raw),
        Kind::String => a.as_str().cmp(&b.as_str()),
        Kind::Array => compare_lists(a.elements(), b.elements(), |a, b| compare(a, b)),
        Kind::Object => compare_lists(a.members(), b.members(), |(name, value), (other_name, other)| {
            name.as_str().cmp(&other_name.as_str()).then_with(|| compare(value, other))
        }),
    })
}

/// Atoms are sorted by their names. The empty list is a separate type in Erlang, but sorts directly before other lists.
fn rank(value: Value<'_>) -> u8 {
    match value.kind() {
        Kind::Number => 0,
        Kind::Bool if value.as_bool() == Some(false) => 1,
        Kind::Null => 2,
        Kind::Bool => 3,
        Kind::Object => 4,
        Kind::Array => 5,
        Kind::String => 6,
    }
}

/// A prefix of a list is less than the list.
fn compare_lists<T>(
    mut a: impl Iterator<Item = T>,
    mut b: impl Iterator<Item = T>,
    compare: impl Fn(T, T) -> Ordering,
) -> Ordering {
    loop {
        match (a.next(), b.next()) {
            (None, None) => return Ordering::Equal,
            (None, Some(_)) => return Ordering::Less,
            (Some(_), None) => return Ordering::Greater,
            (Some(one), Some(other)) => match compare(one, other) {
                Ordering::Equal => {}
                decided => return decided,
            },
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::json::Json;

    #[test]
    fn values_are_sorted_as_terms() {
        let sorted = [
            "-1.5",
            "0",
            "1",
            "1e3",
            "false",
            "null",
            "true",
            "{}",
            r#"{"a":1}"#,
            r#"{"a":1,"b":0}"#,
            r#"{"a":2}"#,
            r#"{"a":{}}"#,
            r#"{"b":0}"#,
            "[]",
            "[0]",
            "[0,0]",
            "[1]",
            r#"["a"]"#,
            r#""""#,
            r#""B""#,
            r#""a""#,
            r#""aa""#,
            "\"é\"",
        ];
        let values: Vec<Json> = sorted.iter().map(|text| Json::parse(text.as_bytes()).unwrap()).collect();
        for (index, one) in values.iter().enumerate() {
            for (other_index, other) in values.iter().enumerate() {
                let order = compare(one.value(), other.value());
                assert_eq!(order, index.cmp(&other_index), "{} and {}", sorted[index], sorted[other_index]);
            }
        }
    }
}
