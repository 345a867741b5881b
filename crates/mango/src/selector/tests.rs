//! Normal forms, rejections, and matching.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::limits::{MAX_CONDITIONS, MAX_DEPTH, MAX_EXPRESSIONS};

fn parse(text: &str) -> Result<Selector, Refusal> {
    Selector::parse(Json::parse(text.as_bytes()).unwrap().value())
}

fn normal(text: &str) -> String {
    String::from_utf8(parse(text).unwrap().to_json().into_bytes()).unwrap()
}

#[test]
fn selectors_have_couchdbs_normal_form() {
    let check = |text: &str, expected: &str| {
        assert_eq!(normal(text), expected, "{text}");
        if !text.contains("$text") {
            assert_eq!(normal(expected), expected, "the normal form is its own");
        }
    };
    check("{}", "{}");
    check(r#"{"a":1}"#, r#"{"a":{"$eq":1}}"#);
    check(r#"{"a":{}}"#, r#"{"a":{"$eq":{}}}"#);
    check(r#"{"a":[1]}"#, r#"{"a":{"$eq":[1]}}"#);
    check(r#"{"a":1,"b":2}"#, r#"{"$and":[{"a":{"$eq":1}},{"b":{"$eq":2}}]}"#);
    check(r#"{"a":{"$gt":1,"$lt":5}}"#, r#"{"$and":[{"a":{"$gt":1}},{"a":{"$lt":5}}]}"#);
    check(r#"{"a":{"b":{"$gt":10}}}"#, r#"{"a.b":{"$gt":10}}"#);
    check(r#"{"o":{"x":1,"y":2}}"#, r#"{"$and":[{"o.x":{"$eq":1}},{"o.y":{"$eq":2}}]}"#);
    check(r#"{"a":{"$or":[1,{"$gt":5}]}}"#, r#"{"$or":[{"a":{"$eq":1}},{"a":{"$gt":5}}]}"#);
    check(r#"{"$not":{"a":1}}"#, r#"{"a":{"$ne":1}}"#);
    check(r#"{"a":{"$not":{"$gt":1}}}"#, r#"{"a":{"$lte":1}}"#);
    check(r#"{"$not":{"$and":[{"a":1},{"b":{"$in":[2]}}]}}"#, r#"{"$or":[{"a":{"$ne":1}},{"b":{"$nin":[2]}}]}"#);
    check(r#"{"$nor":[{"a":1},{"b":2}]}"#, r#"{"$and":[{"a":{"$ne":1}},{"b":{"$ne":2}}]}"#);
    check(r#"{"$not":{"$nor":[{"a":1},{"$not":{"b":2}}]}}"#, r#"{"$or":[{"a":{"$eq":1}},{"b":{"$ne":2}}]}"#);
    check(r#"{"$not":{"a":{"$exists":true}}}"#, r#"{"a":{"$exists":false}}"#);
    check(r#"{"$not":{"a":{"$regex":"x"}}}"#, r#"{"a":{"$not":{"$regex":"x"}}}"#);
    check(r#"{"$not":{"$not":{"a":1}}}"#, r#"{"a":{"$eq":1}}"#);
    check(
        r#"{"l":{"$elemMatch":{"$gte":80,"$lt":85}}}"#,
        r#"{"l":{"$elemMatch":{"$and":[{"":{"$gte":80}},{"":{"$lt":85}}]}}}"#,
    );
    check(r#"{"l":{"$not":{"$elemMatch":{"k":1}}}}"#, r#"{"l":{"$not":{"$elemMatch":{"k":{"$eq":1}}}}}"#);
    check(r#"{"l":{"$elemMatch":{"$not":{"k":1}}}}"#, r#"{"l":{"$elemMatch":{"$not":{"k":{"$eq":1}}}}}"#);
    check(r#"{"$nor":[]}"#, r#"{"$and":[]}"#);
    check(r#"{"$text":"x"}"#, r#"{"$default":{"$text":"x"}}"#);
}

#[test]
fn selectors_that_make_no_sense_are_refused() {
    let check = |text: &str, name: &str, reason: &str| {
        let refusal = parse(text).unwrap_err();
        assert_eq!((refusal.name(), refusal.to_string().as_str()), (name, reason), "{text}");
    };
    check("[]", "invalid_selector_json", "Selector must be a JSON object, not: []");
    check(r#"{"n":{"$nosuch":1}}"#, "invalid_operator", "Invalid operator: $nosuch");
    check(r#"{"$nosuch":1}"#, "invalid_operator", "Invalid operator: $nosuch");
    check(r#"{"$where":1}"#, "not_supported", "Unsupported operator: $where");
    check(r#"{"$and":{}}"#, "bad_arg", "Bad argument for operator $and: {}");
    check(r#"{"$or":1}"#, "bad_arg", "Bad argument for operator $or: 1");
    check(r#"{"$not":1}"#, "bad_arg", "Bad argument for operator $not: 1");
    check(r#"{"n":{"$elemMatch":1}}"#, "bad_arg", "Bad argument for operator $elemMatch: 1");
    check(r#"{"$gt":1}"#, "invalid_selector", "One or more conditions is missing a field name.");
    check(r#"{"":1}"#, "invalid_selector", "One or more conditions is missing a field name.");
    check(r#"{"a":{"$text":"x"}}"#, "bad_field", "Invalid field normalization on selector: \"x\"");
    check(r#"{"":{"$exists":1}}"#, "bad_arg", "Bad argument for operator $exists: 1");
    check(r#"{"a":{"$exists":null},"$x":1}"#, "bad_arg", "Bad argument for operator $exists: null");
    check(r#"{"$x":1,"a":{"$exists":null}}"#, "invalid_operator", "Invalid operator: $x");
    check(r#"{"a":{"$text":"x","$size":-1}}"#, "bad_arg", "Bad argument for operator $size: -1");
    check(r#"{"a..b":1}"#, "invalid_field_name", "Invalid field name: a..b");
}

#[test]
fn nesting_has_a_limit_of_its_own() {
    let check = |open: &str, close: &str, levels: usize| {
        let text = format!("{}{{\"a\":[[[1]]]}}{}", open.repeat(levels), close.repeat(levels));
        let selector = parse(&text);
        let depth = levels * open.matches(':').count() + 1;
        assert_eq!(selector.as_ref().err(), (depth > MAX_DEPTH).then_some(&Refusal::TooDeep), "{levels} of {open}");
        if let Ok(selector) = selector {
            let _ = selector.matches(Json::parse(br#"{"a":[[[1]]]}"#).unwrap().value());
        }
    };
    for levels in [1, 150, MAX_DEPTH - 1, MAX_DEPTH, 300, 497] {
        check(r#"{"$and":["#, "]}", levels);
        check(r#"{"$or":["#, "]}", levels);
        check(r#"{"$nor":["#, "]}", levels);
        check(r#"{"$not":"#, "}", levels);
        check(r#"{"a":"#, "}", levels);
        check(r#"{"a":{"$elemMatch":"#, "}}", levels / 2);
    }
    check(r#"{"$not":"#, "}", 990);
    check(r#"{"l":"#, "}", 990);
    let name = Refusal::TooDeep;
    let text = "The selector is nested deeper than 200 levels.";
    assert_eq!((name.name(), name.to_string().as_str()), ("invalid_selector", text));
}

#[test]
fn deep_element_matches_look_at_each_element_once() {
    let selector = format!("{}{{\"$gt\":0}}{}", r#"{"$elemMatch":"#.repeat(150), "}".repeat(150));
    let selector = parse(&format!("{{\"l\":{selector}}}")).unwrap();
    let nested = |inner: &str| format!("{{\"l\":{}{inner}{}}}", "[".repeat(150), "]".repeat(150));
    let matches = |inner: &str| selector.matches(Json::parse(nested(inner).as_bytes()).unwrap().value());
    let zeros = vec!["0"; 10_000].join(",");
    assert!(matches("0,1") && matches(&format!("{zeros},1")) && !matches(&zeros));
}

#[test]
fn conditions_and_names_are_counted() {
    let many = |count: usize| format!("{{\"$or\":[{}]}}", vec![r#"{"a":1}"#; count].join(","));
    assert!(parse(&many(1_000)).is_ok());
    assert_eq!(parse(&many(MAX_CONDITIONS)).unwrap_err(), Refusal::TooManyConditions);
    let hundred_thousand = Json::parse(many(100_000).as_bytes()).unwrap();
    let mut reader = normal::SelectorParser::default();
    assert_eq!(reader.condition(hundred_thousand.value(), 0).unwrap_err(), Refusal::TooManyConditions);
    assert_eq!(reader.conditions, MAX_CONDITIONS + 1, "the rest is not read");
    let below = |bytes: usize, count: usize| {
        let conditions = vec![r#"{"$gt":1}"#; count].join(",");
        parse(&format!("{{\"{}\":{{\"$or\":[{conditions}]}}}}", "n".repeat(bytes)))
    };
    assert!(below(100, 10_000).is_ok() && below(1 << 20, 1).is_ok());
    assert_eq!(below(1_000, 10_000).unwrap_err(), Refusal::NamesTooLong);
    let deep = format!("{}1{}", format!("{{\"{}\":", "n".repeat(10_000)).repeat(150), "}".repeat(150));
    assert_eq!(parse(&deep).unwrap_err(), Refusal::NamesTooLong);
}

#[test]
fn long_lists_and_expressions_are_bounded() {
    let members: Vec<String> = (0..100_000).map(|number| format!("\"key {number}\"")).collect();
    let selector = parse(&format!("{{\"a\":{{\"$in\":[{}]}}}}", members.join(","))).unwrap();
    let matches = |text: &str| selector.matches(Json::parse(text.as_bytes()).unwrap().value());
    assert!(matches(r#"{"a":"key 77777"}"#) && !matches(r#"{"a":"key 100000"}"#));
    let expressions =
        |count: usize| parse(&format!("{{\"$or\":[{}]}}", vec![r#"{"a":{"$regex":"x"}}"#; count].join(",")));
    assert!(expressions(MAX_EXPRESSIONS).is_ok());
    assert_eq!(expressions(MAX_EXPRESSIONS + 1).unwrap_err(), Refusal::TooManyExpressions);
    let check = |expression: &str, because: &str| {
        let reason = parse(&format!("{{\"a\":{{\"$regex\":\"{expression}\"}}}}")).unwrap_err().to_string();
        assert!(reason.starts_with("Bad argument for operator $regex: \"") && reason.ends_with(because), "{reason}");
        assert!(reason.len() < 500, "{}", reason.len());
    };
    check(&"a".repeat(1 << 20), "Compiled regex exceeds size limit of 1048576 bytes.");
    check(&"(a|b){100}".repeat(1_000), "Compiled regex exceeds size limit of 1048576 bytes.");
    check(
        &format!("{}a{}", "(".repeat(150), ")".repeat(150)),
        "exceed the maximum number of nested parentheses/brackets (100)",
    );
}

#[test]
fn documents_match_or_do_not() {
    let check = |selector: &str, matching: &[&str], others: &[&str]| {
        let parsed = parse(selector).unwrap();
        for (documents, expected) in [(matching, true), (others, false)] {
            for text in documents {
                let document = Json::parse(text.as_bytes()).unwrap();
                assert_eq!(parsed.matches(document.value()), expected, "{selector} of {text}");
            }
        }
    };
    check("{}", &["{}", r#"{"a":1}"#], &[]);
    check(r#"{"a":{"$ne":1}}"#, &[r#"{"a":2}"#], &[r#"{"a":1}"#, "{}"]);
    check(r#"{"$not":{"a":1}}"#, &[r#"{"a":2}"#], &[r#"{"a":1}"#, "{}"]);
    check(r#"{"a":{"$not":{"$regex":"x"}}}"#, &[r#"{"a":1}"#, r#"{"a":"y"}"#], &[r#"{"a":"x"}"#, "{}"]);
    check(r#"{"a":{"$exists":false}}"#, &["{}"], &[r#"{"a":null}"#]);
    check(r#"{"a.b":{"$exists":false}}"#, &[r#"{"a":{}}"#, "{}"], &[r#"{"a":{"b":1}}"#, r#"{"a":5}"#]);
    check(r#"{"age":22,"$or":[]}"#, &[r#"{"age":22}"#], &[r#"{"age":23}"#]);
    check(r#"{"l.0":1}"#, &[r#"{"l":[1,2]}"#], &[r#"{"l":[2]}"#, r#"{"l":[]}"#]);
    check(
        r#"{"l":{"$elemMatch":{"k":1,"v":2}}}"#,
        &[r#"{"l":[{"k":0},{"k":1,"v":2}]}"#],
        &[r#"{"l":[{"k":1},{"v":2}]}"#, r#"{"l":[]}"#, r#"{"l":{"k":1,"v":2}}"#],
    );
    check(r#"{"l":{"$elemMatch":{"$not":{"k":1}}}}"#, &[r#"{"l":[{"x":1}]}"#, r#"{"l":[5]}"#], &[r#"{"l":[{"k":1}]}"#]);
    check(
        r#"{"l":{"$elemMatch":{"$nor":[{"k":1},{"k":2}]}}}"#,
        &[r#"{"l":[{"k":3}]}"#],
        &[r#"{"l":[{"k":1},{"k":2}]}"#],
    );
    check(r#"{"l":{"$allMatch":{"$gt":0}}}"#, &[r#"{"l":[1,"x"]}"#], &[r#"{"l":[1,0]}"#, r#"{"l":[]}"#, r#"{"l":1}"#]);
    check(
        r#"{"o":{"$keyMapMatch":{"$eq":"b"}}}"#,
        &[r#"{"o":{"a":1,"b":2}}"#],
        &[r#"{"o":{"a":"b"}}"#, r#"{"o":["b"]}"#],
    );
    check(r#"{"_id":{"$lt":"b"}}"#, &[r#"{"_id":"B"}"#, r#"{"_id":"a"}"#], &[r#"{"_id":"c"}"#]);
    check(r#"{"s":{"$lt":"b"}}"#, &[r#"{"s":"a"}"#], &[r#"{"s":"B"}"#, r#"{"s":"c"}"#]);
    check(r#"{"_deleted":true}"#, &[r#"{"_id":"a","_deleted":true}"#], &[r#"{"_id":"a"}"#]);
}
