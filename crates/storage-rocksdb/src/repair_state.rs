//! [`RepairState`]: the fault because of which a store must be opened again, for which commits wait.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use settee_storage::StorageError;

use crate::damage;

/// Calls of `maintain` during which commits wait for the repair of damage in other shards.
const MAINTENANCE_CALLS_MAX: u32 = 30;

/// `maintain` was not called yet, and possibly never is.
const NEVER_MAINTAINED: u32 = u32::MAX;

const STEP: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(crate) struct RepairState {
    fault: Mutex<Option<StorageError>>,
    ended: Condvar,
    left: AtomicU32,
}

impl RepairState {
    pub(crate) fn new(fault: Option<StorageError>) -> Self {
        Self { fault: Mutex::new(fault), ended: Condvar::new(), left: AtomicU32::new(NEVER_MAINTAINED) }
    }

    pub(crate) fn fault(&self) -> Option<StorageError> {
        self.fault.lock().clone()
    }

    /// Only the first reason is recorded.
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

    pub(crate) fn wait(&self) {
        let mut fault = self.fault.lock();
        if fault.is_some() {
            self.ended.wait_for(&mut fault, STEP);
        }
    }

    /// `is_faulty` is true if a repair is needed.
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

    pub(crate) fn is_under_way(&self, error: &StorageError) -> bool {
        let is_fault = || self.fault.lock().as_ref().is_some_and(damage::is_damage);
        damage::is_damage(error) && self.is_maintained() && is_fault()
    }
}
