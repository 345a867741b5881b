//! Stored times of update sequences.

use settee_storage::Keyspace;

use super::ReadView;
use crate::time_seq::TimeSeq;
use crate::{Result, keys};

impl ReadView<'_> {
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
