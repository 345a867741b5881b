//! [`RocksEngine`]: the embedded engine, on RocksDB.
//!
//! All shards are in one RocksDB store: shards are key prefixes and keyspaces column families, so that concurrent
//! commits share one log and one sync. The reasons for all options are in [`options`].

mod clear;
mod create;
mod damage;
mod epoch;
mod error;
pub mod files;
mod inspected;
mod keys;
mod log;
pub mod options;
pub mod raw;
mod repair_state;
mod restore;
mod shards;
mod size;
mod snapshot;
mod space;
mod stall;
mod store;
#[cfg(test)]
mod tests;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::{Mutex, RwLock};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::statistics::Ticker;
use rocksdb::{ColumnFamily, DBWithThreadMode, ErrorKind, SingleThreaded, WriteBatch, WriteOptions};
use settee_storage::nonblocking::{Attempt, Waiting};
use settee_storage::{
    Batch, CommitLog, CommitToken, Durability, Engine, Keyspace, Operation, Outcome, Purpose, Result, Shard,
    ShardState, Snapshot, StorageError, Version,
};

use clear::delete_entries;
use epoch::Epoch;
use error::{is_failed_sync, translate};
use files::acknowledged::Recorder;
pub use inspected::Inspected;
pub use options::{Log, Options, Tickers};
use repair_state::RepairState;
use shards::{Slot, Slots, Stored};
use snapshot::RocksSnapshot;
use space::Space;
use store::{Current, Store, close};

/// Column families are created only when the store is opened, and their handles need no lock in this mode.
type Database = DBWithThreadMode<SingleThreaded>;

/// Attempts to open the store again after which running reads are ended; lower for damage, which blocks everything.
const ATTEMPTS_BEFORE_INTERRUPT: u32 = 10;
const ATTEMPTS_BEFORE_INTERRUPT_ON_DAMAGE: u32 = 2;

/// State of a shard to be dropped whose own state is damaged.
const LOST_STATE: ShardState = ShardState { version: Version(1 << 62), token: CommitToken(0) };

/// Maximum number of calls of [`Engine::maintain`] between two attempts to open the store again.
const BACKOFF_CALLS_MAX: u32 = 30;

/// A store that received fewer bytes since the last call of [`Engine::maintain`] is flushed if its memtables are large.
const IDLE_BYTES_MAX: u64 = 256 << 10;
const UNFLUSHED_BYTES: usize = 4 << 20;

/// An engine on a directory, which no other process may use concurrently.
pub struct RocksEngine {
    path: PathBuf,
    options: Options,
    /// `None` if the store could not be opened even for reading.
    store: RwLock<Current>,
    slots: Slots,
    written: AtomicU64,
    synced: AtomicU64,
    openings: AtomicU64,
    /// Time of the latest commit, if the log is kept.
    last_commit_us: AtomicU64,
    /// Reason why nothing is written until the process ends.
    poisoned: OnceLock<String>,
    /// Fault because of which nothing is written until the store is opened again.
    repair_state: RepairState,
    reopening: Mutex<ReopenProgress>,
    space: Space,
    /// `None` for a store that was opened for reading.
    recorder: Option<Recorder>,
}

#[derive(Debug, Default)]
struct ReopenProgress {
    attempts: u32,
    failures: u32,
    pause: u32,
    /// Free space at the last attempt that failed for lack of space.
    free_bytes: Option<u64>,
    written: u64,
}

impl RocksEngine {
    /// Opens the store in `path`, or creates one. Fails as [`Self::inspect`] and [`Inspected::open`].
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::inspect(path)?.open(options)
    }

    /// Fails if the store in `path` cannot be opened with all acknowledged writes. Changes no file.
    pub fn inspect(path: &Path) -> Result<Inspected> {
        Ok(Inspected { path: path.to_owned(), found: files::inspect(path)? })
    }

    /// Opens the store in `path` for reading: every commit fails.
    pub fn open_read_only(path: &Path, options: &Options) -> Result<Self> {
        let store = Store::open_read_only(path, options)?;
        Ok(Self::on(store, None, Space::new(path, options), path, options))
    }

    /// Syncs the log and records the durable state, if writes occurred since the last call.
    fn acknowledge(&self, store: &Store) -> Result<()> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        let sequence = store.database.latest_sequence_number();
        recorder.note(sequence, || store.database.flush_wal(true).map_err(|error| self.failed(error)))
    }

    fn on(store: Store, fault: Option<StorageError>, space: Space, path: &Path, options: &Options) -> Self {
        Self {
            path: path.to_owned(),
            options: options.clone(),
            store: RwLock::new(Current::Open(Arc::new(store))),
            slots: Slots::default(),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            openings: AtomicU64::new(1),
            last_commit_us: AtomicU64::new(0),
            poisoned: OnceLock::new(),
            reopening: Mutex::default(),
            repair_state: RepairState::new(fault),
            space,
            recorder: None,
        }
    }

    /// 0 unless the store was opened with [`Tickers::On`].
    #[must_use]
    pub fn wal_syncs(&self) -> u64 {
        self.store().map_or(0, |store| store.opened_with.get_ticker_count(Ticker::WalFileSynced))
    }

    fn store(&self) -> Result<Arc<Store>> {
        let open = || match &*self.store.read() {
            Current::Open(store) => Ok(Arc::clone(store)),
            Current::Draining => Err(store::interrupted()),
            Current::Closed => Err(StorageError::Io("the store could not be opened again after an error".to_owned())),
        };
        match open() {
            Err(StorageError::Interrupted(_)) => {
                self.repair_state.wait();
                open()
            }
            opened => opened,
        }
    }

    /// Records a failed write, after which the log must be read by opening the store again. After a failed sync,
    /// opening does not help: a later sync may report success for pages that the kernel has dropped.
    fn failed(&self, error: rocksdb::Error) -> StorageError {
        let is_sync = is_failed_sync(error.as_ref());
        let error = damage::without_path(&self.path, translate(error));
        if is_sync {
            let _ = self.poisoned.set(error.to_string());
        } else {
            self.repair_state.fail(&error);
        }
        error
    }

    fn failed_write(&self, error: rocksdb::Error) -> StorageError {
        // A writer that RocksDB has delayed ends without a write when the store is closed because of an earlier fault.
        if error.kind() == ErrorKind::ShutdownInProgress
            && let Err(fault) = self.check_store()
        {
            return fault;
        }
        match self.failed(error) {
            // The log may contain the commit nevertheless.
            error @ StorageError::Io(_) if !damage::is_damage(&error) => error.in_doubt(),
            error => error,
        }
    }

    /// Ignores the free space of the disk.
    fn check_store(&self) -> Result<()> {
        if let Some(reason) = self.poisoned.get() {
            return Err(StorageError::Poisoned(reason.clone()));
        }
        self.repair_state.fault().map_or(Ok(()), Err)
    }

    /// Checks that space for a commit is available. A commit that frees space may use the reserve.
    fn admit(&self, purpose: Purpose) -> Result<()> {
        match purpose {
            Purpose::Growth => self.space.check(),
            Purpose::Room => {
                self.space.make_space();
                Ok(())
            }
        }
    }

    /// Opens the store again once no reader uses it.
    fn reopen(&self, reopening: &mut ReopenProgress) -> Result<()> {
        let mut current = self.store.write();
        if let Current::Open(store) = std::mem::replace(&mut *current, Current::Draining)
            && let Err(store) = close(store)
        {
            reopening.attempts += 1;
            let is_damage = self.repair_state.fault().as_ref().is_some_and(damage::is_damage);
            let most = if is_damage { ATTEMPTS_BEFORE_INTERRUPT_ON_DAMAGE } else { ATTEMPTS_BEFORE_INTERRUPT };
            let mut left = Some(store);
            if reopening.attempts.is_multiple_of(most) {
                left.iter().for_each(|store| store.end_leases());
                // A reader that holds a snapshot and waits for another one is refused, so that it releases the first.
                drop(current);
                left = left.take().and_then(|store| close(store).err());
                current = self.store.write();
            }
            if let Some(store) = left {
                *current = Current::Open(store);
                return Ok(());
            }
        }
        // The log determines which commits were applied.
        self.slots.forget_states();
        self.openings.fetch_add(1, Ordering::Relaxed);
        let cause = self.repair_state.fault();
        match Store::open(&self.path, &self.options, cause.as_ref()) {
            Ok(store) => {
                *current = Current::Open(Arc::new(store));
                self.repair_state.end();
                Ok(())
            }
            Err(error) => {
                // A read-only store may need fewer resources. If this fails as well, a later attempt may succeed.
                let opened = Store::open_read_only(&self.path, &self.options);
                *current = opened.map_or(Current::Closed, |store| Current::Open(Arc::new(store)));
                Err(error)
            }
        }
    }

    fn flush_if_idle(&self, reopening: &mut ReopenProgress) {
        let written = self.written.load(Ordering::Relaxed);
        let before = std::mem::replace(&mut reopening.written, written);
        let Ok(store) = self.store() else { return };
        if written.saturating_sub(before) > IDLE_BYTES_MAX || store.buffers.get_usage() < UNFLUSHED_BYTES {
            return;
        }
        stall::flush(&store.database, false);
    }

    /// Flushes a store on a full disk, so that its log can be removed.
    fn flush_if_scarce(&self, store: &Store) {
        if !self.space.is_scarce() {
            return;
        }
        stall::flush(&store.database, true);
    }

    /// Detects compactions that have stopped for lack of space, without which deletions free no space: see [`stall`].
    fn detect_stall(&self) {
        let Ok(store) = self.store() else { return };
        if store.has_garbage.load(Ordering::Relaxed) && stall::has_failed(&store.database) {
            self.repair_state.fail(&StorageError::Full("compactions ended for lack of room".to_owned()));
        }
    }

    fn try_commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        self.admit(batch.purpose())?;
        let store = self.store()?;
        // As much work as possible is done before the lock is taken.
        let mut writes = WriteBatch::with_capacity_bytes(batch.size_bytes() + 32 * (batch.len() + 1));
        self.stamp(&mut writes);
        fill(&mut writes, &store.database, shard, &batch);
        let head = batch.head().map(<[u8]>::to_vec);
        drop(batch);
        let mut options = WriteOptions::default();
        options.set_sync(durability == Durability::Synced);

        let slot = self.slots.slot(shard);
        let mut slot = slot.lock();
        self.check_store()?;
        let current = Self::load_state(&store, shard, &mut slot)?;
        let Version(version) = current.state.version;
        if Version(version) != expected || current.is_dropped {
            return Ok(Outcome::Conflict(Version(version)));
        }
        let state = ShardState { version: Version(version + 1), token };
        let stored = Stored { state, is_dropped: false, head: head.or_else(|| current.head.clone()) };
        writes.put_cf(state_column(&store.database), keys::prefix(shard), stored.encode());
        let bytes = writes.size_in_bytes() as u64;
        // Concurrent writers form a group here, whose leader syncs once for all.
        store.database.write_opt(writes, &options).map_err(|error| self.failed_write(error))?;
        self.synced.fetch_add(u64::from(durability == Durability::Synced), Ordering::Relaxed);
        slot.state = Some(stored);
        let total = self.written.fetch_add(bytes, Ordering::Relaxed) + bytes;
        slot.recent.wrote(total, bytes);
        self.space.wrote(bytes);
        Ok(Outcome::Committed(state.version))
    }

    fn load_state<'s>(store: &Store, shard: Shard, slot: &'s mut Slot) -> Result<&'s mut Stored> {
        if slot.state.is_none() {
            let database = &store.database;
            let key = keys::prefix(shard);
            let read = database.get_pinned_cf(state_column(database), key);
            let bytes = read.map_err(|error| store.failed_read(error, Waiting::Allowed))?;
            slot.state = Some(Stored::decode(bytes.as_deref())?);
        }
        Ok(slot.state.get_or_insert_default())
    }
}

fn total(database: &Database, property: &str) -> u64 {
    Keyspace::ALL.iter().map(|space| size::property(database, *space, property)).sum()
}

impl fmt::Debug for RocksEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RocksEngine").field("path", &self.path).finish_non_exhaustive()
    }
}

fn column(database: &Database, space: Keyspace) -> &ColumnFamily {
    database.cf_handle(space.name()).expect("the database was opened with all keyspaces")
}

fn state_column(database: &Database) -> &ColumnFamily {
    database.cf_handle(options::STATE).expect("the database was opened with it")
}

fn fill(writes: &mut WriteBatch, database: &Database, shard: Shard, batch: &Batch) {
    let columns = Keyspace::ALL.map(|space| column(database, space));
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
}

fn durable() -> WriteOptions {
    let mut options = WriteOptions::default();
    options.set_sync(true);
    options
}

impl Engine for RocksEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(RocksSnapshot::new(self.store()?, shard, Waiting::Allowed)))
    }

    /// Does not wait for a store that is opened again.
    fn snapshot_for_attempt<'a>(&self, shard: Shard, attempt: &'a Attempt) -> Result<Arc<dyn Snapshot + 'a>> {
        let store = match self.store.try_read().as_deref() {
            Some(Current::Open(store)) => Arc::clone(store),
            _ => return Err(attempt.refuse()),
        };
        Ok(Arc::new(RocksSnapshot::new(store, shard, Waiting::Refused(attempt))))
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        batch.check()?;
        match self.try_commit(shard, expected, token, batch, durability) {
            Err(error) if self.repair_state.is_under_way(&error) => {
                self.repair_state.wait();
                // The caller releases its snapshot after a conflict, which the reopening waits for.
                Ok(Outcome::Conflict(expected))
            }
            outcome => outcome,
        }
    }

    fn check(&self) -> Result<()> {
        match self.check_store() {
            // Commits wait for the end of the repair.
            Err(error) if !self.repair_state.is_under_way(&error) => Err(error),
            _ => self.space.check(),
        }
    }

    fn maintain(&self) -> Result<()> {
        let mut reopening = self.reopening.lock();
        self.space.check_space();
        self.detect_stall();
        let Err(fault) = self.check_store() else {
            self.repair_state.note_maintenance(false);
            self.flush_if_idle(&mut reopening);
            self.acknowledge(&*self.store()?)?;
            return self.space.check();
        };
        self.repair_state.note_maintenance(true);
        if matches!(fault, StorageError::Poisoned(_)) {
            return Err(fault);
        }
        if matches!(fault, StorageError::Full(_)) {
            self.space.release_reserve();
            self.space.check_space();
            let free = self.space.free_bytes();
            match reopening.free_bytes {
                Some(before) if free <= before => return Err(fault),
                Some(_) => reopening.pause = 0,
                None => {}
            }
        }
        if reopening.pause > 0 {
            reopening.pause -= 1;
            return Err(fault);
        }
        if let Err(error) = self.reopen(&mut reopening) {
            reopening.failures += 1;
            reopening.pause = (1 << reopening.failures.min(5)).min(BACKOFF_CALLS_MAX);
            reopening.free_bytes = matches!(error, StorageError::Full(_)).then(|| self.space.free_bytes());
            self.repair_state.replace(error);
        }
        self.check_store()?;
        *reopening = ReopenProgress { written: reopening.written, ..ReopenProgress::default() };
        self.space.check()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.admit(Purpose::Room)?;
        while self.check_store().is_err_and(|error| self.repair_state.is_under_way(&error)) {
            self.repair_state.wait();
        }
        let store = self.store()?;
        self.check_store()?;
        let slot = self.slots.slot(shard);
        let mut slot = slot.lock();
        let before = match Self::load_state(&store, shard, &mut slot) {
            // The new version must exceed the unknown one.
            Err(StorageError::Corrupt(_)) => Stored { state: LOST_STATE, ..Stored::default() },
            before => before?.clone(),
        };
        let dropped = before.dropped();
        let mut writes = WriteBatch::default();
        self.stamp(&mut writes);
        let hidden = delete_entries(&store.database, shard, &dropped, writes).map_err(|error| self.failed(error))?;
        *slot = Slot { state: Some(dropped), ..Slot::default() };
        self.slots.forget(shard);
        store.has_garbage.store(true, Ordering::Relaxed);
        store.damage.retry(&store.database)?;
        let ended = Epoch::end(&mut store.epoch.lock(), hidden);
        self.flush_if_scarce(&store);
        drop(ended);
        Ok(())
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        restore::restore(self, shard, state, &batch)
    }

    fn reclaim(&self, shard: Shard) -> Result<()> {
        self.admit(Purpose::Room)?;
        let store = self.store()?;
        self.check_store()?;
        self.flush_if_scarce(&store);
        let written = self.written.load(Ordering::Relaxed);
        store.has_garbage.store(true, Ordering::Relaxed);
        Keyspace::ALL.iter().for_each(|space| stall::compact(&store.database, &store.damage, *space, shard));
        // The compaction started with a flush.
        if let Some(slot) = self.slots.used(shard) {
            slot.lock().recent.flushed(written);
        }
        Ok(())
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        let Ok(store) = self.store() else { return 0 };
        let files: u64 = Keyspace::ALL.iter().map(|space| size::in_files(&store.database, shard, *space)).sum();
        let buffered = self.slots.used(shard).map_or(0, |slot| {
            let written = self.written.load(Ordering::Relaxed);
            slot.lock().recent.within(written, total(&store.database, "rocksdb.cur-size-all-mem-tables"))
        });
        files + buffered
    }

    fn sync(&self) -> Result<()> {
        let store = self.store()?;
        self.check_store()?;
        store.database.flush_wal(true).map_err(|error| self.failed(error))?;
        self.acknowledge(&store)
    }

    fn checkpoint(&self, directory: &Path) -> Result<()> {
        let store = self.store()?;
        let checkpoint = Checkpoint::new(&*store.database).map_err(translate)?;
        checkpoint.create_checkpoint(directory).map_err(translate)?;
        store.damage.save(directory)
    }

    fn log(&self) -> Option<&dyn CommitLog> {
        Some(self)
    }

    fn damage(&self) -> Option<String> {
        self.store().ok()?.damage.describe()
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let Ok(store) = self.store() else { return Vec::new() };
        // These properties are the same in every column family.
        let whole = |property| size::property(&store.database, Keyspace::Catalog, property);
        let total = |property| total(&store.database, property);
        vec![
            ("memtable_bytes", store.buffers.get_usage() as u64),
            ("block_cache_bytes", store.cache.get_usage() as u64),
            ("block_cache_pinned_bytes", store.cache.get_pinned_usage() as u64),
            ("table_reader_bytes", total("rocksdb.estimate-table-readers-mem")),
            ("sorted_file_bytes", total("rocksdb.total-sst-files-size")),
            ("blob_file_bytes", total("rocksdb.total-blob-file-size")),
            ("blob_garbage_bytes", total("rocksdb.live-blob-file-garbage-size")),
            ("pending_compaction_bytes", total("rocksdb.estimate-pending-compaction-bytes")),
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
