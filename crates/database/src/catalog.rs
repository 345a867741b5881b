//! The databases of one engine: [`Catalog`] creates, finds, lists and deletes them.
//!
//! Names and shard numbers are entries of shard 0, so the creation of a database is one small commit without files of
//! its own.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use settee_cluster::{Groups, Writers};
use settee_storage::codec::{Reader, put_varint};
use settee_storage::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Purpose, Shard, Snapshot,
    StorageError, Version,
};

use crate::access::AccessControl;
use crate::attempt::{Attempt, free_space};
use crate::catalog_context::{CatalogContext, DatabaseEventKind};
use crate::database::Database;
use crate::entry::{CATALOG, Entry, Layout};
use crate::follow::follow;
use crate::notifications::NotifiedVersions;
use crate::open::OpenDatabases;
use crate::stored::StoredDatabase;
use crate::times::CommitClock;
use crate::{Counters, DatabaseError, Result, keys};

/// Maximum length of a part of a name between slashes, as in CouchDB, where each part becomes the name of a file.
const MAX_SEGMENT_BYTES: usize = 238;

const MAX_NAME_BYTES: usize = 4000;

const SYSTEM_NAMES: [&str; 3] = ["_users", "_replicator", "_global_changes"];

/// Options of a new database.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseOptions {
    /// Time of creation, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// Random number that distinguishes the database from others of the same name.
    pub instance: u64,
    /// Partitioning of the documents.
    pub layout: Layout,
    /// Number of shards that is reported to clients. Settee always creates one.
    pub q: u32,
}

/// The databases of an engine.
pub struct Catalog {
    engine: Arc<dyn Engine>,
    open: Arc<OpenDatabases>,
    names: NameLocks,
    writing: Mutex<()>,
    tokens: AtomicU64,
    context: Arc<CatalogContext>,
    notified: Arc<NotifiedVersions>,
}

/// Locks of names. A thread that creates, deletes or opens a database must hold one: no open revives a deleted
/// database.
struct NameLocks {
    hasher: RandomState,
    locks: [Mutex<()>; 64],
}

impl NameLocks {
    fn new() -> Self {
        Self { hasher: RandomState::new(), locks: std::array::from_fn(|_| Mutex::new(())) }
    }

    fn lock(&self, name: &str) -> MutexGuard<'_, ()> {
        self.locks[self.hasher.hash_one(name) as usize % self.locks.len()].lock()
    }
}

/// Checks a name by CouchDB's rules. Fails with [`DatabaseError::IllegalName`] or [`DatabaseError::NameTooLong`].
pub fn validate_name(name: &str) -> Result<()> {
    let last = name.rsplit('/').next().unwrap_or(name);
    let plain = |name: &str| {
        name.starts_with(|first: char| first.is_ascii_lowercase())
            && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_$()+-/".contains(&byte))
    };
    let prefix_is_plain = || name.strip_suffix(last).is_some_and(|prefix| prefix.is_empty() || plain(prefix));
    let system = SYSTEM_NAMES.contains(&last) && prefix_is_plain();
    if !(plain(name) || system) {
        return Err(DatabaseError::IllegalName(name.to_owned()));
    }
    if name.len() > MAX_NAME_BYTES || name.split('/').any(|segment| segment.len() > MAX_SEGMENT_BYTES) {
        return Err(DatabaseError::NameTooLong(name.to_owned()));
    }
    Ok(())
}

impl Catalog {
    /// Opens the catalog of `engine`, finishes deletions that a crash interrupted, and subscribes to the commits of
    /// other processes. `seed` must be random.
    pub fn open(engine: Arc<dyn Engine>, seed: u64) -> Result<Self> {
        let catalog = Self {
            engine,
            open: Arc::new(OpenDatabases::new()),
            names: NameLocks::new(),
            writing: Mutex::new(()),
            tokens: AtomicU64::new(seed),
            context: Arc::default(),
            notified: Arc::default(),
        };
        follow(catalog.engine.as_ref(), &catalog.notified, &catalog.open);
        match catalog.finish_deletions() {
            // A store on a full disk can still be read. The next start finishes the deletions.
            Err(DatabaseError::Storage(StorageError::Full(_))) => {}
            finished => finished?,
        }
        Ok(catalog)
    }

    /// The storage engine.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// Sets the source of the times of commits. Without one, no times are recorded. Only the first call has an effect.
    pub fn set_clock(&self, clock: CommitClock) {
        // A second node on this catalog has the same clock.
        let _ = self.context().clock.set(clock);
    }

    /// Shared state of the databases, with their events.
    #[must_use]
    pub fn context(&self) -> &Arc<CatalogContext> {
        &self.context
    }

    /// Counters of reads and writes.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.context.counters
    }

    /// Returns the open databases: those in use and those used recently.
    #[must_use]
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        self.open.all()
    }

    /// Sets the number of databases that stay open. Beyond the limit, databases without users are closed, least
    /// recently used first. Databases in use stay open regardless of the limit.
    pub fn set_max_open(&self, limit: usize) {
        self.open.set_limit(limit);
    }

    /// Returns the engine's counters.
    #[must_use]
    pub fn engine_statistics(&self) -> Vec<(&'static str, u64)> {
        self.engine.statistics()
    }

    /// Returns the database of this name, or [`DatabaseError::NotFound`]. Guarantee: its cached data is at least as
    /// recent as the latest commit notification of other processes, see [`Engine::catch_up`].
    pub fn database(&self, name: &str) -> Result<Arc<Database>> {
        if let Some(database) = self.open.get(name)
            && self.refresh(&database)?
        {
            return Ok(database);
        }
        let _name = self.names.lock(name);
        if let Some(database) = self.open.get(name) {
            if self.refresh(&database)? {
                return Ok(database);
            }
            self.open.remove_if_same(&database);
            database.close();
        }
        let seen = self.notified.catalog();
        let entry = self.entry(name)?.ok_or(DatabaseError::NotFound)?;
        self.open_entry(name, &entry, seen)
    }

    /// Makes commits of clients' writes depend on the leases of `writers`. Only the first call has an effect.
    pub fn set_writers(&self, writers: Arc<Writers>) {
        let _ = self.context.writers.set(writers);
    }

    /// Returns the shard of the database of this name if it is open and no later change of the catalog was notified. Its
    /// other cached data may be older.
    #[must_use]
    pub fn cached_shard(&self, name: &str) -> Option<Shard> {
        let database = self.open.get(name).filter(|database| self.notified.catalog() <= database.named_at())?;
        Some(database.shard())
    }

    /// Returns true if [`Self::database`] would return without a read from the engine.
    #[must_use]
    pub fn is_cached(&self, name: &str) -> bool {
        let is_current =
            |database: &Arc<Database>| self.notified.catalog() <= database.named_at() && !database.is_stale();
        self.open.get(name).as_ref().is_some_and(is_current)
    }

    /// Reads commits of other processes to an open database. Returns `false` if the database was deleted.
    fn refresh(&self, database: &Database) -> Result<bool> {
        let seen = self.notified.catalog();
        if seen > database.named_at() {
            if self.entry(database.name())?.is_none_or(|entry| entry.shard != database.shard()) {
                return Ok(false);
            }
            database.is_named_at(seen);
        }
        if database.is_stale()
            && let Err(error) = database.refresh_cache()
        {
            return if matches!(error, DatabaseError::NotFound) { Ok(false) } else { Err(error) };
        }
        Ok(true)
    }

    fn entry(&self, name: &str) -> Result<Option<Entry>> {
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        let entry = self.engine.snapshot(CATALOG)?.get(Keyspace::Catalog, &key)?;
        entry.map(|bytes| Entry::decode(&bytes)).transpose()
    }

    /// Creates a database. Fails with [`DatabaseError::Exists`], [`DatabaseError::IllegalName`] or
    /// [`DatabaseError::NameTooLong`].
    pub fn create(&self, name: &str, options: DatabaseOptions) -> Result<Arc<Database>> {
        self.create_with(name, options, AccessControl::PerDatabase)
    }

    /// As [`Self::create`], with a granularity of access rights.
    pub fn create_with(&self, name: &str, options: DatabaseOptions, access: AccessControl) -> Result<Arc<Database>> {
        validate_name(name)?;
        let _name = self.names.lock(name);
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        let mut created = None;
        let seen = self.notified.catalog();
        self.commit(Purpose::Growth, |snapshot, batch| {
            if snapshot.get(Keyspace::Catalog, &key)?.is_some() {
                return Err(DatabaseError::Exists);
            }
            let shard = self.next_shard(snapshot, batch, self.system_group(name))?;
            let DatabaseOptions { created_ms, instance, layout, q } = options;
            let entry = Entry { shard, instance, created_ms, layout, q, access };
            batch.put(Keyspace::Catalog, &key, &entry.encode());
            created = Some(entry);
            Ok(())
        })?;
        let entry = created.expect("the commit made an entry");
        let database = self.open_entry(name, &entry, seen).map_err(DatabaseError::in_doubt)?;
        self.context.record_list_change(name, DatabaseEventKind::Created);
        Ok(database)
    }

    /// Deletes a database and all shards that it owns. Fails with [`DatabaseError::NotFound`] if it does not exist.
    pub fn delete(&self, name: &str) -> Result<()> {
        let database = match self.database(name) {
            // A database that cannot be read can still be deleted.
            Err(DatabaseError::Storage(StorageError::Corrupt(_)) | DatabaseError::Corrupt(_)) => None,
            database => Some(database?),
        };
        let name_lock = self.names.lock(name);
        if database.as_ref().is_some_and(|database| database.is_closed()) {
            return Err(DatabaseError::NotFound);
        }
        // Closed first, so that no further shard can be attached. After a failed commit the next request opens it
        // again.
        self.open.remove(name);
        if let Some(database) = &database {
            database.close();
        }
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        let entry = self.engine.snapshot(CATALOG)?.get(Keyspace::Catalog, &key)?.ok_or(DatabaseError::NotFound)?;
        let shard = Entry::decode(&entry)?.shard;
        if database.is_some_and(|database| database.shard() != shard) {
            return Err(DatabaseError::NotFound);
        }
        let owned = match StoredDatabase::open(self.engine.as_ref(), shard).and_then(|stored| stored.owned_shards()) {
            Err(DatabaseError::Storage(StorageError::Corrupt(_)) | DatabaseError::Corrupt(_)) => Vec::new(),
            owned => owned?,
        };
        let shards: Vec<Shard> = [shard].into_iter().chain(owned.into_iter().map(|(_, shard)| shard)).collect();
        self.commit(Purpose::Room, |snapshot, batch| {
            let entry = snapshot.get(Keyspace::Catalog, &key)?.ok_or(DatabaseError::NotFound)?;
            if Entry::decode(&entry)?.shard != shard {
                return Err(DatabaseError::NotFound);
            }
            batch.delete(Keyspace::Catalog, &key);
            for shard in &shards {
                batch.put(Keyspace::Catalog, &keys::prefixed(keys::DROPPED, &keys::sequence(shard.0)), b"");
            }
            Ok(())
        })?;
        drop(name_lock);
        self.context.record_list_change(name, DatabaseEventKind::Deleted);
        shards.into_iter().try_for_each(|shard| self.drop_shard(shard)).map_err(DatabaseError::in_doubt)
    }

    /// Returns the names of all databases in byte order.
    pub fn names(&self) -> Result<Vec<String>> {
        let snapshot = self.engine.snapshot(CATALOG)?;
        let end = keys::after_prefix(keys::DATABASE);
        let range = KeyRange { start: Some(keys::DATABASE), end: Some(&end) };
        let mut cursor = snapshot.scan(Keyspace::Catalog, range, Direction::Forward, Expect::Few)?;
        let mut names = Vec::new();
        while let Some((key, _)) = cursor.next()? {
            let name = std::str::from_utf8(&key[keys::DATABASE.len()..]);
            names.push(name.map_err(|_| DatabaseError::Corrupt("database name"))?.to_owned());
        }
        Ok(names)
    }

    /// Allocates an unused shard number, in the group of `near` if the engine has groups.
    pub fn allocate_shard(&self, near: Shard) -> Result<Shard> {
        let mut shard = CATALOG;
        self.commit(Purpose::Growth, |snapshot, batch| {
            shard = self.next_shard(snapshot, batch, Some(near))?;
            Ok(())
        })?;
        Ok(shard)
    }

    /// Allocates an unused shard number in the group of `old`, which is [dropped](Self::drop_shard) by the next start at
    /// the latest.
    pub fn replace_shard(&self, old: Shard) -> Result<Shard> {
        let mut shard = CATALOG;
        self.commit(Purpose::Growth, |snapshot, batch| {
            shard = self.next_shard(snapshot, batch, Some(old))?;
            batch.put(Keyspace::Catalog, &keys::prefixed(keys::DROPPED, &keys::sequence(old.0)), b"");
            Ok(())
        })?;
        Ok(shard)
    }

    /// Removes all entries of a shard without references. Returns immediately if another process is dropping the shard,
    /// so that a start only finishes deletions that a crash interrupted.
    pub fn drop_shard(&self, shard: Shard) -> Result<()> {
        let members = self.engine.members();
        let Some(claim) = members.claim(&format!("drop/{}", shard.0))? else { return Ok(()) };
        let dropped = self.drop_claimed(shard);
        // A claim that cannot be released ends with this process.
        let _ = members.release(&claim);
        dropped
    }

    fn drop_claimed(&self, shard: Shard) -> Result<()> {
        free_space(self.engine.as_ref(), || self.engine.drop_shard(shard))?;
        let key = keys::prefixed(keys::DROPPED, &keys::sequence(shard.0));
        // If a crash loses the removal of the record, the next start drops the shard again.
        self.commit_as(Durability::Buffered, Purpose::Room, |_, batch| {
            batch.delete(Keyspace::Catalog, &key);
            Ok(())
        })?;
        Ok(())
    }

    /// The database has no name in the catalog yet, so no other thread can find it.
    pub(crate) fn open_detached(&self, name: &str, entry: &Entry) -> Result<Arc<Database>> {
        let seed = self.tokens.fetch_add(1 << 32, Ordering::Relaxed);
        let shared = (Arc::clone(&self.context), &self.notified);
        Database::open(Arc::clone(&self.engine), name, (*entry, 0), shared, seed)
    }

    pub(crate) fn replace(&self, name: &str, entry: &Entry, shards: &[Shard]) -> Result<()> {
        let name_lock = self.names.lock(name);
        if let Some(open) = self.open.remove(name) {
            open.close();
        }
        self.commit(Purpose::Growth, |_, batch| {
            batch.put(Keyspace::Catalog, &keys::prefixed(keys::DATABASE, name.as_bytes()), &entry.encode());
            for shard in shards {
                batch.put(Keyspace::Catalog, &keys::prefixed(keys::DROPPED, &keys::sequence(shard.0)), b"");
            }
            Ok(())
        })?;
        drop(name_lock);
        shards.iter().try_for_each(|shard| self.drop_shard(*shard))
    }

    pub(crate) fn enter(&self, name: &str, entry: &Entry) -> Result<()> {
        let _name = self.names.lock(name);
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        self.commit(Purpose::Growth, |_, batch| {
            batch.put(Keyspace::Catalog, &key, &entry.encode());
            Ok(())
        })?;
        Ok(())
    }

    pub(crate) fn reserve_shards(&self, last: u64) -> Result<()> {
        self.commit(Purpose::Growth, |snapshot, batch| {
            let next = snapshot.get(Keyspace::Catalog, keys::NEXT_SHARD)?;
            let next = next.map_or(Ok(0), |bytes| Reader::new(&bytes, "next shard").varint())?;
            let mut value = Vec::new();
            put_varint(&mut value, next.max(last + 1));
            batch.put(Keyspace::Catalog, keys::NEXT_SHARD, &value);
            Ok(())
        })?;
        Ok(())
    }

    fn open_entry(&self, name: &str, entry: &Entry, seen: u64) -> Result<Arc<Database>> {
        let seed = self.tokens.fetch_add(1 << 32, Ordering::Relaxed);
        let engine = Arc::clone(&self.engine);
        let shared = (Arc::clone(&self.context), &self.notified);
        let database = Database::open(engine, name, (*entry, seen), shared, seed)?;
        self.open.insert(&database);
        Ok(database)
    }

    fn finish_deletions(&self) -> Result<()> {
        let end = keys::after_prefix(keys::DROPPED);
        let range = KeyRange { start: Some(keys::DROPPED), end: Some(&end) };
        let snapshot = self.engine.snapshot(CATALOG)?;
        let mut cursor = snapshot.scan(Keyspace::Catalog, range, Direction::Forward, Expect::Few)?;
        let mut shards = Vec::new();
        while let Some((key, _)) = cursor.next()? {
            shards.push(Shard(keys::decode_sequence(&key[keys::DROPPED.len()..])?));
        }
        drop(cursor);
        shards.into_iter().try_for_each(|shard| self.drop_shard(shard))
    }

    /// Commits the batch that `fill` builds, and retries with a new snapshot after a conflict. Commits of one process
    /// are serialized, because concurrent ones would conflict. Returns the new version of the catalog.
    pub(crate) fn commit(
        &self,
        purpose: Purpose,
        fill: impl FnMut(&dyn Snapshot, &mut Batch) -> Result<()>,
    ) -> Result<Version> {
        self.commit_as(Durability::Synced, purpose, fill)
    }

    fn commit_as(
        &self,
        durability: Durability,
        purpose: Purpose,
        mut fill: impl FnMut(&dyn Snapshot, &mut Batch) -> Result<()>,
    ) -> Result<Version> {
        let _writing = self.writing.lock();
        let mut attempt = Attempt::new(CommitToken(u128::from(self.tokens.fetch_add(1, Ordering::Relaxed))));
        loop {
            match self.try_commit((purpose, durability), &mut fill, &mut attempt) {
                Ok(Some(version)) => return Ok(version),
                Err(error) if !attempt.prepare_retry(self.engine.as_ref(), purpose, &error) => {
                    return Err(attempt.final_error(error));
                }
                Ok(None) | Err(_) => {}
            }
        }
    }

    fn try_commit(
        &self,
        (purpose, durability): (Purpose, Durability),
        fill: &mut impl FnMut(&dyn Snapshot, &mut Batch) -> Result<()>,
        attempt: &mut Attempt,
    ) -> Result<Option<Version>> {
        let snapshot = self.engine.snapshot(CATALOG)?;
        let state = snapshot.state()?;
        if attempt.happened(state, snapshot.as_ref())? {
            return Ok(Some(state.version));
        }
        let mut batch = Batch::of(purpose);
        fill(snapshot.as_ref(), &mut batch)?;
        drop(snapshot);
        let is_committed = attempt.commit(self.engine.as_ref(), CATALOG, state.version, batch, durability)?;
        Ok(is_committed.then_some(Version(state.version.0 + 1)))
    }

    /// System databases are in the group of the catalog, because every request may read them.
    fn system_group(&self, name: &str) -> Option<Shard> {
        let last = name.rsplit('/').next().unwrap_or(name);
        SYSTEM_NAMES.contains(&last).then_some(CATALOG)
    }

    fn next_shard(&self, snapshot: &dyn Snapshot, batch: &mut Batch, near: Option<Shard>) -> Result<Shard> {
        let mut shard = match snapshot.get(Keyspace::Catalog, keys::NEXT_SHARD)? {
            Some(bytes) => Shard(Reader::new(&bytes, "next shard").varint()?),
            None => Shard(CATALOG.0 + 1),
        };
        if let (Some(near), Some(groups)) = (near, self.engine.group_count().map(Groups::new)) {
            // The numbers in between remain unused.
            while groups.of(shard) != groups.of(near) {
                shard.0 += 1;
            }
        }
        let mut value = Vec::new();
        put_varint(&mut value, shard.0 + 1);
        batch.put(Keyspace::Catalog, keys::NEXT_SHARD, &value);
        Ok(shard)
    }
}
