//! [`Handle`]: an index in memory with an exclusive right to build it, for which other threads wait.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::{Condvar, Mutex, MutexGuard};
use settee_design::CANCELLATION_INTERVAL;

/// An index with the store `S` and errors of type `E`.
pub struct Handle<S, E> {
    store: S,
    used_us: AtomicU64,
    state: Mutex<State<E>>,
    idle: Condvar,
}

struct State<E> {
    is_building: bool,
    waiting: u64,
    builds: u64,
    failure: Option<E>,
    is_retired: bool,
}

impl<E> Default for State<E> {
    fn default() -> Self {
        Self { is_building: false, waiting: 0, builds: 0, failure: None, is_retired: false }
    }
}

/// A builder dropped its guard without a result.
#[derive(Clone, Copy, Debug)]
pub struct Abandoned;

/// Result of a request to build an index.
pub enum Acquired<S, E>
where
    E: Clone + From<Abandoned>,
{
    /// The caller has the right to build.
    Build(BuildGuard<S, E>),
    /// Another thread has built or removed the index.
    Over,
}

/// The right to build an index. Dropping it without a result reports [`Abandoned`] to the waiters.
pub struct BuildGuard<S, E>
where
    E: Clone + From<Abandoned>,
{
    handle: Arc<Handle<S, E>>,
    result: Result<(), E>,
}

impl<S, E: Clone + From<Abandoned>> Handle<S, E> {
    /// Creates an idle handle.
    pub fn new(store: S) -> Self {
        Self { store, used_us: AtomicU64::new(0), state: Mutex::default(), idle: Condvar::new() }
    }

    /// Records a use of the index.
    pub fn use_at(&self, now_us: u64) {
        self.used_us.store(now_us, Ordering::Relaxed);
    }

    /// Returns the time of the last use.
    pub fn last_use_us(&self) -> u64 {
        self.used_us.load(Ordering::Relaxed)
    }

    /// Returns the store of the index.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// Acquires the right to build, or waits for the current build and returns its error.
    pub fn acquire_build(self: &Arc<Self>) -> Result<Acquired<S, E>, E> {
        self.acquire_build_while(&mut || Ok(()))
    }

    /// As [`Self::acquire_build`]; an error of `check`, which is called periodically, ends the wait.
    pub fn acquire_build_while(
        self: &Arc<Self>,
        check: &mut dyn FnMut() -> Result<(), E>,
    ) -> Result<Acquired<S, E>, E> {
        if let Some(guard) = self.try_build() {
            return Ok(Acquired::Build(guard));
        }
        let builds = self.builds();
        self.wait_for_build(builds, check)?;
        Ok(Acquired::Over)
    }

    /// Waits for the end of a build and returns its error. `builds` must be the result of [`Handle::builds`] before it.
    /// An error of `check`, which is called at least every [`CANCELLATION_INTERVAL`], ends the wait.
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
            // The result of a later build is irrelevant.
            Some(failure) if state.builds == builds + 1 => Err(failure.clone()),
            _ => Ok(()),
        }
    }

    /// Returns the number of builds that have ended.
    pub fn builds(&self) -> u64 {
        self.state.lock().builds
    }

    /// Returns `None` if the right is taken or the index was removed.
    #[must_use]
    pub fn try_build(self: &Arc<Self>) -> Option<BuildGuard<S, E>> {
        let mut state = self.state.lock();
        if state.is_building || state.is_retired {
            return None;
        }
        state.is_building = true;
        Some(BuildGuard { handle: Arc::clone(self), result: Err(Abandoned.into()) })
    }

    /// Waits for the end of the current build.
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

    /// Returns true if a build is running, and the number of its waiters.
    pub fn activity(&self) -> (bool, u64) {
        let state = self.state.lock();
        (state.is_building, state.waiting)
    }
}

impl<S, E: Clone + From<Abandoned>> BuildGuard<S, E> {
    /// Returns the index that is being built.
    pub fn handle(&self) -> &Arc<Handle<S, E>> {
        &self.handle
    }

    /// Marks the shard as removed, and releases the right.
    pub fn retire(mut self) {
        self.handle.state.lock().is_retired = true;
        self.result = Ok(());
    }

    /// Releases the right and notifies waiters of the result.
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
