//! [`IndexStore`]: reads and writes the shard of one index.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Purpose, Shard, Snapshot,
    StorageError, Version,
};

use super::{Checkpoint, Meta};
use crate::error::{Result, ViewError};
use crate::keys;
use crate::tree::write::Committer;
use crate::tree::{NodeCache, TreeReader};

/// Names commits, so that one whose answer was lost can be found again. Begins at a random number, so that other
/// processes have others.
#[derive(Debug)]
pub(crate) struct Tokens(AtomicU64);

impl Tokens {
    pub(crate) fn new(seed: u64) -> Self {
        Self(AtomicU64::new(seed))
    }

    fn next(&self) -> CommitToken {
        CommitToken(u128::from(self.0.fetch_add(1, Ordering::Relaxed)))
    }
}

/// The shard of an index.
pub(crate) struct IndexStore {
    engine: Arc<dyn Engine>,
    shard: Shard,
    cache: NodeCache,
    tokens: Arc<Tokens>,
}

/// Entries that are removed in one commit when leftovers of a crash are cleared away.
const LEFTOVERS_PER_COMMIT: usize = 10_000;

impl IndexStore {
    pub(crate) fn new(engine: Arc<dyn Engine>, shard: Shard, tokens: Arc<Tokens>) -> Self {
        Self { engine, shard, cache: NodeCache::default(), tokens }
    }

    pub(crate) fn shard(&self) -> Shard {
        self.shard
    }

    pub(crate) fn snapshot(&self) -> Result<Arc<dyn Snapshot>> {
        Ok(self.engine.snapshot(self.shard)?)
    }

    pub(crate) fn tree<'a>(&'a self, snapshot: &'a dyn Snapshot) -> TreeReader<'a> {
        TreeReader { snapshot, cache: &self.cache }
    }

    /// What the index is in `snapshot`; `None` if it must be built from nothing.
    pub(crate) fn meta(&self, snapshot: &dyn Snapshot) -> Result<Option<Meta>> {
        let record = snapshot.get(Keyspace::Catalog, keys::META)?;
        record.map_or(Ok(None), |bytes| Meta::decode(&bytes))
    }

    /// The load that is under way, if it got as far as that.
    pub(crate) fn checkpoint(&self) -> Result<Option<Checkpoint>> {
        let record = self.snapshot()?.get(Keyspace::Catalog, keys::CHECKPOINT)?;
        record.map_or(Ok(None), |bytes| Checkpoint::decode(&bytes))
    }

    /// Makes everything committed so far durable, also to the database.
    pub(crate) fn sync(&self) -> Result<()> {
        Ok(self.engine.sync()?)
    }

    /// Bytes on disk, about.
    pub(crate) fn file_bytes(&self) -> u64 {
        self.engine.approximate_size(self.shard)
    }

    /// Lets the engine give back space.
    pub(crate) fn reclaim(&self) -> Result<()> {
        Ok(self.engine.reclaim(self.shard)?)
    }

    /// Prepares for writing: clears away what a crash left over, or everything if the index cannot be used. The caller
    /// is the only one who writes.
    pub(crate) fn open(&self) -> Result<(Meta, IndexWriter<'_>)> {
        let snapshot = self.snapshot()?;
        let version = snapshot.state()?.version;
        let Some(meta) = self.meta(&*snapshot)? else {
            if version != Version::default() {
                self.engine.drop_shard(self.shard)?;
                self.cache.clear();
            }
            let version = self.snapshot()?.state()?.version;
            return Ok((Meta::new(), IndexWriter { store: self, version }));
        };
        let mut writer = IndexWriter { store: self, version };
        // An index without rows has no nodes at all.
        let is_empty = meta.rows.is_none() && meta.entries.is_none();
        let start = keys::node(if is_empty { 0 } else { meta.next_node });
        let range = KeyRange { start: Some(&start), end: None };
        let mut leftovers = snapshot.scan(Keyspace::IndexNodes, range, Direction::Forward, Expect::All)?;
        let mut batch = Batch::of(Purpose::Room);
        while let Some((key, _)) = leftovers.next()? {
            batch.delete(Keyspace::IndexNodes, key);
            if batch.len() == LEFTOVERS_PER_COMMIT {
                writer.commit(std::mem::replace(&mut batch, Batch::of(Purpose::Room)))?;
            }
        }
        if !batch.is_empty() {
            writer.commit(batch)?;
        }
        Ok((meta, writer))
    }
}

/// Commits to the shard of an index. There is one at a time.
pub(crate) struct IndexWriter<'a> {
    store: &'a IndexStore,
    version: Version,
}

impl IndexWriter<'_> {
    /// Commits a batch after which the index is what `meta` says. A checkpoint was one of what it was before.
    pub(crate) fn publish(&mut self, mut batch: Batch, meta: &Meta) -> Result<()> {
        batch.put(Keyspace::Catalog, keys::META, &meta.encode());
        batch.delete(Keyspace::Catalog, keys::CHECKPOINT);
        self.commit(batch)
    }

    /// Writes down how far a load of the index that `meta` describes is. To be synced by the caller.
    pub(crate) fn note(&mut self, checkpoint: &Checkpoint, meta: &Meta) -> Result<()> {
        let mut batch = Batch::new();
        batch.put(Keyspace::Catalog, keys::META, &meta.encode());
        batch.put(Keyspace::Catalog, keys::CHECKPOINT, &checkpoint.encode());
        self.commit(batch)
    }

    /// Forgets the checkpoint, if there is one.
    pub(crate) fn forget_checkpoint(&mut self) -> Result<()> {
        let mut batch = Batch::of(Purpose::Room);
        batch.delete(Keyspace::Catalog, keys::CHECKPOINT);
        self.commit(batch)
    }

    /// Makes the index one that shows the database before its first change. Numbers of nodes go on, for the sake of those
    /// who read the old ones; these are left over, and cleared away when the index is opened.
    pub(crate) fn begin_anew(&mut self, meta: &Meta) -> Result<()> {
        let mut batch = Batch::new();
        let snapshot = self.store.snapshot()?;
        let range = KeyRange::default();
        let mut entries = snapshot.scan(Keyspace::IndexEntries, range, Direction::Forward, Expect::All)?;
        while let Some((id, _)) = entries.next()? {
            batch.delete(Keyspace::IndexEntries, id);
        }
        self.publish(batch, &Meta { next_node: meta.next_node, ..Meta::new() })
    }

    /// Commits a batch of nodes, unless it is empty.
    pub(crate) fn commit_if_any(&mut self, batch: Batch) -> Result<()> {
        if batch.is_empty() { Ok(()) } else { self.commit(batch) }
    }
}

impl Committer for IndexWriter<'_> {
    /// Not synced: what a crash takes away can be computed again, and later commits do not survive without earlier ones.
    fn commit(&mut self, batch: Batch) -> Result<()> {
        let store = self.store;
        let token = store.tokens.next();
        match store.engine.commit(store.shard, self.version, token, batch, Durability::Buffered)? {
            Outcome::Committed(version) => self.version = version,
            Outcome::Unknown => {
                let state = store.snapshot()?.state()?;
                if state.token != token {
                    return Err(StorageError::Io("the outcome of a commit is unknown".to_owned()).into());
                }
                self.version = state.version;
            }
            Outcome::Conflict(_) => return Err(ViewError::Contended),
        }
        Ok(())
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_storage::memory::MemoryEngine;

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
    fn what_an_interrupted_build_wrote_is_cleared_away() {
        let store = IndexStore::new(Arc::new(MemoryEngine::new()), Shard(5), Arc::new(Tokens::new(0)));
        let (meta, mut writer) = store.open().unwrap();
        assert_eq!(meta, Meta::new());
        write_nodes(&mut writer, 1..30);
        // Without a record there is no index: everything goes.
        let (_, mut writer) = store.open().unwrap();
        assert_eq!(nodes(&store), []);
        write_nodes(&mut writer, 1..4);
        let node = Child { separator: Vec::new(), id: 1, rows: 1, bytes: 1, reductions: Vec::new() };
        let rows = Some(Root { height: 0, node });
        let meta = Meta { update_seq: 9, next_node: 4, rows, ..Meta::new() };
        writer.publish(Batch::new(), &meta).unwrap();
        write_nodes(&mut writer, 4..30_000);
        // With one, the nodes that it does not know of.
        let (found, mut writer) = store.open().unwrap();
        assert_eq!((&found, nodes(&store)), (&meta, vec![1, 2, 3]));
        write_nodes(&mut writer, 4..5);
        // An index that begins anew needs none of them and uses none of their numbers.
        writer.begin_anew(&found).unwrap();
        let (found, _) = store.open().unwrap();
        assert_eq!((found, nodes(&store)), (Meta { next_node: 4, ..Meta::new() }, Vec::new()));
    }

    #[test]
    fn two_writers_are_told_apart() {
        let store = IndexStore::new(Arc::new(MemoryEngine::new()), Shard(5), Arc::new(Tokens::new(0)));
        let (_, mut first) = store.open().unwrap();
        let (_, mut second) = store.open().unwrap();
        write_nodes(&mut first, 1..2);
        assert!(matches!(second.commit(Batch::new()), Err(ViewError::Contended)));
    }
}
