//! [`Handle`]: an index in memory, and who builds it. One thread builds, others wait and share the result.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use settee_design::CANCELLATION_INTERVAL;

/// An index, which is written and read through an `S`, and may fail with an `E`.
pub struct Handle<S, E> {
    store: S,
    /// When somebody last wanted something of it.
    used_us: AtomicU64,
    state: Mutex<State<E>>,
    idle: Condvar,
}

struct State<E> {
    is_building: bool,
    waiting: u64,
    /// The number of builds.
    builds: u64,
    /// Why the last one failed, if it did.
    failure: Option<E>,
    /// The shard was removed: the index is another one from now on.
    is_retired: bool,
}

impl<E> Default for State<E> {
    fn default() -> Self {
        Self { is_building: false, waiting: 0, builds: 0, failure: None, is_retired: false }
    }
}

/// A build ended without a word about its result.
#[derive(Clone, Copy, Debug)]
pub struct Abandoned;

/// The answer to somebody who needs an index to be built.
pub enum Turn<S, E>
where
    E: Clone + From<Abandoned>,
{
    /// It is the caller's turn to build.
    Build(BuildGuard<S, E>),
    /// Somebody else has built or removed it meanwhile.
    Over,
}

/// The right to build an index. Without a word about the result the build counts as stopped.
pub struct BuildGuard<S, E>
where
    E: Clone + From<Abandoned>,
{
    handle: Arc<Handle<S, E>>,
    result: Result<(), E>,
}

impl<S, E: Clone + From<Abandoned>> Handle<S, E> {
    /// Nobody builds it yet.
    pub fn new(store: S) -> Self {
        Self { store, used_us: AtomicU64::new(0), state: Mutex::default(), idle: Condvar::new() }
    }

    /// Notes that somebody wants something of the index.
    pub fn use_at(&self, now_us: u64) {
        self.used_us.store(now_us, Ordering::Relaxed);
    }

    /// When somebody last did.
    pub fn last_use_us(&self) -> u64 {
        self.used_us.load(Ordering::Relaxed)
    }

    /// The way to the index.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Takes the right to build or waits for who has it.
    ///
    /// # Errors
    /// That of the build that was waited for.
    pub fn take_turn(self: &Arc<Self>) -> Result<Turn<S, E>, E> {
        self.take_turn_while(&mut || Ok(()))
    }

    /// As [`Self::take_turn`], and calls `check` while it waits.
    ///
    /// # Errors
    /// That of the build that was waited for, or of `check`.
    pub fn take_turn_while(self: &Arc<Self>, check: &mut dyn FnMut() -> Result<(), E>) -> Result<Turn<S, E>, E> {
        if let Some(guard) = self.try_build() {
            return Ok(Turn::Build(guard));
        }
        let builds = self.builds();
        self.wait_for_build(builds, check)?;
        Ok(Turn::Over)
    }

    /// Waits while another thread builds, and calls `check` at least every [`CANCELLATION_INTERVAL`]. `builds` is the number of builds before ([`Handle::builds`]).
    ///
    /// # Errors
    /// That of the build, or of `check`.
    pub fn wait_for_build(&self, builds: u64, check: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        let mut state = self.state.lock();
        state.waiting += 1;
        let mut checked = Ok(());
        while state.is_building && state.builds == builds && checked.is_ok() {
            self.idle.wait_for(&mut state, CANCELLATION_INTERVAL);
            checked = MutexGuard::unlocked(&mut state, &mut *check);
        }
        state.waiting -= 1;
        checked?;
        match &state.failure {
            // A later build than the awaited one says nothing about it.
            Some(failure) if state.builds == builds + 1 => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// The number of builds that have ended.
    pub fn builds(&self) -> u64 {
        self.state.lock().builds
    }

    /// Takes the right to build if nobody has it and the index is still there.
    #[must_use]
    pub fn try_build(self: &Arc<Self>) -> Option<BuildGuard<S, E>> {
        let mut state = self.state.lock();
        if state.is_building || state.is_retired {
            return None;
        }
        state.is_building = true;
        Some(BuildGuard { handle: Arc::clone(self), result: Err(Abandoned.into()) })
    }

    /// Waits while somebody builds.
    pub fn wait_until_idle(&self) {
        let mut state = self.state.lock();
        while state.is_building {
            self.idle.wait(&mut state);
        }
    }

    /// Returns the error of the last build, if it failed.
    pub fn failure(&self) -> Option<E> {
        self.state.lock().failure.clone()
    }

    /// Whether somebody builds, and how many wait for it.
    pub fn activity(&self) -> (bool, u64) {
        let state = self.state.lock();
        (state.is_building, state.waiting)
    }
}

impl<S, E: Clone + From<Abandoned>> BuildGuard<S, E> {
    /// The index.
    pub fn handle(&self) -> &Arc<Handle<S, E>> {
        &self.handle
    }

    /// Says that the shard was removed, and gives the right back.
    pub fn retire(mut self) {
        self.handle.state.lock().is_retired = true;
        self.result = Ok(());
    }

    /// Gives the right back and tells those who wait.
    pub fn finish(mut self, result: Result<(), E>) {
        self.result = result;
    }
}

impl<S, E: Clone + From<Abandoned>> Drop for BuildGuard<S, E> {
    fn drop(&mut self) {
        let mut state = self.handle.state.lock();
        state.is_building = false;
        state.builds += 1;
        state.failure = self.result.clone().err();
        self.handle.idle.notify_all();
    }
}
