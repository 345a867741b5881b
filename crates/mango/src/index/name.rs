//! [`generated`]: the default name of an index, equal to that of CouchDB, so that the same request finds its index
//! again. CouchDB hashes Erlang's external format of the definition and the options of the request.

use std::fmt::Write;

use settee_model::json::{Kind, Value};
use sha1::{Digest, Sha1};

pub(super) enum Option<'a> {
    Given(Value<'a>),
    Default(&'static str),
    Number(u64),
    Text(&'a str),
}

/// `options` must be sorted by name.
pub(super) fn generated(definition: Value<'_>, options: &[(&'static str, Option<'_>)]) -> String {
    let mut term = vec![131, b'h', 2];
    write_value(definition, &mut term);
    term.push(b'l');
    term.extend_from_slice(&(options.len() as u32).to_be_bytes());
    for (name, value) in options {
        term.extend_from_slice(b"h\x02");
        write_atom(name, &mut term);
        match value {
            Option::Given(value) => write_value(*value, &mut term),
            Option::Default(atom) => write_atom(atom, &mut term),
            Option::Number(number) => write_integer(&number.to_string(), &mut term),
            Option::Text(text) => write_binary(text.as_bytes(), &mut term),
        }
    }
    term.push(b'j');
    Sha1::digest(&term).iter().fold(String::with_capacity(40), |mut name, byte| {
        let _ = write!(name, "{byte:02x}");
        name
    })
}

fn write_atom(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(&[b'd', 0, name.len() as u8]);
    out.extend_from_slice(name.as_bytes());
}

fn write_binary(text: &[u8], out: &mut Vec<u8>) {
    out.push(b'm');
    out.extend_from_slice(&(text.len() as u32).to_be_bytes());
    out.extend_from_slice(text);
}

fn write_value(value: Value<'_>, out: &mut Vec<u8>) {
    match value.kind() {
        Kind::Null => write_atom("null", out),
        Kind::Bool => write_atom(if value.as_bool() == Some(true) { "true" } else { "false" }, out),
        Kind::Number if value.is_integer() => write_integer(&String::from_utf8_lossy(value.raw()), out),
        Kind::Number => {
            out.push(b'F');
            out.extend_from_slice(&value.as_f64().unwrap_or_default().to_be_bytes());
        }
        Kind::String => write_binary(&value.string_bytes().unwrap_or_default(), out),
        Kind::Array => write_array(value, out),
        Kind::Object => {
            out.extend_from_slice(b"h\x01");
            let members: Vec<_> = value.members().collect();
            if !members.is_empty() {
                out.push(b'l');
                out.extend_from_slice(&(members.len() as u32).to_be_bytes());
            }
            for (name, member) in members {
                out.extend_from_slice(b"h\x02");
                write_binary(&name.string_bytes().unwrap_or_default(), out);
                write_value(member, out);
            }
            out.push(b'j');
        }
    }
}

fn write_array(value: Value<'_>, out: &mut Vec<u8>) {
    let elements: Vec<Value<'_>> = value.elements().collect();
    let bytes: std::option::Option<Vec<u8>> =
        elements.iter().map(|element| element.as_u64().and_then(|number| u8::try_from(number).ok())).collect();
    match bytes {
        Some(bytes) if (1..=65_535).contains(&bytes.len()) => {
            out.push(b'k');
            out.extend_from_slice(&(bytes.len() as u16).to_be_bytes());
            out.extend_from_slice(&bytes);
        }
        _ => {
            if !elements.is_empty() {
                out.push(b'l');
                out.extend_from_slice(&(elements.len() as u32).to_be_bytes());
            }
            elements.into_iter().for_each(|element| write_value(element, out));
            out.push(b'j');
        }
    }
}

/// Integers of more than 16 bytes, which do not occur in practice, become 0.
fn write_integer(digits: &str, out: &mut Vec<u8>) {
    let number: i128 = digits.parse().unwrap_or_default();
    match (u8::try_from(number), i32::try_from(number)) {
        (Ok(byte), _) => out.extend_from_slice(&[b'a', byte]),
        (_, Ok(word)) => {
            out.push(b'b');
            out.extend_from_slice(&word.to_be_bytes());
        }
        _ => {
            let magnitude = number.unsigned_abs().to_le_bytes();
            let length = 16 - magnitude.iter().rev().take_while(|byte| **byte == 0).count();
            out.extend_from_slice(&[b'n', length as u8, u8::from(number < 0)]);
            out.extend_from_slice(&magnitude[..length]);
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_model::json::Json;

    use super::*;

    #[test]
    fn values_are_written_as_erlang_terms() {
        let check = |text: &str, expected: &[u8]| {
            let json = Json::parse(text.as_bytes()).unwrap();
            let mut out = Vec::new();
            write_value(json.value(), &mut out);
            assert_eq!(out, expected, "{text}");
        };
        check("null", b"d\0\x04null");
        check("7", b"a\x07");
        check("-1", b"b\xff\xff\xff\xff");
        check("4294967296", b"n\x05\x00\x00\x00\x00\x00\x01");
        check("1.5", b"F\x3f\xf8\0\0\0\0\0\0");
        check(r#""ab""#, b"m\0\0\0\x02ab");
        check("[]", b"j");
        check("[1,2]", b"k\0\x02\x01\x02");
        check(r#"["a"]"#, b"l\0\0\0\x01m\0\0\0\x01aj");
        check("{}", b"h\x01j");
        check(r#"{"a":true}"#, b"h\x01l\0\0\0\x01h\x02m\0\0\0\x01ad\0\x04truej");
    }

    #[test]
    fn names_are_those_of_couchdb() {
        let definition = Json::parse(br#"{"fields":["foo"]}"#).unwrap();
        let options = [
            ("ddoc", Option::Default("auto_name")),
            ("def", Option::Given(definition.value())),
            ("name", Option::Text("foo-index")),
            ("type", Option::Text("json")),
            ("w", Option::Number(2)),
        ];
        assert_eq!(generated(definition.value(), &options), "a5f4711fc9448864a13c81dc71e660b524d7410c");
    }

    #[test]
    fn names_depend_on_the_definition_and_the_options() {
        let name = |definition: &str, given: &'static str| {
            let json = Json::parse(definition.as_bytes()).unwrap();
            generated(json.value(), &[("name", Option::Default(given))])
        };
        assert_eq!(name(r#"{"fields":["a"]}"#, "x").len(), 40);
        assert_eq!(name(r#"{"fields":["a"]}"#, "x"), name(r#"{"fields":["a"]}"#, "x"));
        assert_ne!(name(r#"{"fields":["a"]}"#, "x"), name(r#"{"fields":["b"]}"#, "x"));
        assert_ne!(name(r#"{"fields":["a"]}"#, "x"), name(r#"{"fields":["a"]}"#, "y"));
    }
}
