//! [`NotifiedVersions`]: commit notifications of other processes for the open databases of this one. They wake waiting feeds,
//! invalidate cached security objects and design documents, and report deleted databases.
//!
//! The engine's thread only records the latest notified version of each shard. A thread that uses a database reads
//! the state again if the recorded version is newer than its cache, so after [`Engine::catch_up`] no cached state is
//! older than that call. For databases with subscribers, such as feeds, a temporary thread does the same; it merges
//! commits that arrive concurrently into one read. Writers do not depend on notifications, because their commits
//! conflict.

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

/// Latest versions of the catalog and of open databases that other processes have committed.
#[derive(Debug, Default)]
pub(crate) struct NotifiedVersions {
    catalog: AtomicU64,
    databases: RwLock<HashMap<Shard, Arc<OfShard>>>,
}

#[derive(Debug, Default)]
struct OfShard {
    version: AtomicU64,
    /// Number of store failures, after which commits that were not synced may be lost.
    failures: AtomicU64,
    /// Number of subscriptions to the database.
    subscribers: AtomicU64,
}

/// Latest notified version of one open database.
pub(crate) struct NotifiedVersion {
    notified: Arc<NotifiedVersions>,
    shard: Shard,
    of_shard: Arc<OfShard>,
}

impl NotifiedVersions {
    pub(crate) fn of(self: &Arc<Self>, shard: Shard) -> NotifiedVersion {
        let of_shard = Arc::clone(self.databases.write().entry(shard).or_default());
        NotifiedVersion { notified: Arc::clone(self), shard, of_shard }
    }

    pub(crate) fn catalog(&self) -> Version {
        Version(self.catalog.load(Ordering::Acquire))
    }

    /// Records a notification. Returns true if the database has subscribers.
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

impl NotifiedVersion {
    pub(crate) fn version(&self) -> u64 {
        self.of_shard.version.load(Ordering::Acquire)
    }

    pub(crate) fn catalog(&self) -> u64 {
        self.notified.catalog().0
    }

    /// Adds a subscriber. The caller must read the database afterwards.
    pub(crate) fn subscribe(&self) {
        self.of_shard.subscribers.fetch_add(1, Ordering::AcqRel);
    }

    pub(crate) fn unsubscribe(&self) {
        self.of_shard.subscribers.fetch_sub(1, Ordering::AcqRel);
    }

    pub(crate) fn failures(&self) -> u64 {
        self.of_shard.failures.load(Ordering::Acquire)
    }
}

impl Drop for NotifiedVersion {
    fn drop(&mut self) {
        let mut databases = self.notified.databases.write();
        // The entry stays if the database was opened again.
        if Arc::strong_count(&self.of_shard) <= 2 {
            databases.remove(&self.shard);
        }
    }
}

/// Subscribes `notified` and the open databases to the commits of other processes.
pub(crate) fn follow(engine: &dyn Engine, notified: &Arc<NotifiedVersions>, open: &Arc<OpenDatabases>) {
    let reader = Arc::new(NotificationReader {
        notified: Arc::clone(notified),
        open: Arc::downgrade(open),
        state: Mutex::default(),
    });
    engine.subscribe(Box::new(move |shard, version| reader.note(shard, version)));
}

struct NotificationReader {
    notified: Arc<NotifiedVersions>,
    /// The reference is weak because the engine owns its listeners and databases own their engine.
    open: Weak<OpenDatabases>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Shards with notifications that the reader has not handled.
    shards: HashSet<Shard>,
    /// True while a reader thread runs.
    has_reader: bool,
}

impl NotificationReader {
    fn note(self: &Arc<Self>, shard: Shard, version: Version) {
        if !self.notified.note(shard, version) {
            return;
        }
        let mut state = self.state.lock();
        state.shards.insert(shard);
        if std::mem::replace(&mut state.has_reader, true) {
            return;
        }
        drop(state);
        let reader = Arc::clone(self);
        if thread::Builder::new().name("notifications".to_owned()).spawn(move || reader.read()).is_err() {
            // The read must not run on this thread, which may be the only one of the engine that receives replies.
            // The next notification tries again.
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
            // A database without subscribers is refreshed by its next user.
            let followed = |database: &Arc<Database>| shards.contains(&database.shard()) && database.has_subscribers();
            for database in open.all().into_iter().filter(followed) {
                if let Err(DatabaseError::NotFound) = database.refresh_cache() {
                    open.remove_this(&database);
                    database.close();
                }
                // After any other error the next user of the database retries.
            }
        }
    }
}
