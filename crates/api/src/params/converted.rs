//! Conversion of JSON values to text, as by `couch_util:to_binary`.

use settee_model::json::{Kind, Value, write_array};

pub(super) fn converted(value: Value<'_>) -> String {
    let mut out = Vec::new();
    if !concatenate(&mut out, value) {
        out.clear();
        write_notation(&mut out, value);
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn concatenate(out: &mut Vec<u8>, value: Value<'_>) -> bool {
    if let Some(text) = value.as_str() {
        out.extend_from_slice(text.as_bytes());
        return true;
    }
    value.is_array()
        && value.elements().all(|element| match element.as_u64().and_then(|number| u8::try_from(number).ok()) {
            Some(byte) => {
                out.push(byte);
                true
            }
            None => concatenate(out, element),
        })
}

fn write_notation(out: &mut Vec<u8>, value: Value<'_>) {
    match value.kind() {
        Kind::Array => {
            write_array(out, value.elements(), write_notation);
        }
        Kind::Object => {
            out.extend_from_slice(b"{[");
            for (index, (name, member)) in value.members().enumerate() {
                out.extend_from_slice(if index > 0 { b",{" } else { b"{" });
                write_notation(out, name);
                out.push(b',');
                write_notation(out, member);
                out.push(b'}');
            }
            out.extend_from_slice(b"]}");
        }
        _ => match value.as_str() {
            Some(_) => {
                out.extend_from_slice(b"<<");
                out.extend_from_slice(value.raw());
                out.extend_from_slice(b">>");
            }
            None => out.extend_from_slice(value.raw()),
        },
    }
}
