//! One [`Database`]: its place in the engine, its counters, and who wants to be notified of its commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_model::json::Json;
use settee_storage::{
    CommitToken, Direction, Engine, KeyRange, Keyspace, Page, PageRange, Request, Shard, ShardState, Snapshot,
};

use crate::activity::{Activity, Happened};
use crate::catalog::{Entry, Layout};
use crate::codec::{Reader, put_varint};
use crate::compaction::Compacting;
use crate::designs::OfDesigns;
use crate::rank::Ranks;
use crate::read::ReadView;
use crate::update::{Fullness, Queue};
use crate::{Counters, DatabaseError, Result, keys, rank};

/// The number of revisions of a branch are remembered unless a database says otherwise, as in CouchDB.
pub(crate) const DEFAULT_REVS_LIMIT: u64 = 1000;

/// Counters that change with every commit: the head of the shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Meta {
    /// The last update sequence that was given out.
    pub(crate) update_seq: u64,
    /// Documents whose winner is not a deletion.
    pub(crate) doc_count: u64,
    /// Documents whose winner is a deletion.
    pub(crate) doc_del_count: u64,
    /// Bytes of the bodies of all leaves.
    pub(crate) leaf_bytes: u64,
    /// Bytes of all bodies that can still be read.
    pub(crate) body_bytes: u64,
    /// Bytes of the attachments of all leaves; what several have counts for each.
    pub(crate) leaf_attachment_bytes: u64,
    /// The same for all revisions that can still be read.
    pub(crate) attachment_bytes: u64,
    /// Bytes of attachments as they are stored, each content once.
    pub(crate) content_bytes: u64,
    /// The update sequence of the newest change of a design document, removals included.
    pub(crate) design_seq: u64,
    /// The number of purges that there were; the number of the last one.
    pub(crate) purge_seq: u64,
    /// The number of the newest purge that is no longer remembered.
    pub(crate) purges_forgotten: u64,
}

impl Meta {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        let counters = [self.update_seq, self.doc_count, self.doc_del_count, self.leaf_bytes, self.body_bytes];
        let attachments = [self.leaf_attachment_bytes, self.attachment_bytes, self.content_bytes];
        let numbers = [self.design_seq, self.purge_seq, self.purges_forgotten];
        for value in counters.into_iter().chain(attachments).chain(numbers) {
            put_varint(out, value);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "database counters");
        Ok(Self {
            update_seq: reader.varint()?,
            doc_count: reader.varint()?,
            doc_del_count: reader.varint()?,
            leaf_bytes: reader.varint()?,
            body_bytes: reader.varint()?,
            leaf_attachment_bytes: reader.varint()?,
            attachment_bytes: reader.varint()?,
            content_bytes: reader.varint()?,
            design_seq: reader.varint()?,
            purge_seq: reader.varint()?,
            purges_forgotten: reader.varint()?,
        })
    }

    /// The totals of the leaves of all documents.
    pub(crate) fn leaves(&self) -> LeafBytes {
        LeafBytes { bodies: self.leaf_bytes, attachments: self.leaf_attachment_bytes }
    }

    /// Counts the leaves of a document as they are now instead of as they were.
    pub(crate) fn count_leaves(&mut self, before: LeafBytes, now: LeafBytes) {
        self.leaf_bytes = (self.leaf_bytes + now.bodies).saturating_sub(before.bodies);
        self.leaf_attachment_bytes = (self.leaf_attachment_bytes + now.attachments).saturating_sub(before.attachments);
    }

    /// The counters as `snapshot` has them, zeros for a database that was never written, and the commit that set them.
    pub(crate) fn read_with_state(snapshot: &dyn Snapshot) -> Result<(ShardState, Self)> {
        let requests = [Request::State, Request::Head, Request::Get(Keyspace::Catalog, keys::META)];
        let replies: [_; 3] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [state, head, old] = replies;
        Ok((state.into_state()?, Self::of_records(head.into_value()?, old.into_value()?)?))
    }

    /// `head` is that of the shard. Databases that were last written before counters were heads have an entry instead.
    pub(crate) fn of_records(head: Option<Vec<u8>>, old: Option<Vec<u8>>) -> Result<Self> {
        head.or(old).map_or(Ok(Self::default()), |bytes| Self::decode(&bytes))
    }
}

/// How much the leaves of a document have.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LeafBytes {
    pub(crate) bodies: u64,
    pub(crate) attachments: u64,
}

impl LeafBytes {
    pub(crate) fn total(self) -> u64 {
        self.bodies + self.attachments
    }
}

/// The bytes that are stored for a document beside its bodies, about: its id, its revision tree and its place among the
/// changes.
const RECORD_BYTES: u64 = 100;

/// The figures of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// The last update sequence.
    pub update_seq: u64,
    /// Documents that are not deleted.
    pub doc_count: u64,
    /// Deleted documents.
    pub doc_del_count: u64,
    /// Bytes on disk, about.
    pub file_bytes: u64,
    /// Bytes of the current bodies, uncompressed, and of their attachments.
    pub external_bytes: u64,
    /// Those of them that are of current bodies and attachments, about: less than `file_bytes`, if there are any.
    pub active_bytes: u64,
    /// The number of the last purge.
    pub purge_seq: u64,
}

/// The events that subscribers receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Everything up to this update sequence can be read.
    Committed(u64),
    /// The database was deleted.
    Deleted,
}

/// Proof that a database was deleted and takes no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

/// The ranks that readers may need: of the last commit, and of the one about to be made.
pub(crate) type PublishedRanks = [Arc<Ranks>; 2];

/// The state that only the leader of the update queue touches.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) state: ShardState,
    pub(crate) meta: Meta,
    pub(crate) ranks: Arc<Ranks>,
    pub(crate) revs_limit: u64,
    pub(crate) security: Option<Json>,
    /// The log records of ranks since the whole tables were stored.
    pub(crate) rank_log: Vec<u64>,
    /// How many pieces these tables have.
    pub(crate) rank_pieces: usize,
    pub(crate) fullness: Fullness,
}

type Listener = Box<dyn Fn(Event) + Send + Sync>;

/// A database. Shared by everyone who uses it.
pub struct Database {
    name: String,
    entry: Entry,
    activity: Arc<Activity>,
    engine: Arc<dyn Engine>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) queue: Queue,
    pub(crate) ranks: Mutex<PublishedRanks>,
    /// As the writer knows it: most requests ask for it.
    security: Mutex<Option<Json>>,
    closed: AtomicBool,
    tokens: AtomicU64,
    listeners: Mutex<HashMap<u64, Listener>>,
    next_listener: AtomicU64,
    /// What listeners were last told of, or would have been.
    told_seq: AtomicU64,
    design_seq: AtomicU64,
    pub(crate) designs: OfDesigns,
    pub(crate) compacting: Compacting,
    /// Uploads whose bytes nobody wants any more. The next commit removes them.
    pub(crate) given_up: Mutex<Vec<u64>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("name", &self.name).field("shard", &self.entry.shard).finish_non_exhaustive()
    }
}

/// Ends with a subscription when it is dropped.
pub struct Subscription {
    database: Arc<Database>,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.database.listeners.lock().remove(&self.id);
    }
}

impl Database {
    /// Opens the database that `entry` tells of. `token_seed` is random.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        name: &str,
        entry: Entry,
        activity: Arc<Activity>,
        token_seed: u64,
    ) -> Result<Arc<Self>> {
        let (writer, uploads) = load(engine.snapshot(entry.shard)?.as_ref())?;
        let ranks = [Arc::clone(&writer.ranks), Arc::clone(&writer.ranks)];
        let design_seq = AtomicU64::new(writer.meta.design_seq);
        let told_seq = AtomicU64::new(writer.meta.update_seq);
        let designs = OfDesigns::new(Arc::clone(&activity.design_bytes));
        let database = Arc::new(Self {
            name: name.to_owned(),
            entry,
            activity,
            engine,
            security: Mutex::new(writer.security.clone()),
            writer: Mutex::new(writer),
            queue: Queue::default(),
            ranks: Mutex::new(ranks),
            closed: AtomicBool::new(false),
            tokens: AtomicU64::new(token_seed),
            listeners: Mutex::new(HashMap::new()),
            next_listener: AtomicU64::new(0),
            told_seq,
            design_seq,
            designs,
            compacting: Compacting::default(),
            given_up: Mutex::new(Vec::new()),
        });
        database.collect_uploads(&uploads)?;
        Ok(database)
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.activity.counters
    }

    /// The shard that holds the documents.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.entry.shard
    }

    /// The engine that holds the shard.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Tells this database from others that had its name.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.entry.instance
    }

    /// When it was created, in milliseconds of the Unix epoch.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.entry.created_ms
    }

    /// How documents are divided.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.entry.layout
    }

    /// The number of shards that its creator asked for.
    #[must_use]
    pub fn q(&self) -> u32 {
        self.entry.q
    }

    /// The update sequence of the newest change of a design document that this process knows of: a cheap hint. What
    /// holds is [`ReadView::design_seq`].
    #[must_use]
    pub fn design_seq(&self) -> u64 {
        self.design_seq.load(Ordering::Acquire)
    }

    pub(crate) fn publish_design_seq(&self, seq: u64) {
        self.design_seq.store(seq, Ordering::Release);
    }

    /// Whether the database was deleted.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// A repeatable view of everything that is committed.
    ///
    /// # Errors
    /// When the database was deleted or the engine failed.
    pub fn read(self: &Arc<Self>) -> Result<ReadView> {
        if self.is_closed() {
            return Err(DatabaseError::NotFound);
        }
        // Taken before the snapshot: one of these tables, or of those published meanwhile, fits it.
        let ranks = self.ranks.lock().clone();
        Ok(ReadView::new(Arc::clone(self), self.engine.snapshot(self.shard())?, ranks))
    }

    /// Counts and sizes.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn info(self: &Arc<Self>) -> Result<DatabaseInfo> {
        let meta = self.read()?.meta()?;
        let file_bytes = self.engine.approximate_size(self.shard());
        // What is current compresses like everything, so it takes its share of the file.
        let live = meta.leaf_bytes + meta.leaf_attachment_bytes.min(meta.content_bytes);
        let records = RECORD_BYTES * (1 + meta.doc_count + meta.doc_del_count);
        let all = meta.body_bytes + meta.content_bytes + records;
        let active_bytes = (u128::from(file_bytes) * u128::from(live) / u128::from(all)) as u64;
        Ok(DatabaseInfo {
            update_seq: meta.update_seq,
            doc_count: meta.doc_count,
            doc_del_count: meta.doc_del_count,
            file_bytes,
            external_bytes: meta.leaf_bytes + meta.leaf_attachment_bytes,
            active_bytes,
            purge_seq: meta.purge_seq,
        })
    }

    /// The number of revisions of a branch are remembered.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn revs_limit(self: &Arc<Self>) -> Result<u64> {
        self.read()?.revs_limit()
    }

    /// The security object as of the last commit that this process knows of, if one was ever set. Reads nothing.
    ///
    /// # Errors
    /// When the database was deleted.
    pub fn security(&self) -> Result<Option<Json>> {
        if self.is_closed() {
            return Err(DatabaseError::NotFound);
        }
        Ok(self.security.lock().clone())
    }

    pub(crate) fn publish_security(&self, security: Option<Json>) {
        *self.security.lock() = security;
    }

    /// Calls `listener` after each commit that changed documents, from the thread that committed: it must be quick and must not
    /// call back into the database. Several commits of other processes may be one call.
    pub fn subscribe(self: &Arc<Self>, listener: impl Fn(Event) + Send + Sync + 'static) -> Subscription {
        let id = self.next_listener.fetch_add(1, Ordering::Relaxed);
        self.listeners.lock().insert(id, Box::new(listener));
        Subscription { database: Arc::clone(self), id }
    }

    /// A name for a commit that no other commit to this shard has.
    pub(crate) fn next_token(&self) -> CommitToken {
        CommitToken(u128::from(self.tokens.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn notify(&self, event: Event) {
        if let Event::Committed(_) = event {
            self.activity.note(&self.name, Happened::Updated);
        }
        self.tell(event);
    }

    /// Tells subscribers. What another process does is kept among the events of databases there.
    pub(crate) fn tell(&self, event: Event) {
        if let Event::Committed(seq) = event {
            self.told_seq.store(seq, Ordering::Relaxed);
        }
        for listener in self.listeners.lock().values() {
            listener(event);
        }
    }

    /// Takes notice of what another process has committed.
    pub(crate) fn look(&self) -> Result<()> {
        // Nothing that this process commits meanwhile is told before.
        let _writer = self.writer.lock();
        let snapshot = self.engine().snapshot(self.shard())?;
        let requests = [Request::Head, Request::MultiGet(Keyspace::Catalog, &[keys::META, keys::SECURITY])];
        let replies: [_; 2] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [head, records] = replies;
        let records: [_; 2] = records.into_values()?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [old_meta, security] = records;
        let meta = Meta::of_records(head.into_value()?, old_meta)?;
        self.publish_security(security.map(Json::trusted));
        self.publish_design_seq(meta.design_seq);
        if meta.update_seq != self.told_seq.load(Ordering::Relaxed) {
            self.tell(Event::Committed(meta.update_seq));
        }
        Ok(())
    }

    /// Waits for the running commit and lets no other one begin.
    pub(crate) fn close(&self) -> Closed {
        // First of all: the leader keeps the lock for as long as anything waits, unless it sees this.
        self.closed.store(true, Ordering::Release);
        drop(self.writer.lock());
        self.notify(Event::Deleted);
        Closed
    }
}

/// More records of ranks than are kept, and more unfinished uploads than there are.
const LOADED_ROWS: usize = 2_000;

/// Reads what the leader of the update queue needs, from what is committed.
pub(crate) fn load_writer(snapshot: &dyn Snapshot) -> Result<Writer> {
    Ok(load(snapshot)?.0)
}

/// The same, and the marks of unfinished uploads, in one trip.
fn load(snapshot: &dyn Snapshot) -> Result<(Writer, Page)> {
    let log_end = keys::after_prefix(keys::RANK_LOG);
    let log = KeyRange { start: Some(keys::RANK_LOG), end: Some(&log_end) };
    let uploads_end = keys::after_prefix(keys::UPLOAD);
    let uploads = KeyRange { start: Some(keys::UPLOAD), end: Some(&uploads_end) };
    let page =
        |space, range| Request::Page(PageRange { space, range, direction: Direction::Forward, rows: LOADED_ROWS });
    let records = [keys::RANK_TABLE, keys::REVS_LIMIT, keys::SECURITY, keys::META];
    let requests = [
        Request::State,
        Request::Head,
        Request::MultiGet(Keyspace::Catalog, &records),
        page(Keyspace::Catalog, log),
        page(Keyspace::Attachments, uploads),
    ];
    let replies: [_; 5] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
    let [state, head, records, rank_log, uploads] = replies;
    let (state, head) = (state.into_state()?, head.into_value()?);
    let records: [_; 4] = records.into_values()?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
    let [rank_table, revs_limit, security, old_meta] = records;
    let (ranks, rank_log, rank_pieces) = load_ranks(snapshot, state, rank_table, rank_log.into_page()?)?;
    let meta = Meta::of_records(head, old_meta)?;
    let revs_limit = decode_revs_limit(revs_limit)?;
    let security = security.map(Json::trusted);
    let (ranks, fullness) = (Arc::new(ranks), Fullness::default());
    let writer = Writer { state, meta, ranks, revs_limit, security, rank_log, rank_pieces, fullness };
    Ok((writer, uploads.into_page()?))
}

/// The ranks as of `state`, the numbers of their log records, and how many pieces the tables have. `log` has the first of
/// these records.
fn load_ranks(
    snapshot: &dyn Snapshot,
    state: ShardState,
    table: Option<Vec<u8>>,
    mut log: Page,
) -> Result<(Ranks, Vec<u64>, usize)> {
    let (mut ranks, pieces) =
        table.map_or_else(|| Ok((Ranks::new(), 0)), |stored| rank::table::read(snapshot, &stored))?;
    let mut numbers = Vec::new();
    let end = keys::after_prefix(keys::RANK_LOG);
    loop {
        for (key, record) in &log.rows {
            let logged = keys::decode_sequence(&key[keys::RANK_LOG.len()..])?;
            ranks.replay(logged, record)?;
            numbers.push(logged);
        }
        let Some((last, _)) = log.rows.last().filter(|_| !log.is_last) else { break };
        let start = [last.as_slice(), &[0]].concat();
        let range = KeyRange { start: Some(&start), end: Some(&end) };
        let (space, direction) = (Keyspace::Catalog, Direction::Forward);
        log = Page::scan(snapshot, PageRange { space, range, direction, rows: LOADED_ROWS })?;
    }
    ranks.state = state;
    Ok((ranks, numbers, pieces))
}

pub(crate) fn read_revs_limit(snapshot: &dyn Snapshot) -> Result<u64> {
    decode_revs_limit(snapshot.get(Keyspace::Catalog, keys::REVS_LIMIT)?)
}

fn decode_revs_limit(record: Option<Vec<u8>>) -> Result<u64> {
    match record {
        Some(bytes) => Reader::new(&bytes, "revs_limit").varint(),
        None => Ok(DEFAULT_REVS_LIMIT),
    }
}
