//! [`Compacting`]: true while a compaction runs.

use std::sync::atomic::{AtomicBool, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Compacting(AtomicBool);

/// Resets the flag when it is dropped.
pub(crate) struct Running<'a>(&'a Compacting);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

impl Compacting {
    /// `None` if one runs.
    pub(crate) fn begin(&self) -> Option<Running<'_>> {
        let is_idle = !self.0.swap(true, Ordering::AcqRel);
        is_idle.then(|| Running(self))
    }

    pub(crate) fn is_running(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}
