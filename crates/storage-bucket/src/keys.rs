//! Encoding of stored keys: a tag, the shard's number, the keyspace, then the key. The entries of a shard are adjacent,
//! and the key of its state precedes them.

use settee_storage::{KeyRange, Keyspace, Shard};

/// Tag of states and entries.
const DATA: u8 = b'd';

/// Tag of the dropped shards whose entries are not removed yet.
const CLEARING: u8 = b'c';

/// Number in the position of the keyspace; those of keyspaces follow it.
const STATE: u8 = 0;

/// Length of the bytes before the key of an entry.
pub(crate) const PREFIX: usize = 10;

fn prefix(shard: Shard, section: u8) -> [u8; PREFIX] {
    let mut prefix = [DATA; PREFIX];
    prefix[1..PREFIX - 1].copy_from_slice(&shard.0.to_be_bytes());
    prefix[PREFIX - 1] = section;
    prefix
}

fn section(space: Keyspace) -> u8 {
    space as u8 + STATE + 1
}

pub(crate) fn state(shard: Shard) -> [u8; PREFIX] {
    prefix(shard, STATE)
}

pub(crate) fn entry(shard: Shard, space: Keyspace, key: &[u8]) -> Vec<u8> {
    let mut stored = Vec::with_capacity(PREFIX + key.len());
    stored.extend_from_slice(&prefix(shard, section(space)));
    stored.extend_from_slice(key);
    stored
}

/// Returns the inclusive start and the exclusive end of a range of entries.
pub(crate) fn bounds(shard: Shard, space: Keyspace, range: KeyRange<'_>) -> (Vec<u8>, Vec<u8>) {
    let start = entry(shard, space, range.start.unwrap_or_default());
    let end = range.end.map_or_else(|| prefix(shard, section(space) + 1).to_vec(), |key| entry(shard, space, key));
    (start, end)
}

/// Returns the inclusive start and the exclusive end of all entries of a shard, without its state.
pub(crate) fn all(shard: Shard) -> (Vec<u8>, Vec<u8>) {
    (prefix(shard, STATE + 1).to_vec(), prefix(shard, u8::MAX).to_vec())
}

pub(crate) fn clearing(shard: Shard) -> Vec<u8> {
    let mut key = vec![CLEARING];
    key.extend_from_slice(&shard.0.to_be_bytes());
    key
}

pub(crate) fn all_clearing() -> (Vec<u8>, Vec<u8>) {
    (vec![CLEARING], vec![CLEARING + 1])
}

pub(crate) fn clearing_shard(key: &[u8]) -> Option<Shard> {
    let number = key.strip_prefix(&[CLEARING])?;
    Some(Shard(u64::from_be_bytes(number.try_into().ok()?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_of_a_shard_are_adjacent() {
        let shards = [Shard(0), Shard(1), Shard(0xff), Shard(0x100), Shard(u64::MAX)];
        let mut keys = Vec::new();
        for shard in shards {
            keys.push(state(shard).to_vec());
            for space in Keyspace::ALL {
                let (start, end) = bounds(shard, space, KeyRange::default());
                for key in [&b""[..], b"\0", b"a", &[0xff; 40]] {
                    let stored = entry(shard, space, key);
                    assert!((&start..&end).contains(&&stored), "{shard:?} {space:?} {key:?}");
                    assert_eq!(&stored[PREFIX..], key);
                    keys.push(stored);
                }
                let (first, last) = all(shard);
                assert!(first <= start && end <= last, "{shard:?} {space:?}");
            }
        }
        assert!(keys.is_sorted(), "states and entries are in the order of shards, keyspaces and keys");
    }

    #[test]
    fn the_shard_of_a_marker_is_decoded() {
        for shard in [Shard(0), Shard(7), Shard(u64::MAX)] {
            let (start, end) = all_clearing();
            assert!((start..end).contains(&clearing(shard)));
            assert_eq!(clearing_shard(&clearing(shard)), Some(shard));
        }
        assert_eq!(clearing_shard(&state(Shard(1))), None);
    }
}
