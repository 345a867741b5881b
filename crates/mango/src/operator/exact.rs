//! [`exact_key`]: bytes that are equal if and only if values are equal by Erlang's exact comparison (`$all`): `1`
//! differs from `1.0`, strings are compared by bytes, and members of objects are ordered.

use settee_model::json::{Kind, Value};

pub(super) fn exact_key(value: Value<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    write(value, &mut out);
    out
}

fn write(value: Value<'_>, out: &mut Vec<u8>) {
    match value.kind() {
        Kind::Null | Kind::Bool => out.extend_from_slice(value.raw()),
        Kind::Number if value.is_integer() => {
            out.push(b'i');
            out.extend_from_slice(if value.raw() == b"-0" { b"0" } else { value.raw() });
        }
        Kind::Number => {
            out.push(b'd');
            out.extend_from_slice(&(value.as_f64().unwrap_or_default() + 0.0).to_bits().to_be_bytes());
        }
        Kind::String => write_string(value, out),
        Kind::Array => {
            out.push(b'[');
            for element in value.elements() {
                write(element, out);
                out.push(b',');
            }
            out.push(b']');
        }
        Kind::Object => {
            out.push(b'{');
            for (name, member) in value.members() {
                write_string(name, out);
                write(member, out);
            }
            out.push(b'}');
        }
    }
}

fn write_string(value: Value<'_>, out: &mut Vec<u8>) {
    let text = value.string_bytes().unwrap_or_default();
    out.push(b'"');
    out.extend_from_slice(&(text.len() as u64).to_be_bytes());
    out.extend_from_slice(&text);
}
