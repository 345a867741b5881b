//! The time of a commit: the group that starts an interval stores the update sequence before it. The counters of the
//! database contain the interval of the latest commit, so the other groups neither read nor write the record.

use settee_storage::Keyspace;

use super::group::Group;
use crate::time_seq::TimeSeq;
use crate::{Result, keys};

impl Group<'_> {
    /// Adds the time of the group to the batch if the group is the first one in its interval, and removes the recorded
    /// times if a work requires it. Must be called after all works.
    pub(super) fn record_time(&mut self) -> Result<()> {
        let seq = self.writer.meta.update_seq;
        if self.forgets_times {
            self.meta.time_interval = 0;
        }
        if self.meta.update_seq != seq {
            let latest = self.meta.time_interval;
            match self.database.clock().and_then(|clock| clock.interval(latest)) {
                None => self.meta.time_interval = 0,
                Some(interval) if interval == latest => {}
                // Earlier changes without a recorded time may belong to this interval. Dates in it must not select a
                // later sequence, so the next interval is recorded instead.
                Some(interval) if latest == 0 && seq > 0 => return self.put_interval(interval + 1, seq),
                Some(interval) => return self.put_interval(interval, seq),
            }
        }
        if self.forgets_times {
            self.batch.delete(Keyspace::Catalog, keys::TIME_SEQ);
        }
        Ok(())
    }

    fn put_interval(&mut self, interval: u64, seq: u64) -> Result<()> {
        let stored = match self.forgets_times || seq == 0 {
            true => None,
            false => self.snapshot.get(Keyspace::Catalog, keys::TIME_SEQ)?,
        };
        // A damaged record is replaced, because it must not prevent writes and an empty one is valid.
        let mut times = stored.and_then(|bytes| TimeSeq::decode(&bytes).ok()).unwrap_or_default();
        times.record(interval, seq);
        let mut record = Vec::new();
        times.encode(&mut record);
        self.batch.put(Keyspace::Catalog, keys::TIME_SEQ, &record);
        self.meta.time_interval = times.newest().unwrap_or_default();
        Ok(())
    }
}
