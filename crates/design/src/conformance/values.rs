//! JSON values that pass through a function.

use std::collections::BTreeMap;

use settee_model::json::{Kind, Value};
use settee_model::testing::Random;

use super::subject::{Numbers, Subject, batch, text};

const NUMBERS: &str = "0 -0 1 -1 9007199254740991 9007199254740993 -9223372036854775808 18446744073709551615 \
    123456789012345678901234567890 1.5 -2.5 0.1 1e2 1E-2 1.0 1e21 1.5e-7 100000.0 12345678.125 5e-324 1.7976931348623157e308";

/// Values whose text must be preserved, including the order of members.
const TEXTS: &[&str] = &[
    "null",
    "true",
    "false",
    "[]",
    "{}",
    "\"\"",
    r#"[[],{},"",[[[[[[0]]]]]],[null,[true,false]]]"#,
    r#"{"b":1,"a":{"c":[true,null,{}]},"B":{"":[]}}"#,
    r#""quote \" backslash \\ line \n tab \t""#,
    "\"é 日本語 😀 \u{2028} ß\"",
    "{\"é\":1,\"😀\":2}",
];

const ESCAPED: &[&str] = &[r#""\u00e9\ud83d\ude00\/\u0041""#, r#"{"\u0061":"\u0001\u001f\b\f\r"}"#, r#""\u0000""#];

/// Every type of value is returned, as key and as value, with the precision that the language declares.
pub fn values_survive(subject: &Subject<'_>) {
    let long = format!("\"{}é\\n\"", "x".repeat(70_000));
    let deep = format!("{}1{}", "[".repeat(60), "]".repeat(60));
    let exact: Vec<&str> = TEXTS.iter().copied().chain([long.as_str(), &deep]).collect();
    let documents: Vec<String> = exact.iter().map(|value| format!("{{\"k\":{value},\"v\":{value}}}")).collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let output = subject.map(&[subject.map.pair], &documents);
    assert_eq!(output.len(), exact.len(), "{:?} {:?}", output.failures, output.log);
    for (row, value) in output.rows().zip(exact) {
        assert_eq!((text(row.key).as_str(), text(row.value).as_str()), (value, value));
    }
    let numbers: Vec<&str> = NUMBERS.split_whitespace().chain(ESCAPED.iter().copied()).collect();
    check(subject, &numbers);
}

pub fn random_values_survive(subject: &Subject<'_>) {
    let mut random = Random::new();
    let values: Vec<String> = (0..400).map(|_| random.json()).collect();
    check(subject, &values.iter().map(String::as_str).collect::<Vec<_>>());
}

fn check(subject: &Subject<'_>, values: &[&str]) {
    let documents: Vec<String> =
        values.iter().map(|value| format!("{{\"k\":{value},\"v\":{{\"in\":[{value}]}}}}")).collect();
    let documents: Vec<&str> = documents.iter().map(String::as_str).collect();
    let sent = batch(&documents);
    let output = subject.map(&[subject.map.pair], &documents);
    assert_eq!(output.len(), values.len(), "{:?} {:?}", output.failures, output.log);
    for (row, document) in output.rows().zip(sent.iter()) {
        let member = |name| Value::trusted(document.json).get(name).unwrap_or(Value::NULL);
        for (came, sent) in [(row.key, member("k")), (row.value, member("v"))] {
            let numbers = subject.ways.numbers;
            assert!(is_same(numbers, sent, Value::trusted(came)), "{} became {}", text(sent.raw()), text(came));
        }
    }
}

fn is_same(numbers: Numbers, sent: Value<'_>, came: Value<'_>) -> bool {
    if sent.kind() != came.kind() {
        return false;
    }
    match sent.kind() {
        Kind::Null | Kind::Bool => sent.raw() == came.raw(),
        Kind::Number => is_same_number(numbers, &text(sent.raw()), &text(came.raw())),
        Kind::String => sent.as_str() == came.as_str(),
        Kind::Array => {
            let (sent, came): (Vec<_>, Vec<_>) = (sent.elements().collect(), came.elements().collect());
            sent.len() == came.len() && sent.into_iter().zip(came).all(|(sent, came)| is_same(numbers, sent, came))
        }
        // JavaScript engines move names that are integers to the front.
        Kind::Object => {
            let (sent, came) = (members(sent), members(came));
            sent.len() == came.len()
                && sent.iter().all(|(name, value)| came.get(name).is_some_and(|other| is_same(numbers, *value, *other)))
        }
    }
}

fn members(value: Value<'_>) -> BTreeMap<String, Value<'_>> {
    value.members().map(|(name, value)| (name.as_str().unwrap_or_default().into_owned(), value)).collect()
}

fn is_same_number(numbers: Numbers, sent: &str, came: &str) -> bool {
    let is_integer = !sent.contains(['.', 'e', 'E']);
    match numbers {
        Numbers::Kept => sent == came,
        Numbers::Integers if is_integer => sent == came || (sent, came) == ("-0", "0"),
        Numbers::Integers | Numbers::Doubles => sent.parse::<f64>().ok() == came.parse::<f64>().ok(),
    }
}
