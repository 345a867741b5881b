//! [`compact`]: validation of all JSON that enters the system, in one pass with an explicit stack of open containers.
//! Compact input is copied with a single `memcpy`. UTF-8 is validated for the whole text beforehand. Member names are
//! compared by cheap hashes. An object with a repeated name is repaired when it is closed.

use std::borrow::Cow;

use smallvec::SmallVec;

use crate::json::value::{hex4, unescape};
use crate::json::{JsonError, MAX_DEPTH, scan};
use crate::limits::MAX_NUMBER_LEN;

const FEW_MEMBERS: usize = 16;

/// Validates `text` as one JSON value and appends it to `out` without insignificant whitespace and repeated members.
/// After an error `out` is unchanged.
pub fn compact(text: &[u8], out: &mut Vec<u8>) -> Result<(), JsonError> {
    compact_to_depth(text, out, MAX_DEPTH)
}

pub(super) fn compact_to_depth(text: &[u8], out: &mut Vec<u8>, max_depth: usize) -> Result<(), JsonError> {
    let length_before = out.len();
    let (open, names) = (SmallVec::new(), SmallVec::new());
    let result = match std::str::from_utf8(text) {
        Ok(_) => Compactor { text, at: 0, copied: 0, out, max_depth, open, names }.run(),
        Err(error) => Err(JsonError::NotUtf8 { offset: error.valid_up_to() }),
    };
    if result.is_err() {
        out.truncate(length_before);
    }
    result
}

struct Compactor<'t, 'o> {
    text: &'t [u8],
    at: usize,
    copied: usize,
    out: &'o mut Vec<u8>,
    max_depth: usize,
    open: SmallVec<[Container; 24]>,
    names: SmallVec<[Name; 24]>,
}

#[derive(Clone, Copy)]
enum Container {
    Array,
    Object(usize),
}

#[derive(Clone, Copy)]
struct Name {
    hash: u64,
    start: usize,
    end: usize,
    out: usize,
    escaped: bool,
}

impl Compactor<'_, '_> {
    fn run(mut self) -> Result<(), JsonError> {
        self.out.reserve(self.text.len());
        loop {
            if self.open_or_scalar()? {
                continue;
            }
            loop {
                let byte = self.peek();
                match self.open.last() {
                    None if self.at == self.text.len() => {
                        self.flush(self.at);
                        return Ok(());
                    }
                    None => return self.invalid(),
                    Some(Container::Array) => match byte {
                        b',' => {
                            self.at += 1;
                            break;
                        }
                        b']' => self.close(),
                        _ => return self.invalid(),
                    },
                    Some(&Container::Object(names)) => match byte {
                        b',' => {
                            self.at += 1;
                            self.name()?;
                            break;
                        }
                        b'}' => {
                            self.close_object(names);
                            self.close();
                        }
                        _ => return self.invalid(),
                    },
                }
            }
        }
    }

    /// Returns true if a container was opened, so that a value must follow.
    #[inline]
    fn open_or_scalar(&mut self) -> Result<bool, JsonError> {
        match self.peek() {
            b'"' => {
                self.string()?;
            }
            b'{' => {
                self.open(Container::Object(self.names.len()))?;
                if self.peek() != b'}' {
                    self.name()?;
                    return Ok(true);
                }
                self.close();
            }
            b'[' => {
                self.open(Container::Array)?;
                if self.peek() != b']' {
                    return Ok(true);
                }
                self.close();
            }
            b'-' | b'0'..=b'9' => self.number()?,
            b't' => self.literal(b"true")?,
            b'f' => self.literal(b"false")?,
            b'n' => self.literal(b"null")?,
            _ => self.invalid()?,
        }
        Ok(false)
    }

    fn invalid<T>(&self) -> Result<T, JsonError> {
        Err(JsonError::Invalid { offset: self.at })
    }

    /// Returns the next byte that is not whitespace, or 0 at the end of the text. The byte 0 is invalid everywhere.
    #[inline(always)]
    fn peek(&mut self) -> u8 {
        match self.text.get(self.at) {
            Some(&byte) if byte > b' ' => byte,
            Some(_) => self.skip_whitespace(),
            None => 0,
        }
    }

    fn skip_whitespace(&mut self) -> u8 {
        self.flush(self.at);
        while let Some(&byte) = self.text.get(self.at) {
            if !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                self.copied = self.at;
                return byte;
            }
            self.at += 1;
        }
        self.copied = self.at;
        0
    }

    #[inline]
    fn flush(&mut self, end: usize) {
        self.out.extend_from_slice(&self.text[self.copied..end]);
        self.copied = end;
    }

    #[inline]
    fn open(&mut self, container: Container) -> Result<(), JsonError> {
        if self.open.len() == self.max_depth {
            return Err(JsonError::TooDeep { offset: self.at });
        }
        self.open.push(container);
        self.at += 1;
        Ok(())
    }

    #[inline]
    fn close(&mut self) {
        self.open.pop();
        self.at += 1;
    }

    #[inline]
    fn literal(&mut self, word: &[u8]) -> Result<(), JsonError> {
        if !self.text[self.at..].starts_with(word) {
            return self.invalid();
        }
        self.at += word.len();
        Ok(())
    }

    #[inline]
    fn string(&mut self) -> Result<bool, JsonError> {
        self.at = scan::string_special(self.text, self.at + 1);
        if self.text.get(self.at) == Some(&b'"') {
            self.at += 1;
            return Ok(false);
        }
        self.string_with_escapes()?;
        Ok(true)
    }

    fn string_with_escapes(&mut self) -> Result<(), JsonError> {
        loop {
            match self.text.get(self.at) {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(());
                }
                Some(b'\\') => self.escape()?,
                _ => return self.invalid(),
            }
            self.at = scan::string_special(self.text, self.at);
        }
    }

    fn escape(&mut self) -> Result<(), JsonError> {
        let rest = &self.text[self.at..];
        self.at += match rest.get(1) {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => 2,
            Some(b'u') => match rest.get(2..).and_then(hex4) {
                Some(0xd800..0xdc00) => match rest.get(6..) {
                    Some([b'\\', b'u', low @ ..]) if matches!(hex4(low), Some(0xdc00..0xe000)) => 12,
                    _ => return self.invalid(),
                },
                Some(0xdc00..0xe000) | None => return self.invalid(),
                Some(_) => 6,
            },
            _ => return self.invalid(),
        };
        Ok(())
    }

    #[inline]
    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        if self.text[self.at] == b'-' {
            self.at += 1;
        }
        let whole_start = self.at;
        let whole = self.digits()?;
        if whole > 1 && self.text[whole_start] == b'0' {
            return self.invalid();
        }
        match self.text.get(self.at) {
            Some(b'.' | b'e' | b'E') => self.fraction_and_exponent(start, whole),
            _ if whole > MAX_NUMBER_LEN => Err(JsonError::NumberRange { offset: start }),
            _ => Ok(()),
        }
    }

    fn fraction_and_exponent(&mut self, start: usize, whole: usize) -> Result<(), JsonError> {
        if self.text[self.at] == b'.' {
            self.at += 1;
            self.digits()?;
        }
        let mut exponent = 0;
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            self.at += 1;
            if let Some(b'+' | b'-') = self.text.get(self.at) {
                self.at += 1;
            }
            exponent = self.digits()?;
        }
        let number = &self.text[start..self.at];
        // A number with so few digits before the point and in the exponent is below the largest double, 1.8e308.
        let surely_finite = whole <= 200 && exponent <= 2;
        let finite = surely_finite || {
            let number = std::str::from_utf8(number).expect("digits and signs are ASCII");
            number.parse().is_ok_and(f64::is_finite)
        };
        if finite && number.len() <= MAX_NUMBER_LEN { Ok(()) } else { Err(JsonError::NumberRange { offset: start }) }
    }

    #[inline]
    fn digits(&mut self) -> Result<usize, JsonError> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.text.get(self.at) {
            self.at += 1;
        }
        if self.at == start { self.invalid() } else { Ok(self.at - start) }
    }

    #[inline]
    fn name(&mut self) -> Result<(), JsonError> {
        if self.peek() != b'"' {
            return self.invalid();
        }
        let out = self.out.len() + (self.at - self.copied);
        let start = self.at + 1;
        let escaped = self.string()?;
        let end = self.at - 1;
        let literal = &self.text[start..end];
        let hash = if escaped { hash_name(&unescaped(literal, true)) } else { hash_name(literal) };
        self.names.push(Name { hash, start, end, out, escaped });
        if self.peek() != b':' {
            return self.invalid();
        }
        self.at += 1;
        Ok(())
    }

    /// Drops repeated members of the object whose names start at `names`. The position must be at its closing brace.
    #[inline]
    fn close_object(&mut self, names: usize) {
        if maybe_repeated(&self.names[names..]) {
            self.drop_repeated(names);
        }
        self.names.truncate(names);
    }

    #[cold]
    fn drop_repeated(&mut self, names: usize) {
        self.flush(self.at);
        let members = &self.names[names..];
        let literal = |name: &Name| unescaped(&self.text[name.start..name.end], name.escaped);
        // Sorting takes n log n steps even if an attacker makes all hashes equal.
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by(|&a, &b| {
            let (a, b) = (&members[a], &members[b]);
            a.hash.cmp(&b.hash).then_with(|| literal(a).cmp(&literal(b)))
        });
        let mut stays = vec![true; members.len()];
        for pair in order.windows(2) {
            let (earlier, later) = (&members[pair[0]], &members[pair[1]]);
            if earlier.hash == later.hash && literal(earlier) == literal(later) {
                stays[pair[0]] = false;
            }
        }
        let Some(first) = stays.iter().position(|&stays| !stays) else {
            return;
        };
        let mut target = members[first].out;
        // Each member is moved with the comma before it, except the first of the object.
        for index in first + 1..members.len() {
            if !stays[index] {
                continue;
            }
            let end = members.get(index + 1).map_or(self.out.len(), |next| next.out - 1);
            let object_start = members[0].out;
            if target > object_start && self.out[target - 1] != b',' {
                self.out[target] = b',';
                target += 1;
            }
            let start = members[index].out;
            self.out.copy_within(start..end, target);
            target += end - start;
        }
        self.out.truncate(target);
    }
}

fn unescaped(literal: &[u8], escaped: bool) -> Cow<'_, [u8]> {
    if !escaped {
        return Cow::Borrowed(literal);
    }
    let mut name = Vec::with_capacity(literal.len());
    unescape(literal, &mut name);
    Cow::Owned(name)
}

#[inline]
fn maybe_repeated(names: &[Name]) -> bool {
    if names.len() > FEW_MEMBERS {
        let mut hashes: Vec<u64> = names.iter().map(|name| name.hash).collect();
        hashes.sort_unstable();
        return hashes.windows(2).any(|pair| pair[0] == pair[1]);
    }
    names.iter().enumerate().any(|(index, name)| names[..index].iter().any(|other| other.hash == name.hash))
}

/// Hashes the length, the first 32 and the last eight bytes; `drop_repeated` compares equal hashes fully.
#[inline]
fn hash_name(name: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("the slice has eight bytes"));
    let half = |bytes: &[u8]| u64::from(u32::from_le_bytes(bytes.try_into().expect("the slice has four bytes")));
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(MULTIPLIER).rotate_left(29);
    let length = name.len();
    let seed = length as u64;
    match length {
        0 => 0,
        1..4 => mix(seed, u64::from(name[0]) << 16 | u64::from(name[length / 2]) << 8 | u64::from(name[length - 1])),
        4..8 => mix(mix(seed, half(&name[..4])), half(&name[length - 4..])),
        _ => {
            let head = name[..length.min(32)].chunks_exact(8).fold(seed, |hash, bytes| mix(hash, word(bytes)));
            mix(head, word(&name[length - 8..]))
        }
    }
}
