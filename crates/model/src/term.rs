//! [`Term`]: Erlang's external term format, which CouchDB hashes to compute replication ids.

use md5::{Digest, Md5};

use crate::json::Value;
use crate::revision_hash::{
    LIST, NIL, SMALL_TUPLE, STRING, VERSION, integer, write_atom, write_binary, write_count, write_value,
};

/// A term, written from left to right: first the number of elements, then the elements.
#[derive(Clone, Debug)]
pub struct Term(Vec<u8>);

impl Default for Term {
    fn default() -> Self {
        Self(vec![VERSION])
    }
}

impl Term {
    /// Starts a list: `count` elements and [`Term::end`] must follow, unless it is empty.
    pub fn list(&mut self, count: usize) {
        if count == 0 {
            self.0.push(NIL);
        } else {
            self.0.push(LIST);
            write_count(&mut self.0, count);
        }
    }

    /// Ends a list that is not empty.
    pub fn end(&mut self) {
        self.0.push(NIL);
    }

    /// Starts a tuple of `count` elements.
    pub fn tuple(&mut self, count: u8) {
        self.0.extend_from_slice(&[SMALL_TUPLE, count]);
    }

    /// Appends an atom.
    pub fn atom(&mut self, word: &str) {
        write_atom(&mut self.0, word.as_bytes());
    }

    /// Appends a binary.
    pub fn binary(&mut self, bytes: &[u8]) {
        write_binary(&mut self.0, bytes);
    }

    /// Appends a string as written in Erlang literals: a list of bytes.
    pub fn string(&mut self, bytes: &[u8]) {
        match u16::try_from(bytes.len()) {
            Ok(0) => self.0.push(NIL),
            Ok(length) => {
                self.0.push(STRING);
                self.0.extend_from_slice(&length.to_be_bytes());
                self.0.extend_from_slice(bytes);
            }
            Err(_) => {
                self.list(bytes.len());
                bytes.iter().for_each(|byte| self.integer(u64::from(*byte)));
                self.end();
            }
        }
    }

    /// Appends an integer.
    pub fn integer(&mut self, number: u64) {
        integer::write(&mut self.0, number.to_string().as_bytes());
    }

    /// Appends a JSON value in CouchDB's representation: an object is a tuple of one element, the list of its members.
    pub fn json(&mut self, value: Value<'_>) {
        write_value(&mut self.0, value.raw());
    }

    /// Returns the bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns the MD5 of the term.
    #[must_use]
    pub fn md5(&self) -> [u8; 16] {
        Md5::digest(&self.0).into()
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::Term;
    use crate::json::Json;

    fn check(write: impl FnOnce(&mut Term), expected: &[u8]) {
        let mut term = Term::default();
        write(&mut term);
        assert_eq!(term.as_bytes()[1..], *expected);
    }

    /// As written by `term_to_binary(…, [{minor_version, 1}])`.
    #[test]
    fn terms() {
        check(|term| term.list(0), b"j");
        check(|term| term.string(b""), b"j");
        check(|term| term.string(b"ab"), b"k\0\x02ab");
        check(|term| term.binary(b"ab"), b"m\0\0\0\x02ab");
        check(|term| term.atom("default"), b"d\0\x07default");
        check(|term| term.integer(6984), b"b\0\0\x1b\x48");
        check(|term| term.json(Json::parse(b"{\"a\":1}").unwrap().value()), b"h\x01l\0\0\0\x01h\x02m\0\0\0\x01aa\x01j");
        let long = [7; 65_536];
        let mut term = Term::default();
        term.string(&long);
        assert_eq!(term.as_bytes()[..8], *b"\x83l\0\x01\0\0a\x07");
        assert_eq!(term.as_bytes().len(), 6 + 2 * 65_536 + 1);
    }
}
