//! [`ReadView`]: one snapshot of a database that serves all reads of a request.

pub(crate) mod ahead;
pub(crate) mod all_docs;
pub(crate) mod changes;
pub(crate) mod client;
pub(crate) mod id_range;
pub(crate) mod indexed;
pub(crate) mod parent;
pub(crate) mod revision;
mod times;
mod visible;

use std::ops::ControlFlow;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use settee_model::Rev;
use settee_model::json::Json;
use settee_storage::nonblocking::Waiting;
use settee_storage::{Direction, Expect, KeyRange, Keyspace, ShardState, Snapshot};

use self::ahead::ReadAhead;
use self::client::ReadClient;
use self::id_range::IdRange;
use self::revision::Revision;
use crate::access::lists::Lists;
use crate::access::{Reader, local_key, removal};
use crate::attachment::{Attachment, Content};
use crate::database::Database;
use crate::local::LocalDocument;
use crate::meta::{Meta, read_revs_limit};
use crate::partitions::{PartitionInfo, read_partition};
use crate::rank::{BUCKET_ENTRIES, PublishedRanks, RankIndex};
use crate::record::{DocRecord, Head, Stored};
use crate::stored::attached_with_prefix;
use crate::{DatabaseError, Result, keys, pieces, rank};

const RANK_ROWS: usize = BUCKET_ENTRIES as usize / 2;

const REVISIONS_TOGETHER: usize = if cfg!(test) { 3 } else { 128 };

const CHUNKS_TOGETHER: usize = if cfg!(test) { 3 } else { 16 };

/// A snapshot of a database with repeatable reads.
pub struct ReadView<'a> {
    database: Arc<Database>,
    snapshot: Arc<dyn Snapshot + 'a>,
    ranks: PublishedRanks,
    ahead: Mutex<ReadAhead>,
    counters: OnceLock<(ShardState, Meta)>,
    revs_limit: OnceLock<u64>,
    client: ReadClient,
    reader: Reader,
    access_lists: Mutex<Lists>,
}

impl Database {
    /// Returns a snapshot of all committed data. Fails with [`DatabaseError::NotFound`] if the database was deleted.
    /// May wait; an attempt must call [`Self::read_as`].
    pub fn read(self: &Arc<Self>) -> Result<ReadView<'static>> {
        self.view(Waiting::Allowed)
    }

    fn view<'a>(self: &Arc<Self>, waiting: Waiting<'a>) -> Result<ReadView<'a>> {
        if self.is_closed() {
            return Err(DatabaseError::NotFound);
        }
        // The tables are taken before the snapshot: one of them, or of those published concurrently, matches it.
        let ranks = self.ranks.lock().clone();
        let snapshot = waiting.snapshot(self.engine().as_ref(), self.shard())?;
        Ok(ReadView::new(Arc::clone(self), snapshot, ranks))
    }
}

impl<'a> ReadView<'a> {
    pub(crate) fn new(database: Arc<Database>, snapshot: Arc<dyn Snapshot + 'a>, ranks: PublishedRanks) -> Self {
        Self {
            database,
            snapshot,
            ranks,
            ahead: Mutex::default(),
            counters: OnceLock::new(),
            revs_limit: OnceLock::new(),
            client: ReadClient::default(),
            reader: Reader::Administrator,
            access_lists: Mutex::default(),
        }
    }

    /// Returns the view for a client, see [`ReadClient`].
    #[must_use]
    pub fn for_client(mut self, client: &ReadClient) -> Self {
        self.client = client.clone();
        self
    }

    /// Must be called between the steps of a read.
    pub(crate) fn check_cancelled(&self) -> Result<()> {
        (self.client.pace)();
        Ok(self.client.cancellation.check()?)
    }

    /// The database of the view.
    #[must_use]
    pub fn database(&self) -> &Arc<Database> {
        &self.database
    }

    /// Returns the engine's snapshot, for layers that store their own entries in the shard.
    #[must_use]
    pub fn snapshot(&self) -> &Arc<dyn Snapshot + 'a> {
        &self.snapshot
    }

    /// Latest update sequence.
    pub fn update_seq(&self) -> Result<u64> {
        Ok(self.meta()?.update_seq)
    }

    /// Update sequence of the latest change of a design document; 0 if none was ever written.
    pub fn design_seq(&self) -> Result<u64> {
        Ok(self.meta()?.design_seq)
    }

    /// Maximum number of revisions per branch to return. A lower limit applies to reads immediately; the next edit of a
    /// document removes its revisions beyond the limit.
    pub fn revs_limit(&self) -> Result<u64> {
        match self.revs_limit.get() {
            Some(limit) => Ok(*limit),
            None => {
                let limit = read_revs_limit(self.snapshot.as_ref())?;
                Ok(*self.revs_limit.get_or_init(|| limit))
            }
        }
    }

    /// Numbers of live and of deleted documents.
    pub fn counts(&self) -> Result<(u64, u64)> {
        if let Some(member) = self.member() {
            return self.visible_counts(member);
        }
        let meta = self.meta()?;
        Ok((meta.doc_count, meta.doc_del_count))
    }

    /// Number of live documents.
    pub fn doc_count(&self) -> Result<u64> {
        match self.member() {
            Some(member) => self.visible_ids_in(member, &IdRange::default()),
            None => Ok(self.meta()?.doc_count),
        }
    }

    /// Returns the winning revision of a document, deleted or not.
    pub fn head(&self, id: &str) -> Result<Option<Head>> {
        if let Some(record) = self.ahead.lock().decoded(id) {
            return Ok(record.head());
        }
        let head = self.stored_record(id, Head::decode)?;
        Ok(self.visible_or_removed(&[id], vec![head])?.pop().flatten())
    }

    /// Returns the winning revisions of several documents, in the order of `ids`.
    pub fn heads(&self, ids: &[&str]) -> Result<Vec<Option<Head>>> {
        self.visible_heads(ids, self.stored_records(ids)?)
    }

    /// Returns all revisions of a document. The last long record is cached.
    pub fn record(&self, id: &str) -> Result<Option<Arc<DocRecord>>> {
        if let Some(record) = self.ahead.lock().decoded(id) {
            return Ok(Some(record));
        }
        let decode = |stored: &[u8]| {
            let bytes = pieces::whole(self.snapshot.as_ref(), id.as_bytes(), stored)?;
            Ok((bytes.len(), DocRecord::decode(&bytes)?))
        };
        let (bytes, record) = self.stored_record(id, decode)?.unzip();
        let (bytes, record) = (bytes.unwrap_or_default(), self.visible_record(id, record)?.map(Arc::new));
        let Some(record) = record else { return Ok(None) };
        self.ahead.lock().set_decoded(id, bytes, &record);
        Ok(Some(record))
    }

    fn decode_record(&self, id: &str, stored: &[u8]) -> Result<DocRecord> {
        DocRecord::decode(&pieces::whole(self.snapshot.as_ref(), id.as_bytes(), stored)?)
    }

    fn stored_record<T>(&self, id: &str, decode: impl Fn(&[u8]) -> Result<T>) -> Result<Option<T>> {
        if let Some(record) = self.ahead.lock().record(id) {
            return record.as_deref().map(decode).transpose();
        }
        let stored = match self.member() {
            None => self.get(Keyspace::Documents, id.as_bytes())?,
            Some(_) => self.stored_records(&[id])?.pop().flatten(),
        };
        stored.map(|bytes| decode(&bytes)).transpose()
    }

    /// Appends the body, an object without underscore members. Returns `false` if a compaction has removed it.
    pub fn read_body(&self, stored: Stored, out: &mut Vec<u8>) -> Result<bool> {
        let start = out.len();
        let found = self.read_stored(stored, out)?;
        if found {
            out.drain(start..start + stored.attachments_size as usize);
        }
        Ok(found)
    }

    /// Returns a revision with its attachments, or `None` if a compaction has removed it.
    pub fn revision(&self, stored: Stored) -> Result<Option<Revision>> {
        let mut bytes = Vec::with_capacity(stored.total_bytes());
        if self.read_stored(stored, &mut bytes)? { Revision::decode(stored, bytes).map(Some) } else { Ok(None) }
    }

    /// Calls `each` with index and [`Self::revision`] of each of `stored`, until it breaks. Reads in batches.
    pub fn revisions(
        &self,
        stored: &[Stored],
        mut each: impl FnMut(usize, Option<Revision>) -> ControlFlow<()>,
    ) -> Result<()> {
        for (batch, stored) in (0..).step_by(REVISIONS_TOGETHER).zip(stored.chunks(REVISIONS_TOGETHER)) {
            let keys: Vec<_> = stored.iter().map(|stored| keys::body(stored.body_seq, 0)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 10]>::as_slice).collect();
            let beginnings = self.snapshot.multi_get(Keyspace::Bodies, &keys)?;
            self.database.counters().reads.add(beginnings.len() as u64);
            for ((index, stored), beginning) in (batch..).zip(stored).zip(beginnings) {
                let revision = match beginning {
                    Some(mut bytes) => {
                        self.read_rest(*stored, 0, &mut bytes)?;
                        Some(Revision::decode(*stored, bytes)?)
                    }
                    None => None,
                };
                if each(index, revision).is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// Opens the content of an attachment of a revision in this view.
    pub fn content(&self, attachment: &Attachment) -> Result<Content<'a>> {
        Content::open(&self.snapshot, attachment)
    }

    fn read_stored(&self, stored: Stored, out: &mut Vec<u8>) -> Result<bool> {
        if stored.body_seq == removal::BODY_NUMBER {
            out.extend_from_slice(removal::BODY);
            return Ok(true);
        }
        let start = out.len();
        let ahead = self.ahead.lock().take_body(stored.body_seq);
        let beginning = match ahead {
            Some(beginning) => beginning,
            None => self.get(Keyspace::Bodies, &keys::body(stored.body_seq, 0))?,
        };
        let Some(beginning) = beginning else {
            return Ok(false);
        };
        out.extend_from_slice(&beginning);
        self.read_rest(stored, start, out)?;
        self.database.counters().reads.add(1);
        Ok(true)
    }

    fn read_rest(&self, stored: Stored, start: usize, out: &mut Vec<u8>) -> Result<()> {
        let size = stored.total_bytes();
        let chunks: Vec<_> = (1..size.div_ceil(keys::BODY_CHUNK_BYTES)).collect();
        for chunks in chunks.chunks(CHUNKS_TOGETHER) {
            let keys: Vec<_> = chunks.iter().map(|chunk| keys::body(stored.body_seq, *chunk as u16)).collect();
            let keys: Vec<&[u8]> = keys.iter().map(<[u8; 10]>::as_slice).collect();
            for bytes in self.snapshot.multi_get(Keyspace::Bodies, &keys)? {
                out.extend_from_slice(&bytes.ok_or(DatabaseError::Corrupt("body"))?);
            }
        }
        if out.len() - start == size { Ok(()) } else { Err(DatabaseError::Corrupt("body")) }
    }

    /// Appends a revision as a document: `_id`, `_rev`, `_deleted` if it is a deletion, `extra` (further members, each
    /// after a comma), the body, and `_attachments` as stubs. Returns `false` if a compaction has removed the body.
    pub fn write_document(
        &self,
        out: &mut Vec<u8>,
        id: &str,
        rev: &Rev,
        stored: Stored,
        extra: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool> {
        let Some(revision) = self.revision(stored)? else {
            return Ok(false);
        };
        revision.write(out, id, rev, stored.deleted, extra);
        Ok(true)
    }

    /// Number of live documents with an id below `id`.
    pub fn rank_of_id(&self, id: &[u8]) -> Result<u64> {
        if let Some(member) = self.member() {
            let before = IdRange { start: None, end: Some(id.to_vec()) };
            return self.visible_ids_in(member, &before);
        }
        let ranks = self.ranks()?;
        let (start, before) = ranks.ids.before(id);
        let range = KeyRange { start: Some(start), end: Some(id) };
        let mut cursor = self.snapshot.scan(Keyspace::Documents, range, Direction::Forward, Expect::Rows(RANK_ROWS))?;
        let mut rank = before;
        while let Some((_, record)) = cursor.next()? {
            rank += u64::from(!Head::is_deleted(record));
        }
        Ok(rank)
    }

    /// Number of documents whose last change is after `seq`.
    pub fn changes_after(&self, seq: u64) -> Result<u64> {
        if let Some(member) = self.member() {
            return self.visible_changes_after(member, seq);
        }
        let meta = self.meta()?;
        if seq >= meta.update_seq {
            return Ok(0);
        }
        let total = meta.doc_count + meta.doc_del_count;
        let key = keys::sequence(seq + 1);
        let ranks = self.ranks()?;
        let (start, before) = ranks.seqs.before(&key);
        let range = KeyRange { start: Some(start), end: Some(&key) };
        let mut cursor = self.snapshot.scan(Keyspace::Sequence, range, Direction::Forward, Expect::Rows(RANK_ROWS))?;
        let mut rank = before;
        while cursor.next()?.is_some() {
            rank += 1;
        }
        Ok(total.saturating_sub(rank))
    }

    /// Returns a local document of the reader; `id` must start with `_local/`.
    pub fn local(&self, id: &str) -> Result<Option<LocalDocument>> {
        let Some(key) = local_key(&self.reader, id) else { return Ok(None) };
        self.get(Keyspace::Local, &key)?.map(|bytes| LocalDocument::decode(&bytes)).transpose()
    }

    /// Calls `each` with the local documents of `range` until it returns `false`. Members list none.
    pub fn local_docs(
        &self,
        range: &IdRange,
        direction: Direction,
        mut each: impl FnMut(&str, LocalDocument) -> bool,
    ) -> Result<()> {
        if self.member().is_some() {
            return Ok(());
        }
        let key_range = KeyRange { start: range.start.as_deref(), end: range.end.as_deref() };
        let mut cursor = self.snapshot.scan(Keyspace::Local, key_range, direction, Expect::Few)?;
        while let Some((id, bytes)) = cursor.next()? {
            if !each(keys::decode_id(id)?, LocalDocument::decode(bytes)?) {
                break;
            }
        }
        Ok(())
    }

    /// Returns the security object, or `None` if it was never set.
    pub fn security(&self) -> Result<Option<Json>> {
        Ok(self.get(Keyspace::Catalog, keys::SECURITY)?.map(Json::trusted))
    }

    /// Returns an attached record of another layer.
    pub fn attached(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get(Keyspace::Catalog, &keys::prefixed(keys::ATTACHED, key))
    }

    /// Returns several attached records, read in one round trip.
    pub fn all_attached(&self, keys: &[Vec<u8>]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| keys::prefixed(keys::ATTACHED, key)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        Ok(self.snapshot.multi_get(Keyspace::Catalog, &keys)?)
    }

    /// Returns all attached records whose key starts with `prefix`, in key order.
    pub fn attached_with_prefix(&self, prefix: &[u8]) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        attached_with_prefix(self.snapshot.as_ref(), prefix)
    }

    /// Counts the documents of a partition. Reads only their revision trees.
    pub fn partition_info(&self, partition: &str) -> Result<PartitionInfo> {
        read_partition(self.snapshot.as_ref(), partition)
    }

    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        Ok(self.snapshot.get(space, key)?)
    }

    pub(crate) fn meta(&self) -> Result<Meta> {
        Ok(self.state_and_meta()?.1)
    }

    fn state_and_meta(&self) -> Result<(ShardState, Meta)> {
        if let Some(counters) = self.counters.get() {
            return Ok(*counters);
        }
        let counters = Meta::read_with_state(self.snapshot.as_ref())?;
        Ok(*self.counters.get_or_init(|| counters))
    }

    /// The store has the ranks if another process made the snapshot's last commit or newer ranks were published.
    fn ranks(&self) -> Result<Arc<RankIndex>> {
        let (state, _) = self.state_and_meta()?;
        let now = self.database.ranks.lock().clone();
        if let Some(ranks) = self.ranks.iter().chain(&now).find(|ranks| ranks.state == state) {
            return Ok(Arc::clone(ranks));
        }
        let ranks = Arc::new(rank::table::load(self.snapshot.as_ref(), state)?);
        // Replaces the ranks that the next commit will replace.
        self.database.ranks.lock()[0] = Arc::clone(&ranks);
        Ok(ranks)
    }
}
