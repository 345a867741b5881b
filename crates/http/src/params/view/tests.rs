//! Parameters of views, from query strings and bodies, and the queries that they make.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::{json, query, show};

fn from_query(text: &str) -> Result<ViewParams, Error> {
    ViewParams::from_query(&query(text))
}

fn from_body(body: &str, text: &str) -> Result<ViewParams, Error> {
    ViewParams::from_body(json(body).value(), &query(text), Source::View)
}

#[test]
fn a_query_string_and_a_body_say_the_same() {
    let text = concat!(
        "startkey=%5B1%5D&endkey=%22z%22&startkey_docid=a&endkey_docid=b&inclusive_end=false&descending=true&skip=3",
        "&limit=4&reduce=true&group=true&group_level=2&include_docs=true&conflicts=true&update_seq=true&sorted=false",
        "&update=lazy&key=null&keys=%5B1%2C%22a%22%5D&stable=true&unknown=1"
    );
    let body = concat!(
        r#"{"start_key":[1],"end_key":"z","start_key_doc_id":"a","end_key_doc_id":"b","inclusive_end":false,"#,
        r#""descending":true,"skip":3,"limit":4,"reduce":true,"group":true,"group_level":2,"include_docs":true,"#,
        r#""conflicts":true,"update_seq":true,"sorted":false,"update":"lazy","key":null,"keys":[1,"a"],"stable":true,"#,
        r#""unknown":{"x":1}}"#
    );
    let (left, right) = (from_query(text).unwrap(), from_body(body, "").unwrap());
    assert_eq!(format!("{left:?}"), format!("{right:?}"));
    assert_eq!(left.startkey, Some(json("[1]")));
    assert_eq!(left.endkey, Some(json("\"z\"")));
    assert_eq!((left.startkey_docid.as_deref(), left.endkey_docid.as_deref()), (Some("a"), Some("b")));
    assert_eq!((left.inclusive_end, left.descending, left.skip, left.limit), (Some(false), true, 3, Some(4)));
    assert_eq!((left.reduce, left.group, left.group_level), (Some(true), Some(true), Some(2)));
    assert!(left.include_docs && left.conflicts && left.update_seq && left.sorted == Some(false));
    assert_eq!((left.update, left.key), (Update::Lazy, Some(json("null"))));
    assert_eq!(left.keys, Some(vec![json("1"), json("\"a\"")]));
}

#[test]
fn the_query_string_wins_over_the_body() {
    let params = from_body(r#"{"limit":1,"skip":2}"#, "limit=5").unwrap();
    assert_eq!((params.limit, params.skip), (Some(5), 2));
}

#[test]
fn errors_have_couchdbs_texts() {
    let check = |text: &str, expected: &str| {
        assert_eq!(from_query(text).map(|_| ()).map_err(|error| show(&error)), Err(expected.to_owned()), "{text}");
    };
    check("limit=-1", "400 query_parse_error: Invalid value for positive integer: \"-1\"");
    check("skip=x", "400 query_parse_error: Invalid value for integer: \"x\"");
    check("group_level=1.0", "400 query_parse_error: Invalid value for integer: \"1.0\"");
    check("descending=yes", "400 query_parse_error: Invalid boolean parameter: \"yes\"");
    check("include_docs=", "400 query_parse_error: Invalid boolean parameter: \"\"");
    check("stable=1", "400 query_parse_error: Invalid boolean parameter: \"1\"");
    check("stale=yes", "400 query_parse_error: Invalid value for `stale`.");
    check("update=maybe", "400 query_parse_error: Invalid value for `update`.");
    check("key=abc", "400 bad_request: invalid UTF-8 JSON");
    check("startkey=", "400 bad_request: invalid UTF-8 JSON");
    check("keys=1", "400 bad_request: `keys` parameter must be an array.");
    let deep = format!("key={}", "[".repeat(100_000));
    check(&deep, "400 bad_request: invalid UTF-8 JSON");
}

#[test]
fn bodies_must_be_objects_with_lists_of_keys() {
    let check = |body: &str, source: Source, expected: &str| {
        let error = ViewParams::from_body(json(body).value(), &query(""), source).unwrap_err();
        assert_eq!(show(&error), expected, "{body}");
    };
    check("[]", Source::View, "400 bad_request: Request body must be a JSON object");
    check("null", Source::Documents, "400 bad_request: Request body must be a JSON object");
    check(r#"{"keys":{}}"#, Source::View, "400 bad_request: `keys` member must be an array.");
    check(r#"{"keys":"a"}"#, Source::Documents, "400 bad_request: `keys` body member must be an array.");
    check(r#"{"limit":null}"#, Source::View, "400 query_parse_error: Invalid value for integer: null");
}

#[test]
fn of_the_body_of_a_temporary_view_only_keys_count() {
    let of = |body: &str| ViewParams::of_temporary(json(body).value(), &query("limit=2"));
    let params = of(r#"{"map":"m","reduce":"_sum","skip":"x","keys":[1,"a"]}"#).unwrap();
    assert_eq!(params.keys, Some(vec![json("1"), json("\"a\"")]));
    assert_eq!((params.limit, params.skip, params.reduce), (Some(2), 0, None));
    assert_eq!(of(r#"{"map":"m"}"#).unwrap().keys, None);
    assert_eq!(show(&of(r#"{"keys":1}"#).unwrap_err()), "400 bad_request: `keys` member must be an array.");
}

#[test]
fn reductions_follow_from_three_parameters() {
    let check = |text: &str, expected: Reduce| {
        assert_eq!(from_query(text).unwrap().view_query().reduce, expected, "{text}");
    };
    check("", Reduce::Default);
    check("reduce=true", Reduce::Whole);
    check("reduce=false", Reduce::Off);
    check("group=true", Reduce::Exact);
    check("reduce=true&group=true", Reduce::Exact);
    check("group=false", Reduce::Default);
    check("group_level=2", Reduce::Level(2));
    check("group_level=0", Reduce::Default);
    check("reduce=true&group_level=0", Reduce::Whole);
    check("group=true&group_level=1", Reduce::Level(1));
    check("group=false&group_level=1", Reduce::Level(1));
    check("group_level=18446744073709551615", Reduce::Level(u32::MAX));
    check("reduce=false&group=true", Reduce::Off);
}

#[test]
fn grouping_rows_of_a_map_function_is_noticed() {
    for (text, expected) in [
        ("", false),
        ("reduce=false", false),
        ("group=true", false),
        ("reduce=false&group=true", true),
        ("reduce=false&group_level=1", true),
        ("reduce=false&group_level=0", false),
        ("reduce=false&group=false", false),
    ] {
        assert_eq!(from_query(text).unwrap().groups_map_rows(), expected, "{text}");
    }
}

#[test]
fn keys_make_ranges() {
    let keys = |text: &str| from_query(text).unwrap().view_query().keys;
    let range = |start: Option<Start>, end: Option<End>| Keys::Range { start, end };
    let start = |key: &str, docid: Option<&str>| Some(Start { key: json(key), docid: docid.map(str::to_owned) });
    let end = |key: &str, docid: Option<&str>, inclusion| {
        Some(End { key: json(key), docid: docid.map(str::to_owned), inclusion })
    };
    assert_eq!(keys(""), range(None, None));
    assert_eq!(keys("inclusive_end=false"), range(None, None));
    assert_eq!(keys("startkey=1"), range(start("1", None), None));
    assert_eq!(keys("startkey=null"), range(start("null", None), None));
    assert_eq!(keys("endkey=1"), range(None, end("1", None, Inclusion::Inclusive)));
    assert_eq!(keys("endkey=1&inclusive_end=false"), range(None, end("1", None, Inclusion::Exclusive)));
    assert_eq!(
        keys("startkey=1&endkey=2&startkey_docid=a&endkey_docid=b"),
        range(start("1", Some("a")), end("2", Some("b"), Inclusion::Inclusive))
    );
    // Ids without a key mean nothing.
    assert_eq!(keys("startkey_docid=a&endkey_docid=b"), range(None, None));
    assert_eq!(keys("key=1&startkey=5"), range(start("1", None), end("1", None, Inclusion::Inclusive)));
    assert_eq!(keys("keys=%5B%5D"), Keys::Many(Vec::new()));
    assert_eq!(keys("keys=%5B2%2C1%5D&startkey=5"), Keys::Many(vec![json("2"), json("1")]));
}

#[test]
fn stale_and_update_are_two_names_of_one_thing() {
    for (text, expected) in [
        ("", Update::True),
        ("stale=ok", Update::False),
        ("stale=update_after", Update::Lazy),
        ("update=true", Update::True),
        ("update=false", Update::False),
        ("update=lazy", Update::Lazy),
        ("stale=ok&update=true", Update::True),
    ] {
        assert_eq!(from_query(text).unwrap().update, expected, "{text}");
    }
}

#[test]
fn a_huge_body_of_keys_is_read() {
    let keys = (0..100_000).map(|key| key.to_string()).collect::<Vec<_>>().join(",");
    let params = from_body(&format!("{{\"keys\":[{keys}]}}"), "").unwrap();
    assert_eq!(params.keys.map(|keys| keys.len()), Some(100_000));
}
