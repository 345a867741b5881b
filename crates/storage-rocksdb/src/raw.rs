//! [`RawStore`]: the store without anything of ours above it, as a yardstick for what the disk and the store could
//! do. Nothing else uses it.

use std::path::Path;
use std::time::Instant;

use rocksdb::{WriteBatch, WriteOptions};
use settee_storage::{Keyspace, Result};

use crate::error::translate;
use crate::options::Tuned;
use crate::{Database, Options};

/// A bare store, tuned like the keyspace of bodies.
#[derive(Debug)]
pub struct RawStore;

/// What a load took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawReport {
    /// How many entries were written.
    pub entries: u64,
    /// How many batches these came in.
    pub batches: u64,
    /// Bytes of the keys and values.
    pub bytes: u64,
    /// Seconds spent in the store: building and writing batches, not making the entries.
    pub seconds: f64,
}

impl RawStore {
    /// Writes `batches` of keys and values into a store at `path`, with a sync after each batch or one at the end.
    ///
    /// # Errors
    /// When the store cannot be opened or written.
    pub fn load(
        path: &Path,
        batches: impl Iterator<Item = Vec<(Vec<u8>, Vec<u8>)>>,
        sync_each_batch: bool,
    ) -> Result<RawReport> {
        let tuned = Tuned::bare(&Options::default(), Keyspace::Bodies);
        let database = Database::open_cf_descriptors(&tuned.database, path, tuned.columns).map_err(translate)?;
        let mut durability = WriteOptions::default();
        durability.set_sync(sync_each_batch);
        let mut report = RawReport { entries: 0, batches: 0, bytes: 0, seconds: 0.0 };
        for entries in batches {
            let start = Instant::now();
            let mut batch = WriteBatch::default();
            for (key, value) in &entries {
                batch.put(key, value);
                report.bytes += (key.len() + value.len()) as u64;
            }
            database.write_opt(batch, &durability).map_err(translate)?;
            report.entries += entries.len() as u64;
            report.batches += 1;
            report.seconds += start.elapsed().as_secs_f64();
        }
        let start = Instant::now();
        database.flush_wal(true).map_err(translate)?;
        report.seconds += start.elapsed().as_secs_f64();
        Ok(report)
    }
}
