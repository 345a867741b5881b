//! [`RepairState`]: the fault because of which a store must be opened again, and whether commits should wait for the
//! repair by [`Engine::maintain`](settee_storage::Engine::maintain).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use settee_storage::StorageError;

use crate::isolate;

/// Number of calls of `maintain` during which commits wait for the repair of damage in other shards.
const MAINTENANCE_CALLS_MAX: u32 = 30;

/// `maintain` was not called yet, and possibly never is.
const NEVER_MAINTAINED: u32 = u32::MAX;

/// Maximum duration of a wait. Waiters hold a snapshot, which the repair waits for.
const STEP: Duration = Duration::from_millis(20);

const SEEN_ERRORS_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct RepairState {
    fault: Mutex<Option<StorageError>>,
    ended: Condvar,
    /// Number of further calls of `maintain` for which commits wait.
    left: AtomicU32,
    /// Errors of reads that found damage. The same error triggers a repair only once.
    seen_errors: Mutex<BTreeSet<String>>,
}

impl RepairState {
    pub(crate) fn new(fault: Option<StorageError>) -> Self {
        Self {
            fault: Mutex::new(fault),
            ended: Condvar::new(),
            left: AtomicU32::new(NEVER_MAINTAINED),
            seen_errors: Mutex::default(),
        }
    }

    pub(crate) fn fault(&self) -> Option<StorageError> {
        self.fault.lock().clone()
    }

    /// Records the reason why nothing can be written. The first reason is kept.
    pub(crate) fn fail(&self, error: &StorageError) {
        self.fault.lock().get_or_insert_with(|| error.clone());
    }

    pub(crate) fn replace(&self, error: StorageError) {
        *self.fault.lock() = Some(error);
    }

    pub(crate) fn end(&self) {
        *self.fault.lock() = None;
        self.ended.notify_all();
    }

    /// Blocks until the end of the repair, for a short time at most.
    pub(crate) fn wait(&self) {
        let mut fault = self.fault.lock();
        if fault.is_some() {
            self.ended.wait_for(&mut fault, STEP);
        }
    }

    /// Counts a call of `maintain`. `is_faulty` is true if a repair is needed.
    pub(crate) fn note_maintenance(&self, is_faulty: bool) {
        let next = |left: u32| match (is_faulty, left) {
            (false, _) | (true, NEVER_MAINTAINED) => Some(MAINTENANCE_CALLS_MAX),
            (true, left) => left.checked_sub(1),
        };
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn is_maintained(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        left > 0 && left != NEVER_MAINTAINED
    }

    /// Returns true if an error will soon be resolved, because the store is opened again without the damaged data.
    pub(crate) fn is_under_way(&self, error: &StorageError) -> bool {
        let is_fault = || self.fault.lock().as_ref().is_some_and(isolate::is_damage);
        isolate::is_damage(error) && self.is_maintained() && is_fault()
    }

    /// Records damage found by a read, which may be outside of the requested data, because a seek reads neighbouring
    /// entries. Returns true if it will soon be isolated.
    pub(crate) fn note_damage(&self, error: &StorageError) -> bool {
        let text = error.to_string();
        if !self.is_maintained() || !isolate::names_table(&text) {
            return false;
        }
        let is_new = {
            let mut seen_errors = self.seen_errors.lock();
            seen_errors.len() < SEEN_ERRORS_MAX && seen_errors.insert(text)
        };
        if is_new {
            self.fail(error);
        }
        is_new || self.is_under_way(error)
    }
}
