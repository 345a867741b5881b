//! [`Heard`]: what other processes commit reaches the databases that are open in this one: feeds that wait, what is kept of
//! security objects and design documents, and that a database is gone.
//!
//! The engine's thread only notes which version of which shard it has heard of. Who uses a database looks again if there is
//! something that nobody has looked at, so after [`Engine::catch_up`] nothing is older than that. A
//! thread that lives for as long as there is anything does the same for databases with subscribers, such as feeds, which wait: many commits in between are one look. Writers
//! need none of this, because their commits conflict.

use std::collections::{HashMap, HashSet};
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread;

use parking_lot::{Mutex, RwLock};
use settee_storage::{Engine, Shard, Version};

use crate::entry::CATALOG;
use crate::open::OpenDatabases;
use crate::{Database, DatabaseError};

/// The newest versions of shards that other processes are known to have committed: of the catalog, and of open databases.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    catalog: AtomicU64,
    databases: RwLock<HashMap<Shard, Arc<OfShard>>>,
}

#[derive(Debug, Default)]
struct OfShard {
    version: AtomicU64,
    /// Counts failures of the store, after which commits that were not synced may be gone.
    failures: AtomicU64,
    /// Those who wait for events of the database.
    subscribers: AtomicU64,
}

/// What is heard of one database, for as long as that is open.
pub(crate) struct HeardVersion {
    heard: Arc<Heard>,
    shard: Shard,
    of_shard: Arc<OfShard>,
}

impl Heard {
    /// What is heard of a shard from now on.
    pub(crate) fn of(self: &Arc<Self>, shard: Shard) -> HeardVersion {
        let of_shard = Arc::clone(self.databases.write().entry(shard).or_default());
        HeardVersion { heard: Arc::clone(self), shard, of_shard }
    }

    /// The newest version of the catalog.
    pub(crate) fn catalog(&self) -> Version {
        Version(self.catalog.load(Ordering::Acquire))
    }

    /// Whether somebody waits for that.
    fn note(&self, shard: Shard, version: Version) -> bool {
        if shard == CATALOG {
            self.catalog.fetch_max(version.0, Ordering::AcqRel);
            return false;
        }
        let databases = self.databases.read();
        let Some(known) = databases.get(&shard) else { return false };
        if version == Version::default() {
            known.version.store(0, Ordering::Release);
            known.failures.fetch_add(1, Ordering::AcqRel);
        } else {
            known.version.fetch_max(version.0, Ordering::AcqRel);
        }
        known.subscribers.load(Ordering::Acquire) > 0
    }
}

impl HeardVersion {
    /// The newest version.
    pub(crate) fn version(&self) -> u64 {
        self.of_shard.version.load(Ordering::Acquire)
    }

    /// The newest version of the catalog.
    pub(crate) fn catalog(&self) -> u64 {
        self.heard.catalog().0
    }

    /// Somebody is going to read the database, and waits for what comes after that.
    pub(crate) fn subscribe(&self) {
        self.of_shard.subscribers.fetch_add(1, Ordering::AcqRel);
    }

    /// Somebody waits no more.
    pub(crate) fn unsubscribe(&self) {
        self.of_shard.subscribers.fetch_sub(1, Ordering::AcqRel);
    }

    /// The number of failures of the store.
    pub(crate) fn failures(&self) -> u64 {
        self.of_shard.failures.load(Ordering::Acquire)
    }
}

impl Drop for HeardVersion {
    fn drop(&mut self) {
        let mut databases = self.heard.databases.write();
        // One that was closed may be open again.
        if Arc::strong_count(&self.of_shard) <= 2 {
            databases.remove(&self.shard);
        }
    }
}

/// Has `heard` and the open databases follow what other processes commit.
pub(crate) fn follow(engine: &dyn Engine, heard: &Arc<Heard>, open: &Arc<OpenDatabases>) {
    let news = Arc::new(News { heard: Arc::clone(heard), open: Arc::downgrade(open), state: Mutex::default() });
    engine.subscribe(Box::new(move |shard, version| news.note(shard, version)));
}

struct News {
    heard: Arc<Heard>,
    /// The engine keeps its listeners, and databases keep their engine.
    open: Weak<OpenDatabases>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// The shards that nobody has looked at since.
    shards: HashSet<Shard>,
    /// Whether somebody will.
    has_reader: bool,
}

impl News {
    fn note(self: &Arc<Self>, shard: Shard, version: Version) {
        if !self.heard.note(shard, version) {
            return;
        }
        let mut state = self.state.lock();
        state.shards.insert(shard);
        if std::mem::replace(&mut state.has_reader, true) {
            return;
        }
        drop(state);
        let news = Arc::clone(self);
        if thread::Builder::new().name("news".to_owned()).spawn(move || news.read()).is_err() {
            // Not by this thread: the engine may have no other one that would answer. Whoever commits next tries again.
            self.state.lock().has_reader = false;
        }
    }

    fn read(&self) {
        loop {
            let mut state = self.state.lock();
            let shards = take(&mut state.shards);
            let open = self.open.upgrade().filter(|_| !shards.is_empty());
            let Some(open) = open else {
                state.has_reader = false;
                return;
            };
            drop(state);
            // Where nobody waits, who uses the database looks.
            let followed = |database: &Arc<Database>| shards.contains(&database.shard()) && database.has_subscribers();
            for database in open.all().into_iter().filter(followed) {
                if let Err(DatabaseError::NotFound) = database.look() {
                    open.remove_this(&database);
                    database.close();
                }
                // After any other error the next who uses it looks again.
            }
        }
    }
}
