//! [`TreeReader`]: nodes of one index in one snapshot.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_storage::{Keyspace, Snapshot};

use super::{Inner, Leaf, Root};
use crate::error::{Result, ViewError};
use crate::keys;

/// Inner nodes of one index that were read lately. Nodes never change and numbers are never used again, so nothing in here
/// goes stale.
#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    generations: Mutex<Generations>,
}

/// Nodes that are used move to `young`; when it is full, the ones that did not move are forgotten.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<u64, Arc<Inner>>,
    old: HashMap<u64, Arc<Inner>>,
}

/// How many nodes one generation has: with some 150 children each enough for the inner levels of two million rows.
const GENERATION_NODES: usize = 128;

impl NodeCache {
    fn get(&self, id: u64) -> Option<Arc<Inner>> {
        let mut generations = self.generations.lock();
        if let Some(node) = generations.young.get(&id) {
            return Some(Arc::clone(node));
        }
        let node = generations.old.remove(&id)?;
        generations.insert(id, Arc::clone(&node));
        Some(node)
    }

    fn insert(&self, id: u64, node: Arc<Inner>) {
        self.generations.lock().insert(id, node);
    }

    /// Forgets everything, for an index whose numbers begin anew.
    pub(crate) fn clear(&self) {
        *self.generations.lock() = Generations::default();
    }
}

impl Generations {
    fn insert(&mut self, id: u64, node: Arc<Inner>) {
        if self.young.len() == GENERATION_NODES {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(id, node);
    }
}

/// Reads the nodes of an index.
#[derive(Clone, Copy)]
pub(crate) struct TreeReader<'a> {
    pub(crate) snapshot: &'a dyn Snapshot,
    pub(crate) cache: &'a NodeCache,
}

impl TreeReader<'_> {
    fn node(&self, id: u64) -> Result<Vec<u8>> {
        let node = self.snapshot.get(Keyspace::IndexNodes, &keys::node(id))?;
        node.ok_or(ViewError::Corrupt("node is missing"))
    }

    pub(crate) fn leaf(&self, id: u64) -> Result<Leaf> {
        Leaf::decode(&self.node(id)?)
    }

    pub(crate) fn leaves(&self, ids: &[u64]) -> Result<Vec<Leaf>> {
        let keys: Vec<[u8; 8]> = ids.iter().map(|&id| keys::node(id)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let nodes = self.snapshot.multi_get(Keyspace::IndexNodes, &keys)?;
        let decode = |node: Option<Vec<u8>>| Leaf::decode(&node.ok_or(ViewError::Corrupt("node is missing"))?);
        nodes.into_iter().map(decode).collect()
    }

    pub(crate) fn inner(&self, id: u64) -> Result<Arc<Inner>> {
        if let Some(node) = self.cache.get(id) {
            return Ok(node);
        }
        let node = Arc::new(Inner::decode(self.node(id)?)?);
        self.cache.insert(id, Arc::clone(&node));
        Ok(node)
    }

    /// How many rows are less than `bound`.
    pub(crate) fn rank(&self, root: &Root, bound: &[u8]) -> Result<u64> {
        let mut id = root.node.id;
        let mut rank = 0;
        for _ in 0..root.height {
            let inner = self.inner(id)?;
            let position = inner.position(bound);
            rank += (0..position).map(|child| inner.rows(child)).sum::<u64>();
            id = inner.id(position);
        }
        Ok(rank + self.leaf(id)?.rank(bound) as u64)
    }

    /// The leaves in their order, and the inner nodes.
    pub(crate) fn node_ids(&self, root: &Root) -> Result<(Vec<u64>, Vec<u64>)> {
        let mut level = vec![root.node.id];
        let mut inner = Vec::new();
        for _ in 0..root.height {
            let mut below = Vec::new();
            for &id in &level {
                let node = self.inner(id)?;
                below.extend((0..node.len()).map(|child| node.id(child)));
            }
            inner.append(&mut level);
            level = below;
        }
        Ok((level, inner))
    }

    /// The leaf in which `row_key` lies or would lie.
    pub(crate) fn leaf_of(&self, root: &Root, row_key: &[u8]) -> Result<u64> {
        let mut id = root.node.id;
        for _ in 0..root.height {
            let inner = self.inner(id)?;
            id = inner.id(inner.position(row_key));
        }
        Ok(id)
    }
}
