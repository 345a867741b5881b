//! [`Removal`]: a document whose list has lost an entry. Members with this entry see tombstones instead of the document,
//! unless another entry grants access. A tombstone is a successor of the last visible revision of a branch. It is not
//! stored, so that other readers do not see it.

use md5::{Digest as _, Md5};
use settee_model::rev_tree::RevTree;
use settee_model::{Rev, RevHash};
use settee_storage::Batch;
use settee_storage::codec::{Reader as Decoder, put_bytes, put_varint};

use super::index::{Order, SPACE, id_key, sequence_key};
use crate::Result;
use crate::record::{DocRecord, Head, Stored};

/// Number of the body of all tombstones, which is not stored.
pub(crate) const BODY_NUMBER: u64 = u64::MAX;
pub(crate) const BODY: &[u8] = b"{}";

/// The loss of access to a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Update sequence of the change of the list.
    pub(crate) seq: u64,
    /// Winning revision before this change.
    pub(crate) rev: Rev,
}

impl Removal {
    pub(crate) fn key(entry: &str, id: &str) -> Vec<u8> {
        id_key(Order::Removals, entry, id)
    }

    pub(crate) fn put(&self, batch: &mut Batch, entry: &str, id: &str) {
        let mut value = Vec::new();
        put_varint(&mut value, self.seq);
        put_varint(&mut value, self.rev.generation);
        put_bytes(&mut value, self.rev.hash.as_bytes());
        batch.put(SPACE, &Self::key(entry, id), &value);
        batch.put(SPACE, &sequence_key(entry, self.seq), id.as_bytes());
    }

    pub(crate) fn delete(&self, batch: &mut Batch, entry: &str, id: &str) {
        batch.delete(SPACE, &Self::key(entry, id));
        batch.delete(SPACE, &sequence_key(entry, self.seq));
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Decoder::new(bytes, "removal");
        let (seq, generation) = (reader.varint()?, reader.varint()?);
        Ok(Self { seq, rev: Rev { generation, hash: RevHash::from_bytes(reader.bytes()?) } })
    }

    /// Returns the head of the tombstones. Only the record states their number, so that all readers must read it.
    pub(crate) fn head(&self) -> Head {
        Head { seq: self.seq, rev: tombstone(&self.rev), stored: stored(), has_conflicts: true }
    }

    /// Returns tombstones with their ancestors, as far as the document still has them: of the last visible revision
    /// before the removal, and of other branches with revisions that `is_visible` accepts.
    pub(crate) fn record(&self, document: Option<&DocRecord>, is_visible: impl Fn(&Stored) -> bool) -> DocRecord {
        let mut histories = Vec::new();
        if let Some(DocRecord { tree, .. }) = document {
            let ends = tree.find(&self.rev).into_iter().chain(last_visible(tree, is_visible));
            histories.extend(ends.map(|end| history(tree, end)));
        }
        if histories.iter().all(|history: &Vec<Rev>| history[0] != self.rev) {
            histories.push(vec![self.rev.clone()]);
        }
        let mut tree = RevTree::new();
        histories.into_iter().for_each(|history| put_tombstone(&mut tree, history));
        DocRecord { seq: self.seq, tree }
    }
}

/// The revision of the tombstone. It depends only on the last visible revision, so that it is the same in each answer,
/// and a replicator transfers it once.
pub(crate) fn tombstone(last_visible: &Rev) -> Rev {
    let hash = Md5::new().chain_update(b"no access after ").chain_update(last_visible.to_string()).finalize();
    Rev { generation: last_visible.generation + 1, hash: RevHash::from_bytes(&hash) }
}

/// Returns true if `rev` is the tombstone after a revision of the document.
pub(crate) fn has_tombstone(document: &DocRecord, rev: &Rev) -> bool {
    let mut parents = document.tree.nodes().iter().filter(|node| node.rev.generation + 1 == rev.generation);
    parents.any(|node| tombstone(&node.rev) == *rev)
}

/// Adds the tombstone of a revision, which is the first of `history`.
pub(crate) fn put_tombstone(tree: &mut RevTree<Stored>, mut history: Vec<Rev>) {
    history.insert(0, tombstone(&history[0]));
    tree.merge(&history, stored());
}

/// Returns the visible revisions that no visible revision follows.
pub(crate) fn last_visible(tree: &RevTree<Stored>, is_visible: impl Fn(&Stored) -> bool) -> Vec<u32> {
    let nodes = tree.nodes();
    let mut is_followed = vec![false; nodes.len()];
    let mut found = Vec::new();
    // A parent precedes its children.
    for (index, node) in nodes.iter().enumerate().rev() {
        let is_seen = node.value.as_ref().is_some_and(&is_visible);
        if is_seen && !is_followed[index] {
            found.push(index as u32);
        }
        if let Some(parent) = node.parent {
            is_followed[parent as usize] |= is_seen || is_followed[index];
        }
    }
    found
}

/// Returns a revision and its ancestors, newest first.
pub(crate) fn history(tree: &RevTree<Stored>, end: u32) -> Vec<Rev> {
    tree.history(end).map(|node| tree.node(node).rev.clone()).collect()
}

fn stored() -> Stored {
    Stored { deleted: true, body_seq: BODY_NUMBER, size: BODY.len() as u32, ..Stored::default() }
}

/// Returns true if the head is that of a tombstone of this module.
pub(crate) fn is_removal(head: &Head) -> bool {
    head.stored.body_seq == BODY_NUMBER
}
