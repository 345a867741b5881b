//! Tests of view parameters from query strings and bodies, their validation, and the resulting queries.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_database::Layout;
use settee_views::{Inclusion, Reduce};

use super::*;
use crate::tests::live::Values;
use crate::tests::{json, query, show};

fn from_query(text: &str) -> Result<ViewParams, Error> {
    ViewParams::from_query(&query(text), Source::View)
}

fn from_body(body: &str, text: &str) -> Result<ViewParams, Error> {
    ViewParams::from_body(json(body).value(), &query(text), Source::View)
}

fn refused(params: Result<ViewParams, Error>, kind: ViewKind) -> String {
    let checked = params.and_then(|mut params| params.check(kind, &Values::default()));
    checked.err().map_or_else(String::new, |error| show(&error))
}

const MAP: ViewKind = ViewKind::Map(Layout::Whole);
const REDUCING: ViewKind = ViewKind::Reducing(Layout::Whole);
const DOCUMENTS: ViewKind = ViewKind::Documents(Layout::Whole);

#[test]
fn a_query_string_and_a_body_say_the_same() {
    let text = concat!(
        "startkey=%5B1%5D&endkey=%22z%22&startkey_docid=a&endkey_docid=b&inclusive_end=false&descending=true&skip=3",
        "&limit=4&reduce=true&group=true&group_level=2&include_docs=true&conflicts=true&update_seq=true&sorted=false",
        "&update=lazy&keys=%5B1%2C%22a%22%5D&stable=true&unknown=1"
    );
    let body = concat!(
        r#"{"start_key":[1],"end_key":"z","start_key_doc_id":"a","end_key_doc_id":"b","inclusive_end":false,"#,
        r#""descending":true,"skip":3,"limit":4,"reduce":true,"group":true,"group_level":2,"include_docs":true,"#,
        r#""conflicts":true,"update_seq":true,"sorted":false,"update":"lazy","keys":[1,"a"],"stable":true,"#,
        r#""unknown":{"x":1}}"#
    );
    let (left, right) = (from_query(text).unwrap(), from_body(body, "").unwrap());
    assert_eq!(format!("{left:?}"), format!("{right:?}"));
    assert_eq!((left.start.clone(), left.end.clone()), (Some(json("[1]")), Some(json("\"z\""))));
    assert_eq!((left.startkey_docid.as_deref(), left.endkey_docid.as_deref()), (Some("a"), Some("b")));
    assert_eq!((left.inclusive_end, left.descending, left.skip, left.limit), (Some(false), true, 3, Some(4)));
    assert_eq!((left.reduce, left.group, left.group_level), (Some(true), Some(true), Some(2)));
    assert!(left.include_docs && left.conflicts() && left.update_seq);
    assert_eq!(left.update, Update::Lazy);
    assert_eq!(left.key_list(), Some(vec![json("\"a\""), json("1")]), "descending turns them around");
}

#[test]
fn the_query_string_wins_over_the_body() {
    let params = from_body(r#"{"limit":1,"skip":2}"#, "limit=5").unwrap();
    assert_eq!((params.limit, params.skip), (Some(5), 2));
    let params = from_body(r#"{"keys":[2]}"#, "keys=%5B1%5D").unwrap();
    assert_eq!((params.start.clone(), params.key_list()), (Some(json("1")), None));
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
    check("include_docs=", "400 query_parse_error: Invalid boolean parameter: []");
    check("stable=1", "400 query_parse_error: Invalid value for `stable`.");
    check("stale=yes", "400 query_parse_error: Invalid value for `stale`.");
    check("update=maybe", "400 query_parse_error: Invalid value for `update`.");
    check("key=abc", "400 bad_request: invalid UTF-8 JSON");
    check("startkey=", "400 bad_request: invalid UTF-8 JSON");
    check("partition=", "400 illegal_partition: Partition must not be empty");
    check("partition=_x", "400 illegal_partition: Partition must not start with an underscore");
    check("partition=a:b", "400 illegal_partition: Partition must not contain a colon");
    // The first invalid value is reported, even if a later one is valid; `keys` are parsed before all others.
    check("limit=x&limit=1", "400 query_parse_error: Invalid value for integer: \"x\"");
    check("limit=x&keys=y", "400 bad_request: invalid UTF-8 JSON");
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
    check(r#"{"keys":null}"#, Source::View, "400 bad_request: `keys` member must be an array.");
    check(r#"{"keys":"a"}"#, Source::Documents, "400 bad_request: `keys` body member must be an array.");
    check(r#"{"limit":null}"#, Source::View, "400 query_parse_error: Invalid value for integer: null");
    check(r#"{"limit":"1"}"#, Source::View, "400 query_parse_error: Invalid value for integer: \"1\"");
}

#[test]
fn of_the_body_of_a_temporary_view_only_keys_count() {
    let of = |body: &str| ViewParams::of_temporary(json(body).value(), &query("limit=2"));
    let params = of(r#"{"map":"m","reduce":"_sum","skip":"x","keys":[1,"a"]}"#).unwrap();
    assert_eq!(params.key_list(), Some(vec![json("1"), json("\"a\"")]));
    assert_eq!((params.limit, params.skip, params.reduce), (Some(2), 0, None));
    assert_eq!(of(r#"{"map":"m"}"#).unwrap().key_list(), None);
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
    check("group_level=18446744073709551615", Reduce::Level(u32::MAX));
    check("reduce=false&group=true", Reduce::Off);
}

/// Of several contradictions the one that CouchDB detects first is reported.
#[test]
fn contradictions_are_found_in_couchdbs_order() {
    let check = |text: &str, kind: ViewKind, reason: &str| {
        let expected = if reason.is_empty() { String::new() } else { format!("400 query_parse_error: {reason}") };
        assert_eq!(refused(from_query(text), kind), expected, "{text} on {kind:?}");
    };
    let both_groups = "Can't specify group=false and group_level>0 at the same time";
    let no_reduce = "Reduce is invalid for map-only views.";
    let many_keys = "Multi-key fetches for reduce views must use `group=true`";
    let no_list = "`keys` must be an array of strings.";
    let keys_and_range = "`keys` is incompatible with `key`, `start_key` and `end_key`";
    let no_groups = "Invalid use of grouping on a map view.";
    let no_docs = "`include_docs` is invalid for reduce";
    let no_conflicts = "`conflicts` is invalid for reduce views.";
    for kind in [MAP, DOCUMENTS] {
        check("", kind, "");
        check("reduce=false&group=false&group_level=0", kind, "");
        check("reduce=true", kind, no_reduce);
        check("group=true", kind, no_groups);
        check("group_level=1", kind, no_groups);
        check("group=false&group_level=1&reduce=true", kind, both_groups);
        check("reduce=true&keys=1&group=true", kind, no_reduce);
        check("keys=1&group=true", kind, no_list);
        check("keys=%5B1%2C2%5D&key=1&group=true", kind, keys_and_range);
        check("keys=%5B%5D&key=1", kind, "");
        check("include_docs=true&conflicts=true", kind, "");
    }
    check("keys=%5B%5D", REDUCING, many_keys);
    check("keys=%5B1%2C2%5D&group_level=1&include_docs=true", REDUCING, many_keys);
    check("keys=%5B1%2C2%5D&group=true", REDUCING, "");
    check("keys=%5B1%5D", REDUCING, "");
    check("include_docs=true&conflicts=true", REDUCING, no_docs);
    check("conflicts=false", REDUCING, no_conflicts);
    check("reduce=false&conflicts=true&include_docs=true", REDUCING, "");
    check("reduce=false&group=true", REDUCING, no_groups);
    check("reduce=false&group_level=1", REDUCING, no_groups);
}

#[test]
fn a_single_one_of_keys_is_a_key_to_views_and_stays_a_list_for_documents() {
    let list = |text: &str| ViewParams::from_query(&query(text), Source::Documents);
    let both = "400 query_parse_error: `keys` is incompatible with `key`, `start_key` and `end_key`";
    assert_eq!(from_query("keys=%5B1%5D").unwrap().view_query().keys, Keys::one(json("1")));
    assert_eq!(list("keys=%5B1%5D").unwrap().key_list(), Some(vec![json("1")]));
    assert_eq!(refused(list("keys=%5B%22a%22%5D"), DOCUMENTS), "");
    let no_list = "400 bad_request: `keys` parameter must be an array.";
    for text in ["keys=1", "limit=x&keys=null", "keys=%22a%22&key=%22a%22"] {
        assert_eq!(refused(list(text), DOCUMENTS), no_list, "{text}");
    }
    assert_eq!(refused(list("keys=%5B%22a%22%5D&key=%22b%22"), DOCUMENTS), both);
    assert_eq!(refused(list("keys=%5B%22a%22%5D&startkey=%22b%22"), DOCUMENTS), both);
    assert_eq!(refused(from_query("keys=%5B%22a%22%5D&startkey=%22b%22"), MAP), "");
    let posted = |body: &str, text: &str| ViewParams::from_body(json(body).value(), &query(text), Source::Documents);
    assert_eq!(refused(posted(r#"{"keys":["a"]}"#, "key=%22a%22"), DOCUMENTS), "");
    assert_eq!(refused(posted(r#"{"keys":["a"],"startkey":"b"}"#, ""), DOCUMENTS), both);
}

#[test]
fn limits_and_partitions_depend_on_the_request() {
    let (whole, parted) = (Layout::Whole, Layout::Partitioned);
    let check =
        |text: &str, kind: ViewKind, expected: &str| assert_eq!(refused(from_query(text), kind), expected, "{text}");
    let too_large = "400 query_parse_error: Limit is too large, must not exceed 576460752303423487";
    check("limit=99999999999999999999", MAP, too_large);
    check("limit=99999999999999999999&reduce=true", MAP, too_large);
    check("limit=576460752303423487", MAP, "");
    check("limit=99999999999999999999", DOCUMENTS, too_large);
    check("limit=576460752303423487", DOCUMENTS, "");
    check("limit=99999999999999999999&partition=a", ViewKind::Documents(parted), too_large);
    check("partition=a", ViewKind::Documents(parted), "");
    check("partition=a", ViewKind::Map(parted), "");
    let unsupported = "400 query_parse_error: `partition` parameter is not supported";
    check("partition=a", ViewKind::Documents(whole), &format!("{unsupported} on this db"));
    check("partition=a", ViewKind::Map(whole), &format!("{unsupported} in this design doc"));
    let mandatory = "400 query_parse_error: `partition` parameter is mandatory for queries to this view.";
    check("", ViewKind::Reducing(parted), mandatory);
    check(
        "conflicts=true",
        ViewKind::Reducing(parted),
        "400 query_parse_error: `conflicts` is invalid for reduce views.",
    );
}

#[test]
fn the_settings_limit_answers() {
    let limited = |text: &str, kind: ViewKind| {
        let settings =
            Values::of(&["query_server_config/query_limit=10", "query_server_config/partition_query_limit=5"]);
        let mut params = from_query(text).unwrap();
        params.check(kind, &settings).map(|()| params.limit).map_err(|error| show(&error))
    };
    let refused = |most: u64| Err(format!("400 query_parse_error: Limit is too large, must not exceed {most}"));
    assert_eq!(limited("", MAP), Ok(Some(10)));
    assert_eq!(limited("limit=3", MAP), Ok(Some(3)));
    assert_eq!(limited("limit=11", MAP), refused(10));
    let parted = ViewKind::Reducing(Layout::Partitioned);
    assert_eq!(limited("partition=a", parted), Ok(Some(5)));
    assert_eq!(limited("partition=a&limit=6", parted), refused(5));
    assert_eq!(limited("limit=11", DOCUMENTS), refused(10));
    assert_eq!(limited("", DOCUMENTS), Ok(Some(10)));
}

#[test]
fn parameters_of_the_address_apply_to_all_queries() {
    let of = |body: &str, text: &str| {
        let queries = ViewParams::of_queries(json(body).value(), &query(text));
        queries
            .map(|queries| queries.iter().map(ViewParams::view_query).collect::<Vec<_>>())
            .map_err(|error| show(&error))
    };
    let queries =
        of(r#"[{},{"limit":2},{"key":2,"keys":[3]},{"keys":[3],"startkey":1}]"#, "limit=1&group=true").unwrap();
    let limits: Vec<_> = queries.iter().map(|query| query.limit).collect();
    assert_eq!(limits, [Some(1), Some(2), Some(1), Some(1)]);
    assert!(queries.iter().all(|query| query.reduce == Reduce::Default), "but for grouping");
    assert_eq!(queries[2].keys, Keys::one(json("3")));
    let end = End { key: json("3"), docid: None, inclusion: Inclusion::Inclusive };
    let start = Start { key: json("1"), docid: None };
    assert_eq!(queries[3].keys, Keys::Range { start: Some(start), end: Some(end) });
    assert_eq!(of("[{},1]", ""), Err("400 bad_request: Request body must be a JSON object".to_owned()));
}

#[test]
fn keys_make_ranges() {
    let keys = |text: &str| from_query(text).unwrap().view_query().keys;
    let range = |start: Option<Start>, end: Option<End>| Keys::Range { start, end };
    let start = |key: &str, docid: Option<&str>| Some(Start { key: json(key), docid: docid.map(str::to_owned) });
    let end = |key: &str, docid: Option<&str>, inclusion| {
        Some(End { key: json(key), docid: docid.map(str::to_owned), inclusion })
    };
    let yes = Inclusion::Inclusive;
    assert_eq!(keys(""), range(None, None));
    assert_eq!(keys("inclusive_end=false"), range(None, None));
    assert_eq!(keys("startkey=1"), range(start("1", None), None));
    assert_eq!(keys("startkey=null"), range(start("null", None), None));
    assert_eq!(keys("endkey=1"), range(None, end("1", None, yes)));
    assert_eq!(keys("endkey=1&inclusive_end=false"), range(None, end("1", None, Inclusion::Exclusive)));
    assert_eq!(
        keys("startkey=1&endkey=2&startkey_docid=a&endkey_docid=b"),
        range(start("1", Some("a")), end("2", Some("b"), yes))
    );
    assert_eq!(keys("startkey_docid=a&endkey_docid=b"), range(None, None));
    assert_eq!(keys("key=1&startkey=5"), range(start("5", None), end("1", None, yes)));
    assert_eq!(keys("startkey=5&key=1"), range(start("1", None), end("1", None, yes)));
    assert_eq!(keys("key=2&endkey=4"), range(start("2", None), end("4", None, yes)));
    assert_eq!(keys("keys=%5B%5D"), Keys::Many(Vec::new(), Bounds::default()));
    let bounds = Bounds { start: Some("a".to_owned()), end: None, inclusion: Inclusion::Exclusive };
    let text = "keys=%5B2%2C1%5D&startkey_docid=a&inclusive_end=false";
    assert_eq!(keys(text), Keys::Many(vec![json("2"), json("1")], bounds));
}

#[test]
fn a_document_id_without_a_key_bounds_the_rows_of_a_partition_at_null() {
    let keys = |text: &str| from_query(&format!("partition=p&{text}")).unwrap().view_query().keys;
    let null = |docid: &str| Some(Start { key: json("null"), docid: Some(docid.to_owned()) });
    let until = |docid: &str, inclusion| Some(End { key: json("null"), docid: Some(docid.to_owned()), inclusion });
    let none = Keys::Range { start: None, end: None };
    assert_eq!(keys("startkey_docid=a"), Keys::Range { start: null("a"), end: None });
    assert_eq!(keys("startkey_docid=a&descending=true"), none);
    assert_eq!(keys("endkey_docid=a"), none);
    let end = until("a", Inclusion::Inclusive);
    assert_eq!(keys("endkey_docid=a&descending=true"), Keys::Range { start: None, end });
    let end = until("a", Inclusion::Exclusive);
    assert_eq!(keys("endkey_docid=a&descending=true&inclusive_end=false"), Keys::Range { start: None, end });
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
    assert_eq!(params.key_list().map(|keys| keys.len()), Some(100_000));
}
