//! [`Leaf`]: consecutive rows that are stored together. Encoding of a row: number of bytes shared with the previous row
//! key (times two, plus one if the emitted key is the same text), rest of the row key, length of the sort key, emitted
//! key unless the same, value.

use std::borrow::Cow;
use std::ops::Range;

use settee_storage::codec::{Reader, put_bytes, put_len};

use crate::error::{Result, ViewError};
use crate::keys;

const LEAF: &str = "leaf";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Row<'a> {
    pub(crate) row_key: &'a [u8],
    pub(crate) sort_len: usize,
    pub(crate) key: &'a [u8],
    pub(crate) value: &'a [u8],
}

impl<'a> Row<'a> {
    pub(crate) fn id(&self) -> Cow<'a, str> {
        keys::row_id(self.row_key, self.sort_len)
    }

    /// Bytes of id, key and value in a response.
    pub(crate) fn content_bytes(&self) -> usize {
        self.row_key.len() - self.sort_len + self.key.len() + self.value.len()
    }

    pub(crate) fn sort_key(&self) -> &'a [u8] {
        &self.row_key[..self.sort_len]
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Leaf {
    bytes: Vec<u8>,
    rows: Vec<Slot>,
    /// Number of further node numbers that the stored leaf occupies.
    pub(crate) pieces: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    row_key: u32,
    row_key_len: u32,
    sort_len: u32,
    key: u32,
    key_len: u32,
    value: u32,
    value_len: u32,
}

const ROW_OVERHEAD_BYTES: usize = 6;

pub(crate) fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("rows and leaves stay below 4 GiB: what a document may emit is limited")
}

pub(crate) fn range(start: u32, len: u32) -> Range<usize> {
    start as usize..start as usize + len as usize
}

impl Leaf {
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.bytes.len() + size_of_val(self.rows.as_slice())
    }

    pub(crate) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.rows.len() * ROW_OVERHEAD_BYTES
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.rows.clear();
    }

    /// The row must be greater than all others.
    pub(crate) fn push(&mut self, row: Row<'_>) {
        let row_key = narrow(self.bytes.len());
        self.bytes.extend_from_slice(row.row_key);
        let key = match self.rows.last() {
            Some(last) if self.bytes[range(last.key, last.key_len)] == *row.key => last.key,
            _ => {
                let key = narrow(self.bytes.len());
                self.bytes.extend_from_slice(row.key);
                key
            }
        };
        let value = narrow(self.bytes.len());
        self.bytes.extend_from_slice(row.value);
        self.rows.push(Slot {
            row_key,
            row_key_len: narrow(row.row_key.len()),
            sort_len: narrow(row.sort_len),
            key,
            key_len: narrow(row.key.len()),
            value,
            value_len: narrow(row.value.len()),
        });
    }

    pub(crate) fn row(&self, index: usize) -> Row<'_> {
        let slot = &self.rows[index];
        Row {
            row_key: &self.bytes[range(slot.row_key, slot.row_key_len)],
            sort_len: slot.sort_len as usize,
            key: &self.bytes[range(slot.key, slot.key_len)],
            value: &self.bytes[range(slot.value, slot.value_len)],
        }
    }

    pub(crate) fn rows(&self) -> impl DoubleEndedIterator<Item = Row<'_>> + ExactSizeIterator {
        (0..self.len()).map(|index| self.row(index))
    }

    pub(crate) fn rank(&self, bound: &[u8]) -> usize {
        self.rows.partition_point(|slot| self.bytes[range(slot.row_key, slot.row_key_len)] < *bound)
    }

    pub(crate) fn content_bytes(&self) -> u64 {
        let bytes = |slot: &Slot| slot.row_key_len - slot.sort_len + slot.key_len + slot.value_len;
        self.rows.iter().map(|slot| u64::from(bytes(slot))).sum()
    }

    pub(super) fn in_pieces(self, pieces: u32) -> Self {
        Self { pieces, ..self }
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.size_bytes());
        let mut before: Option<Row<'_>> = None;
        for row in self.rows() {
            // [`Self::push`] stores a repeated key once, so comparing addresses suffices.
            let same_key = before.is_some_and(|before| std::ptr::eq(before.key, row.key));
            let shared = common_len(before.map_or(&[], |before| before.row_key), row.row_key);
            encode_row(out, shared, row, same_key);
            before = Some(row);
        }
    }

    pub(crate) fn decode(encoded: &[u8]) -> Result<Self> {
        let mut leaf = Self {
            bytes: Vec::with_capacity(encoded.len() * 2),
            rows: Vec::with_capacity(encoded.len() / 32),
            pieces: 0,
        };
        let mut reader = Reader::new(encoded, LEAF);
        let mut last = Slot { row_key: 0, row_key_len: 0, sort_len: 0, key: 0, key_len: 0, value: 0, value_len: 0 };
        while !reader.is_at_end() {
            let head = reader.length()?;
            if head >> 1 > last.row_key_len as usize {
                return Err(ViewError::Corrupt(LEAF));
            }
            let shared = range(last.row_key, narrow(head >> 1));
            let row_key = narrow(leaf.bytes.len());
            leaf.bytes.extend_from_within(shared);
            leaf.bytes.extend_from_slice(reader.bytes()?);
            let row_key_len = narrow(leaf.bytes.len()) - row_key;
            let sort_len = narrow(reader.length()?);
            if sort_len > row_key_len {
                return Err(ViewError::Corrupt(LEAF));
            }
            let (mut key, mut key_len) = (last.key, last.key_len);
            if head & 1 == 0 {
                let text = reader.bytes()?;
                (key, key_len) = (narrow(leaf.bytes.len()), narrow(text.len()));
                leaf.bytes.extend_from_slice(text);
            }
            let text = reader.bytes()?;
            let (value, value_len) = (narrow(leaf.bytes.len()), narrow(text.len()));
            leaf.bytes.extend_from_slice(text);
            last = Slot { row_key, row_key_len, sort_len, key, key_len, value, value_len };
            leaf.rows.push(last);
        }
        Ok(leaf)
    }
}

/// `shared` is the length of the common prefix with the previous row key.
#[inline]
fn encode_row(out: &mut Vec<u8>, shared: usize, row: Row<'_>, same_key: bool) {
    put_len(out, shared << 1 | usize::from(same_key));
    put_bytes(out, &row.row_key[shared..]);
    put_len(out, row.sort_len);
    if !same_key {
        put_bytes(out, row.key);
    }
    put_bytes(out, row.value);
}

#[derive(Clone, Debug)]
pub(crate) struct Group<'a> {
    pub(crate) leaf: &'a Leaf,
    pub(crate) rows: Range<usize>,
}

impl<'a> Group<'a> {
    pub(crate) fn whole(leaf: &'a Leaf) -> Self {
        Self { leaf, rows: 0..leaf.len() }
    }

    pub(crate) fn rows(&self) -> impl ExactSizeIterator<Item = Row<'a>> + use<'a> {
        let leaf = self.leaf;
        self.rows.clone().map(move |index| leaf.row(index))
    }
}

/// A leaf in encoded form, for functions that need only values.
#[derive(Debug, Default)]
pub(crate) struct EncodedLeaf {
    encoded: Vec<u8>,
    values: Vec<(u32, u32)>,
    content_bytes: usize,
    size_bytes: usize,
    row_key: Vec<u8>,
    key: Vec<u8>,
}

impl EncodedLeaf {
    #[inline]
    pub(crate) fn push(&mut self, row: Row<'_>) {
        // Sort keys are compared first because that is cheaper. Masked loads from a dangling address are slow.
        let shared = common_len(&self.row_key, row.row_key);
        let is_same = || self.key.len() == row.key.len() && (row.key.is_empty() || self.key == row.key);
        let same_key = !self.is_empty() && shared >= row.sort_len && is_same();
        encode_row(&mut self.encoded, shared, row, same_key);
        let value_len = row.value.len();
        self.values.push((narrow(self.encoded.len() - value_len), narrow(value_len)));
        self.size_bytes += row.row_key.len() + row.value.len() + ROW_OVERHEAD_BYTES;
        if !same_key {
            self.size_bytes += row.key.len();
            self.key.clear();
            self.key.extend_from_slice(row.key);
        }
        self.row_key.truncate(shared);
        self.row_key.extend_from_slice(&row.row_key[shared..]);
        self.content_bytes += row.content_bytes();
    }

    pub(crate) fn encoded(&self) -> &[u8] {
        &self.encoded
    }

    pub(crate) fn last_row_key(&self) -> &[u8] {
        &self.row_key
    }

    pub(crate) fn len(&self) -> usize {
        self.values.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub(crate) fn value(&self, index: usize) -> &[u8] {
        let (start, len) = self.values[index];
        &self.encoded[range(start, len)]
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.size_bytes
    }

    pub(crate) fn content_bytes(&self) -> usize {
        self.content_bytes
    }

    pub(crate) fn clear(&mut self) {
        self.encoded.clear();
        self.values.clear();
        self.row_key.clear();
        self.key.clear();
        (self.content_bytes, self.size_bytes) = (0, 0);
    }
}

#[inline]
pub(crate) fn common_len(a: &[u8], b: &[u8]) -> usize {
    let len = a.len().min(b.len());
    let differing = |at: usize| Some(word_at(&a[..len], at)? ^ word_at(&b[..len], at)?);
    let first = |differing: u64| (differing.trailing_zeros() / u8::BITS) as usize;
    let mut at = 0;
    while let Some(bits) = differing(at) {
        if bits != 0 {
            return at + first(bits);
        }
        at += size_of::<u64>();
    }
    // The last word overlaps bytes that were compared, if the keys have at least eight bytes.
    match len.checked_sub(size_of::<u64>()).and_then(|last| Some((last, differing(last)?))) {
        Some((_, 0)) => len,
        Some((last, bits)) => last + first(bits),
        None => a.iter().zip(b).take_while(|(a, b)| a == b).count(),
    }
}

#[inline]
fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn row<'a>(row_key: &'a [u8], key: &'a [u8], value: &'a [u8]) -> Row<'a> {
        Row { row_key, sort_len: 1, key, value }
    }

    #[test]
    fn common_beginnings_are_measured_in_words_and_bytes() {
        for len in 0..40 {
            let key: Vec<u8> = (0..len).collect();
            assert_eq!(common_len(&key, &key), key.len());
            for at in 0..key.len() {
                let mut other = key.clone();
                other[at] ^= 0x80;
                assert_eq!((common_len(&key, &other), common_len(&other[at..], &key[at..])), (at, 0));
                assert_eq!((common_len(&key[..at], &key), common_len(&key, &key[..at])), (at, at));
            }
        }
    }

    #[test]
    fn leaves_come_back() {
        let rows = [row(b"aa", b"1", b"x"), row(b"ab", b"1", b""), row(b"abc", b"2", b"yy"), row(b"b", b"", b"1")];
        let mut leaf = Leaf::default();
        rows.iter().for_each(|&row| leaf.push(row));
        let mut encoded = Vec::new();
        leaf.encode(&mut encoded);
        let mut at_once = EncodedLeaf::default();
        for _ in 0..2 {
            rows.iter().for_each(|&row| at_once.push(row));
            let sizes = (at_once.len(), at_once.size_bytes(), at_once.content_bytes());
            assert_eq!(sizes, (rows.len(), leaf.size_bytes(), leaf.content_bytes() as usize));
            assert_eq!((at_once.encoded(), at_once.last_row_key()), (&encoded[..], &b"b"[..]));
            at_once.clear();
        }
        let decoded = Leaf::decode(&encoded).unwrap();
        assert!(decoded.rows().eq(rows));
        assert_eq!(decoded.size_bytes(), leaf.size_bytes());
        assert_eq!(decoded.content_bytes(), 3 + 2 + 5 + 1);
        let rank = |bound: &[u8]| decoded.rank(bound);
        assert_eq!([rank(b""), rank(b"ab"), rank(b"abb"), rank(b"b"), rank(b"c")], [0, 1, 2, 3, 4]);
        for len in 0..encoded.len() {
            assert!(Leaf::decode(&encoded[..len]).map_or(true, |leaf| leaf.len() < 4));
        }
    }
}
