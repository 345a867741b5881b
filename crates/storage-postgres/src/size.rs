//! [`Sizes`]: approximate sizes of shards. PostgreSQL sums them row by row, so a result is cached for a time
//! proportional to its cost, and the bytes of later commits are added.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::Shard;

/// A result is cached for this multiple of the time it took, so that summing takes at most a twentieth of a processor.
const FACTOR: u32 = 20;

/// Maximum number of cached sizes.
const KEPT: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    until: Instant,
}

/// Cache of sizes.
#[derive(Debug, Default)]
pub(crate) struct Sizes {
    known: Mutex<HashMap<Shard, Size>>,
}

impl Sizes {
    /// Returns the size of a shard, if cached.
    pub(crate) fn get(&self, shard: Shard, now: Instant) -> Option<u64> {
        self.known.lock().get(&shard).filter(|size| now < size.until).map(|size| size.bytes)
    }

    /// Caches a size that was computed from `begun` to `now`.
    pub(crate) fn set(&self, shard: Shard, bytes: u64, begun: Instant, now: Instant) {
        let mut known = self.known.lock();
        if known.len() >= KEPT {
            known.clear();
        }
        let good = now.saturating_duration_since(begun).min(Duration::from_secs(60)) * FACTOR;
        known.insert(shard, Size { bytes, until: now + good });
    }

    /// Adds the bytes of a commit.
    pub(crate) fn add(&self, shard: Shard, bytes: usize) {
        if let Some(size) = self.known.lock().get_mut(&shard) {
            size.bytes = size.bytes.saturating_add(bytes as u64);
        }
    }

    pub(crate) fn forget(&self, shard: Shard) {
        self.known.lock().remove(&shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_kept_as_long_as_they_were_dear() {
        let sizes = Sizes::default();
        let begun = Instant::now();
        let now = begun + Duration::from_secs(1);
        let (one, other) = (Shard(1), Shard(2));
        assert_eq!(sizes.get(one, now), None);
        sizes.set(one, 100, begun, now);
        sizes.add(one, 20);
        sizes.add(other, 20);
        for (seconds, wanted) in [(0, Some(120)), (19, Some(120)), (20, None)] {
            assert_eq!(sizes.get(one, now + Duration::from_secs(seconds)), wanted, "after {seconds} s");
        }
        assert_eq!(sizes.get(other, now), None);
        sizes.forget(one);
        assert_eq!(sizes.get(one, now), None);
    }

    #[test]
    fn no_more_are_kept_than_needed() {
        let (sizes, now) = (Sizes::default(), Instant::now());
        for shard in 0..2 * KEPT as u64 {
            sizes.set(Shard(shard), 1, now, now + Duration::from_secs(1));
        }
        assert!(sizes.known.lock().len() <= KEPT);
    }
}
