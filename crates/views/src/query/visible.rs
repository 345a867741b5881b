//! [`VisibleRows`]: the rows of an index that a member of a database with per-document access sees. The back-pointers of
//! the visible documents name these rows, so that the cost of a query depends on them, not on the size of the index.
//! [`Selected`] restricts a traversal to them.

use std::ops::{ControlFlow, Range};

use settee_database::MemoryGrant;

use crate::error::{Result, ViewError};
use crate::index::Meta;
use crate::indexer::entries::{EntryReader, for_each_row};
use crate::keys;
use crate::leaf::Leaf;
use crate::tree::TreeReader;
use crate::tree::walk::{RowRange, Subtree, Visit, Visitor};

/// The documents that a member sees.
pub(crate) trait VisibleDocuments {
    /// Calls `each` with batches of the ids of the documents whose rows in this state of an index are visible.
    fn for_each_batch(&self, meta: &Meta, each: &mut dyn FnMut(&[&str]) -> Result<()>) -> Result<()>;

    /// Takes memory of the request, or fails with [`ViewError::Memory`].
    fn take_memory(&self, bytes: usize) -> Result<MemoryGrant>;
}

const KEY_OVERHEAD_BYTES: usize = 32;

/// A leaf contains a visible row with this probability at least, if leaves are read ahead.
const ROWS_PER_VISIBLE_ROW: u64 = 16;

#[derive(Default)]
pub(crate) struct VisibleRows {
    /// Row keys, ascending.
    keys: Vec<Box<[u8]>>,
    memory: Vec<MemoryGrant>,
}

impl VisibleRows {
    pub(crate) fn read(tree: TreeReader<'_>, meta: &Meta, documents: &dyn VisibleDocuments) -> Result<Self> {
        let mut rows = Self::default();
        if meta.rows.is_none() {
            return Ok(rows);
        }
        let entries = EntryReader { tree, root: meta.entries.clone(), load: meta.load };
        documents.for_each_batch(meta, &mut |ids| {
            let before = rows.keys.len();
            for (id, entry) in ids.iter().zip(entries.lookup(ids)?) {
                for_each_row(&entry.unwrap_or_default(), |sort_key, number| {
                    let mut key = Vec::with_capacity(sort_key.len() + id.len() + 2);
                    keys::push_row_key(&mut key, sort_key, id.as_bytes(), number);
                    rows.keys.push(key.into_boxed_slice());
                })?;
            }
            let added = rows.keys[before..].iter().map(|key| key.len() + KEY_OVERHEAD_BYTES).sum();
            rows.memory.push(documents.take_memory(added)?);
            Ok(())
        })?;
        rows.keys.sort_unstable();
        Ok(rows)
    }

    pub(crate) fn count(&self) -> u64 {
        self.keys.len() as u64
    }

    /// Number of visible rows before `bound`.
    pub(crate) fn rank(&self, bound: &[u8]) -> u64 {
        self.position(bound) as u64
    }

    pub(crate) fn has_any_in(&self, range: &RowRange) -> bool {
        self.is_any_between(&range.lower, range.upper.as_deref())
    }

    fn position(&self, bound: &[u8]) -> usize {
        self.keys.partition_point(|key| **key < *bound)
    }

    fn is_any_between(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let first = self.keys.get(self.position(lower));
        first.is_some_and(|first| upper.is_none_or(|upper| **first < *upper))
    }

    /// Returns the visible ones of some rows of a leaf.
    fn of_leaf(&self, leaf: &Leaf, rows: Range<usize>) -> Result<Leaf> {
        let mut visible = Leaf::default();
        let mut from = rows.start;
        let last = leaf.row(rows.end - 1).row_key;
        for key in &self.keys[self.position(leaf.row(rows.start).row_key)..] {
            if **key > *last {
                break;
            }
            from = leaf.rank_from(from, key);
            let row = leaf.row(from);
            if *row.row_key != **key {
                return Err(ViewError::Corrupt("back-pointer without a row"));
            }
            visible.push(row);
        }
        Ok(visible)
    }
}

/// Passes only the visible rows to a visitor, and no subtree.
pub(super) struct Selected<'a> {
    rows: &'a VisibleRows,
    is_dense: bool,
    visitor: &'a mut dyn Visitor,
}

impl<'a> Selected<'a> {
    pub(super) fn new(rows: &'a VisibleRows, meta: &Meta, visitor: &'a mut dyn Visitor) -> Self {
        let all = meta.rows.as_ref().map_or(0, |root| root.node.rows);
        Self { rows, is_dense: rows.count() >= all / ROWS_PER_VISIBLE_ROW, visitor }
    }
}

impl Visitor for Selected<'_> {
    fn subtree(&mut self, subtree: Subtree<'_>) -> Result<Visit> {
        let is_entered = self.rows.is_any_between(subtree.lower, subtree.upper);
        Ok(if is_entered { Visit::Enter } else { Visit::Taken })
    }

    fn rows(&mut self, leaf: &Leaf, rows: Range<usize>) -> Result<ControlFlow<()>> {
        let visible = self.rows.of_leaf(leaf, rows)?;
        match visible.len() {
            0 => Ok(ControlFlow::Continue(())),
            count => self.visitor.rows(&visible, 0..count),
        }
    }

    fn wanted(&self) -> u64 {
        if self.is_dense { self.visitor.wanted() } else { 0 }
    }

    fn end_of_range(&mut self) -> Result<ControlFlow<()>> {
        self.visitor.end_of_range()
    }
}
