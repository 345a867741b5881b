//! Times of update sequences: the [`CommitClock`], which the server provides, and the reads of the stored record. The
//! leader of the update queue writes it (`update::time`).

use settee_storage::Keyspace;

use crate::time_seq::{TimeSeq, interval_of};
use crate::{Catalog, ReadView, Result, keys};

/// Source of the times of commits.
pub struct CommitClock {
    /// Returns seconds since 1970. It is read once per commit.
    pub now_s: Box<dyn Fn() -> u64 + Send + Sync>,
    /// Returns the earliest time that is recorded, in seconds since 1970. The clock of a machine that has just started
    /// may show an earlier one.
    pub earliest_s: Box<dyn Fn() -> u64 + Send + Sync>,
}

impl CommitClock {
    /// Returns the number of the interval to which a commit belongs after one in the interval `latest` (0: unknown).
    /// The clock cannot go back beyond `latest`. Returns `None` before the earliest time.
    pub(crate) fn interval(&self, latest: u64) -> Option<u64> {
        let now_s = (self.now_s)();
        let interval = interval_of(now_s);
        if latest > 0 && interval <= latest {
            return Some(latest);
        }
        (now_s >= (self.earliest_s)()).then_some(interval)
    }
}

impl Catalog {
    /// Sets the source of the times of commits. Without one, no times are recorded. Only the first call has an effect.
    pub fn set_clock(&self, clock: CommitClock) {
        // A second node on this catalog has the same clock.
        let _ = self.activity().clock.set(clock);
    }
}

impl ReadView {
    /// Returns an update sequence before all changes that were committed at `time_s` (seconds since 1970) or later, by
    /// the clocks of the writers. It is the start of an interval of at least three hours, so earlier changes may follow
    /// it; it is 0 before the first recorded interval.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn seq_before(&self, time_s: u64) -> Result<u64> {
        let meta = self.meta()?;
        let seq = self.time_seq()?.before(time_s, meta.time_interval);
        Ok(seq.map_or(meta.update_seq, |seq| seq.min(meta.update_seq)))
    }

    /// Returns the start of each recorded interval, in seconds since 1970, and the number of changes in it, oldest
    /// first. Changes before the first interval are counted at the time 0.
    ///
    /// # Errors
    /// Fails if the engine fails.
    pub fn changes_by_time(&self) -> Result<Vec<(u64, u64)>> {
        let update_seq = self.update_seq()?;
        Ok(self.time_seq()?.histogram(update_seq))
    }

    fn time_seq(&self) -> Result<TimeSeq> {
        match self.snapshot().get(Keyspace::Catalog, keys::TIME_SEQ)? {
            Some(bytes) => Ok(TimeSeq::decode(&bytes)?),
            None => Ok(TimeSeq::default()),
        }
    }
}
