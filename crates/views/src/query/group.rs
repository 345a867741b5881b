//! [`Groups`] returns reductions of groups of rows. Only the first row of a group, which provides the key, and the
//! paths to its ends are read; subtrees contribute their stored reductions. One call of the reduce function processes
//! several groups.

use std::ops::{ControlFlow, Range};

use settee_database::Layout;
use settee_model::collate::group_prefix;
use settee_model::json::Value;

use super::{Order, ReduceRow, RowSink};
use crate::error::Result;
use crate::keys;
use crate::leaf::{Group, Leaf, Row};
use crate::reduce::Aggregate;
use crate::tree::walk::{Subtree, Visit, Visitor};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Grouping {
    Whole,
    Level(usize, Layout),
    Exact,
}

impl Grouping {
    /// Returns a prefix that exactly the row keys of the group have.
    fn prefix<'a>(self, row: &Row<'a>) -> &'a [u8] {
        match self {
            Self::Whole => &[],
            Self::Level(level, layout) => {
                let sort_key = row.sort_key();
                let partition = match layout {
                    Layout::Whole => 0,
                    Layout::Partitioned => keys::partition_len(sort_key),
                };
                &sort_key[..partition + group_prefix(&sort_key[partition..], level).len()]
            }
            Self::Exact => row.sort_key(),
        }
    }

    fn write_key(self, row: &Row<'_>, out: &mut Vec<u8>) {
        match self {
            Self::Whole => out.extend_from_slice(b"null"),
            Self::Exact => out.extend_from_slice(row.key),
            Self::Level(level, _) => {
                let key = Value::trusted(row.key);
                if !key.is_array() || key.elements().nth(level).is_none() {
                    return out.extend_from_slice(row.key);
                }
                for (index, element) in key.elements().take(level).enumerate() {
                    out.push(if index == 0 { b'[' } else { b',' });
                    out.extend_from_slice(element.raw());
                }
                out.push(b']');
            }
        }
    }
}

const FINISHED_GROUPS: usize = 64;

#[derive(Debug, Default)]
struct OpenGroup {
    prefix: Vec<u8>,
    key: Vec<u8>,
    parts: Vec<Vec<u8>>,
}

pub(super) struct Groups<'a> {
    grouping: Grouping,
    order: Order,
    skip: u64,
    limit: u64,
    aggregate: &'a mut Aggregate,
    index: usize,
    current: Option<OpenGroup>,
    finished: Vec<OpenGroup>,
    sink: &'a mut dyn RowSink,
}

impl<'a> Groups<'a> {
    pub(super) fn new(
        grouping: Grouping,
        order: Order,
        skip: u64,
        limit: u64,
        (aggregate, index): (&'a mut Aggregate, usize),
        sink: &'a mut dyn RowSink,
    ) -> Self {
        Self { grouping, order, skip, limit, aggregate, index, current: None, finished: Vec::new(), sink }
    }

    pub(super) fn finish(mut self) -> Result<()> {
        self.close();
        self.show().map(drop)
    }

    fn close(&mut self) {
        match self.current.take() {
            Some(_) if self.skip > 0 => self.skip -= 1,
            Some(group) => {
                self.limit -= 1;
                self.finished.push(group);
            }
            None => {}
        }
    }

    fn show(&mut self) -> Result<ControlFlow<()>> {
        let mut groups = std::mem::take(&mut self.finished);
        let parts: Vec<Vec<&[u8]>> =
            groups.iter().map(|group| group.parts.iter().map(Vec::as_slice).collect()).collect();
        let reductions = self.aggregate.finalize(&parts)?;
        let mut value = Vec::new();
        for (group, reduction) in groups.iter().zip(&reductions) {
            value.clear();
            self.aggregate.finish(reduction, &mut value);
            if self.sink.reduce_row(ReduceRow { key: &group.key, value: &value }).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        groups.clear();
        self.finished = groups;
        Ok(ControlFlow::Continue(()))
    }

    fn is_current(&self, row: &Row<'_>) -> bool {
        self.current.as_ref().is_some_and(|group| row.row_key.starts_with(&group.prefix))
    }

    fn open(&mut self, row: &Row<'_>) -> ControlFlow<()> {
        self.close();
        if self.limit == 0 {
            return ControlFlow::Break(());
        }
        let mut group = OpenGroup { prefix: self.grouping.prefix(row).to_vec(), ..OpenGroup::default() };
        self.grouping.write_key(row, &mut group.key);
        self.current = Some(group);
        ControlFlow::Continue(())
    }

    /// Splits rows of a leaf at the starts of groups, in the order of the traversal.
    fn segments(&self, leaf: &Leaf, rows: &Range<usize>) -> Vec<Range<usize>> {
        let mut segments: Vec<Range<usize>> = Vec::new();
        let mut prefix: &[u8] = self.current.as_ref().map_or(&[], |group| &group.prefix);
        for step in 0..rows.len() {
            let index = match self.order {
                Order::Ascending => rows.start + step,
                Order::Descending => rows.end - 1 - step,
            };
            let row = leaf.row(index);
            match segments.last_mut() {
                Some(segment) if row.row_key.starts_with(prefix) => match self.order {
                    Order::Ascending => segment.end = index + 1,
                    Order::Descending => segment.start = index,
                },
                _ => {
                    prefix = self.grouping.prefix(&row);
                    segments.push(index..index + 1);
                }
            }
        }
        segments
    }
}

impl Visitor for Groups<'_> {
    fn subtree(&mut self, subtree: Subtree<'_>) -> Result<Visit> {
        match &mut self.current {
            Some(group) if subtree.begins_with(&group.prefix) => {
                if self.skip == 0 {
                    group.parts.push(subtree.reduction(self.index).to_vec());
                }
                Ok(Visit::Taken)
            }
            _ => Ok(Visit::Enter),
        }
    }

    fn rows(&mut self, leaf: &Leaf, rows: Range<usize>) -> Result<ControlFlow<()>> {
        let segments = self.segments(leaf, &rows);
        let groups: Vec<Group<'_>> = segments.iter().map(|rows| Group { leaf, rows: rows.clone() }).collect();
        let reductions = self.aggregate.reduce(&groups)?;
        for (segment, reduction) in segments.into_iter().zip(reductions) {
            let first = leaf.row(match self.order {
                Order::Ascending => segment.start,
                Order::Descending => segment.end - 1,
            });
            if !self.is_current(&first) && self.open(&first).is_break() {
                let _ = self.show()?;
                return Ok(ControlFlow::Break(()));
            }
            if let Some(group) = self.current.as_mut().filter(|_| self.skip == 0) {
                group.parts.push(reduction);
            }
        }
        if self.finished.len() >= FINISHED_GROUPS { self.show() } else { Ok(ControlFlow::Continue(())) }
    }

    fn end_of_range(&mut self) -> Result<ControlFlow<()>> {
        self.close();
        Ok(ControlFlow::Continue(()))
    }
}
