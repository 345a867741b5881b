//! [`Loader`] builds a tree bottom-up from sorted rows.

use super::node::separator;
use super::write::NodeWriter;
use super::{Child, INNER_BYTES, INNER_CHILDREN, LEAF_BYTES, REDUCE_BATCH_BYTES, Root};
use crate::error::Result;
use crate::leaf::{EncodedLeaf, Group, Leaf, Row};
use crate::reduce::Aggregate;

/// Several nodes are reduced in one call, because calling a language is expensive.
const NODES_PER_REDUCE: usize = 32;

pub(crate) struct Loader<'a, 'w> {
    nodes: &'a mut NodeWriter<'w>,
    aggregates: &'a mut [Aggregate],
    /// Current leaf if `is_encoded`.
    encoded: EncodedLeaf,
    /// True if all aggregates reduce encoded values.
    is_encoded: bool,
    leaf: Leaf,
    leaves: Vec<(Vec<u8>, Leaf)>,
    leaves_bytes: usize,
    spare: Vec<Leaf>,
    separator: Vec<u8>,
    levels: Vec<Level>,
}

#[derive(Default)]
struct Level {
    children: Vec<Child>,
    size_bytes: usize,
    cut: Vec<Vec<Child>>,
    cut_bytes: usize,
}

impl<'a, 'w> Loader<'a, 'w> {
    pub(crate) fn new(nodes: &'a mut NodeWriter<'w>, aggregates: &'a mut [Aggregate]) -> Self {
        Self {
            nodes,
            is_encoded: aggregates.iter().all(Aggregate::reduces_encoded),
            aggregates,
            encoded: EncodedLeaf::default(),
            leaf: Leaf::default(),
            leaves: Vec::new(),
            leaves_bytes: 0,
            spare: Vec::new(),
            separator: Vec::new(),
            levels: Vec::new(),
        }
    }

    /// The row must be greater than all previous ones.
    #[inline]
    pub(crate) fn push(&mut self, row: Row<'_>) -> Result<()> {
        if self.is_encoded {
            if self.encoded.size_bytes() >= LEAF_BYTES {
                self.cut_encoded(row.row_key)?;
            }
            self.encoded.push(row);
            return Ok(());
        }
        if self.leaf.size_bytes() >= LEAF_BYTES {
            self.cut_leaf(row.row_key)?;
        }
        self.leaf.push(row);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> Result<Option<Root>> {
        if !self.encoded.is_empty() {
            self.cut_encoded(&[])?;
        } else if !self.leaf.is_empty() {
            self.cut_leaf(&[])?;
            self.write_leaves()?;
        } else {
            return Ok(None);
        }
        let mut height = 0;
        loop {
            let is_top = height + 1 == self.levels.len();
            let level = &mut self.levels[height];
            if is_top && level.cut.is_empty() && level.children.len() == 1 {
                let node = level.children.pop().expect("there is one");
                return Ok(Some(Root { height: u32::try_from(height).expect("trees are low"), node }));
            }
            if !level.children.is_empty() {
                level.cut();
            }
            self.write_inner(height)?;
            height += 1;
        }
    }

    fn cut_encoded(&mut self, next: &[u8]) -> Result<()> {
        let next = separator(self.encoded.last_row_key(), next).to_vec();
        let id = self.nodes.encoded_leaf(&self.encoded)?;
        let (rows, bytes) = (self.encoded.len() as u64, self.encoded.content_bytes() as u64);
        let reductions =
            self.aggregates.iter().filter_map(|aggregate| aggregate.reduce_encoded(&self.encoded)).collect();
        self.encoded.clear();
        let separator = std::mem::replace(&mut self.separator, next);
        self.push_child(0, Child { separator, id, rows, bytes, reductions })
    }

    fn cut_leaf(&mut self, next: &[u8]) -> Result<()> {
        let last = self.leaf.row(self.leaf.len() - 1).row_key;
        let next = separator(last, next).to_vec();
        let empty = self.spare.pop().unwrap_or_default();
        let leaf = std::mem::replace(&mut self.leaf, empty);
        self.leaves_bytes += leaf.size_bytes();
        self.leaves.push((std::mem::replace(&mut self.separator, next), leaf));
        let is_much = self.leaves.len() == NODES_PER_REDUCE || self.leaves_bytes >= REDUCE_BATCH_BYTES;
        if is_much { self.write_leaves() } else { Ok(()) }
    }

    fn write_leaves(&mut self) -> Result<()> {
        let groups: Vec<Group<'_>> = self.leaves.iter().map(|(_, leaf)| Group::whole(leaf)).collect();
        let reductions = transpose(self.aggregates, groups.len(), |aggregate| aggregate.reduce(&groups))?;
        self.leaves_bytes = 0;
        for ((separator, mut leaf), reductions) in std::mem::take(&mut self.leaves).into_iter().zip(reductions) {
            let id = self.nodes.leaf(&leaf)?;
            let (rows, bytes) = (leaf.len() as u64, leaf.content_bytes());
            self.push_child(0, Child { separator, id, rows, bytes, reductions })?;
            if leaf.size_bytes() < REDUCE_BATCH_BYTES {
                leaf.clear();
                self.spare.push(leaf);
            }
        }
        Ok(())
    }

    fn push_child(&mut self, height: usize, child: Child) -> Result<()> {
        if height == self.levels.len() {
            self.levels.push(Level::default());
        }
        let level = &mut self.levels[height];
        if level.size_bytes >= INNER_BYTES && level.children.len() >= INNER_CHILDREN {
            level.cut();
        }
        level.size_bytes += child.size_bytes();
        level.children.push(child);
        let is_much = level.cut.len() >= NODES_PER_REDUCE || level.cut_bytes >= REDUCE_BATCH_BYTES;
        if is_much { self.write_inner(height) } else { Ok(()) }
    }

    fn write_inner(&mut self, height: usize) -> Result<()> {
        self.levels[height].cut_bytes = 0;
        let nodes = std::mem::take(&mut self.levels[height].cut);
        for child in write_inner_nodes(self.nodes, self.aggregates, nodes)? {
            self.push_child(height + 1, child)?;
        }
        Ok(())
    }
}

impl Level {
    fn cut(&mut self) {
        self.cut_bytes += std::mem::take(&mut self.size_bytes);
        self.cut.push(std::mem::take(&mut self.children));
    }
}

pub(super) fn write_inner_nodes(
    nodes: &mut NodeWriter<'_>,
    aggregates: &mut [Aggregate],
    children: Vec<Vec<Child>>,
) -> Result<Vec<Child>> {
    let mut reductions: Vec<Vec<Vec<u8>>> = Vec::with_capacity(aggregates.len());
    for (index, aggregate) in aggregates.iter_mut().enumerate() {
        let parts = children.iter().map(|children| children.iter().map(|child| &child.reductions[index][..]).collect());
        reductions.push(aggregate.rereduce(&parts.collect::<Vec<_>>())?);
    }
    let mut parents = Vec::with_capacity(children.len());
    for (index, mut children) in children.into_iter().enumerate() {
        let id = nodes.inner(children.iter(), aggregates.len())?;
        parents.push(Child {
            id,
            rows: children.iter().map(|child| child.rows).sum(),
            bytes: children.iter().map(|child| child.bytes).sum(),
            reductions: reductions.iter_mut().map(|aggregate| std::mem::take(&mut aggregate[index])).collect(),
            separator: std::mem::take(&mut children[0].separator),
        });
    }
    Ok(parents)
}

pub(super) fn transpose(
    aggregates: &mut [Aggregate],
    nodes: usize,
    mut reduce: impl FnMut(&mut Aggregate) -> Result<Vec<Vec<u8>>>,
) -> Result<Vec<Vec<Vec<u8>>>> {
    let mut reductions: Vec<Vec<Vec<u8>>> = (0..nodes).map(|_| Vec::with_capacity(aggregates.len())).collect();
    for aggregate in aggregates {
        let mut answers = reduce(aggregate)?.into_iter();
        reductions.iter_mut().for_each(|node| node.push(answers.next().unwrap_or_else(|| b"null".to_vec())));
    }
    Ok(reductions)
}
