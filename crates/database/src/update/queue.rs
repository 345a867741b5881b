//! The queue of a database: what waits for the next commit, and whether somebody leads.
//!
//! Clients that were answered together send their next updates nearly together. A leader that commits the
//! first of them at once makes the others wait for a second sync, so two half groups take turns. It therefore
//! waits for those it expects, for as long as a commit takes. Who has submitted several works is expected back when
//! the last of them is answered, and a commit that is full waits for nobody.

use std::collections::VecDeque;

use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::{Completion, Submitted, Work};

/// Work and whom to tell of its end.
pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) done: Completion,
    /// Whether its client has submitted nothing behind it, and may come back when it is answered.
    pub(crate) is_last: bool,
    cost_bytes: usize,
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
    cost_bytes: usize,
    led: bool,
}

impl Queue {
    /// Adds the works of one client; the caller leads if nobody does.
    pub(crate) fn push(&self, works: Vec<(Work, Completion)>) -> Submitted {
        let last = works.len().saturating_sub(1);
        let mut pending: Vec<Pending> = Vec::with_capacity(works.len());
        for (place, (work, done)) in works.into_iter().enumerate() {
            let cost_bytes = work.cost_bytes();
            pending.push(Pending { work, done, is_last: place == last, cost_bytes });
        }
        if pending.is_empty() {
            return Submitted::Queued;
        }
        let mut state = self.state.lock();
        state.cost_bytes += pending.iter().map(|work| work.cost_bytes).sum::<usize>();
        state.waiting.extend(pending);
        self.pushed.notify_one();
        if std::mem::replace(&mut state.led, true) { Submitted::Queued } else { Submitted::Lead }
    }

    /// Waits until `writes` writes are queued or a commit of about `limit_bytes` is full, but no longer than the
    /// batching window. Returns how many are.
    pub(crate) fn collect(&self, writes: usize, limit_bytes: usize, window: Duration) -> usize {
        let mut state = self.state.lock();
        let is_short = |state: &mut State| state.waiting.len() < writes && state.cost_bytes < limit_bytes;
        self.pushed.wait_while_for(&mut state, is_short, window);
        state.waiting.len()
    }

    /// Takes the oldest work and what fits beside it into a commit of about `limit_bytes`. `None` ends the
    /// caller's lead.
    pub(crate) fn take(&self, limit_bytes: usize) -> Option<Vec<Pending>> {
        let mut state = self.state.lock();
        let mut works = Vec::new();
        let mut size = 0;
        while let Some(next) = state.waiting.front() {
            if !works.is_empty() && size + next.cost_bytes > limit_bytes {
                break;
            }
            size += next.cost_bytes;
            works.extend(state.waiting.pop_front());
        }
        state.cost_bytes -= size;
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
    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}
