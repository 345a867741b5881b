//! [`Caches`]: cache of segment data for all indexes of a process. Entries that were not used while half of the
//! capacity was read are evicted.

use std::collections::HashMap;
use std::hash::Hash;

use parking_lot::Mutex;
use settee_storage::Shard;
use tantivy::directory::OwnedBytes;

/// Part of a file. Files are immutable and their numbers are never reused, so cached parts do not become stale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Part {
    pub(crate) shard: Shard,
    pub(crate) file: u64,
    pub(crate) start: u64,
    pub(crate) end: u64,
}

pub(crate) const VECTORS: &str = ".vec";

#[derive(Debug)]
pub struct Caches {
    parts: Cache,
    /// Whole files, because a nearest-neighbour search reads all parts of them.
    vectors: Cache,
}

impl Caches {
    /// Capacities are in bytes.
    #[must_use]
    pub fn new(part_bytes: usize, vector_bytes: usize) -> Self {
        Self { parts: Cache::new(part_bytes), vectors: Cache::new(vector_bytes) }
    }

    /// `is_long` is true for a read of more than one piece.
    pub(super) fn of(&self, file: &str, is_long: bool) -> &Cache {
        if is_long && file.ends_with(VECTORS) { &self.vectors } else { &self.parts }
    }

    /// Evicts the data of an index whose last commits may have been lost.
    pub(crate) fn forget(&self, shard: Shard) {
        for cache in [&self.parts, &self.vectors] {
            let mut parts = cache.parts.lock();
            let Generations { young, old, young_bytes } = &mut *parts;
            young.retain(|part, _| part.shard != shard);
            old.retain(|part, _| part.shard != shard);
            *young_bytes = young.values().map(OwnedBytes::len).sum();
        }
    }

    pub(super) fn longest_vectors(&self) -> usize {
        self.vectors.limit / 2
    }
}

pub(super) struct Cache {
    limit: usize,
    parts: Mutex<Generations<Part, OwnedBytes>>,
}

struct Generations<K, V> {
    young: HashMap<K, V>,
    old: HashMap<K, V>,
    young_bytes: usize,
}

impl Cache {
    fn new(bytes: usize) -> Self {
        let parts = Generations { young: HashMap::new(), old: HashMap::new(), young_bytes: 0 };
        Self { limit: bytes, parts: Mutex::new(parts) }
    }

    pub(super) fn get(&self, part: Part) -> Option<OwnedBytes> {
        let mut parts = self.parts.lock();
        if let Some(bytes) = parts.young.get(&part) {
            return Some(bytes.clone());
        }
        let bytes = parts.old.remove(&part)?;
        self.keep(&mut parts, part, &bytes);
        Some(bytes)
    }

    pub(super) fn put(&self, part: Part, bytes: &OwnedBytes) {
        self.keep(&mut self.parts.lock(), part, bytes);
    }

    fn keep(&self, parts: &mut Generations<Part, OwnedBytes>, part: Part, bytes: &OwnedBytes) {
        let half = self.limit / 2;
        if bytes.len() > half {
            return;
        }
        if parts.young_bytes + bytes.len() > half {
            parts.old = std::mem::take(&mut parts.young);
            parts.young_bytes = 0;
        }
        if parts.young.insert(part, bytes.clone()).is_none() {
            parts.young_bytes += bytes.len();
        }
    }
}

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("limit", &self.limit).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_entries_stay_and_the_limit_holds() {
        let cache = Cache::new(100);
        let part = |file| Part { shard: Shard(1), file, start: 0, end: 10 };
        let bytes = OwnedBytes::new(vec![7; 10]);
        for file in 0..50 {
            cache.put(part(file), &bytes);
            assert!(cache.get(part(0)).is_some(), "{file}");
        }
        let kept = (0..50).filter(|&file| cache.get(part(file)).is_some()).count();
        assert!((5..=10).contains(&kept), "{kept}");
        let large = Part { end: 60, ..part(99) };
        cache.put(large, &OwnedBytes::new(vec![7; 60]));
        assert!(cache.get(large).is_none());
    }
}
