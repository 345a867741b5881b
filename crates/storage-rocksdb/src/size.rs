//! How much space a shard takes: [`in_files`], and [`Recent`] for what is still in memtables, which the store cannot
//! tell for a range of keys. Both are estimates.
//!
//! All memtables together hold the bytes written last, as many as they have memory for; so a shard's share of these
//! is what it wrote while the whole store wrote them. Overwritten entries count twice until they are flushed.

use std::collections::VecDeque;

use rocksdb::Range;
use settee_storage::{Keyspace, Shard};

use crate::{Database, column, keys};

/// The size of the sorted files within the shard's range, and a share of the blob files. The store knows the size of
/// the latter per keyspace only; large values are taken to be spread as the bytes that point to them, which can be wrong by
/// half when some shards are in upper levels and others in the last one.
pub(crate) fn in_files(database: &Database, shard: Shard, space: Keyspace) -> u64 {
    let (start, end) = (keys::prefix(shard), keys::end(shard));
    let sizes = database.get_approximate_sizes_cf(column(database, space), &[Range::new(&start, &end)]);
    let files: u64 = sizes.iter().sum();
    let blobs = property(database, space, "rocksdb.live-blob-file-size");
    let all_files = property(database, space, "rocksdb.live-sst-files-size");
    if blobs == 0 || all_files == 0 {
        return files;
    }
    let share = (files as f64 / all_files as f64).min(1.0);
    files + (blobs as f64 * share) as u64
}

/// A number that the store keeps for a keyspace. One that cannot be read is 0: they are estimates for people.
pub(crate) fn property(database: &Database, space: Keyspace, name: &str) -> u64 {
    database.property_int_value_cf(column(database, space), name).ok().flatten().unwrap_or(0)
}

/// Bytes written within one step of the store's total are counted together.
const STEP_BYTES: u64 = 1 << 20;
/// Older marks are forgotten, so that a shard costs at most a few KB; this many steps exceed any sensible buffer.
const MAX_MARKS: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// The store's total after a write, and the shard's bytes in writes up to there since the mark before.
    marks: VecDeque<(u64, u64)>,
}

impl Recent {
    /// Notes `bytes` written to the shard, when the store's total became `total`.
    pub(crate) fn wrote(&mut self, total: u64, bytes: u64) {
        match self.marks.back_mut() {
            Some((last, sum)) if *last / STEP_BYTES == total / STEP_BYTES => {
                *last = (*last).max(total);
                *sum += bytes;
            }
            Some(_) | None => self.marks.push_back((total, bytes)),
        }
        if self.marks.len() > MAX_MARKS {
            self.marks.pop_front();
        }
    }

    /// Forgets what was written until the store's total was `total`: all of it is in files.
    pub(crate) fn flushed(&mut self, total: u64) {
        self.marks.retain(|(at, _)| *at > total);
    }

    /// The number of the that bytes are among the last `buffered` of the `total` bytes written to the store.
    pub(crate) fn within(&self, total: u64, buffered: u64) -> u64 {
        let flushed = total.saturating_sub(buffered);
        self.marks.iter().filter(|(at, _)| *at > flushed).map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_only_what_memory_can_hold() {
        let mut recent = Recent::default();
        recent.wrote(10, 10);
        recent.wrote(5 * STEP_BYTES, 100);
        recent.wrote(9 * STEP_BYTES, 1000);
        let total = 9 * STEP_BYTES;
        assert_eq!(recent.within(total, 0), 0);
        assert_eq!(recent.within(total, STEP_BYTES), 1000);
        assert_eq!(recent.within(total, 5 * STEP_BYTES), 1100);
        assert_eq!(recent.within(total, u64::MAX), 1110);
        recent.flushed(5 * STEP_BYTES);
        assert_eq!(recent.within(total, u64::MAX), 1000);
    }

    #[test]
    fn stays_small() {
        let mut recent = Recent::default();
        for step in 0..10 * MAX_MARKS as u64 {
            recent.wrote(step * STEP_BYTES, 1);
        }
        assert_eq!(recent.marks.len(), MAX_MARKS);
    }
}
