//! [`RawStore`] and [`RawEntry`]: RocksDB without the engine, as a baseline for measurements.

use std::path::Path;
use std::time::Instant;

use rocksdb::{ColumnFamily, WriteBatch, WriteOptions};
use settee_storage::{Keyspace, Result, Shard};

use crate::error::translate;
use crate::options::Tuned;
use crate::{Database, Options, keys};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RawPattern {
    /// One entry, into a store tuned like the keyspace of bodies. Nothing is read.
    Pair,
    /// The minimum for a document, in the keyspaces of a real store: a lookup of the id, a record under the id, a
    /// sequence entry and the body.
    Document,
}

const RECORD: [u8; 32] = [7; 32];

#[derive(Debug)]
pub struct RawStore;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawReport {
    pub entries: u64,
    pub batches: u64,
    pub bytes: u64,
    /// Time for building and writing batches, without the generation of pairs.
    pub seconds: f64,
}

impl RawStore {
    /// Writes `batches` into a store at `path`, with a sync after each batch or one at the end.
    pub fn load(
        path: &Path,
        pattern: RawPattern,
        batches: impl Iterator<Item = Vec<(Vec<u8>, Vec<u8>)>>,
        sync_each_batch: bool,
    ) -> Result<RawReport> {
        let tuned = match pattern {
            RawPattern::Pair => Tuned::bare(&Options::default(), Keyspace::Bodies),
            RawPattern::Document => Tuned::new(&Options::default()),
        };
        let database = Database::open_cf_descriptors(&tuned.database, path, tuned.columns).map_err(translate)?;
        let mut durability = WriteOptions::default();
        durability.set_sync(sync_each_batch);
        let mut report = RawReport { entries: 0, batches: 0, bytes: 0, seconds: 0.0 };
        for pairs in batches {
            let start = Instant::now();
            let batch = match pattern {
                RawPattern::Pair => pair_batch(&pairs),
                RawPattern::Document => document_batch(&database, report.entries, &pairs)?,
            };
            database.write_opt(batch, &durability).map_err(translate)?;
            report.seconds += start.elapsed().as_secs_f64();
            report.bytes += pairs.iter().map(|(id, body)| (id.len() + body.len()) as u64).sum::<u64>();
            report.entries += pairs.len() as u64;
            report.batches += 1;
        }
        let start = Instant::now();
        database.flush_wal(true).map_err(translate)?;
        report.seconds += start.elapsed().as_secs_f64();
        Ok(report)
    }
}

/// A store with one entry in a file. Lookups after the first one read it from the block cache.
#[derive(Debug)]
pub struct RawEntry(Database);

const ENTRY: &[u8] = b"entry";

impl RawEntry {
    pub fn create(path: &Path, value: &[u8]) -> Result<Self> {
        let tuned = Tuned::bare(&Options::default(), Keyspace::Documents);
        let database = Database::open_cf_descriptors(&tuned.database, path, tuned.columns).map_err(translate)?;
        database.put(ENTRY, value).map_err(translate)?;
        database.flush().map_err(translate)?;
        Ok(Self(database))
    }

    pub fn get(&self) -> Result<Vec<u8>> {
        Ok(self.0.get(ENTRY).map_err(translate)?.unwrap_or_default())
    }
}

fn pair_batch(pairs: &[(Vec<u8>, Vec<u8>)]) -> WriteBatch {
    let mut batch = WriteBatch::default();
    for (id, body) in pairs {
        batch.put(id, body);
    }
    batch
}

fn document_batch(database: &Database, written: u64, pairs: &[(Vec<u8>, Vec<u8>)]) -> Result<WriteBatch> {
    let column = |space: Keyspace| -> &ColumnFamily {
        database.cf_handle(space.name()).expect("the store was opened with all keyspaces")
    };
    let key = |key: &[u8]| [keys::prefix(Shard(1)).as_slice(), key].concat();
    let mut documents: Vec<(Vec<u8>, u64)> = (written..).zip(pairs).map(|(seq, (id, _))| (key(id), seq)).collect();
    documents.sort_unstable();
    let heads = documents.iter().map(|(id, _)| id);
    for head in database.batched_multi_get_cf(column(Keyspace::Documents), heads, true) {
        std::hint::black_box(head.map_err(translate)?);
    }
    let mut batch = WriteBatch::default();
    for (id, _) in &documents {
        batch.put_cf(column(Keyspace::Documents), id, RECORD);
    }
    for (seq, (id, body)) in (written..).zip(pairs) {
        let seq = key(&seq.to_be_bytes());
        batch.put_cf(column(Keyspace::Sequence), &seq, [RECORD.as_slice(), id].concat());
        batch.put_cf(column(Keyspace::Bodies), &seq, body);
    }
    Ok(batch)
}
