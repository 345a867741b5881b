//! [`Indexes`]: runtime state of the search indexes of a database.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_storage::Shard;
use settee_views::{Acquired, BuildGuard, Handle, Signature};

use super::SearchError;
use crate::Index;

pub(super) type SearchHandle = Handle<Index, SearchError>;
pub(super) type SearchGuard = BuildGuard<Index, SearchError>;
pub(super) type SearchAcquired = Acquired<Index, SearchError>;

#[derive(Default)]
pub(super) struct Indexes {
    /// If set, no index may be written.
    pub(super) stop: AtomicBool,
    pub(super) handles: Mutex<HashMap<Signature, Arc<SearchHandle>>>,
    pub(super) forgotten: Mutex<HashMap<Signature, u64>>,
    /// Errors of documents that cannot be indexed, with the update sequence at which a build would fail again.
    pub(super) failed_builds: Mutex<HashMap<Signature, (u64, SearchError)>>,
    /// Signatures of design documents whose indexes background builds skip, and the end of the skipping.
    backoffs: Mutex<HashMap<Arc<str>, (Signature, u64)>>,
}

impl Indexes {
    pub(super) fn start_backoff(&self, ddoc: &Arc<str>, all: Signature, until_us: u64) {
        let mut backoffs = self.backoffs.lock();
        let backoff = backoffs.entry(Arc::clone(ddoc)).or_insert((all, until_us));
        // A cancellation has no end and must remain.
        if backoff.0 != all || backoff.1 < until_us {
            *backoff = (all, until_us);
        }
    }

    pub(super) fn end_backoff(&self, ddoc: &str) {
        self.backoffs.lock().remove(ddoc);
    }

    pub(super) fn is_backing_off(&self, ddoc: &str, all: Signature, now_us: u64) -> bool {
        self.backoffs.lock().get(ddoc).is_some_and(|&(signature, until_us)| signature == all && now_us < until_us)
    }

    pub(super) fn stop_and_wait(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let handles: Vec<_> = self.handles.lock().drain().map(|(_, handle)| handle).collect();
        handles.iter().for_each(|handle| handle.wait_until_idle());
    }

    fn close_idle(&self) -> bool {
        let mut handles = self.handles.lock();
        handles.retain(|_, handle| Arc::strong_count(handle) > 1);
        let is_known = !handles.is_empty() || !self.backoffs.lock().is_empty() || !self.forgotten.lock().is_empty();
        !is_known && !self.stop.load(Ordering::Relaxed)
    }
}

#[derive(Default)]
pub(super) struct Databases {
    indexes: Mutex<HashMap<Shard, Arc<Indexes>>>,
    is_stopping: AtomicBool,
}

const IDLE_DATABASES: usize = if cfg!(test) { 2 } else { 1000 };

impl Databases {
    pub(super) fn of(&self, database: Shard) -> Arc<Indexes> {
        let mut databases = self.indexes.lock();
        let found = Arc::clone(databases.entry(database).or_default());
        if databases.len().is_power_of_two() && databases.len() > IDLE_DATABASES {
            // A user holds a reference. Evicted state can be read again.
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
