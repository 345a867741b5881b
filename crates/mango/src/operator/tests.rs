//! Results of each operator, as recorded from or documented for CouchDB 3.5.2.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::collate::Collation;
use settee_model::json::Json;

use super::*;
use crate::bounds::{Intervals, Key};

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

fn check(operator: &str, argument: &str, matching: &[&str], others: &[&str]) {
    let argument = json(argument);
    let operator = find(operator).unwrap();
    let test = operator.test(argument.value(), Collation::Unicode).unwrap();
    let bounds = (operator.bounds)(argument.value(), Collation::Unicode);
    for (values, expected) in [(matching, true), (others, false)] {
        for text in values {
            let value = json(text);
            let shown = format!("{} {} of {text}", operator.name, String::from_utf8_lossy(argument.as_bytes()));
            assert_eq!(test.matches(value.value()), expected, "{shown}");
            let point = Intervals::point(Key::new(value.value(), Collation::Unicode));
            let inside = !bounds.and(&point).as_slice().is_empty();
            assert!(inside || !expected, "{shown}: a range of an index would miss it");
        }
    }
}

#[test]
fn comparisons_cross_types() {
    check("$lt", "1", &["null", "false", "true", "0", "-5", "0.5"], &["1", "1.0", "2", "\"a\"", "[]", "{}"]);
    check("$lte", "1", &["null", "1", "1.0"], &["1.5", "\"\"", "[]"]);
    check("$eq", "1", &["1", "1.0", "1e0"], &["2", "\"1\"", "[1]", "null"]);
    check("$ne", "1", &["2", "\"1\"", "[1]", "null"], &["1", "1.0"]);
    check("$gte", "\"a\"", &["\"a\"", "\"b\"", "[]", "{}"], &["1", "null", "true"]);
    check("$gt", "null", &["false", "0", "\"\"", "[]", "{}"], &["null"]);
    check("$eq", r#"{"a":1}"#, &[r#"{"a":1}"#, r#"{"a":1.0}"#], &["{}", r#"{"a":1,"b":2}"#]);
    check("$lt", "[]", &["1", "\"z\""], &["[]", "[1]", "{}"]);
    check("$lt", r#""b""#, &[r#""a""#, r#""A""#, r#""á""#], &[r#""B""#, r#""c""#]);
}

#[test]
fn membership_looks_into_arrays() {
    check("$in", r#"[1,"x"]"#, &["1", "\"x\"", "[1,5]", "[\"x\"]"], &["2", "null", "[]", "[[1]]", "{}"]);
    check("$in", "[[1,2]]", &["[[1,2],3]"], &["[1,2]", "1", "[]"]);
    check("$in", "[]", &[], &["1", "null", "[]"]);
    check("$in", "[null]", &["null"], &["1", "false"]);
    check("$nin", r#"[1,"x"]"#, &["2", "null", "[]", "{}"], &["1", "\"x\"", "[1,5]"]);
    check("$nin", "[]", &["1", "null", "[]"], &[]);
}

#[test]
fn tests_of_shape() {
    check("$exists", "true", &["1", "null", "[]"], &[]);
    check("$exists", "false", &[], &["1", "null"]);
    check("$type", r#""null""#, &["null"], &["0", "false", "\"\""]);
    check("$type", r#""boolean""#, &["true", "false"], &["0", "null"]);
    check("$type", r#""number""#, &["0", "-1.5", "1e9", "12345678901234567890123"], &["\"1\"", "true"]);
    check("$type", r#""string""#, &["\"\"", "\"ü\"", "\"\u{ffff}\""], &["1", "[]"]);
    check("$type", r#""array""#, &["[]", "[1]", r#"[{}]"#], &["{}", "\"\""]);
    check("$type", r#""object""#, &["{}", r#"{"a":1}"#], &["[]", "null"]);
    check("$type", r#""nosuch""#, &[], &["1", "null", "{}"]);
    check("$size", "2", &["[1,2]", "[[],[]]"], &["[]", "[1]", "2", "\"ab\"", r#"{"a":1,"b":2}"#]);
    check("$size", "0", &["[]"], &["[1]", "0", "null"]);
}

#[test]
fn remainders_are_those_of_integers() {
    check("$mod", "[2,1]", &["1", "3", "101"], &["2", "2.5", "\"1\"", "-1", "1.0", "null"]);
    check("$mod", "[10,0]", &["0", "10", "-10", "100000000000000000000000000000"], &["1"]);
    check("$mod", "[10,3]", &["123456789012345678901234567893"], &["123456789012345678901234567894"]);
    check("$mod", "[10,-3]", &["-13", "-123456789012345678901234567893"], &["13"]);
    check("$mod", "[-3,1]", &["1", "4"], &["-1"]);
    check("$mod", "[0,1]", &[], &["1", "0"]);
    check("$mod", "[0,0]", &[], &["1", "0"]);
}

#[test]
fn all_compares_exactly() {
    check("$all", "[1,2]", &["[1,2,3]", "[2,1]"], &["[1]", "[1,2.0]", "1", "null", "[]"]);
    check("$all", "[[1,2]]", &["[1,2]", "[[1,2],3]"], &["[1]", "[[1,2.0]]", "[[2,1]]"]);
    check("$all", "[]", &[], &["[]", "[1]", "1"]);
    check("$all", r#"["a","a"]"#, &[r#"["a"]"#], &[r#"["A"]"#, r#""a""#]);
    check("$all", r#"[{"a":1,"b":2}]"#, &[r#"[{"a":1,"b":2}]"#], &[r#"[{"b":2,"a":1}]"#]);
    check("$all", "[0,0.0]", &["[-0,-0.0]"], &["[0]", "[0.0]"]);
}

#[test]
fn texts() {
    check("$beginsWith", r#""ap""#, &["\"ap\"", "\"apple\""], &["\"Apple\"", "\"a\"", "1", "[\"ap\"]"]);
    check("$beginsWith", r#""""#, &["\"\"", "\"x\""], &["1", "null"]);
    check("$beginsWith", r#""é""#, &[r#""\u00e9t""#], &[r#""e""#]);
    check("$regex", r#""^a""#, &["\"apple\""], &["\"banana\"", "1", "[\"a\"]"]);
    check("$regex", r#""(?i)^B""#, &["\"banana\""], &["\"apple\""]);
    check("$regex", r#""^\\w+$""#, &["\"abc_1\""], &["\"éa\"", "\"a b\"", "\"\""]);
    check("$regex", r#""é""#, &["\"café\""], &["\"cafe\""]);
    check("$regex", r#""^.$""#, &["\"a\""], &["\"é\"", "\"\""]);
}

#[test]
fn arguments_of_wrong_types_are_refused() {
    let check = |operator: &str, argument: &str, name: &str, reason: &str| {
        let refusal = find(operator).unwrap().test(json(argument).value(), Collation::Unicode).err().unwrap();
        assert_eq!((refusal.name(), refusal.to_string().as_str()), (name, reason));
    };
    check("$in", "1", "bad_arg", "Bad argument for operator $in: 1");
    check("$nin", "{}", "bad_arg", "Bad argument for operator $nin: {}");
    check("$all", "1", "bad_arg", "Bad argument for operator $all: 1");
    check("$mod", "[2]", "bad_arg", "Bad argument for operator $mod: [2]");
    check("$mod", "[2,1,0]", "bad_arg", "Bad argument for operator $mod: [2,1,0]");
    check("$mod", "[2,1.5]", "bad_arg", "Bad argument for operator $mod: [2,1.5]");
    check("$size", "-1", "bad_arg", "Bad argument for operator $size: -1");
    check("$exists", "\"x\"", "bad_arg", "Bad argument for operator $exists: \"x\"");
    check("$type", "1", "bad_arg", "Bad argument for operator $type: 1");
    check("$regex", "1", "invalid_operator", "Invalid operator: $regex");
    check("$beginsWith", "1", "invalid_operator", "Invalid operator: $beginsWith");
    check("$regex", r#""(""#, "bad_arg", "Bad argument for operator $regex: \"(\": unclosed group");
    check(
        "$regex",
        r#""(?=a)""#,
        "bad_arg",
        "Bad argument for operator $regex: \"(?=a)\": look-around, including look-ahead and look-behind, is not supported",
    );
    check(
        "$regex",
        r#""(a)\\1""#,
        "bad_arg",
        r#"Bad argument for operator $regex: "(a)\\1": backreferences are not supported"#,
    );
}

#[test]
fn every_operator_is_listed_once_and_negations_exist() {
    for (index, operator) in OPERATORS.iter().enumerate() {
        assert!(OPERATORS.iter().skip(index + 1).all(|other| other.name != operator.name), "{}", operator.name);
        if let Negation::Operator(name) = operator.negation {
            let opposite = find(name).unwrap();
            assert!(matches!(opposite.negation, Negation::Operator(back) if back == operator.name));
        }
    }
}

#[test]
fn expressions_take_linear_time() {
    let argument = json(r#""^(a+)+$""#);
    let test = find("$regex").unwrap().test(argument.value(), Collation::Unicode).unwrap();
    let text = json(&format!("\"{}b\"", "a".repeat(100_000)));
    assert!(!test.matches(text.value()));
    let huge = json(r#""((((a{100}){100}){100}){100})""#);
    assert!(find("$regex").unwrap().test(huge.value(), Collation::Unicode).is_err());
}
