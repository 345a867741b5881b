//! [`RocksEngine`]: the embedded engine, on RocksDB.
//!
//! One store per server: shards are key prefixes and keyspaces column families, so that all commits share one log,
//! and commits that wait at the same time share one sync. It knows nothing of what the entries mean; what is tuned,
//! and why, is in [`options`].

mod clear;
mod create;
mod damage;
mod epoch;
mod error;
pub mod files;
mod isolate;
mod keys;
mod log;
mod mending;
pub mod options;
pub mod raw;
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
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rocksdb::checkpoint::Checkpoint;
use rocksdb::statistics::Ticker;
use rocksdb::{ColumnFamily, DBWithThreadMode, SingleThreaded, WriteBatch, WriteOptions};
use settee_storage::{
    Batch, CommitLog, CommitToken, Durability, Engine, Keyspace, Operation, Outcome, Purpose, Result, Shard,
    ShardState, Snapshot, StorageError, Version,
};

use clear::hide;
use damage::Hole;
use epoch::Epoch;
use error::{is_failed_sync, translate};
use files::Found;
use files::acknowledged::Recorder;
use mending::Mending;
pub use options::{Log, Options, Tickers};
use shards::{Slot, Slots, Stored};
use snapshot::RocksSnapshot;
use space::Space;
use store::Store;

/// Column families are made at opening only, and their handles cost no lock in this mode.
type Database = DBWithThreadMode<SingleThreaded>;

/// The time for which new reads wait for old ones to end when the store is to be opened again.
const DRAIN: Duration = Duration::from_millis(200);
const DRAIN_STEP: Duration = Duration::from_millis(1);

/// Reads that are under way when the store was to be opened again so often are ended: earlier, if all others wait for that.
const DRAINS_MAX: u32 = 10;
const DRAINS_WITH_DAMAGE_MAX: u32 = 2;

/// The state of a shard whose own is damaged and that is to be dropped.
const LOST: ShardState = ShardState { version: Version(1 << 62), token: CommitToken(0) };

/// Most calls of [`Engine::tend`] between two tries to open the store again.
const PAUSE_MAX: u32 = 30;

/// A store to which less than this was written since it last looked after itself does not need the memory for writing that
/// it has, if that is much.
const QUIET_BYTES: u64 = 256 << 10;
const UNFLUSHED_BYTES: usize = 4 << 20;

/// An engine on a directory that no other process may use at the same time.
pub struct RocksEngine {
    path: PathBuf,
    options: Options,
    /// None when it could not even be opened for reading.
    store: RwLock<Option<Arc<Store>>>,
    slots: Slots,
    /// Bytes given to the store since it was opened.
    written: AtomicU64,
    /// The number of commits that were answered when they were on disk.
    synced: AtomicU64,
    /// How often the store was opened.
    openings: AtomicU64,
    /// The time of the youngest commit, if the log is kept.
    stamped_us: AtomicU64,
    /// Why nothing is written until the process ends.
    poisoned: OnceLock<String>,
    /// Why nothing is written until the store is opened again.
    mending: Arc<Mending>,
    healing: Mutex<Healing>,
    space: Space,
    /// None of a store that was opened for reading.
    recorder: Option<Recorder>,
}

/// A directory that can be opened: it has a complete store, or none.
#[derive(Debug)]
pub struct Inspected {
    path: PathBuf,
    found: Found,
}

impl Inspected {
    /// Returns true if no store is there.
    #[must_use]
    pub fn is_new(&self) -> bool {
        !matches!(self.found, Found::Store(_))
    }

    /// Returns the unacknowledged writes at the end of a log that a power loss left incomplete, in words. Opening drops them.
    #[must_use]
    pub fn torn(&self) -> Option<&str> {
        match &self.found {
            Found::Store(repairs) => repairs.torn.as_deref(),
            Found::Nothing | Found::Unfinished => None,
        }
    }

    /// Opens the store, or creates it. A store that is there is opened for reading only if the disk has no space for
    /// opening it; [`Engine::tend`] opens it for writing later.
    ///
    /// # Errors
    /// When the directory cannot be used, another process has it, or the store is damaged.
    pub fn open(self, options: &Options) -> Result<RocksEngine> {
        let path = self.path.as_path();
        let space = Space::new(path.ancestors().find(|above| above.is_dir()).unwrap_or(path), options);
        match &self.found {
            Found::Nothing | Found::Unfinished => create::create(path, options)?,
            Found::Store(repairs) => repairs.apply().map_err(|error| StorageError::Io(error.to_string()))?,
        }
        if matches!(options.log, Log::Discarded) {
            log::forget(path);
        }
        match isolate::open(path, options, None) {
            Err(error @ StorageError::Full(_)) => {
                space.give_up_reserve();
                // Without anything to read, there is nothing to serve.
                let store = Store::open_read_only(path, options).map_err(|_| error.clone())?;
                Ok(RocksEngine::on(store, Some(error), space, path, options))
            }
            opened => {
                let mut engine = RocksEngine::on(opened?, None, space, path, options);
                engine.space.look();
                engine.recorder = Some(Recorder::new(path));
                engine.acknowledge(&*engine.store()?)?;
                Ok(engine)
            }
        }
    }
}

/// How the tries to open the store again go.
#[derive(Debug, Default)]
struct Healing {
    /// Tries that found readers.
    drains: u32,
    /// Tries that failed.
    failures: u32,
    /// Calls until the next try.
    pause: u32,
    /// The free bytes at the last try that failed for lack of room.
    free_bytes: Option<u64>,
    /// How much had been written at the last call.
    written: u64,
}

impl RocksEngine {
    /// Opens the store in `path`, or creates one in a directory that is empty or missing.
    ///
    /// # Errors
    /// Those of [`Self::inspect`] and [`Inspected::open`].
    pub fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::inspect(path)?.open(options)
    }

    /// Finds out whether the store in `path` can be opened with everything that was acknowledged, without a change to any file.
    ///
    /// # Errors
    /// When it cannot: the error names the file that is missing or damaged.
    pub fn inspect(path: &Path) -> Result<Inspected> {
        Ok(Inspected { path: path.to_owned(), found: files::inspect(path)? })
    }

    /// Opens the store in `path` to read it; nothing is written there, and every commit fails.
    ///
    /// # Errors
    /// When the directory cannot be read or the store is damaged.
    pub fn open_read_only(path: &Path, options: &Options) -> Result<Self> {
        let store = Store::open_read_only(path, options)?;
        Ok(Self::on(store, None, Space::new(path, options), path, options))
    }

    /// Notes how far the store is durable, if it was written to since the last call.
    fn acknowledge(&self, store: &Store) -> Result<()> {
        let Some(recorder) = &self.recorder else { return Ok(()) };
        let sequence = store.database.latest_sequence_number();
        recorder.note(sequence, || store.database.flush_wal(true).map_err(|error| self.failed(error)))
    }

    fn on(mut store: Store, fault: Option<StorageError>, space: Space, path: &Path, options: &Options) -> Self {
        let mending = Arc::new(Mending::new(fault));
        store.mending = Arc::clone(&mending);
        Self {
            path: path.to_owned(),
            options: options.clone(),
            store: RwLock::new(Some(Arc::new(store))),
            slots: Slots::default(),
            written: AtomicU64::new(0),
            synced: AtomicU64::new(0),
            openings: AtomicU64::new(1),
            stamped_us: AtomicU64::new(0),
            poisoned: OnceLock::new(),
            healing: Mutex::default(),
            mending,
            space,
            recorder: None,
        }
    }

    /// How often the log was synced since the store was opened; 0 unless it was opened with [`Tickers::On`].
    #[must_use]
    pub fn wal_syncs(&self) -> u64 {
        self.store().map_or(0, |store| store.opened_with.get_ticker_count(Ticker::WalFileSynced))
    }

    fn store(&self) -> Result<Arc<Store>> {
        let store = self.store.read().clone();
        store.ok_or_else(|| StorageError::Io("the store could not be opened again after an error".to_owned()))
    }

    /// After a failed write nobody knows what the log holds: only opening the store again, which reads it, gives an
    /// answer. After a failed sync not even that does: a later one may claim success for pages that the system has given
    /// up, and reading them finds what is not on disk.
    fn failed(&self, error: rocksdb::Error) -> StorageError {
        let is_sync = is_failed_sync(error.as_ref());
        let error = isolate::without_place(&self.path, translate(error));
        // A first reason stays.
        if is_sync {
            let _ = self.poisoned.set(error.to_string());
        } else {
            self.mending.fail(&error);
        }
        error
    }

    /// Whether the store takes writes as such, room or not.
    fn check_store(&self) -> Result<()> {
        if let Some(reason) = self.poisoned.get() {
            return Err(StorageError::Poisoned(reason.clone()));
        }
        self.mending.fault().map_or(Ok(()), Err)
    }

    /// Whether there is room for a commit. What makes room may have the reserve, which is given up for it if it must be.
    fn admit(&self, purpose: Purpose) -> Result<()> {
        match purpose {
            Purpose::Growth => self.space.check(),
            Purpose::Room => {
                self.space.look_for_room();
                Ok(())
            }
        }
    }

    /// Opens the store again, once nobody reads it any more.
    fn reopen(&self, healing: &mut Healing) -> Result<()> {
        let mut current = self.store.write();
        if let Some(store) = current.take()
            && let Err(store) = close(store)
        {
            healing.drains += 1;
            let is_damage = self.mending.fault().as_ref().is_some_and(isolate::is_damage);
            let most = if is_damage { DRAINS_WITH_DAMAGE_MAX } else { DRAINS_MAX };
            if healing.drains.is_multiple_of(most) {
                store.end_leases();
            }
            *current = Some(store);
            return Ok(());
        }
        // What was committed is what the log says now.
        self.slots.forget_states();
        self.openings.fetch_add(1, Ordering::Relaxed);
        let cause = self.mending.fault();
        match isolate::open(&self.path, &self.options, cause.as_ref()) {
            Ok(mut store) => {
                store.mending = Arc::clone(&self.mending);
                *current = Some(Arc::new(store));
                self.mending.end();
                Ok(())
            }
            Err(error) => {
                // Reading may need less of what is missing. If not, the next try may find it.
                *current = Store::open_read_only(&self.path, &self.options).ok().map(Arc::new);
                Err(error)
            }
        }
    }

    /// Memory that earlier writes have filled is given back when hardly any follow.
    fn flush_if_quiet(&self, healing: &mut Healing) {
        let written = self.written.load(Ordering::Relaxed);
        let before = std::mem::replace(&mut healing.written, written);
        let Ok(store) = self.store() else { return };
        if written.saturating_sub(before) > QUIET_BYTES || store.buffers.get_usage() < UNFLUSHED_BYTES {
            return;
        }
        stall::flush(&store.database, false);
    }

    /// A store that is too full to grow gives back its log, which it would otherwise keep until memory is full.
    fn flush_if_scarce(&self, store: &Store) {
        if !self.space.is_scarce() {
            return;
        }
        stall::flush(&store.database, true);
    }

    /// What was removed makes room only once it is compacted away. See [`stall`].
    fn notice_stall(&self) {
        let Ok(store) = self.store() else { return };
        if store.has_garbage.load(Ordering::Relaxed) && stall::has_given_up(&store.database) {
            self.mending.fail(&StorageError::Full("compactions ended for lack of room".to_owned()));
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
        // Everything that can be done before the lock is taken.
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
        // Writers that wait here form a group, and its leader syncs once for all.
        store.database.write_opt(writes, &options).map_err(|error| self.failed(error))?;
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
            store.holes().map_or(Ok(()), |holes| holes.check(options::STATE, &key))?;
            let read = database.get_pinned_cf(state_column(database), key);
            let bytes = read.map_err(|error| store.failed_read(error))?;
            slot.state = Some(Stored::decode(bytes.as_deref())?);
        }
        Ok(slot.state.get_or_insert_default())
    }
}

/// Closes a store, after a wait for those who read it. The store itself if they take longer.
fn close(mut store: Arc<Store>) -> Result<(), Arc<Store>> {
    // Nothing is to change any more below those who read it still.
    store.database.cancel_all_background_work(true);
    let mut waited = Duration::ZERO;
    loop {
        store = match Arc::try_unwrap(store) {
            Ok(store) => {
                drop(store);
                return Ok(());
            }
            Err(store) if waited >= DRAIN => return Err(store),
            Err(store) => store,
        };
        std::thread::park_timeout(DRAIN_STEP);
        waited += DRAIN_STEP;
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

/// Adds the operations of a batch.
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
        let store = self.store()?;
        // The epoch first: a shard that is dropped in between is kept too long, never too short.
        let epoch = Arc::clone(&store.epoch.lock());
        Ok(Arc::new(RocksSnapshot::new(store, epoch, shard)))
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
            Err(error) if self.mending.is_under_way(&error) => {
                mending::wait();
                // Whoever commits lets go of its snapshot then, which the store waits for.
                Ok(Outcome::Conflict(expected))
            }
            outcome => outcome,
        }
    }

    fn check(&self) -> Result<()> {
        match self.check_store() {
            // Commits wait for it.
            Err(error) if !self.mending.is_under_way(&error) => Err(error),
            _ => self.space.check(),
        }
    }

    fn tend(&self) -> Result<()> {
        let mut healing = self.healing.lock();
        self.space.look();
        self.notice_stall();
        let Err(fault) = self.check_store() else {
            self.mending.tended(false);
            self.flush_if_quiet(&mut healing);
            self.acknowledge(&*self.store()?)?;
            return self.space.check();
        };
        self.mending.tended(true);
        if matches!(fault, StorageError::Poisoned(_)) {
            return Err(fault);
        }
        if matches!(fault, StorageError::Full(_)) {
            self.space.give_up_reserve();
            self.space.look();
            let free = self.space.free_bytes();
            match healing.free_bytes {
                Some(before) if free <= before => return Err(fault),
                Some(_) => healing.pause = 0,
                None => {}
            }
        }
        if healing.pause > 0 {
            healing.pause -= 1;
            return Err(fault);
        }
        if let Err(error) = self.reopen(&mut healing) {
            healing.failures += 1;
            healing.pause = (1 << healing.failures.min(5)).min(PAUSE_MAX);
            healing.free_bytes = matches!(error, StorageError::Full(_)).then(|| self.space.free_bytes());
            self.mending.replace(error);
        }
        self.check_store()?;
        *healing = Healing { written: healing.written, ..Healing::default() };
        self.space.check()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.admit(Purpose::Room)?;
        while self.check_store().is_err_and(|error| self.mending.is_under_way(&error)) {
            mending::wait();
        }
        let store = self.store()?;
        self.check_store()?;
        let slot = self.slots.slot(shard);
        let mut slot = slot.lock();
        let before = match Self::load_state(&store, shard, &mut slot) {
            // Beyond whatever it was.
            Err(StorageError::Corrupt(_)) => Stored { state: LOST, ..Stored::default() },
            before => before?.clone(),
        };
        let dropped = before.dropped();
        let mut writes = WriteBatch::default();
        self.stamp(&mut writes);
        let hidden = hide(&store.database, shard, &dropped, writes).map_err(|error| self.failed(error))?;
        *slot = Slot { state: Some(dropped), ..Slot::default() };
        self.slots.forget(shard);
        store.has_garbage.store(true, Ordering::Relaxed);
        store.dropped(shard)?;
        let ended = Epoch::end(&mut store.epoch.lock(), hidden);
        self.flush_if_scarce(&store);
        // Gives back the files now, if no snapshot is there.
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
        Keyspace::ALL.iter().for_each(|space| stall::compact(&store.database, *space, shard));
        // That began with a flush.
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
        // What is missing is missing in the copy as well.
        match store.holes() {
            Some(holes) => holes.save(directory).map_err(|error| StorageError::Io(error.to_string())),
            None => Ok(()),
        }
    }

    fn log(&self) -> Option<&dyn CommitLog> {
        Some(self)
    }

    fn damage(&self) -> Option<String> {
        self.store().ok()?.damage()
    }

    fn damaged_shards(&self) -> Vec<RangeInclusive<u64>> {
        let holes = self.store().ok().and_then(|store| store.holes());
        holes.map(|holes| holes.iter().map(Hole::shards).collect()).unwrap_or_default()
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let Ok(store) = self.store() else { return Vec::new() };
        // The same in every column family.
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
