//! [`Growth`]: a revision tree that is optimized for merging many paths. Sorting a [`RevTree`] after each merge is
//! linear in its nodes. After a few merges a growth therefore finds revisions in an index, appends new ones unsorted,
//! and stems only the ancestors of the new revision. It is sorted once, by [`Growth::settle`]. The result equals
//! merging and stemming one path after the other.

use std::collections::HashMap;

use crate::rev::Rev;
use crate::rev_tree::merge::without_gap;
use crate::rev_tree::{Node, RevTree, to_index};

/// Number of merges and size of a tree from which the index is used.
const MERGES_BEFORE: usize = 4;
const NODES_BEFORE: usize = 64;

/// A tree, sorted or not. Indices are valid until it changes.
pub trait Revisions<T> {
    /// Returns the index of a revision.
    fn find(&self, rev: &Rev) -> Option<u32>;

    /// Returns the revision with this index.
    fn node(&self, node: u32) -> &Node<T>;

    /// Returns true if the revision has no successors.
    fn is_leaf(&self, node: u32) -> bool;

    /// Returns true if a leaf has a value that matches.
    fn has_leaf(&self, wanted: impl Fn(&T) -> bool) -> bool;

    /// Returns the leaf that readers see ([`RevTree::winner`]).
    fn winner(&self, deleted: impl Fn(&T) -> bool) -> Option<u32>;
}

impl<T> Revisions<T> for RevTree<T> {
    fn find(&self, rev: &Rev) -> Option<u32> {
        Self::find(self, rev)
    }

    fn node(&self, node: u32) -> &Node<T> {
        Self::node(self, node)
    }

    fn is_leaf(&self, node: u32) -> bool {
        Self::is_leaf(self, node)
    }

    fn has_leaf(&self, wanted: impl Fn(&T) -> bool) -> bool {
        self.leaves().any(|leaf| self.node(leaf).value.as_ref().is_some_and(&wanted))
    }

    fn winner(&self, deleted: impl Fn(&T) -> bool) -> Option<u32> {
        Self::winner(self, deleted)
    }
}

/// A tree to which paths are added.
#[derive(Debug)]
pub struct Growth<T> {
    /// While an index exists, the nodes are unsorted, some of them are removed, and the leaves are invalid.
    tree: RevTree<T>,
    /// Number of consecutive stemmings with the same limit, and that limit.
    stemmed: (usize, usize),
    index: Option<Index>,
    steps: u64,
}

/// The part of a path that is already in a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// The revision is not in the tree, or only as an ancestor.
    Nothing,
    /// The revision with its value, but fewer ancestors.
    NotAllAncestors,
    /// The revision with its value and all ancestors of the path.
    Everything,
}

/// Result of [`Growth::merge`].
#[derive(Debug, PartialEq, Eq)]
pub struct Grown<T> {
    /// True if the tree changed.
    pub changed: bool,
    /// Values of removed ancestors, in any order.
    pub forgotten: Vec<T>,
}

#[derive(Debug)]
struct Index {
    by_rev: HashMap<Rev, u32>,
    places: Vec<Place>,
}

/// Relations of a node. Children are a linked list that may contain removed nodes.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    is_gone: bool,
    children: u32,
    first_child: Option<u32>,
    next_sibling: Option<u32>,
}

impl<T> Growth<T> {
    /// Creates a growth from this tree.
    pub fn new(tree: RevTree<T>) -> Self {
        Self { tree, stemmed: (0, 0), index: None, steps: 0 }
    }

    /// Sorts the tree and returns it.
    pub fn settle(&mut self) -> &RevTree<T> {
        if let Some(index) = self.index.take() {
            self.steps += index.places.len() as u64;
            self.tree.keep_in_order(|node| !index.places[node].is_gone);
        }
        &self.tree
    }

    /// As [`Self::settle`], and consumes the growth.
    pub fn into_settled(mut self) -> RevTree<T> {
        self.settle();
        self.tree
    }

    /// As [`Self::settle`], with mutable access.
    pub fn settle_mut(&mut self) -> &mut RevTree<T> {
        self.settle();
        self.stemmed = (0, 0);
        &mut self.tree
    }

    /// Returns the tree if it is sorted.
    pub fn settled(&self) -> Option<&RevTree<T>> {
        self.index.is_none().then_some(&self.tree)
    }

    /// Number of nodes that all merges visited.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the part of the path that is already in the tree.
    pub fn known(&self, path: &[Rev]) -> Known {
        let history = |node| std::iter::successors(Some(node), |&node| self.node(node).parent);
        match path.first().and_then(|rev| self.find(rev)) {
            Some(node) if self.node(node).value.is_none() => Known::Nothing,
            Some(node) if history(node).take(path.len()).count() < path.len() => Known::NotAllAncestors,
            Some(_) => Known::Everything,
            None => Known::Nothing,
        }
    }

    /// Equivalent to [`RevTree::merge`] and then [`RevTree::stem`]. Panics if the path is empty.
    pub fn merge(&mut self, path: &[Rev], value: T, limit: usize) -> Grown<T>
    where
        T: Clone + PartialEq,
    {
        let (merges, stemmed_to) = self.stemmed;
        if stemmed_to != limit {
            self.settle();
            self.stemmed = (0, limit);
        } else if self.index.is_none() && merges >= MERGES_BEFORE && self.tree.nodes.len() >= NODES_BEFORE {
            self.steps += self.tree.nodes.len() as u64;
            self.index = Some(Index::of(&self.tree));
        }
        match &mut self.index {
            Some(index) => {
                let (grown, steps) = index.merge(&mut self.tree.nodes, path, value, limit.max(1));
                self.steps += steps;
                grown
            }
            None => {
                self.stemmed.0 += 1;
                self.steps += self.tree.nodes.len() as u64;
                // Only a path that is already known can leave the tree unchanged.
                let before = (self.known(path) != Known::Nothing).then(|| self.tree.clone());
                self.tree.merge(path, value);
                let forgotten = self.tree.stem(limit);
                Grown { changed: before.is_none_or(|before| before != self.tree), forgotten }
            }
        }
    }
}

impl<T> Revisions<T> for Growth<T> {
    fn find(&self, rev: &Rev) -> Option<u32> {
        match &self.index {
            Some(index) => index.by_rev.get(rev).copied(),
            None => self.tree.find(rev),
        }
    }

    fn node(&self, node: u32) -> &Node<T> {
        self.tree.node(node)
    }

    fn is_leaf(&self, node: u32) -> bool {
        match &self.index {
            Some(index) => index.is_leaf(node),
            None => self.tree.is_leaf(node),
        }
    }

    fn has_leaf(&self, wanted: impl Fn(&T) -> bool) -> bool {
        match &self.index {
            Some(index) => index.leaves().any(|leaf| self.node(leaf).value.as_ref().is_some_and(&wanted)),
            None => self.tree.has_leaf(wanted),
        }
    }

    fn winner(&self, deleted: impl Fn(&T) -> bool) -> Option<u32> {
        let Some(index) = &self.index else { return self.tree.winner(deleted) };
        let rank = |leaf: &u32| {
            let node = self.node(*leaf);
            (node.value.as_ref().is_some_and(|value| !deleted(value)), &node.rev)
        };
        index.leaves().max_by(|one, other| rank(one).cmp(&rank(other)))
    }
}

impl Index {
    fn of<T>(tree: &RevTree<T>) -> Self {
        let by_rev = (0..).zip(&tree.nodes).map(|(node, found)| (found.rev.clone(), node)).collect();
        let mut index = Self { by_rev, places: vec![Place::default(); tree.nodes.len()] };
        for (node, found) in (0..).zip(&tree.nodes) {
            if let Some(parent) = found.parent {
                index.adopt(parent, node);
            }
        }
        index
    }

    fn place(&mut self, node: u32) -> &mut Place {
        &mut self.places[node as usize]
    }

    fn adopt(&mut self, parent: u32, child: u32) {
        let sibling = self.places[parent as usize].first_child.replace(child);
        self.place(child).next_sibling = sibling;
        self.place(parent).children += 1;
    }

    fn is_leaf(&self, node: u32) -> bool {
        self.places[node as usize].children == 0
    }

    fn leaves(&self) -> impl Iterator<Item = u32> {
        let is_leaf = |(node, place): (u32, &Place)| (!place.is_gone && place.children == 0).then_some(node);
        (0..).zip(&self.places).filter_map(is_leaf)
    }

    fn children(&self, node: u32) -> impl Iterator<Item = u32> {
        let next = |child: &u32| self.places[*child as usize].next_sibling;
        std::iter::successors(self.places[node as usize].first_child, next)
            .filter(|child| !self.places[*child as usize].is_gone)
    }

    /// The tree must have been stemmed before. Also returns the number of visited nodes.
    fn merge<T>(&mut self, nodes: &mut Vec<Node<T>>, path: &[Rev], value: T, limit: usize) -> (Grown<T>, u64) {
        let known_count = nodes.len();
        let path = without_gap(path);
        let mut linked = Vec::new();
        let mut child: Option<u32> = None;
        let mut newest = None;
        for rev in path {
            let known_parent = child.and_then(|child| nodes[child as usize].parent);
            let found = match known_parent {
                Some(parent) if nodes[parent as usize].rev != *rev => break,
                Some(parent) => Some(parent),
                None => self.by_rev.get(rev).copied(),
            };
            let node = found.unwrap_or_else(|| self.push(nodes, rev));
            if let (Some(child), None) = (child, known_parent) {
                nodes[child as usize].parent = Some(node);
                // The child may still be in the list of its former parent, but that node was removed.
                self.adopt(node, child);
                linked.push(child);
            }
            newest = newest.or(Some(node));
            child = Some(node);
        }
        let newest = newest.expect("a path has at least the revision itself");
        let stored = &mut nodes[newest as usize].value;
        let mut changed = stored.is_none();
        stored.get_or_insert(value);
        let mut grown = Grown { changed, forgotten: Vec::new() };
        if linked.is_empty() && nodes.len() == known_count {
            return (grown, path.len() as u64);
        }
        let steps = self.stem(nodes, newest, limit, &mut grown.forgotten, &mut changed, known_count);
        let is_left = |node: u32| !self.places[node as usize].is_gone;
        changed |= (known_count..nodes.len()).any(|node| is_left(to_index(node)));
        changed |= linked.iter().any(|child| is_left(*child) && nodes[*child as usize].parent.is_some());
        grown.changed = changed;
        (grown, steps + path.len() as u64)
    }

    fn push<T>(&mut self, nodes: &mut Vec<Node<T>>, rev: &Rev) -> u32 {
        let node = to_index(nodes.len());
        nodes.push(Node { rev: rev.clone(), parent: None, value: None });
        self.places.push(Place::default());
        self.by_rev.insert(rev.clone(), node);
        node
    }

    /// Removes ancestors of `newest` that are not among the newest `limit` revisions of any leaf. Returns the number of
    /// visited nodes.
    fn stem<T>(
        &mut self,
        nodes: &mut [Node<T>],
        newest: u32,
        limit: usize,
        forgotten: &mut Vec<T>,
        changed: &mut bool,
        known_count: usize,
    ) -> u64 {
        let mut steps = 0;
        let mut away = usize::MAX;
        let (mut next, mut removed) = (Some(newest), Vec::new());
        while let Some(node) = next {
            steps += 1;
            next = nodes[node as usize].parent;
            away = away.saturating_add(1);
            if away >= limit {
                away = self.nearest_leaf(node, limit, &mut steps).unwrap_or(usize::MAX);
            }
            if away == usize::MAX {
                forgotten.extend(nodes[node as usize].value.take());
                *changed |= (node as usize) < known_count;
                removed.push(node);
                self.remove(nodes, node);
            }
        }
        // Only after the loop: a node that lost its children here is not a leaf, but is removed next.
        for node in removed {
            if let Some(parent) = nodes[node as usize].parent {
                self.place(parent).children -= 1;
            }
        }
        steps
    }

    fn nearest_leaf(&self, node: u32, limit: usize, steps: &mut u64) -> Option<usize> {
        let mut level = vec![node];
        for away in 0..limit {
            *steps += level.len() as u64;
            if level.iter().any(|node| self.is_leaf(*node)) {
                return Some(away);
            }
            level = level.iter().flat_map(|node| self.children(*node)).collect();
            if level.is_empty() {
                return None;
            }
        }
        None
    }

    /// The number of children of the parent does not change.
    fn remove<T>(&mut self, nodes: &mut [Node<T>], node: u32) {
        let children: Vec<u32> = self.children(node).collect();
        for child in children {
            nodes[child as usize].parent = None;
        }
        self.by_rev.remove(&nodes[node as usize].rev);
        self.place(node).is_gone = true;
    }
}
