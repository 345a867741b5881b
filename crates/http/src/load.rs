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
    pub(crate) fn new(processors: usize, processor_time: ProcessorTime) -> Self {
        Self { processor_time, processors: processors.max(1) as u64, state: Mutex::default() }
    }

    /// Whether this node is busy at `now_ms`. The first answer after a while without questions tells of that while.
    pub(crate) fn is_busy(&self, now_ms: u64) -> bool {
        let mut state = self.state.lock();
        let span_ms = state.begun.map(|(begun_ms, _)| now_ms.saturating_sub(begun_ms));
        if span_ms.is_none_or(|span_ms| span_ms >= SPAN_MS) {
            let taken_ms = (self.processor_time)();
            if let (Some(span_ms), Some((_, before_ms))) = (span_ms, state.begun) {
                // Less than before where a process has ended that worked for this one.
                let used_ms = taken_ms.saturating_sub(before_ms);
                state.is_busy = used_ms.saturating_mul(100) > span_ms.saturating_mul(self.processors * BUSY_PERCENT);
            }
            state.begun = Some((now_ms, taken_ms));
        }
        if state.is_busy {
            state.spread_until_ms = now_ms.saturating_add(SPREAD_MS);
        }
        state.is_busy
    }

    /// A node that writes for others has said that it is busy.
    pub(crate) fn hear_of_busy(&self, now_ms: u64) {
        self.state.lock().spread_until_ms = now_ms.saturating_add(SPREAD_MS);
    }

    /// Whether the writes to different databases are for different nodes.
    pub(crate) fn is_spread(&self, now_ms: u64) -> bool {
        now_ms < self.state.lock().spread_until_ms
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn load(processors: usize) -> (Arc<AtomicU64>, Load) {
        let taken_ms = Arc::new(AtomicU64::new(50_000));
        let source = Arc::clone(&taken_ms);
        (taken_ms, Load::new(processors, Arc::new(move || source.load(Ordering::Relaxed))))
    }

    #[test]
    fn a_node_is_busy_that_takes_most_of_its_processors() {
        let (taken_ms, load) = load(4);
        let mut now_ms = 7_000;
        assert!(!load.is_busy(now_ms), "nothing is known");
        for (used_ms, span_ms, is_busy) in
            [(2_800, 1_000, false), (2_801, 1_000, true), (0, 999, true), (0, 1, false), (5_700, 2_000, true)]
        {
            taken_ms.fetch_add(used_ms, Ordering::Relaxed);
            now_ms += span_ms;
            assert_eq!(load.is_busy(now_ms), is_busy, "{used_ms} ms in {span_ms} ms");
        }
        taken_ms.store(0, Ordering::Relaxed);
        assert!(!load.is_busy(now_ms + SPAN_MS), "processes have ended");
    }

    #[test]
    fn writes_are_spread_for_a_while_after_somebody_was_busy() {
        let (taken_ms, load) = load(1);
        assert!(!load.is_spread(0));
        load.hear_of_busy(10);
        for (now_ms, is_spread) in [(10, true), (9 + SPREAD_MS, true), (10 + SPREAD_MS, false)] {
            assert_eq!(load.is_spread(now_ms), is_spread, "{now_ms}");
        }
        let now_ms = 2 * SPREAD_MS;
        assert!(!load.is_busy(now_ms) && !load.is_spread(now_ms));
        taken_ms.fetch_add(SPAN_MS, Ordering::Relaxed);
        assert!(load.is_busy(now_ms + SPAN_MS) && load.is_spread(now_ms + SPAN_MS), "itself");
    }
}
