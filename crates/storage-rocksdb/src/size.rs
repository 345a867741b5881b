//! Estimates of the size of a shard: [`in_files`], and [`RecentSizes`] for data in memtables, whose size RocksDB cannot
//! determine for a range of keys. All memtables together hold the most recently written bytes. Therefore a shard's
//! share of these is the amount that it wrote during the same period. Overwritten entries count twice until then.

use std::collections::VecDeque;

use rocksdb::Range;
use settee_storage::{Keyspace, Shard};

use crate::{Database, column, keys};

/// Size of the sorted files within the shard's range, and a share of the blob files, whose size RocksDB reports per
/// keyspace only. The share can be wrong by half.
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

/// A property that cannot be read is 0, because all are estimates for operators.
pub(crate) fn property(database: &Database, space: Keyspace, name: &str) -> u64 {
    database.property_int_value_cf(column(database, space), name).ok().flatten().unwrap_or(0)
}

const STEP_BYTES: u64 = 1 << 20;
/// A shard needs at most a few KB; this number of steps exceeds any sensible buffer.
const SAMPLES_MAX: usize = 128;

#[derive(Debug, Default)]
pub(crate) struct RecentSizes {
    samples: VecDeque<(u64, u64)>,
}

impl RecentSizes {
    pub(crate) fn wrote(&mut self, total: u64, bytes: u64) {
        match self.samples.back_mut() {
            Some((last, sum)) if *last / STEP_BYTES == total / STEP_BYTES => {
                *last = (*last).max(total);
                *sum += bytes;
            }
            Some(_) | None => self.samples.push_back((total, bytes)),
        }
        if self.samples.len() > SAMPLES_MAX {
            self.samples.pop_front();
        }
    }

    /// Removes the marks up to the store's total `total`, because these writes are in files.
    pub(crate) fn flushed(&mut self, total: u64) {
        self.samples.retain(|(at, _)| *at > total);
    }

    /// Returns the shard's bytes among the last `buffered` of the `total` bytes written to the store.
    pub(crate) fn within(&self, total: u64, buffered: u64) -> u64 {
        let flushed = total.saturating_sub(buffered);
        self.samples.iter().filter(|(at, _)| *at > flushed).map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_at_most_the_capacity_of_memory() {
        let mut recent = RecentSizes::default();
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
        let mut recent = RecentSizes::default();
        for step in 0..10 * SAMPLES_MAX as u64 {
            recent.wrote(step * STEP_BYTES, 1);
        }
        assert_eq!(recent.samples.len(), SAMPLES_MAX);
    }
}
