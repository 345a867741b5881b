//! The documents whose rows of an index a member sees. An index is in another shard and shows the documents as of an
//! earlier update sequence, so a row can be that of a revision that has been replaced.

use std::collections::HashMap;

use super::{IdRange, ReadView};
use crate::access::Member;
use crate::record::{DocRecord, SequenceEntry, Stored};
use crate::{DatabaseError, Direction, Result, keys};

/// Number of ids that are passed to the caller together.
const IDS_TOGETHER: usize = if cfg!(test) { 3 } else { 512 };

/// Changes that an index contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexPosition {
    /// Update sequence of its last change.
    pub update_seq: u64,
    /// Number of its last purge.
    pub purge_seq: u64,
}

impl ReadView<'_> {
    /// Calls `each` with the ids, ascending and in batches, of the documents whose rows of an index at `position` the
    /// reader sees. Both the present list of a document and that of the indexed revision must grant access. The view
    /// must be that of a member, and as recent as the index. Reads the access index of all visible documents, but only
    /// those documents that were changed since.
    pub fn indexed_documents<E: From<DatabaseError>>(
        &self,
        position: IndexPosition,
        mut each: impl FnMut(&[&str]) -> Result<(), E>,
    ) -> Result<(), E> {
        let Some(member) = self.member() else { return Ok(()) };
        let changed = self.changed_since(member, position)?;
        let mut ids = self.visible_ids(member, &IdRange::default(), Direction::Forward)?;
        loop {
            self.check_cancelled()?;
            let rows = ids.together(IDS_TOGETHER)?;
            if rows.is_empty() {
                return Ok(());
            }
            let mut batch = rows.iter().map(|(id, _)| keys::decode_id(id)).collect::<Result<Vec<&str>>>()?;
            batch.retain(|id| changed.get(*id).copied().unwrap_or(true));
            each(&batch)?;
        }
    }

    /// Returns the visible documents that the index does not show as they are, each with true if the list of the
    /// indexed revision is certain to grant access. After a purge no revision is certain.
    fn changed_since(&self, member: &Member, position: IndexPosition) -> Result<HashMap<String, bool>> {
        let mut changed = HashMap::new();
        let is_purged = self.purge_seq()? != position.purge_seq;
        let mut sequences = self.visible_sequences(member, position.update_seq, Direction::Forward)?;
        loop {
            self.check_cancelled()?;
            let changes = self.visible_changes(&mut sequences)?;
            if changes.is_empty() {
                return Ok(changed);
            }
            for (seq, entry) in changes {
                let id = SequenceEntry::decode(seq, &entry)?.id.to_owned();
                let is_granted = !is_purged && self.was_visible(&id, position.update_seq)?;
                changed.insert(id, is_granted);
            }
        }
    }

    /// Returns true if the lists of all revisions that can have been the winner at `seq` grant access: those that were
    /// written until then and not replaced. Returns false if a compaction has removed them.
    fn was_visible(&self, id: &str, seq: u64) -> Result<bool> {
        let record = self.stored_record(id, |stored| self.decode_record(id, stored))?;
        let nodes = record.unwrap_or_else(DocRecord::empty).tree.nodes().to_vec();
        let is_old = |stored: &Stored| keys::writer_of_body(stored.body_seq) <= seq;
        let mut is_replaced = vec![false; nodes.len()];
        for node in nodes.iter().filter(|node| node.value.as_ref().is_some_and(is_old)) {
            let mut ancestor = node.parent;
            while let Some(parent) = ancestor.map(|parent| parent as usize)
                && !std::mem::replace(&mut is_replaced[parent], true)
            {
                ancestor = nodes[parent].parent;
            }
        }
        let mut is_found = false;
        for (node, is_replaced) in nodes.iter().zip(is_replaced) {
            if let Some(stored) = node.value.filter(|stored| is_old(stored) && !is_replaced) {
                is_found = true;
                if !self.sees(&stored)? {
                    return Ok(false);
                }
            }
        }
        Ok(is_found)
    }
}
