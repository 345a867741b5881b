//! Strings as sequences of UTF-16 code units. A result with half a surrogate pair ends the run.

use crate::reason::{Reason, Stop};

/// Half a surrogate pair cannot be converted.
pub(super) fn as_str(text: &[u8]) -> Result<&str, Stop> {
    std::str::from_utf8(text).map_err(|_| Stop::BailOut(Reason::Conversion))
}

pub(super) fn is_space(character: char) -> bool {
    matches!(
        character,
        '\t'..='\r' | ' ' | '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{2028}' | '\u{2029}' | '\u{202f}'
            | '\u{205f}' | '\u{3000}' | '\u{feff}'
    )
}

pub(super) fn trim(text: &[u8]) -> Result<&[u8], Stop> {
    match (text.first(), text.last()) {
        (Some(first), Some(last)) if first.is_ascii_graphic() && last.is_ascii_graphic() => Ok(text),
        _ => Ok(as_str(text)?.trim_matches(is_space).as_bytes()),
    }
}

pub(super) fn length(text: &[u8]) -> Result<usize, Stop> {
    if text.is_ascii() { Ok(text.len()) } else { Ok(as_str(text)?.encode_utf16().count()) }
}

pub(super) fn unit(text: &[u8], index: usize) -> Result<Option<&[u8]>, Stop> {
    if text.is_ascii() {
        return Ok(text.get(index..=index));
    }
    if index >= length(text)? {
        return Ok(None);
    }
    slice(text, index, index + 1).map(Some)
}

/// `end` must not exceed the length.
pub(super) fn slice(text: &[u8], start: usize, end: usize) -> Result<&[u8], Stop> {
    if start >= end {
        return Ok(b"");
    }
    if text.is_ascii() {
        return text.get(start..end).ok_or(Stop::BailOut(Reason::Text));
    }
    let (start, end) = (byte_at(text, start)?, byte_at(text, end)?);
    text.get(start..end).ok_or(Stop::BailOut(Reason::Text))
}

pub(super) fn byte_at(text: &[u8], index: usize) -> Result<usize, Stop> {
    if text.is_ascii() {
        return Ok(index.min(text.len()));
    }
    let mut units = 0;
    for (at, character) in as_str(text)?.char_indices() {
        if units == index {
            return Ok(at);
        }
        if units > index {
            return Err(Stop::BailOut(Reason::Text));
        }
        units += character.len_utf16();
    }
    if units == index { Ok(text.len()) } else { Err(Stop::BailOut(Reason::Text)) }
}

pub(super) fn unit_at(text: &[u8], at: usize) -> Result<usize, Stop> {
    length(text.get(..at).ok_or(Stop::BailOut(Reason::Text))?)
}
