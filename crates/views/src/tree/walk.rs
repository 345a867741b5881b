//! [`walk`] traverses a range of rows. A [`Visitor`] may use the stored data of whole subtrees, so that the cost is
//! that of the paths to the ends of the range.

use std::collections::VecDeque;
use std::ops::{ControlFlow, Range};
use std::sync::Arc;

use super::read::leaves_per_round_trip;
use super::{Inner, Root, TreeReader};
use crate::error::{Result, ViewError};
use crate::leaf::Leaf;

/// `upper` is exclusive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RowRange {
    pub(crate) lower: Vec<u8>,
    pub(crate) upper: Option<Vec<u8>>,
}

impl RowRange {
    fn contains(&self, lower: &[u8], upper: Option<&[u8]>) -> bool {
        let below = match (upper, &self.upper) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(upper), Some(end)) => upper <= &end[..],
        };
        below && self.lower.as_slice() <= lower
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.upper.as_ref().is_some_and(|upper| *upper <= self.lower)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Forward,
    Backward,
}

#[derive(Clone, Copy)]
pub(crate) struct Subtree<'a> {
    node: &'a Inner,
    child: usize,
    pub(crate) lower: &'a [u8],
    pub(crate) upper: Option<&'a [u8]>,
}

impl<'a> Subtree<'a> {
    pub(crate) fn rows(&self) -> u64 {
        self.node.rows(self.child)
    }

    pub(crate) fn reduction(&self, aggregate: usize) -> &'a [u8] {
        self.node.reduction(self.child, aggregate)
    }

    pub(crate) fn begins_with(&self, prefix: &[u8]) -> bool {
        let upper = |upper: &[u8]| upper.starts_with(prefix);
        prefix.is_empty() || self.lower.starts_with(prefix) && self.upper.is_some_and(upper)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Visit {
    /// The visitor has used the stored data of the subtree.
    Taken,
    Enter,
}

pub(crate) trait Visitor {
    fn subtree(&mut self, subtree: Subtree<'_>) -> Result<Visit>;

    /// `rows` is not empty. In a backward traversal the visitor must read it in reverse order.
    fn rows(&mut self, leaf: &Leaf, rows: Range<usize>) -> Result<ControlFlow<()>>;

    /// Returns the number of further rows needed, which determines how many leaves are read together; 0 if unknown.
    fn wanted(&self) -> u64 {
        0
    }

    fn end_of_range(&mut self) -> Result<ControlFlow<()>>;
}

pub(crate) fn walk(
    tree: TreeReader<'_>,
    root: &Root,
    range: &RowRange,
    direction: Direction,
    visitor: &mut dyn Visitor,
) -> Result<ControlFlow<()>> {
    if range.is_empty() {
        return Ok(ControlFlow::Continue(()));
    }
    let mut walk = Walk { tree, range, direction, visitor };
    walk.node(root.node.id, root.height, &[], None)
}

struct Walk<'a> {
    tree: TreeReader<'a>,
    range: &'a RowRange,
    direction: Direction,
    visitor: &'a mut dyn Visitor,
}

impl Walk<'_> {
    fn node(&mut self, id: u64, height: u32, lower: &[u8], upper: Option<&[u8]>) -> Result<ControlFlow<()>> {
        if height == 0 {
            let leaf = self.tree.leaf(id)?;
            return self.leaf(&leaf);
        }
        let node = self.tree.inner(id)?;
        let first = node.position(&self.range.lower);
        let last = self.range.upper.as_ref().map_or(node.len() - 1, |upper| node.position(upper));
        let mut ahead = VecDeque::new();
        for step in 0..=last - first {
            let child = match self.direction {
                Direction::Forward => first + step,
                Direction::Backward => last - step,
            };
            // The bound of the node may be tighter than the separator of its first child.
            let lower = if child == 0 { lower.max(node.separator(0)) } else { node.separator(child) };
            let upper = if child + 1 < node.len() { Some(node.separator(child + 1)) } else { upper };
            let visit = if self.range.contains(lower, upper) {
                self.visitor.subtree(Subtree { node: &node, child, lower, upper })?
            } else {
                Visit::Enter
            };
            let flow = match visit {
                Visit::Taken => ControlFlow::Continue(()),
                Visit::Enter if height == 1 => {
                    let leaf = self.next_leaf(&node, child, last - first - step, &mut ahead)?;
                    self.leaf(&leaf)?
                }
                Visit::Enter => self.node(node.id(child), height - 1, lower, upper)?,
            };
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Returns the leaf `child` of `node`. Of the `more` leaves of the range after it, those that are probably needed
    /// are read in the same round trip and added to `ahead`.
    fn next_leaf(
        &self,
        node: &Inner,
        child: usize,
        more: usize,
        ahead: &mut VecDeque<ReadAheadLeaf>,
    ) -> Result<Arc<Leaf>> {
        while let Some((number, leaf)) = ahead.pop_front() {
            if number == child {
                return Ok(leaf);
            }
        }
        let nth = |step: usize| match self.direction {
            Direction::Forward => child + step,
            Direction::Backward => child - step,
        };
        let children = |count: usize| (0..count).map(nth);
        let (wanted, mut rows) = (self.visitor.wanted(), 0);
        let is_wanted = |&number: &usize| {
            let before = rows;
            rows += node.rows(number);
            before < wanted
        };
        let count = children(1 + more).take_while(is_wanted).count().max(1);
        let count = leaves_per_round_trip(children(count).map(|number| node.content_bytes(number))).max(1);
        let ids: Vec<u64> = children(count).map(|number| node.id(number)).collect();
        ahead.extend(children(count).zip(self.tree.shared_leaves(&ids)?));
        ahead.pop_front().map(|(_, leaf)| leaf).ok_or(ViewError::Corrupt("node is missing"))
    }

    fn leaf(&mut self, leaf: &Leaf) -> Result<ControlFlow<()>> {
        let start = leaf.rank(&self.range.lower);
        let end = self.range.upper.as_ref().map_or(leaf.len(), |upper| leaf.rank(upper));
        if start < end { self.visitor.rows(leaf, start..end) } else { Ok(ControlFlow::Continue(())) }
    }
}

type ReadAheadLeaf = (usize, Arc<Leaf>);
