//! The aggregate tree: a B+tree of engine values whose inner nodes know the number of rows below each child and what the
//! reduce functions of the index make of them.
//!
//! Nodes are never changed: a change writes new nodes from the leaf to the root, under numbers that were never used in
//! this index, and a new [`Root`] names the tree from then on. So a crash between two commits leaves the old tree, a
//! reader needs no lock, and a decoded inner node may be kept for as long as anybody wants it ([`NodeCache`]).
//!
//! - [`load`] builds a tree from sorted rows, bottom-up.
//! - [`apply`] makes a tree of another and sorted changes, touching the nodes that change.
//! - [`walk`] goes through a range of rows and may take whole subtrees by what their parent knows of them.
//! - [`aggregates`] makes a tree with other reduce functions of the same leaves.
//!
//! The tree orders opaque bytes. It knows nothing of documents, collation or queries.

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
pub(crate) use read::{LEAVES_TOGETHER, NodeCache, TreeReader, together};

/// Leaves are cut at about this many bytes of rows. Encoded they take about half of it. Nodes are small in tests, so that
/// few rows make high trees.
const LEAF_BYTES: usize = if cfg!(test) { 1 << 10 } else { 16 << 10 };
/// Inner nodes are cut at about this many bytes.
const INNER_BYTES: usize = if cfg!(test) { 512 } else { 8 << 10 };
/// Inner nodes have at least so many children, however large their reductions are.
const INNER_CHILDREN: usize = if cfg!(test) { 4 } else { 8 };

/// Leaves whose rows are held at a time have about so many bytes, or are one. Rows may be long, and many leaves may be touched.
const HELD_BYTES: usize = if cfg!(test) { 16 << 10 } else { 32 << 20 };
/// Nodes that wait to be reduced together have about so many bytes at most.
const WAITING_BYTES: usize = if cfg!(test) { 8 << 10 } else { 1 << 20 };

/// The leaves that are held at a time: how many of `children`, from the first.
fn held_together<'c>(children: impl Iterator<Item = &'c Child>) -> usize {
    let mut bytes = 0;
    let fits = |child: &&Child| {
        let before = bytes;
        bytes += leaf_bytes(child.bytes);
        before < HELD_BYTES
    };
    children.take_while(fits).count()
}

/// The memory that a leaf takes whose rows have so many bytes, as clients see them.
fn leaf_bytes(content_bytes: u64) -> usize {
    usize::try_from(content_bytes).unwrap_or(usize::MAX).saturating_mul(2).max(LEAF_BYTES)
}

/// Where a tree begins, and what is known of all its rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Root {
    /// The number of inner levels: 0 if the root is a leaf.
    pub(crate) height: u32,
    /// The root node, as a parent would know it.
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
