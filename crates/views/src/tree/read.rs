//! [`TreeReader`]: nodes of one index in one snapshot; [`NodeCache`]: cached nodes of all indexes.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_storage::{Keyspace, Shard, ShardState, Snapshot};

use super::write::IN_PIECES;
use super::{Inner, Root};
use crate::error::{Result, ViewError};
use crate::keys;
use crate::leaf::Leaf;

const MISSING: &str = "node is missing";

/// Maximum number of leaves per round trip.
pub(crate) const LEAVES_PER_ROUND_TRIP: usize = if cfg!(test) { 3 } else { 16 };

/// Maximum bytes of rows per round trip, except for a single leaf.
const LEAVES_BYTES: u64 = if cfg!(test) { 4 << 10 } else { 2 << 20 };

/// Cached nodes never become stale, because nodes are immutable and neither shards nor node numbers are reused.
#[derive(Debug, Default)]
pub(crate) struct NodeCache {
    generations: Mutex<Generations>,
}

/// Used nodes move to `young`; when it is full, the nodes in `old` are evicted.
#[derive(Debug, Default)]
struct Generations {
    young: HashMap<(Shard, u64), Node>,
    old: HashMap<(Shard, u64), Node>,
    young_bytes: usize,
}

#[derive(Clone, Debug)]
enum Node {
    Inner(Arc<Inner>),
    Leaf(Arc<Leaf>),
}

impl Node {
    fn memory_bytes(&self) -> usize {
        match self {
            Self::Inner(node) => node.memory_bytes(),
            Self::Leaf(leaf) => leaf.memory_bytes(),
        }
    }
}

const GENERATION_BYTES: usize = if cfg!(test) { 256 << 10 } else { 24 << 20 };

impl NodeCache {
    fn get(&self, shard: Shard, id: u64) -> Option<Node> {
        let mut generations = self.generations.lock();
        if let Some(node) = generations.young.get(&(shard, id)) {
            return Some(node.clone());
        }
        let node = generations.old.remove(&(shard, id))?;
        generations.insert((shard, id), node.clone());
        Some(node)
    }

    fn insert(&self, shard: Shard, id: u64, node: Node) {
        self.generations.lock().insert((shard, id), node);
    }

    pub(crate) fn keep(&self, shard: Shard, id: u64, node: Inner) {
        self.insert(shard, id, Node::Inner(Arc::new(node)));
    }

    /// Evicts a shard in which numbers are reused because their former nodes were never referenced.
    pub(crate) fn forget(&self, shard: Shard) {
        let mut generations = self.generations.lock();
        let Generations { young, old, young_bytes } = &mut *generations;
        young.retain(|(of, _), _| *of != shard);
        old.retain(|(of, _), _| *of != shard);
        *young_bytes = young.values().map(Node::memory_bytes).sum();
    }
}

impl Generations {
    fn insert(&mut self, key: (Shard, u64), node: Node) {
        self.young_bytes += node.memory_bytes();
        self.young.insert(key, node);
        if self.young_bytes > GENERATION_BYTES {
            self.old = std::mem::take(&mut self.young);
            self.young_bytes = 0;
        }
    }
}

const PIECES_TOGETHER: usize = 16;

struct Encoded {
    node: Vec<u8>,
    pieces: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct TreeReader<'a> {
    pub(crate) snapshot: &'a dyn Snapshot,
    pub(crate) shard: Shard,
    pub(crate) cache: &'a NodeCache,
}

impl TreeReader<'_> {
    pub(crate) fn leaf(&self, id: u64) -> Result<Arc<Leaf>> {
        self.shared_leaves(&[id])?.pop().ok_or(ViewError::Corrupt(MISSING))
    }

    /// Reads leaves through the cache, in one round trip.
    pub(crate) fn shared_leaves(&self, ids: &[u64]) -> Result<Vec<Arc<Leaf>>> {
        let mut leaves: Vec<Option<Arc<Leaf>>> = ids.iter().map(|&id| self.cached_leaf(id)).collect();
        let missing: Vec<u64> = ids.iter().zip(&leaves).filter(|(_, leaf)| leaf.is_none()).map(|(&id, _)| id).collect();
        let mut read = self.leaves(&missing)?.into_iter();
        for (&id, leaf) in ids.iter().zip(&mut leaves).filter(|(_, leaf)| leaf.is_none()) {
            let found = Arc::new(read.next().ok_or(ViewError::Corrupt(MISSING))?);
            self.cache.insert(self.shard, id, Node::Leaf(Arc::clone(&found)));
            *leaf = Some(found);
        }
        Ok(leaves.into_iter().flatten().collect())
    }

    fn cached_leaf(&self, id: u64) -> Option<Arc<Leaf>> {
        match self.cache.get(self.shard, id)? {
            Node::Leaf(leaf) => Some(leaf),
            Node::Inner(_) => None,
        }
    }

    pub(crate) fn leaves(&self, ids: &[u64]) -> Result<Vec<Leaf>> {
        let nodes = self.nodes(ids)?;
        nodes.into_iter().map(|Encoded { node, pieces }| Ok(Leaf::decode(&node)?.in_pieces(pieces))).collect()
    }

    pub(crate) fn own_leaf(&self, id: u64) -> Result<Leaf> {
        self.leaves(&[id])?.pop().ok_or(ViewError::Corrupt(MISSING))
    }

    pub(crate) fn inner(&self, id: u64) -> Result<Arc<Inner>> {
        if let Some(Node::Inner(node)) = self.cache.get(self.shard, id) {
            return Ok(node);
        }
        let Encoded { node, pieces } = self.nodes(&[id])?.pop().ok_or(ViewError::Corrupt(MISSING))?;
        let node = Arc::new(Inner::decode(node)?.in_pieces(pieces));
        self.cache.insert(self.shard, id, Node::Inner(Arc::clone(&node)));
        Ok(node)
    }

    fn nodes(&self, ids: &[u64]) -> Result<Vec<Encoded>> {
        let mut nodes = Vec::with_capacity(ids.len());
        for (id, node) in ids.iter().zip(self.stored(ids)?) {
            let Some(rest) = node.strip_prefix(&IN_PIECES) else {
                nodes.push(Encoded { node, pieces: 0 });
                continue;
            };
            let (count, first) = rest.split_first_chunk().ok_or(ViewError::Corrupt(MISSING))?;
            let (mut whole, pieces) = (first.to_vec(), u32::from_be_bytes(*count));
            let end = id.saturating_add(1 + u64::from(pieces));
            for start in (id + 1..end).step_by(PIECES_TOGETHER) {
                let some: Vec<u64> = (start..end).take(PIECES_TOGETHER).collect();
                self.stored(&some)?.iter().for_each(|piece| whole.extend_from_slice(piece));
            }
            nodes.push(Encoded { node: whole, pieces });
        }
        Ok(nodes)
    }

    fn stored(&self, ids: &[u64]) -> Result<Vec<Vec<u8>>> {
        let keys: Vec<[u8; 8]> = ids.iter().map(|&id| keys::node(id)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 8]>::as_slice).collect();
        let stored = self.snapshot.multi_get(Keyspace::IndexNodes, &keys)?;
        stored.into_iter().zip(ids).map(|(node, &id)| node.map_or_else(|| Err(self.missing(id)), Ok)).collect()
    }

    fn missing(&self, node: u64) -> ViewError {
        match self.snapshot.state() {
            Ok(ShardState { version, token }) => {
                ViewError::MissingNode { node, shard: self.shard.0, version: version.0, token: token.0 }
            }
            Err(error) => error.into(),
        }
    }

    pub(crate) fn read_ahead<'k>(&self, root: &Root, row_keys: impl Iterator<Item = &'k [u8]>) -> Result<()> {
        let mut ids = Vec::new();
        let mut bytes = 0;
        for row_key in row_keys {
            let (id, leaf_bytes) = self.leaf_of(root, row_key)?;
            if !ids.contains(&id) {
                ids.push(id);
                bytes += leaf_bytes;
            }
            if ids.len() == LEAVES_PER_ROUND_TRIP || bytes > LEAVES_BYTES {
                break;
            }
        }
        self.shared_leaves(&ids).map(drop)
    }

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

    pub(crate) fn leaf_ids(&self, root: &Root) -> Result<Vec<(u64, u64)>> {
        let mut level = vec![(root.node.id, root.node.bytes)];
        for _ in 0..root.height {
            let mut below = Vec::new();
            for (id, _) in level {
                let node = self.inner(id)?;
                below.extend((0..node.len()).map(|child| (node.id(child), node.content_bytes(child))));
            }
            level = below;
        }
        Ok(level)
    }

    /// Returns the leaf that contains `row_key` or would contain it, and the bytes of its rows.
    pub(crate) fn leaf_of(&self, root: &Root, row_key: &[u8]) -> Result<(u64, u64)> {
        let (mut id, mut bytes) = (root.node.id, root.node.bytes);
        for _ in 0..root.height {
            let inner = self.inner(id)?;
            let position = inner.position(row_key);
            (id, bytes) = (inner.id(position), inner.content_bytes(position));
        }
        Ok((id, bytes))
    }
}

/// Returns how many of the first leaves to read in one round trip, given the bytes of their rows.
pub(crate) fn leaves_per_round_trip(leaf_bytes: impl Iterator<Item = u64>) -> usize {
    let mut bytes = 0;
    let fits = |leaf: &u64| {
        let before = bytes;
        bytes += leaf;
        before < LEAVES_BYTES
    };
    leaf_bytes.take(LEAVES_PER_ROUND_TRIP).take_while(fits).count()
}
