//! Revision ids: [`Rev`], a generation and a hash, written `3-917fa2381192822767f010b95b45325b`.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use crate::json::{write_string, write_u64};
use crate::limits::{MAX_GENERATION, MAX_REV_HASH_LEN};

/// Cause of the rejection of a revision id. Displays CouchDB's reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("Invalid rev format")]
pub enum InvalidRev {
    /// The syntax is invalid.
    Format,
    /// The id exceeds [`MAX_GENERATION`] or [`MAX_REV_HASH_LEN`].
    TooLarge,
}

/// The hash part of a revision. As in CouchDB, 32 hexadecimal digits are stored as 16 bytes, and any other text
/// unchanged. Sixteen bytes are always displayed as digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct RevHash(Bytes);

/// Invariant: sixteen bytes are always `Md5`, so that equal hashes have equal representations.
#[derive(Clone, PartialEq, Eq, Hash)]
enum Bytes {
    Md5([u8; 16]),
    Other(Box<[u8]>),
}

impl RevHash {
    /// Wraps stored or computed bytes.
    pub fn from_bytes(bytes: &[u8]) -> RevHash {
        RevHash(match bytes.try_into() {
            Ok(md5) => Bytes::Md5(md5),
            Err(_) => Bytes::Other(bytes.into()),
        })
    }

    /// Returns the bytes: 16 of an MD5, or text.
    pub fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Bytes::Md5(md5) => md5,
            Bytes::Other(text) => text,
        }
    }

    /// Parses the part after the hyphen, which may be empty. As in CouchDB, 32 characters must be hexadecimal.
    pub fn parse(text: &str) -> Result<RevHash, InvalidRev> {
        if text.len() > MAX_REV_HASH_LEN {
            return Err(InvalidRev::TooLarge);
        }
        if text.len() != 32 {
            return Ok(RevHash::from_bytes(text.as_bytes()));
        }
        let mut md5 = [0; 16];
        for (byte, digits) in md5.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            *byte = hex_digit(digits[0])? << 4 | hex_digit(digits[1])?;
        }
        Ok(RevHash(Bytes::Md5(md5)))
    }
}

fn hex(md5: [u8; 16]) -> [u8; 32] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut digits = [0; 32];
    for (pair, byte) in digits.chunks_exact_mut(2).zip(md5) {
        pair[0] = DIGITS[usize::from(byte >> 4)];
        pair[1] = DIGITS[usize::from(byte & 15)];
    }
    digits
}

fn hex_digit(digit: u8) -> Result<u8, InvalidRev> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        b'A'..=b'F' => Ok(digit - b'A' + 10),
        _ => Err(InvalidRev::Format),
    }
}

impl From<[u8; 16]> for RevHash {
    fn from(md5: [u8; 16]) -> RevHash {
        RevHash(Bytes::Md5(md5))
    }
}

/// By bytes, as Erlang compares binaries.
impl Ord for RevHash {
    fn cmp(&self, other: &RevHash) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl PartialOrd for RevHash {
    fn partial_cmp(&self, other: &RevHash) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Bytes::Md5(md5) => f.write_str(std::str::from_utf8(&hex(*md5)).expect("hexadecimal digits are ASCII")),
            Bytes::Other(text) => f.write_str(&String::from_utf8_lossy(text)),
        }
    }
}

impl fmt::Debug for RevHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A revision id. Ordered by generation, then by the bytes of the hash.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rev {
    /// Number of edits since the creation of the document, from 1. Local documents have 0.
    pub generation: u64,
    /// The hash part.
    pub hash: RevHash,
}

impl Rev {
    /// Creates a revision id.
    pub fn new(generation: u64, hash: impl Into<RevHash>) -> Rev {
        Rev { generation, hash: hash.into() }
    }

    /// Parses `generation-hash`. The generation is a number up to [`MAX_GENERATION`].
    pub fn parse(text: &str) -> Result<Rev, InvalidRev> {
        let (generation, hash) = text.split_once('-').ok_or(InvalidRev::Format)?;
        // Rust's own parser accepts a plus sign.
        if generation.is_empty() || !generation.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(InvalidRev::Format);
        }
        let hash = RevHash::parse(hash)?;
        match generation.parse() {
            Ok(generation) if generation <= MAX_GENERATION => Ok(Rev { generation, hash }),
            _ => Err(InvalidRev::TooLarge),
        }
    }

    /// Appends the JSON string without the formatting machinery, because responses contain thousands.
    pub fn write_json(&self, out: &mut Vec<u8>) {
        let Bytes::Md5(md5) = &self.hash.0 else {
            return write_string(out, &self.to_string());
        };
        out.push(b'"');
        write_u64(out, self.generation);
        out.push(b'-');
        out.extend_from_slice(&hex(*md5));
        out.push(b'"');
    }
}

impl FromStr for Rev {
    type Err = InvalidRev;

    fn from_str(text: &str) -> Result<Rev, InvalidRev> {
        Rev::parse(text)
    }
}

impl fmt::Display for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.generation, self.hash)
    }
}

impl fmt::Debug for Rev {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn reads_and_writes() {
        for (text, written) in [
            ("1-23202479633c2b380f79507a776743d5", "1-23202479633c2b380f79507a776743d5"),
            ("1-23202479633C2B380F79507A776743D5", "1-23202479633c2b380f79507a776743d5"),
            ("3-c", "3-c"),
            ("0-12", "0-12"),
            ("007-x-y", "7-x-y"),
            ("1-", "1-"),
            ("2-é", "2-é"),
            ("9223372036854775807-x", "9223372036854775807-x"),
            // Sixteen bytes are treated as an MD5, here and in CouchDB.
            ("1-abcdefghijklmnop", "1-6162636465666768696a6b6c6d6e6f70"),
        ] {
            let rev = Rev::parse(text).unwrap();
            assert_eq!(rev.to_string(), written);
            assert_eq!(Rev::parse(written).unwrap(), rev, "{text} is read as it was written");
            assert_eq!(RevHash::from_bytes(rev.hash.as_bytes()), rev.hash);
        }
    }

    #[test]
    fn refuses() {
        let long = format!("1-{}", "x".repeat(MAX_REV_HASH_LEN + 1));
        for text in [
            "",
            "x",
            "1",
            "-1",
            "-",
            "x-y",
            "+1-x",
            " 1-x",
            "1.0-x",
            "9223372036854775808-x",
            "99999999999999999999-x",
            "1-zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",
            &long,
        ] {
            assert_eq!(Rev::parse(text).unwrap_err().to_string(), "Invalid rev format", "{text}");
        }
    }

    #[test]
    fn order() {
        let sorted = ["1-zz", "2-a", "2-aa", "2-b", "10-00000000000000000000000000000000", "10-a"];
        for pair in sorted.windows(2) {
            assert!(Rev::parse(pair[0]).unwrap() < Rev::parse(pair[1]).unwrap(), "{} < {}", pair[0], pair[1]);
        }
    }
}
