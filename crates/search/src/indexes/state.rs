//! [`Indexes`]: runtime state of the search indexes of databases: builds, waiters, and indexes that background builds
//! skip.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_storage::Shard;
use settee_views::{Acquired, BuildGuard, Handle, Signature};

use super::SearchError;
use crate::Index;

/// An index with the right to build it.
pub(super) type SearchHandle = Handle<Index, SearchError>;
pub(super) type SearchGuard = BuildGuard<Index, SearchError>;
pub(super) type SearchAcquired = Acquired<Index, SearchError>;

/// The search indexes of a database that were used since the start of the server.
#[derive(Default)]
pub(super) struct Indexes {
    /// Set when nothing more must be written.
    pub(super) stop: AtomicBool,
    pub(super) handles: Mutex<HashMap<Signature, Arc<SearchHandle>>>,
    /// Times since which these indexes are not required.
    pub(super) forgotten: Mutex<HashMap<Signature, u64>>,
    /// Errors of documents that cannot be indexed, with the update sequence of the database: until that changes,
    /// another build would fail in the same way.
    pub(super) stuck: Mutex<HashMap<Signature, (u64, SearchError)>>,
    /// Times until which background builds skip indexes of design documents, while their signature is unchanged.
    rests: Mutex<HashMap<Arc<str>, (Signature, u64)>>,
}

impl Indexes {
    pub(super) fn rest(&self, ddoc: &Arc<str>, all: Signature, until_us: u64) {
        let mut rests = self.rests.lock();
        let rest = rests.entry(Arc::clone(ddoc)).or_insert((all, until_us));
        // A cancellation lasts longer than a failure.
        if rest.0 != all || rest.1 < until_us {
            *rest = (all, until_us);
        }
    }

    pub(super) fn end_rest(&self, ddoc: &str) {
        self.rests.lock().remove(ddoc);
    }

    pub(super) fn rests(&self, ddoc: &str, all: Signature, now_us: u64) -> bool {
        self.rests.lock().get(ddoc).is_some_and(|&(resting, until_us)| resting == all && now_us < until_us)
    }

    /// Stops all builds, prevents new ones, and drops the indexes.
    pub(super) fn stop_and_wait(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let handles: Vec<_> = self.handles.lock().drain().map(|(_, handle)| handle).collect();
        handles.iter().for_each(|handle| handle.wait_until_idle());
    }

    /// Drops idle indexes. Returns true if no state is left that exists only in memory.
    fn close_idle(&self) -> bool {
        let mut handles = self.handles.lock();
        handles.retain(|_, handle| Arc::strong_count(handle) > 1);
        let is_known = !handles.is_empty() || !self.rests.lock().is_empty() || !self.forgotten.lock().is_empty();
        !is_known && !self.stop.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Databases {
    indexes: Mutex<HashMap<Shard, Arc<Indexes>>>,
    is_stopping: AtomicBool,
}

/// Maximum number of databases with idle indexes in memory.
const IDLE_DATABASES: usize = if cfg!(test) { 2 } else { 1000 };

impl Databases {
    pub(super) fn of(&self, database: Shard) -> Arc<Indexes> {
        let mut databases = self.indexes.lock();
        let found = Arc::clone(databases.entry(database).or_default());
        if databases.len().is_power_of_two() && databases.len() > IDLE_DATABASES {
            // Users hold a reference; everything else that is cached can be read again.
            databases.retain(|_, indexes| Arc::strong_count(indexes) > 1 || !indexes.close_idle());
        }
        found
    }

    pub(super) fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Relaxed)
    }

    pub(super) fn stop_and_wait(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let databases: Vec<Arc<Indexes>> = self.indexes.lock().values().cloned().collect();
        databases.iter().for_each(|indexes| indexes.stop_and_wait());
    }
}
