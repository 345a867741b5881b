//! [`Group`]: one commit, which applies queued work to the revision trees and builds the batch. Changes are made on
//! copies of the counters and ranks, which replace the writer's only after the engine has committed, so a failed commit
//! has no effect.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

use settee_model::json::Json;
use settee_model::rev_tree::{Grown, Known, Revisions};
use settee_model::{Rev, RevHash, RevisionHasher, partition};
use settee_storage::codec::put_varint;
use settee_storage::{
    Batch, Direction, Durability, Expect, KeyRange, Keyspace, Purpose, Shard, ShardState, Snapshot, Version,
};

use super::contents::{ContentBytes, Contents, ReadContext, discard};
use super::touched::{Attached, ChangedDocument, Documents, EditedDocument};
use super::validation::{Acceptance, acceptance, is_design_id};
use super::work::{DocUpdate, EditMode, UpdateOutcome, Work};
use super::writer::Writer;
use crate::access::lists::CommitLists;
use crate::access::{AccessControl, local_key};
use crate::attachment::encode_all;
use crate::attempt::Attempt;
use crate::database::{Database, Source};
use crate::entry::Layout;
use crate::local::LocalDocument;
use crate::meta::Meta;
use crate::rank::{BUCKET_ENTRIES, OversizedBucket, RankIndex};
use crate::record::{Head, SequenceEntry, Stored};
use crate::{Event, Result, keys, pieces, rank};

const RANK_LOG_RECORDS: usize = if cfg!(test) { 20 } else { 1000 };

pub(super) struct Group<'a> {
    pub(super) database: &'a Arc<Database>,
    pub(super) writer: &'a mut Writer,
    shard: Shard,
    pub(super) documents: Documents<'a>,
    pub(super) batch: Batch,
    pub(super) meta: Meta,
    ranks: RankIndex,
    revs_limit: u64,
    first_seq: u64,
    security: Option<Json>,
    attached: Attached,
    pub(super) forgets_times: bool,
    hasher: RevisionHasher,
    scratch: Vec<u8>,
    pub(super) snapshot: &'a dyn Snapshot,
    pub(super) contents: Contents,
    pub(super) access_lists: CommitLists,
}

impl<'a> Group<'a> {
    /// `snapshot` must have the state of `writer`, and `read` must come from it.
    pub(super) fn new(
        database: &'a Arc<Database>,
        writer: &'a mut Writer,
        snapshot: &'a dyn Snapshot,
        read: (Documents<'a>, Contents),
        purpose: Purpose,
    ) -> Self {
        let (mut documents, contents) = read;
        writer.fullness.begin();
        let attached = std::mem::take(&mut documents.attached);
        Self {
            database,
            shard: database.shard(),
            documents,
            batch: Batch::of(purpose),
            meta: writer.meta,
            ranks: RankIndex::clone(&writer.ranks),
            revs_limit: writer.revs_limit,
            first_seq: 0,
            security: writer.security.clone(),
            attached,
            forgets_times: false,
            hasher: RevisionHasher::default(),
            scratch: Vec::new(),
            snapshot,
            contents,
            access_lists: CommitLists::default(),
            writer,
        }
    }

    pub(super) fn apply_all(&mut self, works: &[Work]) -> Result<Vec<Vec<UpdateOutcome>>> {
        self.divide_buckets().ok();
        works.iter().map(|work| self.apply(work)).collect()
    }

    fn apply(&mut self, work: &Work) -> Result<Vec<UpdateOutcome>> {
        match work {
            Work::Documents(updates) => {
                let edits = updates.iter().filter(|update| update.mode == EditMode::Interactive);
                let edits = edits.map(|update| (&*update.id, update.partition_bytes_max));
                let full = self.writer.fullness.full(self.snapshot, &self.meta, edits)?;
                self.first_seq = self.meta.update_seq + 1;
                return updates.iter().map(|update| self.apply_update(update, &full)).collect();
            }
            Work::Purge(purges) => return Ok(purges.iter().map(|purge| self.purge(purge)).collect()),
            Work::Compact(ids) => ids.iter().for_each(|id| self.compact(id)),
            Work::ForgetPurges { up_to } => self.forget_purges(*up_to),
            Work::ForgetTimes => self.forgets_times = true,
            Work::SetPurgedInfosLimit(limit) => {
                let mut value = Vec::new();
                put_varint(&mut value, *limit);
                self.batch.put(Keyspace::Catalog, keys::PURGED_INFOS_LIMIT, &value);
            }
            Work::Stage(stage) => {
                let context = ReadContext { database: self.database, snapshot: self.snapshot };
                stage.put(context, &self.contents, &mut self.batch)?;
            }
            Work::SetRevsLimit(limit) => {
                self.revs_limit = *limit;
                let mut value = Vec::new();
                put_varint(&mut value, *limit);
                self.batch.put(Keyspace::Catalog, keys::REVS_LIMIT, &value);
            }
            Work::SetSecurity(security) => {
                self.security = Some(security.clone());
                self.batch.put(Keyspace::Catalog, keys::SECURITY, security.as_bytes());
            }
            Work::Attach { key, value } => self.attach(key, value.as_deref()),
            Work::Replace { key, before, value } => {
                if self.attached.get(key).is_some_and(|stored| stored != before) {
                    return Ok(vec![UpdateOutcome::Conflict]);
                }
                self.attach(key, value.as_deref());
            }
        }
        Ok(Vec::new())
    }

    fn attach(&mut self, key: &[u8], value: Option<&[u8]>) {
        let stored_key = keys::prefixed(keys::ATTACHED, key);
        match value {
            Some(value) => self.batch.put(Keyspace::Catalog, &stored_key, value),
            None => self.batch.delete(Keyspace::Catalog, &stored_key),
        }
        self.meta.attached_seq += 1;
        if let Some(known) = self.attached.get_mut(key) {
            *known = value.map(<[u8]>::to_vec);
        }
    }

    fn apply_update(&mut self, update: &DocUpdate, full: &HashSet<&str>) -> Result<UpdateOutcome> {
        let access = match self.database.access() {
            AccessControl::PerDatabase => 0,
            AccessControl::PerDocument => match self.authorize(update)? {
                Ok(access) => access,
                Err(refused) => return Ok(refused),
            },
        };
        if update.path.is_empty() {
            return Ok(self.apply_local(update));
        }
        let touched = self.documents.get(&update.id);
        if update.is_stale(&touched.tree, self.meta.design_seq) {
            return Ok(UpdateOutcome::Stale(Box::new(update.clone())));
        }
        let path = match update.mode {
            EditMode::Replicated => Cow::Borrowed(update.path.as_slice()),
            EditMode::Interactive => match interactive_path(&touched.tree, update, &mut self.hasher) {
                Some(path) => path,
                None => return Ok(UpdateOutcome::Conflict),
            },
        };
        let is_full = |(partition, _): (&str, &str)| full.contains(partition);
        if update.mode == EditMode::Interactive
            && !full.is_empty()
            && partition::split(&update.id).is_some_and(is_full)
            && grows(&touched.tree, update, &path)
        {
            return Ok(UpdateOutcome::PartitionOverflow(update.id.clone()));
        }
        self.merge(update, &path, access)
    }

    /// Adds the revision `path[0]`. As in CouchDB, all additions of one work to a document share one update sequence.
    fn merge(&mut self, update: &DocUpdate, path: &[Rev], access: u32) -> Result<UpdateOutcome> {
        let context = ReadContext { database: self.database, snapshot: self.snapshot };
        let touched = self.documents.get(&update.id);
        let is_stored = match touched.tree.known(path) {
            Known::Nothing => false,
            Known::Everything => return Ok(UpdateOutcome::Saved(path[0].clone())),
            Known::NotAllAncestors => true,
        };
        let (seq, bodies, body_seq) = place(touched, self.first_seq, self.meta.update_seq + 1);
        let body = update.body.as_bytes();
        let size = body.len() as u32;
        let mut stored = Stored { deleted: update.deleted, body_seq, size, access, ..Stored::default() };
        // CouchDB uses the generation before the extension for an edit that recreates a deleted document.
        let generation = update.path.first().map_or(0, |rev| rev.generation);
        let (attachments, mut bytes) = (update.attachments.stored(generation), Vec::new());
        if !is_stored {
            if !update.attachments.is_complete || !self.contents.has_all(context, &update.attachments)? {
                return Ok(UpdateOutcome::Conflict);
            }
            if !attachments.is_empty() {
                encode_all(&attachments, &mut bytes);
                stored.attachments_size = bytes.len() as u32;
                stored.attachments_length = attachments.iter().map(|attachment| attachment.stored_length).sum();
                bytes.extend_from_slice(body);
            }
        }
        let Grown { changed, forgotten } = touched.tree.merge(path, stored, self.revs_limit as usize);
        if !changed {
            return Ok(UpdateOutcome::Saved(path[0].clone()));
        }
        if !is_stored {
            self.meta.body_bytes += body.len() as u64;
            self.meta.attachment_bytes += stored.attachments_length;
            if attachments.is_empty() {
                put_body(&mut self.batch, body_seq, body);
            } else {
                put_body(&mut self.batch, body_seq, &bytes);
                self.contents.take(context, &mut self.batch, &update.attachments, attachments, body_seq)?;
            }
        }
        touched.bodies = bodies + u64::from(!is_stored);
        forget(&mut self.meta, &mut self.batch, &mut self.contents, forgotten);
        self.meta.update_seq = self.meta.update_seq.max(seq);
        if is_design_id(&update.id) {
            self.meta.design_seq = self.meta.design_seq.max(seq);
        }
        touched.seq = seq;
        touched.changed = true;
        Ok(UpdateOutcome::Saved(path[0].clone()))
    }

    /// The last writer wins, and the revision follows the one that the writer named.
    fn apply_local(&mut self, update: &DocUpdate) -> UpdateOutcome {
        let Some(key) = local_key(update.reader(), &update.id) else { return UpdateOutcome::Forbidden };
        let number = if update.deleted {
            self.batch.delete(Keyspace::Local, &key);
            0
        } else {
            let rev = update.local_rev.saturating_add(1);
            self.scratch.clear();
            LocalDocument { rev, body: update.body.clone() }.encode(&mut self.scratch);
            self.batch.put(Keyspace::Local, &key, &self.scratch);
            // CouchDB stores the next revision nevertheless.
            if update.mode == EditMode::Replicated { update.local_rev } else { rev }
        };
        UpdateOutcome::Saved(Rev { generation: 0, hash: RevHash::from_bytes(number.to_string().as_bytes()) })
    }

    /// Returns `false` if the commit conflicted or its outcome is unknown.
    pub(super) fn finish(&mut self, attempt: &mut Attempt, durability: Durability) -> Result<bool> {
        self.put_documents()?;
        let context = ReadContext { database: self.database, snapshot: self.snapshot };
        let ContentBytes { added, removed } = self.contents.finish(context, &mut self.batch)?;
        self.meta.content_bytes = (self.meta.content_bytes + added).saturating_sub(removed);
        self.record_time()?;
        let given_up = self.database.given_up.lock().clone();
        let discarded = discard(context, &mut self.batch, &given_up)?;
        if self.batch.is_empty() {
            self.database.given_up.lock().retain(|blob| !discarded.contains(blob));
            return Ok(true);
        }
        let expected = self.writer.state.version;
        let state = ShardState { version: Version(expected.0 + 1), token: attempt.token() };
        self.ranks.state = state;
        let (logged, rank_pieces) = self.put_counters(state.version);
        let batch = std::mem::take(&mut self.batch);
        self.ranks.stored();
        let ranks = Arc::new(self.ranks.clone());
        // Published before the commit, because readers can see the commit before this thread is notified of it.
        *self.database.ranks.lock() = [Arc::clone(&self.writer.ranks), Arc::clone(&ranks)];
        if !attempt.commit(self.database.engine().as_ref(), self.shard, expected, batch, durability)? {
            return Ok(false);
        }
        let mut given_up = self.database.given_up.lock();
        given_up.retain(|blob| !discarded.contains(blob));
        given_up.append(&mut self.contents.given_up);
        drop(given_up);
        let edited = self.meta.update_seq != self.writer.meta.update_seq;
        let (revs_limit, security) = (self.revs_limit, self.security.take());
        self.database.cache_state(Source::Here, state.version, &self.meta, security.clone());
        let commits_reading_first = self.writer.commits_reading_first.saturating_sub(1);
        let mut fullness = std::mem::take(&mut self.writer.fullness);
        fullness.commit();
        let mut rank_log = std::mem::take(&mut self.writer.rank_log);
        match logged {
            Some(record) => rank_log.push(record),
            None => rank_log.clear(),
        }
        *self.writer = Writer {
            state,
            meta: self.meta,
            ranks,
            revs_limit,
            security,
            rank_log,
            rank_pieces,
            fullness,
            commits_reading_first,
        };
        *self.database.ranks.lock() = [Arc::clone(&self.writer.ranks), Arc::clone(&self.writer.ranks)];
        if edited {
            self.database.notify(Event::Committed(self.meta.update_seq));
        }
        Ok(true)
    }

    fn put_documents(&mut self) -> Result<()> {
        let settled = self.documents.settle();
        if self.database.access() == AccessControl::PerDocument {
            self.put_access_rows(&settled)?;
        }
        // In key order, because engines insert neighbours faster and the ranks must receive appends in ascending order.
        for ChangedDocument { id, before, bytes_before, pieces, bytes, record, head } in &settled {
            self.meta.count_leaves(*bytes_before, *bytes);
            if self.database.layout() == Layout::Partitioned {
                self.writer.fullness.count(id, *bytes_before, *bytes);
            }
            if let Some(head) = head {
                self.scratch.clear();
                let head_bytes = record.encode(head, &mut self.scratch);
                let was_there = before.is_some();
                pieces::put(&mut self.batch, (id.as_bytes(), was_there), &mut self.scratch, head_bytes, *pieces);
            } else {
                self.batch.delete(Keyspace::Documents, id.as_bytes());
                pieces::delete(&mut self.batch, id.as_bytes(), 0, *pieces);
            }
            let is_deleted = |head: &Head| head.stored.deleted;
            let (was, is) = (before.as_ref().map(is_deleted), head.as_ref().map(is_deleted));
            count_document(&mut self.meta, &mut self.ranks, id, was, is);
        }
        let seq = |head: &Option<Head>| head.as_ref().map(|head| head.seq);
        let mut by_seq: Vec<&ChangedDocument<'_>> = settled.iter().collect();
        by_seq.sort_unstable_by_key(|settled| seq(&settled.head));
        for ChangedDocument { id, before, head, .. } in by_seq {
            let was = seq(before);
            if was == seq(head) {
                continue;
            }
            if let Some(head) = head {
                self.scratch.clear();
                SequenceEntry::encode(&mut self.scratch, id, head);
                self.batch.insert(Keyspace::Sequence, &keys::sequence(head.seq), &self.scratch);
                self.ranks.seqs.add(&keys::sequence(head.seq));
            }
            if let Some(was) = was {
                self.batch.delete(Keyspace::Sequence, &keys::sequence(was));
                self.ranks.seqs.remove(&keys::sequence(was));
            }
        }
        Ok(())
    }

    /// Returns the number of the new log record, or `None` for complete tables, and the number of pieces.
    fn put_counters(&mut self, version: Version) -> (Option<u64>, usize) {
        self.scratch.clear();
        self.meta.encode(&mut self.scratch);
        self.batch.set_head(&self.scratch);
        self.scratch.clear();
        let key = |logged: u64| keys::prefixed(keys::RANK_LOG, &keys::sequence(logged));
        if self.ranks.reshaped() || self.writer.rank_log.len() >= RANK_LOG_RECORDS {
            self.ranks.encode(&mut self.scratch);
            let rank_pieces = rank::table::put(&mut self.batch, &self.scratch, self.writer.rank_pieces);
            self.writer.rank_log.iter().for_each(|logged| self.batch.delete(Keyspace::Catalog, &key(*logged)));
            (None, rank_pieces)
        } else {
            self.ranks.encode_log(&mut self.scratch);
            self.batch.insert(Keyspace::Catalog, &key(version.0), &self.scratch);
            (Some(version.0), self.writer.rank_pieces)
        }
    }

    /// Divides buckets that are too large for a short scan, before the group changes them. The division is stored with
    /// the group, because each process would repeat it otherwise. If another process has written since, the group
    /// conflicts.
    fn divide_buckets(&mut self) -> Result<()> {
        while let Some(OversizedBucket { bucket, start, end }) = self.ranks.ids.overfull() {
            let range = KeyRange { start: Some(&start), end: end.as_deref() };
            let mut cursor = self.snapshot.scan(
                Keyspace::Documents,
                range,
                Direction::Forward,
                Expect::Rows(2 * BUCKET_ENTRIES as usize),
            )?;
            let [mut live, mut deleted] = [0; 2];
            let mut middle = None;
            while let Some((id, record)) = cursor.next()? {
                if live + deleted == BUCKET_ENTRIES {
                    middle = Some(id.to_vec());
                    break;
                }
                *if Head::is_deleted(record) { &mut deleted } else { &mut live } += 1;
            }
            let Some(middle) = middle else { break };
            self.ranks.ids.divide(bucket, &middle, live, deleted);
        }
        Ok(())
    }
}

/// Returns the update sequence for a further change of a document, the number of bodies already written under it, and
/// the number of the next body. A work reuses the sequence that it gave the document; another work uses `next`.
fn place(touched: &EditedDocument, first_seq: u64, next: u64) -> (u64, u64, u64) {
    let is_of_this_work = touched.seq >= first_seq;
    let further = is_of_this_work.then(|| keys::body_number(touched.seq, touched.bodies)).flatten();
    further.map_or((next, 0, next), |number| (touched.seq, touched.bodies, number))
}

fn interactive_path<'u>(
    tree: &impl Revisions<Stored>,
    update: &'u DocUpdate,
    hasher: &mut RevisionHasher,
) -> Option<Cow<'u, [Rev]>> {
    match acceptance(tree, update.path.get(1), update.deleted) {
        Acceptance::Conflict => None,
        Acceptance::Edit => Some(Cow::Borrowed(update.path.as_slice())),
        Acceptance::Again(deletion) => {
            let hash = hasher.hash_again(&deletion, update.body.value(), update.attachments.list.len());
            let new = Rev { generation: deletion.generation + 1, hash: RevHash::from_bytes(&hash) };
            Some(Cow::Owned(vec![new, deletion]))
        }
    }
}

fn grows(tree: &impl Revisions<Stored>, update: &DocUpdate, path: &[Rev]) -> bool {
    let replaced = path.get(1).and_then(|parent| tree.node(tree.find(parent)?).value);
    let before = replaced.map_or(0, |stored| u64::from(stored.size) + stored.attachments_length);
    let attachments = update.attachments.stored(0);
    let attached: u64 = attachments.iter().map(|attachment| attachment.stored_length).sum();
    update.body.as_bytes().len() as u64 + attached > before
}

/// The flags are `None` for an absent document.
fn count_document(
    meta: &mut Meta,
    ranks: &mut RankIndex,
    id: &str,
    was_deleted: Option<bool>,
    is_deleted: Option<bool>,
) {
    if was_deleted == is_deleted {
        return;
    }
    match was_deleted {
        Some(true) => meta.doc_del_count -= 1,
        Some(false) => meta.doc_count -= 1,
        None => {}
    }
    match is_deleted {
        Some(true) => meta.doc_del_count += 1,
        Some(false) => meta.doc_count += 1,
        None => {}
    }
    let difference = |of| i32::from(is_deleted == Some(of)) - i32::from(was_deleted == Some(of));
    ranks.ids.change(id.as_bytes(), difference(false), difference(true));
}

fn put_body(batch: &mut Batch, body_seq: u64, body: &[u8]) {
    for (chunk, bytes) in body.chunks(keys::BODY_CHUNK_BYTES).enumerate() {
        batch.insert(Keyspace::Bodies, &keys::body(body_seq, chunk as u16), bytes);
    }
}

pub(super) fn forget(meta: &mut Meta, batch: &mut Batch, contents: &mut Contents, forgotten: Vec<Stored>) {
    for stored in forgotten {
        if stored.attachments_size > 0 {
            contents.freed.push(stored);
        }
        meta.body_bytes = meta.body_bytes.saturating_sub(u64::from(stored.size));
        meta.attachment_bytes = meta.attachment_bytes.saturating_sub(stored.attachments_length);
        delete_body(batch, stored);
    }
}

fn delete_body(batch: &mut Batch, stored: Stored) {
    let chunks = stored.total_bytes().div_ceil(keys::BODY_CHUNK_BYTES);
    for chunk in 0..chunks {
        batch.delete(Keyspace::Bodies, &keys::body(stored.body_seq, chunk as u16));
    }
}
