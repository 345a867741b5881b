//! Merging a path of revisions into a tree.

use crate::rev::Rev;
use crate::rev_tree::{Merge, Node, RevTree, search, to_index};

impl<T> RevTree<T> {
    /// Adds a revision, `path[0]`, and its ancestors, newest first. An existing value is kept. Each revision of the
    /// path must have the preceding generation; the path is ignored after a gap. Panics if the path is empty.
    pub fn merge(&mut self, path: &[Rev], value: T) -> Merge {
        let newest = path.first().expect("a path has at least the revision itself");
        if self.appends(newest, path) {
            self.append(newest.clone(), value);
            return Merge::Extended;
        }
        if let ([newest], true) = (path, self.nodes.is_empty()) {
            self.nodes.push(Node { rev: newest.clone(), parent: None, value: Some(value) });
            self.leaves.push(0);
            return Merge::Extended;
        }
        let path = without_gap(path);
        let outcome = self.link(path);
        let newest = self.find(newest).expect("link has added what was unknown");
        let stored = &mut self.nodes[newest as usize].value;
        if stored.is_none() {
            *stored = Some(value);
        }
        outcome
    }

    /// Returns true for the common edit: the successor of a leaf that becomes the greatest revision of all.
    fn appends(&self, newest: &Rev, path: &[Rev]) -> bool {
        match (self.nodes.last(), path) {
            (Some(last), [_, parent]) => {
                last.rev == *parent && Some(newest.generation) == parent.generation.checked_add(1)
            }
            _ => false,
        }
    }

    fn append(&mut self, rev: Rev, value: T) {
        // The greatest revision has no successors, and leaves are in order, so it is the last of them.
        let parent = to_index(self.nodes.len() - 1);
        let node = to_index(self.nodes.len());
        self.nodes.push(Node { rev, parent: Some(parent), value: Some(value) });
        *self.leaves.last_mut().expect("a tree with nodes has a leaf") = node;
    }

    fn link(&mut self, path: &[Rev]) -> Merge {
        let known_count = self.nodes.len();
        let mut changed = false;
        let mut first_known = None;
        let mut child: Option<u32> = None;
        for (age, rev) in path.iter().enumerate() {
            let known_parent = child.and_then(|child| self.nodes[child as usize].parent);
            // Following existing parents costs less than searching.
            let found = match known_parent {
                Some(parent) if self.nodes[parent as usize].rev != *rev => break,
                Some(parent) => Some(parent),
                None => search(&self.nodes[..known_count], rev),
            };
            if found.is_some() && first_known.is_none() {
                first_known = found.map(|node| (age, self.is_leaf(node)));
            }
            let node = found.unwrap_or_else(|| {
                self.nodes.push(Node { rev: rev.clone(), parent: None, value: None });
                to_index(self.nodes.len() - 1)
            });
            if let (Some(child), None) = (child, known_parent) {
                self.nodes[child as usize].parent = Some(node);
                changed = true;
            }
            changed |= found.is_none();
            child = Some(node);
        }
        if changed {
            self.put_in_order();
        }
        match first_known {
            Some((0, _)) => Merge::Known,
            Some((_, true)) => Merge::Extended,
            None if known_count == 0 => Merge::Extended,
            Some((_, false)) | None => Merge::Branched,
        }
    }
}

pub(super) fn without_gap(path: &[Rev]) -> &[Rev] {
    let follows = |pair: &[Rev]| pair[1].generation.checked_add(1) == Some(pair[0].generation);
    let length = path.windows(2).position(|pair| !follows(pair)).map_or(path.len(), |gap| gap + 1);
    &path[..length]
}
