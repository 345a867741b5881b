//! Revision trees: the edit history of a document, so that independently edited copies can be merged.
//!
//! # Definition
//!
//! Every edit of a document creates a *revision* that names its parent revision. Edits of one copy form a chain:
//!
//! ```text
//! 1-a ── 2-b ── 3-c
//! ```
//!
//! Independent edits of `2-b` on two copies create two successors. When the copies replicate, the chain becomes a tree
//! with two *leaves*, which are in *conflict*:
//!
//! ```text
//! 1-a ── 2-b ──┬── 3-c
//!              └── 3-x ── 4-y
//! ```
//!
//! Readers see one leaf, the *winner*: a pure function of the set of leaves (see [`RevTree::winner`]). A client
//! resolves a conflict by deleting the unwanted leaves: a live leaf wins over a deleted one.
//!
//! Copies exchange *paths*: a leaf and its ancestors. [`RevTree::merge`] is commutative and idempotent.
//!
//! [`RevTree::stem`] removes ancestors beyond a limit. A tree may then have several roots, which a longer path can
//! connect again.
//!
//! # Representation
//!
//! A tree is one vector of nodes in the order of their revision ids, each with the index of its parent, which always
//! precedes it. Equal trees are equal vectors, independent of their construction.
//!
//! A revision has one ancestry. If a peer sends a known revision with a different parent, the existing parent is kept
//! and the rest of the path is ignored. CouchDB would keep both.

use std::cmp::Reverse;

use crate::rev::Rev;

mod growth;
mod merge;
#[cfg(test)]
mod tests;

pub use growth::{Grown, Growth, Known, Revisions};

/// Revision tree of one document. `T` is the value of a revision; `None` if only its existence is stored.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevTree<T> {
    nodes: Vec<Node<T>>,
    leaves: Vec<u32>,
}

/// One revision in a [`RevTree`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node<T> {
    /// Revision id.
    pub rev: Rev,
    /// Index of the parent, smaller than that of the node; `None` if the node has no stored parent.
    pub parent: Option<u32>,
    /// Stored value.
    pub value: Option<T>,
}

/// Result of [`RevTree::merge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// The revision is a new leaf whose ancestor was a leaf, or the first of all.
    Extended,
    /// The revision is a new leaf in addition to others: a conflict.
    Branched,
    /// The revision was already in the tree, as leaf or ancestor.
    Known,
}

/// Defect of nodes that form no tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidTree {
    /// A parent does not precede its child or does not have the preceding generation.
    #[error("revision tree node {node} has no valid parent")]
    Parent {
        /// Index of the child.
        node: usize,
    },
    /// The same revision appears twice.
    #[error("a revision occurs twice in its tree, at node {node}")]
    Repeated {
        /// Index of the second one.
        node: usize,
    },
    /// A leaf has no value.
    #[error("revision tree leaf {node} has no value")]
    EmptyLeaf {
        /// Index of the leaf.
        node: usize,
    },
    /// The number of nodes exceeds the range of an index.
    #[error("revision tree is too large")]
    TooLarge,
}

impl<T> Default for RevTree<T> {
    fn default() -> Self {
        RevTree { nodes: Vec::new(), leaves: Vec::new() }
    }
}

impl<T> RevTree<T> {
    /// Creates an empty tree.
    pub fn new() -> Self {
        RevTree::default()
    }

    /// Creates a tree from stored nodes in any order in which parents precede their children.
    pub fn from_nodes(nodes: Vec<Node<T>>) -> Result<Self, InvalidTree> {
        if u32::try_from(nodes.len()).is_err() {
            return Err(InvalidTree::TooLarge);
        }
        for (index, node) in nodes.iter().enumerate() {
            let Some(parent) = node.parent else { continue };
            let parent = nodes[..index].get(parent as usize).ok_or(InvalidTree::Parent { node: index })?;
            if parent.rev.generation.checked_add(1) != Some(node.rev.generation) {
                return Err(InvalidTree::Parent { node: index });
            }
        }
        let mut tree = RevTree { nodes, leaves: Vec::new() };
        tree.put_in_order();
        if let Some(repeated) = tree.nodes.windows(2).position(|pair| pair[0].rev == pair[1].rev) {
            return Err(InvalidTree::Repeated { node: repeated + 1 });
        }
        let empty = tree.leaves.iter().find(|&&leaf| tree.nodes[leaf as usize].value.is_none());
        match empty {
            Some(&leaf) => Err(InvalidTree::EmptyLeaf { node: leaf as usize }),
            None => Ok(tree),
        }
    }

    /// Returns all revisions in the order of their ids.
    pub fn nodes(&self) -> &[Node<T>] {
        &self.nodes
    }

    /// Returns the revision with this index, which is valid until the tree changes. Panics if it is out of range.
    pub fn node(&self, node: u32) -> &Node<T> {
        &self.nodes[node as usize]
    }

    /// Returns the value of the revision with this index.
    pub fn value_mut(&mut self, node: u32) -> Option<&mut T> {
        self.nodes[node as usize].value.as_mut()
    }

    /// Returns true if the tree has no revisions.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Returns the index of a revision.
    pub fn find(&self, rev: &Rev) -> Option<u32> {
        search(&self.nodes, rev)
    }

    /// Returns true if the revision has no successors.
    pub fn is_leaf(&self, node: u32) -> bool {
        self.leaves.binary_search(&node).is_ok()
    }

    /// Returns the indices of all leaves, in the order of their ids.
    pub fn leaves(&self) -> impl Iterator<Item = u32> {
        self.leaves.iter().copied()
    }

    /// Returns the number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// Returns the leaf that readers see, by CouchDB's rule: live before deleted, then the highest generation, then the
    /// greatest hash. `None` only if the tree is empty.
    pub fn winner(&self, deleted: impl Fn(&T) -> bool) -> Option<u32> {
        let is_live = |leaf: &u32| self.rank(*leaf, &deleted).0;
        self.leaves.iter().rev().copied().find(is_live).or_else(|| self.leaves.last().copied())
    }

    /// Returns all leaves by descending rank: the winner first, then the leaf that would win without it, and so on.
    pub fn leaves_by_rank(&self, deleted: impl Fn(&T) -> bool) -> Vec<u32> {
        let mut leaves = self.leaves.clone();
        leaves.sort_unstable_by_key(|&leaf| Reverse(self.rank(leaf, &deleted)));
        leaves
    }

    /// Nodes are in the order of their ids, so the index represents generation and hash.
    fn rank(&self, leaf: u32, deleted: impl Fn(&T) -> bool) -> (bool, u32) {
        (self.nodes[leaf as usize].value.as_ref().is_some_and(|value| !deleted(value)), leaf)
    }

    /// Returns the node and its ancestors, newest first.
    pub fn history(&self, node: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(node), |&node| self.nodes[node as usize].parent)
    }

    /// Returns the leaves among `nodes` and their descendants, in the order of their ids, as for `latest=true`.
    pub fn leaves_of(&self, nodes: &[u32]) -> Vec<u32> {
        let mut reaches = vec![false; self.nodes.len()];
        for node in nodes {
            reaches[*node as usize] = true;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            reaches[index] |= node.parent.is_some_and(|parent| reaches[parent as usize]);
        }
        self.leaves().filter(|&leaf| reaches[leaf as usize]).collect()
    }

    /// Removes ancestors beyond the newest `limit` revisions of every leaf (at least 1). Returns their values.
    pub fn stem(&mut self, limit: usize) -> Vec<T> {
        if self.nodes.len() <= limit {
            return Vec::new();
        }
        // Distance to the nearest leaf. Ancestors have smaller indices.
        let mut away = vec![usize::MAX; self.nodes.len()];
        for leaf in self.leaves() {
            away[leaf as usize] = 0;
        }
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                away[parent as usize] = away[parent as usize].min(away[index] + 1);
            }
        }
        let keep: Vec<bool> = away.into_iter().map(|away| away < limit.max(1)).collect();
        self.retain(&keep)
    }

    /// Removes a leaf and the ancestors of no other leaf. Returns its value; `None` if it is not a leaf.
    pub fn remove_leaf(&mut self, rev: &Rev) -> Option<T> {
        self.purge(rev)?.into_iter().next()
    }

    /// As [`RevTree::remove_leaf`], but returns all removed values, newest first.
    pub fn purge(&mut self, rev: &Rev) -> Option<Vec<T>> {
        let leaf = self.find(rev).filter(|&node| self.is_leaf(node))?;
        let mut keep = vec![false; self.nodes.len()];
        for other in self.leaves().filter(|&other| other != leaf) {
            for node in self.history(other) {
                if std::mem::replace(&mut keep[node as usize], true) {
                    break;
                }
            }
        }
        let mut removed = self.retain(&keep);
        removed.reverse();
        Some(removed)
    }

    /// Removes the values of all revisions that are not leaves, as a compaction does: they remain as ancestors.
    pub fn take_branch_values(&mut self) -> Vec<T> {
        let mut leaves = self.leaves.iter().copied().peekable();
        let mut taken = Vec::new();
        for (index, node) in (0..).zip(&mut self.nodes) {
            if leaves.next_if_eq(&index).is_none() {
                taken.extend(node.value.take());
            }
        }
        taken
    }

    /// Removes the values that match. The revisions remain.
    pub fn take_values(&mut self, matches: impl Fn(&T) -> bool) {
        for node in &mut self.nodes {
            drop(node.value.take_if(|value| matches(value)));
        }
    }

    /// Returns the values of the removed nodes in the order of their ids.
    fn retain(&mut self, keep: &[bool]) -> Vec<T> {
        const GONE: u32 = u32::MAX;
        let mut removed = Vec::new();
        let mut new_index = vec![GONE; keep.len()];
        let mut kept = Vec::with_capacity(self.nodes.len());
        for (index, mut node) in std::mem::take(&mut self.nodes).into_iter().enumerate() {
            if keep[index] {
                new_index[index] = to_index(kept.len());
                node.parent = node.parent.map(|parent| new_index[parent as usize]).filter(|&parent| parent != GONE);
                kept.push(node);
            } else {
                removed.extend(node.value);
            }
        }
        self.nodes = kept;
        self.find_leaves();
        removed
    }

    /// Removes nodes without sorting the remaining ones. Parents of kept nodes must be kept.
    fn keep_in_order(&mut self, keep: impl Fn(usize) -> bool) {
        let mut kept = 0;
        let count = |node| {
            let index = to_index(kept);
            kept += usize::from(keep(node));
            index
        };
        let new_index: Vec<u32> = (0..self.nodes.len()).map(count).collect();
        let nodes = std::mem::take(&mut self.nodes).into_iter().enumerate().filter(|(node, _)| keep(*node));
        self.nodes = nodes.map(|(_, node)| node).collect();
        for node in &mut self.nodes {
            node.parent = node.parent.map(|parent| new_index[parent as usize]);
        }
        self.put_in_order();
    }

    /// Restores the invariants after nodes were added.
    fn put_in_order(&mut self) {
        if !self.nodes.is_sorted_by(|a, b| a.rev < b.rev) {
            let mut nodes: Vec<(u32, Node<T>)> = (0..).zip(std::mem::take(&mut self.nodes)).collect();
            nodes.sort_by(|(_, a), (_, b)| a.rev.cmp(&b.rev));
            let mut new_index = vec![0; nodes.len()];
            for (index, (old, _)) in nodes.iter().enumerate() {
                new_index[*old as usize] = to_index(index);
            }
            self.nodes = nodes.into_iter().map(|(_, node)| node).collect();
            for node in &mut self.nodes {
                node.parent = node.parent.map(|parent| new_index[parent as usize]);
            }
        }
        self.find_leaves();
    }

    fn find_leaves(&mut self) {
        let mut is_leaf = vec![true; self.nodes.len()];
        for parent in self.nodes.iter().filter_map(|node| node.parent) {
            is_leaf[parent as usize] = false;
        }
        self.leaves = (0..).zip(is_leaf).filter_map(|(index, is_leaf)| is_leaf.then_some(index)).collect();
    }
}

fn search<T>(nodes: &[Node<T>], rev: &Rev) -> Option<u32> {
    // Most searches are for the newest revision.
    match nodes.last() {
        Some(last) if last.rev == *rev => Some(to_index(nodes.len() - 1)),
        _ => nodes.binary_search_by(|node| node.rev.cmp(rev)).ok().map(to_index),
    }
}

fn to_index(index: usize) -> u32 {
    u32::try_from(index).expect("a tree of four thousand million revisions does not fit into memory")
}
