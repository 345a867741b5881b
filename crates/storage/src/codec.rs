//! Encoding of records: variable-length integers and byte strings ([`put_varint`], [`Reader`]).

/// The stored bytes are not a valid record of this name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stored {0} does not decode")]
pub struct Corrupt(pub &'static str);

/// Result of reading a record.
pub type Result<T, E = Corrupt> = std::result::Result<T, E>;

/// Appends `value` in base 128, the lowest seven bits first.
#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends a length.
#[inline]
pub fn put_len(out: &mut Vec<u8>, len: usize) {
    put_varint(out, len as u64);
}

/// Appends a byte string after its length.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_len(out, bytes.len());
    out.extend_from_slice(bytes);
}

/// Reader of a record from its start. Methods fail if the record is too short or malformed.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    label: &'static str,
}

impl<'a> Reader<'a> {
    /// Creates a reader at the start of `bytes`. Errors contain the name `label`.
    #[must_use]
    pub fn new(bytes: &'a [u8], label: &'static str) -> Self {
        Self { bytes, at: 0, label }
    }

    /// Returns the number of bytes read.
    #[must_use]
    pub fn position(&self) -> usize {
        self.at
    }

    /// Returns true if all bytes were read.
    #[must_use]
    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Returns the bytes that were not read yet.
    #[must_use]
    pub fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..]
    }

    /// Reads one byte.
    #[inline]
    pub fn byte(&mut self) -> Result<u8> {
        let &byte = self.bytes.get(self.at).ok_or(Corrupt(self.label))?;
        self.at += 1;
        Ok(byte)
    }

    /// Reads an integer of at most 64 bits.
    #[inline]
    pub fn varint(&mut self) -> Result<u64> {
        let mut value = 0;
        let mut shift = 0;
        loop {
            let &byte = self.bytes.get(self.at).filter(|_| shift < 64).ok_or(Corrupt(self.label))?;
            self.at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(value);
            }
            shift += 7;
        }
    }

    /// Reads an integer that must fit into a `usize`.
    #[inline]
    pub fn length(&mut self) -> Result<usize> {
        usize::try_from(self.varint()?).map_err(|_| Corrupt(self.label))
    }

    /// Reads `len` bytes.
    #[inline]
    pub fn take(&mut self, len: usize) -> Result<&'a [u8]> {
        let end = self.at.checked_add(len).filter(|&end| end <= self.bytes.len()).ok_or(Corrupt(self.label))?;
        let bytes = &self.bytes[self.at..end];
        self.at = end;
        Ok(bytes)
    }

    /// Reads a byte string after its length.
    #[inline]
    pub fn bytes(&mut self) -> Result<&'a [u8]> {
        let len = self.length()?;
        self.take(len)
    }

    /// Reads a byte string that must be UTF-8.
    pub fn text(&mut self) -> Result<&'a str> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Corrupt(self.label))
    }

    /// Reads `N` bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| Corrupt(self.label))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn written_values_are_read() {
        let numbers = [0, 1, 127, 128, 300, 1 << 20, u64::from(u32::MAX), u64::MAX];
        let mut out = Vec::new();
        for number in numbers {
            put_varint(&mut out, number);
            put_bytes(&mut out, b"ab");
            out.extend_from_slice(&[7, 8, 9]);
        }
        let mut reader = Reader::new(&out, "test");
        for number in numbers {
            assert_eq!(reader.varint().unwrap(), number);
            assert_eq!(reader.text().unwrap(), "ab");
            assert_eq!((reader.byte().unwrap(), reader.array().unwrap()), (7, [8, 9]));
        }
        assert!(reader.is_at_end() && reader.rest().is_empty());
        assert_eq!(reader.position(), out.len());
    }

    #[test]
    fn failed_writes_name_the_record() {
        let broken: [&[u8]; 5] = [&[], &[0x82], &[0x82, 0x80], &[0xff; 12], &[9, 1]];
        for bytes in broken {
            assert_eq!(Reader::new(bytes, "test").bytes(), Err(Corrupt("test")), "{bytes:?}");
        }
        assert_eq!(Reader::new(&[1, 0xff], "test").text(), Err(Corrupt("test")));
        assert_eq!(Reader::new(&[1], "test").array::<2>(), Err(Corrupt("test")));
        assert_eq!(Reader::new(&[], "test").byte(), Err(Corrupt("test")));
        assert_eq!(Corrupt("counters").to_string(), "stored counters does not decode");
    }
}
