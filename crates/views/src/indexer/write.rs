//! Brings the runs of a pass into an index: [`load`] writes its trees anew, [`update`] changes the leaves that the runs
//! touch. Either way the index changes in the last commit, with everything before it unseen.

use std::collections::{HashSet, VecDeque};
use std::ops::ControlFlow;

use settee_storage::{Batch, Keyspace};

use super::entries::{ChangedEntries, write_change};
use super::merge::{Merge, Ranked, Source};
use super::sorter::Sorter;
use crate::error::Result;
use crate::index::{IndexStore, IndexWriter, Meta};
use crate::keys;
use crate::leaf::Leaf;
use crate::reduce::Aggregate;
use crate::tree::apply::{Change, apply};
use crate::tree::load::Loader;
use crate::tree::write::NodeWriter;
use crate::tree::{Root, TreeReader, together};

/// An index that is written.
pub(super) struct Writing<'a> {
    pub(super) store: &'a IndexStore,
    pub(super) writer: IndexWriter<'a>,
    /// The index as it is now, in the engine as well.
    pub(super) meta: Meta,
    pub(super) aggregates: Vec<Aggregate>,
    /// The runs that the last checkpoint names.
    pub(super) noted: HashSet<u64>,
}

/// The changes that a pass found for one index.
pub(super) struct Found {
    pub(super) rows: Vec<Ranked<'static>>,
    pub(super) entries: Vec<Ranked<'static>>,
    /// The bytes of the entries.
    pub(super) entry_bytes: u64,
    /// The state that the index shows when it has all that.
    pub(super) reached: Reached,
}

/// A state of the database.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reached {
    pub(super) update_seq: u64,
    pub(super) purge_seq: u64,
}

impl Reached {
    /// The same for an index that was ahead of the others of its pass.
    pub(super) fn not_before(self, meta: &Meta) -> Self {
        Self { update_seq: self.update_seq.max(meta.update_seq), ..self }
    }
}

/// The ranks of sources: what was found counts more than what is stored.
const CHANGED_ENTRIES: u32 = 1;
const STORED: u32 = 2;

/// Writes both trees anew, from what was found and what is stored.
pub(super) fn load(writing: &mut Writing<'_>, found: Found) -> Result<()> {
    let Writing { store, writer, meta, aggregates, .. } = writing;
    let snapshot = store.snapshot()?;
    let tree = store.tree(&*snapshot);
    let first_node = meta.next_node;
    let mut nodes = NodeWriter::new(writer, first_node);

    let mut sources = found.rows;
    if let Some(root) = &meta.rows {
        sources.push(Ranked::new(StoredRows::open(tree, root)?, STORED));
    }
    let rows = load_tree(sources, aggregates, &mut nodes)?;

    let mut sources = found.entries;
    sources.push(Ranked::new(ChangedEntries::open(&*snapshot, meta.load)?, CHANGED_ENTRIES));
    if let Some(root) = &meta.entries {
        sources.push(Ranked::new(StoredRows::open(tree, root)?, STORED));
    }
    let entries = load_tree(sources, &mut [], &mut nodes)?;

    let (batch, next_node) = nodes.finish();
    let Reached { update_seq, purge_seq } = found.reached.not_before(meta);
    let (load, reduces) = (meta.load + 1, meta.reduces.clone());
    let loaded = Meta { update_seq, purge_seq, first_node, next_node, load, reduces, rows, entries };
    let has_replaced = meta.rows.is_some() || meta.entries.is_some();
    writer.publish(batch, &loaded)?;
    *meta = loaded;
    // Not in the same commit, which would be as large as the index was. The next who opens the index goes on if a crash
    // comes between.
    if !has_replaced {
        return Ok(());
    }
    writer.clear_nodes(&*snapshot, 0..first_node)?;
    writer.clear_entries(&*snapshot, load)
}

fn load_tree(
    sources: Vec<Ranked<'_>>,
    aggregates: &mut [Aggregate],
    nodes: &mut NodeWriter<'_>,
) -> Result<Option<Root>> {
    let mut loader = Loader::new(nodes, aggregates);
    Merge::new(sources).for_each(|change| {
        if let Some(row) = change.row {
            loader.push(row)?;
        }
        Ok(ControlFlow::Continue(()))
    })?;
    loader.finish()
}

/// The rows of a stored tree.
struct StoredRows<'a> {
    tree: TreeReader<'a>,
    /// The leaves that were not read yet, and the bytes of their rows.
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
                let count = together(self.leaves.iter().map(|(_, bytes)| *bytes)).max(1).min(self.leaves.len());
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

/// Changes are applied to the tree in portions of about this size.
const PORTION_BYTES: usize = if cfg!(test) { 20 << 10 } else { 8 << 20 };

/// Changes the leaves that have rows among what was found.
pub(super) fn update(writing: &mut Writing<'_>, found: Found) -> Result<()> {
    let Writing { store, writer, meta, aggregates, .. } = writing;
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
    Merge::new(found.rows).for_each(|change| {
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
    Merge::new(found.entries).for_each(|change| {
        write_change(&mut batch, change, meta.load, is_loaded);
        Ok(ControlFlow::Continue(()))
    })?;
    let Reached { update_seq, purge_seq } = found.reached.not_before(meta);
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
    /// Nodes that nothing refers to when the index has changed.
    obsolete: Vec<u64>,
}

impl Updating<'_, '_> {
    /// Applies a portion of changes. `batch` holds new nodes of those before, which are read once it is committed; the answer
    /// holds new nodes again.
    fn apply(&mut self, portion: &Sorter, mut batch: Batch) -> Result<Batch> {
        let changes = portion.changes().collect::<Vec<Change<'_>>>();
        let mut left = &changes[..];
        while !left.is_empty() {
            self.writer.commit_if_any(batch)?;
            let snapshot = self.store.snapshot()?;
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
