//! Strings under raw collation: the order of their UTF-8 bytes.
//! The byte 0 ends an encoded string, so 0 is written as 1 1 and 1 as 1 2, which preserves the order.

use std::borrow::Cow;
use std::cmp::Ordering;

use crate::collate::string::literal;
use crate::json::Value;

pub(super) fn compare(a: Value<'_>, b: Value<'_>) -> Ordering {
    text(a).as_ref().cmp(text(b).as_ref())
}

pub(super) fn append_key(value: Value<'_>, out: &mut Vec<u8>) {
    let text = text(value);
    let mut rest: &[u8] = &text;
    out.reserve(rest.len() + 1);
    while let Some(special) = memchr::memchr2(0, 1, rest) {
        out.extend_from_slice(&rest[..special]);
        out.extend_from_slice(&[1, rest[special] + 1]);
        rest = &rest[special + 1..];
    }
    out.extend_from_slice(rest);
}

fn text(value: Value<'_>) -> Cow<'_, [u8]> {
    match literal(value) {
        Some(text) => Cow::Borrowed(text),
        None => Cow::Owned(value.as_str().unwrap_or_default().into_owned().into_bytes()),
    }
}
