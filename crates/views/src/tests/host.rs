//! A database without storage.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_database::{Layout, Waiting};
use settee_design::DesignOptions;
use settee_storage::{Engine, Shard};

use crate::error::{Result, ViewError};
use crate::host::IndexHost;
use crate::index::Signature;
use crate::indexer::source::{ChangeBatch, ChangeSnapshot, Changes, Fill, is_left_out};

#[derive(Clone, Debug)]
pub(super) struct TestDocument {
    pub(super) seq: u64,
    pub(super) json: Option<String>,
}

#[derive(Clone, Debug, Default)]
pub(super) struct Documents {
    pub(super) by_id: BTreeMap<String, TestDocument>,
    pub(super) update_seq: u64,
    purged: Vec<String>,
    purges_forgotten: usize,
}

impl Documents {
    pub(super) fn purged(&self) -> u64 {
        self.purged.len() as u64
    }
}

const FIRST_SHARD: u64 = 100;

pub(super) struct TestHost {
    engine: Arc<dyn Engine>,
    pub(super) documents: Mutex<Arc<Documents>>,
    indexes: Mutex<BTreeMap<Signature, Shard>>,
    records: Mutex<BTreeMap<String, Vec<u8>>>,
    next_shard: AtomicU64,
    layout: Layout,
}

impl TestHost {
    pub(super) fn new(engine: Arc<dyn Engine>) -> Self {
        Self::with_layout(engine, Layout::Whole)
    }

    pub(super) fn with_layout(engine: Arc<dyn Engine>, layout: Layout) -> Self {
        let next_shard = AtomicU64::new(FIRST_SHARD);
        Self {
            engine,
            documents: Mutex::default(),
            indexes: Mutex::default(),
            records: Mutex::default(),
            next_shard,
            layout,
        }
    }

    /// Returns the same database with the index shards of another engine, as after a crash.
    pub(super) fn over(&self, engine: Arc<dyn Engine>) -> Self {
        Self {
            engine,
            documents: Mutex::new(Arc::clone(&self.documents.lock())),
            indexes: Mutex::new(self.indexes.lock().clone()),
            records: Mutex::new(self.records.lock().clone()),
            next_shard: AtomicU64::new(self.next_shard.load(Ordering::Relaxed)),
            layout: self.layout,
        }
    }

    /// `body` is the inside of a JSON object, or `None` for a deletion.
    pub(super) fn put(&self, id: &str, body: Option<&str>) {
        let mut documents = self.documents.lock();
        let documents = Arc::make_mut(&mut documents);
        documents.update_seq += 1;
        let json = body.map(|body| {
            let mut json = b"{\"_id\":".to_vec();
            settee_model::json::write_string(&mut json, id);
            if !body.is_empty() {
                json.push(b',');
            }
            json.extend_from_slice(body.as_bytes());
            json.push(b'}');
            super::text(&json)
        });
        documents.by_id.insert(id.to_owned(), TestDocument { seq: documents.update_seq, json });
    }

    /// Writes a losing revision: the document gets a new sequence and is otherwise unchanged.
    pub(super) fn put_conflict(&self, id: &str) {
        let mut documents = self.documents.lock();
        let documents = Arc::make_mut(&mut documents);
        if let Some(document) = documents.by_id.get_mut(id) {
            documents.update_seq += 1;
            document.seq = documents.update_seq;
        }
    }

    /// A purge of one of several conflicts appears as a change.
    pub(super) fn purge(&self, id: &str, leaves_something: bool) {
        let mut documents = self.documents.lock();
        let documents = Arc::make_mut(&mut documents);
        documents.update_seq += 1;
        documents.purged.push(id.to_owned());
        match documents.by_id.get_mut(id) {
            Some(document) if leaves_something => document.seq = documents.update_seq,
            _ => drop(documents.by_id.remove(id)),
        }
    }

    pub(super) fn forget_purges(&self) {
        let mut documents = self.documents.lock();
        let documents = Arc::make_mut(&mut documents);
        documents.purges_forgotten = documents.purged.len();
    }

    pub(super) fn index_count(&self) -> usize {
        self.indexes.lock().len()
    }

    pub(super) fn shards_given_out(&self) -> impl Iterator<Item = Shard> {
        (FIRST_SHARD..self.next_shard.load(Ordering::Relaxed)).map(Shard)
    }

    pub(super) fn index_shards(&self) -> Vec<Shard> {
        self.indexes.lock().values().copied().collect()
    }
}

impl IndexHost for TestHost {
    fn shard(&self) -> Shard {
        Shard(1)
    }

    fn layout(&self) -> Layout {
        self.layout
    }

    fn name(&self) -> &str {
        "db"
    }

    fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    fn waiting(&self) -> Waiting<'_> {
        Waiting::Allowed
    }

    fn read(&self) -> Result<Box<dyn ChangeSnapshot + '_>> {
        Ok(Box::new(TestSnapshot(Arc::clone(&self.documents.lock()))))
    }

    fn indexes(&self) -> Result<Vec<(Signature, Shard)>> {
        Ok(self.indexes.lock().iter().map(|(signature, shard)| (*signature, *shard)).collect())
    }

    fn add_index(&self, signature: Signature) -> Result<Shard> {
        let mut indexes = self.indexes.lock();
        Ok(*indexes.entry(signature).or_insert_with(|| Shard(self.next_shard.fetch_add(1, Ordering::Relaxed))))
    }

    fn find_index(&self, signature: Signature) -> Result<Option<Shard>> {
        Ok(self.indexes.lock().get(&signature).copied())
    }

    fn read_records(&self, keys: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        let records = self.records.lock();
        Ok(keys.iter().map(|key| records.get(*key).cloned()).collect())
    }

    fn record_keys(&self, prefix: &str) -> Result<Vec<String>> {
        Ok(self.records.lock().keys().filter(|key| key.starts_with(prefix)).cloned().collect())
    }

    fn write_record(&self, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        let mut records = self.records.lock();
        match value {
            Some(value) => records.insert(key.to_owned(), value),
            None => records.remove(key),
        };
        Ok(())
    }

    fn replace_record(&self, key: &str, before: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        let mut records = self.records.lock();
        let is_as_before = records.get(key) == before.as_ref();
        if is_as_before {
            records.insert(key.to_owned(), value);
        }
        Ok(is_as_before)
    }

    fn changes_elsewhere(&self) -> u64 {
        0
    }

    fn replace_index(&self, signature: Signature, shard: Shard) -> Result<()> {
        let new = Shard(self.next_shard.fetch_add(1, Ordering::Relaxed));
        self.indexes.lock().insert(signature, new);
        self.engine.drop_shard(shard)?;
        Ok(())
    }

    fn remove_index(&self, signature: Signature, shard: Shard) -> Result<()> {
        self.engine.drop_shard(shard)?;
        self.indexes.lock().remove(&signature);
        Ok(())
    }
}

struct TestSnapshot(Arc<Documents>);

impl ChangeSnapshot for TestSnapshot {
    fn update_seq(&self) -> Result<u64> {
        Ok(self.0.update_seq)
    }

    fn count_after(&self, since: u64) -> Result<u64> {
        Ok(self.0.by_id.values().filter(|document| document.seq > since).count() as u64)
    }

    fn purge_seq(&self) -> Result<u64> {
        Ok(self.0.purged.len() as u64)
    }

    fn purges_forgotten(&self) -> Result<u64> {
        Ok(self.0.purges_forgotten as u64)
    }

    fn changes(&self, since: u64, purged_since: u64, _expected: u64) -> Result<Box<dyn Changes + '_>> {
        let purged_since = usize::try_from(purged_since).unwrap();
        assert!(since == 0 || purged_since >= self.0.purges_forgotten);
        let purged = self.0.purged.get(purged_since.max(self.0.purges_forgotten)..).unwrap_or_default();
        let gone = purged.iter().filter(|id| !self.0.by_id.contains_key(*id)).cloned().collect::<Vec<_>>();
        let changed = self.0.by_id.iter().filter(|(_, document)| document.seq > since);
        let mut changed: Vec<_> = changed.map(|(id, document)| (document.seq, id.as_str(), document)).collect();
        changed.sort_unstable_by_key(|(seq, ..)| *seq);
        Ok(Box::new(TestChanges(gone.into_iter(), since, changed.into_iter())))
    }
}

struct TestChanges<'a>(std::vec::IntoIter<String>, u64, std::vec::IntoIter<(u64, &'a str, &'a TestDocument)>);

impl Changes for TestChanges<'_> {
    fn fill(&mut self, batch: &mut ChangeBatch, options: DesignOptions) -> Result<Fill> {
        while !batch.is_full() {
            if let Some(id) = self.0.next() {
                batch.count(self.1);
                batch.removed.push(id);
                continue;
            }
            let Some((seq, id, document)) = self.2.next() else {
                return Ok(Fill::End);
            };
            batch.count(seq);
            match &document.json {
                _ if is_left_out(id, options) => {}
                None => batch.removed.push(id.to_owned()),
                Some(json) => batch.documents.push_with::<ViewError>(seq, id, |out| {
                    out.extend_from_slice(json.as_bytes());
                    Ok(())
                })?,
            }
        }
        Ok(Fill::Full)
    }
}
