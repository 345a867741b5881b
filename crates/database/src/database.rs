//! One [`Database`]: its shard in the engine, its counters, and the subscriptions to its commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_model::json::Json;
use settee_storage::{CommitToken, Engine, Keyspace, Request, Shard, Version};

use crate::activity::{Activity, Happened};
use crate::compaction::Compacting;
use crate::designs::OfDesigns;
use crate::entry::{Entry, Layout};
use crate::meta::Meta;
use crate::notifications::{NotifiedVersion, NotifiedVersions};
use crate::rank::PublishedRanks;
use crate::read::ReadView;
use crate::update::{OwnUploads, Queue, Writer, load};
use crate::{CommitClock, Counters, DatabaseError, Result, keys};

/// Approximate size of the stored data of a document without its bodies: id, revision tree and sequence entry.
const RECORD_BYTES: u64 = 100;

/// Counts and sizes of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatabaseInfo {
    /// The last update sequence.
    pub update_seq: u64,
    /// Documents that are not deleted.
    pub doc_count: u64,
    /// Deleted documents.
    pub doc_del_count: u64,
    /// Approximate size on disk.
    pub file_bytes: u64,
    /// Bytes of the current bodies, uncompressed, and of their attachments.
    pub external_bytes: u64,
    /// Approximate part of `file_bytes` that leaf bodies and attachments occupy.
    pub active_bytes: u64,
    /// Number of the last purge.
    pub purge_seq: u64,
}

/// Event of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// All updates up to this update sequence can be read.
    Committed(u64),
    /// The database was deleted.
    Deleted,
}

/// Proof that a database was deleted and takes no more writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed;

type Listener = Box<dyn Fn(Event) + Send + Sync>;

/// Data of a database that is cached because most requests need it, as of one commit to its shard.
struct CachedState {
    version: Version,
    security: Option<Json>,
    /// See [`Meta::attached_seq`].
    attached_seq: u64,
}

/// Number of small writes that are forwarded to the preferred node after the first commit conflict with another
/// process.
pub(crate) const CONTENTION: u32 = 1000;

/// Maximum number of forwarded writes. The number doubles each time another conflict shows that other processes still
/// write, because each such test costs them several commits.
pub(crate) const CONTENTION_MAX: u32 = 64 * CONTENTION;

/// Number of requests without optimistic validation after other processes were found to write to the database. A
/// failed validation repeats the work of the request and separates it from the group commit.
pub(crate) const REQUESTS_WITHOUT_READ_SET: u32 = 32;

/// Origin of the commit that cached data comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// This process.
    Here,
    /// Possibly another process.
    Anywhere,
}

/// A database. All users of it in this process share one instance.
pub struct Database {
    name: String,
    entry: Entry,
    activity: Arc<Activity>,
    engine: Arc<dyn Engine>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) queue: Queue,
    pub(crate) ranks: Mutex<PublishedRanks>,
    known: Mutex<CachedState>,
    /// Version of [`Self::known`].
    seen: AtomicU64,
    /// Latest version of which another process has sent a commit notification.
    notified: NotifiedVersion,
    /// Number of store failures that [`Self::refresh_cache`] has handled.
    failures_seen: AtomicU64,
    /// Latest version of the catalog that was found to contain this database.
    named_at: AtomicU64,
    /// Serializes [`Self::refresh_cache`], so that one read serves all threads that find the cache stale.
    refreshing: Mutex<()>,
    attached_elsewhere: AtomicU64,
    /// Incremented when [`Self::known`] may contain a commit of another process.
    foreign: AtomicU64,
    /// Number of further requests without optimistic validation.
    without_read_set: AtomicU32,
    /// Number of further writes to forward to the preferred node, after a commit conflict with another process.
    contention: AtomicU32,
    /// Value of `contention` after the last conflict.
    contention_lasts: AtomicU32,
    closed: AtomicBool,
    tokens: AtomicU64,
    listeners: Mutex<HashMap<u64, Listener>>,
    next_listener: AtomicU64,
    /// Latest update sequence that was sent to the listeners.
    notified_seq: AtomicU64,
    design_seq: AtomicU64,
    pub(crate) designs: OfDesigns,
    pub(crate) compacting: Compacting,
    /// Abandoned uploads. The next commit removes their chunks.
    pub(crate) given_up: Mutex<Vec<u64>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("name", &self.name).field("shard", &self.entry.shard).finish_non_exhaustive()
    }
}

/// A subscription, which ends when this is dropped.
pub struct Subscription {
    database: Arc<Database>,
    id: u64,
}

impl Drop for Subscription {
    fn drop(&mut self) {
        self.database.listeners.lock().remove(&self.id);
        self.database.notified.unsubscribe();
    }
}

impl Database {
    /// Opens the database of `entry`, as found in the version `named_at` of the catalog. `token_seed` must be random.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        name: &str,
        (entry, named_at): (Entry, Version),
        (activity, notified): (Arc<Activity>, &Arc<NotifiedVersions>),
        token_seed: u64,
    ) -> Result<Arc<Self>> {
        // The registration comes before the first read, so that no commit notification is missed.
        let notified = notified.of(entry.shard);
        let failures = notified.failures();
        let (writer, uploads) = load(engine.snapshot(entry.shard)?.as_ref())?;
        let (version, security, attached_seq) =
            (writer.state.version, writer.security.clone(), writer.meta.attached_seq);
        let ranks = [Arc::clone(&writer.ranks), Arc::clone(&writer.ranks)];
        let design_seq = AtomicU64::new(writer.meta.design_seq);
        let notified_seq = AtomicU64::new(writer.meta.update_seq);
        let designs = OfDesigns::new(Arc::clone(&activity.design_bytes));
        let database = Arc::new(Self {
            name: name.to_owned(),
            entry,
            activity,
            engine,
            known: Mutex::new(CachedState { version, security, attached_seq }),
            seen: AtomicU64::new(version.0),
            notified,
            failures_seen: AtomicU64::new(failures),
            named_at: AtomicU64::new(named_at.0),
            refreshing: Mutex::new(()),
            attached_elsewhere: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            without_read_set: AtomicU32::new(0),
            contention: AtomicU32::new(0),
            contention_lasts: AtomicU32::new(0),
            writer: Mutex::new(writer),
            queue: Queue::default(),
            ranks: Mutex::new(ranks),
            closed: AtomicBool::new(false),
            tokens: AtomicU64::new(token_seed),
            listeners: Mutex::new(HashMap::new()),
            next_listener: AtomicU64::new(0),
            notified_seq,
            design_seq,
            designs,
            compacting: Compacting::default(),
            given_up: Mutex::new(Vec::new()),
        });
        database.collect_uploads(&uploads, OwnUploads::Over)?;
        Ok(database)
    }

    /// Name of the database.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.activity.counters
    }

    pub(crate) fn clock(&self) -> Option<&CommitClock> {
        self.activity.clock.get()
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

    /// Returns a number that distinguishes this database from others of the same name.
    #[must_use]
    pub fn instance(&self) -> u64 {
        self.entry.instance
    }

    /// Time of creation, in milliseconds of the Unix epoch.
    #[must_use]
    pub fn created_ms(&self) -> u64 {
        self.entry.created_ms
    }

    /// Partitioning of the documents.
    #[must_use]
    pub fn layout(&self) -> Layout {
        self.entry.layout
    }

    /// Number of shards that was requested at creation.
    #[must_use]
    pub fn q(&self) -> u32 {
        self.entry.q
    }

    /// Update sequence of the latest change of a design document that this process has observed. This is a hint
    /// without a read; [`ReadView::design_seq`] is authoritative.
    #[must_use]
    pub fn design_seq(&self) -> u64 {
        self.design_seq.load(Ordering::Acquire)
    }

    /// Returns a number that changes when this process observes that another process changed attached records. Layers
    /// can use their cached records for as long as it is unchanged. Reads nothing.
    #[must_use]
    pub fn attached_elsewhere(&self) -> u64 {
        self.attached_elsewhere.load(Ordering::Acquire)
    }

    /// Returns a number that changes with each commit to the database that this process has observed, in any process.
    /// Cached data of the database is valid for as long as it is unchanged. Reads nothing.
    #[must_use]
    pub fn notified_version(&self) -> u64 {
        self.seen.load(Ordering::Acquire).max(self.notified.version()) | self.notified.failures() << 48
    }

    /// Returns the latest notified version of another process's commit, combined with the number of store failures.
    pub(crate) fn foreign_version(&self) -> u64 {
        self.notified.version() | self.notified.failures() << 48
    }

    /// Latest version of the catalog of which another process has sent a commit notification.
    pub(crate) fn notified_catalog_version(&self) -> u64 {
        self.notified.catalog()
    }

    /// Returns true if another process has committed something that this one has not read.
    pub(crate) fn is_stale(&self) -> bool {
        self.notified.version() > self.seen.load(Ordering::Acquire) || self.has_failed()
    }

    /// Returns true if the store has failed since the last [`Self::refresh_cache`], in which case cached commits may be lost.
    fn has_failed(&self) -> bool {
        self.notified.failures() != self.failures_seen.load(Ordering::Acquire)
    }

    /// Latest version of the catalog that was found to contain this database.
    pub(crate) fn named_at(&self) -> Version {
        Version(self.named_at.load(Ordering::Acquire))
    }

    pub(crate) fn is_named_at(&self, version: Version) {
        self.named_at.fetch_max(version.0, Ordering::AcqRel);
    }

    /// Caches the state after a commit, unless the cached state is newer.
    pub(crate) fn cache_state(&self, source: Source, version: Version, meta: &Meta, security: Option<Json>) {
        let mut known = self.known.lock();
        if version < known.version {
            return;
        }
        if source == Source::Anywhere && meta.attached_seq != known.attached_seq {
            self.attached_elsewhere.fetch_add(1, Ordering::AcqRel);
        }
        let is_foreign = source == Source::Anywhere && version != known.version;
        *known = CachedState { version, security, attached_seq: meta.attached_seq };
        self.design_seq.store(meta.design_seq, Ordering::Release);
        // `foreign` is incremented after the cache is updated: a reader that finds it unchanged may have older data,
        // never newer.
        if is_foreign {
            self.foreign.fetch_add(1, Ordering::AcqRel);
        }
        self.seen.store(version.0, Ordering::Release);
    }

    /// Returns a number that increases with each observed commit of another process.
    pub(crate) fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Acquire)
    }

    /// Returns true if a request may use optimistic validation, because no other process has written here recently.
    /// Each call counts as one request.
    pub(crate) fn may_use_read_set(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.without_read_set.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_err()
    }

    /// Disables optimistic validation for the next [`REQUESTS_WITHOUT_READ_SET`] requests, because other processes write to this
    /// database.
    pub(crate) fn suspend_read_sets(&self) {
        self.without_read_set.store(REQUESTS_WITHOUT_READ_SET, Ordering::Release);
    }

    /// Returns true if the database was deleted.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
    }

    /// Returns a snapshot of all committed data.
    ///
    /// # Errors
    /// Fails if the database was deleted or the engine fails.
    pub fn read(self: &Arc<Self>) -> Result<ReadView> {
        if self.is_closed() {
            return Err(DatabaseError::NotFound);
        }
        // The tables are taken before the snapshot: one of them, or of those published concurrently, matches it.
        let ranks = self.ranks.lock().clone();
        Ok(ReadView::new(Arc::clone(self), self.engine.snapshot(self.shard())?, ranks))
    }

    /// Returns counts and sizes.
    pub fn info(self: &Arc<Self>) -> Result<DatabaseInfo> {
        let meta = self.read()?.meta()?;
        let file_bytes = self.engine.approximate_size(self.shard());
        // The estimate assumes that leaf data compresses like all other data.
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

    /// Returns the maximum number of revisions that are stored per branch.
    pub fn revs_limit(self: &Arc<Self>) -> Result<u64> {
        self.read()?.revs_limit()
    }

    /// Returns the security object as of the latest observed commit, or `None` if it was never set. Reads nothing.
    ///
    /// # Errors
    /// Fails if the database was deleted.
    pub fn security(&self) -> Result<Option<Json>> {
        if self.is_closed() {
            return Err(DatabaseError::NotFound);
        }
        Ok(self.known.lock().security.clone())
    }

    /// Returns true if a write should be forwarded to the preferred node, because commits of several processes
    /// conflicted recently. Each call counts as one write. After a thousand writes or a multiple of it this
    /// process commits again, which shows whether conflicts continue.
    #[must_use]
    pub fn yields_write(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.contention.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    }

    pub(crate) fn note_contention(&self) {
        let mut lasts = self.contention_lasts.load(Ordering::Acquire);
        if self.contention.load(Ordering::Acquire) == 0 {
            lasts = lasts.saturating_mul(2).clamp(CONTENTION, CONTENTION_MAX);
            self.contention_lasts.store(lasts, Ordering::Release);
        }
        self.contention.store(lasts, Ordering::Release);
    }

    /// Calls `listener` after each commit that changed documents, on the committing thread. It must return quickly
    /// and must not call into the database. Several commits of other processes can be merged into one call.
    pub fn subscribe(self: &Arc<Self>, listener: impl Fn(Event) + Send + Sync + 'static) -> Subscription {
        let id = self.next_listener.fetch_add(1, Ordering::Relaxed);
        self.notified.subscribe();
        self.listeners.lock().insert(id, Box::new(listener));
        Subscription { database: Arc::clone(self), id }
    }

    /// Returns true if a subscription exists.
    pub(crate) fn has_subscribers(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    /// Returns a token that no other commit to this shard has.
    pub(crate) fn next_token(&self) -> CommitToken {
        CommitToken(u128::from(self.tokens.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn notify(&self, event: Event) {
        if let Event::Committed(_) = event {
            self.activity.note(&self.name, Happened::Updated);
        }
        self.notify_subscribers(event);
    }

    /// Notifies subscribers, unless they were already notified of a newer sequence. The activity of other processes
    /// is recorded by those processes.
    fn notify_subscribers(&self, event: Event) {
        if let Event::Committed(seq) = event
            && self.notified_seq.fetch_max(seq, Ordering::Relaxed) >= seq
        {
            return;
        }
        for listener in self.listeners.lock().values() {
            listener(event);
        }
    }

    /// Refreshes the cache after commit notifications of other processes.
    ///
    /// # Errors
    /// Returns [`DatabaseError::NotFound`] if the database was deleted, or fails if the engine fails.
    pub(crate) fn refresh_cache(&self) -> Result<()> {
        let _refreshing = self.refreshing.lock();
        if !self.is_stale() {
            return Ok(());
        }
        // After a store failure the writer is locked, so that a concurrent commit of this process is not mistaken for
        // a lost one.
        let failures = self.notified.failures();
        let _writing = self.has_failed().then(|| self.writer.lock());
        let snapshot = self.engine().snapshot(self.shard())?;
        let records = Request::MultiGet(Keyspace::Catalog, &[keys::META, keys::SECURITY]);
        let replies: [_; 3] = snapshot
            .read(&[Request::State, Request::Head, records])?
            .try_into()
            .map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [state, head, records] = replies;
        let records: [_; 2] = records.into_values()?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [old_meta, security] = records;
        let meta = Meta::of_records(head.into_value()?, old_meta)?;
        if self.has_failed() {
            self.known.lock().version = Version::default();
        }
        self.cache_state(Source::Anywhere, state.into_state()?.version, &meta, security.map(Json::trusted));
        self.failures_seen.store(failures, Ordering::Release);
        self.notify_subscribers(Event::Committed(meta.update_seq));
        Ok(())
    }

    /// Waits for the running commit and prevents further ones.
    pub(crate) fn close(&self) -> Closed {
        // The flag is set first, because the leader holds the lock until its queue is empty, unless it observes the
        // flag.
        self.closed.store(true, Ordering::Release);
        drop(self.writer.lock());
        self.notify(Event::Deleted);
        Closed
    }
}
