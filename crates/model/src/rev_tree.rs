//! Revision trees: what a document database remembers so that copies which were edited apart can be brought together.
//!
//! # What a revision tree is
//!
//! Every edit of a document makes a *revision* that names the revision it was made from. While all edits happen in one
//! place, revisions form a chain:
//!
//! ```text
//! 1-a ── 2-b ── 3-c
//! ```
//!
//! Two places that edit `2-b` independently make two successors. When they replicate, neither edit is lost: the chain has
//! become a tree with two *leaves*, which are in *conflict*:
//!
//! ```text
//! 1-a ── 2-b ──┬── 3-c
//!              └── 3-x ── 4-y
//! ```
//!
//! One leaf is shown to readers, the *winner*. It is a pure function of the set of leaves (see [`RevTree::winner`]), so all
//! copies that know the same leaves show the same document, without having talked about it. A client resolves a conflict by
//! deleting the leaves it does not want: a deletion is a revision too, and a live leaf wins over a deleted one.
//!
//! What travels between copies is a *path*: a leaf and its ancestors. [`RevTree::merge`] adds a path to a tree. The result
//! does not depend on the order in which paths arrive, nor on how often the same one does.
//!
//! Trees would grow forever, so ancestors beyond a limit are forgotten ([`RevTree::stem`]). A tree may then have several
//! roots: branches whose common ancestor is no longer known. If a longer path tells about it later, they grow together
//! again.
//!
//! # Representation
//!
//! A tree is one vector of nodes in the order of their revision ids, each with the index of its parent. A parent's
//! generation is one less than its child's, so it always is before it; an edit of the winner of a document without
//! conflicts is one `push`; finding a revision is a binary search; and equal trees are equal vectors, whatever made them.
//! Beside it stands the list of leaves. A history of 1,000 revisions is an array, not a recursion.
//!
//! A revision has one ancestry. Should somebody send a known revision with a different parent than the known one (with
//! honest hashes that needs an MD5 collision), the first stays and the rest of the sent path is ignored. CouchDB would
//! keep both.
//!
//! This module does not know what the values are, nor which of them mean deletion: callers say so.

use std::cmp::Reverse;

use crate::rev::Rev;

mod growth;
mod merge;
#[cfg(test)]
mod tests;

pub use growth::{Grown, Growth, Known, Revisions};

/// Revisions of one document; `T` is what is stored for a revision (`None`: known only as an ancestor).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RevTree<T> {
    /// Strictly ascending by revision.
    nodes: Vec<Node<T>>,
    /// Indices of nodes that are nobody's parent, ascending.
    leaves: Vec<u32>,
}

/// One revision in a [`RevTree`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Node<T> {
    /// Its id.
    pub rev: Rev,
    /// Index of the parent, always smaller than the node's own; `None` for a first revision and where history was forgotten.
    pub parent: Option<u32>,
    /// The value that is stored for it.
    pub value: Option<T>,
}

/// The outcome of [`RevTree::merge`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// The revision is a new leaf whose ancestor was a leaf, or the first of all.
    Extended,
    /// The revision is a new leaf beside others: a conflict.
    Branched,
    /// The revision was there already, as leaf or ancestor.
    Known,
}

/// Nodes that make no tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum InvalidTree {
    /// A parent does not stand before its child or is not of the generation before.
    #[error("revision tree node {node} has no valid parent")]
    Parent {
        /// Index of the child.
        node: usize,
    },
    /// The same revision appears twice.
    #[error("a revision stands twice in its tree, at node {node}")]
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
    /// More nodes than an index can count.
    #[error("revision tree is too large")]
    TooLarge,
}

impl<T> Default for RevTree<T> {
    fn default() -> Self {
        RevTree { nodes: Vec::new(), leaves: Vec::new() }
    }
}

impl<T> RevTree<T> {
    /// A tree without revisions.
    pub fn new() -> Self {
        RevTree::default()
    }

    /// Puts stored nodes together. Their order may differ from that of [`RevTree::nodes`], but parents must stand before
    /// their children.
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

    /// All revisions in the order of their ids.
    pub fn nodes(&self) -> &[Node<T>] {
        &self.nodes
    }

    /// The revision with this index.
    ///
    /// # Panics
    ///
    /// If there is none: indices are valid until the tree changes.
    pub fn node(&self, node: u32) -> &Node<T> {
        &self.nodes[node as usize]
    }

    /// As [`RevTree::node`], to change the value that is stored for it.
    pub fn value_mut(&mut self, node: u32) -> Option<&mut T> {
        self.nodes[node as usize].value.as_mut()
    }

    /// Whether there are no revisions.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Index of a revision.
    pub fn find(&self, rev: &Rev) -> Option<u32> {
        search(&self.nodes, rev)
    }

    /// Whether the revision has no successors.
    pub fn is_leaf(&self, node: u32) -> bool {
        self.leaves.binary_search(&node).is_ok()
    }

    /// Indices of all leaves, in the order of their ids.
    pub fn leaves(&self) -> impl Iterator<Item = u32> {
        self.leaves.iter().copied()
    }

    /// Number of leaves.
    pub fn leaf_count(&self) -> usize {
        self.leaves.len()
    }

    /// The leaf that readers see, by CouchDB's rule: a live one before a deleted one, then the highest generation, then the
    /// greatest hash. `None` only if the tree is empty.
    pub fn winner(&self, deleted: impl Fn(&T) -> bool) -> Option<u32> {
        // Leaves are in the order of their ids.
        let is_live = |leaf: &u32| self.rank(*leaf, &deleted).0;
        self.leaves.iter().rev().copied().find(is_live).or_else(|| self.leaves.last().copied())
    }

    /// All leaves, the winner first, in the order in which each would win if those before it were not there.
    pub fn leaves_by_rank(&self, deleted: impl Fn(&T) -> bool) -> Vec<u32> {
        let mut leaves = self.leaves.clone();
        leaves.sort_unstable_by_key(|&leaf| Reverse(self.rank(leaf, &deleted)));
        leaves
    }

    /// Nodes are in the order of their ids, so the index stands for generation and hash.
    fn rank(&self, leaf: u32, deleted: impl Fn(&T) -> bool) -> (bool, u32) {
        (self.nodes[leaf as usize].value.as_ref().is_some_and(|value| !deleted(value)), leaf)
    }

    /// The node and its ancestors, newest first.
    pub fn history(&self, node: u32) -> impl Iterator<Item = u32> {
        std::iter::successors(Some(node), |&node| self.nodes[node as usize].parent)
    }

    /// The leaves that one of `nodes` is an ancestor of, or is itself, in the order of their ids: what `latest=true` asks for.
    pub fn leaves_of(&self, nodes: &[u32]) -> Vec<u32> {
        let mut reaches = vec![false; self.nodes.len()];
        for node in nodes {
            reaches[*node as usize] = true;
        }
        // Ancestors have smaller indices.
        for (index, node) in self.nodes.iter().enumerate() {
            reaches[index] |= node.parent.is_some_and(|parent| reaches[parent as usize]);
        }
        self.leaves().filter(|&leaf| reaches[leaf as usize]).collect()
    }

    /// Forgets ancestors beyond the newest `limit` revisions of every leaf (CouchDB's `_revs_limit`; at least 1); returns the
    /// values that were forgotten.
    pub fn stem(&mut self, limit: usize) -> Vec<T> {
        if self.nodes.len() <= limit {
            return Vec::new();
        }
        // How far away the nearest leaf is. Ancestors have smaller indices.
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

    /// Removes a leaf and the ancestors that only it had, as a purge does; returns the leaf's value, or `None` if the revision
    /// is no leaf.
    pub fn remove_leaf(&mut self, rev: &Rev) -> Option<T> {
        self.purge(rev)?.into_iter().next()
    }

    /// As [`RevTree::remove_leaf`], but returns all values that were removed, newest first.
    pub fn purge(&mut self, rev: &Rev) -> Option<Vec<T>> {
        let leaf = self.find(rev).filter(|&node| self.is_leaf(node))?;
        let mut keep = vec![false; self.nodes.len()];
        for other in self.leaves().filter(|&other| other != leaf) {
            for node in self.history(other) {
                // The rest of this history was seen with an earlier leaf.
                if std::mem::replace(&mut keep[node as usize], true) {
                    break;
                }
            }
        }
        let mut removed = self.retain(&keep);
        removed.reverse();
        Some(removed)
    }

    /// Takes the values of all revisions that are no leaves, as a compaction does: from then on they are known only as
    /// ancestors.
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

    /// Keeps some nodes; returns the values of the others in the order of their ids.
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

    /// Puts nodes in order that stand as they came, without some; parents of those that are kept are kept.
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

    /// Sorts nodes by revision, after which `parent` holds new indices, and finds the leaves.
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
