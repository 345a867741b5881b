//! [`Write`]: what a record of the log of writes holds.

use super::bytes::Bytes;
use super::entry::{Entry, Kind};

/// One write: the number of its column family, and an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Write {
    pub(super) column: u32,
    pub(super) entry: Entry,
}

/// A record of the log: the writes of commits that were synced together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Writes {
    /// The sequence number of the first one.
    pub(super) first: u64,
    /// The sequence number of the first write of the next record.
    pub(super) end: u64,
    pub(super) writes: Vec<Write>,
}

impl Writes {
    /// `None`: the record holds something that is not written here.
    pub(super) fn decode(record: &[u8]) -> Option<Self> {
        let mut bytes = Bytes(record);
        let first = bytes.fixed64()?;
        let count = bytes.fixed32()?;
        let (mut seq, mut writes) = (first, Vec::with_capacity(count.min(1 << 16) as usize));
        while !bytes.is_empty() {
            let tag = bytes.byte()?;
            let column = match tag {
                0x4 | 0x5 | 0x8 | 0xe => u32::try_from(bytes.varint()?).ok()?,
                _ => 0,
            };
            let kind = match tag {
                0x0 | 0x4 => Kind::Deletion,
                0x1 | 0x5 => Kind::Value,
                0x7 | 0x8 => Kind::Deletion,
                0xe | 0xf => Kind::RangeDeletion,
                // A remark, which is no write.
                0x3 => {
                    bytes.prefixed()?;
                    continue;
                }
                0xd => continue,
                _ => return None,
            };
            let key = bytes.prefixed()?.to_vec();
            let value = match kind {
                Kind::Value | Kind::RangeDeletion => bytes.prefixed()?.to_vec(),
                Kind::Deletion | Kind::Blob => Vec::new(),
            };
            writes.push(Write { column, entry: Entry { key, seq, kind, value } });
            seq += 1;
        }
        (seq - first == u64::from(count)).then_some(Self { first, end: seq, writes })
    }
}
