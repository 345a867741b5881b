//! [`RunSlots`]: the long works of a pool share the processors by cooperative scheduling.
//!
//! The operating system does not preempt a thread of low priority at once when another one wakes up: with thirty
//! runnable threads on two processors, every wake-up of a short request waited for some milliseconds. Long works
//! therefore hold a slot while they compute, and there are as many slots as processors.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// Time slice of a work while others wait.
pub(super) const SLICE: Duration = Duration::from_millis(2);

/// Time after which a slot is revoked, because its holder probably waits for a disk, a process or its client.
const SLICE_MAX: Duration = Duration::from_millis(10);

/// Maximum time that a work waits. It then computes one step without a slot, and detects that its client has
/// disconnected.
const WAIT_MAX: Duration = Duration::from_millis(50);

pub(super) struct RunSlots {
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Identifier of the last slot.
    next: u64,
    held: Vec<Held>,
    /// Waiting works in the order of their arrival.
    waiting: VecDeque<Arc<Condvar>>,
}

struct Held {
    id: u64,
    since: Instant,
}

/// Identifies a slot that one work holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunSlot(u64);

impl RunSlots {
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(1), state: Mutex::default() }
    }

    /// Called between two steps of a work: keeps `slot` during its time slice, or waits for another one. Returns `None`
    /// if none was free in time.
    pub(super) fn next(&self, slot: Option<RunSlot>) -> Option<RunSlot> {
        let mut state = self.state.lock();
        let nothing_waits = state.waiting.is_empty();
        if let Some(held) = slot.and_then(|slot| state.held.iter_mut().find(|held| held.id == slot.0)) {
            if nothing_waits {
                held.since = Instant::now();
            }
            if held.since.elapsed() < SLICE {
                return slot;
            }
            slot.iter().for_each(|slot| state.release(*slot));
        } else if nothing_waits && state.held.len() < self.most {
            return Some(state.begin());
        }
        self.wait(state)
    }

    /// Releases a slot. Must be called before its work waits for something else than a processor, and at its end.
    pub(super) fn release(&self, slot: RunSlot) {
        self.state.lock().release(slot);
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) -> Option<RunSlot> {
        let (joined, called) = (Instant::now(), Arc::new(Condvar::new()));
        state.waiting.push_back(Arc::clone(&called));
        loop {
            let is_first = state.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &called));
            if is_first && state.has_free(self.most) {
                state.waiting.pop_front();
                let slot = state.begin();
                state.call_first();
                return Some(slot);
            }
            let end = joined + WAIT_MAX;
            if Instant::now() >= end {
                state.waiting.retain(|other| !Arc::ptr_eq(other, &called));
                state.call_first();
                return None;
            }
            // Only the first waiter has to detect that a slot can be revoked.
            let oldest = state.held.iter().map(|held| held.since).min().filter(|_| is_first);
            called.wait_until(&mut state, oldest.map_or(end, |since| end.min(since + SLICE_MAX)));
        }
    }
}

impl State {
    fn begin(&mut self) -> RunSlot {
        self.next += 1;
        self.held.push(Held { id: self.next, since: Instant::now() });
        RunSlot(self.next)
    }

    fn release(&mut self, slot: RunSlot) {
        if let Some(place) = self.held.iter().position(|held| held.id == slot.0) {
            self.held.swap_remove(place);
            self.call_first();
        }
    }

    /// Returns true if a slot is free, after it has revoked those that are too old.
    fn has_free(&mut self, most: usize) -> bool {
        if self.held.len() >= most {
            self.held.retain(|held| held.since.elapsed() < SLICE_MAX);
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

    fn waiting(slots: &RunSlots, count: usize) {
        while slots.state.lock().waiting.len() != count {
            thread::yield_now();
        }
    }

    #[test]
    fn a_slot_is_kept_during_its_time_slice_or_while_nothing_waits() {
        let slots = RunSlots::new(1);
        let first = slots.next(None);
        assert_eq!(slots.next(first), first);
        compute(SLICE);
        assert_eq!(slots.next(first), first, "nothing waits");
        slots.release(first.unwrap());
        assert_ne!(slots.next(first), first, "it was released");
    }

    #[test]
    fn works_share_the_slots() {
        let slots = RunSlots::new(2);
        let active = AtomicUsize::new(0);
        thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    let (mut slot, mut steps) = (None, 0);
                    while steps < 20 {
                        slot = slots.next(slot);
                        if slot.is_some() {
                            // A slot is revoked from a thread that gets no processor.
                            let others = active.fetch_add(1, Ordering::Relaxed);
                            assert!(others < 6);
                            compute(SLICE / 10);
                            active.fetch_sub(1, Ordering::Relaxed);
                            steps += 1;
                        }
                    }
                    slots.release(slot.unwrap());
                });
            }
        });
        let state = slots.state.lock();
        assert!(state.held.is_empty() && state.waiting.is_empty());
    }

    #[test]
    fn the_slot_of_a_work_that_waits_is_revoked() {
        let slots = RunSlots::new(1);
        let blocked = slots.next(None);
        let taken = slots.next(None);
        assert!(taken.is_some(), "within the time that a work waits");
        assert_ne!(taken, blocked);
        slots.release(blocked.unwrap());
        assert_eq!(slots.state.lock().held.len(), 1, "the release of a revoked slot has no effect");
    }

    #[test]
    fn a_released_slot_goes_to_the_first_waiter() {
        let slots = RunSlots::new(1);
        let held = slots.next(None).unwrap();
        thread::scope(|scope| {
            let first = scope.spawn(|| slots.next(None));
            waiting(&slots, 1);
            slots.release(held);
            let first = first.join().unwrap().unwrap();
            slots.release(first);
        });
        assert!(slots.state.lock().held.is_empty());
    }

    #[test]
    fn a_work_does_not_wait_for_long() {
        let slots = RunSlots::new(1);
        thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let mut slot = slots.next(None);
                let begun = Instant::now();
                // Renewed so often that it is never too old; the slot is not released, against the rules.
                while begun.elapsed() < 3 * WAIT_MAX {
                    slots.state.lock().held.iter_mut().for_each(|held| held.since = Instant::now());
                    thread::yield_now();
                }
                slot = slot.filter(|_| true);
                slots.release(slot.unwrap());
            });
            while slots.state.lock().held.is_empty() {
                thread::yield_now();
            }
            assert_eq!(slots.next(None), None);
            holder.join().unwrap();
        });
        assert!(slots.state.lock().waiting.is_empty());
    }
}
