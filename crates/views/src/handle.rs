//! [`Handle`]: an index in memory, and who builds it. One thread builds, others wait and share the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex};
use settee_design::DesignDocument;
use settee_storage::Shard;

use crate::error::{Result, ViewError};
use crate::index::{IndexStore, Meta, Signature};

/// The indexes of a database that were used since the server began.
#[derive(Default)]
pub(crate) struct DatabaseIndexes {
    /// Set when nothing more must be written.
    pub(crate) stop: AtomicBool,
    pub(crate) handles: Mutex<HashMap<Signature, Arc<Handle>>>,
    /// By the ids of design documents.
    pub(crate) controls: Mutex<HashMap<Arc<str>, BuildControl>>,
    /// Which view of each design document is shown, as far as that was read.
    pub(crate) served: Mutex<HashMap<Arc<str>, Arc<[DesignDocument]>>>,
    /// Since when nobody needs these indexes.
    pub(crate) forgotten: Mutex<HashMap<Signature, u64>>,
}

/// How administrators control the builds of a design document.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct BuildControl {
    /// They are paused.
    pub(crate) is_paused: bool,
    /// The number of times that they were cancelled.
    pub(crate) cancels: u64,
    /// Until when the indexes of this signature are left alone in the background, because that was so or because a build
    /// had failed.
    pub(crate) rest: Option<(Signature, u64)>,
}

/// The indexes of all databases that were used lately.
#[derive(Default)]
pub(crate) struct Databases {
    pub(crate) indexes: HashMap<Shard, Arc<DatabaseIndexes>>,
    /// Idle ones are looked for when there are more than this.
    threshold: usize,
}

/// About so many databases with indexes that nobody uses stay in memory.
const IDLE_DATABASES: usize = if cfg!(test) { 2 } else { 1000 };

impl Databases {
    pub(crate) fn of(&mut self, database: Shard) -> Arc<DatabaseIndexes> {
        let found = Arc::clone(self.indexes.entry(database).or_default());
        if self.indexes.len() > self.threshold.max(IDLE_DATABASES) {
            // Who uses one holds it; all else that is known can be read again.
            self.indexes.retain(|_, indexes| Arc::strong_count(indexes) > 1 || !indexes.close_idle());
            self.threshold = self.indexes.len().saturating_mul(2);
        }
        found
    }
}

impl DatabaseIndexes {
    /// Forgets the indexes that nobody uses. Whether there is nothing left that only memory knows.
    fn close_idle(&self) -> bool {
        let mut handles = self.handles.lock();
        let mut controls = self.controls.lock();
        handles.retain(|_, handle| Arc::strong_count(handle) > 1);
        controls.retain(|_, control| control.rest.is_some());
        let is_known = !handles.is_empty() || !controls.is_empty() || !self.forgotten.lock().is_empty();
        !is_known && !self.stop.load(Ordering::Relaxed)
    }

    /// Ends all builds, lets no other one begin, and forgets the indexes.
    pub(crate) fn stop_and_wait(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let handles: Vec<Arc<Handle>> = self.handles.lock().drain().map(|(_, handle)| handle).collect();
        handles.iter().for_each(|handle| handle.wait_until_idle());
    }
}

/// An index.
pub(crate) struct Handle {
    store: IndexStore,
    /// When somebody last wanted something of it.
    used_us: AtomicU64,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    is_building: bool,
    waiting: u64,
    /// The number of builds.
    builds: u64,
    /// Why the last one failed, if it did.
    failure: Option<ViewError>,
    /// The shard was removed: the index is another one from now on.
    is_retired: bool,
}

/// The answer to somebody who needs an index to be built.
pub(crate) enum Turn {
    /// It is the caller's turn to build.
    Build(BuildGuard),
    /// Somebody else has built or removed it meanwhile.
    Over,
}

/// The right to build an index. Without a word about the result the build counts as stopped.
pub(crate) struct BuildGuard {
    handle: Arc<Handle>,
    result: Result<()>,
}

impl Handle {
    pub(crate) fn new(store: IndexStore) -> Self {
        Self { store, used_us: AtomicU64::new(0), state: Mutex::default(), idle: Condvar::new() }
    }

    /// Notes that somebody wants something of the index.
    pub(crate) fn use_at(&self, now_us: u64) {
        self.used_us.store(now_us, Ordering::Relaxed);
    }

    /// When somebody last did.
    pub(crate) fn last_use_us(&self) -> u64 {
        self.used_us.load(Ordering::Relaxed)
    }

    pub(crate) fn store(&self) -> &IndexStore {
        &self.store
    }

    /// How far the index is now.
    pub(crate) fn meta(&self) -> Result<Meta> {
        Ok(self.store.meta(&*self.store.snapshot()?)?.unwrap_or_else(Meta::new))
    }

    /// Takes the right to build or waits for who has it.
    ///
    /// # Errors
    /// That of the build that was waited for.
    pub(crate) fn take_turn(self: &Arc<Self>) -> Result<Turn> {
        if let Some(guard) = self.try_build() {
            return Ok(Turn::Build(guard));
        }
        let mut state = self.state.lock();
        let builds = state.builds;
        state.waiting += 1;
        while state.is_building && state.builds == builds {
            self.idle.wait(&mut state);
        }
        state.waiting -= 1;
        match &state.failure {
            // Of a later build than the one that was waited for nothing may be concluded.
            Some(failure) if state.builds == builds + 1 => Err(failure.clone()),
            _ => Ok(Turn::Over),
        }
    }

    /// Takes the right to build if nobody has it and the index is still there.
    pub(crate) fn try_build(self: &Arc<Self>) -> Option<BuildGuard> {
        let mut state = self.state.lock();
        if state.is_building || state.is_retired {
            return None;
        }
        state.is_building = true;
        Some(BuildGuard { handle: Arc::clone(self), result: Err(ViewError::Stopped) })
    }

    fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        while state.is_building {
            self.idle.wait(&mut state);
        }
    }

    /// Whether somebody builds, and how many wait for it.
    pub(crate) fn activity(&self) -> (bool, u64) {
        let state = self.state.lock();
        (state.is_building, state.waiting)
    }
}

impl BuildGuard {
    pub(crate) fn handle(&self) -> &Arc<Handle> {
        &self.handle
    }

    /// Says that the shard was removed, and gives the right back.
    pub(crate) fn retire(mut self) {
        self.handle.state.lock().is_retired = true;
        self.result = Ok(());
    }

    /// Gives the right back and tells those who wait.
    pub(crate) fn finish(mut self, result: Result<()>) {
        self.result = result;
    }
}

impl Drop for BuildGuard {
    fn drop(&mut self) {
        let mut state = self.handle.state.lock();
        state.is_building = false;
        state.builds += 1;
        state.failure = self.result.clone().err();
        self.handle.idle.notify_all();
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use settee_storage::memory::MemoryEngine;

    use super::*;
    use crate::index::Tokens;

    fn handle() -> Arc<Handle> {
        let store = IndexStore::new(Arc::new(MemoryEngine::new()), Shard(1), Arc::new(Tokens::new(0)), Arc::default());
        Arc::new(Handle::new(store))
    }

    #[test]
    fn those_who_wait_share_the_result() {
        let handle = handle();
        let guard = handle.try_build().unwrap();
        assert!(handle.try_build().is_none());
        std::thread::scope(|scope| {
            let waiting: Vec<_> = (0..4).map(|_| scope.spawn(|| handle.take_turn().map(drop))).collect();
            while handle.activity() != (true, 4) {
                std::thread::yield_now();
            }
            guard.finish(Err(ViewError::Corrupt("test")));
            for thread in waiting {
                assert!(matches!(thread.join().unwrap(), Err(ViewError::Corrupt("test"))));
            }
        });
        assert!(matches!(handle.take_turn(), Ok(Turn::Build(_))), "a failure does not outlive its build");
        assert_eq!(handle.activity(), (false, 0));
    }

    #[test]
    fn nobody_builds_an_index_that_was_removed() {
        let handle = handle();
        handle.try_build().unwrap().retire();
        assert!(handle.try_build().is_none());
        assert!(matches!(handle.take_turn(), Ok(Turn::Over)));
    }
}
