//! [`LateEngine`]: a store with other writers that notifies its listeners only on catch-up.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use settee_storage::members::Members;
use settee_storage::memory::MemoryEngine;
use settee_storage::{
    Batch, CommitListener, CommitToken, Durability, Engine, Outcome, Result, Shard, Snapshot, StorageError, Version,
};

pub(crate) struct LateEngine {
    store: MemoryEngine,
    groups: Option<NonZeroU32>,
    commits: Arc<Mutex<Vec<(Shard, Version)>>>,
    listeners: Mutex<Vec<CommitListener>>,
    round_trips: AtomicU64,
    is_cut: AtomicBool,
    reads: Gate,
    catching_up: Gate,
}

#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

const HELD_MAX: Duration = Duration::from_secs(20);

impl LateEngine {
    pub(crate) fn on(store: &MemoryEngine) -> Arc<Self> {
        Self::with_groups(store, 0)
    }

    pub(crate) fn with_groups(store: &MemoryEngine, groups: u32) -> Arc<Self> {
        let store = store.user();
        let commits: Arc<Mutex<Vec<_>>> = Arc::default();
        let observed = Arc::clone(&commits);
        store.subscribe(Box::new(move |shard, version| observed.lock().push((shard, version))));
        Arc::new(Self {
            store,
            groups: NonZeroU32::new(groups),
            commits,
            listeners: Mutex::default(),
            round_trips: AtomicU64::new(0),
            is_cut: AtomicBool::new(false),
            reads: Gate::default(),
            catching_up: Gate::default(),
        })
    }

    pub(crate) fn round_trips(&self) -> u64 {
        self.round_trips.load(Ordering::Relaxed)
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }

    /// Sets whether reads are blocked. A blocked read fails after a timeout.
    pub(crate) fn hold(&self, is_held: bool) {
        self.reads.close(is_held);
    }

    pub(crate) fn hold_round_trips(&self, is_held: bool) {
        self.catching_up.close(is_held);
    }
}

impl Gate {
    fn close(&self, is_closed: bool) {
        *self.is_closed.lock() = is_closed;
        self.opened.notify_all();
    }

    fn pass(&self) -> Result<()> {
        let mut is_closed = self.is_closed.lock();
        let wait = self.opened.wait_while_for(&mut is_closed, |is_closed| *is_closed, HELD_MAX);
        if wait.timed_out() { Err(StorageError::Io("the call was not released".to_owned())) } else { Ok(()) }
    }
}

impl Engine for LateEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        self.reads.pass()?;
        self.store.snapshot(shard)
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        self.store.commit(shard, expected, token, batch, durability)
    }

    fn refuses_present(&self) -> bool {
        self.store.refuses_present()
    }

    fn check(&self) -> Result<()> {
        self.store.check()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.store.drop_shard(shard)
    }

    fn reclaim(&self, shard: Shard) -> Result<()> {
        self.store.reclaim(shard)
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        self.store.approximate_size(shard)
    }

    fn subscribe(&self, listener: CommitListener) {
        self.listeners.lock().push(listener);
    }

    fn catch_up(&self) -> Result<()> {
        self.round_trips.fetch_add(1, Ordering::Relaxed);
        self.catching_up.pass()?;
        if self.is_cut.load(Ordering::Relaxed) {
            return Err(StorageError::Io("cut".to_owned()));
        }
        let commits = std::mem::take(&mut *self.commits.lock());
        for (shard, version) in commits {
            self.listeners.lock().iter().for_each(|listener| listener(shard, version));
        }
        Ok(())
    }

    fn members(&self) -> &dyn Members {
        self.store.members()
    }

    fn group_count(&self) -> Option<NonZeroU32> {
        self.groups
    }

    fn sync(&self) -> Result<()> {
        self.store.sync()
    }

    fn checkpoint(&self, directory: &Path) -> Result<()> {
        self.store.checkpoint(directory)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut statistics = self.store.statistics();
        if self.groups.is_some() {
            statistics.extend([("owned_groups", 3), ("open_groups", 2), ("log_stalled_ms", 1500)]);
        }
        statistics
    }
}
