//! Variable-length integers and byte strings: the building blocks of all stored records.

use crate::{DatabaseError, Result};

/// Appends `value` in base 128, least significant group first.
pub(crate) fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a byte string behind its length.
pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Takes values off the front of a record.
pub(crate) struct Reader<'a> {
    rest: &'a [u8],
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Reads `bytes`; errors name the record `what`.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { rest: bytes, what }
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (first, rest) = self.rest.split_first().ok_or(DatabaseError::Corrupt(self.what))?;
        self.rest = rest;
        Ok(*first)
    }

    pub(crate) fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(DatabaseError::Corrupt(self.what))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = usize::try_from(self.varint()?).map_err(|_| DatabaseError::Corrupt(self.what))?;
        if len > self.rest.len() {
            return Err(DatabaseError::Corrupt(self.what));
        }
        let (bytes, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        let what = self.what;
        std::str::from_utf8(self.bytes()?).map_err(|_| DatabaseError::Corrupt(what))
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(DatabaseError::Corrupt(self.what))?;
        self.rest = rest;
        Ok(*first)
    }

    /// The rest that was not read yet.
    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }
}
