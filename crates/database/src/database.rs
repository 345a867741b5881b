//! [`Database`]: its shard in the engine, its counters, and the subscriptions to its commits.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_model::json::Json;
use settee_storage::members::Claim;
use settee_storage::{CommitToken, Engine, Keyspace, Request, Shard, Version};

use crate::access::AccessControl;
use crate::catalog_context::{CatalogContext, DatabaseEventKind};
use crate::compacting::Compacting;
use crate::design_cache::DesignCache;
use crate::entry::{Entry, Layout};
use crate::meta::Meta;
use crate::notifications::{NotifiedVersion, NotifiedVersions};
use crate::rank::PublishedRanks;
use crate::update::queue::Queue;
use crate::update::upload_marks::OwnUploads;
use crate::update::writer::{Writer, load};
use crate::{CommitClock, Counters, DatabaseError, Result, keys};

/// Approximate stored size of a document without its bodies: id, revision tree and sequence entry.
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

struct CachedState {
    version: Version,
    security: Option<Json>,
    attached_seq: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Here,
    Anywhere,
}

/// A database. All users of it in this process share one instance.
pub struct Database {
    name: String,
    entry: Entry,
    context: Arc<CatalogContext>,
    engine: Arc<dyn Engine>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) queue: Queue,
    pub(crate) ranks: Mutex<PublishedRanks>,
    known: Mutex<CachedState>,
    seen: AtomicU64,
    notified: NotifiedVersion,
    failures_seen: AtomicU64,
    named_at: AtomicU64,
    /// Serializes [`Self::refresh_cache`], so that one read serves all threads that find the cache stale.
    refreshing: Mutex<()>,
    attached_elsewhere: AtomicU64,
    closed: AtomicBool,
    tokens: AtomicU64,
    listeners: Mutex<HashMap<u64, Listener>>,
    next_listener: AtomicU64,
    notified_seq: AtomicU64,
    design_seq: AtomicU64,
    pub(crate) designs: DesignCache,
    pub(crate) compacting: Compacting,
    /// Abandoned uploads. The next commit removes their chunks.
    pub(crate) given_up: Arc<Mutex<Vec<u64>>>,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Database").field("name", &self.name).field("shard", &self.entry.shard).finish_non_exhaustive()
    }
}

/// A subscription, which ends when it is dropped.
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
    /// `token_seed` must be random.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        name: &str,
        (entry, named_at): (Entry, u64),
        (context, notified): (Arc<CatalogContext>, &Arc<NotifiedVersions>),
        token_seed: u64,
    ) -> Result<Arc<Self>> {
        // The registration precedes the first read, so that no commit notification is missed.
        let notified = notified.of(entry.shard);
        let failures = notified.failures();
        let (writer, uploads) = load(engine.snapshot(entry.shard)?.as_ref())?;
        let (version, security, attached_seq) =
            (writer.state.version, writer.security.clone(), writer.meta.attached_seq);
        let ranks = [Arc::clone(&writer.ranks), Arc::clone(&writer.ranks)];
        let design_seq = AtomicU64::new(writer.meta.design_seq);
        let notified_seq = AtomicU64::new(writer.meta.update_seq);
        let designs = DesignCache::new(Arc::clone(&context.design_bytes));
        let database = Arc::new(Self {
            name: name.to_owned(),
            entry,
            context,
            engine,
            known: Mutex::new(CachedState { version, security, attached_seq }),
            seen: AtomicU64::new(version.0),
            notified,
            failures_seen: AtomicU64::new(failures),
            named_at: AtomicU64::new(named_at),
            refreshing: Mutex::new(()),
            attached_elsewhere: AtomicU64::new(0),
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
            given_up: Arc::default(),
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
        &self.context.counters
    }

    pub(crate) fn clock(&self) -> Option<&CommitClock> {
        self.context.clock.get()
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

    /// Granularity of the access rights.
    #[must_use]
    pub fn access(&self) -> AccessControl {
        self.entry.access
    }

    /// Number of shards that was requested at creation.
    #[must_use]
    pub fn q(&self) -> u32 {
        self.entry.q
    }

    /// Update sequence of the latest change of a design document that this process has observed. Reads nothing;
    /// [`ReadView::design_seq`](crate::ReadView::design_seq) is authoritative.
    #[must_use]
    pub fn design_seq(&self) -> u64 {
        self.design_seq.load(Ordering::Acquire)
    }

    /// Returns a number that changes when this process observes that another process changed attached records. Cached
    /// records of other layers are valid as long as it is unchanged. Reads nothing.
    #[must_use]
    pub fn attached_elsewhere(&self) -> u64 {
        self.attached_elsewhere.load(Ordering::Acquire)
    }

    /// Returns a number that changes with each commit that this process has observed, of any process. Cached data of
    /// the database is valid as long as it is unchanged. Reads nothing.
    #[must_use]
    pub fn notified_version(&self) -> u64 {
        self.seen.load(Ordering::Acquire).max(self.notified.version()) | self.notified.failures() << 48
    }

    pub(crate) fn is_stale(&self) -> bool {
        self.notified.version() > self.seen.load(Ordering::Acquire) || self.has_failed()
    }

    /// After a failure of the store cached commits may be lost.
    fn has_failed(&self) -> bool {
        self.notified.failures() != self.failures_seen.load(Ordering::Acquire)
    }

    /// Number of notifications of the catalog before the name of the database was last read.
    pub(crate) fn named_at(&self) -> u64 {
        self.named_at.load(Ordering::Acquire)
    }

    pub(crate) fn is_named_at(&self, seen: u64) {
        self.named_at.fetch_max(seen, Ordering::AcqRel);
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
        *known = CachedState { version, security, attached_seq: meta.attached_seq };
        self.design_seq.store(meta.design_seq, Ordering::Release);
        self.seen.store(version.0, Ordering::Release);
    }

    /// Returns the claim under which this process commits writes of clients; `None` if no lease is required. Fails with
    /// `StorageError::Deposed` if another process is the writer.
    pub(crate) fn claim(&self) -> settee_storage::Result<Option<Claim>> {
        match self.context.writers.get() {
            Some(writers) => writers.claim(self.shard()).map(Some),
            None => Ok(None),
        }
    }

    pub(crate) fn deposed(&self, claim: &Claim) {
        self.context.writers.get().into_iter().for_each(|writers| writers.deposed(claim));
    }

    /// Returns true if the database was deleted.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Acquire)
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

    /// Returns the security object as of the latest observed commit, or `None` if it was never set. Fails if the
    /// database was deleted. Reads nothing.
    pub fn security(&self) -> Result<Option<Json>> {
        if self.is_closed() {
            return Err(DatabaseError::NotFound);
        }
        Ok(self.known.lock().security.clone())
    }

    /// Calls `listener` after each commit that changed documents, on the committing thread, in any order with other
    /// listeners. It must not block or use the database. Commits of other processes can be merged.
    pub fn subscribe(self: &Arc<Self>, listener: impl Fn(Event) + Send + Sync + 'static) -> Subscription {
        let id = self.next_listener.fetch_add(1, Ordering::Relaxed);
        self.notified.subscribe();
        self.listeners.lock().insert(id, Box::new(listener));
        Subscription { database: Arc::clone(self), id }
    }

    pub(crate) fn has_subscribers(&self) -> bool {
        !self.listeners.lock().is_empty()
    }

    pub(crate) fn next_token(&self) -> CommitToken {
        CommitToken(u128::from(self.tokens.fetch_add(1, Ordering::Relaxed)))
    }

    pub(crate) fn notify(&self, event: Event) {
        if let Event::Committed(_) = event {
            self.context.record(&self.name, DatabaseEventKind::Updated);
        }
        self.notify_subscribers(event);
    }

    /// Notifies subscribers, unless they were notified of a newer sequence. Other processes record their own events.
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

    /// Fails with [`DatabaseError::NotFound`] if the database was deleted.
    pub(crate) fn refresh_cache(&self) -> Result<()> {
        let _refreshing = self.refreshing.lock();
        if !self.is_stale() {
            return Ok(());
        }
        // After a store failure the writer is locked: a concurrent commit of this process must not look like a lost
        // one.
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
        // The flag is set first, because the leader holds the lock until its queue is empty or it observes the flag.
        self.closed.store(true, Ordering::Release);
        drop(self.writer.lock());
        self.notify(Event::Deleted);
        Closed
    }
}
