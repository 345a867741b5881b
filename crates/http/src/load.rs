//! [`Load`]: whether this node has so much to do that it should not write for all others, and whether one that did has said so of late.
//!
//! It is the time of processors that counts: whoever waits for PostgreSQL has nothing to do. Nothing is measured unless somebody asks.

use std::sync::Arc;

use parking_lot::Mutex;

/// Tells how much time of processors this process and those that work for it have taken, in milliseconds.
pub type ProcessorTime = Arc<dyn Fn() -> u64 + Send + Sync>;

/// A node is busy when it takes more than so much of its processors.
const BUSY_PERCENT: u64 = 70;

/// What was measured holds for so long.
const SPAN_MS: u64 = 1000;

/// For so long writes are spread after somebody was busy. Each change of who writes costs some commits that conflict, so there must not be many.
pub(crate) const SPREAD_MS: u64 = 5 * 60 * 1000;

/// How busy this node is, and what others have said.
pub(crate) struct Load {
    processor_time: ProcessorTime,
    processors: u64,
    /// A clock that is never set.
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// When the span began that is being measured, and what had been taken then.
    begun: Option<(u64, u64)>,
    /// What the last whole span has shown.
    is_busy: bool,
    /// Until then writes are spread.
    spread_until_ms: u64,
}

impl Load {
    pub(crate) fn new(
        processors: usize,
        processor_time: ProcessorTime,
        now_ms: impl Fn() -> u64 + Send + Sync + 'static,
    ) -> Self {
        let (processors, now_ms) = (processors.max(1) as u64, Box::new(now_ms));
        Self { processor_time, processors, now_ms, state: Mutex::default() }
    }

    /// Whether this node is busy. The first answer after a while without questions tells of that while.
    pub(crate) fn is_busy(&self) -> bool {
        let now_ms = (self.now_ms)();
        let mut state = self.state.lock();
        let span = state.begun.map(|(begun_ms, before_ms)| (now_ms.saturating_sub(begun_ms), before_ms));
        if span.is_none_or(|(span_ms, _)| span_ms >= SPAN_MS) {
            let taken_ms = (self.processor_time)();
            state.is_busy = span.is_some_and(|(span_ms, before_ms)| {
                // What was counted of a process may be missing in the moment in which that ends.
                let used_ms = taken_ms.saturating_sub(before_ms);
                used_ms.saturating_mul(100) > span_ms.saturating_mul(self.processors * BUSY_PERCENT)
            });
            state.begun = Some((now_ms, taken_ms));
        }
        if state.is_busy {
            state.spread_until_ms = now_ms.saturating_add(SPREAD_MS);
        }
        state.is_busy
    }

    /// A node that writes for others has said that it is busy.
    pub(crate) fn hear_of_busy(&self) {
        self.state.lock().spread_until_ms = (self.now_ms)().saturating_add(SPREAD_MS);
    }

    /// Whether the writes to different databases are for different nodes.
    pub(crate) fn is_spread(&self) -> bool {
        (self.now_ms)() < self.state.lock().spread_until_ms
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A node on a machine with so many processors. The test sets its clock and what it has taken, in milliseconds.
    struct Machine {
        now: Arc<AtomicU64>,
        taken: Arc<AtomicU64>,
        load: Load,
    }

    impl Machine {
        fn new(processors: usize) -> Self {
            let (now, taken) = (Arc::new(AtomicU64::new(7_000)), Arc::new(AtomicU64::new(50_000)));
            let (clock, source) = (Arc::clone(&now), Arc::clone(&taken));
            let processor_time = Arc::new(move || source.load(Ordering::Relaxed));
            let load = Load::new(processors, processor_time, move || clock.load(Ordering::Relaxed));
            Self { now, taken, load }
        }

        fn pass(&self, span_ms: u64) {
            self.now.fetch_add(span_ms, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_node_is_busy_that_takes_most_of_its_processors() {
        let machine = Machine::new(4);
        assert!(!machine.load.is_busy(), "nothing is known");
        for (used_ms, span_ms, is_busy) in
            [(2_800, 1_000, false), (2_801, 1_000, true), (0, 999, true), (0, 1, false), (5_700, 2_000, true)]
        {
            machine.taken.fetch_add(used_ms, Ordering::Relaxed);
            machine.pass(span_ms);
            assert_eq!(machine.load.is_busy(), is_busy, "{used_ms} ms in {span_ms} ms");
        }
        machine.taken.store(0, Ordering::Relaxed);
        machine.pass(SPAN_MS);
        assert!(!machine.load.is_busy(), "a process has just ended");
    }

    #[test]
    fn writes_are_spread_for_a_while_after_somebody_was_busy() {
        let machine = Machine::new(1);
        assert!(!machine.load.is_spread());
        machine.load.hear_of_busy();
        assert!(machine.load.is_spread());
        machine.pass(SPREAD_MS - 1);
        assert!(machine.load.is_spread());
        machine.pass(1);
        assert!(!machine.load.is_spread() && !machine.load.is_busy());
        machine.taken.fetch_add(SPAN_MS, Ordering::Relaxed);
        machine.pass(SPAN_MS);
        assert!(machine.load.is_busy() && machine.load.is_spread(), "itself");
    }
}
