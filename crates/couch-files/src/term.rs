//! Terms in Erlang's external format: [`Tape`] holds a decoded term, [`Term`] traverses it.
//!
//! A term starts with the version byte 131. Each value is a tag and its contents, in big-endian order:
//!
//! | tag | value | contents |
//! |---|---|---|
//! | 97, 98 | integer | one byte; four bytes, signed |
//! | 110, 111 | big integer | number of bytes (one or four bytes), sign, magnitude with the lowest byte first |
//! | 70, 99 | float | eight bytes; 31 bytes of text |
//! | 100, 118; 115, 119 | atom | length (two bytes; one byte), text |
//! | 104, 105 | tuple | number of elements (one or four bytes), the elements |
//! | 106 | empty list | |
//! | 107 | list of bytes | length (two bytes), the bytes |
//! | 108 | list | number of elements (four bytes), the elements, the tail |
//! | 109 | binary | length (four bytes), the bytes |
//! | 116 | map | number of pairs (four bytes), keys and values |
//!
//! Terms may be nested very deeply, by two levels per revision. A term is therefore decoded into one vector without
//! recursion. Only the size bounds the depth.

use crate::error::TermError;

/// In bytes, after decompression.
pub(crate) const MAX_TERM_LEN: usize = 256 << 20;

const MAX_ITEMS: usize = 16 << 20;

/// Values of a term in depth-first order.
#[derive(Clone, PartialEq, Debug)]
pub struct Tape {
    bytes: Vec<u8>,
    items: Vec<Item>,
}

/// Positions of bytes refer to [`Tape::bytes`], ends to [`Tape::items`].
#[derive(Clone, Copy, PartialEq, Debug)]
enum Item {
    Integer(i64),
    Big {
        start: u32,
        len: u32,
        is_negative: bool,
    },
    Float(f64),
    Atom {
        start: u32,
        len: u32,
    },
    Binary {
        start: u32,
        len: u32,
    },
    /// Erlang writes lists of small integers as bytes.
    Bytes {
        start: u32,
        len: u32,
    },
    Tuple {
        arity: u32,
        end: u32,
    },
    List {
        len: u32,
        end: u32,
    },
    Map {
        pairs: u32,
        end: u32,
    },
}

struct Open {
    at: usize,
    left: usize,
}

impl Tape {
    pub fn decode(bytes: Vec<u8>) -> Result<Tape, TermError> {
        if bytes.len() > MAX_TERM_LEN {
            return Err(TermError::TooLarge);
        }
        let mut reader = Reader { bytes: &bytes, at: 0 };
        if reader.byte()? != 131 {
            return Err(TermError::Version);
        }
        let items = decode_items(&mut reader)?;
        if reader.at != bytes.len() {
            return Err(TermError::Trailing);
        }
        Ok(Tape { bytes, items })
    }

    pub fn root(&self) -> Term<'_> {
        Term { tape: self, at: 0 }
    }

    pub(crate) fn at(&self, index: usize) -> Term<'_> {
        Term { tape: self, at: index }
    }
}

fn decode_items(reader: &mut Reader<'_>) -> Result<Vec<Item>, TermError> {
    let mut items = Vec::new();
    let mut open: Vec<Open> = Vec::new();
    loop {
        if items.len() >= MAX_ITEMS {
            return Err(TermError::TooLarge);
        }
        let at = items.len();
        let (item, elements) = reader.item()?;
        items.push(item);
        if elements > 0 {
            open.push(Open { at, left: elements });
            continue;
        }
        close(&mut items, at);
        while let Some(last) = open.last_mut() {
            last.left -= 1;
            if last.left > 0 {
                break;
            }
            let at = last.at;
            close(&mut items, at);
            open.pop();
        }
        if open.is_empty() {
            return Ok(items);
        }
    }
}

fn close(items: &mut [Item], at: usize) {
    let len = items.len() as u32;
    match &mut items[at] {
        Item::Tuple { end, .. } | Item::List { end, .. } | Item::Map { end, .. } => *end = len,
        _ => {}
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
}

impl Reader<'_> {
    fn take(&mut self, len: usize) -> Result<&[u8], TermError> {
        let end = self.at.checked_add(len).ok_or(TermError::Incomplete)?;
        let taken = self.bytes.get(self.at..end).ok_or(TermError::Incomplete)?;
        self.at = end;
        Ok(taken)
    }

    fn byte(&mut self) -> Result<u8, TermError> {
        Ok(self.take(1)?[0])
    }

    fn u16(&mut self) -> Result<usize, TermError> {
        let bytes = self.take(2)?;
        Ok(usize::from(u16::from_be_bytes([bytes[0], bytes[1]])))
    }

    fn u32(&mut self) -> Result<usize, TermError> {
        let bytes = self.take(4)?;
        Ok(u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize)
    }

    fn range(&mut self, len: usize) -> Result<(u32, u32), TermError> {
        let start = self.at as u32;
        self.take(len)?;
        Ok((start, len as u32))
    }

    /// Checks that the input has at least one byte for each element, which bounds allocations by the size of the input.
    fn elements(&self, elements: usize) -> Result<(), TermError> {
        if elements > self.bytes.len() - self.at { Err(TermError::Incomplete) } else { Ok(()) }
    }

    /// Returns a value and the number of its elements, which follow it.
    fn item(&mut self) -> Result<(Item, usize), TermError> {
        let tag = self.byte()?;
        let item = match tag {
            97 => Item::Integer(i64::from(self.byte()?)),
            98 => {
                let bytes = self.take(4)?;
                Item::Integer(i64::from(i32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])))
            }
            110 => {
                let len = usize::from(self.byte()?);
                self.big(len)?
            }
            111 => {
                let len = self.u32()?;
                self.big(len)?
            }
            70 => {
                let mut double = [0; 8];
                double.copy_from_slice(self.take(8)?);
                finite(f64::from_be_bytes(double))?
            }
            99 => {
                let text = std::str::from_utf8(self.take(31)?).map_err(|_| TermError::Malformed)?;
                let text = text.trim_end_matches('\0').trim();
                finite(text.parse().map_err(|_| TermError::Malformed)?)?
            }
            100 | 118 => {
                let len = self.u16()?;
                self.atom(len)?
            }
            115 | 119 => {
                let len = usize::from(self.byte()?);
                self.atom(len)?
            }
            104 | 105 => {
                let arity = if tag == 104 { usize::from(self.byte()?) } else { self.u32()? };
                self.elements(arity)?;
                return Ok((Item::Tuple { arity: arity as u32, end: 0 }, arity));
            }
            106 => Item::List { len: 0, end: 0 },
            107 => {
                let len = self.u16()?;
                let (start, len) = self.range(len)?;
                Item::Bytes { start, len }
            }
            108 => {
                let len = self.u32()?;
                self.elements(len + 1)?;
                return Ok((Item::List { len: len as u32, end: 0 }, len + 1));
            }
            109 => {
                let len = self.u32()?;
                let (start, len) = self.range(len)?;
                Item::Binary { start, len }
            }
            116 => {
                let pairs = self.u32()?;
                self.elements(pairs * 2)?;
                return Ok((Item::Map { pairs: pairs as u32, end: 0 }, pairs * 2));
            }
            tag => return Err(TermError::Tag(tag)),
        };
        Ok((item, 0))
    }

    fn atom(&mut self, len: usize) -> Result<Item, TermError> {
        let (start, len) = self.range(len)?;
        Ok(Item::Atom { start, len })
    }

    fn big(&mut self, len: usize) -> Result<Item, TermError> {
        let is_negative = match self.byte()? {
            0 => false,
            1 => true,
            _ => return Err(TermError::Malformed),
        };
        let (start, len) = self.range(len)?;
        let magnitude = &self.bytes[start as usize..self.at];
        let significant = magnitude.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        if significant <= 8 {
            let value = magnitude[..significant].iter().rev().fold(0_u64, |value, byte| value << 8 | u64::from(*byte));
            let value = if is_negative { -i128::from(value) } else { i128::from(value) };
            if let Ok(value) = i64::try_from(value) {
                return Ok(Item::Integer(value));
            }
        }
        Ok(Item::Big { start, len, is_negative })
    }
}

fn finite(value: f64) -> Result<Item, TermError> {
    if value.is_finite() { Ok(Item::Float(value)) } else { Err(TermError::Malformed) }
}

#[derive(Clone, Copy)]
pub struct Term<'t> {
    tape: &'t Tape,
    at: usize,
}

#[derive(Clone, Copy, Debug)]
pub enum Kind<'t> {
    Integer(i64),
    Big {
        /// Bytes of the magnitude, lowest first.
        magnitude: &'t [u8],
        is_negative: bool,
    },
    Float(f64),
    Atom(&'t [u8]),
    Binary(&'t [u8]),
    /// A list of integers below 256.
    Bytes(&'t [u8]),
    Tuple(Elements<'t>),
    /// The tail of a list is ignored.
    List(Elements<'t>),
    /// The contents of maps are not available.
    Map,
}

impl std::fmt::Debug for Term<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.tape.items[self.at].fmt(f)
    }
}

impl<'t> Term<'t> {
    pub fn kind(self) -> Kind<'t> {
        let tape = self.tape;
        let bytes = |start: u32, len: u32| &tape.bytes[start as usize..start as usize + len as usize];
        let elements = |left: u32| Elements { tape, at: self.at + 1, left: left as usize };
        match self.tape.items[self.at] {
            Item::Integer(value) => Kind::Integer(value),
            Item::Big { start, len, is_negative } => Kind::Big { magnitude: bytes(start, len), is_negative },
            Item::Float(value) => Kind::Float(value),
            Item::Atom { start, len } => Kind::Atom(bytes(start, len)),
            Item::Binary { start, len } => Kind::Binary(bytes(start, len)),
            Item::Bytes { start, len } => Kind::Bytes(bytes(start, len)),
            Item::Tuple { arity, .. } => Kind::Tuple(elements(arity)),
            Item::List { len, .. } => Kind::List(elements(len)),
            Item::Map { .. } => Kind::Map,
        }
    }

    pub fn tuple(self) -> Option<Elements<'t>> {
        if let Kind::Tuple(elements) = self.kind() { Some(elements) } else { None }
    }

    pub fn array<const N: usize>(self) -> Option<[Term<'t>; N]> {
        let mut elements = self.tuple().filter(|elements| elements.len() == N)?;
        let array = [(); N].map(|()| elements.next());
        array.iter().all(Option::is_some).then(|| array.map(|element| element.unwrap_or(self)))
    }

    /// Lists of integers below 256 are [`Kind::Bytes`] instead.
    pub fn list(self) -> Option<Elements<'t>> {
        if let Kind::List(elements) = self.kind() { Some(elements) } else { None }
    }

    pub fn binary(self) -> Option<&'t [u8]> {
        if let Kind::Binary(bytes) = self.kind() { Some(bytes) } else { None }
    }

    pub fn atom(self) -> Option<&'t [u8]> {
        if let Kind::Atom(text) = self.kind() { Some(text) } else { None }
    }

    pub fn is_atom(self, name: &str) -> bool {
        self.atom() == Some(name.as_bytes())
    }

    pub fn unsigned(self) -> Option<u64> {
        match self.kind() {
            Kind::Integer(value) => u64::try_from(value).ok(),
            Kind::Big { magnitude, is_negative: false } => {
                let magnitude: [u8; 8] = magnitude.try_into().ok()?;
                Some(u64::from_le_bytes(magnitude))
            }
            _ => None,
        }
    }

    pub fn to_text(self) -> Option<Vec<u8>> {
        match self.kind() {
            Kind::Atom(text) | Kind::Binary(text) | Kind::Bytes(text) => Some(text.to_vec()),
            Kind::Integer(value) => Some(value.to_string().into_bytes()),
            _ => None,
        }
    }

    pub(crate) fn index(self) -> usize {
        self.at
    }

    fn end(self) -> usize {
        match self.tape.items[self.at] {
            Item::Tuple { end, .. } | Item::List { end, .. } | Item::Map { end, .. } => end as usize,
            _ => self.at + 1,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Elements<'t> {
    tape: &'t Tape,
    at: usize,
    left: usize,
}

impl<'t> Iterator for Elements<'t> {
    type Item = Term<'t>;

    fn next(&mut self) -> Option<Term<'t>> {
        self.left = self.left.checked_sub(1)?;
        let term = Term { tape: self.tape, at: self.at };
        self.at = term.end();
        Some(term)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl ExactSizeIterator for Elements<'_> {}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn decode(bytes: &[u8]) -> Result<Tape, TermError> {
        Tape::decode([&[131], bytes].concat())
    }

    #[test]
    fn values_of_each_type() {
        let check = |bytes: &[u8], expected: &str| {
            let tape = decode(bytes).unwrap();
            assert_eq!(format!("{:?}", tape.items), expected);
        };
        check(&[97, 255], "[Integer(255)]");
        check(&[98, 255, 255, 255, 254], "[Integer(-2)]");
        check(&[110, 2, 1, 0, 1], "[Integer(-256)]");
        check(&[110, 8, 1, 0, 0, 0, 0, 0, 0, 0, 128], "[Integer(-9223372036854775808)]");
        check(&[110, 8, 0, 0, 0, 0, 0, 0, 0, 0, 128], "[Big { start: 4, len: 8, is_negative: false }]");
        check(&[70, 63, 248, 0, 0, 0, 0, 0, 0], "[Float(1.5)]");
        check(&[115, 1, b'a'], "[Atom { start: 3, len: 1 }]");
        check(&[104, 2, 106, 97, 1], "[Tuple { arity: 2, end: 3 }, List { len: 0, end: 2 }, Integer(1)]");
        check(
            &[108, 0, 0, 0, 1, 104, 0, 106],
            "[List { len: 1, end: 3 }, Tuple { arity: 0, end: 2 }, List { len: 0, end: 3 }]",
        );
        let old_float = [&[99_u8][..], b"1.50000000000000000000e+00\0\0\0\0\0"].concat();
        check(&old_float, "[Float(1.5)]");
    }

    #[test]
    fn elements_follow_their_ends() {
        let tape = decode(&[104, 2, 108, 0, 0, 0, 2, 104, 0, 97, 5, 106, 109, 0, 0, 0, 1, b'x']).unwrap();
        let [list, binary] = tape.root().array().unwrap();
        assert_eq!(binary.binary(), Some(&b"x"[..]));
        let list: Vec<_> = list.list().unwrap().collect();
        assert_eq!((list.len(), list[1].unsigned()), (2, Some(5)));
        assert!(tape.root().array::<3>().is_none());
    }

    #[test]
    fn malformed_terms_are_errors() {
        for (bytes, expected) in [
            (&[][..], TermError::Incomplete),
            (&[97], TermError::Incomplete),
            (&[97, 1, 1], TermError::Trailing),
            (&[103], TermError::Tag(103)),
            (&[105, 255, 255, 255, 255, 97], TermError::Incomplete),
            (&[108, 255, 255, 255, 255, 97], TermError::Incomplete),
            (&[116, 255, 255, 255, 255, 97], TermError::Incomplete),
            (&[109, 255, 255, 255, 255, 97], TermError::Incomplete),
            (&[70, 127, 240, 0, 0, 0, 0, 0, 0], TermError::Malformed),
            (&[110, 1, 2, 0], TermError::Malformed),
        ] {
            assert_eq!(decode(bytes).unwrap_err(), expected, "{bytes:?}");
        }
        assert_eq!(Tape::decode(vec![130, 106]), Err(TermError::Version));
    }

    #[test]
    fn deep_terms_do_not_recurse() {
        let mut bytes = vec![131];
        bytes.extend(std::iter::repeat_n([104, 1], 1_000_000).flatten());
        bytes.push(106);
        let tape = Tape::decode(bytes).unwrap();
        assert_eq!(tape.items.len(), 1_000_001);
    }
}
