//! Numbers of variable length and byte strings, as nodes and records are made of them.

use crate::error::{Result, ViewError};

/// Appends `number`, seven bits a byte, the lowest first.
#[inline]
pub(crate) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    // Nearly all are that small.
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a length.
#[inline]
pub(crate) fn push_len(out: &mut Vec<u8>, len: usize) {
    push_number(out, len as u64);
}

/// Appends bytes after their length.
#[inline]
pub(crate) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reads what was pushed. What does not decode is [`ViewError::Corrupt`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    what: &'static str,
}

impl<'a> Reader<'a> {
    /// Begins at the start of `bytes`; `what` is named by errors.
    pub(crate) fn new(bytes: &'a [u8], what: &'static str) -> Self {
        Self { bytes, at: 0, what }
    }

    /// The number of bytes that were read.
    pub(crate) fn position(&self) -> usize {
        self.at
    }

    /// Whether everything was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[inline]
    pub(crate) fn number(&mut self) -> Result<u64> {
        let mut number = 0;
        let mut shift = 0;
        loop {
            let &byte = self.bytes.get(self.at).filter(|_| shift < 64).ok_or(ViewError::Corrupt(self.what))?;
            self.at += 1;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
        }
    }

    #[inline]
    pub(crate) fn len(&mut self) -> Result<usize> {
        let len = self.number()?;
        usize::try_from(len).map_err(|_| ViewError::Corrupt(self.what))
    }

    #[inline]
    pub(crate) fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or(ViewError::Corrupt(self.what))?;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    #[inline]
    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.len()?;
        self.take(len)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| ViewError::Corrupt(self.what))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_read() {
        let numbers = [0, 1, 127, 128, 300, 1 << 20, u64::from(u32::MAX), u64::MAX];
        let mut out = Vec::new();
        for number in numbers {
            push_number(&mut out, number);
            push_bytes(&mut out, b"ab");
        }
        let mut reader = Reader::new(&out, "test");
        for number in numbers {
            assert_eq!(reader.number().unwrap(), number);
            assert_eq!(reader.bytes().unwrap(), b"ab");
        }
        assert!(reader.is_at_end());
        assert_eq!(reader.position(), out.len());
        for len in 0..2 {
            assert!(Reader::new(&[0x82, 0x80][..len], "test").number().is_err());
        }
        assert!(Reader::new(&[0xff; 12], "test").number().is_err());
        assert!(Reader::new(&[9, 1], "test").bytes().is_err());
    }
}
