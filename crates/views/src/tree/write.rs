//! [`NodeWriter`] assigns numbers to new nodes and writes them to the engine.

use settee_storage::{Batch, Keyspace};

use super::{Child, Inner};
use crate::error::Result;
use crate::keys;
use crate::leaf::{EncodedLeaf, Leaf};

pub(crate) trait Committer {
    /// Commits a batch of nodes, which are unreferenced until the index is published, and may be lost until then.
    fn commit(&mut self, batch: Batch) -> Result<()>;

    /// Notifies of an inner node that the next commit stores. Readers of the new tree need it, so it may be cached.
    fn written(&mut self, id: u64, node: Inner) {
        let _ = (id, node);
    }
}

const BATCH_BYTES: usize = if cfg!(test) { 64 << 10 } else { 1 << 20 };

/// Maximum size of a stored value. Longer nodes are stored in pieces with consecutive numbers.
const PIECE_BYTES: usize = if cfg!(test) { 600 } else { 256 << 10 };

/// Prefix of the first piece of a node; the number of further pieces (4 bytes) follows. No encoded node has this
/// prefix.
pub(super) const IN_PIECES: [u8; 5] = [0xff; 5];

pub(crate) struct NodeWriter<'a> {
    committer: &'a mut dyn Committer,
    batch: Batch,
    next_node: u64,
}

impl<'a> NodeWriter<'a> {
    /// `next_node` must be the smallest number that was never used.
    pub(crate) fn new(committer: &'a mut dyn Committer, next_node: u64) -> Self {
        Self { committer, batch: Batch::new(), next_node }
    }

    pub(crate) fn leaf(&mut self, leaf: &Leaf) -> Result<u64> {
        let mut encoded = Vec::new();
        leaf.encode(&mut encoded);
        self.node(&encoded)
    }

    pub(crate) fn encoded_leaf(&mut self, leaf: &EncodedLeaf) -> Result<u64> {
        self.node(leaf.encoded())
    }

    pub(crate) fn inner<'c>(&mut self, children: impl Iterator<Item = &'c Child>, aggregates: usize) -> Result<u64> {
        let mut encoded = Vec::new();
        Inner::encode(children, aggregates, &mut encoded);
        let id = self.node(&encoded)?;
        let pieces = encoded.len().saturating_sub(1) / PIECE_BYTES;
        let pieces = u32::try_from(pieces).expect("nodes stay below 4 GiB");
        self.committer.written(id, Inner::decode(encoded)?.in_pieces(pieces));
        Ok(id)
    }

    fn node(&mut self, encoded: &[u8]) -> Result<u64> {
        if encoded.len() <= PIECE_BYTES {
            return self.piece(encoded);
        }
        let (first, others) = encoded.split_at(PIECE_BYTES);
        let count = u32::try_from(others.len().div_ceil(PIECE_BYTES)).expect("nodes stay below 4 GiB");
        let id = self.piece(&[&IN_PIECES[..], &count.to_be_bytes(), first].concat())?;
        for piece in others.chunks(PIECE_BYTES) {
            self.piece(piece)?;
        }
        Ok(id)
    }

    fn piece(&mut self, encoded: &[u8]) -> Result<u64> {
        if self.batch.size_bytes() >= BATCH_BYTES {
            self.committer.commit(std::mem::take(&mut self.batch))?;
        }
        let id = self.next_node;
        self.next_node += 1;
        self.batch.insert(Keyspace::IndexNodes, &keys::node(id), encoded);
        Ok(id)
    }

    pub(crate) fn finish(self) -> (Batch, u64) {
        (self.batch, self.next_node)
    }
}
