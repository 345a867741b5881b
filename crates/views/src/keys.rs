//! Key bytes of an index, and the order of its rows.
//!
//! The rows of an index are ordered by [`push_row_key`]'s bytes: sort key (the collation encoding of the emitted key),
//! then document id, then the number of the emission among those of its document:
//!
//! ```text
//! sort key | id bytes, 00 written as 00 ff | 00 | length of the number | number, big-endian without leading zeros
//! ```
//!
//! In a partitioned index the sort key starts with the partition, see [`push_partition`].
//!
//! The sort key is self-delimiting, an id in UTF-8 never contains `ff`, and the length is at most 4, so comparing the
//! bytes compares the parts.

use std::borrow::Cow;

/// Key of the record that describes an index, in [`Keyspace::Catalog`](settee_storage::Keyspace::Catalog).
pub(crate) const META: &[u8] = b"index";

/// Key of the checkpoint of an index that is being loaded, in the same keyspace.
pub(crate) const CHECKPOINT: &[u8] = b"checkpoint";

/// Returns the key of a node in [`Keyspace::IndexNodes`](settee_storage::Keyspace::IndexNodes).
pub(crate) fn node(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

#[cfg(test)]
pub(crate) fn node_id(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// Returns the key of a document's back-pointers in [`Keyspace::IndexEntries`](settee_storage::Keyspace::IndexEntries)
/// that changed since the load with this number. Load 0 uses ids alone, which never start with `ff`.
pub(crate) fn entry(load: u64, id: &[u8]) -> Vec<u8> {
    [&entry_prefix(load), id].concat()
}

/// Returns the prefix of the keys of all entries since a load. It is greater than the keys of all earlier entries.
pub(crate) fn entry_prefix(load: u64) -> Vec<u8> {
    match load {
        0 => Vec::new(),
        _ => [&[AFTER_IDS][..], &load.to_be_bytes()].concat(),
    }
}

/// Returns a key that is greater than those of all entries since a load.
pub(crate) fn after_entries(load: u64) -> Vec<u8> {
    entry_prefix(load.saturating_add(1))
}

const END_OF_ID: u8 = 0;
const ESCAPED_NUL: [u8; 2] = [0, 0xff];
/// Greater than all lengths of numbers, less than the second byte of an escaped NUL.
const AFTER_NUMBERS: u8 = 5;
/// Greater than every byte of an id.
const AFTER_IDS: u8 = 0xff;

/// Appends the prefix of the sort keys of a partition: its bytes escaped like those of an id, and an unambiguous end
/// mark.
pub(crate) fn push_partition(out: &mut Vec<u8>, partition: &str) {
    push_id(out, partition.as_bytes());
    out.extend_from_slice(&[END_OF_ID, 0]);
}

/// Returns the length of the partition prefix of a sort key of a partitioned index.
pub(crate) fn partition_len(sort_key: &[u8]) -> usize {
    let mut at = 0;
    while let Some(nul) = sort_key[at..].iter().position(|&byte| byte == END_OF_ID) {
        at += nul + 2;
        if sort_key.get(at - 1) != Some(&ESCAPED_NUL[1]) {
            return at;
        }
    }
    sort_key.len()
}

pub(crate) fn push_row_key(out: &mut Vec<u8>, sort_key: &[u8], id: &[u8], number: u32) {
    out.extend_from_slice(sort_key);
    finish_row_key(out, id, number);
}

fn push_id(out: &mut Vec<u8>, mut id: &[u8]) {
    // Searched as a whole first, which is much faster than byte by byte, because ids rarely contain NUL.
    while id.contains(&0)
        && let Some(nul) = id.iter().position(|&byte| byte == 0)
    {
        out.extend_from_slice(&id[..nul]);
        out.extend_from_slice(&ESCAPED_NUL);
        id = &id[nul + 1..];
    }
    out.extend_from_slice(id);
}

/// Returns the document id in a row key with a sort key of `sort_len` bytes.
pub(crate) fn row_id(row_key: &[u8], sort_len: usize) -> Cow<'_, str> {
    let rest = &row_key[sort_len..];
    let nul = rest.iter().position(|&byte| byte == END_OF_ID).unwrap_or(rest.len());
    if rest.get(nul + 1) != Some(&ESCAPED_NUL[1]) {
        return String::from_utf8_lossy(&rest[..nul]);
    }
    let mut id = Vec::with_capacity(rest.len());
    let mut bytes = rest.iter();
    while let Some(&byte) = bytes.next() {
        if byte == END_OF_ID && bytes.next() != Some(&ESCAPED_NUL[1]) {
            break;
        }
        id.push(byte);
    }
    Cow::Owned(String::from_utf8_lossy(&id).into_owned())
}

/// Returns the smallest key of the rows of `sort_key` whose documents are not before `id`.
pub(crate) fn from_id(sort_key: &[u8], id: &str) -> Vec<u8> {
    let mut bound = sort_key.to_vec();
    push_id(&mut bound, id.as_bytes());
    bound
}

/// Returns a bound that is greater than the rows of `sort_key` whose documents are not after `id`, and not greater than
/// the others.
pub(crate) fn after_id(sort_key: &[u8], id: &str) -> Vec<u8> {
    let mut bound = from_id(sort_key, id);
    bound.extend_from_slice(&[END_OF_ID, AFTER_NUMBERS]);
    bound
}

/// Returns a bound that is greater than the rows with keys that start with `prefix`, and not greater than the others:
/// for a whole sort key, or for the first elements of an array. Elements start with a byte less than `ff`, as ids do.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut bound = prefix.to_vec();
    bound.push(AFTER_IDS);
    bound
}

/// Appends the rest of the key of a row after its sort key.
pub(crate) fn finish_row_key(out: &mut Vec<u8>, id: &[u8], number: u32) {
    push_document(out, id);
    push_emission(out, number);
}

/// Appends the common part of the keys of all rows of a document, which follows the sort key.
pub(crate) fn push_document(out: &mut Vec<u8>, id: &[u8]) {
    push_id(out, id);
    out.push(END_OF_ID);
}

/// Appends the number of the emission within its document, which ends the key.
#[inline]
pub(crate) fn push_emission(out: &mut Vec<u8>, number: u32) {
    if number == 0 {
        return out.push(0);
    }
    let number = number.to_be_bytes();
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    out.push(u8::try_from(number.len() - zeros).expect("at most four"));
    out.extend_from_slice(&number[zeros..]);
}

/// Appends the key of a document in the tree of back-pointers: that of a row without sort key.
pub(crate) fn push_document_key(out: &mut Vec<u8>, id: &[u8]) {
    finish_row_key(out, id, 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDS: [&str; 9] = ["", "\0", "\0\0", "a", "a\0", "a\0b", "a\u{1}", "aa", "\u{10ffff}"];
    const NUMBERS: [u32; 6] = [0, 1, 255, 256, 65_536, u32::MAX];

    fn row(sort_key: &[u8], id: &str, number: u32) -> Vec<u8> {
        let mut key = Vec::new();
        push_row_key(&mut key, sort_key, id.as_bytes(), number);
        key
    }

    #[test]
    fn rows_are_ordered_by_their_parts_and_give_back_their_ids() {
        let mut before: Option<Vec<u8>> = None;
        for sort_key in [&[3, 0][..], &[3, 1, 0], &[3, 1, 7, 0]] {
            for id in IDS {
                for number in NUMBERS {
                    let key = row(sort_key, id, number);
                    assert_eq!(row_id(&key, sort_key.len()), id);
                    assert!(before.as_ref().is_none_or(|before| *before < key), "{sort_key:?} {id:?} {number}");
                    before = Some(key);
                }
            }
        }
    }

    #[test]
    fn bounds_cut_exactly() {
        for cut in IDS {
            for id in IDS {
                for number in NUMBERS {
                    let key = row(&[7], id, number);
                    assert_eq!(key >= from_id(&[7], cut), id >= cut, "{id:?} from {cut:?}");
                    assert_eq!(key < after_id(&[7], cut), id <= cut, "{id:?} to {cut:?}");
                    assert!(key < after_prefix(&[7]) && key >= vec![7]);
                }
            }
        }
    }

    #[test]
    fn partitions_do_not_overlap() {
        let mut before: Option<Vec<u8>> = None;
        for partition in IDS {
            let mut prefix = Vec::new();
            push_partition(&mut prefix, partition);
            for sort_key in [&[1][..], &[0xfe], &[3, 0, 0]] {
                let key = row(&[&prefix[..], sort_key].concat(), "id", 1);
                assert_eq!(partition_len(&key), prefix.len());
                assert!(key >= prefix && key < after_prefix(&prefix));
            }
            assert!(before.is_none_or(|before| after_prefix(&before) <= prefix), "{partition:?}");
            before = Some(prefix);
        }
    }

    #[test]
    fn node_keys_are_ordered() {
        assert!(node(255) < node(256));
        assert_eq!(node_id(&node(77)), Some(77));
        assert_eq!(node_id(b"x"), None);
    }
}
