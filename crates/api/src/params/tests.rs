//! Query strings and parsing of single values.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{json, query, show};

#[test]
fn query_strings_are_decoded() {
    let check = |text: &str, expected: &[(&str, &str)]| {
        let query = query(text);
        let pairs: Vec<_> = query.pairs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(pairs, expected, "{text}");
    };
    check("", &[]);
    check("&&", &[]);
    check("a", &[("a", "")]);
    check("a=", &[("a", "")]);
    check("=b", &[("", "b")]);
    check("a=b=c", &[("a", "b=c")]);
    check("a=1&b=2&a=3", &[("a", "1"), ("b", "2"), ("a", "3")]);
    check("a+b=c+d", &[("a b", "c d")]);
    check("a=%2B%26%3D", &[("a", "+&=")]);
    check("k%65y=%22%C3%A9%22", &[("key", "\"é\"")]);
    check("a=100%&b=%zz", &[("a", "100%"), ("b", "%zz")]);
    check("a=%00", &[("a", "\0")]);
    check("a=1;b=2&c;d=%3B", &[("a", "1"), ("b", "2"), ("c", ""), ("d", ";")]);
}

#[test]
fn query_strings_must_be_text() {
    for text in ["a=%ff", "%C3=1", "a=1&b=%ed%a0%80"] {
        let error = Query::parse(Some(text)).unwrap_err();
        assert_eq!(show(&error), "400 bad_request: The query string is not valid UTF-8.", "{text}");
    }
}

#[test]
fn of_several_values_the_first_is_found_and_any_true_counts() {
    let query = query("descending=true&a=1&a=2&descending=false&b=x&b=true");
    assert_eq!(query.get("a"), Some("1"));
    assert!(query.is_true("descending") && query.is_true("b"));
    assert!(!query.is_true("a"));
    assert_eq!(query.get("c"), None);
}

#[test]
fn only_true_is_true() {
    for (value, expected) in
        [("true", true), ("false", false), ("TRUE", false), ("1", false), ("", false), ("\"true\"", false)]
    {
        assert_eq!(query(&format!("x={value}")).is_true("x"), expected, "{value}");
    }
}

#[test]
fn invalid_booleans_are_reported() {
    let check = |raw: Raw, expected: Result<bool, &str>| {
        let shown = format!("{raw:?}");
        assert_eq!(raw.boolean().map_err(|error| show(&error)), expected.map_err(str::to_owned), "{shown}");
    };
    check(Raw::Text("true".to_owned()), Ok(true));
    check(Raw::Text("false".to_owned()), Ok(false));
    check(Raw::Json(json("true")), Ok(true));
    check(Raw::Json(json("false")), Ok(false));
    check(Raw::Json(json("\"true\"")), Ok(true));
    check(Raw::Text("TRUE".to_owned()), Ok(true));
    check(Raw::Json(json("\"False\"")), Ok(false));
    check(Raw::Text("1".to_owned()), Err("400 query_parse_error: Invalid boolean parameter: \"1\""));
    check(Raw::Text(String::new()), Err("400 query_parse_error: Invalid boolean parameter: []"));
    check(Raw::Text("a\"b".to_owned()), Err("400 query_parse_error: Invalid boolean parameter: \"a\\\"b\""));
    check(Raw::Json(json("1")), Err("400 query_parse_error: Invalid boolean parameter: 1"));
    check(Raw::Json(json("\"\"")), Err("400 query_parse_error: Invalid boolean parameter: []"));
    check(Raw::Json(json("[true]")), Err("400 query_parse_error: Invalid boolean parameter: [true]"));
}

#[test]
fn invalid_integers_are_reported() {
    let check = |raw: Raw, expected: Result<u64, &str>| {
        let shown = format!("{raw:?}");
        assert_eq!(raw.natural().map_err(|error| show(&error)), expected.map_err(str::to_owned), "{shown}");
    };
    let text = |text: &str| Raw::Text(text.to_owned());
    check(text("0"), Ok(0));
    check(text("007"), Ok(7));
    check(text("+7"), Ok(7));
    check(text("-0"), Ok(0));
    check(text("18446744073709551615"), Ok(u64::MAX));
    check(text("18446744073709551616"), Ok(u64::MAX));
    check(Raw::Json(json("12")), Ok(12));
    check(Raw::Json(json("\"12\"")), Err("400 query_parse_error: Invalid value for integer: \"12\""));
    check(text(" 7"), Err("400 query_parse_error: Invalid value for integer: \" 7\""));
    check(text("-1"), Err("400 query_parse_error: Invalid value for positive integer: \"-1\""));
    check(text("+"), Err("400 query_parse_error: Invalid value for integer: \"+\""));
    check(text(""), Err("400 query_parse_error: Invalid value for integer: []"));
    check(text("1.5"), Err("400 query_parse_error: Invalid value for integer: \"1.5\""));
    check(text("1e3"), Err("400 query_parse_error: Invalid value for integer: \"1e3\""));
    check(text("ten"), Err("400 query_parse_error: Invalid value for integer: \"ten\""));
    check(Raw::Json(json("1.0")), Err("400 query_parse_error: Invalid value for integer: 1.0"));
    check(Raw::Json(json("null")), Err("400 query_parse_error: Invalid value for integer: null"));
    check(Raw::Json(json("-3")), Err("400 query_parse_error: Invalid value for positive integer: -3"));
    check(text(&"9".repeat(100)), Ok(u64::MAX));
}

#[test]
fn a_partition_of_the_path_becomes_a_parameter() {
    let within = |text: &str| {
        let mut query = query(text);
        query.set_partition("p").map(|()| query.pairs).map_err(|error| show(&error))
    };
    let pairs = |pairs: &[(&str, &str)]| {
        Ok(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect::<Vec<_>>())
    };
    let sorted = pairs(&[("key", "1"), ("limit", "2"), ("partition", "p")]);
    assert_eq!(within("limit=2&key=1&limit=3&partition=p"), sorted);
    assert_eq!(within(""), pairs(&[("partition", "p")]));
    let refused = "400 bad_request: Conflicting value for `partition` in query string";
    assert_eq!(within("partition=q"), Err(refused.to_owned()));
}

#[test]
fn a_plus_in_a_path_may_stand_for_itself() {
    assert_eq!(decode("a+b%2Bc", Plus::Space).as_deref(), Some("a b+c"));
    assert_eq!(decode("a+b%2Bc", Plus::Plus).as_deref(), Some("a+b+c"));
}

#[test]
fn json_values_come_from_text_or_from_bodies() {
    assert_eq!(Raw::Text(" [1, 2] ".to_owned()).json().unwrap(), json("[1,2]"));
    assert_eq!(Raw::Json(json("{}")).json().unwrap(), json("{}"));
    let error = Raw::Text("abc".to_owned()).json().unwrap_err();
    assert_eq!(show(&error), "400 bad_request: invalid UTF-8 JSON");
}
