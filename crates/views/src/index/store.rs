//! [`IndexStore`] reads and writes the shard of one index.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, MAX_HEAD_BYTES, Purpose, Request,
    Shard, ShardState, Snapshot, StorageError, commit_once,
};

use super::{Checkpoint, Leftovers, Meta};
use crate::error::{Result, ViewError};
use crate::keys;
use crate::tree::write::Committer;
use crate::tree::{Inner, NodeCache, TreeReader};

/// Generator of commit tokens. The start must be random so that the tokens of different processes differ.
#[derive(Debug)]
pub struct Tokens(AtomicU64);

impl Tokens {
    /// Creates a generator that starts at `seed`, which must be random.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    /// Returns a new token.
    pub fn next(&self) -> CommitToken {
        CommitToken(u128::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

pub(crate) struct IndexStore {
    engine: Arc<dyn Engine>,
    shard: Shard,
    cache: Arc<NodeCache>,
    tokens: Arc<Tokens>,
}

const LEFTOVERS_PER_COMMIT: usize = if cfg!(test) { 50 } else { 10_000 };

impl IndexStore {
    pub(crate) fn new(engine: Arc<dyn Engine>, shard: Shard, tokens: Arc<Tokens>, cache: Arc<NodeCache>) -> Self {
        Self { engine, shard, cache, tokens }
    }

    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    pub(crate) fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(self.engine.snapshot(self.shard)?)
    }

    pub(crate) fn tree<'a>(&'a self, snapshot: &'a dyn Snapshot) -> TreeReader<'a> {
        TreeReader { snapshot, shard: self.shard, cache: &self.cache }
    }

    /// Returns `None` if the index must be rebuilt, and [`StorageError::Dropped`] if the index has another shard.
    pub(crate) fn meta(&self, snapshot: &dyn Snapshot) -> Result<Option<Meta>> {
        let requests = [Request::Head, Request::Get(Keyspace::Catalog, keys::META)];
        let replies: [_; 2] = snapshot.read(&requests)?.try_into().map_err(|_| ViewError::Corrupt("replies"))?;
        let [head, entry] = replies;
        decode_meta(head.into_value()?, entry.into_value()?)
    }

    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        match Record::read(&*self.snapshot()?) {
            Ok(record) => Ok(record.checkpoint),
            Err(ViewError::Storage(StorageError::Dropped)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    pub(crate) fn file_bytes(&self) -> u64 {
        self.engine.approximate_size(self.shard)
    }

    pub(crate) fn reclaim(&self) -> Result<()> {
        Ok(self.engine.reclaim(self.shard)?)
    }

    /// Removes leftovers of crashes and of builders that lost their claim. New nodes get numbers from `first_number`
    /// on. Returns `None` if the index must be rebuilt in another shard.
    pub(crate) fn open(&self, first_number: u64) -> Result<Option<Opened<'_>>> {
        let snapshot = self.snapshot()?;
        let record = match Record::read(&*snapshot) {
            Ok(record) => record,
            Err(ViewError::Storage(StorageError::Dropped)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let (state, has_entry, recorded) = (record.state, record.has_entry, record.meta.clone());
        let mut writer = IndexWriter { store: self, state, has_entry, recorded, written: Vec::new() };
        let numbered = |meta: Meta| Meta { next_node: meta.next_node.max(first_number), ..meta };
        let Some(meta) = record.meta else {
            let is_new = state == ShardState::default();
            return Ok(is_new.then(|| Opened { meta: numbered(Meta::new()), writer, checkpoint: None }));
        };
        let is_empty = meta.rows.is_none() && meta.entries.is_none();
        if meta.leftovers.is_writing {
            // A single process reuses the numbers of the removed nodes.
            self.cache.forget(self.shard);
            writer.clear_nodes(&*snapshot, if is_empty { 0 } else { meta.next_node }..u64::MAX)?;
        }
        let leftovers = Leftovers { is_writing: false, ..meta.leftovers };
        let meta = writer.clear_replaced(&*snapshot, Meta { leftovers, ..meta })?;
        Ok(Some(Opened { meta: numbered(meta), writer, checkpoint: record.checkpoint }))
    }
}

pub(crate) struct Opened<'a> {
    pub(crate) meta: Meta,
    pub(crate) writer: IndexWriter<'a>,
    pub(crate) checkpoint: Option<Checkpoint>,
}

pub(crate) struct Record {
    state: ShardState,
    /// `None` if the index must be rebuilt.
    pub(crate) meta: Option<Meta>,
    has_entry: bool,
    checkpoint: Option<Checkpoint>,
}

impl Record {
    pub(crate) fn read(snapshot: &dyn Snapshot) -> Result<Self> {
        let requests = [
            Request::State,
            Request::Head,
            Request::Get(Keyspace::Catalog, keys::META),
            Request::Get(Keyspace::Catalog, keys::CHECKPOINT),
        ];
        let replies: [_; 4] = snapshot.read(&requests)?.try_into().map_err(|_| ViewError::Corrupt("replies"))?;
        let [state, head, entry, checkpoint] = replies;
        let (head, entry) = (head.into_value()?, entry.into_value()?);
        let has_entry = entry.is_some();
        let checkpoint = checkpoint.into_value()?;
        Ok(Self {
            state: state.into_state()?,
            meta: decode_meta(head, entry)?,
            has_entry,
            checkpoint: checkpoint.map_or(Ok(None), |bytes| Checkpoint::decode(&bytes))?,
        })
    }
}

/// The head has priority; an empty head refers to the entry.
fn decode_meta(head: Option<Vec<u8>>, entry: Option<Vec<u8>>) -> Result<Option<Meta>> {
    let record = head.filter(|head| !head.is_empty()).or(entry);
    record.map_or(Ok(None), |bytes| Meta::decode(&bytes))
}

/// Commits to the shard of an index. At most one writer may exist.
pub(crate) struct IndexWriter<'a> {
    store: &'a IndexStore,
    /// The commit that the next one follows.
    state: ShardState,
    has_entry: bool,
    recorded: Option<Meta>,
    written: Vec<(u64, Inner)>,
}

impl IndexWriter<'_> {
    /// Returns a snapshot of the state that the next commit replaces. Fails if another process has committed since: the
    /// nodes of the tree that this writer has read may then be missing.
    pub(crate) fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        let snapshot = self.store.snapshot()?;
        if snapshot.state()? == self.state { Ok(snapshot) } else { Err(ViewError::Contended) }
    }

    /// Commits a batch and the state `meta` atomically. Removes the checkpoint of the previous state.
    pub(crate) fn publish(&mut self, mut batch: Batch, meta: &Meta) -> Result<()> {
        self.put(&mut batch, meta);
        batch.delete(Keyspace::Catalog, keys::CHECKPOINT);
        self.apply(batch)
    }

    /// Stores a checkpoint of a load. The caller must sync.
    pub(crate) fn write_checkpoint(&mut self, checkpoint: &Checkpoint, meta: &Meta) -> Result<()> {
        let mut batch = Batch::new();
        self.put(&mut batch, meta);
        batch.put(Keyspace::Catalog, keys::CHECKPOINT, &checkpoint.encode());
        self.apply(batch)
    }

    fn put(&mut self, batch: &mut Batch, meta: &Meta) {
        let record = meta.encode();
        if record.len() > MAX_HEAD_BYTES {
            batch.set_head(&[]);
            batch.put(Keyspace::Catalog, keys::META, &record);
            self.has_entry = true;
        } else {
            batch.set_head(&record);
            if std::mem::take(&mut self.has_entry) {
                batch.delete(Keyspace::Catalog, keys::META);
            }
        }
        self.recorded = Some(meta.clone());
    }

    fn apply(&mut self, batch: Batch) -> Result<()> {
        let store = self.store;
        let token = store.tokens.next();
        let engine = store.engine.as_ref();
        let committed = commit_once(engine, store.shard, self.state.version, token, batch, Durability::Buffered)?;
        // Only another process can have committed at this version.
        self.state = ShardState { version: committed.ok_or(ViewError::Contended)?, token };
        self.written.drain(..).for_each(|(id, node)| store.cache.keep(store.shard, id, node));
        Ok(())
    }

    /// Removes the nodes and entries of replaced trees, in several commits, and records this.
    pub(crate) fn clear_replaced(&mut self, snapshot: &dyn Snapshot, meta: Meta) -> Result<Meta> {
        let Leftovers { from_node, from_load, .. } = meta.leftovers;
        if from_node == meta.first_node && from_load == meta.load {
            return Ok(meta);
        }
        self.clear_nodes(snapshot, from_node..meta.first_node)?;
        self.clear_entries(snapshot, from_load..meta.load)?;
        let leftovers = Leftovers { from_node: meta.first_node, from_load: meta.load, ..meta.leftovers };
        let meta = Meta { leftovers, ..meta };
        let mut batch = Batch::of(Purpose::Room);
        self.put(&mut batch, &meta);
        self.apply(batch)?;
        Ok(meta)
    }

    fn clear_nodes(&mut self, snapshot: &dyn Snapshot, nodes: Range<u64>) -> Result<()> {
        let (start, end) = (keys::node(nodes.start), keys::node(nodes.end));
        self.clear(snapshot, Keyspace::IndexNodes, KeyRange { start: Some(&start), end: Some(&end) })
    }

    fn clear_entries(&mut self, snapshot: &dyn Snapshot, loads: Range<u64>) -> Result<()> {
        let (start, end) = (keys::entry_prefix(loads.start), keys::entry_prefix(loads.end));
        self.clear(snapshot, Keyspace::IndexEntries, KeyRange { start: Some(&start), end: Some(&end) })
    }

    fn clear(&mut self, snapshot: &dyn Snapshot, space: Keyspace, range: KeyRange<'_>) -> Result<()> {
        if range.start >= range.end {
            return Ok(());
        }
        let mut entries = snapshot.scan(space, range, Direction::Forward, Expect::All)?;
        let mut batch = Batch::of(Purpose::Room);
        while let Some((key, _)) = entries.next()? {
            batch.delete(space, key);
            if batch.len() == LEFTOVERS_PER_COMMIT {
                self.apply(std::mem::replace(&mut batch, Batch::of(Purpose::Room)))?;
            }
        }
        if batch.is_empty() { Ok(()) } else { self.apply(batch) }
    }

    pub(crate) fn forget_checkpoint(&mut self) -> Result<()> {
        let mut batch = Batch::of(Purpose::Room);
        batch.delete(Keyspace::Catalog, keys::CHECKPOINT);
        self.apply(batch)
    }

    pub(crate) fn commit_if_any(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }
}

impl Committer for IndexWriter<'_> {
    /// Commits nodes without references, and records that such nodes exist. Not synced: nodes lost in a crash are
    /// computed again.
    fn commit(&mut self, mut batch: Batch) -> Result<()> {
        if let Some(meta) = self.recorded.as_ref().filter(|meta| !meta.leftovers.is_writing).cloned() {
            let leftovers = Leftovers { is_writing: true, ..meta.leftovers };
            self.put(&mut batch, &Meta { leftovers, ..meta });
        }
        self.apply(batch)
    }

    fn written(&mut self, id: u64, node: Inner) {
        self.written.push((id, node));
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_storage::counting::CountingEngine;
    use settee_storage_testing::{Store, engine};

    use super::*;
    use crate::tree::{Child, Root};

    fn nodes(store: &IndexStore) -> Vec<u64> {
        let snapshot = store.snapshot().unwrap();
        let mut cursor =
            snapshot.scan(Keyspace::IndexNodes, KeyRange::default(), Direction::Forward, Expect::All).unwrap();
        let mut nodes = Vec::new();
        while let Some((key, _)) = cursor.next().unwrap() {
            nodes.extend(keys::node_id(key));
        }
        nodes
    }

    fn write_nodes(writer: &mut IndexWriter<'_>, ids: std::ops::Range<u64>) {
        let mut batch = Batch::new();
        ids.for_each(|id| batch.put(Keyspace::IndexNodes, &keys::node(id), b"x"));
        writer.commit(batch).unwrap();
    }

    #[test]
    fn files_of_an_interrupted_build_are_removed() {
        let store = IndexStore::new(engine(), Shard(5), Arc::new(Tokens::new(0)), Arc::default());
        let Opened { meta, mut writer, .. } = store.open(0).unwrap().unwrap();
        assert_eq!(meta, Meta::new());
        write_nodes(&mut writer, 1..30);
        assert!(store.open(0).unwrap().is_none());
        let store = IndexStore::new(Arc::clone(&store.engine), Shard(6), Arc::new(Tokens::new(9)), Arc::default());
        let Opened { mut writer, .. } = store.open(0).unwrap().unwrap();
        write_nodes(&mut writer, 1..4);
        let node = Child { separator: Vec::new(), id: 1, rows: 1, bytes: 1, reductions: Vec::new() };
        let rows = Some(Root { height: 0, node });
        let meta = Meta { update_seq: 9, next_node: 4, rows, ..Meta::new() };
        writer.publish(Batch::new(), &meta).unwrap();
        write_nodes(&mut writer, 4..30_000);
        let Opened { meta: found, mut writer, .. } = store.open(0).unwrap().unwrap();
        assert_eq!((&found, nodes(&store)), (&meta, vec![1, 2, 3]));
        for reduces in [vec![], vec![Arc::from("x".repeat(2000))], vec![]] {
            let meta = Meta { reduces, ..meta.clone() };
            writer.publish(Batch::new(), &meta).unwrap();
            let opened = store.open(0).unwrap().unwrap();
            assert_eq!(opened.meta, meta);
            let entry = store.snapshot().unwrap().get(Keyspace::Catalog, keys::META).unwrap();
            assert_eq!(entry.is_some(), !meta.reduces.is_empty());
            writer = opened.writer;
        }
        store.engine.drop_shard(store.shard).unwrap();
        assert!(store.open(0).unwrap().is_none() && store.checkpoint().unwrap().is_none());
        let meta = store.meta(&*store.snapshot().unwrap());
        assert!(matches!(meta, Err(ViewError::Storage(StorageError::Dropped))));
    }

    /// A scan for the first or the last key would skip the deleted keys of replaced trees.
    #[test]
    fn opening_an_index_scans_only_where_something_may_be_left() {
        let counting = Arc::new(CountingEngine::new(engine()));
        let store = IndexStore::new(Arc::clone(&counting) as _, Shard(5), Arc::new(Tokens::new(0)), Arc::default());
        let opened = |pages: u64, commits: u64| {
            let before = counting.calls();
            let opened = store.open(0).unwrap().unwrap();
            let calls = counting.calls().since(before);
            assert_eq!((calls.reads, calls.pages, calls.commits), (1, pages, commits));
            opened
        };
        let Opened { mut writer, .. } = opened(0, 0);
        write_nodes(&mut writer, 1..4);
        let node = Child { separator: Vec::new(), id: 1, rows: 1, bytes: 1, reductions: Vec::new() };
        let rows = Some(Root { height: 0, node });
        let meta =
            Meta { next_node: 4, rows, leftovers: Leftovers { from_node: 0, ..Leftovers::default() }, ..Meta::new() };
        writer.publish(Batch::new(), &meta).unwrap();
        let Opened { meta, mut writer, .. } = opened(0, 0);
        write_nodes(&mut writer, 4..5);
        writer.publish(Batch::new(), &Meta { next_node: 5, ..meta }).unwrap();
        let Opened { mut writer, .. } = opened(0, 0);
        write_nodes(&mut writer, 5..9);
        let Opened { meta, mut writer, .. } = opened(1, 1);
        write_nodes(&mut writer, 5..7);
        writer.publish(Batch::new(), &Meta { first_node: 5, next_node: 7, load: 1, ..meta }).unwrap();
        let Opened { meta, .. } = opened(2, 2);
        assert_eq!((nodes(&store), meta.leftovers.from_node, meta.leftovers.from_load), (vec![5, 6], 5, 1));
        opened(0, 0);
    }

    #[test]
    fn two_writers_are_distinguished() {
        let store = IndexStore::new(engine(), Shard(5), Arc::new(Tokens::new(0)), Arc::default());
        let Opened { writer: mut first, .. } = store.open(0).unwrap().unwrap();
        let Opened { writer: mut second, .. } = store.open(0).unwrap().unwrap();
        write_nodes(&mut first, 1..2);
        assert!(first.snapshot().is_ok());
        assert!(matches!(second.snapshot(), Err(ViewError::Contended)));
        assert!(matches!(second.commit(Batch::new()), Err(ViewError::Contended)));
    }

    #[test]
    fn nodes_of_another_claim_have_other_numbers() {
        let store = |engine, seed| IndexStore::new(engine, Shard(5), Arc::new(Tokens::new(seed)), Arc::default());
        let [late, next] = Store::new().two();
        let (late, next) = (store(late, 1 << 32), store(next, 2 << 32));
        let Opened { meta, mut writer, .. } = late.open(0).unwrap().unwrap();
        let first = meta.next_node;
        writer.publish(Batch::new(), &Meta { next_node: first, ..Meta::new() }).unwrap();
        write_nodes(&mut writer, first..first + 30);
        // Unpublished nodes of this process are removed, and their numbers are not reused.
        let Opened { meta, writer: mut other, .. } = next.open(1 << 24).unwrap().unwrap();
        assert!(nodes(&next).is_empty() && meta.next_node > first + 30);
        write_nodes(&mut other, meta.next_node..meta.next_node + 3);
        assert!(matches!(writer.commit(Batch::new()), Err(ViewError::Contended)));
        assert_eq!(nodes(&late).len(), 3);
    }
}
