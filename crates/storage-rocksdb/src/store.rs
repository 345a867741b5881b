//! [`Store`]: the opened database, for writing or, on a full disk, for reading only. It is closed when the last reader
//! or writer releases it, and can then be opened again.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use rocksdb::{Cache, ErrorKind, WriteBufferManager};
use settee_storage::nonblocking::Waiting;
use settee_storage::{Result, StorageError};

use crate::damage::{self, Damage};
use crate::epoch::Epoch;
use crate::error::translate;
use crate::options::{Options, Tuned};
use crate::{Database, files};

/// Time for which new reads wait for running ones to end before the store is opened again.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(200);
const DRAIN_STEP: Duration = Duration::from_millis(1);

pub(crate) struct Store {
    /// Dropped before the database, to which it has a reference.
    pub(crate) epoch: Mutex<Arc<Epoch>>,
    pub(crate) database: Arc<Database>,
    lease: Mutex<Arc<Lease>>,
    pub(crate) opened_with: rocksdb::Options,
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
    path: PathBuf,
    pub(crate) damage: Arc<Damage>,
    /// True if data was removed that occupies space until it is compacted.
    pub(crate) has_garbage: AtomicBool,
}

/// Permits the reads of a snapshot.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    is_over: AtomicBool,
}

impl Lease {
    /// Fails if the store must be opened again and has waited long enough for its readers.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(interrupted());
        }
        Ok(())
    }
}

pub(crate) fn interrupted() -> StorageError {
    StorageError::Interrupted("the store is opened again after an error".to_owned())
}

impl Store {
    /// Opens a store that was inspected, or closed because of `cause`. Damage is recorded and not compacted.
    pub(crate) fn open(path: &Path, options: &Options, cause: Option<&StorageError>) -> Result<Self> {
        if let Some(cause) = cause {
            files::check_logs_in(path)?;
            damage::record(path, cause)?;
        }
        let open = || {
            Self::new(path, options, Damage::load(path, true)?, |tuned, columns| {
                tuned.create_if_missing(false);
                Database::open_cf_descriptors(tuned, path, columns)
            })
        };
        match open() {
            Err(error) if damage::record(path, &error)? => open(),
            opened => opened,
        }
    }

    pub(crate) fn create(path: &Path, options: &Options) -> Result<Self> {
        let damage = Damage::load(path, true)?;
        Self::new(path, options, damage, |tuned, columns| Database::open_cf_descriptors(tuned, path, columns))
    }

    /// Changes no file except the information log. Files that cannot be opened only prevent reads of their entries.
    pub(crate) fn open_read_only(path: &Path, options: &Options) -> Result<Self> {
        Self::new(path, options, Damage::load(path, false)?, |tuned, columns| {
            tuned.create_if_missing(false);
            tuned.set_paranoid_checks(false);
            Database::open_cf_descriptors_read_only(tuned, path, columns, false)
        })
    }

    fn new(
        path: &Path,
        options: &Options,
        damage: Damage,
        open: impl FnOnce(&mut rocksdb::Options, Vec<rocksdb::ColumnFamilyDescriptor>) -> Result<Database, rocksdb::Error>,
    ) -> Result<Self> {
        let options = Options { compacts: options.compacts && damage.is_empty(), ..options.clone() };
        let Tuned { database: mut opened_with, columns, cache, buffers } = Tuned::new(&options);
        let database = Arc::new(open(&mut opened_with, columns).map_err(translate)?);
        if !damage.is_empty() {
            damage.apply(&database)?;
        }
        let damage = Arc::new(damage);
        Ok(Self {
            epoch: Mutex::new(Epoch::new(Arc::clone(&database), Arc::clone(&damage))),
            database,
            lease: Mutex::default(),
            opened_with,
            cache,
            buffers,
            path: path.to_owned(),
            damage,
            has_garbage: AtomicBool::new(false),
        })
    }

    pub(crate) fn failed_read(&self, error: rocksdb::Error, waiting: Waiting<'_>) -> StorageError {
        // The result of a read that is restricted to memory.
        if error.kind() == ErrorKind::Incomplete
            && let Waiting::Refused(attempt) = waiting
        {
            return attempt.refuse();
        }
        let error = damage::without_path(&self.path, translate(error));
        if damage::is_damage(&error) {
            self.damage.note(&self.database, &error);
        }
        error
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
    Closed,
}

/// Waits for the readers of the store. Returns the store if they take too long.
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
            Err(store) if waited >= DRAIN_TIMEOUT => return Err(store),
            Err(store) => store,
        };
        std::thread::park_timeout(DRAIN_STEP);
        waited += DRAIN_STEP;
    }
}
