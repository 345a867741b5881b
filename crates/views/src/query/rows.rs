//! [`Rows`]: shows the rows of a map function.

use std::ops::{ControlFlow, Range};

use super::{MapRow, Order, RowSink};
use crate::error::Result;
use crate::tree::Leaf;
use crate::tree::walk::{Subtree, Visit, Visitor};

/// Leaves out `skip` rows, by whole subtrees where it can, and shows `limit`, which is not 0.
pub(super) struct Rows<'a> {
    pub(super) skip: u64,
    pub(super) limit: u64,
    pub(super) order: Order,
    pub(super) sink: &'a mut dyn RowSink,
}

impl Visitor for Rows<'_> {
    fn subtree(&mut self, subtree: Subtree<'_>) -> Result<Visit> {
        if subtree.rows() <= self.skip {
            self.skip -= subtree.rows();
            return Ok(Visit::Taken);
        }
        Ok(Visit::Enter)
    }

    fn rows(&mut self, leaf: &Leaf, rows: Range<usize>) -> Result<ControlFlow<()>> {
        let skipped = usize::try_from(self.skip).map_or(rows.len(), |skip| skip.min(rows.len()));
        self.skip -= skipped as u64;
        for step in skipped..rows.len() {
            let row = leaf.row(match self.order {
                Order::Ascending => rows.start + step,
                Order::Descending => rows.end - 1 - step,
            });
            let flow = self.sink.map_row(MapRow { key: row.key, id: &row.id(), value: row.value });
            self.limit -= 1;
            if flow.is_break() || self.limit == 0 {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn end_of_range(&mut self) -> Result<()> {
        Ok(())
    }
}
