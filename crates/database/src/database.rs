//! One [`Database`]: its place in the engine, its counters, and who wants to be notified of its commits.

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
use crate::news::{Heard, HeardVersion};
use crate::rank::PublishedRanks;
use crate::read::ReadView;
use crate::update::{OwnUploads, Queue, Writer, load};
use crate::{Counters, DatabaseError, Result, keys};

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

type Listener = Box<dyn Fn(Event) + Send + Sync>;

/// What is kept of a database because most requests ask for it, as of a commit to its shard.
struct Known {
    version: Version,
    security: Option<Json>,
    /// See [`Meta::attached_seq`].
    attached_seq: u64,
}

/// The writes that are made elsewhere after another process was faster with a commit, for the first time.
pub(crate) const CONTENTION: u32 = 1000;

/// The most of them. Each time when it is found out that others write still, it is found out half as often: that costs those others several commits.
pub(crate) const CONTENTION_MAX: u32 = 64 * CONTENTION;

/// The requests that presume nothing of a database after others were found to have written to it: what presumes too much is done twice, and so is what would
/// have shared its commit.
pub(crate) const UNPRESUMED: u32 = 32;

/// Who made the commit that something is known from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// This process.
    Here,
    /// Perhaps another one.
    Anywhere,
}

/// A database. Shared by everyone who uses it.
pub struct Database {
    name: String,
    entry: Entry,
    activity: Arc<Activity>,
    engine: Arc<dyn Engine>,
    pub(crate) writer: Mutex<Writer>,
    pub(crate) queue: Queue,
    pub(crate) ranks: Mutex<PublishedRanks>,
    known: Mutex<Known>,
    /// The version of [`Self::known`].
    seen: AtomicU64,
    /// The newest version that another process was heard to have committed.
    heard: HeardVersion,
    /// The failures of the store after which somebody has looked.
    failures_seen: AtomicU64,
    /// The version of the catalog that named this database last.
    named_at: AtomicU64,
    /// One looks for all who find that something was heard.
    looking: Mutex<()>,
    attached_elsewhere: AtomicU64,
    /// Rises when [`Self::known`] may tell of a commit of another process.
    foreign: AtomicU64,
    /// How many more requests are to presume nothing.
    unpresumed: AtomicU32,
    /// How many more writes are better made by the process that all prefer for it: another one was faster with a commit.
    contention: AtomicU32,
    /// How many there were at the beginning.
    contention_lasts: AtomicU32,
    closed: AtomicBool,
    tokens: AtomicU64,
    listeners: Mutex<HashMap<u64, Listener>>,
    next_listener: AtomicU64,
    /// The sequence that listeners were last told of, or would have been.
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
        self.database.heard.unsubscribe();
    }
}

impl Database {
    /// Opens the database that `entry` tells of, as the catalog had it in its version `named_at`. `token_seed` is random.
    pub(crate) fn open(
        engine: Arc<dyn Engine>,
        name: &str,
        (entry, named_at): (Entry, Version),
        (activity, heard): (Arc<Activity>, &Arc<Heard>),
        token_seed: u64,
    ) -> Result<Arc<Self>> {
        // Before anything is read, so that nothing is missed.
        let heard = heard.of(entry.shard);
        let failures = heard.failures();
        let (writer, uploads) = load(engine.snapshot(entry.shard)?.as_ref())?;
        let (version, security, attached_seq) =
            (writer.state.version, writer.security.clone(), writer.meta.attached_seq);
        let ranks = [Arc::clone(&writer.ranks), Arc::clone(&writer.ranks)];
        let design_seq = AtomicU64::new(writer.meta.design_seq);
        let told_seq = AtomicU64::new(writer.meta.update_seq);
        let designs = OfDesigns::new(Arc::clone(&activity.design_bytes));
        let database = Arc::new(Self {
            name: name.to_owned(),
            entry,
            activity,
            engine,
            known: Mutex::new(Known { version, security, attached_seq }),
            seen: AtomicU64::new(version.0),
            heard,
            failures_seen: AtomicU64::new(failures),
            named_at: AtomicU64::new(named_at.0),
            looking: Mutex::new(()),
            attached_elsewhere: AtomicU64::new(0),
            foreign: AtomicU64::new(0),
            unpresumed: AtomicU32::new(0),
            contention: AtomicU32::new(0),
            contention_lasts: AtomicU32::new(0),
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
        database.collect_uploads(&uploads, OwnUploads::Over)?;
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

    /// The division of its documents.
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

    /// A number that rises when another process has changed records that layers attach to the database, as far as this process
    /// knows: what is kept of them in memory is good for as long as it stays. Reads nothing.
    #[must_use]
    pub fn attached_elsewhere(&self) -> u64 {
        self.attached_elsewhere.load(Ordering::Acquire)
    }

    /// A number that changes with each commit to the database, wherever it was made, as far as this process has heard: what is kept of
    /// the database in memory is good for as long as it stays. Reads nothing.
    #[must_use]
    pub fn version_heard(&self) -> u64 {
        self.seen.load(Ordering::Acquire).max(self.heard.version()) | self.heard.failures() << 48
    }

    /// The newest version that another process was heard to have committed, and the failures of the store.
    pub(crate) fn heard_elsewhere(&self) -> u64 {
        self.heard.version() | self.heard.failures() << 48
    }

    /// The newest version of the catalog that another process was heard to have committed.
    pub(crate) fn catalog_heard(&self) -> u64 {
        self.heard.catalog()
    }

    /// Whether another process has committed something that this one has not looked at.
    pub(crate) fn is_stale(&self) -> bool {
        self.heard.version() > self.seen.load(Ordering::Acquire) || self.has_failed()
    }

    /// Whether the store has failed since somebody looked: what is known may not have happened.
    fn has_failed(&self) -> bool {
        self.heard.failures() != self.failures_seen.load(Ordering::Acquire)
    }

    /// The version of the catalog in which the name was last known to be that of this database.
    pub(crate) fn named_at(&self) -> Version {
        Version(self.named_at.load(Ordering::Acquire))
    }

    pub(crate) fn is_named_at(&self, version: Version) {
        self.named_at.fetch_max(version.0, Ordering::AcqRel);
    }

    /// Keeps what holds since a commit, unless what is known is newer.
    pub(crate) fn know(&self, source: Source, version: Version, meta: &Meta, security: Option<Json>) {
        let mut known = self.known.lock();
        if version < known.version {
            return;
        }
        if source == Source::Anywhere && meta.attached_seq != known.attached_seq {
            self.attached_elsewhere.fetch_add(1, Ordering::AcqRel);
        }
        let is_foreign = source == Source::Anywhere && version != known.version;
        *known = Known { version, security, attached_seq: meta.attached_seq };
        self.design_seq.store(meta.design_seq, Ordering::Release);
        // After all that is known: whoever finds it as it was may know less, but no more.
        if is_foreign {
            self.foreign.fetch_add(1, Ordering::AcqRel);
        }
        self.seen.store(version.0, Ordering::Release);
    }

    /// A number that rises with what is known of commits of other processes.
    pub(crate) fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Acquire)
    }

    /// Whether a request may presume that nobody else writes here. Each call counts as a request.
    pub(crate) fn may_be_presumed(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.unpresumed.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_err()
    }

    /// Others write here.
    pub(crate) fn is_not_to_be_presumed(&self) {
        self.unpresumed.store(UNPRESUMED, Ordering::Release);
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
        Ok(self.known.lock().security.clone())
    }

    /// Whether a write is better made by the process that all prefer for this database, because several write to it: another one was faster
    /// with a commit. Each call counts as a write; after a thousand, or more of them where that was so before, this process finds out anew.
    #[must_use]
    pub fn yields_write(&self) -> bool {
        let one_less = |left: u32| left.checked_sub(1);
        self.contention.fetch_update(Ordering::AcqRel, Ordering::Acquire, one_less).is_ok()
    }

    /// Another process was faster with a commit.
    pub(crate) fn meet_others(&self) {
        let mut lasts = self.contention_lasts.load(Ordering::Acquire);
        if self.contention.load(Ordering::Acquire) == 0 {
            lasts = lasts.saturating_mul(2).clamp(CONTENTION, CONTENTION_MAX);
            self.contention_lasts.store(lasts, Ordering::Release);
        }
        self.contention.store(lasts, Ordering::Release);
    }

    /// Calls `listener` after each commit that changed documents, from the thread that committed: it must be quick and must not
    /// call back into the database. Several commits of other processes may be one call.
    pub fn subscribe(self: &Arc<Self>, listener: impl Fn(Event) + Send + Sync + 'static) -> Subscription {
        let id = self.next_listener.fetch_add(1, Ordering::Relaxed);
        self.heard.subscribe();
        self.listeners.lock().insert(id, Box::new(listener));
        Subscription { database: Arc::clone(self), id }
    }

    /// Whether anybody waits for commits.
    pub(crate) fn has_subscribers(&self) -> bool {
        !self.listeners.lock().is_empty()
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

    /// Tells subscribers, unless they were told of something newer. What another process does is kept among the events of
    /// databases there.
    fn tell(&self, event: Event) {
        if let Event::Committed(seq) = event
            && self.told_seq.fetch_max(seq, Ordering::Relaxed) >= seq
        {
            return;
        }
        for listener in self.listeners.lock().values() {
            listener(event);
        }
    }

    /// Takes notice of what another process has committed, if it was heard of any that nobody has looked at.
    ///
    /// # Errors
    /// [`DatabaseError::NotFound`] if the database is gone, or when the engine failed.
    pub(crate) fn look(&self) -> Result<()> {
        let _looking = self.looking.lock();
        if !self.is_stale() {
            return Ok(());
        }
        // What this process commits meanwhile must not be taken for what has not happened.
        let failures = self.heard.failures();
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
        self.know(Source::Anywhere, state.into_state()?.version, &meta, security.map(Json::trusted));
        self.failures_seen.store(failures, Ordering::Release);
        self.tell(Event::Committed(meta.update_seq));
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
