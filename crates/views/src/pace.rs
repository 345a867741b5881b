//! [`Pace`] limits background builds to a budget and stops them while a client waits for another build.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::clock::Clock;

/// Purpose of an index update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Urgency {
    /// The update serves a waiting client.
    Client,
    /// The update serves future queries.
    Background,
}

/// Share of the machine for background builds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Percentage of time in which each thread of a background build works.
    pub cpu_percent: u64,
    /// Maximum number of document bytes that each thread reads per second.
    pub bytes_per_s: u64,
}

impl Budget {
    /// Budget without limits.
    pub const UNLIMITED: Self = Self { cpu_percent: 100, bytes_per_s: u64::MAX };

    fn pause_us(self, worked_us: u64, bytes: u64) -> u64 {
        let percent = self.cpu_percent.clamp(1, 100);
        let for_time = worked_us.saturating_mul(100 - percent) / percent;
        let at_speed = u128::from(bytes) * 1_000_000 / u128::from(self.bytes_per_s.max(1));
        for_time.max(u64::try_from(at_speed).unwrap_or(u64::MAX).saturating_sub(worked_us))
    }
}

/// State of a thread between two pauses.
#[derive(Clone, Copy, Debug, Default)]
pub struct PaceState {
    resumed_us: Option<u64>,
}

/// Pacing of all builds of a server.
#[derive(Debug)]
pub struct Pace {
    clock: Clock,
    cpu_percent: AtomicU64,
    bytes_per_s: AtomicU64,
    client_builds: Mutex<u64>,
    changed: Condvar,
}

/// Interval of the checks of `is_over`.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

impl Pace {
    pub(crate) fn new(clock: Clock) -> Self {
        let Budget { cpu_percent, bytes_per_s } = Budget::UNLIMITED;
        Self {
            clock,
            cpu_percent: AtomicU64::new(cpu_percent),
            bytes_per_s: AtomicU64::new(bytes_per_s),
            client_builds: Mutex::new(0),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn set_budget(&self, budget: Budget) {
        self.cpu_percent.store(budget.cpu_percent, Ordering::Relaxed);
        self.bytes_per_s.store(budget.bytes_per_s, Ordering::Relaxed);
    }

    fn budget(&self) -> Budget {
        Budget {
            cpu_percent: self.cpu_percent.load(Ordering::Relaxed),
            bytes_per_s: self.bytes_per_s.load(Ordering::Relaxed),
        }
    }

    /// Registers a build for a waiting client until the result is dropped; `None` for a background build.
    #[must_use]
    pub fn register(&self, urgency: Urgency) -> Option<ClientBuildGuard<'_>> {
        (urgency == Urgency::Client).then(|| {
            *self.client_builds.lock() += 1;
            ClientBuildGuard(self)
        })
    }

    /// Pauses a background thread that has read `bytes` since the last call; ends early when `is_over` returns true.
    pub fn pause(&self, pace_state: &mut PaceState, bytes: u64, is_over: &dyn Fn() -> bool) {
        let now_us = self.clock.now_us();
        let worked_us = now_us.saturating_sub(pace_state.resumed_us.unwrap_or(now_us));
        let until_us = now_us.saturating_add(self.budget().pause_us(worked_us, bytes));
        let mut client_builds = self.client_builds.lock();
        loop {
            let left_us = until_us.saturating_sub(self.clock.now_us());
            if is_over() || *client_builds == 0 && left_us == 0 {
                break;
            }
            let left = if left_us == 0 { CHECK_INTERVAL } else { CHECK_INTERVAL.min(Duration::from_micros(left_us)) };
            self.changed.wait_for(&mut client_builds, left);
        }
        drop(client_builds);
        pace_state.resumed_us = Some(self.clock.now_us());
    }
}

/// A build for a waiting client.
#[derive(Debug)]
pub struct ClientBuildGuard<'a>(&'a Pace);

impl Drop for ClientBuildGuard<'_> {
    fn drop(&mut self) {
        *self.0.client_builds.lock() -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use super::*;

    #[test]
    fn pauses_follow_from_the_budget() {
        let check = |cpu_percent, bytes_per_s, worked_us, bytes, expected| {
            assert_eq!(Budget { cpu_percent, bytes_per_s }.pause_us(worked_us, bytes), expected);
        };
        check(100, u64::MAX, 5_000, 1 << 30, 0);
        check(50, u64::MAX, 5_000, 1 << 30, 5_000);
        check(25, u64::MAX, 5_000, 0, 15_000);
        check(0, u64::MAX, 1_000, 0, 99_000);
        check(100, 1_000_000, 2_000, 10_000, 8_000);
        check(100, 1_000_000, 20_000, 10_000, 0);
        check(50, 1_000_000, 2_000, 10_000, 8_000);
        check(100, 0, 0, 1, 1_000_000);
    }

    #[test]
    fn a_client_goes_first() {
        let pace = Arc::new(Pace::new(Clock::stopped()));
        assert!(pace.register(Urgency::Background).is_none());
        pace.pause(&mut PaceState::default(), 0, &|| false);
        let client_build = pace.register(Urgency::Client).unwrap();
        let has_resumed = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let paused = scope.spawn(|| {
                pace.pause(&mut PaceState::default(), 0, &|| false);
                has_resumed.store(true, Ordering::Relaxed);
            });
            pace.pause(&mut PaceState::default(), 0, &|| true);
            assert!(!has_resumed.load(Ordering::Relaxed));
            drop(client_build);
            paused.join().unwrap();
        });
        assert!(has_resumed.load(Ordering::Relaxed));
    }

    #[test]
    fn a_thread_pauses_as_long_as_it_worked_with_half_of_the_time() {
        let now = Arc::new(AtomicU64::new(0));
        let ticking = Arc::clone(&now);
        let pace = Pace::new(Clock::new(move || ticking.fetch_add(100, Ordering::Relaxed)));
        pace.set_budget(Budget { cpu_percent: 50, ..Budget::UNLIMITED });
        let mut pace_state = PaceState::default();
        pace.pause(&mut pace_state, 0, &|| false);
        now.fetch_add(40_000, Ordering::Relaxed);
        let before = now.load(Ordering::Relaxed);
        pace.pause(&mut pace_state, 0, &|| false);
        assert!(now.load(Ordering::Relaxed) - before >= 40_000);
    }
}
