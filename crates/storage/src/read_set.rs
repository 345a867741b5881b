//! [`ReadSet`]: the read set of an optimistic commit.

use std::sync::Arc;

use crate::Shard;

/// The state of some shards that a process had observed. A batch with this [read set](crate::Batch::set_read_set) is
/// committed only if no other process has committed to these shards since; the commit validates that, so the writer
/// need not catch up first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadSet {
    shards: Arc<[Shard]>,
    moment: u64,
    observed: Arc<str>,
}

impl ReadSet {
    /// Creates a read set of `shards`, of which everything up to `observed`, in the notation of the engine, was observed.
    /// The `moment` orders the read sets of an engine.
    #[must_use]
    pub fn new(shards: &[Shard], moment: u64, observed: Arc<str>) -> Self {
        Self { shards: shards.into(), moment, observed }
    }

    /// Returns the shards.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// Returns the moment of the observation.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// Returns the observed state in the notation of the engine.
    #[must_use]
    pub fn observed(&self) -> &str {
        &self.observed
    }

    /// Combines two read sets: the result is current only if both are.
    #[must_use]
    pub fn and(self, other: &Self) -> Self {
        let (older, newer) = if other.moment < self.moment { (other, &self) } else { (&self, other) };
        let missing: Vec<Shard> = newer.shards.iter().filter(|shard| !older.shards.contains(shard)).copied().collect();
        if missing.is_empty() {
            return older.clone();
        }
        let shards: Vec<Shard> = older.shards.iter().copied().chain(missing).collect();
        Self { shards: shards.into(), ..older.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_hold_if_the_older_one_holds_for_all_shards() {
        let read_set = |shards: &[u64], moment: u64| {
            let shards: Vec<Shard> = shards.iter().copied().map(Shard).collect();
            ReadSet::new(&shards, moment, moment.to_string().into())
        };
        for (one, other, both) in [
            ((&[1, 2][..], 5), (&[1, 2][..], 7), (&[1, 2][..], 5)),
            ((&[1], 7), (&[2, 1], 5), (&[2, 1], 5)),
            ((&[1, 2], 7), (&[2, 3], 5), (&[2, 3, 1], 5)),
            ((&[], 1), (&[4], 2), (&[4], 1)),
        ] {
            let [one, other, both] = [one, other, both].map(|(shards, moment)| read_set(shards, moment));
            assert_eq!(one.and(&other), both);
        }
    }
}
