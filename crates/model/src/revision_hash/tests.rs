//! Revision hashes compared with those of CouchDB.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::json::Json;
use crate::testing::Random;

/// Bodies with the hashes that CouchDB 3.5.2 gave to first revisions with them.
const RECORDED: &[(&str, &str)] = &[
    (r#"{}"#, "967a00dff5e02add41819138abb3284d"),
    (r#"{"a":1}"#, "23202479633c2b380f79507a776743d5"),
    (r#"{"a":255}"#, "0fbe827385026714fdd09b847ebde3ac"),
    (r#"{"a":256}"#, "6528e394d3c2502a646ee64043be6186"),
    (r#"{"a":-1}"#, "36263f269caa4db3b190ba9d68b9bdf8"),
    (r#"{"a":2147483647}"#, "534f6b37e49de94740083e676abba387"),
    (r#"{"a":2147483648}"#, "b4f640a52110ec1afa2f52256780e40e"),
    (r#"{"a":-2147483649}"#, "6d036e2911065ed899639be9adb508c3"),
    (r#"{"a":123456789012345678901234567890}"#, "da1bd830ce681811ea5692e0ec6bd683"),
    (r#"{"a":1.5}"#, "c2d94f8474340cfb2476ac9ac18efe99"),
    (r#"{"a":1.0}"#, "8a159b695bf2bd957f1a435bfd6e1739"),
    (r#"{"a":"x"}"#, "44f9bfe91ef7f0894069148b317926c6"),
    (r#"{"a":"é"}"#, "a84b195a8ccf4e92812a4f2bb2272b90"),
    (r#"{"a":true,"b":false,"c":null}"#, "cb8c66602b212aa81979fb8fa1657af3"),
    (r#"{"a":[]}"#, "d49a64a623a0fcc15fb2a4e9edf20834"),
    (r#"{"a":[1,2,3]}"#, "308048961a84beb0c9e99e07facf0f5f"),
    (r#"{"a":[1,2,300]}"#, "a77dc9a33f4f57596bdf0a2121a0cb5e"),
    (r#"{"a":[1,"x"]}"#, "3251610a3e0f81858333c784878b0416"),
    (r#"{"a":{}}"#, "3a998deb00874a1aa37c51ab7d1665df"),
    (r#"{"a":{"b":[{"c":1.25}]}}"#, "79b9233871418c5384035264c092e690"),
    (r#"{"b":1,"a":2}"#, "afc27c384a7b497e8b717857527a0dc7"),
    (r#"{"a":2,"b":1}"#, "43bc36bb440b3548a3ff0c4beb772d8d"),
    (
        r#"{"a":"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}"#,
        "15c5c600d5a11e405720a07a60e3ac11",
    ),
    (r#"{"é":"日本","😀":[null,-5.5e-3]}"#, "81d79c6af57219e7e068b470500d403b"),
    (
        r#"{"a":0.1,"b":1.0,"c":1e3,"d":1.5e300,"e":-2.5e-7,"f":123456789.125,"g":1e21,"h":1E+2,"i":0.30000000000000004,"j":5e-324,"k":1.7976931348623157e308,"l":100.0,"m":1e22,"n":-0.0}"#,
        "e0cde5957dfe16ccc2f7b1ba0e2e7089",
    ),
    (
        r#"{"a":0,"b":-1,"c":9007199254740993,"d":18446744073709551616,"e":-123456789012345678901234567890,"f":2147483648,"g":-0}"#,
        "a733c95ebac4888de261b56921df701c",
    ),
    (
        r#"{"a":"\u0000\u0001\u001f","b":"\"\\\/\b\f\n\r\t","c":"é日😀","d":"\u00e9\u65e5\ud83d\ude00","e":"\u2028\u2029","f":"\u007f","g":"","h":"</script>"}"#,
        "782eda57bbc129082f31c3bb393f0fcb",
    ),
    (r#"{"z":1,"a":2,"m":{"y":1,"b":2,"10":3,"2":4},"é":3,"A":4,"":5}"#, "5f864102037241be1739ffad1529c0c2"),
    (
        r#"{"a": {}, "b": [], "c": null, "d": true, "e": false, "f": [[], {}, null], "g": {"h": {"i": {}}}}"#,
        "45217e3d3377e21469d224534d97b78c",
    ),
    (
        r#"{"name":"Zoë 😀","n":[1,2,3],"m":[1,300],"o":{"pi":3.25,"neg":-7,"big":12345678901234567890,"none":null,"yes":true,"empty":{}},"l":[]}"#,
        "6d800094a958435704de6f6a74fb7aa3",
    ),
    (r#"{"n":1}"#, "731bef401491606a3b246ed178e697c1"),
];

fn hash(body: &str, parent: Option<&str>) -> String {
    let body = Json::parse(body.as_bytes()).unwrap();
    let parent = parent.map(|parent| Rev::parse(parent).unwrap());
    Rev::new(1, revision_hash(false, parent.as_ref(), body.value(), &[])).hash.to_string()
}

fn term(body: &str) -> Vec<u8> {
    let mut term = Vec::new();
    write_value(&mut term, Json::parse(body.as_bytes()).unwrap().as_bytes());
    term
}

#[test]
fn recorded_first_revisions() {
    let seven = format!(r#"{{"a":[{}]}}"#, ["7"; 300].join(","));
    let long = (seven.as_str(), "2db68652c157e2df18903b1533e32ae6");
    for (body, expected) in RECORDED.iter().copied().chain([long]) {
        assert_eq!(hash(body, None), expected, "{body}");
    }
}

#[test]
fn recorded_successors() {
    let first = "1-23202479633c2b380f79507a776743d5";
    assert_eq!(hash(r#"{"a":2}"#, Some(first)), "71173597778497e0a6aa176963f222db");

    let parent = Rev::parse("1-6d800094a958435704de6f6a74fb7aa3").unwrap();
    let deletion = revision_hash(true, Some(&parent), Value::trusted(b"{}"), &[]);
    assert_eq!(Rev::new(2, deletion).to_string(), "2-01e97121ac4384542be0aa0c3f64209f");
}

#[test]
fn recorded_attachments() {
    let digest = |name, content_type, md5| AttachmentDigest { name, content_type, md5 };
    let md5 = |data: &[u8]| Md5::digest(data).into();
    let two = [digest("x", "image/png", md5(&[0, 1, 2])), digest("y", "application/octet-stream", md5(&[0xff]))];
    let hash = revision_hash(false, None, Value::trusted(br#"{"n":1}"#), &two);
    assert_eq!(Rev::new(1, hash).to_string(), "1-1a12bcc0099a19cf257f7ddc4383e031");

    // The text "hello hello hello hello", as CouchDB compresses it.
    let compressed = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03\xcb\x48\xcd\xc9\xc9\x57\xc8\x40\x27\x01\xe3\x51\x3d\x8d\x17\x00\x00\x00";
    let text = [digest("x", "text/plain", md5(compressed))];
    let hash = revision_hash(false, None, Value::trusted(b"{}"), &text);
    assert_eq!(Rev::new(1, hash).to_string(), "1-b8bb040234930dadc7993f362888f660");
}

#[test]
fn terms() {
    let big = "9".repeat(700);
    for (body, expected) in [
        ("[]", &b"j"[..]),
        ("{}", b"h\x01j"),
        ("[[]]", b"l\0\0\0\x01jj"),
        ("[0,255]", b"k\0\x02\0\xff"),
        ("[-0]", b"k\0\x01\0"),
        ("[256]", b"l\0\0\0\x01b\0\0\x01\0j"),
        ("[1,[2],3]", b"l\0\0\0\x03a\x01k\0\x01\x02a\x03j"),
        ("[1,\"\"]", b"l\0\0\0\x02a\x01m\0\0\0\0j"),
        ("[1,1.0]", b"l\0\0\0\x02a\x01F\x3f\xf0\0\0\0\0\0\0j"),
        (r#"{"\n":{"a":[1]}}"#, b"h\x01l\0\0\0\x01h\x02m\0\0\0\x01\nh\x01l\0\0\0\x01h\x02m\0\0\0\x01ak\0\x01\x01jj"),
        ("-2147483648", b"b\x80\0\0\0"),
        ("-2147483649", b"n\x04\x01\x01\0\0\x80"),
        ("18446744073709551615", b"n\x08\0\xff\xff\xff\xff\xff\xff\xff\xff"),
        ("-18446744073709551616", b"n\x09\x01\0\0\0\0\0\0\0\0\x01"),
        // Beyond 255 bytes the count takes four bytes; the last byte is the first of the magnitude.
        (&big, b"o\0\0\x01\x23\0\xff"),
    ] {
        let found = term(body);
        assert!(found.starts_with(expected), "{body}: {}", found.escape_ascii());
        assert!(found.len() == expected.len() || body == big, "{body}: {}", found.escape_ascii());
    }
    for (elements, tag) in [(65_535, b'k'), (65_536, b'l')] {
        assert_eq!(term(&format!("[{}]", vec!["1"; elements].join(",")))[0], tag);
    }
}

#[test]
fn spelling_makes_no_difference() {
    for (one, other) in [("10.0", "1e1"), ("0", "-0"), (r#""\u00e9\/""#, "\"é/\""), ("100000000000000000000.0", "1E20")]
    {
        assert_eq!(term(one), term(other), "{one} {other}");
    }
    assert_ne!(term("1"), term("1.0"));
}

fn naive(value: Value<'_>, term: &mut Vec<u8>) {
    use crate::json::Kind;
    match value.kind() {
        Kind::Null | Kind::Bool => write_atom(term, value.raw()),
        Kind::Number => {
            write_scalar(term, value.raw());
        }
        Kind::String => write_binary(term, value.as_str().unwrap().as_bytes()),
        Kind::Array => {
            let bytes: Option<Vec<u8>> = value.elements().map(|element| u8::try_from(element.as_i64()?).ok()).collect();
            match (value.elements().count(), bytes) {
                (0, _) => {}
                (1..=0xffff, Some(bytes)) => {
                    term.push(STRING);
                    term.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
                    term.extend_from_slice(&bytes);
                    return;
                }
                (count, _) => {
                    term.push(LIST);
                    write_count(term, count);
                    value.elements().for_each(|element| naive(element, term));
                }
            }
            term.push(NIL);
        }
        Kind::Object => {
            term.extend_from_slice(&[SMALL_TUPLE, 1]);
            if value.members().next().is_some() {
                term.push(LIST);
                write_count(term, value.members().count());
            }
            for (name, member) in value.members() {
                term.extend_from_slice(&[SMALL_TUPLE, 2]);
                naive(name, term);
                naive(member, term);
            }
            term.push(NIL);
        }
    }
}

#[test]
fn random_terms_are_written_as_naively() {
    let mut random = Random::new();
    for _ in 0..3_000 {
        let json = Json::parse(random.json_object().as_bytes()).unwrap();
        let (mut found, mut expected) = (Vec::new(), Vec::new());
        write_value(&mut found, json.as_bytes());
        naive(json.value(), &mut expected);
        assert!(found == expected, "{}", json.as_bytes().escape_ascii());
    }
}

#[test]
fn big_integers_are_exact() {
    let mut random = Random::new();
    for _ in 0..300 {
        // Digits from random bytes by repeated division, the inverse of the implementation.
        let mut bytes: Vec<u8> = (0..random.below(60) + 9).map(|_| random.below(256) as u8).collect();
        *bytes.last_mut().unwrap() |= 1;
        let mut rest = bytes.clone();
        let mut digits = Vec::new();
        while rest.iter().any(|&byte| byte != 0) {
            let mut remainder = 0;
            for byte in rest.iter_mut().rev() {
                let wide = remainder * 256 + u32::from(*byte);
                *byte = (wide / 10) as u8;
                remainder = wide % 10;
            }
            digits.insert(0, b'0' + remainder as u8);
        }
        let mut expected = vec![110, bytes.len() as u8, 0];
        expected.extend_from_slice(&bytes);
        let text = String::from_utf8(digits).unwrap();
        assert_eq!(term(&text), expected, "{text}");
        expected[2] = 1;
        assert_eq!(term(&format!("-{text}")), expected, "-{text}");
    }
}

#[test]
fn hasher_is_reusable() {
    let mut hasher = RevisionHasher::default();
    for (body, _) in RECORDED {
        let body = Json::parse(body.as_bytes()).unwrap();
        assert_eq!(hasher.hash(false, None, body.value(), &[]), revision_hash(false, None, body.value(), &[]));
    }
}

#[test]
fn a_deleted_document_that_comes_back_with_an_attachment() {
    let deletion = Rev::parse("2-d22fb21c9391481f2c1f3f0404cee231").unwrap();
    let hash = RevisionHasher::default().hash_again(&deletion, Json::parse(b"{}").unwrap().value(), 1);
    assert_eq!(crate::RevHash::from(hash).to_string(), "3852c629c7f8664bc53303fb58ed6e86");
    // Without attachments the hash equals that of any other edit.
    let body = Json::parse(br#"{"n":2}"#).unwrap();
    let usual = revision_hash(false, Some(&deletion), body.value(), &[]);
    assert_eq!(RevisionHasher::default().hash_again(&deletion, body.value(), 0), usual);
}
