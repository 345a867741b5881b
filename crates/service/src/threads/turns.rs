//! [`Turns`]: the right to compute, which the long works of a pool take in turns.
//!
//! The operating system does not preempt a thread of low priority at once when another one wakes up: with thirty
//! runnable threads on two processors, every wake-up of a short request waited for some milliseconds. Long works are
//! therefore runnable in the number of the processors only. A turn is short, and a work that waits for something else
//! than a processor loses its turn.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Duration of a turn while others wait.
const TURN: Duration = Duration::from_millis(2);

/// Age at which a turn is taken from its holder, which waits for a disk, a process or its client.
const TURN_MAX: Duration = Duration::from_millis(10);

/// Maximum time that a work waits. It then computes up to its next step, where it detects that its client has gone.
const WAIT_MAX: Duration = Duration::from_millis(50);

/// The turns of a pool of threads.
pub(super) struct Turns {
    /// Number of concurrent turns.
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Identifier of the next turn.
    next: u64,
    held: Vec<Held>,
    /// Waiting works, first come, first served.
    waiting: VecDeque<Arc<Condvar>>,
}

struct Held {
    id: u64,
    since: Instant,
}

/// Identifies a turn of one work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Turn(u64);

impl Turns {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), state: Mutex::default() }
    }

    /// Called between two steps of a work: keeps `turn` if it is not over, or waits for another one. Returns `None` if
    /// none was free in time.
    pub(super) fn next(&self, turn: Option<Turn>) -> Option<Turn> {
        let mut state = self.state.lock();
        let nothing_waits = state.waiting.is_empty();
        if let Some(held) = turn.and_then(|turn| state.held.iter_mut().find(|held| held.id == turn.0)) {
            if nothing_waits {
                held.since = Instant::now();
            }
            if held.since.elapsed() < TURN {
                return turn;
            }
            turn.iter().for_each(|turn| state.release(*turn));
        } else if nothing_waits && state.held.len() < self.most {
            return Some(state.begin());
        }
        self.wait(state)
    }

    /// Ends a turn before its work waits for something else than a processor, or ends.
    pub(super) fn release(&self, turn: Turn) {
        self.state.lock().release(turn);
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) -> Option<Turn> {
        let (joined, called) = (Instant::now(), Arc::new(Condvar::new()));
        state.waiting.push_back(Arc::clone(&called));
        loop {
            let is_first = state.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &called));
            if is_first && state.has_free(self.most) {
                state.waiting.pop_front();
                let turn = state.begin();
                state.call_first();
                return Some(turn);
            }
            let end = joined + WAIT_MAX;
            if Instant::now() >= end {
                state.waiting.retain(|other| !Arc::ptr_eq(other, &called));
                state.call_first();
                return None;
            }
            // Only the first one has to notice that a turn may be taken away.
            let oldest = state.held.iter().map(|held| held.since).min().filter(|_| is_first);
            called.wait_until(&mut state, oldest.map_or(end, |since| end.min(since + TURN_MAX)));
        }
    }
}

impl State {
    fn begin(&mut self) -> Turn {
        self.next += 1;
        self.held.push(Held { id: self.next, since: Instant::now() });
        Turn(self.next)
    }

    fn release(&mut self, turn: Turn) {
        if let Some(place) = self.held.iter().position(|held| held.id == turn.0) {
            self.held.swap_remove(place);
            self.call_first();
        }
    }

    /// Returns true if there is a free turn, after taking away those that are too old.
    fn has_free(&mut self, most: usize) -> bool {
        if self.held.len() >= most {
            self.held.retain(|held| held.since.elapsed() < TURN_MAX);
        }
        self.held.len() < most
    }

    fn call_first(&self) {
        if let Some(first) = self.waiting.front() {
            first.notify_one();
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use super::*;

    fn compute(duration: Duration) {
        let begun = Instant::now();
        while begun.elapsed() < duration {
            std::hint::spin_loop();
        }
    }

    fn waiting(turns: &Turns, count: usize) {
        while turns.state.lock().waiting.len() != count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_turn_is_kept_while_it_lasts_or_nothing_waits() {
        let turns = Turns::new(1);
        let first = turns.next(None);
        assert_eq!(turns.next(first), first);
        compute(TURN);
        assert_eq!(turns.next(first), first, "nothing waits");
        turns.release(first.unwrap());
        assert_ne!(turns.next(first), first, "it had ended");
    }

    #[test]
    fn works_take_turns_in_order() {
        let turns = Turns::new(2);
        let active = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let (mut turn, mut steps) = (None, 0);
                    while steps < 20 {
                        turn = turns.next(turn);
                        if turn.is_some() {
                            // A turn can be taken from a thread that does not get a processor.
                            let others = active.fetch_add(1, Ordering::Relaxed);
                            assert!(others < 6);
                            compute(TURN / 10);
                            active.fetch_sub(1, Ordering::Relaxed);
                            steps += 1;
                        }
                    }
                    turns.release(turn.unwrap());
                });
            }
        });
        let state = turns.state.lock();
        assert!(state.held.is_empty() && state.waiting.is_empty());
    }

    #[test]
    fn the_turn_of_a_work_that_waits_is_taken_away() {
        let turns = Turns::new(1);
        let blocked = turns.next(None);
        let taken = turns.next(None);
        assert!(taken.is_some(), "within the time that a work waits");
        assert_ne!(taken, blocked);
        turns.release(blocked.unwrap());
        assert_eq!(turns.state.lock().held.len(), 1, "the end of a lost turn has no effect");
    }

    #[test]
    fn a_released_turn_goes_to_the_first_that_waits() {
        let turns = Turns::new(1);
        let held = turns.next(None).unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| turns.next(None));
            waiting(&turns, 1);
            turns.release(held);
            let first = first.join().unwrap().unwrap();
            turns.release(first);
        });
        assert!(turns.state.lock().held.is_empty());
    }

    #[test]
    fn a_work_does_not_wait_for_long() {
        let turns = Turns::new(1);
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut turn = turns.next(None);
                let begun = Instant::now();
                // Renewed so often that it is never too old; the turn is not passed on, against the rules.
                while begun.elapsed() < 3 * WAIT_MAX {
                    turns.state.lock().held.iter_mut().for_each(|held| held.since = Instant::now());
                    thread::yield_now();
                }
                turn = turn.filter(|_| true);
                turns.release(turn.unwrap());
            });
            while turns.state.lock().held.is_empty() {
                thread::yield_now();
            }
            assert_eq!(turns.next(None), None);
            holder.join().unwrap();
        });
        assert!(turns.state.lock().waiting.is_empty());
    }
}
