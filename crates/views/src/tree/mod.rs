//! The aggregate tree: a B+tree whose inner nodes store, for each child, the number of rows below and their reductions.
//!
//! Nodes are immutable: a change writes new nodes, with numbers that were never used in this index; then a new [`Root`]
//! refers to the tree. Therefore a crash leaves the old tree, readers need no lock, and a decoded node can be cached.
//!
//! - [`load`] builds a tree from sorted rows, bottom-up.
//! - [`apply`] builds a tree from another one and sorted changes, writing only changed nodes.
//! - [`walk`] traverses a range of rows and can use the stored data of whole subtrees.
//! - [`aggregates`] builds a tree with other reduce functions over the same leaves.

pub(crate) mod aggregates;
pub(crate) mod apply;
#[cfg(test)]
pub(crate) mod check;
pub(crate) mod load;
mod node;
pub(crate) mod read;
#[cfg(test)]
mod tests;
pub(crate) mod walk;
pub(crate) mod write;

use settee_storage::codec::{Reader, put_bytes, put_len, put_varint};

use crate::error::Result;

pub(crate) use node::{Child, Inner};
pub(crate) use read::{LEAVES_PER_ROUND_TRIP, NodeCache, TreeReader, leaves_per_round_trip};

/// Approximate size of leaves in memory; the encoded form takes about half of it.
const LEAF_BYTES: usize = if cfg!(test) { 1 << 10 } else { 16 << 10 };
const INNER_BYTES: usize = if cfg!(test) { 512 } else { 8 << 10 };
/// Minimum number of children of an inner node, also with large reductions.
const INNER_CHILDREN: usize = if cfg!(test) { 4 } else { 8 };

/// Approximate maximum size of the leaves in memory, but at least one leaf.
const LEAF_MEMORY_BYTES: usize = if cfg!(test) { 16 << 10 } else { 32 << 20 };
const REDUCE_BATCH_BYTES: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };

/// Returns how many of the first `children` may be in memory together.
fn leaves_in_memory<'c>(children: impl Iterator<Item = &'c Child>) -> usize {
    let mut bytes = 0;
    let fits = |child: &&Child| {
        let before = bytes;
        bytes += leaf_bytes(child.bytes);
        before < LEAF_MEMORY_BYTES
    };
    children.take_while(fits).count()
}

/// Estimates the memory of a leaf from the size of its rows in responses.
fn leaf_bytes(content_bytes: u64) -> usize {
    usize::try_from(content_bytes).unwrap_or(usize::MAX).saturating_mul(2).max(LEAF_BYTES)
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    pub(crate) height: u32,
    pub(crate) node: Child,
}

impl Root {
    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        put_varint(out, u64::from(self.height));
        put_varint(out, self.node.id);
        put_varint(out, self.node.rows);
        put_varint(out, self.node.bytes);
        put_len(out, self.node.reductions.len());
        self.node.reductions.iter().for_each(|reduction| put_bytes(out, reduction));
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        let height = u32::try_from(reader.varint()?).unwrap_or(u32::MAX);
        let (id, rows, bytes) = (reader.varint()?, reader.varint()?, reader.varint()?);
        let aggregates = reader.length()?;
        let reductions = (0..aggregates).map(|_| Ok(reader.bytes()?.to_vec())).collect::<Result<_>>()?;
        Ok(Self { height, node: Child { separator: Vec::new(), id, rows, bytes, reductions } })
    }
}
