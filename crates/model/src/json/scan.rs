//! Search for the next significant byte of JSON text, in steps of eight bytes. Most strings are short, so the first
//! bytes are searched in a register, and only long strings use `memchr`.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

const SHORT: usize = 48;

const fn repeat(byte: u8) -> u64 {
    ONES * byte as u64
}

/// Returns the high bit of each byte that equals `byte`. A borrow may mark bytes above the lowest one.
#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    let difference = word ^ repeat(byte);
    difference.wrapping_sub(ONES) & !difference & HIGHS
}

/// As [`equal`], for bytes less than `limit`, which must not be above 128.
#[inline(always)]
const fn less(word: u64, limit: u8) -> u64 {
    word.wrapping_sub(repeat(limit)) & !word & HIGHS
}

#[inline(always)]
fn word(text: &[u8], at: usize) -> Option<u64> {
    let bytes = text.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().expect("the slice has eight bytes")))
}

#[inline(always)]
fn first(mask: u64) -> usize {
    (mask.trailing_zeros() / 8) as usize
}

/// Returns the index of the first quotation mark, backslash or control character, or the length of the text.
#[inline]
pub(crate) fn string_special(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(text, at) {
        let mask = equal(word, b'"') | equal(word, b'\\') | less(word, 0x20);
        if mask != 0 {
            return at + first(mask);
        }
        at += 8;
    }
    while let Some(&byte) = text.get(at) {
        if byte == b'"' || byte == b'\\' || byte < 0x20 {
            return at;
        }
        at += 1;
    }
    at
}

#[inline]
fn quote_or_escape(text: &[u8], mut at: usize) -> usize {
    let short_end = at + SHORT;
    while let Some(word) = word(text, at) {
        let mask = equal(word, b'"') | equal(word, b'\\');
        if mask != 0 {
            return at + first(mask);
        }
        at += 8;
        if at >= short_end {
            return memchr::memchr2(b'"', b'\\', &text[at..]).map_or(text.len(), |found| at + found);
        }
    }
    while let Some(&byte) = text.get(at) {
        if byte == b'"' || byte == b'\\' {
            return at;
        }
        at += 1;
    }
    at
}

/// Returns the index after the closing quotation mark. `at` must be the opening quotation mark of a valid string.
#[inline]
pub(crate) fn skip_string(text: &[u8], at: usize) -> usize {
    skip_noting_escapes(text, at).0
}

/// As [`skip_string`]; also returns true if the string contains escapes.
#[inline]
pub(crate) fn skip_noting_escapes(text: &[u8], at: usize) -> (usize, bool) {
    let mut at = at + 1;
    let mut escaped = false;
    loop {
        at = quote_or_escape(text, at);
        match text.get(at) {
            Some(b'\\') => {
                escaped = true;
                at += 2;
            }
            _ => return ((at + 1).min(text.len()), escaped),
        }
    }
}

/// Returns the index after the value. `at` must be the first byte of a valid compact value.
#[inline]
pub(crate) fn skip_value(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b'"') => skip_string(text, at),
        Some(b'{' | b'[') => skip_container(text, at),
        _ => skip_scalar(text, at),
    }
}

/// Numbers and literals end at the next structural character.
#[inline]
pub(crate) fn skip_scalar(text: &[u8], at: usize) -> usize {
    let mut end = at;
    while let Some(&byte) = text.get(end) {
        if matches!(byte, b',' | b'}' | b']' | b':') {
            break;
        }
        end += 1;
    }
    end
}

/// Brackets of valid text are balanced, so counting both kinds together finds the end.
fn skip_container(text: &[u8], mut at: usize) -> usize {
    let mut depth = 0usize;
    loop {
        at = bracket_or_quote(text, at);
        match text.get(at) {
            None => return at,
            Some(b'"') => at = skip_string(text, at),
            Some(b'{' | b'[') => {
                depth += 1;
                at += 1;
            }
            Some(_) => {
                depth = depth.saturating_sub(1);
                at += 1;
                if depth == 0 {
                    return at;
                }
            }
        }
    }
}

/// Brackets differ from braces by one bit, which is set before comparing.
#[inline(always)]
fn bracket_or_quote(text: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(text, at) {
        let folded = word | repeat(0x20);
        let mask = equal(folded, b'{') | equal(folded, b'}') | equal(word, b'"');
        if mask != 0 {
            return at + first(mask);
        }
        at += 8;
    }
    while let Some(&byte) = text.get(at) {
        if matches!(byte, b'{' | b'}' | b'[' | b']' | b'"') {
            return at;
        }
        at += 1;
    }
    at
}
