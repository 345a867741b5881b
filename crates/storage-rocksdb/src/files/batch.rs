//! [`Write`]: the contents of a record of RocksDB's log.

use super::bytes::Bytes;
use super::entry::{Entry, Kind};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) column: u32,
    pub(super) entry: Entry,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    pub(super) first: u64,
    pub(super) end: u64,
    pub(super) writes: Vec<Write>,
}

enum Part<'a> {
    Write(u32, Kind, &'a [u8], &'a [u8]),
    Annotation(&'a [u8]),
    Mark,
}

fn head(bytes: &mut Bytes<'_>) -> Option<(u64, u32)> {
    Some((bytes.fixed64()?, bytes.fixed32()?))
}

fn part<'a>(bytes: &mut Bytes<'a>) -> Option<Part<'a>> {
    let tag = bytes.byte()?;
    let column = match tag {
        0x4 | 0x5 | 0x8 | 0xe => u32::try_from(bytes.varint()?).ok()?,
        _ => 0,
    };
    let kind = match tag {
        0x0 | 0x4 | 0x7 | 0x8 => Kind::Deletion,
        0x1 | 0x5 => Kind::Value,
        0xe | 0xf => Kind::RangeDeletion,
        0x3 => return Some(Part::Annotation(bytes.prefixed()?)),
        0xd => return Some(Part::Mark),
        _ => return None,
    };
    let key = bytes.prefixed()?;
    let value = match kind {
        Kind::Value | Kind::RangeDeletion => bytes.prefixed()?,
        Kind::Deletion | Kind::Blob => &[],
    };
    Some(Part::Write(column, kind, key, value))
}

/// Returns the number of writes of a record, and its log data; `None` for unknown elements.
pub(crate) fn annotations(record: &[u8]) -> Option<(u32, Vec<&[u8]>)> {
    let mut bytes = Bytes(record);
    let (_, count) = head(&mut bytes)?;
    let (mut found, mut annotations) = (0, Vec::new());
    while !bytes.is_empty() {
        match part(&mut bytes)? {
            Part::Write(..) => found += 1,
            Part::Annotation(annotation) => annotations.push(annotation),
            Part::Mark => {}
        }
    }
    (found == count).then_some((count, annotations))
}

impl Writes {
    pub(super) fn decode(record: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(record);
        let (first, count) = head(&mut bytes)?;
        let (mut seq, mut writes) = (first, Vec::with_capacity(count.min(1 << 16) as usize));
        while !bytes.is_empty() {
            if let Part::Write(column, kind, key, value) = part(&mut bytes)? {
                writes.push(Write { column, entry: Entry { key: key.to_vec(), seq, kind, value: value.to_vec() } });
                seq += 1;
            }
        }
        (seq - first == u64::from(count)).then_some(Self { first, end: seq, writes })
    }
}
