//! [`Load`]: decides if this node is too busy to write for all others, and if a busy node has reported that
//! recently.
//!
//! The criterion is processor time, because a node that waits for PostgreSQL is not busy. The time is measured
//! only on request.

use std::sync::Arc;

use parking_lot::Mutex;

/// Returns the processor time that this process and its workers have used, in milliseconds.
pub type ProcessorTime = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Percentage of the processors beyond which a node is busy.
const BUSY_PERCENT: u64 = 70;

/// Duration of a measurement, and of the validity of its result.
const SPAN_MS: u64 = 1000;

/// Time for which writes stay distributed after a node was busy. It is long because each change of the
/// preferred node causes commit conflicts.
pub(crate) const SPREAD_MS: u64 = 5 * 60 * 1000;

pub(crate) struct Load {
    processor_time: ProcessorTime,
    processors: u64,
    now_ms: Box<dyn Fn() -> u64 + Send + Sync>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Start of the current measurement, and the processor time used until then.
    begun: Option<(u64, u64)>,
    /// Result of the last complete measurement.
    is_busy: bool,
    /// Time until which writes are distributed.
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

    /// Returns true if this node is busy. After a pause without calls the result covers the pause.
    pub(crate) fn is_busy(&self) -> bool {
        let now_ms = (self.now_ms)();
        let mut state = self.state.lock();
        let span = state.begun.map(|(begun_ms, before_ms)| (now_ms.saturating_sub(begun_ms), before_ms));
        if span.is_none_or(|(span_ms, _)| span_ms >= SPAN_MS) {
            let taken_ms = (self.processor_time)();
            state.is_busy = span.is_some_and(|(span_ms, before_ms)| {
                // The time of a process that is just ending can be missing, so the sum can decrease.
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

    /// Records that the preferred node has reported that it is busy.
    pub(crate) fn note_busy_node(&self) {
        self.state.lock().spread_until_ms = (self.now_ms)().saturating_add(SPREAD_MS);
    }

    /// Returns true if the preferred node depends on the database.
    pub(crate) fn is_spread(&self) -> bool {
        (self.now_ms)() < self.state.lock().spread_until_ms
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    /// A node with a given number of processors. The test sets its clock and its processor time, in
    /// milliseconds.
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
        assert!(!machine.load.is_busy(), "nothing was measured");
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
    fn writes_are_distributed_for_a_while_after_a_busy_node() {
        let machine = Machine::new(1);
        assert!(!machine.load.is_spread());
        machine.load.note_busy_node();
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
