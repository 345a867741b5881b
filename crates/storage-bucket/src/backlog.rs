//! [`Backlog`]: the writes of a group that are not durable yet, for the age of the oldest one.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Writes within this time have one entry.
const RESOLUTION: Duration = Duration::from_millis(50);

/// Numbers and times of some writes. The library numbers writes in order.
#[derive(Default)]
pub(crate) struct Backlog {
    some: VecDeque<(u64, Instant)>,
    last: u64,
}

impl Backlog {
    pub(crate) fn add(&mut self, number: u64, at: Instant) {
        if self.some.back().is_none_or(|(_, last)| at.saturating_duration_since(*last) >= RESOLUTION) {
            self.some.push_back((number, at));
        }
        self.last = self.last.max(number);
    }

    /// Returns the time of the oldest write after `durable`, or up to [`RESOLUTION`] before. `None` if all are durable.
    pub(crate) fn oldest(&mut self, durable: u64) -> Option<Instant> {
        if self.last <= durable {
            self.some.clear();
        }
        while self.some.get(1).is_some_and(|(number, _)| *number <= durable + 1) {
            self.some.pop_front();
        }
        self.some.front().map(|(_, at)| *at)
    }
}

#[cfg(test)]
mod tests {
    use settee_storage::conformance::Generator;

    use super::*;

    #[test]
    fn the_age_is_that_of_the_oldest_write_that_is_not_durable() {
        let mut random = Generator::new(7);
        let (started, mut at, mut durable) = (Instant::now(), Instant::now(), 0);
        let (mut backlog, mut times) = (Backlog::default(), Vec::new());
        for number in 1..=5_000 {
            at += Duration::from_millis(random.below(30) as u64);
            backlog.add(number, at);
            times.push(at);
            if random.below(20) == 0 {
                durable += random.below((number - durable) as usize + 1) as u64;
            }
            let expected = times.get(durable as usize).copied();
            let found = backlog.oldest(durable);
            assert_eq!(found.is_some(), expected.is_some(), "{number} {durable}");
            let (found, expected) = (found.unwrap_or(started), expected.unwrap_or(started));
            assert!(found <= expected && expected - found < RESOLUTION, "{number} {durable}");
        }
        assert_eq!(backlog.oldest(5_000), None);
        assert!(backlog.some.is_empty());
    }
}
