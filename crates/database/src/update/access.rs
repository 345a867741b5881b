//! Per-document access in a commit: authorization of updates against the current documents, and the access indexes.

use super::group::Group;
use super::touched::ChangedDocument;
use super::work::{DocUpdate, UpdateOutcome};
use crate::access::check::{NewList, refusal};
use crate::access::index;
use crate::access::removal::Removal;
use crate::access::{AccessList, Member};
use crate::record::Head;
use crate::{Result, keys};
use settee_storage::Keyspace;

impl Group<'_> {
    /// Returns the number of the list of the new revision, or the outcome of a refused update. The caller has checked
    /// the update before it was queued; this check includes concurrent updates.
    pub(super) fn authorize(&mut self, update: &DocUpdate) -> Result<Result<u32, UpdateOutcome>> {
        let (snapshot, lists) = (self.snapshot, &mut self.access_lists);
        let grants = |member: &Member, number| Ok(member.is_granted_by(&*lists.list(snapshot, number)?));
        if update.path.is_empty() {
            let nothing = settee_model::rev_tree::RevTree::new();
            return Ok(refusal(update, &nothing, grants)?.map_or(Ok(0), Err));
        }
        let tree = &self.documents.get(&update.id).tree;
        if let Some(refused) = refusal(update, tree, grants)? {
            return Ok(Err(refused));
        }
        match NewList::of(update, tree) {
            NewList::Kept(number) => Ok(Ok(number)),
            NewList::Own(list) => {
                let stored = (snapshot, &mut self.batch, &mut self.meta);
                self.access_lists.number(list, stored).map(Ok)
            }
        }
    }

    pub(super) fn put_access_rows(&mut self, settled: &[ChangedDocument<'_>]) -> Result<()> {
        if self.writer.meta.update_seq == 0 && !settled.is_empty() {
            self.batch.put(Keyspace::Catalog, keys::ACCESS_CONTROL, b"");
        }
        for ChangedDocument { id, before, head, .. } in settled {
            let state = |head: &Head| (head.seq, head.stored.access, head.stored.deleted);
            if before.as_ref().map(state) == head.as_ref().map(state) {
                continue;
            }
            let mut list = |head: &Option<Head>| {
                head.as_ref().map(|head| self.access_lists.list(self.snapshot, head.stored.access)).transpose()
            };
            let (old, new) = (list(before)?, list(head)?);
            if let (Some(before), Some(head), Some(old), Some(new)) = (before, head, &old, &new) {
                self.put_removals(id, (before, old), (head, new))?;
            }
            index::replace(&mut self.batch, id, before.as_ref().zip(old.as_deref()), head.as_ref().zip(new.as_deref()));
        }
        Ok(())
    }

    /// Records the entries that the list of a document has lost, and deletes the records of those that it has gained.
    fn put_removals(
        &mut self,
        id: &str,
        (before, old): (&Head, &AccessList),
        (head, new): (&Head, &AccessList),
    ) -> Result<()> {
        // Also after a deletion, which a device may not have received yet.
        let removal = Removal { seq: head.seq, rev: before.rev.clone() };
        let lost = old.entries().iter().filter(|entry| !new.entries().contains(entry));
        lost.for_each(|entry| removal.put(&mut self.batch, entry, id));
        let gained: Vec<&String> = new.entries().iter().filter(|entry| !old.entries().contains(entry)).collect();
        if gained.is_empty() {
            return Ok(());
        }
        let stored: Vec<Vec<u8>> = gained.iter().map(|entry| Removal::key(entry, id)).collect();
        let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        for (entry, removal) in gained.into_iter().zip(self.snapshot.multi_get(Keyspace::IndexEntries, &stored)?) {
            if let Some(bytes) = removal {
                Removal::decode(&bytes)?.delete(&mut self.batch, entry, id);
            }
        }
        Ok(())
    }
}
