//! JSON text compared with a naive parser, and text that must be rejected.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::time::{Duration, Instant};

use super::*;
use crate::testing::Random;

mod naive;
use naive::Tree;

#[track_caller]
fn check_compact(text: &str, expected: &str) {
    let json = Json::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text}: {error}"));
    assert_eq!(std::str::from_utf8(json.as_bytes()).unwrap(), expected, "compacting {text}");
}

#[track_caller]
fn check_refused(text: &[u8], expected: JsonError) {
    let mut out = b"before".to_vec();
    let shown = String::from_utf8_lossy(&text[..text.len().min(80)]);
    assert_eq!(compact(text, &mut out), Err(expected), "refusing {shown}");
    assert_eq!(out, b"before", "after refusing {shown}");
}

#[test]
fn text_stays_as_it_was_sent() {
    for text in [
        "0",
        "-0",
        "\"\"",
        "null",
        "[]",
        "{}",
        r#"{"a":0.1,"b":1.0,"c":1e3,"d":1.5e300,"e":-2.5e-7,"g":1e21,"h":1E+2,"j":5e-324,"k":1.7976931348623157e308,"n":-0.0}"#,
        r#"{"c":9007199254740993,"d":18446744073709551616,"e":-123456789012345678901234567890,"g":-0}"#,
        r#"{"z":1,"a":2,"m":{"y":1,"b":2,"10":3,"2":4},"é":3,"A":4,"":5}"#,
        r#"{"a":{},"b":[],"c":null,"d":true,"e":false,"f":[[],{},null],"g":{"h":{"i":{}}}}"#,
        r#"{"a":"\u0000\u0001\u001f","b":"\"\\\/\b\f\n\r\t","c":"é日😀","d":"\u00e9\u65E5\ud83d\ude00","f":"\u007f"}"#,
        r#"[1e-400,123456789.125,0.30000000000000004,[[[[1]]]]]"#,
    ] {
        check_compact(text, text);
    }
}

#[test]
fn whitespace_goes() {
    check_compact(" \t\r\n{ \"a b\" : [ 1 , 2 ] , \"c\" : { } , \"d\" : [ ] }\n", r#"{"a b":[1,2],"c":{},"d":[]}"#);
    check_compact(" 1 ", "1");
    check_compact("[ -1.5e3 , true ]", "[-1.5e3,true]");
}

#[test]
fn repeated_names_keep_the_last() {
    // Names with equal length, start and end have the same hash.
    let long = |middle: char| format!("{}{middle}{}", "b".repeat(32), "e".repeat(8));
    let alike = format!(r#"{{"{}":1,"{}":2}}"#, long('x'), long('y'));
    let same = format!(r#"{{"{0}":1,"{0}":2}}"#, long('x'));
    check_compact(&alike, &alike);
    check_compact(&same, &format!(r#"{{"{}":2}}"#, long('x')));
    for (text, expected) in [
        (r#"{"a":1,"a":2}"#, r#"{"a":2}"#),
        (r#"{ "bar":1, "foo":2, "baz" : 3, "foo" :4 }"#, r#"{"bar":1,"baz":3,"foo":4}"#),
        (r#"{"foo":1,"foo":2,"foo":3}"#, r#"{"foo":3}"#),
        (r#"{"a":1,"b":2,"a":3,"b":4,"c":5}"#, r#"{"a":3,"b":4,"c":5}"#),
        (r#"{"a":1,"\u0061":2}"#, r#"{"\u0061":2}"#),
        (r#"{"\u0061":1,"x":{"y":1},"a":2}"#, r#"{"x":{"y":1},"a":2}"#),
        (r#"{"":1, "":2}"#, r#"{"":2}"#),
        (r#"[{"a":{"b":1, "b":2},"a":{"b":3, "b":4}}, {"a":1}]"#, r#"[{"a":{"b":4}},{"a":1}]"#),
        (r#"{"foo\u0000bar":1,"foo\u0000baz":2,"foo\u0000bar":3}"#, r#"{"foo\u0000baz":2,"foo\u0000bar":3}"#),
    ] {
        check_compact(text, expected);
    }
}

/// All names have the same hash, so only sorting keeps this fast.
#[test]
fn many_members_are_not_quadratic() {
    let started = Instant::now();
    let name = |index: usize| format!("\"{}{index:09}{}\"", "b".repeat(32), "e".repeat(8));
    let members = (0..100_000).map(|index| format!("{}:{index}", name(index % 99_999))).collect::<Vec<_>>().join(", ");
    let json = Json::parse(format!("{{{members}}}").as_bytes()).unwrap();
    let compacted: Vec<(Value<'_>, Value<'_>)> = json.value().members().collect();
    assert_eq!(compacted.len(), 99_999);
    assert_eq!(compacted[0].1.as_u64(), Some(1), "the first one was repeated at the end");
    assert_eq!(compacted[99_998].1.as_u64(), Some(99_999));
    assert!(started.elapsed() < Duration::from_secs(10), "a quadratic algorithm takes minutes for this");
}

#[test]
fn invalid() {
    for (text, offset) in [
        ("", 0),
        ("{", 1),
        (r#"{"a":}"#, 5),
        ("{'a':1}", 1),
        (r#"{"a":1,}"#, 7),
        (r#"{"a" 1}"#, 5),
        ("nonsense", 0),
        ("nul", 0),
        (r#"{"a":01}"#, 7),
        ("-01", 3),
        (r#"{"a":.5}"#, 5),
        ("1.", 2),
        ("1.e5", 2),
        ("1e", 2),
        ("1e+", 3),
        ("+1", 0),
        ("-", 1),
        ("-a", 1),
        ("NaN", 0),
        ("Infinity", 0),
        (r#"{"a":"\x"}"#, 6),
        (r#"{"a":1} x"#, 8),
        ("{\"a\":\"\n\"}", 6),
        ("\"\u{1f}\"", 1),
        ("{a:1}", 1),
        ("{1:1}", 1),
        ("[1 2]", 3),
        ("[1,]", 3),
        ("[,1]", 1),
        ("]", 0),
        ("[}", 1),
        ("{]", 1),
        (r#"{"a":1]"#, 6),
        ("[1}", 2),
        ("\"abc", 4),
        (r#""abc\"#, 4),
        (r#""\u12"#, 1),
        (r#""\u12g4""#, 1),
        (r#""\u+123""#, 1),
        (r#""\ud800""#, 1),
        (r#""\udc00""#, 1),
        (r#""\ude00\ud83d""#, 1),
        (r#""\ud83dx""#, 1),
        (r#""\ud83d\u0041""#, 1),
        ("1 1", 2),
        ("\u{feff}1", 0),
        ("\u{a0}1", 0),
        ("\0", 0),
        ("// comment\n1", 0),
    ] {
        check_refused(text.as_bytes(), JsonError::Invalid { offset });
    }
}

#[test]
fn invalid_utf8() {
    for (text, offset) in
        [(&b"\"\xff\""[..], 1), (b"\"\xc0\x80\"", 1), (b"\"\xed\xa0\x80\"", 1), (b"\"abc\xe2\x82\"", 4), (b"\xff", 0)]
    {
        check_refused(text, JsonError::NotUtf8 { offset });
    }
}

#[test]
fn numbers_out_of_range() {
    let digits = |count: usize| "9".repeat(count);
    for text in ["1e309", "-1e309", "1.8e308", "1E400", "1e99999999999999999999", &format!("{}.0", digits(310))] {
        check_refused(text.as_bytes(), JsonError::NumberRange { offset: 0 });
    }
    for text in ["0e999", "0.0e-99999999999", "1e308", &digits(400), &digits(MAX_NUMBER_LEN)] {
        check_compact(text, text);
    }
    for text in [digits(MAX_NUMBER_LEN + 1), format!("0.{}", digits(MAX_NUMBER_LEN))] {
        check_refused(format!("[{text}]").as_bytes(), JsonError::NumberRange { offset: 1 });
    }
}

#[test]
fn depth() {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        let nested = |depth: usize| format!("{}1{}", open.repeat(depth), close.repeat(depth));
        check_compact(&nested(MAX_DEPTH), &nested(MAX_DEPTH));
        let offset = open.len() * MAX_DEPTH;
        check_refused(nested(MAX_DEPTH + 1).as_bytes(), JsonError::TooDeep { offset });
    }
    check_refused("[".repeat(1_000_000).as_bytes(), JsonError::TooDeep { offset: MAX_DEPTH });
}

#[test]
fn values() {
    let json =
        Json::parse(br#"{"s":"x\ny","\u0061":[1,-2,3.5,{"b":"]"},"}"],"t":true,"n":null,"big":18446744073709551616}"#)
            .unwrap();
    let object = json.value();
    assert_eq!(object.kind(), Kind::Object);
    assert_eq!(object.get("s").unwrap().as_str().unwrap(), "x\ny");
    assert_eq!(object.get("s").unwrap().raw(), br#""x\ny""#);
    assert_eq!(
        ["s", "t", "a"].map(|name| object.get(name).unwrap().to_text()),
        ["x\ny", "true", r#"[1,-2,3.5,{"b":"]"},"}"]"#]
    );
    let array = object.get("a").unwrap();
    assert_eq!(array.elements().map(|element| element.raw().len()).collect::<Vec<_>>(), [1, 2, 3, 9, 3]);
    let numbers: Vec<_> = array.elements().map(|value| (value.as_u64(), value.as_i64(), value.as_f64())).collect();
    assert_eq!(numbers[..3], [(Some(1), Some(1), Some(1.0)), (None, Some(-2), Some(-2.0)), (None, None, Some(3.5))]);
    assert_eq!(numbers[3], (None, None, None));
    assert_eq!(object.get("t").unwrap().as_bool(), Some(true));
    assert!(object.get("n").unwrap().is_null());
    let big = object.get("big").unwrap();
    assert!(big.is_integer());
    assert_eq!((big.as_u64(), big.as_f64()), (None, Some(18_446_744_073_709_551_616.0)));
    assert!(object.get("b").is_none(), "only own members are found");
    assert!(object.get("u0061").is_none());
    assert_eq!(object.elements().count() + array.members().count() + big.members().count(), 0);
    assert!(Value::trusted(br#""a\\b""#).is_string("a\\b"));
    assert!(!Value::trusted(br#""\\""#).is_string(r"\\"));
}

#[test]
fn write_string_escapes_required_characters() {
    let all: String = (0..0x80).map(char::from_u32).map(Option::unwrap).chain("é日😀\u{2028}".chars()).collect();
    for text in
        ["", "plain", "\"\\", "\n\r\t\u{8}\u{c}\u{0}\u{1f}\u{7f}", "a long text without anything special / in it", &all]
    {
        let mut out = b"x".to_vec();
        write_string(&mut out, text);
        let json = Json::parse(&out[1..]).unwrap();
        assert_eq!(json.as_bytes(), &out[1..]);
        assert_eq!(json.value().as_str().unwrap(), text);
        assert!(json.value().is_string(text));
    }
    let mut out = Vec::new();
    write_string(&mut out, "\u{0}\u{1f}\n/");
    assert_eq!(out, br#""\u0000\u001f\n/""#);
}

#[test]
fn members_of_objects_are_separated() {
    assert_eq!(object(|_| {}), b"{}");
    let inner = Json::trusted(object(|object| _ = object.string("a", "\"").value("b", 1.5)));
    let mut out = b"[".to_vec();
    append_object(&mut out, |object| {
        object.members(Json::empty_object().value()).members(inner.value()).members(Json::empty_object().value());
        object.strings("c", ["x", "y"]).object("\n", |object| _ = object.value("d", true));
        object.value_or_null("e", Some(2)).value_or_null("f", None::<u64>);
        object.string_or_null("g", Some("")).string_or_null("h", None).json("i", b"[]");
        write_u64(object.name("j"), 3);
    });
    let expected = r#"[{"a":"\"","b":1.5,"c":["x","y"],"\n":{"d":true},"e":2,"f":null,"g":"","h":null,"i":[],"j":3}"#;
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn write_u64_is_decimal() {
    for number in [0, 9, 10, 1234567890, u64::MAX] {
        let mut out = Vec::new();
        write_u64(&mut out, number);
        assert_eq!(out, number.to_string().as_bytes());
    }
}

#[test]
fn members_give_the_elements_of_arrays_on_the_way() {
    for text in [
        "{}",
        r#"{"a":[]}"#,
        r#"{"a":1,"docs":[{"x":[1,2]},"]",[[]],{}],"b":{"c":[3]},"d":[null]}"#,
        r#"{"docs":[[1],2]}"#,
        "[1]",
    ] {
        let value = Value::trusted(text.as_bytes());
        let (mut members, mut seen) = (value.members(), Vec::new());
        let mut elements = Vec::new();
        while let Some((name, value)) = members.next_with_elements(&mut elements) {
            let elements: Vec<&[u8]> = elements.drain(..).map(|element: Value<'_>| element.raw()).collect();
            seen.push((name.raw(), value.raw(), elements));
        }
        let plain = value.members();
        let plain = plain.map(|(name, value)| (name.raw(), value.raw(), value.elements().map(Value::raw).collect()));
        assert_eq!(seen, plain.collect::<Vec<_>>(), "{text}");
    }
}

#[track_caller]
fn check_against_naive(text: &str) {
    let expected = naive::parse(text);
    let Ok(json) = Json::parse(text.as_bytes()) else {
        assert_eq!(expected, None, "refused: {text}");
        return;
    };
    let compacted = std::str::from_utf8(json.as_bytes()).unwrap();
    assert_eq!(Some(Tree::from(json.value())), expected, "{text} became {compacted}");
    assert_eq!(naive::parse(compacted), expected, "{text} became {compacted}");
    assert_eq!(Json::parse(json.as_bytes()).unwrap(), json, "compacting {compacted} again");
    assert!(!naive::has_space(compacted), "{compacted}");
}

#[test]
fn random_text_is_seen_as_by_a_naive_parser() {
    let mut random = Random::new();
    for _ in 0..5_000 {
        check_against_naive(&random.json());
    }
}

#[test]
fn mutated_text_is_seen_as_by_a_naive_parser() {
    let mut random = Random::new();
    let started = Instant::now();
    let interesting = br#"{}[]":,\"0123456789.eE+-tfnu /ab"#;
    let mut accepted = 0;
    while started.elapsed() < Duration::from_secs(1) {
        let mut text = random.json().into_bytes();
        for _ in 0..random.below(3) + 1 {
            let at = random.below(text.len().max(1)).min(text.len());
            let byte =
                if random.one_in(10) { random.below(256) as u8 } else { interesting[random.below(interesting.len())] };
            match random.below(4) {
                0 => text.truncate(at),
                1 => text.insert(at, byte),
                _ if at == text.len() => {}
                2 => drop(text.remove(at)),
                _ => text[at] = byte,
            }
        }
        match std::str::from_utf8(&text) {
            Ok(text) => check_against_naive(text),
            Err(error) => check_refused(&text, JsonError::NotUtf8 { offset: error.valid_up_to() }),
        }
        accepted += usize::from(Json::parse(&text).is_ok());
    }
    assert!(accepted > 10, "mutations must not make everything invalid");
}
