//! [`DatabaseIndexes`]: the view indexes of a database in memory, and the state of their builds.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_design::DesignDocument;
use settee_storage::{Shard, StorageError};

use crate::build_lock::{self, Abandoned};
use crate::error::{Result, ViewError};
use crate::index::{IndexStore, Meta, Signature};

pub(crate) type Handle = build_lock::Handle<IndexStore, ViewError>;
pub(crate) type BuildGuard = build_lock::BuildGuard<IndexStore, ViewError>;
pub(crate) type Acquired = build_lock::Acquired<IndexStore, ViewError>;

#[derive(Default)]
pub(crate) struct DatabaseIndexes {
    /// If set, no index may be written.
    pub(crate) stop: AtomicBool,
    pub(crate) handles: Mutex<HashMap<Signature, Arc<Handle>>>,
    pub(crate) controls: Mutex<HashMap<Arc<str>, BuildControl>>,
    pub(crate) changing: Mutex<()>,
    pub(crate) served: Mutex<HashMap<Arc<str>, ServingViews>>,
    pub(crate) forgotten: Mutex<HashMap<Signature, u64>>,
}

/// Control of the builds of a design document by administrators.
#[derive(Clone, Copy, Debug, Default)]
pub struct BuildControl {
    /// True if they are paused.
    pub is_paused: bool,
    /// Number of cancellations so far.
    pub cancels: u64,
    /// Signature of the indexes that background builds skip, and the end of the skipping.
    pub(crate) backoff: Option<(Signature, u64)>,
    /// [`IndexHost::changes_elsewhere`](crate::host::IndexHost::changes_elsewhere) before the control was read.
    pub(crate) elsewhere: u64,
}

/// The views that serve the queries of a design document, each in a document of its own.
#[derive(Clone)]
pub(crate) struct ServingViews {
    pub(crate) views: Arc<[DesignDocument]>,
    pub(crate) record: Option<Vec<u8>>,
    pub(crate) elsewhere: u64,
}

#[derive(Default)]
pub(crate) struct Databases {
    pub(crate) indexes: HashMap<Shard, Arc<DatabaseIndexes>>,
    threshold: usize,
}

const IDLE_DATABASES: usize = if cfg!(test) { 2 } else { 1000 };

impl Databases {
    pub(crate) fn of(&mut self, database: Shard) -> Arc<DatabaseIndexes> {
        let found = Arc::clone(self.indexes.entry(database).or_default());
        if self.indexes.len() > self.threshold.max(IDLE_DATABASES) {
            self.indexes.retain(|_, indexes| Arc::strong_count(indexes) > 1 || !indexes.close_idle());
            self.threshold = self.indexes.len().saturating_mul(2);
        }
        found
    }
}

impl DatabaseIndexes {
    /// Drops idle indexes. Returns true if all remaining state is stored as well.
    fn close_idle(&self) -> bool {
        // A thread that adds an index holds the lock during its commit, and other databases must not wait for it.
        let Some(mut handles) = self.handles.try_lock() else { return false };
        let mut controls = self.controls.lock();
        handles.retain(|_, handle| Arc::strong_count(handle) > 1);
        controls.retain(|_, control| control.backoff.is_some());
        let is_known = !handles.is_empty() || !controls.is_empty() || !self.forgotten.lock().is_empty();
        !is_known && !self.stop.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_and_wait(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let handles: Vec<Arc<Handle>> = self.handles.lock().drain().map(|(_, handle)| handle).collect();
        handles.iter().for_each(|handle| handle.wait_until_idle());
    }
}

impl Handle {
    /// Returns the progress of the index; that of an index that must be rebuilt is empty.
    pub(crate) fn meta(&self) -> Result<Meta> {
        match self.store().meta(&*self.store().snapshot()?) {
            Err(ViewError::Storage(StorageError::Dropped)) => Ok(Meta::new()),
            meta => Ok(meta?.unwrap_or_else(Meta::new)),
        }
    }
}

impl From<Abandoned> for ViewError {
    fn from(_: Abandoned) -> Self {
        Self::Stopped
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_storage_testing::engine;

    use super::*;
    use crate::index::Tokens;

    fn handle() -> Arc<Handle> {
        let store = IndexStore::new(engine(), Shard(1), Arc::new(Tokens::new(0)), Arc::default());
        Arc::new(Handle::new(store))
    }

    #[test]
    fn waiters_share_the_result() {
        let handle = handle();
        let guard = handle.try_build().unwrap();
        assert!(handle.try_build().is_none());
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| handle.acquire_build().map(drop))).collect();
            while handle.activity() != (true, 4) {
                std::thread::yield_now();
            }
            guard.finish(Err(ViewError::Corrupt("test")));
            for thread in waiting {
                assert!(matches!(thread.join().unwrap(), Err(ViewError::Corrupt("test"))));
            }
        });
        assert!(matches!(handle.acquire_build(), Ok(Acquired::Build(_))), "a failure does not outlive its build");
        assert_eq!(handle.activity(), (false, 0));
    }

    #[test]
    fn a_waiter_may_leave_before_the_build_ends() {
        let handle = handle();
        let builds = handle.builds();
        let guard = handle.try_build().unwrap();
        let mut checks = 0;
        let left = handle.wait_for_build(builds, &mut || {
            checks += 1;
            if checks == 2 { Err(ViewError::Stopped) } else { Ok(()) }
        });
        assert!(matches!(left, Err(ViewError::Stopped)));
        assert_eq!((checks, handle.activity()), (2, (true, 0)));
        let mut guard = Some(guard);
        let ended = handle.wait_for_build(builds, &mut || {
            if let Some(guard) = guard.take() {
                guard.finish(Err(ViewError::Corrupt("test")));
            }
            Ok(())
        });
        assert!(matches!(ended, Err(ViewError::Corrupt("test"))));
        assert!(handle.wait_for_build(handle.builds(), &mut || Ok(())).is_ok(), "no build runs");
    }

    #[test]
    fn a_removed_index_is_not_built() {
        let handle = handle();
        handle.try_build().unwrap().retire();
        assert!(handle.try_build().is_none());
        assert!(matches!(handle.acquire_build(), Ok(Acquired::Over)));
    }
}
