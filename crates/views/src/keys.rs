//! Keys of an index and the order of its rows.
//!
//! The bytes of [`push_row_key`] order the rows: sort key (the collation encoding of the emitted key), document id,
//! number of the emission within the document:
//!
//! ```text
//! sort key | id bytes, 00 written as 00 ff | 00 | length of the number | number, big-endian without leading zeros
//! ```
//!
//! In a partitioned index the sort key starts with the partition, see [`push_partition`].
//!
//! The sort key is self-delimiting, an id in UTF-8 never contains `ff`, and the length is at most 4. Therefore
//! comparing bytes compares the parts.

use std::borrow::Cow;

/// Key of the [`Meta`](crate::index::Meta) in [`Keyspace::Catalog`](settee_storage::Keyspace::Catalog).
pub(crate) const META: &[u8] = b"index";

/// Key of the [`Checkpoint`](crate::index::Checkpoint) in the same keyspace.
pub(crate) const CHECKPOINT: &[u8] = b"checkpoint";

pub(crate) fn node(id: u64) -> [u8; 8] {
    id.to_be_bytes()
}

#[cfg(test)]
pub(crate) fn node_id(key: &[u8]) -> Option<u64> {
    key.try_into().ok().map(u64::from_be_bytes)
}

/// Key of changed back-pointers. Load 0 uses the id alone, which never starts with `ff`.
pub(crate) fn entry(load: u64, id: &[u8]) -> Vec<u8> {
    [&entry_prefix(load), id].concat()
}

/// Common prefix of the keys of a load, greater than all keys of earlier loads.
pub(crate) fn entry_prefix(load: u64) -> Vec<u8> {
    match load {
        0 => Vec::new(),
        _ => [&[AFTER_IDS][..], &load.to_be_bytes()].concat(),
    }
}

/// Exclusive upper bound of the keys of a load.
pub(crate) fn after_entries(load: u64) -> Vec<u8> {
    entry_prefix(load.saturating_add(1))
}

const END_OF_ID: u8 = 0;
const ESCAPED_NUL: [u8; 2] = [0, 0xff];
/// Greater than all lengths of numbers, less than the second byte of an escaped NUL.
const AFTER_NUMBERS: u8 = 5;
const AFTER_IDS: u8 = 0xff;

/// Appends the prefix of the sort keys of a partition: its bytes, escaped like an id, and an unambiguous end mark.
pub(crate) fn push_partition(out: &mut Vec<u8>, partition: &str) {
    push_id(out, partition.as_bytes());
    out.extend_from_slice(&[END_OF_ID, 0]);
}

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
    // Ids rarely contain NUL, so a fast search precedes the loop.
    while id.contains(&0)
        && let Some(nul) = id.iter().position(|&byte| byte == 0)
    {
        out.extend_from_slice(&id[..nul]);
        out.extend_from_slice(&ESCAPED_NUL);
        id = &id[nul + 1..];
    }
    out.extend_from_slice(id);
}

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

/// Smallest key of the rows of `sort_key` whose documents are not before `id`.
pub(crate) fn from_id(sort_key: &[u8], id: &str) -> Vec<u8> {
    let mut bound = sort_key.to_vec();
    push_id(&mut bound, id.as_bytes());
    bound
}

/// Bound after the rows of `sort_key` whose documents are not after `id`, and not after any other row.
pub(crate) fn after_id(sort_key: &[u8], id: &str) -> Vec<u8> {
    let mut bound = from_id(sort_key, id);
    bound.extend_from_slice(&[END_OF_ID, AFTER_NUMBERS]);
    bound
}

/// Bound after all rows with the prefix, a whole sort key or that of the first elements of an array.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut bound = prefix.to_vec();
    bound.push(AFTER_IDS);
    bound
}

pub(crate) fn finish_row_key(out: &mut Vec<u8>, id: &[u8], number: u32) {
    push_document(out, id);
    push_emission(out, number);
}

/// Appends the part of the key after the sort key that all rows of a document have in common.
pub(crate) fn push_document(out: &mut Vec<u8>, id: &[u8]) {
    push_id(out, id);
    out.push(END_OF_ID);
}

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
