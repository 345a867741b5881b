//! [`RunSlots`]: the long works of a pool share the processors by cooperative scheduling. The operating system does not
//! preempt a thread of low priority at once when another one wakes up: with thirty runnable threads on two processors,
//! every wake-up of a short request waited for some milliseconds. Long works therefore hold a slot while they compute,
//! and there are as many slots as processors.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

pub(super) const TIME_SLICE: Duration = Duration::from_millis(2);

/// Time after which a slot is revoked, because its holder probably waits for a disk, a process or its client.
const REVOKE_AFTER: Duration = Duration::from_millis(10);

/// Maximum time that a work waits. It then computes one step without a slot, and detects that its client has
/// disconnected.
const SLOT_TIMEOUT: Duration = Duration::from_millis(50);

pub(super) struct RunSlots {
    slots_max: usize,
    /// [`REVOKE_AFTER`] except in tests.
    revoke_after: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    held: Vec<Held>,
    /// In order of arrival.
    waiting: VecDeque<Arc<Condvar>>,
}

struct Held {
    id: u64,
    since: Instant,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunSlot(u64);

impl RunSlots {
    pub(super) fn new(slots_max: usize) -> Self {
        Self { slots_max: slots_max.max(1), revoke_after: REVOKE_AFTER, state: Mutex::default() }
    }

    /// Keeps `slot` during its time slice, or waits for another one. Must be called between two steps of a work.
    /// Returns `None` after [`SLOT_TIMEOUT`].
    pub(super) fn next(&self, slot: Option<RunSlot>) -> Option<RunSlot> {
        let mut state = self.state.lock();
        let nothing_waits = state.waiting.is_empty();
        if let Some(held) = slot.and_then(|slot| state.held.iter_mut().find(|held| held.id == slot.0)) {
            if nothing_waits {
                held.since = Instant::now();
            }
            if held.since.elapsed() < TIME_SLICE {
                return slot;
            }
            slot.iter().for_each(|slot| state.release(*slot));
        } else if nothing_waits && state.held.len() < self.slots_max {
            return Some(state.begin());
        }
        self.wait(state)
    }

    /// Must be called at the end of the work, and before the work waits for anything but a processor.
    pub(super) fn release(&self, slot: RunSlot) {
        self.state.lock().release(slot);
    }

    fn wait(&self, mut state: MutexGuard<'_, State>) -> Option<RunSlot> {
        let (joined, wakeup) = (Instant::now(), Arc::new(Condvar::new()));
        state.waiting.push_back(Arc::clone(&wakeup));
        loop {
            let is_first = state.waiting.front().is_some_and(|first| Arc::ptr_eq(first, &wakeup));
            if is_first && state.has_free(self.slots_max, self.revoke_after) {
                state.waiting.pop_front();
                let slot = state.begin();
                state.wake_first_waiter();
                return Some(slot);
            }
            let end = joined + SLOT_TIMEOUT;
            if Instant::now() >= end {
                state.waiting.retain(|other| !Arc::ptr_eq(other, &wakeup));
                state.wake_first_waiter();
                return None;
            }
            // Only the first waiter detects that a slot can be revoked.
            let oldest = state.held.iter().map(|held| held.since).min().filter(|_| is_first);
            wakeup.wait_until(&mut state, oldest.map_or(end, |since| end.min(since + self.revoke_after)));
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
        if let Some(position) = self.held.iter().position(|held| held.id == slot.0) {
            self.held.swap_remove(position);
            self.wake_first_waiter();
        }
    }

    fn has_free(&mut self, slots_max: usize, revoke_after: Duration) -> bool {
        if self.held.len() >= slots_max {
            self.held.retain(|held| held.since.elapsed() < revoke_after);
        }
        self.held.len() < slots_max
    }

    fn wake_first_waiter(&self) {
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
        compute(TIME_SLICE);
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
                            let others = active.fetch_add(1, Ordering::Relaxed);
                            assert!(others < 6);
                            compute(TIME_SLICE / 10);
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
        let slots = RunSlots { revoke_after: Duration::from_secs(3600), ..RunSlots::new(1) };
        let slot = slots.next(None).unwrap();
        assert_eq!(slots.next(None), None);
        slots.release(slot);
        assert!(slots.state.lock().waiting.is_empty());
    }
}
