//! Long records of documents are stored in pieces: [`put`] writes them, [`whole`] reads them. The first piece is stored
//! under the document's key and starts like an undivided record, so a reader of the winning revision needs only this
//! piece. It ends with the length of the whole record. The other pieces are entries of the shard's catalog.

use std::borrow::Cow;

use settee_storage::{Batch, Keyspace, Snapshot};

use crate::record::IN_PIECES;
use crate::{DatabaseError, Result, keys};

const PIECE_BYTES: usize = if cfg!(test) { 150 } else { 64 << 10 };

const PIECES_TOGETHER: usize = 16;

const CORRUPT: DatabaseError = DatabaseError::Corrupt("document record");

/// Puts `record` under `id`, or inserts it if `id` has no record. Its first `head_bytes` can be read from the first
/// piece alone. `before` is the previous number of further pieces. The contents of `record` are undefined afterwards.
pub(crate) fn put(
    batch: &mut Batch,
    (id, was_there): (&[u8], bool),
    record: &mut Vec<u8>,
    head_bytes: usize,
    before: usize,
) {
    let (length, first_bytes) = (record.len(), PIECE_BYTES.max(head_bytes));
    let mut count = 0;
    if length > first_bytes {
        for piece in record[first_bytes..].chunks(PIECE_BYTES) {
            batch.put(Keyspace::Catalog, &keys::piece(id, count), piece);
            count += 1;
        }
        record.truncate(first_bytes);
        record[0] |= IN_PIECES;
        record.extend_from_slice(&(length as u64).to_be_bytes());
    }
    if was_there {
        batch.put(Keyspace::Documents, id, record);
    } else {
        batch.insert(Keyspace::Documents, id, record);
    }
    delete(batch, id, count as usize, before);
}

pub(crate) fn delete(batch: &mut Batch, id: &[u8], from: usize, to: usize) {
    for number in from..to {
        batch.delete(Keyspace::Catalog, &keys::piece(id, number as u32));
    }
}

pub(crate) fn count(stored: &[u8]) -> Result<usize> {
    Ok(length(stored)?.map_or(0, |(first, length)| (length - first.len()).div_ceil(PIECE_BYTES)))
}

pub(crate) fn whole<'a>(snapshot: &dyn Snapshot, id: &[u8], stored: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    let Some((first, length)) = length(stored)? else { return Ok(Cow::Borrowed(stored)) };
    let mut record = first.to_vec();
    record[0] &= !IN_PIECES;
    let numbers: Vec<u32> = (0..count(stored)? as u32).collect();
    for numbers in numbers.chunks(PIECES_TOGETHER) {
        let wanted: Vec<Vec<u8>> = numbers.iter().map(|number| keys::piece(id, *number)).collect();
        let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
        for piece in snapshot.multi_get(Keyspace::Catalog, &wanted)? {
            record.extend_from_slice(&piece.ok_or(CORRUPT)?);
        }
    }
    if record.len() == length { Ok(Cow::Owned(record)) } else { Err(CORRUPT) }
}

/// Returns `None` if the record is not divided.
fn length(stored: &[u8]) -> Result<Option<(&[u8], usize)>> {
    if stored.first().is_none_or(|flags| flags & IN_PIECES == 0) {
        return Ok(None);
    }
    let (first, length) = stored.split_last_chunk().ok_or(CORRUPT)?;
    let length = usize::try_from(u64::from_be_bytes(*length)).map_err(|_| CORRUPT)?;
    let is_possible = !first.is_empty() && length > first.len() && length < PIECE_BYTES * u32::MAX as usize;
    if is_possible { Ok(Some((first, length))) } else { Err(CORRUPT) }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_storage::{CommitToken, Direction, Durability, Expect, KeyRange, Shard, Version};
    use settee_storage_testing::engine;

    use super::*;

    #[test]
    fn records_come_back_in_any_length() {
        let engine = engine();
        let (id, mut before, mut is_there) = (b"id".as_slice(), 0, false);
        let lengths = [1, 150, 151, 300, 301, 10_000, 100, 900, 0, 451];
        for (version, length) in (0..).zip(lengths) {
            let mut batch = Batch::new();
            let record: Vec<u8> = (0..length).map(|at| (at % 31) as u8).collect();
            match length {
                0 => {
                    batch.delete(Keyspace::Documents, id);
                    delete(&mut batch, id, 0, before);
                }
                _ => put(&mut batch, (id, is_there), &mut record.clone(), 20, before),
            }
            assert!(batch.longest_value() <= PIECE_BYTES + 8);
            is_there = length > 0;
            let durability = Durability::Synced;
            let _ = engine.commit(Shard(1), Version(version), CommitToken(1), batch, durability).unwrap();
            let snapshot = engine.snapshot(Shard(1)).unwrap();
            let stored = snapshot.get(Keyspace::Documents, id).unwrap().unwrap_or_default();
            assert_eq!(*whole(&*snapshot, id, &stored).unwrap(), *record, "{length} bytes");
            before = count(&stored).unwrap();
            let all = KeyRange::default();
            let entries = |space| {
                let mut entries = snapshot.scan(space, all, Direction::Forward, Expect::All).unwrap();
                std::iter::from_fn(|| entries.next().unwrap().map(drop)).count()
            };
            let count: usize = Keyspace::ALL.into_iter().map(entries).sum();
            assert_eq!(count, if length == 0 { 0 } else { 1 + before }, "{length} bytes");
        }
    }

    #[test]
    fn missing_documents_are_detected() {
        let mut batch = Batch::new();
        put(&mut batch, (b"id", false), &mut vec![1; 1000], 20, 0);
        let settee_storage::Operation::Insert(_, _, stored) = batch.operations().last().unwrap() else {
            panic!("an insert")
        };
        let empty = engine().snapshot(Shard(1)).unwrap();
        for stored in [stored, &stored[..5], &[IN_PIECES], &[IN_PIECES; 9], &[IN_PIECES | 0x80; 100]] {
            assert!(whole(&*empty, b"id", stored).is_err(), "{stored:?}");
        }
    }
}
