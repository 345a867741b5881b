//! Removal of all entries of a shard: [`hide`] deletes them, and [`give_back`] removes their files when no snapshot
//! reads them any more.
//!
//! Every read of a keyspace processes all range deletions in the memtable, regardless of its range, and sorts them if
//! there is a new one: after a thousand dropped shards of six entries, reads of another shard took 0.74 ms instead of
//! 0.04 ms (range deletions in files, which are sorted, cost almost nothing). RocksDB's counters of skipped keys do
//! not show this, because no key is skipped in either case. A test compares both ways. So a small number of entries
//! is deleted one by one, without an effect on reads of other shards; range deletions for many entries are compacted
//! soon.

use rocksdb::{ReadOptions, WriteBatch};
use settee_storage::{Keyspace, Shard};

use crate::error::translate;
use crate::isolate::is_damage;
use crate::shards::Stored;
use crate::{Database, column, durable, keys, size, stall, state_column};

/// Maximum number of entries of a keyspace that are deleted one by one, and maximum size of the data read to find
/// them.
const FEW_ENTRIES: usize = 2_000;
const FEW_BYTES: usize = 1 << 20;

/// A shard whose entries are deleted.
pub(crate) struct Hidden {
    shard: Shard,
    ranges: Vec<Keyspace>,
}

/// Deletes all entries of a shard, stores `state`, and syncs. `batch` must contain no writes.
pub(crate) fn hide(
    database: &Database,
    shard: Shard,
    state: &Stored,
    mut batch: WriteBatch,
) -> Result<Hidden, rocksdb::Error> {
    let mut hidden = Hidden { shard, ranges: Vec::new() };
    for space in Keyspace::ALL {
        if delete(&mut batch, database, shard, space)? {
            hidden.ranges.push(space);
        }
    }
    batch.put_cf(state_column(database), keys::prefix(shard), state.encode());
    database.write_opt(batch, &durable())?;
    Ok(hidden)
}

/// Deletes the entries of a shard in a keyspace. Returns true if a range deletion was used, which is also the case
/// for entries that cannot be read.
fn delete(batch: &mut WriteBatch, database: &Database, shard: Shard, space: Keyspace) -> Result<bool, rocksdb::Error> {
    let (column, start, end) = (column(database, space), keys::prefix(shard), keys::end(shard));
    let mut reads = ReadOptions::default();
    reads.set_iterate_lower_bound(start.as_slice());
    reads.set_iterate_upper_bound(end.as_slice());
    reads.set_total_order_seek(true);
    reads.fill_cache(false);
    let mut entries = database.raw_iterator_cf_opt(column, reads);
    let (mut found, mut bytes) = (Vec::new(), 0);
    entries.seek_to_first();
    while let Some((key, value)) = entries.item() {
        if found.len() == FEW_ENTRIES || bytes > FEW_BYTES {
            batch.delete_range_cf(column, start.as_slice(), end.as_slice());
            return Ok(true);
        }
        bytes += key.len() + value.len();
        found.push(key.to_vec());
        entries.next();
    }
    match entries.status() {
        Err(error) if is_damage(&translate(error.clone())) => {
            batch.delete_range_cf(column, start.as_slice(), end.as_slice());
            return Ok(true);
        }
        status => status?,
    }
    found.iter().for_each(|key| batch.delete_cf(column, key));
    Ok(false)
}

/// Minimum size of the remaining files of a shard for a compaction.
const WORTH_COMPACTING_BYTES: u64 = 4 << 20;

/// Removes the files that contain only the shard, and compacts the rest if it is large: the newest files, those at
/// the boundaries, and blobs, which are kept while any file refers to them. Smaller rests are left to automatic
/// compactions. Errors are ignored, because remaining files only waste space.
pub(crate) fn give_back(database: &Database, hidden: Hidden) {
    let Hidden { shard, mut ranges } = hidden;
    let mut batch = WriteBatch::default();
    for space in Keyspace::ALL {
        let (start, last) = (keys::prefix(shard), keys::last(shard));
        let _ = database.delete_file_in_range_cf(column(database, space), start.as_slice(), last.as_slice());
        // A removed file may have contained the deletions of older entries in a remaining file.
        if delete(&mut batch, database, shard, space) == Ok(true) {
            ranges.push(space);
        }
    }
    if !batch.is_empty() {
        let _ = database.write_opt(batch, &durable());
    }
    for space in Keyspace::ALL {
        if size::in_files(database, shard, space) >= WORTH_COMPACTING_BYTES || ranges.contains(&space) {
            stall::compact(database, space, shard);
        }
    }
}
