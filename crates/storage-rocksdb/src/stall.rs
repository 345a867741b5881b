//! Flushes and compactions that cannot block indefinitely. RocksDB retries a compaction that failed for lack of space
//! only when the size of its whole input is free, until the store is opened again. Until then files accumulate in the
//! first level; a flush then waits for a compaction, and a compaction for its flush. A deletion must therefore request
//! neither in this state, and [`has_failed`] reports that the store must be opened again.

use rocksdb::{ColumnFamily, CompactOptions, FlushOptions};
use settee_storage::{Keyspace, Shard};

use crate::damage::Damage;
use crate::{Database, column, keys, state_column};

/// RocksDB slows writers from twenty files on. The limit is lower because several flushes may be in progress.
const LEVEL_ZERO_FILES_MAX: u64 = 16;

/// Flushes the memtables of all keyspaces except crowded ones. Errors are ignored, because the log contains the writes.
pub(crate) fn flush(database: &Database, waits: bool) {
    let mut options = FlushOptions::default();
    options.set_wait(waits);
    let columns = Keyspace::ALL.iter().map(|space| column(database, *space)).chain([state_column(database)]);
    let columns: Vec<_> = columns.filter(|column| !has_many_level_zero_files(database, column)).collect();
    let _ = database.flush_cfs_opt(&columns, &options);
}

/// Does nothing if the keyspace is crowded, or if a damaged file of it must not be read.
pub(crate) fn compact(database: &Database, damage: &Damage, space: Keyspace, shard: Shard) {
    let column = column(database, space);
    if has_many_level_zero_files(database, column) || damage.is_compaction_disabled(space) {
        return;
    }
    let mut options = CompactOptions::default();
    // Automatic compactions run concurrently.
    options.set_exclusive_manual_compaction(false);
    let (start, end) = (keys::prefix(shard), keys::end(shard));
    database.compact_range_cf_opt(column, Some(start), Some(end), &options);
}

pub(crate) fn has_failed(database: &Database) -> bool {
    database.property_int_value("rocksdb.background-errors").ok().flatten().is_some_and(|errors| errors > 0)
}

fn has_many_level_zero_files(database: &Database, column: &ColumnFamily) -> bool {
    let files = database.property_value_cf(column, "rocksdb.num-files-at-level0").ok().flatten();
    files.and_then(|files| files.parse().ok()).is_some_and(|files: u64| files >= LEVEL_ZERO_FILES_MAX)
}
