//! Removal of revisions: a purge removes leaves from revision trees, a compaction the bodies of revisions that are not
//! leaves. A purge gives the document a new update sequence, or none if no leaf remains. It is recorded under a number,
//! so that view indexes can follow. A compaction changes nothing that a reader of leaves can see.

use settee_model::Rev;
use settee_storage::Keyspace;
use settee_storage::codec::{Reader, put_bytes, put_varint};

use super::group::{Group, forget};
use super::validation::is_design_id;
use super::work::{Purge, UpdateOutcome};
use crate::{DatabaseError, Result, keys};

impl Purge {
    fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, self.id.as_bytes());
        for rev in &self.revs {
            put_varint(&mut out, rev.generation);
            put_bytes(&mut out, rev.hash.as_bytes());
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "purge");
        let id = reader.text()?.to_owned();
        let mut revs = Vec::new();
        while !reader.rest().is_empty() {
            let generation = reader.varint()?;
            revs.push(Rev { generation, hash: settee_model::RevHash::from_bytes(reader.bytes()?) });
        }
        Ok(Self { id, revs })
    }
}

impl Group<'_> {
    /// Ignores revisions that are not leaves. As in CouchDB, a purge without a leaf is recorded as well.
    pub(super) fn purge(&mut self, purge: &Purge) -> UpdateOutcome {
        self.meta.purge_seq += 1;
        let key = keys::prefixed(keys::PURGE, &keys::sequence(self.meta.purge_seq));
        self.batch.put(Keyspace::Catalog, &key, &purge.encode());
        let touched = self.documents.get(&purge.id);
        let tree = touched.tree.settle_mut();
        let mut purged = Vec::new();
        for rev in &purge.revs {
            if let Some(removed) = tree.purge(rev) {
                forget(&mut self.meta, &mut self.batch, &mut self.contents, removed);
                purged.push(rev.clone());
            }
        }
        if purged.is_empty() {
            return UpdateOutcome::Purged(purged);
        }
        // A new sequence even with the same winner, so that followers of the changes feed read the document again.
        self.meta.update_seq += 1;
        touched.seq = self.meta.update_seq;
        if is_design_id(&purge.id) {
            self.meta.design_seq = touched.seq;
        }
        touched.changed = true;
        UpdateOutcome::Purged(purged)
    }

    pub(super) fn compact(&mut self, id: &str) {
        let touched = self.documents.get(id);
        let removed = touched.tree.settle_mut().take_branch_values();
        touched.changed |= !removed.is_empty();
        forget(&mut self.meta, &mut self.batch, &mut self.contents, removed);
    }

    pub(super) fn forget_purges(&mut self, up_to: u64) {
        let up_to = up_to.min(self.meta.purge_seq);
        for number in self.meta.purges_forgotten + 1..=up_to {
            self.batch.delete(Keyspace::Catalog, &keys::prefixed(keys::PURGE, &keys::sequence(number)));
        }
        self.meta.purges_forgotten = self.meta.purges_forgotten.max(up_to);
    }
}

pub(crate) fn decode_number(key: &[u8]) -> Result<u64> {
    keys::decode_sequence(key.strip_prefix(keys::PURGE).ok_or(DatabaseError::Corrupt("purge key"))?)
}
