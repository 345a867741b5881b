//! What a member sees of a database with per-document access. The access list of a document decides; an access index
//! only finds candidates.

use std::sync::Arc;

use settee_storage::{Direction, Expect, KeyRange, Keyspace};

use super::{IdRange, ReadView};
use crate::access::check::refusal;
use crate::access::index::{Order, Union};
use crate::access::{AccessControl, AccessList, Member, Reader, lists};
use crate::database::Database;
use crate::record::{DocRecord, Head, Stored};
use crate::{DatabaseError, DocUpdate, Result, UpdateOutcome, keys};

/// Number of rows of an access index whose documents are read in one round trip.
pub(super) const ROWS_TOGETHER: usize = if cfg!(test) { 3 } else { 64 };

impl Database {
    /// As [`Self::read`], with the documents that `reader` sees. Without per-document access all readers see all
    /// documents.
    pub fn read_as(self: &Arc<Self>, reader: &Reader) -> Result<ReadView> {
        let view = self.read()?;
        Ok(match self.access() {
            AccessControl::PerDatabase => view,
            AccessControl::PerDocument => ReadView { reader: reader.clone(), ..view },
        })
    }
}

impl ReadView {
    /// The member whose view this is, or `None` if it is not restricted.
    pub(super) fn member(&self) -> Option<&Member> {
        match &self.reader {
            Reader::Administrator => None,
            Reader::Member(member) => Some(member),
        }
    }

    fn access_list(&self, number: u32) -> Result<Arc<AccessList>> {
        let mut known = self.access_lists.lock();
        lists::read(self.snapshot.as_ref(), [number].into_iter(), &mut known)?;
        known.get(&number).cloned().ok_or(DatabaseError::Corrupt("access list"))
    }

    pub(super) fn read_access_lists(&self, numbers: impl Iterator<Item = u32>) -> Result<()> {
        match self.member() {
            None => Ok(()),
            Some(_) => lists::read(self.snapshot.as_ref(), numbers, &mut self.access_lists.lock()),
        }
    }

    /// Returns true if the reader sees a revision with this record, provided that the document is visible.
    pub(super) fn sees(&self, stored: &Stored) -> Result<bool> {
        match self.member() {
            None => Ok(true),
            Some(member) => Ok(member.is_granted_by(&*self.access_list(stored.access)?)),
        }
    }

    pub(super) fn visible_head(&self, head: Option<Head>) -> Result<Option<Head>> {
        match head {
            Some(head) if self.sees(&head.stored)? => Ok(Some(head)),
            _ => Ok(None),
        }
    }

    /// Removes the leaves that the reader does not see, and the bodies of other invisible revisions. Returns `None` if
    /// the document is invisible.
    pub(super) fn visible_record(&self, record: DocRecord) -> Result<Option<DocRecord>> {
        if self.member().is_none() {
            return Ok(Some(record));
        }
        let DocRecord { seq, mut tree } = record;
        self.read_access_lists(tree.nodes().iter().filter_map(|node| node.value).map(|stored| stored.access))?;
        let Some(winner) = tree.winner(|stored| stored.deleted) else { return Ok(None) };
        if !tree.node(winner).value.is_some_and(|stored| self.sees(&stored).unwrap_or(false)) {
            return Ok(None);
        }
        let is_hidden = |stored: &Stored| !self.sees(stored).unwrap_or(false);
        let leaves = tree.leaves().map(|leaf| tree.node(leaf));
        let hidden = leaves.filter(|leaf| leaf.value.as_ref().is_none_or(is_hidden)).map(|leaf| leaf.rev.clone());
        for rev in hidden.collect::<Vec<_>>() {
            tree.purge(&rev);
        }
        tree.take_values(is_hidden);
        Ok(Some(DocRecord { seq, tree }))
    }

    /// Scans the ids of the live documents that `member` sees.
    pub(super) fn visible_ids(&self, member: &Member, range: &IdRange, direction: Direction) -> Result<Union<'_>> {
        let range = KeyRange { start: range.start.as_deref(), end: range.end.as_deref() };
        let rows = (Order::Ids, member.entries());
        Union::open(self.snapshot.as_ref(), rows, range, direction, Expect::Few)
    }

    /// Scans the sequences of the documents that `member` sees, as [`ReadView::changes`].
    pub(super) fn visible_sequences(&self, member: &Member, since: u64, direction: Direction) -> Result<Union<'_>> {
        let start = keys::sequence(since.saturating_add(1));
        let range = match direction {
            Direction::Forward => KeyRange { start: Some(&start), end: None },
            Direction::Backward => KeyRange { start: None, end: Some(&start) },
        };
        let rows = (Order::Sequences, member.entries());
        Union::open(self.snapshot.as_ref(), rows, range, direction, Expect::Few)
    }

    /// Numbers of live and of deleted documents that `member` sees. Reads the index rows of all of them.
    pub(super) fn visible_counts(&self, member: &Member) -> Result<(u64, u64)> {
        let live = self.visible_ids(member, &IdRange::default(), Direction::Forward)?.count()?;
        let all = self.visible_sequences(member, 0, Direction::Forward)?.count()?;
        Ok((live, all.saturating_sub(live)))
    }

    /// Returns the outcome with which the commit would refuse the update because of access lists, or `None`. The
    /// update's reader decides, not that of this view, which must be unrestricted.
    pub fn check_access(&self, update: &DocUpdate) -> Result<Option<UpdateOutcome>> {
        let stored = self.get(Keyspace::Documents, update.id().as_bytes())?;
        let record = stored.map(|stored| self.decode_record(update.id(), &stored)).transpose()?;
        let tree = record.unwrap_or_else(DocRecord::empty).tree;
        refusal(update, &tree, |member, number| Ok(member.is_granted_by(&*self.access_list(number)?)))
    }
}
