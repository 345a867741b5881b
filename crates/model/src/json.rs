//! JSON text: validation, and traversal without a tree.
//!
//! A document is stored as the text that the client sent, without insignificant whitespace. Member order, the spelling
//! of numbers and escapes in strings are preserved.
//!
//! 1. [`fn@compact`] (or [`Json::parse`]) validates untrusted text once, at its entry.
//! 2. [`Value`] traverses the validated text lazily, without validating again.
//!
//! The accepted text is that of CouchDB 3.5 (its parser is jiffy, called with `dedupe_keys`):
//!
//! * The grammar of RFC 8259, any value at the top, UTF-8 without byte order mark.
//! * Escaped surrogates must come in pairs, high one first: a lone one has no UTF-8 form.
//! * Numbers with a fraction or an exponent must be within the range of a double, because CouchDB stores doubles;
//!   those too small for a double count as zero. Integers are exact, up to [`MAX_NUMBER_LEN`] characters.
//! * Of several members with the same name the last one is kept, **at the position of the last one**. Names are
//!   compared after unescaping. After [`fn@compact`] no object contains a name twice.
//! * Nesting up to [`MAX_DEPTH`]; CouchDB has no such limit.

mod compact;
mod object;
pub(crate) mod scan;
pub mod size;
#[cfg(test)]
mod tests;
mod value;

pub use crate::json::compact::compact;
use crate::json::compact::compact_to_depth;
pub use crate::json::object::{ObjectWriter, append_object, object};
pub use crate::json::value::{Elements, Kind, Members, Value, unescape};
pub use crate::limits::MAX_NUMBER_LEN;

/// Maximum nesting of arrays and objects: a scalar has depth 0, `[]` depth 1. Consumers of a value recurse, typically
/// on stacks of 1 to 8 MB. Python's parser has the same limit.
pub const MAX_DEPTH: usize = 1_000;

/// Levels that a message may add around a document of the maximum depth: `{"docs":[…]}` of `_bulk_docs`, `[{"ok":…}]`
/// of `open_revs`, the result of an update function.
pub const ENVELOPE_DEPTH: usize = 2;

/// Defect of a JSON text. CouchDB reports "invalid UTF-8 JSON" for all of these.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum JsonError {
    /// The grammar is violated.
    #[error("invalid JSON at byte {offset}")]
    Invalid {
        /// Position in bytes from the start of the text.
        offset: usize,
    },
    /// The text is not UTF-8.
    #[error("invalid UTF-8 at byte {offset}")]
    NotUtf8 {
        /// Position of the first byte that is not part of a character.
        offset: usize,
    },
    /// More than [`MAX_DEPTH`] arrays and objects are nested.
    #[error("JSON nested deeper than {MAX_DEPTH} levels at byte {offset}")]
    TooDeep {
        /// Position of the level that exceeds the limit.
        offset: usize,
    },
    /// A number exceeds the range of a double or [`MAX_NUMBER_LEN`].
    #[error("number out of range at byte {offset}")]
    NumberRange {
        /// Position of the number.
        offset: usize,
    },
}

/// Owned, valid, compact JSON text: one value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Json(Vec<u8>);

impl Json {
    /// Validates and compacts `text`, see [`fn@compact`].
    pub fn parse(text: &[u8]) -> Result<Json, JsonError> {
        let mut out = Vec::with_capacity(text.len());
        compact(text, &mut out)?;
        Ok(Json(out))
    }

    /// As [`Self::parse`], for a message that contains documents, each of the maximum depth.
    pub fn parse_envelope(text: &[u8]) -> Result<Json, JsonError> {
        let mut out = Vec::with_capacity(text.len());
        compact_to_depth(text, &mut out, MAX_DEPTH + ENVELOPE_DEPTH)?;
        Ok(Json(out))
    }

    /// Wraps text that must be valid and compact, such as text from the store.
    pub fn trusted(text: Vec<u8>) -> Json {
        Json(text)
    }

    /// Returns `{}`.
    pub fn empty_object() -> Json {
        Json(b"{}".to_vec())
    }

    /// Returns the value for traversal.
    pub fn value(&self) -> Value<'_> {
        Value::trusted(&self.0)
    }

    /// Returns the text.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the text without copying.
    pub fn into_bytes(self) -> Vec<u8> {
        self.0
    }
}

/// Appends `text` as a JSON string literal, with the minimum of escapes.
pub fn write_string(out: &mut Vec<u8>, text: &str) {
    write_string_bytes(out, text.as_bytes());
}

/// As [`write_string`]. `bytes` must be valid UTF-8, which is not checked.
pub fn write_string_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut start = 0;
    loop {
        let stop = scan::string_special(bytes, start);
        out.extend_from_slice(&bytes[start..stop]);
        let Some(&byte) = bytes.get(stop) else { break };
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            control => {
                const HEX: &[u8; 16] = b"0123456789abcdef";
                let digits = [HEX[usize::from(control >> 4)], HEX[usize::from(control & 15)]];
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&digits);
            }
        }
        start = stop + 1;
    }
    out.push(b'"');
}

/// Appends `[…]`, where `write` appends each element.
pub fn write_array<I: IntoIterator>(out: &mut Vec<u8>, items: I, mut write: impl FnMut(&mut Vec<u8>, I::Item)) {
    out.push(b'[');
    for (number, item) in items.into_iter().enumerate() {
        if number > 0 {
            out.push(b',');
        }
        write(out, item);
    }
    out.push(b']');
}

/// Appends `{"name":…}`, where `write` appends the value of each member.
pub fn write_object<T>(
    out: &mut Vec<u8>,
    members: impl IntoIterator<Item = (impl AsRef<str>, T)>,
    mut write: impl FnMut(&mut Vec<u8>, T),
) {
    append_object(out, |object| {
        for (name, value) in members {
            write(object.name(name.as_ref()), value);
        }
    });
}

/// Appends an integer.
#[inline]
pub fn write_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}
