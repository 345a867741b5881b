//! [`Removal`]: a document whose list has lost an entry. Members with this entry see a tombstone instead of the document,
//! unless another entry grants access. The tombstone is a successor of the last visible revision. It is not stored, so
//! that other readers do not see it.

use md5::{Digest as _, Md5};
use settee_model::rev_tree::RevTree;
use settee_model::{Rev, RevHash};
use settee_storage::Batch;
use settee_storage::codec::{Reader as Decoder, put_bytes, put_varint};

use super::index::{Order, SPACE, sequence_key};
use crate::record::{DocRecord, Head, Stored};
use crate::{Result, keys};

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
        keys::prefixed(&Order::Removals.prefix(entry), id.as_bytes())
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

    /// The revision of the tombstone. It depends only on the last visible revision, so that it is the same in each
    /// answer, and a replicator transfers it once.
    fn tombstone(&self) -> Rev {
        let hash = Md5::new().chain_update(b"no access after ").chain_update(self.rev.to_string()).finalize();
        Rev { generation: self.rev.generation + 1, hash: RevHash::from_bytes(&hash) }
    }

    /// Returns true if `rev` is the tombstone of a removal after a revision of the document.
    pub(crate) fn has_tombstone(document: &DocRecord, rev: &Rev) -> bool {
        let parents = document.tree.nodes().iter().filter(|node| node.rev.generation + 1 == rev.generation);
        parents.map(|node| Self { seq: 0, rev: node.rev.clone() }).any(|removal| removal.tombstone() == *rev)
    }

    fn stored() -> Stored {
        Stored { deleted: true, body_seq: BODY_NUMBER, size: BODY.len() as u32, ..Stored::default() }
    }

    pub(crate) fn head(&self) -> Head {
        Head { seq: self.seq, rev: self.tombstone(), stored: Self::stored(), has_conflicts: false }
    }

    /// Returns the tombstone with its ancestors, as far as the document still has them.
    pub(crate) fn record(&self, document: Option<&DocRecord>) -> DocRecord {
        let ancestors = document.and_then(|document| {
            let tree = &document.tree;
            let history = tree.history(tree.find(&self.rev)?).map(|node| tree.node(node).rev.clone());
            Some(history.collect::<Vec<_>>())
        });
        let mut path = vec![self.tombstone()];
        path.extend(ancestors.unwrap_or_else(|| vec![self.rev.clone()]));
        let mut tree = RevTree::new();
        tree.merge(&path, Self::stored());
        DocRecord { seq: self.seq, tree }
    }
}

/// Returns true if the head is that of a tombstone of this module.
pub(crate) fn is_removal(head: &Head) -> bool {
    head.stored.body_seq == BODY_NUMBER
}
