//! [`Handle`]: an index in memory, and who builds it. One thread builds, others wait and share the result.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Condvar, Mutex};

use crate::error::{Result, ViewError};
use crate::index::{IndexStore, Signature};

/// The indexes of a database that were used since the server began.
#[derive(Default)]
pub(crate) struct DatabaseIndexes {
    /// Set when nothing more must be written.
    pub(crate) stop: AtomicBool,
    pub(crate) handles: Mutex<HashMap<Signature, Arc<Handle>>>,
}

impl DatabaseIndexes {
    /// Ends all builds, lets no other one begin, and forgets the indexes.
    pub(crate) fn stop_and_wait(&self) {
        self.stop.store(true, Ordering::Relaxed);
        let handles: Vec<Arc<Handle>> = self.handles.lock().drain().map(|(_, handle)| handle).collect();
        handles.iter().for_each(|handle| handle.wait_until_idle());
    }
}

/// An index.
pub(crate) struct Handle {
    pub(crate) store: IndexStore,
    state: Mutex<State>,
    idle: Condvar,
}

#[derive(Default)]
struct State {
    is_building: bool,
    waiting: u64,
    /// How many builds there were.
    builds: u64,
    /// Why the last one failed, if it did.
    failure: Option<ViewError>,
}

/// What somebody who needs an index to be built finds.
pub(crate) enum Turn {
    /// It is the caller's turn to build.
    Build(BuildGuard),
    /// Somebody else has built it meanwhile.
    Waited,
}

/// The right to build an index. Without a word about the result the build counts as stopped.
pub(crate) struct BuildGuard {
    handle: Arc<Handle>,
    result: Result<()>,
}

impl Handle {
    pub(crate) fn new(store: IndexStore) -> Self {
        Self { store, state: Mutex::default(), idle: Condvar::new() }
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
            _ => Ok(Turn::Waited),
        }
    }

    /// Takes the right to build if nobody has it.
    pub(crate) fn try_build(self: &Arc<Self>) -> Option<BuildGuard> {
        let mut state = self.state.lock();
        if state.is_building {
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
