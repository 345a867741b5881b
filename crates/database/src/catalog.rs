//! The databases of one engine: [`Catalog`] creates, finds, lists and deletes them.
//!
//! Names and shard numbers are entries of shard 0, so making a database is one small commit and a
//! thousand of them cost no files.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Mutex, MutexGuard};
use settee_storage::codec::{Reader, put_varint};
use settee_storage::{
    Batch, CommitToken, Direction, Engine, Expect, KeyRange, Keyspace, Purpose, Request, Shard, Snapshot, StorageError,
    Version,
};

use crate::activity::{Activity, Happened};
use crate::attempt::{Attempt, make_room};
use crate::database::Database;
use crate::entry::{CATALOG, Entry, Layout};
use crate::news::{self, Heard};
use crate::open::OpenDatabases;
use crate::stored::StoredDatabase;
use crate::{Counters, DatabaseError, Result, keys};

/// The longest part of a name between slashes, as in CouchDB, where each becomes the name of a file or a directory.
const MAX_SEGMENT_BYTES: usize = 238;

/// The longest name: it is part of storage keys.
const MAX_NAME_BYTES: usize = 4000;

/// Names that begin with an underscore and are databases all the same.
const SYSTEM_NAMES: [&str; 3] = ["_users", "_replicator", "_global_changes"];

/// The options of a database that its creator chooses.
#[derive(Clone, Copy, Debug)]
pub struct DatabaseOptions {
    /// The time of creation, in milliseconds of the Unix epoch.
    pub created_ms: u64,
    /// A random number, which tells the database from others that had its name.
    pub instance: u64,
    /// The division of its documents.
    pub layout: Layout,
    /// The number of shards that clients are told of. One is made, whatever it says.
    pub q: u32,
}

/// All databases of an engine.
pub struct Catalog {
    engine: Arc<dyn Engine>,
    open: Arc<OpenDatabases>,
    names: NameLocks,
    writing: Mutex<()>,
    tokens: AtomicU64,
    activity: Arc<Activity>,
    heard: Arc<Heard>,
}

/// Locks of names: who changes what a name stands for, or opens the database of that name, holds its lock, so that no
/// opening revives a deleted database and none waits for the making of another. Names may share one.
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

/// Checks a name by CouchDB's rules.
///
/// # Errors
/// [`DatabaseError::IllegalName`] or [`DatabaseError::NameTooLong`].
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
    /// Opens the catalog of `engine`, finishes deletions that a crash interrupted, and has the databases follow what other
    /// processes commit. `seed` is random.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn open(engine: Arc<dyn Engine>, seed: u64) -> Result<Self> {
        let catalog = Self {
            engine,
            open: Arc::new(OpenDatabases::new()),
            names: NameLocks::new(),
            writing: Mutex::new(()),
            tokens: AtomicU64::new(seed),
            activity: Arc::default(),
            heard: Arc::default(),
        };
        news::follow(catalog.engine.as_ref(), &catalog.heard, &catalog.open);
        match catalog.finish_deletions() {
            // An engine without room reads at least. The next start finishes them.
            Err(DatabaseError::Storage(StorageError::Full(_))) => {}
            finished => finished?,
        }
        Ok(catalog)
    }

    /// The engine below.
    #[must_use]
    pub fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    /// The events of the databases.
    #[must_use]
    pub fn activity(&self) -> &Arc<Activity> {
        &self.activity
    }

    /// Counters of what was read and written.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.activity.counters
    }

    /// The databases in memory: those that somebody holds and those that were used lately.
    #[must_use]
    pub fn open_databases(&self) -> Vec<Arc<Database>> {
        self.open.all()
    }

    /// The number of databases that stay in memory: beyond that, those that nobody holds go, the least recently used
    /// first. Those that requests, feeds or builds of indexes hold stay however many they are.
    pub fn set_max_open(&self, limit: usize) {
        self.open.set_limit(limit);
    }

    /// The engine's counters, for operators.
    #[must_use]
    pub fn engine_statistics(&self) -> Vec<(&'static str, u64)> {
        self.engine.statistics()
    }

    /// The database of this name. What is kept of one in memory is not older than what this process has heard of others, see
    /// [`Engine::catch_up`].
    ///
    /// # Errors
    /// [`DatabaseError::NotFound`], or when the engine failed.
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
            self.open.remove_this(&database);
            database.close();
        }
        let (version, entry) = self.entry(name)?;
        self.open_entry(name, &entry.ok_or(DatabaseError::NotFound)?, version)
    }

    /// The database that had this name when somebody looked last, if it is open. Costs nothing.
    #[must_use]
    pub fn at_last(&self, name: &str) -> Option<Arc<Database>> {
        self.open.get(name)
    }

    /// Whether [`Self::database`] has nothing to read, and so nothing to wait for.
    #[must_use]
    pub fn is_at_hand(&self, name: &str) -> bool {
        let is_current = |database: &Arc<Database>| self.heard.catalog() <= database.named_at() && !database.is_stale();
        self.open.get(name).as_ref().is_some_and(is_current)
    }

    /// Looks at what another process may have made of an open database. `false` if that has deleted it.
    fn refresh(&self, database: &Database) -> Result<bool> {
        if self.heard.catalog() > database.named_at() {
            let (version, entry) = self.entry(database.name())?;
            if entry.is_none_or(|entry| entry.shard != database.shard()) {
                return Ok(false);
            }
            database.is_named_at(version);
        }
        if database.is_stale()
            && let Err(error) = database.look()
        {
            return if matches!(error, DatabaseError::NotFound) { Ok(false) } else { Err(error) };
        }
        Ok(true)
    }

    /// The entry of a name, and the version of the catalog that has it.
    fn entry(&self, name: &str) -> Result<(Version, Option<Entry>)> {
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        let requests = [Request::State, Request::Get(Keyspace::Catalog, &key)];
        let replies = self.engine.snapshot(CATALOG)?.read(&requests)?;
        let [state, entry]: [_; 2] = replies.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let entry = entry.into_value()?.map(|bytes| Entry::decode(&bytes)).transpose()?;
        Ok((state.into_state()?.version, entry))
    }

    /// Creates a database.
    ///
    /// # Errors
    /// [`DatabaseError::Exists`], [`DatabaseError::IllegalName`], or when the engine failed.
    pub fn create(&self, name: &str, options: DatabaseOptions) -> Result<Arc<Database>> {
        validate_name(name)?;
        let _name = self.names.lock(name);
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        let mut created = None;
        let version = self.commit(Purpose::Growth, |snapshot, batch| {
            if snapshot.get(Keyspace::Catalog, &key)?.is_some() {
                return Err(DatabaseError::Exists);
            }
            let shard = next_shard(snapshot, batch)?;
            let DatabaseOptions { created_ms, instance, layout, q } = options;
            let entry = Entry { shard, instance, created_ms, layout, q };
            batch.put(Keyspace::Catalog, &key, &entry.encode());
            created = Some(entry);
            Ok(())
        })?;
        let database = self.open_entry(name, &created.expect("the commit made an entry"), version)?;
        self.activity.note_in_list(name, Happened::Created);
        Ok(database)
    }

    /// Deletes a database with everything that belongs to it.
    ///
    /// # Errors
    /// [`DatabaseError::NotFound`], or when the engine failed.
    pub fn delete(&self, name: &str) -> Result<()> {
        let database = match self.database(name) {
            // What cannot be read can go all the same.
            Err(DatabaseError::Storage(StorageError::Corrupt(_)) | DatabaseError::Corrupt(_)) => None,
            database => Some(database?),
        };
        let name_lock = self.names.lock(name);
        if database.as_ref().is_some_and(|database| database.is_closed()) {
            return Err(DatabaseError::NotFound);
        }
        // Closed before anything is read, so that no shard can be attached that would not go. Should the commit
        // below fail, the next who asks opens the database again.
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
        // Shards that cannot be found any more cost space only.
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
        self.activity.note_in_list(name, Happened::Deleted);
        for shard in shards {
            self.drop_shard(shard)?;
        }
        Ok(())
    }

    /// The names of all databases from `start` on, in the order of their bytes.
    ///
    /// # Errors
    /// When the engine failed.
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

    /// A shard number that was never used.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn allocate_shard(&self) -> Result<Shard> {
        let mut shard = CATALOG;
        self.commit(Purpose::Growth, |snapshot, batch| {
            shard = next_shard(snapshot, batch)?;
            Ok(())
        })?;
        Ok(shard)
    }

    /// A shard number that was never used, for what is in `old`, which is dropped at the next start at the latest: see
    /// [`Self::drop_shard`].
    ///
    /// # Errors
    /// When the engine failed.
    pub fn replace_shard(&self, old: Shard) -> Result<Shard> {
        let mut shard = CATALOG;
        self.commit(Purpose::Growth, |snapshot, batch| {
            shard = next_shard(snapshot, batch)?;
            batch.put(Keyspace::Catalog, &keys::prefixed(keys::DROPPED, &keys::sequence(old.0)), b"");
            Ok(())
        })?;
        Ok(shard)
    }

    /// Removes all entries of a shard that nothing refers to any more. If another process is about it, it is left to that: who
    /// starts finishes what a crash has interrupted, not what others are doing.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn drop_shard(&self, shard: Shard) -> Result<()> {
        let members = self.engine.members();
        let Some(claim) = members.claim(&format!("drop/{}", shard.0))? else { return Ok(()) };
        let dropped = self.drop_claimed(shard);
        // What is not given back ends with this process.
        let _ = members.release(&claim);
        dropped
    }

    fn drop_claimed(&self, shard: Shard) -> Result<()> {
        make_room(self.engine.as_ref(), || self.engine.drop_shard(shard))?;
        let key = keys::prefixed(keys::DROPPED, &keys::sequence(shard.0));
        self.commit(Purpose::Room, |_, batch| {
            batch.delete(Keyspace::Catalog, &key);
            Ok(())
        })?;
        Ok(())
    }

    /// Opens a database that the catalog does not name yet, and that nobody else finds.
    pub(crate) fn open_detached(&self, name: &str, entry: &Entry) -> Result<Arc<Database>> {
        let seed = self.tokens.fetch_add(1 << 32, Ordering::Relaxed);
        let around = (Arc::clone(&self.activity), &self.heard);
        Database::open(Arc::clone(&self.engine), name, (*entry, Version::default()), around, seed)
    }

    /// Puts `entry` in the place of the database `name`, whose `shards` go.
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

    /// Names a database.
    pub(crate) fn enter(&self, name: &str, entry: &Entry) -> Result<()> {
        let _name = self.names.lock(name);
        let key = keys::prefixed(keys::DATABASE, name.as_bytes());
        self.commit(Purpose::Growth, |_, batch| {
            batch.put(Keyspace::Catalog, &key, &entry.encode());
            Ok(())
        })?;
        Ok(())
    }

    /// No number up to `last` is given out any more.
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

    /// Opens the database that `entry` of the catalog's `version` tells of.
    fn open_entry(&self, name: &str, entry: &Entry, version: Version) -> Result<Arc<Database>> {
        let seed = self.tokens.fetch_add(1 << 32, Ordering::Relaxed);
        let engine = Arc::clone(&self.engine);
        let around = (Arc::clone(&self.activity), &self.heard);
        let database = Database::open(engine, name, (*entry, version), around, seed)?;
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

    /// Commits what `fill` puts into a batch, again if another node was first. One after the other: two at the same time
    /// would only be in each other's way. Answers the version that the catalog has then.
    pub(crate) fn commit(
        &self,
        purpose: Purpose,
        mut fill: impl FnMut(&dyn Snapshot, &mut Batch) -> Result<()>,
    ) -> Result<Version> {
        let _writing = self.writing.lock();
        let mut attempt = Attempt::new(CommitToken(u128::from(self.tokens.fetch_add(1, Ordering::Relaxed))));
        loop {
            let snapshot = self.engine.snapshot(CATALOG)?;
            let state = snapshot.state()?;
            if attempt.happened(state, snapshot.as_ref())? {
                return Ok(state.version);
            }
            let mut batch = Batch::of(purpose);
            fill(snapshot.as_ref(), &mut batch)?;
            drop(snapshot);
            match attempt.commit(self.engine.as_ref(), CATALOG, state.version, batch) {
                Ok(true) => return Ok(Version(state.version.0 + 1)),
                Err(error) if !attempt.goes_on(self.engine.as_ref(), purpose, &error) => return Err(error),
                Ok(false) | Err(_) => {}
            }
        }
    }
}

fn next_shard(snapshot: &dyn Snapshot, batch: &mut Batch) -> Result<Shard> {
    let shard = match snapshot.get(Keyspace::Catalog, keys::NEXT_SHARD)? {
        Some(bytes) => Reader::new(&bytes, "next shard").varint()?,
        None => CATALOG.0 + 1,
    };
    let mut value = Vec::new();
    put_varint(&mut value, shard + 1);
    batch.put(Keyspace::Catalog, keys::NEXT_SHARD, &value);
    Ok(Shard(shard))
}
