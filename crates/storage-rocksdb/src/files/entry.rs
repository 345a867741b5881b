//! [`Entry`]: what files of the store hold under a key.

/// One version of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The key as it was given to the store.
    pub(super) key: Vec<u8>,
    /// Which write it was; the greatest one of a key counts.
    pub(super) seq: u64,
    pub(super) kind: Kind,
    /// The value; where it is, for a blob; where a range ends, for the deletion of one.
    pub(super) value: Vec<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Value,
    Blob,
    Deletion,
    RangeDeletion,
}

/// Takes the key of a file apart: the key itself, the number of the write, and its kind.
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
