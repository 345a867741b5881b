//! [`Entry`]: an entry in a file of the store.

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) key: Vec<u8>,
    pub(super) seq: u64,
    pub(super) kind: Kind,
    /// For a blob its position, for a range deletion the end of the range.
    pub(super) value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Value,
    Blob,
    Deletion,
    RangeDeletion,
}

pub(super) fn split_key(internal: &[u8]) -> Option<(&[u8], u64, Kind)> {
    let (key, footer) = internal.split_last_chunk::<8>()?;
    let footer = u64::from_le_bytes(*footer);
    let kind = match footer & 0xff {
        0x0 | 0x7 => Kind::Deletion,
        0x1 => Kind::Value,
        0xf => Kind::RangeDeletion,
        0x11 => Kind::Blob,
        _ => return None,
    };
    Some((key, footer >> 8, kind))
}
