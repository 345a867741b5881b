//! [`Store`]: the opened database, for writing or, when there is no room even for opening it, for reading only. Everybody who
//! reads or writes holds it, so that it is closed when the last of them has gone, and can be opened again then.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use rocksdb::{Cache, WriteBufferManager};
use settee_storage::{Result, StorageError};

use crate::Database;
use crate::epoch::Epoch;
use crate::error::translate;
use crate::options::{Options, Tuned};

pub(crate) struct Store {
    /// Before the database, which it holds as well.
    pub(crate) epoch: Mutex<Arc<Epoch>>,
    pub(crate) database: Arc<Database>,
    lease: Mutex<Arc<Lease>>,
    pub(crate) opened_with: rocksdb::Options,
    pub(crate) cache: Cache,
    pub(crate) buffers: WriteBufferManager,
}

/// The right to read that a snapshot was given.
#[derive(Debug, Default)]
pub(crate) struct Lease {
    is_over: AtomicBool,
}

impl Lease {
    /// # Errors
    /// When the store is to be opened again and has waited long enough for its readers.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_over.load(Ordering::Relaxed) {
            return Err(StorageError::Io(
                "the read took too long: the store is opened again after an error".to_owned(),
            ));
        }
        Ok(())
    }
}

impl Store {
    /// Opens the store in `path`, or makes one there.
    pub(crate) fn open(path: &Path, options: &Options) -> Result<Self> {
        Self::new(options, |tuned, columns| Database::open_cf_descriptors(tuned, path, columns))
    }

    /// Opens a store as it is, without a change to any file but its information log.
    pub(crate) fn open_read_only(path: &Path, options: &Options) -> Result<Self> {
        Self::new(options, |tuned, columns| {
            tuned.create_if_missing(false);
            Database::open_cf_descriptors_read_only(tuned, path, columns, false)
        })
    }

    fn new(
        options: &Options,
        open: impl FnOnce(&mut rocksdb::Options, Vec<rocksdb::ColumnFamilyDescriptor>) -> Result<Database, rocksdb::Error>,
    ) -> Result<Self> {
        let Tuned { database: mut opened_with, columns, cache, buffers } = Tuned::new(options);
        let database = Arc::new(open(&mut opened_with, columns).map_err(translate)?);
        Ok(Self {
            epoch: Mutex::new(Epoch::new(Arc::clone(&database))),
            database,
            lease: Mutex::default(),
            opened_with,
            cache,
            buffers,
        })
    }

    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease.lock())
    }

    /// Ends all leases that were given so far.
    pub(crate) fn end_leases(&self) {
        let ended = std::mem::take(&mut *self.lease.lock());
        ended.is_over.store(true, Ordering::Relaxed);
    }
}
