//! [`Mending`]: why a store is to be opened again, and whether it is worth waiting for that. What is done is up to
//! [`Engine::tend`](settee_storage::Engine::tend).

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use settee_storage::StorageError;

use crate::isolate;

/// Commits wait for a store that is opened again because of damage, which is not theirs, during so many calls of `tend`.
const TENDS_MAX: u32 = 30;

/// Nobody has called it, and perhaps nobody will.
const UNTENDED: u32 = u32::MAX;

const STEP: Duration = Duration::from_millis(20);

/// So many places are remembered at which damage was met.
const MET_MAX: usize = 10_000;

#[derive(Debug)]
pub(crate) struct Mending {
    fault: Mutex<Option<StorageError>>,
    /// The number of calls of `tend` are waited for.
    left: AtomicU32,
    /// The damage that reads have met. It is not mended twice.
    met: Mutex<BTreeSet<String>>,
}

/// Waits a moment.
pub(crate) fn wait() {
    std::thread::park_timeout(STEP);
}

impl Mending {
    pub(crate) fn new(fault: Option<StorageError>) -> Self {
        Self { fault: Mutex::new(fault), left: AtomicU32::new(UNTENDED), met: Mutex::default() }
    }

    pub(crate) fn fault(&self) -> Option<StorageError> {
        self.fault.lock().clone()
    }

    /// Notes why nothing can be written. A first reason stays.
    pub(crate) fn fail(&self, error: &StorageError) {
        self.fault.lock().get_or_insert_with(|| error.clone());
    }

    pub(crate) fn replace(&self, error: StorageError) {
        *self.fault.lock() = Some(error);
    }

    pub(crate) fn end(&self) {
        *self.fault.lock() = None;
    }

    /// Notes a call of `tend`, and whether there was something to do.
    pub(crate) fn tended(&self, is_faulty: bool) {
        let next = |left: u32| match (is_faulty, left) {
            (false, _) | (true, UNTENDED) => Some(TENDS_MAX),
            (true, left) => left.checked_sub(1),
        };
        let _ = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
    }

    fn is_tended(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        left > 0 && left != UNTENDED
    }

    /// Whether an error is over soon: somebody's data is damaged, and the store is opened again without it.
    pub(crate) fn is_under_way(&self, error: &StorageError) -> bool {
        let is_fault = || self.fault.lock().as_ref().is_some_and(isolate::is_damage);
        isolate::is_damage(error) && self.is_tended() && is_fault()
    }

    /// Notes damage that a read has met, which may not be in what was asked for: a seek looks at its neighbours as well.
    /// Returns whether it is isolated soon.
    pub(crate) fn met(&self, error: &StorageError) -> bool {
        let text = error.to_string();
        if !self.is_tended() || !isolate::names_table(&text) {
            return false;
        }
        let is_new = {
            let mut met = self.met.lock();
            met.len() < MET_MAX && met.insert(text)
        };
        if is_new {
            self.fail(error);
        }
        is_new || self.is_under_way(error)
    }
}
