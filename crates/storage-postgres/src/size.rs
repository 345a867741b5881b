//! [`Sizes`]: approximate sizes of shards. PostgreSQL sums them row by row, so a result is cached for a time
//! proportional to its cost, and the bytes of later commits are added.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::Shard;

/// A result is cached for this multiple of the time it took, so that summing takes at most a twentieth of a processor.
const CACHE_TIME_FACTOR: u32 = 20;

const SIZES_MAX: usize = 10_000;

#[derive(Clone, Copy, Debug)]
struct Size {
    bytes: u64,
    until: Instant,
}

#[derive(Debug, Default)]
pub(crate) struct Sizes {
    cached: Mutex<HashMap<Shard, Size>>,
}

impl Sizes {
    pub(crate) fn get(&self, shard: Shard, now: Instant) -> Option<u64> {
        self.cached.lock().get(&shard).filter(|size| now < size.until).map(|size| size.bytes)
    }

    pub(crate) fn set(&self, shard: Shard, bytes: u64, started: Instant, now: Instant) {
        let mut cached = self.cached.lock();
        if cached.len() >= SIZES_MAX {
            cached.clear();
        }
        let lifetime = now.saturating_duration_since(started).min(Duration::from_secs(60)) * CACHE_TIME_FACTOR;
        cached.insert(shard, Size { bytes, until: now + lifetime });
    }

    pub(crate) fn add(&self, shard: Shard, bytes: usize) {
        if let Some(size) = self.cached.lock().get_mut(&shard) {
            size.bytes = size.bytes.saturating_add(bytes as u64);
        }
    }

    pub(crate) fn remove(&self, shard: Shard) {
        self.cached.lock().remove(&shard);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lifetime_of_a_size_is_proportional_to_its_cost() {
        let sizes = Sizes::default();
        let started = Instant::now();
        let now = started + Duration::from_secs(1);
        let (one, other) = (Shard(1), Shard(2));
        assert_eq!(sizes.get(one, now), None);
        sizes.set(one, 100, started, now);
        sizes.add(one, 20);
        sizes.add(other, 20);
        for (seconds, wanted) in [(0, Some(120)), (19, Some(120)), (20, None)] {
            assert_eq!(sizes.get(one, now + Duration::from_secs(seconds)), wanted, "after {seconds} s");
        }
        assert_eq!(sizes.get(other, now), None);
        sizes.remove(one);
        assert_eq!(sizes.get(one, now), None);
    }

    #[test]
    fn the_cache_is_bounded() {
        let (sizes, now) = (Sizes::default(), Instant::now());
        for shard in 0..2 * SIZES_MAX as u64 {
            sizes.set(Shard(shard), 1, now, now + Duration::from_secs(1));
        }
        assert!(sizes.cached.lock().len() <= SIZES_MAX);
    }
}
