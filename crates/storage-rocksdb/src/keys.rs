//! Encoding of stored keys: the shard's number, big-endian, then the key.

use settee_storage::{KeyRange, Shard};

pub(crate) const PREFIX: usize = 8;

/// Engines must support keys of up to 10 kB.
const LONGEST_KEY: usize = 16 * 1024;

pub(crate) fn prefix(shard: Shard) -> [u8; PREFIX] {
    shard.0.to_be_bytes()
}

pub(crate) fn shard(stored: &[u8]) -> u64 {
    let mut bytes = [0; PREFIX];
    let length = stored.len().min(PREFIX);
    bytes[..length].copy_from_slice(&stored[..length]);
    u64::from_be_bytes(bytes)
}

pub(crate) fn write(buffer: &mut Vec<u8>, shard: Shard, key: &[u8]) {
    buffer.clear();
    buffer.extend_from_slice(&prefix(shard));
    buffer.extend_from_slice(key);
}

pub(crate) fn stored(shard: Shard, key: &[u8]) -> Vec<u8> {
    let mut buffer = Vec::with_capacity(PREFIX + key.len());
    write(&mut buffer, shard, key);
    buffer
}

/// Returns a stored key above all keys of the shard and not above those of the next.
pub(crate) fn end(shard: Shard) -> Vec<u8> {
    match shard.0.checked_add(1) {
        Some(next) => next.to_be_bytes().to_vec(),
        None => vec![0xff; PREFIX + LONGEST_KEY],
    }
}

/// Returns a stored key above practically all keys of the shard, for callers whose bound is inclusive.
pub(crate) fn last(shard: Shard) -> Vec<u8> {
    stored(shard, &[0xff; 64])
}

pub(crate) fn bounds(shard: Shard, range: KeyRange<'_>) -> (Vec<u8>, Vec<u8>) {
    let start = stored(shard, range.start.unwrap_or_default());
    let end = range.end.map_or_else(|| end(shard), |key| stored(shard, key));
    (start, end)
}
