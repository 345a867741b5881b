//! The documents that a member sees of a database with per-document access. The access list of a document decides; an access index
//! only finds candidates.

use std::sync::Arc;

use settee_model::Rev;
use settee_storage::nonblocking::Waiting;
use settee_storage::{Direction, Expect, KeyRange, Keyspace};

use super::{IdRange, ReadView};
use crate::access::check::refusal;
use crate::access::index::{Order, Union};
use crate::access::removal::{Removal, has_tombstone, history, is_removal, last_visible, put_tombstone};
use crate::access::{AccessControl, AccessList, Member, Reader, lists};
use crate::database::Database;
use crate::record::{DocRecord, Head, SequenceEntry, Stored};
use crate::{DatabaseError, DocUpdate, Result, UpdateOutcome, keys};

/// Number of rows of an access index whose documents are read in one round trip.
pub(super) const ROWS_TOGETHER: usize = if cfg!(test) { 3 } else { 64 };

impl Database {
    /// As [`Self::read`], with the documents that `reader` sees. Without per-document access all readers see all
    /// documents. The reads of the view wait only if `waiting` permits it.
    pub fn read_as<'a>(self: &Arc<Self>, reader: &Reader, waiting: Waiting<'a>) -> Result<ReadView<'a>> {
        let view = self.view(waiting)?;
        Ok(match self.access() {
            AccessControl::PerDatabase => view,
            AccessControl::PerDocument => ReadView { reader: reader.clone(), ..view },
        })
    }
}

impl ReadView<'_> {
    /// The reader whose documents the view contains.
    #[must_use]
    pub fn reader(&self) -> &Reader {
        &self.reader
    }

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

    /// Returns the stored records of documents. Reads the access indexes of a member first, where an invisible document and
    /// one that does not exist are equally absent, so that the duration of a read does not distinguish them.
    pub(super) fn stored_records(&self, ids: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        let Some(member) = self.member() else { return self.listed_records(ids) };
        let (mut listed, mut rest) = (Vec::new(), (0..ids.len()).collect::<Vec<_>>());
        for order in [Order::Ids, Order::Deletions] {
            let prefixes: Vec<Vec<u8>> = member.entries().iter().map(|entry| order.prefix(entry)).collect();
            if rest.is_empty() || prefixes.is_empty() {
                break;
            }
            let key = |at: usize, prefix: &Vec<u8>| keys::prefixed(prefix, ids[at].as_bytes());
            let rows: Vec<Vec<u8>> =
                rest.iter().flat_map(|at| prefixes.iter().map(move |prefix| key(*at, prefix))).collect();
            let rows: Vec<&[u8]> = rows.iter().map(Vec::as_slice).collect();
            let found = self.snapshot.multi_get(Keyspace::IndexEntries, &rows)?;
            let mut are_listed = found.chunks(prefixes.len()).map(|values| values.iter().any(Option::is_some));
            rest.retain(|at| {
                let is_listed = are_listed.next() == Some(true);
                listed.extend(is_listed.then_some(*at));
                !is_listed
            });
        }
        let mut records = vec![None; ids.len()];
        let of_listed: Vec<&str> = listed.iter().map(|at| ids[*at]).collect();
        for (at, record) in listed.into_iter().zip(self.listed_records(&of_listed)?) {
            records[at] = record;
        }
        Ok(records)
    }

    /// As [`Self::stored_records`], for documents in the access indexes.
    fn listed_records(&self, ids: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let keys: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
        Ok(self.snapshot.multi_get(Keyspace::Documents, &keys)?)
    }

    /// As [`Self::heads`], for documents in the access indexes.
    pub(super) fn listed_heads(&self, ids: &[&str]) -> Result<Vec<Option<Head>>> {
        self.visible_heads(ids, self.listed_records(ids)?)
    }

    /// Returns the heads that the reader sees of documents with these records: instead of an invisible one the tombstone
    /// of its removal, if any.
    pub(super) fn visible_heads(&self, ids: &[&str], records: Vec<Option<Vec<u8>>>) -> Result<Vec<Option<Head>>> {
        let heads = records.into_iter().map(|record| record.map(|record| Head::decode(&record)).transpose());
        self.visible_or_removed(ids, heads.collect::<Result<_>>()?)
    }

    pub(super) fn visible_or_removed(&self, ids: &[&str], mut heads: Vec<Option<Head>>) -> Result<Vec<Option<Head>>> {
        let Some(member) = self.member() else { return Ok(heads) };
        self.read_access_lists(heads.iter().flatten().map(|head| head.stored.access))?;
        let mut hidden = Vec::new();
        for (index, head) in heads.iter().enumerate() {
            let is_visible = head.as_ref().map(|head| self.sees(&head.stored)).transpose()?;
            if is_visible != Some(true) {
                hidden.push(index);
            }
        }
        let of_hidden: Vec<&str> = hidden.iter().map(|index| ids[*index]).collect();
        for (index, removal) in hidden.into_iter().zip(self.removals(member, &of_hidden)?) {
            heads[index] = removal.map(|removal| removal.head());
        }
        Ok(heads)
    }

    /// Returns the latest removal of each document from a list that named `member`.
    fn removals(&self, member: &Member, ids: &[&str]) -> Result<Vec<Option<Removal>>> {
        let entries = member.entries();
        if ids.is_empty() || entries.is_empty() {
            return Ok(vec![None; ids.len()]);
        }
        let stored: Vec<Vec<u8>> =
            ids.iter().flat_map(|id| entries.iter().map(move |entry| Removal::key(entry, id))).collect();
        let stored: Vec<&[u8]> = stored.iter().map(Vec::as_slice).collect();
        let found = self.snapshot.multi_get(Keyspace::IndexEntries, &stored)?;
        let latest = |values: &[Option<Vec<u8>>]| {
            let removals = values.iter().flatten().map(|value| Removal::decode(value));
            Ok(removals.collect::<Result<Vec<_>>>()?.into_iter().max_by_key(|removal| removal.seq))
        };
        found.chunks(entries.len()).map(latest).collect()
    }

    /// Returns what the reader sees of a document: instead of an invisible one the tombstones of its removal, if any.
    pub(super) fn visible_record(&self, id: &str, record: Option<DocRecord>) -> Result<Option<DocRecord>> {
        let Some(member) = self.member() else { return Ok(record) };
        if let Some(record) = &record
            && let Some(part) = self.visible_part(record)?
        {
            return Ok(Some(part));
        }
        let Some(removal) = self.removals(member, &[id])?.pop().flatten() else { return Ok(None) };
        let stored = self.listed_records(&[id])?.pop().flatten();
        let record = stored.map(|stored| self.decode_record(id, &stored)).transpose()?;
        if let Some(record) = &record {
            self.read_lists_of(record)?;
        }
        Ok(Some(removal.record(record.as_ref(), |stored| self.sees(stored).unwrap_or(false))))
    }

    /// Removes the leaves that the reader does not see, and the bodies of other invisible revisions. A branch whose
    /// last revisions are invisible ends with a tombstone, so that replicators remove its visible revisions. Returns
    /// `None` if the document is invisible.
    fn visible_part(&self, record: &DocRecord) -> Result<Option<DocRecord>> {
        let winner = record.tree.winner(|stored| stored.deleted).and_then(|winner| record.tree.node(winner).value);
        if !winner.map(|stored| self.sees(&stored)).transpose()?.unwrap_or(false) {
            return Ok(None);
        }
        self.read_lists_of(record)?;
        let DocRecord { seq, mut tree } = record.clone();
        let is_hidden = |stored: &Stored| !self.sees(stored).unwrap_or(false);
        let leaves = tree.leaves().filter(|leaf| tree.node(*leaf).value.as_ref().is_none_or(is_hidden));
        let hidden: Vec<u32> = leaves.collect();
        let mut lost: Vec<Vec<Rev>> = Vec::new();
        if !hidden.is_empty() {
            let mut ends = last_visible(&tree, |stored| !is_hidden(stored));
            ends.retain(|end| tree.leaves().all(|leaf| leaf != *end));
            lost = ends.into_iter().map(|end| history(&tree, end)).collect();
            for rev in hidden.iter().map(|leaf| tree.node(*leaf).rev.clone()).collect::<Vec<_>>() {
                tree.purge(&rev);
            }
        }
        tree.take_values(is_hidden);
        lost.into_iter().for_each(|history| put_tombstone(&mut tree, history));
        Ok(Some(DocRecord { seq, tree }))
    }

    /// Reads the lists of all revisions together, so that [`Self::sees`] does not fail.
    fn read_lists_of(&self, record: &DocRecord) -> Result<()> {
        let stored = record.tree.nodes().iter().filter_map(|node| node.value);
        self.read_access_lists(stored.map(|stored| stored.access))
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

    /// Returns the next changes that the member sees, as sequences and encoded entries, or an empty list at the end.
    pub(super) fn visible_changes(&self, sequences: &mut Union<'_>) -> Result<Vec<(u64, Vec<u8>)>> {
        loop {
            let rows = sequences.together(ROWS_TOGETHER)?;
            if rows.is_empty() {
                return Ok(Vec::new());
            }
            let wanted: Vec<&[u8]> = rows.iter().map(|(key, _)| key.as_slice()).collect();
            let entries = self.snapshot.multi_get(Keyspace::Sequence, &wanted)?;
            let ids: Vec<&str> = rows.iter().map(|(_, id)| keys::decode_id(id)).collect::<Result<_>>()?;
            let removed: Vec<&str> = ids.iter().copied().filter(|id| !id.is_empty()).collect();
            let mut heads = self.listed_heads(&removed)?.into_iter();
            let found = rows.iter().zip(&entries).filter_map(|((key, _), entry)| Some((key, entry.as_ref()?)));
            let access =
                found.map(|(key, entry)| Ok(SequenceEntry::decode(keys::decode_sequence(key)?, entry)?.stored.access));
            self.read_access_lists(access.collect::<Result<Vec<u32>>>()?.into_iter())?;
            let mut changes = Vec::new();
            for ((key, _), (id, entry)) in rows.iter().zip(ids.iter().zip(entries)) {
                let seq = keys::decode_sequence(key)?;
                if id.is_empty() {
                    if let Some(entry) = entry
                        && self.sees(&SequenceEntry::decode(seq, &entry)?.stored)?
                    {
                        changes.push((seq, entry));
                    }
                } else if let Some(head) = heads.next().flatten()
                    && is_removal(&head)
                    && head.seq == seq
                {
                    let mut entry = Vec::new();
                    SequenceEntry::encode(&mut entry, id, &head);
                    changes.push((seq, entry));
                }
            }
            if !changes.is_empty() {
                return Ok(changes);
            }
        }
    }

    /// Number of changes that `member` sees after `since`. Reads all of them.
    pub(super) fn visible_changes_after(&self, member: &Member, since: u64) -> Result<u64> {
        let mut sequences = self.visible_sequences(member, since, Direction::Forward)?;
        let mut count = 0;
        loop {
            self.check_cancelled()?;
            match self.visible_changes(&mut sequences)?.len() as u64 {
                0 => return Ok(count),
                more => count += more,
            }
        }
    }

    /// Number of live documents in `range` that `member` sees. Reads the index rows of all of them.
    pub(super) fn visible_ids_in(&self, member: &Member, range: &IdRange) -> Result<u64> {
        let mut ids = self.visible_ids(member, range, Direction::Forward)?;
        let mut count = 0;
        loop {
            self.check_cancelled()?;
            match ids.together(ROWS_TOGETHER)?.len() as u64 {
                0 => return Ok(count),
                more => count += more,
            }
        }
    }

    /// Numbers of live and of deleted documents that `member` sees.
    pub(super) fn visible_counts(&self, member: &Member) -> Result<(u64, u64)> {
        let live = self.doc_count()?;
        Ok((live, self.visible_changes_after(member, 0)?.saturating_sub(live)))
    }

    /// Returns true if the document has the revision, or if a client received the revision as the tombstone of a removal.
    /// A client that has regained access must not send this tombstone back.
    #[must_use]
    pub fn knows(&self, record: &DocRecord, rev: &Rev) -> bool {
        let has_lists = self.database.access() == AccessControl::PerDocument;
        record.tree.find(rev).is_some() || has_lists && has_tombstone(record, rev)
    }

    /// Returns the outcome with which the commit would refuse the update because of access lists, or `None`. The
    /// update's reader decides, not that of this view, which must be unrestricted.
    pub fn check_access(&self, update: &DocUpdate) -> Result<Option<UpdateOutcome>> {
        if *update.reader() == Reader::Administrator {
            return Ok(None);
        }
        let record = self.stored_record(update.id(), |stored| self.decode_record(update.id(), stored))?;
        let tree = record.unwrap_or_else(DocRecord::empty).tree;
        refusal(update, &tree, |member, number| Ok(member.is_granted_by(&*self.access_list(number)?)))
    }
}
