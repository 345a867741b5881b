//! Numbers of variable length and byte strings, as records and stored fields are made of them.

use crate::error::{Error, Result};

/// Appends `number`, seven bits a byte, the lowest first.
pub(crate) fn push_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number & 0x7f) as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends bytes after their length.
pub(crate) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads what was pushed.
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
}

fn corrupt() -> Error {
    Error::Corrupt("a record ends too early".to_owned())
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8> {
        let (&byte, rest) = self.bytes.split_first().ok_or_else(corrupt)?;
        self.bytes = rest;
        Ok(byte)
    }

    pub(crate) fn number(&mut self) -> Result<u64> {
        let (mut number, mut shift) = (0, 0);
        loop {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(number);
            }
            shift += 7;
            if shift > 63 {
                return Err(corrupt());
            }
        }
    }

    pub(crate) fn small(&mut self) -> Result<u32> {
        u32::try_from(self.number()?).map_err(|_| corrupt())
    }

    pub(crate) fn fixed<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (head, rest) = self.bytes.split_first_chunk::<N>().ok_or_else(corrupt)?;
        self.bytes = rest;
        Ok(*head)
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8]> {
        let length = usize::try_from(self.number()?).map_err(|_| corrupt())?;
        let (bytes, rest) = self.bytes.split_at_checked(length).ok_or_else(corrupt)?;
        self.bytes = rest;
        Ok(bytes)
    }

    pub(crate) fn text(&mut self) -> Result<String> {
        String::from_utf8(self.bytes()?.to_vec()).map_err(|_| Error::Corrupt("a text is no UTF-8".to_owned()))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn what_is_pushed_is_read() {
        let numbers = [0, 1, 127, 128, 300, u64::from(u32::MAX), u64::MAX];
        let mut out = Vec::new();
        for number in numbers {
            push_number(&mut out, number);
            push_bytes(&mut out, number.to_string().as_bytes());
        }
        let mut reader = Reader::new(&out);
        for number in numbers {
            assert_eq!(reader.number().unwrap(), number);
            assert_eq!(reader.text().unwrap(), number.to_string());
        }
        assert!(reader.is_at_end() && reader.byte().is_err());
        assert!(Reader::new(&out[..out.len() - 1]).number().is_ok());
        assert!(Reader::new(&[0xff; 11]).number().is_err() && Reader::new(&[5, 1]).bytes().is_err());
    }
}
