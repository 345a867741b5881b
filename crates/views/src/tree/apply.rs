//! [`apply`] builds a tree from another one and sorted changes.
//!
//! 1. Find the affected leaves and merge the changes into copies of them (drafts).
//! 2. Level by level, merge drafts that became too small with a neighbour and split those that became too large.
//! 3. Write the drafts, the lowest level first. The reductions of a level are computed together.

use super::load::{transpose, write_inner_nodes};
use super::node::separator;
use super::write::NodeWriter;
use super::{Child, INNER_BYTES, INNER_CHILDREN, LEAF_BYTES, LEAF_MEMORY_BYTES, Root, TreeReader, leaf_bytes};
use crate::error::Result;
use crate::leaf::{Group, Leaf, Row};
use crate::reduce::Aggregate;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Change<'a> {
    pub(crate) row_key: &'a [u8],
    pub(crate) row: Option<Row<'a>>,
}

#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) root: Option<Root>,
    /// Nodes of the former tree that are not in this one.
    pub(crate) obsolete: Vec<u64>,
    /// Number of applied changes. The others affect more leaves than may be in memory.
    pub(crate) changes: usize,
}

/// Changes must be in ascending order of distinct keys. Applies at least one of them.
pub(crate) fn apply(
    tree: TreeReader<'_>,
    root: Option<&Root>,
    changes: &[Change<'_>],
    aggregates: &mut [Aggregate],
    nodes: &mut NodeWriter<'_>,
) -> Result<Applied> {
    let mut builder = DraftBuilder { tree, obsolete: Vec::new(), bytes_left: LEAF_MEMORY_BYTES, changes: 0 };
    let (mut height, mut parts) = match root {
        Some(root) => (root.height, builder.change(root.node.clone(), root.height, None, changes)?),
        None => {
            builder.changes = changes.len();
            (0, cut_leaf(merge(&Leaf::default(), changes).unwrap_or_default(), Vec::new()))
        }
    };
    while parts.len() > 1 {
        height += 1;
        parts = cut_inner(parts, Vec::new());
    }
    let root = match parts.pop() {
        None => None,
        Some(mut top) => {
            while let PartNode::Inner(children) = &mut top.node
                && children.len() == 1
            {
                top = children.pop().expect("there is one");
                height -= 1;
            }
            let mut writer = LevelWriter { aggregates, nodes };
            let node = writer.write_level(vec![vec![top]], height)?.pop().and_then(|mut parent| parent.pop());
            node.map(|node| Root { height, node: Child { separator: Vec::new(), ..node } })
        }
    };
    Ok(Applied { root, obsolete: builder.obsolete, changes: builder.changes })
}

struct Part {
    separator: Vec<u8>,
    node: PartNode,
}

enum PartNode {
    Stored(Child),
    Leaf(Leaf),
    Inner(Vec<Part>),
}

impl Part {
    fn stored(child: Child) -> Self {
        Self { separator: child.separator.clone(), node: PartNode::Stored(child) }
    }

    fn size_bytes(&self) -> usize {
        match &self.node {
            PartNode::Stored(child) => child.size_bytes(),
            // The size of its reductions is unknown; those of numbers are short.
            PartNode::Leaf(_) | PartNode::Inner(_) => self.separator.len() + 40,
        }
    }

    fn is_too_small(&self) -> bool {
        match &self.node {
            PartNode::Stored(_) => false,
            PartNode::Leaf(leaf) => leaf.size_bytes() < LEAF_BYTES / 4,
            PartNode::Inner(parts) => {
                parts.len() < INNER_CHILDREN && parts.iter().map(Self::size_bytes).sum::<usize>() < INNER_BYTES / 4
            }
        }
    }
}

struct DraftBuilder<'a> {
    tree: TreeReader<'a>,
    obsolete: Vec<u64>,
    bytes_left: usize,
    changes: usize,
}

impl DraftBuilder<'_> {
    fn change(&mut self, child: Child, height: u32, leaf: Option<Leaf>, changes: &[Change<'_>]) -> Result<Vec<Part>> {
        if changes.is_empty() || height > 0 && self.bytes_left == 0 {
            return Ok(vec![Part::stored(child)]);
        }
        if height == 0 {
            self.changes += changes.len();
            let leaf = leaf.map_or_else(|| self.tree.own_leaf(child.id), Ok)?;
            return Ok(match merge(&leaf, changes) {
                None => vec![Part::stored(child)],
                Some(merged) => {
                    self.discard(child.id, leaf.pieces);
                    cut_leaf(merged, child.separator)
                }
            });
        }
        let parts = self.change_children(&child, height, changes)?;
        if parts.iter().all(|part| matches!(part.node, PartNode::Stored(_)))
            && let Some(node) = self.unchanged(&child, &parts)?
        {
            return Ok(vec![node]);
        }
        let pieces = self.tree.inner(child.id)?.pieces;
        self.discard(child.id, pieces);
        let parts = self.merge_small(parts, height - 1)?;
        Ok(cut_inner(parts, child.separator))
    }

    fn discard(&mut self, id: u64, pieces: u32) {
        self.obsolete.extend(id..=id + u64::from(pieces));
    }

    fn unchanged(&self, child: &Child, parts: &[Part]) -> Result<Option<Part>> {
        Ok((self.tree.inner(child.id)?.len() == parts.len()).then(|| Part::stored(child.clone())))
    }

    fn change_children(&mut self, child: &Child, height: u32, mut changes: &[Change<'_>]) -> Result<Vec<Part>> {
        let node = self.tree.inner(child.id)?;
        let mut touched = Vec::with_capacity(node.len());
        for index in 0..node.len() {
            let here = match index + 1 < node.len() {
                true => changes.partition_point(|change| change.row_key < node.separator(index + 1)),
                false => changes.len(),
            };
            let (mut now, later) = changes.split_at(here);
            if height == 1 && !now.is_empty() {
                match self.bytes_left {
                    0 => now = &[],
                    _ => self.bytes_left = self.bytes_left.saturating_sub(leaf_bytes(node.content_bytes(index))),
                }
            }
            touched.push(now);
            changes = later;
        }
        let mut leaves = Vec::new();
        if height == 1 {
            let ids = (0..node.len()).filter(|&index| !touched[index].is_empty()).map(|index| node.id(index));
            leaves = self.tree.leaves(&ids.collect::<Vec<_>>())?;
        }
        let mut leaves = leaves.into_iter();
        let mut parts = Vec::with_capacity(node.len());
        for (index, changes) in touched.into_iter().enumerate() {
            let leaf = if changes.is_empty() { None } else { leaves.next() };
            parts.extend(self.change(node.child(index), height - 1, leaf, changes)?);
        }
        Ok(parts)
    }

    fn merge_small(&mut self, mut parts: Vec<Part>, height: u32) -> Result<Vec<Part>> {
        let mut index = 0;
        while index < parts.len() {
            if parts.len() == 1 || !parts[index].is_too_small() {
                index += 1;
                continue;
            }
            let left = index.min(parts.len() - 2);
            let right = parts.remove(left + 1);
            let joined = self.join(std::mem::replace(&mut parts[left], Part::placeholder()), right, height)?;
            let count = joined.len();
            parts.splice(left..=left, joined);
            index = if count == 1 { left } else { left + count };
        }
        Ok(parts)
    }

    fn join(&mut self, left: Part, right: Part, height: u32) -> Result<Vec<Part>> {
        let separator = left.separator.clone();
        if height == 0 {
            let mut leaf = self.open_leaf(left)?;
            self.open_leaf(right)?.rows().for_each(|row| leaf.push(row));
            return Ok(cut_leaf(leaf, separator));
        }
        let mut parts = self.open_inner(left)?;
        let mut others = self.open_inner(right)?;
        parts.append(&mut others);
        Ok(cut_inner(parts, separator))
    }

    fn open_leaf(&mut self, part: Part) -> Result<Leaf> {
        match part.node {
            PartNode::Leaf(leaf) => Ok(leaf),
            PartNode::Stored(child) => {
                let leaf = self.tree.own_leaf(child.id)?;
                self.discard(child.id, leaf.pieces);
                Ok(leaf)
            }
            PartNode::Inner(_) => unreachable!("leaves are joined with leaves: a tree has one height everywhere"),
        }
    }

    fn open_inner(&mut self, part: Part) -> Result<Vec<Part>> {
        match part.node {
            PartNode::Inner(parts) => Ok(parts),
            PartNode::Stored(child) => {
                let node = self.tree.inner(child.id)?;
                self.discard(child.id, node.pieces);
                Ok(node.children().map(Part::stored).collect())
            }
            PartNode::Leaf(_) => {
                unreachable!("inner nodes are joined with inner nodes: a tree has one height everywhere")
            }
        }
    }
}

impl Part {
    fn placeholder() -> Self {
        Self { separator: Vec::new(), node: PartNode::Inner(Vec::new()) }
    }
}

fn merge(leaf: &Leaf, changes: &[Change<'_>]) -> Option<Leaf> {
    let mut merged = Leaf::default();
    let mut changed = false;
    let mut rows = leaf.rows().peekable();
    for change in changes {
        while let Some(row) = rows.next_if(|row| row.row_key < change.row_key) {
            merged.push(row);
        }
        let before = rows.next_if(|row| row.row_key == change.row_key);
        changed |= before != change.row;
        if let Some(row) = change.row {
            merged.push(row);
        }
    }
    rows.for_each(|row| merged.push(row));
    changed.then_some(merged)
}

fn cut_leaf(leaf: Leaf, first_separator: Vec<u8>) -> Vec<Part> {
    let size = leaf.size_bytes();
    if leaf.is_empty() {
        return Vec::new();
    }
    if size <= LEAF_BYTES + LEAF_BYTES / 2 {
        return vec![Part { separator: first_separator, node: PartNode::Leaf(leaf) }];
    }
    let piece_bytes = size / size.div_ceil(LEAF_BYTES);
    let mut parts = Vec::new();
    let mut piece = Leaf::default();
    let mut piece_separator = first_separator;
    for row in leaf.rows() {
        if piece.size_bytes() >= piece_bytes {
            let next = separator(piece.row(piece.len() - 1).row_key, row.row_key).to_vec();
            let node = PartNode::Leaf(std::mem::take(&mut piece));
            parts.push(Part { separator: std::mem::replace(&mut piece_separator, next), node });
        }
        piece.push(row);
    }
    parts.push(Part { separator: piece_separator, node: PartNode::Leaf(piece) });
    parts
}

fn cut_inner(mut parts: Vec<Part>, first_separator: Vec<u8>) -> Vec<Part> {
    let Some(first) = parts.first_mut() else {
        return Vec::new();
    };
    first.separator = first_separator;
    let size: usize = parts.iter().map(Part::size_bytes).sum();
    let pieces = match size <= INNER_BYTES + INNER_BYTES / 2 {
        true => 1,
        false => size.div_ceil(INNER_BYTES).min(parts.len() / INNER_CHILDREN).max(1),
    };
    let mut nodes = Vec::with_capacity(pieces);
    for piece in (1..=pieces).rev() {
        let rest = parts.split_off(parts.len() / piece);
        let children = std::mem::replace(&mut parts, rest);
        nodes.push(Part { separator: children[0].separator.clone(), node: PartNode::Inner(children) });
    }
    nodes
}

struct LevelWriter<'a, 'w> {
    aggregates: &'a mut [Aggregate],
    nodes: &'a mut NodeWriter<'w>,
}

impl LevelWriter<'_, '_> {
    fn write_level(&mut self, parents: Vec<Vec<Part>>, height: u32) -> Result<Vec<Vec<Child>>> {
        let mut leaves = Vec::new();
        let mut inner = Vec::new();
        let mut slots = Vec::with_capacity(parents.len());
        for parts in parents {
            let mut places = Vec::with_capacity(parts.len());
            for Part { separator, node } in parts {
                places.push((
                    separator,
                    match node {
                        PartNode::Stored(child) => Some(child),
                        PartNode::Leaf(leaf) => {
                            leaves.push(leaf);
                            None
                        }
                        PartNode::Inner(parts) => {
                            inner.push(parts);
                            None
                        }
                    },
                ));
            }
            slots.push(places);
        }
        let written = match height {
            0 => self.write_leaves(&leaves)?,
            _ => {
                let children = self.write_level(inner, height - 1)?;
                write_inner_nodes(self.nodes, self.aggregates, children)?
            }
        };
        let mut written = written.into_iter();
        let mut place = |(separator, child): (Vec<u8>, Option<Child>)| {
            let child = child.or_else(|| written.next()).expect("every draft was written");
            Child { separator, ..child }
        };
        Ok(slots.into_iter().map(|places| places.into_iter().map(&mut place).collect()).collect())
    }

    fn write_leaves(&mut self, leaves: &[Leaf]) -> Result<Vec<Child>> {
        let groups: Vec<Group<'_>> = leaves.iter().map(Group::whole).collect();
        let reductions = transpose(self.aggregates, groups.len(), |aggregate| aggregate.reduce(&groups))?;
        let mut children = Vec::with_capacity(leaves.len());
        for (leaf, reductions) in leaves.iter().zip(reductions) {
            let id = self.nodes.leaf(leaf)?;
            let (rows, bytes) = (leaf.len() as u64, leaf.content_bytes());
            children.push(Child { separator: Vec::new(), id, rows, bytes, reductions });
        }
        Ok(children)
    }
}
