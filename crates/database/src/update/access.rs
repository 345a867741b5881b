//! Per-document access in a commit: authorization of updates against the current documents, and the access indexes.

use super::group::Group;
use super::touched::Settled;
use super::work::{DocUpdate, UpdateOutcome};
use crate::access::Member;
use crate::access::check::{NewList, refusal};
use crate::access::index;
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

    pub(super) fn put_access_rows(&mut self, settled: &[Settled<'_>]) -> Result<()> {
        if self.writer.meta.update_seq == 0 && !settled.is_empty() {
            self.batch.put(Keyspace::Catalog, keys::ACCESS_CONTROL, b"");
        }
        for Settled { id, before, head, .. } in settled {
            let state = |head: &crate::Head| (head.seq, head.stored.access, head.stored.deleted);
            if before.as_ref().map(state) == head.as_ref().map(state) {
                continue;
            }
            let mut list = |head: &Option<crate::Head>| {
                head.as_ref().map(|head| self.access_lists.list(self.snapshot, head.stored.access)).transpose()
            };
            let (old, new) = (list(before)?, list(head)?);
            index::replace(&mut self.batch, id, before.as_ref().zip(old.as_deref()), head.as_ref().zip(new.as_deref()));
        }
        Ok(())
    }
}
