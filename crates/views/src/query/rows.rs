//! [`Rows`] returns the rows of a map function.

use std::ops::{ControlFlow, Range};

use super::{MapRow, Order, RowSink};
use crate::error::Result;
use crate::leaf::{Leaf, Row};
use crate::tree::walk::{Subtree, Visit, Visitor};

/// Skips `skip` rows, by whole subtrees if possible, and returns `limit` rows, which must not be 0. Rows with the same
/// document and key are in ascending order of value, also in descending order of keys.
pub(super) struct Rows<'a> {
    skip: u64,
    limit: u64,
    order: Order,
    sink: &'a mut dyn RowSink,
    /// Rows from the start of a leaf in a descending traversal, which follow those at the end of the previous leaf.
    pending: Vec<PendingRow>,
}

struct PendingRow {
    row_key: Vec<u8>,
    sort_len: usize,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl PendingRow {
    fn of(row: Row<'_>) -> Self {
        let Row { row_key, sort_len, key, value } = row;
        Self { row_key: row_key.to_vec(), sort_len, key: key.to_vec(), value: value.to_vec() }
    }

    fn row(&self) -> Row<'_> {
        Row { row_key: &self.row_key, sort_len: self.sort_len, key: &self.key, value: &self.value }
    }
}

impl<'a> Rows<'a> {
    pub(super) fn new(skip: u64, limit: u64, order: Order, sink: &'a mut dyn RowSink) -> Self {
        Self { skip, limit, order, sink, pending: Vec::new() }
    }

    fn show(&mut self, row: Row<'_>) -> ControlFlow<()> {
        if self.skip > 0 {
            self.skip -= 1;
            return ControlFlow::Continue(());
        }
        let flow = self.sink.map_row(MapRow { key: row.key, id: &row.id(), value: row.value });
        self.limit -= 1;
        if self.limit == 0 { ControlFlow::Break(()) } else { flow }
    }

    fn ascending(&mut self, leaf: &Leaf, rows: Range<usize>) -> ControlFlow<()> {
        let skipped = usize::try_from(self.skip).map_or(rows.len(), |skip| skip.min(rows.len()));
        self.skip -= skipped as u64;
        rows.skip(skipped).try_for_each(|index| self.show(leaf.row(index)))
    }

    /// Returns runs of rows with the same document and key, the last run first.
    fn descending(&mut self, leaf: &Leaf, rows: Range<usize>) -> ControlFlow<()> {
        let mut end = rows.end;
        while end > rows.start {
            let last = leaf.row(end - 1);
            let begin = (rows.start..end - 1).rev().take_while(|&index| is_same(leaf.row(index), last)).last();
            let begin = begin.unwrap_or(end - 1);
            if self.pending.first().is_some_and(|pending| !is_same(pending.row(), last)) {
                self.return_pending()?;
            }
            if begin == rows.start {
                self.pending.splice(0..0, (begin..end).map(|index| PendingRow::of(leaf.row(index))));
            } else if self.pending.is_empty() {
                (begin..end).try_for_each(|index| self.show(leaf.row(index)))?;
            } else {
                (begin..end).try_for_each(|index| self.show(leaf.row(index)))?;
                self.return_pending()?;
            }
            end = begin;
        }
        ControlFlow::Continue(())
    }

    fn return_pending(&mut self) -> ControlFlow<()> {
        std::mem::take(&mut self.pending).iter().try_for_each(|pending| self.show(pending.row()))
    }
}

fn is_same(row: Row<'_>, other: Row<'_>) -> bool {
    row.sort_key() == other.sort_key() && row.id() == other.id()
}

impl Visitor for Rows<'_> {
    fn subtree(&mut self, subtree: Subtree<'_>) -> Result<Visit> {
        if self.pending.len() as u64 + subtree.rows() <= self.skip {
            self.skip -= subtree.rows();
            return Ok(Visit::Taken);
        }
        Ok(Visit::Enter)
    }

    fn rows(&mut self, leaf: &Leaf, rows: Range<usize>) -> Result<ControlFlow<()>> {
        Ok(match self.order {
            Order::Ascending => self.ascending(leaf, rows),
            Order::Descending => self.descending(leaf, rows),
        })
    }

    fn wanted(&self) -> u64 {
        self.skip.saturating_add(self.limit)
    }

    fn end_of_range(&mut self) -> Result<ControlFlow<()>> {
        Ok(self.return_pending())
    }
}
