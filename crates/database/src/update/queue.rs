//! The update queue of a database: [`Queue`]. Clients whose requests were answered together send their next updates at
//! nearly the same time. A leader that commits the first of them immediately makes the others wait for a second sync,
//! so that two half groups alternate. The leader therefore waits for the expected updates, at most as long as a commit
//! takes. A client that submitted several works is expected after the last one is answered, and a full commit does not
//! wait. If the expected clients are too many or too slow for the window, alternating halves are faster: after several
//! wasted waits the leader does not wait for a number of commits.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use super::work::{Completion, Origin, Submitted, Work};

/// Number of consecutive wasted waits after which waiting is suspended.
const WASTED_WAITS_MAX: u32 = 3;

/// Number of commits without a wait then. The next wait tests whether waiting has become useful.
const COMMITS_WITHOUT_WAIT: u32 = 32;

pub(crate) struct Pending {
    pub(crate) work: Work,
    pub(crate) done: Completion,
    pub(crate) origin: Origin,
    /// True for the last work that the client submitted together, after whose answer it may submit again.
    pub(crate) is_last: bool,
    cost_bytes: usize,
}

#[derive(Default)]
pub(crate) struct Queue {
    state: Mutex<State>,
    pushed: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Pending>,
    cost_bytes: usize,
    has_leader: bool,
    awaited: Option<Awaited>,
    statistics: WaitStatistics,
}

#[derive(Clone, Copy)]
struct Awaited {
    works: usize,
    bytes: usize,
}

#[derive(Default)]
struct WaitStatistics {
    wasted_waits: u32,
    commits_without_wait: u32,
}

impl Queue {
    pub(crate) fn push(&self, works: Vec<(Work, Completion)>, origin: Origin) -> Submitted {
        let last = works.len().saturating_sub(1);
        let mut pending: Vec<Pending> = Vec::with_capacity(works.len());
        for (place, (work, done)) in works.into_iter().enumerate() {
            let cost_bytes = work.cost_bytes();
            pending.push(Pending { work, done, origin, is_last: place == last, cost_bytes });
        }
        if pending.is_empty() {
            return Submitted::Queued;
        }
        let mut state = self.state.lock();
        state.cost_bytes += pending.iter().map(|work| work.cost_bytes).sum::<usize>();
        state.waiting.extend(pending);
        // The leader is notified only when its condition holds, because it would wait again otherwise.
        if state.awaited.is_some_and(|awaited| state.has(awaited)) {
            state.awaited = None;
            self.pushed.notify_one();
        }
        if std::mem::replace(&mut state.has_leader, true) { Submitted::Queued } else { Submitted::Leader }
    }

    /// Waits until `writes` works are queued or a commit of about `limit_bytes` is full, at most for `window`. Does not
    /// wait while waiting is suspended. Returns the number of queued works.
    pub(crate) fn collect(&self, writes: usize, limit_bytes: usize, window: Duration) -> usize {
        let mut state = self.state.lock();
        let awaited = Awaited { works: writes, bytes: limit_bytes };
        if !state.has(awaited) && !state.statistics.skips_wait() {
            state.awaited = Some(awaited);
            let is_wasted = self.pushed.wait_while_for(&mut state, |state| !state.has(awaited), window).timed_out();
            state.awaited = None;
            state.statistics.waited(is_wasted);
        }
        state.waiting.len()
    }

    /// Takes the oldest work and all that fits into the same commit. `None` ends the caller's leadership.
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
            state.has_leader = false;
            return None;
        }
        Some(works)
    }

    /// Returns `false` if work remains: the caller must then continue or transfer the leadership.
    pub(crate) fn resign(&self) -> bool {
        let mut state = self.state.lock();
        state.has_leader = !state.waiting.is_empty();
        !state.has_leader
    }

    pub(crate) fn waiting(&self) -> usize {
        self.state.lock().waiting.len()
    }
}

impl State {
    fn has(&self, Awaited { works, bytes }: Awaited) -> bool {
        self.waiting.len() >= works || self.cost_bytes >= bytes
    }
}

impl WaitStatistics {
    /// Returns true if the next commit must not wait. Each call counts as one commit.
    fn skips_wait(&mut self) -> bool {
        let skips = self.commits_without_wait > 0;
        self.commits_without_wait = self.commits_without_wait.saturating_sub(1);
        skips
    }

    fn waited(&mut self, is_wasted: bool) {
        self.wasted_waits = if is_wasted { self.wasted_waits + 1 } else { 0 };
        if self.wasted_waits >= WASTED_WAITS_MAX {
            self.commits_without_wait = COMMITS_WITHOUT_WAIT;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn only_the_last_work_wakes_the_leader() {
        let queue = Queue::default();
        let push = |count: usize| {
            let work = || (Work::SetRevsLimit(1), Box::new(|_| {}) as Completion);
            let _ = queue.push((0..count).map(|_| work()).collect(), Origin::Client);
        };
        let is_awaited = || queue.state.lock().awaited.is_some();
        thread::scope(|scope| {
            let leader = scope.spawn(|| queue.collect(4, 1 << 20, Duration::from_secs(60)));
            while !is_awaited() {
                thread::yield_now();
            }
            push(1);
            push(2);
            assert!(is_awaited(), "there are three");
            push(1);
            assert!(!is_awaited(), "it was woken");
            assert_eq!(leader.join().expect("it was woken"), 4);
        });
    }

    #[test]
    fn a_full_commit_does_not_wait() {
        let queue = Queue::default();
        let large = Work::Attach { key: vec![1], value: Some(vec![0; 100]) };
        let _ = queue.push(vec![(large, Box::new(|_| {}))], Origin::Client);
        assert_eq!(queue.collect(9, 100, Duration::from_secs(60)), 1);
        assert_eq!(queue.state.lock().statistics.wasted_waits, 0);
    }

    fn commits_without_wait(statistics: &mut WaitStatistics) -> usize {
        std::iter::from_fn(|| statistics.skips_wait().then_some(())).count()
    }

    #[test]
    fn wasted_waits_suspend_waiting() {
        let statistics = &mut WaitStatistics::default();
        for is_wasted in [true, true, false, true, true, false] {
            statistics.waited(is_wasted);
            assert_eq!(commits_without_wait(statistics), 0);
        }
        (0..WASTED_WAITS_MAX).for_each(|_| statistics.waited(true));
        assert_eq!(commits_without_wait(statistics), COMMITS_WITHOUT_WAIT as usize);
        statistics.waited(true);
        assert_eq!(commits_without_wait(statistics), COMMITS_WITHOUT_WAIT as usize);
        statistics.waited(false);
        statistics.waited(true);
        assert_eq!(commits_without_wait(statistics), 0);
    }
}
