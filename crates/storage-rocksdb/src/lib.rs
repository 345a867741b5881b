//! [`RocksEngine`]: the embedded engine, on RocksDB.
//!
//! One store per server: shards are key prefixes and keyspaces column families, so that all commits share one log,
//! and commits that wait at the same time share one sync. It knows nothing of what the entries mean; what is tuned,
//! and why, is in [`options`].

mod clear;
mod epoch;
mod error;
pub mod files;
mod keys;
pub mod options;
pub mod raw;
mod shards;
mod size;
mod snapshot;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use rocksdb::checkpoint::Checkpoint;
use rocksdb::statistics::Ticker;
use rocksdb::{
    Cache, ColumnFamily, CompactOptions, DBWithThreadMode, SingleThreaded, WriteBatch, WriteBufferManager, WriteOptions,
};
use settee_storage::{
    Batch, CommitToken, Durability, Engine, Keyspace, Operation, Outcome, Result, Shard, ShardState, Snapshot,
    StorageError, Version,
};

use clear::hide;
use epoch::Epoch;
use error::translate;
use options::Tuned;
pub use options::{Options, Tickers};
use shards::{Slot, Slots, Stored};
use snapshot::RocksSnapshot;

/// Column families are made at opening only, and their handles cost no lock in this mode.
type Database = DBWithThreadMode<SingleThreaded>;

/// An engine on a directory that no other process may use at the same time.
pub struct RocksEngine {
    /// Before the database, which it holds as well.
    epoch: Mutex<Arc<Epoch>>,
    database: Arc<Database>,
    slots: Slots,
    /// Bytes given to the store since it was opened.
    written: AtomicU64,
    /// How many commits were answered when they were on disk.
    synced: AtomicU64,
    poisoned: OnceLock<String>,
    opened_with: rocksdb::Options,
    cache: Cache,
    buffers: WriteBufferManager,
}

impl RocksEngine {
    /// Opens the store in `path`, or makes one there.
    ///
    /// # Errors
    /// When the directory cannot be used, another process has it, or the store is damaged.
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        let tuned = Tuned::new(options);
        let database = Database::open_cf_descriptors(&tuned.database, path, tuned.columns).map_err(translate)?;
        Ok(Self::on(database, tuned.database, tuned.cache, tuned.buffers))
    }

    /// Opens the store in `path` to read it; nothing is written there, and every commit fails.
    ///
    /// # Errors
    /// When the directory cannot be read or the store is damaged.
    pub fn open_read_only(path: &Path, options: &Options) -> Result<Self> {
        let mut tuned = Tuned::new(options);
        tuned.database.create_if_missing(false);
        let database = Database::open_cf_descriptors_read_only(&tuned.database, path, tuned.columns, false);
        Ok(Self::on(database.map_err(translate)?, tuned.database, tuned.cache, tuned.buffers))
    }

    fn on(database: Database, opened_with: rocksdb::Options, cache: Cache, buffers: WriteBufferManager) -> Self {
        let database = Arc::new(database);
        Self {
            epoch: Mutex::new(Epoch::new(Arc::clone(&database))),
            database,
            slots: Slots::default(),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            poisoned: OnceLock::new(),
            opened_with,
            cache,
            buffers,
        }
    }

    /// How often the log was synced since the store was opened; 0 unless it was opened with [`Tickers::On`].
    #[must_use]
    pub fn wal_syncs(&self) -> u64 {
        self.opened_with.get_ticker_count(Ticker::WalFileSynced)
    }

    /// After a failed write or sync nobody knows what the log holds, and a later sync may claim success for pages
    /// that the system has given up. Only opening the store again, which reads the log, gives an answer.
    fn poison(&self, error: rocksdb::Error) -> StorageError {
        let error = translate(error);
        // A first reason stays.
        let _ = self.poisoned.set(error.to_string());
        error
    }

    fn load_state<'s>(&self, shard: Shard, slot: &'s mut Slot) -> Result<&'s mut Stored> {
        if slot.state.is_none() {
            slot.state = Some(self.read_state(shard)?);
        }
        Ok(slot.state.get_or_insert_default())
    }

    fn read_state(&self, shard: Shard) -> Result<Stored> {
        let bytes =
            self.database.get_pinned_cf(state_column(&self.database), keys::prefix(shard)).map_err(translate)?;
        Stored::decode(bytes.as_deref())
    }

    fn total(&self, property: &str) -> u64 {
        Keyspace::ALL.iter().map(|space| size::property(&self.database, *space, property)).sum()
    }
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine").field("path", &self.database.path()).finish_non_exhaustive()
    }
}

fn column(database: &Database, space: Keyspace) -> &ColumnFamily {
    database.cf_handle(space.name()).expect("the database was opened with all keyspaces")
}

fn state_column(database: &Database) -> &ColumnFamily {
    database.cf_handle(options::STATE).expect("the database was opened with it")
}

fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

impl Engine for RocksEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        // The epoch first: a shard that is dropped in between is kept too long, never too short.
        let epoch = Arc::clone(&self.epoch.lock());
        Ok(Arc::new(RocksSnapshot::new(Arc::clone(&self.database), epoch, shard)))
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        // Everything that can be done before the lock is taken.
        let mut writes = WriteBatch::with_capacity_bytes(batch.size_bytes() + 32 * (batch.len() + 1));
        let columns = Keyspace::ALL.map(|space| column(&self.database, space));
        let mut stored = Vec::new();
        for operation in batch.operations() {
            match operation {
                Operation::Put(space, key, value) | Operation::Insert(space, key, value) => {
                    keys::write(&mut stored, shard, key);
                    writes.put_cf(columns[space as usize], &stored, value);
                }
                Operation::Delete(space, key) => {
                    keys::write(&mut stored, shard, key);
                    writes.delete_cf(columns[space as usize], &stored);
                }
            }
        }
        let head = batch.head().map(<[u8]>::to_vec);
        drop(batch);
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Synced);

        let slot = self.slots.slot(shard);
        let mut slot = slot.lock();
        self.check()?;
        let current = self.load_state(shard, &mut slot)?;
        let Version(version) = current.state.version;
        if Version(version) != expected {
            return Ok(Outcome::Conflict(Version(version)));
        }
        let state = ShardState { version: Version(version + 1), token };
        let stored = Stored { state, head: head.or_else(|| current.head.clone()) };
        writes.put_cf(state_column(&self.database), keys::prefix(shard), stored.encode());
        let bytes = writes.size_in_bytes() as u64;
        // Writers that wait here form a group, and its leader syncs once for all.
        self.database.write_opt(writes, &options).map_err(|error| self.poison(error))?;
        self.synced.fetch_add(u64::from(durability == Durability::Synced), Ordering::Relaxed);
        slot.state = Some(stored);
        let total = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        slot.recent.wrote(total, bytes);
        Ok(Outcome::Committed(state.version))
    }

    fn check(&self) -> Result<()> {
        match self.poisoned.get() {
            Some(reason) => Err(StorageError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.check()?;
        let slot = self.slots.slot(shard);
        let mut slot = slot.lock();
        let hidden = hide(&self.database, shard).map_err(|error| self.poison(error))?;
        *slot = Slot { state: Some(Stored::default()), ..Slot::default() };
        self.slots.forget(shard);
        let ended = Epoch::end(&mut self.epoch.lock(), hidden);
        // Gives back the files now, if no snapshot is there.
        drop(ended);
        Ok(())
    }

    fn reclaim(&self, shard: Shard) -> Result<()> {
        self.check()?;
        let mut options = CompactOptions::default();
        // Everyday compactions go on beside it.
        options.set_exclusive_manual_compaction(false);
        for space in Keyspace::ALL {
            let (start, end) = (keys::prefix(shard), keys::end(shard));
            self.database.compact_range_cf_opt(column(&self.database, space), Some(start), Some(end), &options);
        }
        Ok(())
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        let files: u64 = Keyspace::ALL.iter().map(|space| size::in_files(&self.database, shard, *space)).sum();
        let buffered = self.slots.used(shard).map_or(0, |slot| {
            let total = self.written.load(Ordering::Relaxed);
            slot.lock().recent.within(total, self.total("rocksdb.cur-size-all-mem-tables"))
        });
        files + buffered
    }

    fn sync(&self) -> Result<()> {
        self.check()?;
        self.database.flush_wal(true).map_err(|error| self.poison(error))
    }

    fn checkpoint(&self, directory: &Path) -> Result<()> {
        let checkpoint = Checkpoint::new(&*self.database).map_err(translate)?;
        checkpoint.create_checkpoint(directory).map_err(translate)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        // The same in every column family.
        let whole = |property| size::property(&self.database, Keyspace::Catalog, property);
        vec![
            ("memtable_bytes", self.buffers.get_usage() as u64),
            ("block_cache_bytes", self.cache.get_usage() as u64),
            ("block_cache_pinned_bytes", self.cache.get_pinned_usage() as u64),
            ("table_reader_bytes", self.total("rocksdb.estimate-table-readers-mem")),
            ("sorted_file_bytes", self.total("rocksdb.total-sst-files-size")),
            ("blob_file_bytes", self.total("rocksdb.total-blob-file-size")),
            ("blob_garbage_bytes", self.total("rocksdb.live-blob-file-garbage-size")),
            ("pending_compaction_bytes", self.total("rocksdb.estimate-pending-compaction-bytes")),
            ("running_compactions", whole("rocksdb.num-running-compactions")),
            ("running_flushes", whole("rocksdb.num-running-flushes")),
            ("delayed_write_bytes_per_s", whole("rocksdb.actual-delayed-write-rate")),
            ("snapshots", whole("rocksdb.num-snapshots")),
            ("background_errors", whole("rocksdb.background-errors")),
            ("written_bytes", self.written.load(Ordering::Relaxed)),
            ("synced_commits", self.synced.load(Ordering::Relaxed)),
        ]
    }
}
