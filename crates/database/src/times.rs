//! Times of update sequences: the [`CommitClock`], which the server provides. The leader of the update queue stores them
//! (`update::time`).

use crate::time_seq::interval_of;

/// Source of the times of commits.
pub struct CommitClock {
    /// Returns seconds since 1970. It is read once per commit.
    pub now_s: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Earliest recorded time, in seconds since 1970, because the clock of a machine that has just started may be
    /// wrong.
    pub earliest_s: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl CommitClock {
    /// Returns the interval of a commit after one in the interval `latest` (0 if that time was not recorded). The clock
    /// cannot go back beyond `latest`. Returns `None` before the earliest time.
    pub(crate) fn interval(&self, latest: u64) -> Option<u64> {
        let now_s = (self.now_s)();
        let interval = interval_of(now_s);
        if latest > 0 && interval <= latest {
            return Some(latest);
        }
        (now_s >= (self.earliest_s)()).then_some(interval)
    }
}
