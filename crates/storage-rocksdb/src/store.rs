//! [`Store`]: the opened database, for writing or, if the disk has no space for opening it, for reading only. All
//! readers and writers share ownership, so that it is closed when the last of them releases it, and can then be
//! opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rocksdb::{Cache, WriteBufferManager};
use settee_storage::{Keyspace, Result, Shard, StorageError};

use crate::damage::Holes;
use crate::epoch::Epoch;
use crate::error::translate;
use crate::options::{Options, Tuned};
use crate::repair_state::RepairState;
use crate::{Database, column, isolate};

/// Time for which new reads wait for running ones to end before the store is opened again.
const DRAIN: Duration = Duration::from_millis(200);
const DRAIN_STEP: Duration = Duration::from_millis(1);

pub(crate) struct Store {
    /// Dropped before the database, of which it has a reference.
    pub(crate) epoch: Mutex<Arc<Epoch>>,
    pub(crate) database: Arc<Database>,
    lease: Mutex<Arc<Lease>>,
    pub(crate) opened_with: rocksdb::Options,
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
    path: PathBuf,
    /// Damage known when the store was opened; `None` if it was undamaged.
    holes: RwLock<Option<Arc<Holes>>>,
    first_damage: Mutex<Option<String>>,
    /// True if data was removed that occupies space until it is compacted.
    pub(crate) has_garbage: AtomicBool,
    /// Receiver of damage found by reads.
    pub(crate) repair_state: Arc<RepairState>,
}

/// Lease of a snapshot, which permits reads.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    is_over: AtomicBool,
}

impl Lease {
    /// Checks the lease.
    ///
    /// # Errors
    /// Fails if the store must be opened again and has waited long enough for its readers.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        Ok(())
    }
}

/// Returns the error of a read that ends because of a repair.
pub(crate) fn interrupted() -> StorageError {
    StorageError::Interrupted("the store is opened again after an error".to_owned())
}

impl Store {
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::new(path, options, |tuned, columns| {
            tuned.create_if_missing(false);
            Database::open_cf_descriptors(tuned, path, columns)
        })
    }

    pub(crate) fn create(path: &Path, options: &Options) -> Result<Self> {
        Self::new(path, options, |tuned, columns| Database::open_cf_descriptors(tuned, path, columns))
    }

    /// Opens a store for reading, without a change to any file except the information log.
    pub(crate) fn open_read_only(path: &Path, options: &Options) -> Result<Self> {
        Self::new(path, options, |tuned, columns| {
            tuned.create_if_missing(false);
            Database::open_cf_descriptors_read_only(tuned, path, columns, false)
        })
    }

    fn new(
        path: &Path,
        options: &Options,
        open: impl FnOnce(&mut rocksdb::Options, Vec<rocksdb::ColumnFamilyDescriptor>) -> Result<Database, rocksdb::Error>,
    ) -> Result<Self> {
        let holes = Holes::load(path)?;
        let options = Options { moves_blobs: options.moves_blobs && !holes.has_blobs(), ..options.clone() };
        let Tuned { database: mut opened_with, columns, cache, buffers } = Tuned::new(&options);
        let database = Arc::new(open(&mut opened_with, columns).map_err(translate)?);
        Ok(Self {
            epoch: Mutex::new(Epoch::new(Arc::clone(&database))),
            database,
            lease: Mutex::default(),
            opened_with,
            cache,
            buffers,
            path: path.to_owned(),
            holes: RwLock::new(Some(Arc::new(holes)).filter(|holes| !holes.is_empty())),
            first_damage: Mutex::default(),
            has_garbage: AtomicBool::new(false),
            repair_state: Arc::new(RepairState::new(None)),
        })
    }

    /// Returns the damaged key ranges, which must not be read.
    pub(crate) fn holes(&self) -> Option<Arc<Holes>> {
        self.holes.read().clone()
    }

    /// Translates the error of a read, and records it if it is damage. Before a repair it blocks for as long as a
    /// commit does, so that callers with a number of attempts do not use them up before the repair starts.
    pub(crate) fn failed_read(&self, error: rocksdb::Error) -> StorageError {
        let error = isolate::without_place(&self.path, translate(error));
        if isolate::is_damage(&error) {
            self.first_damage.lock().get_or_insert_with(|| error.to_string());
            if self.repair_state.note_damage(&error) {
                self.repair_state.wait();
                return interrupted();
            }
        }
        error
    }

    pub(crate) fn damage(&self) -> Option<String> {
        let holes = self.holes().and_then(|holes| holes.describe());
        holes.or_else(|| self.first_damage.lock().clone())
    }

    /// Removes the damage of a dropped shard from the list.
    pub(crate) fn dropped(&self, shard: Shard) -> Result<()> {
        // Remaining damage will be found again.
        *self.first_damage.lock() = None;
        let mut current = self.holes.write();
        let Some(mut holes) = current.as_deref().cloned() else { return Ok(()) };
        let had_blobs = holes.has_blobs();
        if !holes.clear(shard) {
            return Ok(());
        }
        holes.save(&self.path).map_err(|error| StorageError::Io(error.to_string()))?;
        if had_blobs {
            for space in [Keyspace::Bodies, Keyspace::Attachments] {
                let column = column(&self.database, space);
                let moving = [("enable_blob_garbage_collection", "true")];
                self.database.set_options_cf(column, &moving).map_err(translate)?;
            }
        }
        *current = Some(Arc::new(holes)).filter(|holes| !holes.is_empty());
        if current.is_none() {
            isolate::forget(&self.path);
        }
        Ok(())
    }

    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.lock())
    }

    pub(crate) fn end_leases(&self) {
        let ended = std::mem::take(&mut *self.lease.lock());
        ended.is_over.store(true, Ordering::Relaxed);
    }
}

pub(crate) enum Current {
    Open(Arc<Store>),
    /// The store is opened again when its last reader has gone.
    Draining,
    /// The store could not be opened again.
    Closed,
}

/// Closes a store after a wait for its readers. Returns the store if they take too long.
pub(crate) fn close(mut store: Arc<Store>) -> Result<(), Arc<Store>> {
    // The files must not change while remaining readers use the store.
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
