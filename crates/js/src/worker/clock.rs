//! [`Clock`]: the time limit of calls.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Enforces the time limit of calls. The clock is read only when the engine polls, so that fast calls never read it.
#[derive(Default)]
pub(super) struct Clock {
    request_number: Cell<u64>,
    seen: Cell<(u64, Option<Instant>)>,
    expired: Cell<bool>,
}

impl Clock {
    pub(super) fn start(&self) {
        self.request_number.set(self.request_number.get() + 1);
    }

    pub(super) fn stop_for(&self, waited: Duration) {
        let (request_number, since) = self.seen.get();
        self.seen.set((request_number, since.map(|since| since + waited)));
    }

    pub(super) fn poll(&self, timeout: Duration) {
        let (request_number, since) = self.seen.get();
        match since {
            Some(since) if request_number == self.request_number.get() => {
                if since.elapsed() >= timeout {
                    self.expired.set(true);
                }
            }
            _ => self.seen.set((self.request_number.get(), Some(Instant::now()))),
        }
    }

    pub(super) fn has_expired(&self) -> bool {
        self.expired.get()
    }
}
