//! [`NotifiedVersions`]: commit notifications of other processes for the open databases of this one. They wake waiting
//! feeds, invalidate cached security objects and design documents, and report deleted databases.
//!
//! The engine's thread only records the latest notified version of each shard. A thread that uses a database reads
//! the state again if the recorded version is newer than its cache, so after `Engine::catch_up` no cached state is
//! older than that call. For databases with subscribers, such as feeds, a temporary thread does the same (`follow`).
//! Writers do not depend on notifications, because their commits conflict.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;
use settee_storage::{Shard, Version};

use crate::entry::CATALOG;

#[derive(Debug, Default)]
pub(crate) struct NotifiedVersions {
    /// Number of notifications of the catalog.
    catalog: AtomicU64,
    databases: RwLock<HashMap<Shard, Arc<OfShard>>>,
}

#[derive(Debug, Default)]
struct OfShard {
    version: AtomicU64,
    /// After a store failure commits that were not synced may be lost.
    failures: AtomicU64,
    subscribers: AtomicU64,
}

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

    /// Returns a number that each notification of the catalog increases.
    pub(crate) fn catalog(&self) -> u64 {
        self.catalog.load(Ordering::Acquire)
    }

    /// Records a notification. Returns true if the database has subscribers.
    pub(crate) fn note(&self, shard: Shard, version: Version) -> bool {
        if shard == CATALOG {
            self.catalog.fetch_add(1, Ordering::AcqRel);
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

    /// The caller must read the database afterwards.
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
