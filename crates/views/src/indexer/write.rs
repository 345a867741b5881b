//! Writes the runs of a pass into an index: [`load`] rewrites its trees, [`update`] modifies the affected leaves.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use settee_storage::{Batch, Keyspace};

use super::entries::{ChangedEntries, for_each_row, write_change};
use super::merge::{Merge, Ranked, Source};
use super::open;
use super::runs::RunDirectory;
use super::sorter::{Runs, Sorter, Space};
use crate::error::Result;
use crate::index::{IndexStore, IndexWriter, Leftovers, Meta};
use crate::keys;
use crate::leaf::Leaf;
use crate::reduce::Aggregate;
use crate::tree::apply::{Change, apply};
use crate::tree::load::Loader;
use crate::tree::write::NodeWriter;
use crate::tree::{Root, TreeReader, leaves_per_round_trip};

pub(super) struct WritableIndex<'a> {
    pub(super) store: &'a IndexStore,
    pub(super) writer: IndexWriter<'a>,
    pub(super) meta: Meta,
    pub(super) aggregates: Vec<Aggregate>,
    pub(super) checkpointed: HashSet<u64>,
}

pub(super) struct MappedRuns {
    pub(super) rows: Vec<Ranked<'static>>,
    pub(super) entries: Vec<Ranked<'static>>,
    pub(super) entry_bytes: u64,
    pub(super) reached: PassPosition,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PassPosition {
    pub(super) update_seq: u64,
    pub(super) purge_seq: u64,
}

impl PassPosition {
    pub(super) fn not_before(self, meta: &Meta) -> Self {
        Self { update_seq: self.update_seq.max(meta.update_seq), ..self }
    }
}

/// New changes have priority over stored entries.
const CHANGED_ENTRIES: u32 = 1;
const STORED: u32 = 2;

/// Rewrites both trees from the changes and the stored trees. Merging the back-pointers first finds the former rows of
/// changed documents. At most `memory_bytes` of their removals are in memory; others are spilled to `directory`.
pub(super) fn load(
    writable: &mut WritableIndex<'_>,
    mapped: MappedRuns,
    directory: &RunDirectory,
    memory_bytes: usize,
) -> Result<()> {
    let WritableIndex { store, writer, meta, aggregates, .. } = writable;
    let snapshot = writer.snapshot()?;
    let tree = store.tree(&*snapshot);
    let first_node = meta.next_node;
    let mut nodes = NodeWriter::new(writer, first_node);

    let mut sources = mapped.entries;
    sources.push(Ranked::new(ChangedEntries::open(&*snapshot, meta.load)?, CHANGED_ENTRIES));
    if let Some(root) = &meta.entries {
        sources.push(Ranked::new(StoredRows::open(tree, root)?, STORED));
    }
    let mut replaced = Runs::default();
    let entries = load_entries(sources, &mut nodes, |row_key, entry| {
        let removed = &mut replaced.current;
        let id = keys::row_id(row_key, 0);
        for_each_row(entry, |sort_key, number| {
            removed.remove(|out| keys::push_row_key(out, sort_key, id.as_bytes(), number));
        })?;
        if replaced.size_bytes() > memory_bytes { replaced.spill(directory) } else { Ok(()) }
    })?;
    replaced.seal(&mut Space::default());

    let mut sources = mapped.rows;
    sources.extend(open(std::iter::once(replaced.take()), directory)?);
    if let Some(root) = &meta.rows {
        sources.push(Ranked::new(StoredRows::open(tree, root)?, STORED));
    }
    let mut loader = Loader::new(&mut nodes, aggregates);
    Merge::new(sources).for_each(|change| {
        change.row.map_or(Ok(()), |row| loader.push(row))?;
        Ok(ControlFlow::Continue(()))
    })?;
    let rows = loader.finish()?;

    let (batch, next_node) = nodes.finish();
    let PassPosition { update_seq, purge_seq } = mapped.reached.not_before(meta);
    let (load, reduces) = (meta.load + 1, meta.reduces.clone());
    let is_new = meta.load == 0 && meta.rows.is_none() && meta.entries.is_none();
    let (from_node, from_load) = if is_new { (first_node, load) } else { (meta.first_node, meta.load) };
    let leftovers = Leftovers { from_node, from_load, is_writing: false };
    let loaded = Meta { update_seq, purge_seq, first_node, next_node, load, reduces, rows, entries, leftovers };
    writer.publish(batch, &loaded)?;
    // Removing the old trees in the same commit would be as large as the index. The next opening continues it.
    *meta = writer.clear_replaced(&*snapshot, loaded)?;
    Ok(())
}

fn load_entries(
    sources: Vec<Ranked<'_>>,
    nodes: &mut NodeWriter<'_>,
    mut replaced: impl FnMut(&[u8], &[u8]) -> Result<()>,
) -> Result<Option<Root>> {
    let mut loader = Loader::new(nodes, &mut []);
    // True until the stored entry of a changed document is merged. Only the first of several entries is valid.
    let mut has_changed = false;
    Merge::new(sources).for_all(|change, is_first, rank| {
        if is_first {
            has_changed = rank < CHANGED_ENTRIES;
            change.row.map_or(Ok(()), |row| loader.push(row))?;
        } else if has_changed && rank >= CHANGED_ENTRIES {
            has_changed = false;
            change.row.map_or(Ok(()), |row| replaced(change.row_key, row.value))?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    loader.finish()
}

struct StoredRows<'a> {
    tree: TreeReader<'a>,
    leaves: VecDeque<(u64, u64)>,
    ahead: std::vec::IntoIter<Leaf>,
    leaf: Leaf,
    at: usize,
}

impl<'a> StoredRows<'a> {
    fn open(tree: TreeReader<'a>, root: &Root) -> Result<Self> {
        let (leaves, ahead) = (tree.leaf_ids(root)?.into(), Vec::new().into_iter());
        let mut rows = Self { tree, leaves, ahead, leaf: Leaf::default(), at: 0 };
        rows.skip_empty()?;
        Ok(rows)
    }

    fn skip_empty(&mut self) -> Result<()> {
        while self.at == self.leaf.len() {
            if self.ahead.len() == 0 {
                let count =
                    leaves_per_round_trip(self.leaves.iter().map(|(_, bytes)| *bytes)).max(1).min(self.leaves.len());
                let ids: Vec<u64> = self.leaves.drain(..count).map(|(id, _)| id).collect();
                self.ahead = self.tree.leaves(&ids)?.into_iter();
            }
            let Some(leaf) = self.ahead.next() else { return Ok(()) };
            (self.leaf, self.at) = (leaf, 0);
        }
        Ok(())
    }
}

impl Source for StoredRows<'_> {
    fn row_key(&self) -> Option<&[u8]> {
        (self.at < self.leaf.len()).then(|| self.leaf.row(self.at).row_key)
    }

    fn change(&self) -> Result<Change<'_>> {
        let row = self.leaf.row(self.at);
        Ok(Change { row_key: row.row_key, row: Some(row) })
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        self.skip_empty()
    }
}

const PORTION_BYTES: usize = if cfg!(test) { 20 << 10 } else { 8 << 20 };

pub(super) fn update(writable: &mut WritableIndex<'_>, mapped: MappedRuns) -> Result<()> {
    let WritableIndex { store, writer, meta, aggregates, .. } = writable;
    let mut updating = Updating {
        store,
        writer,
        aggregates,
        rows: meta.rows.clone(),
        next_node: meta.next_node,
        obsolete: Vec::new(),
    };
    let mut batch = Batch::new();
    let mut portion = Sorter::default();
    Merge::new(mapped.rows).for_each(|change| {
        portion.push(change);
        if portion.size_bytes() >= PORTION_BYTES {
            batch = updating.apply(&portion, std::mem::take(&mut batch))?;
            portion.clear();
        }
        Ok(ControlFlow::Continue(()))
    })?;
    if !portion.is_empty() {
        batch = updating.apply(&portion, batch)?;
    }
    let Updating { rows, next_node, obsolete, .. } = updating;
    obsolete.iter().for_each(|&id| batch.delete(Keyspace::IndexNodes, &keys::node(id)));
    let is_loaded = meta.entries.is_some();
    Merge::new(mapped.entries).for_each(|change| {
        write_change(&mut batch, change, meta.load, is_loaded);
        Ok(ControlFlow::Continue(()))
    })?;
    let PassPosition { update_seq, purge_seq } = mapped.reached.not_before(meta);
    let updated = Meta { update_seq, purge_seq, next_node, rows, ..meta.clone() };
    writer.publish(batch, &updated)?;
    *meta = updated;
    Ok(())
}

struct Updating<'a, 'w> {
    store: &'a IndexStore,
    writer: &'a mut IndexWriter<'w>,
    aggregates: &'a mut [Aggregate],
    rows: Option<Root>,
    next_node: u64,
    obsolete: Vec<u64>,
}

impl Updating<'_, '_> {
    /// Applies a portion of changes, after a commit of `batch`, the new nodes of the previous portion. Returns the
    /// uncommitted nodes.
    fn apply(&mut self, portion: &Sorter, mut batch: Batch) -> Result<Batch> {
        let changes = portion.changes().collect::<Vec<Change<'_>>>();
        let mut left = &changes[..];
        while !left.is_empty() {
            self.writer.commit_if_any(batch)?;
            let snapshot = self.writer.snapshot()?;
            let tree = self.store.tree(&*snapshot);
            let mut nodes = NodeWriter::new(self.writer, self.next_node);
            let applied = apply(tree, self.rows.as_ref(), left, self.aggregates, &mut nodes)?;
            (batch, self.next_node) = nodes.finish();
            self.rows = applied.root;
            self.obsolete.extend(applied.obsolete);
            left = &left[applied.changes..];
        }
        Ok(batch)
    }
}
