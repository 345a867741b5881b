//! The queue of a database: what waits for the next commit, and whether somebody leads.
//!
//! Clients that were answered together send their next updates nearly together. A leader that commits the
//! first of them at once makes the others wait for a second sync, so two half groups take turns. It therefore
//! waits for those it expects, for as long as a commit takes.

use std::collections::VecDeque;

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Completion, Submitted, Work};

/// Work and whom to tell of its end.
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) done: Completion,
}

/// Work that waits.
#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    pushed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Pending>,
    led: bool,
}

impl Queue {
    /// Adds work; the caller leads if nobody does.
    pub(crate) fn push(&self, work: Work, done: Completion) -> Submitted {
        let mut state = self.state.lock();
        state.waiting.push_back(Pending { work, done });
        self.pushed.notify_one();
        if std::mem::replace(&mut state.led, true) { Submitted::Queued } else { Submitted::Lead }
    }

    /// Waits until `writes` writes are queued, but no longer than the batching window. Returns how many are.
    pub(crate) fn collect(&self, writes: usize, window: Duration) -> usize {
        let mut state = self.state.lock();
        self.pushed.wait_while_for(&mut state, |state| state.waiting.len() < writes, window);
        state.waiting.len()
    }

    /// Takes the oldest work and what fits beside it into a commit of about `limit_bytes`. `None` ends the
    /// caller's lead.
    pub(crate) fn take(&self, limit_bytes: usize) -> Option<Vec<Pending>> {
        let mut state = self.state.lock();
        let mut works = Vec::new();
        let mut size = 0;
        while let Some(next) = state.waiting.front() {
            size += next.work.cost_bytes();
            if !works.is_empty() && size > limit_bytes {
                break;
            }
            works.extend(state.waiting.pop_front());
        }
        if works.is_empty() {
            state.led = false;
            return None;
        }
        Some(works)
    }

    /// Ends the caller's lead if no work waits; otherwise somebody must go on.
    pub(crate) fn end_lead(&self) -> bool {
        let mut state = self.state.lock();
        state.led = !state.waiting.is_empty();
        !state.led
    }

    /// The number of works that wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}
