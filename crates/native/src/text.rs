//! Traversal of trusted JSON text, and output of JSON text in the format of `JSON.stringify`. Invalid text yields wrong
//! values, but never a panic or an out-of-bounds read. The positions of `settee_model::json` are not used: maps that
//! skip most members ran a tenth slower with them.

use std::io::Write as _;

use settee_model::json::{self, MAX_DEPTH};

#[inline]
pub fn skip_space(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| *byte <= b' ') {
        at += 1;
    }
    at
}

/// Returns the position after the closing quote, and true if the string contains escapes.
#[inline]
pub fn string_end(text: &[u8], open: usize) -> (usize, bool) {
    let mut at = open + 1;
    // Most strings are so short that a call of memchr would cost more than steps of eight bytes.
    let near = at + 48;
    while at < near
        && let Some(bytes) = text.get(at..at + 8)
    {
        let word = u64::from_le_bytes(bytes.try_into().expect("the slice has eight bytes"));
        let found = equal(word, b'"') | equal(word, b'\\');
        if found != 0 {
            at += (found.trailing_zeros() / 8) as usize;
            return if text[at] == b'"' { (at + 1, false) } else { escaped_string_end(text, at) };
        }
        at += 8;
    }
    match memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        Some(found) if text[at + found] == b'"' => (at + found + 1, false),
        Some(found) => escaped_string_end(text, at + found),
        None => (text.len(), false),
    }
}

/// Returns the end of a name of fewer than sixteen bytes without escapes, as [`string_end`] does, and its
/// [`fingerprint`]; `None` for other names.
#[inline]
pub fn short_name(text: &[u8], open: usize) -> Option<(usize, u64)> {
    let word_at = |at: usize| Some(u64::from_le_bytes(*text.get(at..)?.first_chunk()?));
    let stop = |word: u64| equal(word, b'"') | equal(word, b'\\');
    let mut at = open + 1;
    let mut fingerprint = word_at(at)?;
    let mut found = stop(fingerprint);
    if found == 0 {
        at += size_of::<u64>();
        found = stop(word_at(at)?);
    } else {
        fingerprint &= (1 << (found.trailing_zeros() / u8::BITS * u8::BITS)) - 1;
    }
    at += (found.trailing_zeros() / u8::BITS) as usize;
    (found != 0 && text[at] == b'"').then_some((at + 1, fingerprint))
}

/// Returns the first eight bytes of a name, or all of a shorter one. Names with different fingerprints are different.
pub fn fingerprint(name: &[u8]) -> u64 {
    if let Some(bytes) = name.first_chunk() {
        return u64::from_le_bytes(*bytes);
    }
    name.iter().rev().fold(0, |fingerprint, byte| fingerprint << 8 | u64::from(*byte))
}

/// Sets the high bit of each byte of `word` that equals `byte`; only the lowest one is exact.
#[inline(always)]
const fn equal(word: u64, byte: u8) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let difference = word ^ (ONES * byte as u64);
    difference.wrapping_sub(ONES) & !difference & (ONES << 7)
}

#[cold]
fn escaped_string_end(text: &[u8], mut at: usize) -> (usize, bool) {
    while let Some(found) = memchr::memchr2(b'"', b'\\', text.get(at..).unwrap_or_default()) {
        at += found;
        if text[at] == b'"' {
            return (at + 1, true);
        }
        at += 2;
    }
    (text.len(), true)
}

pub fn skip_value(text: &[u8], at: usize) -> usize {
    match text.get(at) {
        Some(b'"') => string_end(text, at).0,
        Some(b'{' | b'[') => skip_container(text, at),
        _ => scalar_end(text, at),
    }
}

fn skip_container(text: &[u8], open: usize) -> usize {
    container_end(text, open + 1)
}

/// Returns the position after the object or array that contains `at`, which must be between two values or names.
pub fn container_end(text: &[u8], mut at: usize) -> usize {
    let mut depth = 1usize;
    while let Some(byte) = text.get(at) {
        match byte {
            b'"' => {
                at = string_end(text, at).0;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return at + 1;
                }
            }
            _ => {}
        }
        at += 1;
    }
    text.len()
}

#[inline]
pub fn scalar_end(text: &[u8], mut at: usize) -> usize {
    while text.get(at).is_some_and(|byte| !matches!(byte, b',' | b'}' | b']' | b':' | 0..=b' ')) {
        at += 1;
    }
    at
}

pub fn number(literal: &[u8]) -> f64 {
    std::str::from_utf8(literal).ok().and_then(|text| text.parse().ok()).unwrap_or(f64::NAN)
}

/// Returns the array index that a property name denotes, if any: such names come first in the order of an object's
/// members.
pub fn array_index(name: &[u8]) -> Option<u32> {
    if name.is_empty() || name.len() > 10 || (name[0] == b'0' && name.len() > 1) {
        return None;
    }
    let mut number = 0u64;
    for byte in name {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(byte - b'0');
    }
    u32::try_from(number).ok().filter(|number| *number != u32::MAX)
}

/// `text` is UTF-8 except for lone surrogates, as the engine returns it.
pub fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    match std::str::from_utf8(text) {
        Ok(text) => json::write_string(out, text),
        Err(_) => json::write_string(out, &without_surrogates(text)),
    }
}

/// Replaces lone surrogates in `text`, three bytes each, by U+FFFD.
pub fn without_surrogates(text: &[u8]) -> String {
    let mut clean = String::with_capacity(text.len());
    let mut rest = text;
    loop {
        match std::str::from_utf8(rest) {
            Ok(good) => {
                clean.push_str(good);
                return clean;
            }
            Err(error) => {
                let (good, bad) = rest.split_at(error.valid_up_to());
                clean.push_str(&String::from_utf8_lossy(good));
                clean.push(char::REPLACEMENT_CHARACTER);
                rest = bad.get(3..).unwrap_or_default();
            }
        }
    }
}

pub fn write_number(out: &mut Vec<u8>, number: f64) {
    if !number.is_finite() {
        out.extend_from_slice(b"null");
        return;
    }
    #[expect(clippy::cast_possible_truncation, reason = "a truncated number does not equal the original")]
    let whole = number as i64;
    #[expect(clippy::cast_precision_loss, clippy::float_cmp, reason = "tests that the conversion is exact")]
    let exact = whole.unsigned_abs() < 1_000_000_000_000_000 && whole as f64 == number;
    if exact {
        write_integer(out, whole);
    } else {
        write_fraction(out, number);
    }
}

pub fn write_integer(out: &mut Vec<u8>, number: i64) {
    if number < 0 {
        out.push(b'-');
    }
    json::write_u64(out, number.unsigned_abs());
}

/// Appends the shortest digits that round to the same number, in the format of ECMAScript's `Number::toString`.
fn write_fraction(out: &mut Vec<u8>, number: f64) {
    let mut buffer = [0u8; 40];
    let mut cursor = std::io::Cursor::new(&mut buffer[..]);
    write!(cursor, "{number:e}").expect("17 digits, a sign, a point and an exponent fit");
    let end = usize::try_from(cursor.position()).expect("inside the buffer");
    let mut written = &buffer[..end];
    if let Some(rest) = written.strip_prefix(b"-") {
        out.push(b'-');
        written = rest;
    }
    let mantissa_end = written.iter().position(|byte| *byte == b'e').unwrap_or(written.len());
    let exponent: i32 =
        std::str::from_utf8(&written[mantissa_end + 1..]).ok().and_then(|text| text.parse().ok()).unwrap_or_default();
    let mut digits = [0u8; 20];
    let mut count = 0;
    for byte in written[..mantissa_end].iter().filter(|byte| **byte != b'.') {
        digits[count] = *byte;
        count += 1;
    }
    let digits = &digits[..count];
    let length = i32::try_from(count).expect("at most 17 digits");
    let point = exponent + 1;
    if (length..=21).contains(&point) {
        out.extend_from_slice(digits);
        out.extend((length..point).map(|_| b'0'));
    } else if (1..=21).contains(&point) {
        let (whole, fraction) = digits.split_at(usize::try_from(point).expect("positive"));
        out.extend_from_slice(whole);
        out.push(b'.');
        out.extend_from_slice(fraction);
    } else if (-5..=0).contains(&point) {
        out.extend_from_slice(b"0.");
        out.extend((point..0).map(|_| b'0'));
        out.extend_from_slice(digits);
    } else {
        out.push(digits[0]);
        if count > 1 {
            out.push(b'.');
            out.extend_from_slice(&digits[1..]);
        }
        write!(out, "e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs()).expect("writing to memory");
    }
}

/// The text is nested deeper than [`MAX_DEPTH`].
#[derive(Debug, PartialEq, Eq)]
pub struct TooDeep;

/// Appends the value at `at` as `JSON.stringify(JSON.parse(…))` would write it: numbers in their shortest form, only
/// necessary escapes, array-index names first. Returns the position after the value.
pub fn copy_value(text: &[u8], at: usize, out: &mut Vec<u8>, depth: usize) -> Result<usize, TooDeep> {
    let mut copier = Copier { text, out, verbatim: at };
    let end = copier.value(at, depth)?;
    copier.flush(end);
    Ok(end)
}

struct Copier<'a> {
    text: &'a [u8],
    out: &'a mut Vec<u8>,
    /// The text before this position is in `out`.
    verbatim: usize,
}

impl Copier<'_> {
    fn flush(&mut self, upto: usize) {
        self.out.extend_from_slice(self.text.get(self.verbatim..upto).unwrap_or_default());
        self.verbatim = upto;
    }

    fn replace(&mut self, from: usize, to: usize) {
        self.flush(from);
        self.verbatim = to;
    }

    fn space(&mut self, at: usize) -> usize {
        let end = skip_space(self.text, at);
        if end > at {
            self.replace(at, end);
        }
        end
    }

    fn value(&mut self, at: usize, depth: usize) -> Result<usize, TooDeep> {
        let end = match self.text.get(at) {
            Some(b'"') => self.string(at),
            Some(b'{') => self.object(at, depth + 1)?,
            Some(b'[') => self.array(at, depth + 1)?,
            Some(b'-' | b'0'..=b'9') => self.number(at),
            _ => scalar_end(self.text, at),
        };
        Ok(end)
    }

    fn string(&mut self, at: usize) -> usize {
        let (end, escaped) = string_end(self.text, at);
        if escaped {
            self.replace(at, end);
            let mut plain = Vec::with_capacity(end - at);
            json::unescape(self.text.get(at + 1..end - 1).unwrap_or_default(), &mut plain);
            write_string(self.out, &plain);
        }
        end
    }

    fn number(&mut self, at: usize) -> usize {
        let end = scalar_end(self.text, at);
        let literal = &self.text[at..end];
        // Up to 15 digits without fraction or exponent are already in the engine's format.
        let digits = literal.strip_prefix(b"-").unwrap_or(literal);
        let plain = digits.len() <= 15 && digits.iter().all(u8::is_ascii_digit) && literal != b"-0";
        if !plain {
            self.replace(at, end);
            write_number(self.out, number(literal));
        }
        end
    }

    fn array(&mut self, open: usize, depth: usize) -> Result<usize, TooDeep> {
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        let mut at = self.space(open + 1);
        while !matches!(self.text.get(at), Some(b']') | None) {
            if self.text[at] == b',' {
                at = self.space(at + 1);
            }
            let end = self.value(at, depth)?;
            if end == at {
                return Ok(self.text.len());
            }
            at = self.space(end);
        }
        Ok(at + 1)
    }

    fn object(&mut self, open: usize, depth: usize) -> Result<usize, TooDeep> {
        if depth > MAX_DEPTH {
            return Err(TooDeep);
        }
        let (written, verbatim) = (self.out.len(), self.verbatim);
        let mut last_index = None;
        let mut names_seen = false;
        let mut at = self.space(open + 1);
        while let Some(&byte) = self.text.get(at) {
            match byte {
                b'}' => return Ok(at + 1),
                b',' => at = self.space(at + 1),
                _ => {}
            }
            let (name_end, _) = string_end(self.text, at);
            match array_index(self.text.get(at + 1..name_end - 1).unwrap_or_default()) {
                Some(index) if names_seen || last_index.is_some_and(|last| last > index) => {
                    self.out.truncate(written);
                    self.verbatim = verbatim;
                    return self.reordered_object(open, depth);
                }
                Some(index) => last_index = Some(index),
                None => names_seen = true,
            }
            self.string(at);
            at = self.space(name_end);
            at = self.space(at + 1);
            let end = self.value(at, depth)?;
            if end == at {
                return Ok(self.text.len());
            }
            at = self.space(end);
        }
        Ok(self.text.len())
    }

    #[cold]
    fn reordered_object(&mut self, open: usize, depth: usize) -> Result<usize, TooDeep> {
        let mut members = Vec::new();
        let mut at = skip_space(self.text, open + 1);
        while let Some(&byte) = self.text.get(at) {
            if byte == b'}' {
                break;
            }
            if byte == b',' {
                at = skip_space(self.text, at + 1);
            }
            let (name_end, _) = string_end(self.text, at);
            let colon = skip_space(self.text, name_end);
            let value = skip_space(self.text, colon + 1);
            let index = array_index(self.text.get(at + 1..name_end - 1).unwrap_or_default());
            members.push((index.is_none(), index, at, value));
            at = skip_space(self.text, skip_value(self.text, value).max(value + 1));
        }
        let end = at + 1;
        // The sort is stable: other names keep their order.
        members.sort_by_key(|(named, index, ..)| (*named, *index));
        self.replace(open, end);
        self.out.push(b'{');
        for (number, (_, _, name, value)) in members.into_iter().enumerate() {
            if number > 0 {
                self.out.push(b',');
            }
            copy_value(self.text, name, self.out, depth)?;
            self.out.push(b':');
            copy_value(self.text, value, self.out, depth)?;
        }
        self.out.push(b'}');
        Ok(end)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn check_copy(text: &str, expected: &str) {
        let mut out = b"before".to_vec();
        let end = copy_value(text.as_bytes(), 0, &mut out, 0).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), format!("before{expected}"), "{text}");
        assert_eq!(end, text.len());
    }

    #[test]
    fn short_names_end_where_strings_do() {
        for len in 0..20 {
            let name = "abcdefghijklmnopqrst".get(..len).unwrap();
            for behind in ["\":1,\"x\":2}", "\": \"value\"}", "\\\"\":[1,2,3,4]}"] {
                let text = format!("{{\"{name}{behind}");
                let (end, is_escaped) = string_end(text.as_bytes(), 1);
                let expected = (len < 16 && !is_escaped).then(|| (end, fingerprint(name.as_bytes())));
                assert_eq!(short_name(text.as_bytes(), 1), expected, "{text}");
            }
        }
        assert_eq!(short_name(b"\"a\"", 0), None, "there is no word to read");
    }

    #[test]
    fn copies_look_like_the_engine_wrote_them() {
        for same in ["null", "true", "0", "-1", "17", "\"\"", "\"ü\u{1f6cb}\"", "[]", "{}", "[1,[2,{}],\"a\"]"] {
            check_copy(same, same);
        }
        check_copy("1.0", "1");
        check_copy("-0", "0");
        check_copy("[-0,1e3,0.10]", "[0,1000,0.1]");
        check_copy("12345678901234567890", "12345678901234567000");
        check_copy("{\"a\":1E400}", "{\"a\":null}");
        check_copy(r#""\u0041\/\n\u00e9\ud83d\ude00\u0001""#, "\"A/\\né😀\\u0001\"");
        check_copy(r#"{"a\u0062":"\"","c":2}"#, r#"{"ab":"\"","c":2}"#);
        check_copy(r#"{"b":1,"2":[1.0],"1":{"z":1,"0":2}}"#, r#"{"1":{"0":2,"z":1},"2":[1],"b":1}"#);
        check_copy(r#"{"1":1,"2":2,"01":3,"4294967295":4}"#, r#"{"1":1,"2":2,"01":3,"4294967295":4}"#);
        check_copy("{ \"a\" : [ 1 , 2.50 ] , \"b\" : { } }", r#"{"a":[1,2.5],"b":{}}"#);
    }

    #[test]
    fn numbers_are_written_as_ecmascript_does() {
        let table = [
            (0.0, "0"),
            (-0.0, "0"),
            (1.5, "1.5"),
            (-2.25, "-2.25"),
            (1e15, "1000000000000000"),
            (123_456_789_012_345_680_000.0, "123456789012345680000"),
            (1e21, "1e+21"),
            (1.25e25, "1.25e+25"),
            (1e-6, "0.000001"),
            (1.5e-7, "1.5e-7"),
            (5e-324, "5e-324"),
            (f64::MAX, "1.7976931348623157e+308"),
            (0.1 + 0.2, "0.30000000000000004"),
            (f64::NAN, "null"),
        ];
        for (number, expected) in table {
            let mut out = Vec::new();
            write_number(&mut out, number);
            assert_eq!(String::from_utf8(out).unwrap(), expected);
        }
    }

    #[test]
    fn text_that_is_no_json_never_panics() {
        let pieces = ["{", "}", "[", "]", "\"", "\\", ",", ":", "1", "a", " ", "\\u12", "-", "\"x\""];
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        for _ in 0..20_000 {
            let mut text = String::new();
            for _ in 0..8 {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                text.push_str(pieces[usize::try_from(state % 14).unwrap()]);
            }
            let mut out = Vec::new();
            let _ = copy_value(text.as_bytes(), 0, &mut out, 0);
            skip_value(text.as_bytes(), 0);
        }
    }

    #[test]
    fn depth_is_limited() {
        let nest = |levels: usize| "[".repeat(levels) + &"]".repeat(levels);
        check_copy(&nest(MAX_DEPTH), &nest(MAX_DEPTH));
        assert_eq!(copy_value(nest(MAX_DEPTH + 1).as_bytes(), 0, &mut Vec::new(), 0), Err(TooDeep));
    }

    #[test]
    fn lone_surrogates_become_replacement_characters() {
        let mut out = Vec::new();
        write_string(&mut out, b"a\xed\xa0\x80b");
        assert_eq!(String::from_utf8(out).unwrap(), "\"a\u{fffd}b\"");
    }
}
