//! Flushes and compactions that do not wait for ever.
//!
//! A compaction that finds no room is tried again by RocksDB, but from then on only when as much is free as all that it reads takes, even
//! if nearly all of that was deleted: it starts over only when the store is opened again. Until then files pile up in the first level, and
//! from some number on a flush waits for a compaction, and a compaction of a range for its flush. So who makes room must not ask for either
//! then, and [`has_given_up`] tells that the store is to be opened again.

use rocksdb::{ColumnFamily, CompactOptions, FlushOptions};
use settee_storage::{Keyspace, Shard};

use crate::{Database, column, keys, state_column};

/// Writers are slowed down from twenty files on, and a flush waits before it makes the twentieth. Some may be on their way.
const CROWDED_FILES: u64 = 16;

/// Flushes what is in memory of all keyspaces but the crowded ones; what cannot be flushed stays in the log. Blocks if `waits` says so.
pub(crate) fn flush(database: &Database, waits: bool) {
    let mut options = FlushOptions::default();
    options.set_wait(waits);
    let columns = Keyspace::ALL.iter().map(|space| column(database, *space)).chain([state_column(database)]);
    let columns: Vec<_> = columns.filter(|column| !is_crowded(database, column)).collect();
    let _ = database.flush_cfs_opt(&columns, &options);
}

/// Compacts a shard's part of a keyspace, unless that is crowded: it is compacted soon in any case.
pub(crate) fn compact(database: &Database, space: Keyspace, shard: Shard) {
    let column = column(database, space);
    if is_crowded(database, column) {
        return;
    }
    let mut options = CompactOptions::default();
    // Everyday compactions go on beside it.
    options.set_exclusive_manual_compaction(false);
    let (start, end) = (keys::prefix(shard), keys::end(shard));
    database.compact_range_cf_opt(column, Some(start), Some(end), &options);
}

/// Whether a flush or a compaction has failed since the store was opened.
pub(crate) fn has_given_up(database: &Database) -> bool {
    database.property_int_value("rocksdb.background-errors").ok().flatten().is_some_and(|errors| errors > 0)
}

fn is_crowded(database: &Database, column: &ColumnFamily) -> bool {
    let files = database.property_value_cf(column, "rocksdb.num-files-at-level0").ok().flatten();
    files.and_then(|files| files.parse().ok()).is_some_and(|files: u64| files >= CROWDED_FILES)
}
