//! [`Documents`]: the documents that a group reads and changes, in id order.

use std::collections::HashMap;

use settee_model::rev_tree::{Growth, RevTree};
use settee_storage::{Keyspace, Reply, Request, ShardState, Snapshot};

use super::contents::{Contents, Named};
use super::work::{DocUpdate, Work};
use crate::meta::LeafBytes;
use crate::record::{DocRecord, Head, Stored};
use crate::{DatabaseError, Result, keys, pieces};

const CORRUPT: DatabaseError = DatabaseError::Corrupt("update group");

pub(super) struct EditedDocument {
    pub(super) seq: u64,
    /// The tree is settled and measured once, because a group can contain many updates of one document.
    pub(super) tree: Growth<Stored>,
    before: Option<Head>,
    bytes_before: LeafBytes,
    pieces: usize,
    pub(super) bodies: u64,
    pub(super) changed: bool,
}

impl EditedDocument {
    fn of(record: DocRecord, pieces: usize) -> Self {
        let (before, bytes_before) = (record.head(), leaf_bytes(&record.tree));
        let tree = Growth::new(record.tree);
        Self { seq: record.seq, tree, before, bytes_before, pieces, bodies: 0, changed: false }
    }
}

pub(super) struct ChangedDocument<'a> {
    pub(super) id: &'a str,
    pub(super) before: Option<Head>,
    pub(super) bytes_before: LeafBytes,
    pub(super) pieces: usize,
    pub(super) bytes: LeafBytes,
    pub(super) record: DocRecord,
    pub(super) head: Option<Head>,
}

pub(super) struct Documents<'a> {
    /// Ascending, without duplicates.
    ids: Vec<&'a str>,
    touched: Vec<EditedDocument>,
    /// Index after the last requested document, because works often come in id order.
    next: usize,
    pub(super) attached: Attached,
}

pub(super) type Attached = HashMap<Vec<u8>, Option<Vec<u8>>>;

impl<'a> Documents<'a> {
    /// Reads documents and attachment entries of `works`, the state, and the requests `besides` in one round trip.
    pub(super) fn read(
        snapshot: &dyn Snapshot,
        works: &'a [Work],
        named: Named,
        besides: &[Request<'_>],
    ) -> Result<(ShardState, Self, Contents, Vec<Reply>)> {
        let mut ids: Vec<&str> = Vec::new();
        for work in works {
            match work {
                Work::Documents(updates) => {
                    ids.extend(updates.iter().filter(|update| !update.path.is_empty()).map(DocUpdate::id));
                }
                Work::Purge(purges) => ids.extend(purges.iter().map(|purge| purge.id.as_str())),
                Work::Compact(compacted) => ids.extend(compacted.iter().map(String::as_str)),
                Work::SetRevsLimit(_)
                | Work::SetSecurity(_)
                | Work::SetPurgedInfosLimit(_)
                | Work::ForgetPurges { .. }
                | Work::ForgetTimes
                | Work::Stage(_)
                | Work::Attach { .. }
                | Work::Replace { .. } => {}
            }
        }
        ids.sort_unstable();
        ids.dedup();
        let id_keys: Vec<&[u8]> = ids.iter().map(|id| id.as_bytes()).collect();
        let mut touched = Vec::with_capacity(ids.len());
        let attachment_keys: Vec<&[u8]> = named.keys.iter().map(Vec::as_slice).collect();
        let replaced: Vec<Vec<u8>> = works.iter().filter_map(Work::replaced).collect();
        let replaced_keys: Vec<&[u8]> = replaced.iter().map(Vec::as_slice).collect();
        let requests = [
            Request::State,
            Request::MultiGet(Keyspace::Documents, &id_keys),
            Request::MultiGet(Keyspace::Attachments, &attachment_keys),
            Request::MultiGet(Keyspace::Catalog, &replaced_keys),
        ];
        let wanted = if replaced.is_empty() { &requests[..3] } else { &requests };
        let mut replies = snapshot.read(&[wanted, besides].concat())?.into_iter();
        let mut reply = || replies.next().ok_or(CORRUPT);
        let (state, records, attachments): (Reply, Reply, Reply) = (reply()?, reply()?, reply()?);
        let found = if replaced.is_empty() { Vec::new() } else { reply()?.into_values()? };
        let besides: Vec<Reply> = replies.collect();
        let name = |key: Vec<u8>| key[keys::ATTACHED.len()..].to_vec();
        let attached = replaced.into_iter().map(name).zip(found).collect();
        for (id, stored) in id_keys.iter().zip(records.into_values()?) {
            let (record, pieces) = match stored {
                Some(stored) => (DocRecord::decode(&pieces::whole(snapshot, id, &stored)?)?, pieces::count(&stored)?),
                None => (DocRecord::empty(), 0),
            };
            touched.push(EditedDocument::of(record, pieces));
        }
        if touched.len() != ids.len() {
            return Err(CORRUPT);
        }
        let contents = Contents::new(named, attachments.into_values()?);
        Ok((state.into_state()?, Self { ids, touched, next: 0, attached }, contents, besides))
    }

    /// Returns empty records for the documents of `works` if all works only create documents, that is if no update
    /// names an earlier revision. Reads nothing; the commit validates that the documents do not exist.
    pub(super) fn likely_new(works: &'a [Work]) -> Option<Self> {
        let mut ids: Vec<&str> = Vec::new();
        for work in works {
            let Work::Documents(updates) = work else { return None };
            if !updates.iter().all(DocUpdate::is_likely_new) {
                return None;
            }
            ids.extend(updates.iter().map(DocUpdate::id));
        }
        ids.sort_unstable();
        ids.dedup();
        let touched = ids.iter().map(|_| EditedDocument::of(DocRecord::empty(), 0)).collect();
        Some(Self { ids, touched, next: 0, attached: Attached::new() })
    }

    /// Panics if the document does not belong to the works.
    pub(super) fn get(&mut self, id: &str) -> &mut EditedDocument {
        let found = match self.ids.get(self.next) {
            Some(next) if *next == id => self.next,
            _ => self.ids.binary_search(&id).expect("every document of the group was read"),
        };
        self.next = found + 1;
        &mut self.touched[found]
    }

    /// Returns the changed documents in id order. [`Self::get`] must not be called afterwards.
    pub(super) fn settle(&mut self) -> Vec<ChangedDocument<'a>> {
        let changed = self.ids.iter().zip(std::mem::take(&mut self.touched)).filter(|(_, touched)| touched.changed);
        let settle = |(id, touched): (&&'a str, EditedDocument)| {
            let EditedDocument { seq, tree, before, bytes_before, pieces, .. } = touched;
            let record = DocRecord { seq, tree: tree.into_settled() };
            let (head, bytes) = (record.head(), leaf_bytes(&record.tree));
            ChangedDocument { id, before, bytes_before, pieces, bytes, record, head }
        };
        changed.map(settle).collect()
    }
}

fn leaf_bytes(tree: &RevTree<Stored>) -> LeafBytes {
    let mut bytes = LeafBytes::default();
    for stored in tree.leaves().filter_map(|leaf| tree.node(leaf).value) {
        bytes.bodies += u64::from(stored.size);
        bytes.attachments += stored.attachments_length;
    }
    bytes
}
