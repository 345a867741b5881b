//! [`Inner`]: inner nodes with the records of their children. Encoding: number of reductions per child; then for each
//! child: separator, node id, rows, bytes, reductions. A separator is as short as possible.

use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};

use crate::error::{Result, ViewError};
use crate::leaf::{common_len, narrow, range};

const INNER: &str = "inner node";

/// Returns the shortest prefix of `first` that is greater than `last`, which must be less than `first`.
pub(crate) fn separator<'a>(last: &[u8], first: &'a [u8]) -> &'a [u8] {
    &first[..first.len().min(common_len(last, first) + 1)]
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Child {
    /// Not greater than the rows below, greater than those of the previous child.
    pub(crate) separator: Vec<u8>,
    pub(crate) id: u64,
    pub(crate) rows: u64,
    pub(crate) bytes: u64,
    pub(crate) reductions: Vec<Vec<u8>>,
}

impl Child {
    pub(crate) fn size_bytes(&self) -> usize {
        16 + self.separator.len() + self.reductions.iter().map(|reduction| reduction.len() + 1).sum::<usize>()
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Inner {
    bytes: Vec<u8>,
    children: Vec<ChildSlot>,
    reductions: Vec<(u32, u32)>,
    aggregates: usize,
    pub(super) pieces: u32,
}

#[derive(Clone, Copy, Debug)]
struct ChildSlot {
    separator: (u32, u32),
    id: u64,
    rows: u64,
    bytes: u64,
}

impl Inner {
    pub(crate) fn encode<'a>(children: impl Iterator<Item = &'a Child>, aggregates: usize, out: &mut Vec<u8>) {
        put_len(out, aggregates);
        for child in children {
            put_bytes(out, &child.separator);
            put_varint(out, child.id);
            put_varint(out, child.rows);
            put_varint(out, child.bytes);
            child.reductions.iter().for_each(|reduction| put_bytes(out, reduction));
        }
    }

    pub(crate) fn decode(bytes: Vec<u8>) -> Result<Self> {
        let mut node = Self::default();
        let mut reader = Reader::new(&bytes, INNER);
        node.aggregates = reader.length()?;
        while !reader.is_at_end() {
            let separator = slice(&mut reader)?;
            node.children.push(ChildSlot {
                separator,
                id: reader.varint()?,
                rows: reader.varint()?,
                bytes: reader.varint()?,
            });
            for _ in 0..node.aggregates {
                node.reductions.push(slice(&mut reader)?);
            }
        }
        node.bytes = bytes;
        if node.children.is_empty() { Err(ViewError::Corrupt(INNER)) } else { Ok(node) }
    }

    pub(super) fn in_pieces(self, pieces: u32) -> Self {
        Self { pieces, ..self }
    }

    pub(crate) fn len(&self) -> usize {
        self.children.len()
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        let slots = size_of_val(self.children.as_slice()) + size_of_val(self.reductions.as_slice());
        size_of::<Self>() + self.bytes.len() + slots
    }

    pub(crate) fn separator(&self, child: usize) -> &[u8] {
        let (start, len) = self.children[child].separator;
        &self.bytes[range(start, len)]
    }

    pub(crate) fn id(&self, child: usize) -> u64 {
        self.children[child].id
    }

    pub(crate) fn rows(&self, child: usize) -> u64 {
        self.children[child].rows
    }

    pub(crate) fn content_bytes(&self, child: usize) -> u64 {
        self.children[child].bytes
    }

    pub(crate) fn reduction(&self, child: usize, aggregate: usize) -> &[u8] {
        let (start, len) = self.reductions[child * self.aggregates + aggregate];
        &self.bytes[range(start, len)]
    }

    pub(crate) fn position(&self, row_key: &[u8]) -> usize {
        let (mut low, mut high) = (1, self.len());
        while low < high {
            let middle = usize::midpoint(low, high);
            if self.separator(middle) <= row_key {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low - 1
    }

    pub(crate) fn child(&self, child: usize) -> Child {
        let slot = &self.children[child];
        Child {
            separator: self.separator(child).to_vec(),
            id: slot.id,
            rows: slot.rows,
            bytes: slot.bytes,
            reductions: (0..self.aggregates).map(|aggregate| self.reduction(child, aggregate).to_vec()).collect(),
        }
    }

    pub(crate) fn children(&self) -> impl Iterator<Item = Child> {
        (0..self.len()).map(|child| self.child(child))
    }
}

fn slice(reader: &mut Reader<'_>) -> Result<(u32, u32)> {
    let len = reader.bytes()?.len();
    Ok((narrow(reader.position() - len), narrow(len)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn inner_nodes_come_back() {
        let child = |separator: &[u8], id| Child {
            separator: separator.to_vec(),
            id,
            rows: id * 2,
            bytes: id * 1000,
            reductions: vec![vec![1; 3], vec![]],
        };
        let children = [child(b"", 7), child(b"b", 8), child(b"bb", 9)];
        let mut encoded = Vec::new();
        Inner::encode(children.iter(), 2, &mut encoded);
        let inner = Inner::decode(encoded).unwrap();
        assert!(inner.children().eq(children));
        let position = |key: &[u8]| inner.position(key);
        assert_eq!(
            [position(b""), position(b"az"), position(b"b"), position(b"ba"), position(b"bb"), position(b"z")],
            [0, 0, 1, 1, 2, 2]
        );
        assert!(Inner::decode(vec![0]).is_err());
    }

    #[test]
    fn separators_are_short() {
        let check = |last: &[u8], first: &[u8], expected: &[u8]| {
            assert_eq!(separator(last, first), expected);
            assert!(last < separator(last, first) && separator(last, first) <= first);
        };
        check(b"", b"abc", b"a");
        check(b"abb", b"abc", b"abc");
        check(b"ab", b"abcd", b"abc");
        check(b"0123456789", b"0123456799", b"012345679");
        check(b"01234567", b"0123456789", b"012345678");
    }
}
