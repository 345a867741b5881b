//! [`Premise`]: what somebody knew of shards when something was decided that is to be committed.

use std::sync::Arc;

use crate::Shard;

/// What a process had heard of some shards at a moment. A batch [presumes](crate::Batch::presume) that nothing else was committed to them since, and
/// the commit finds out: whoever made the batch need not ask the store for news first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Premise {
    shards: Arc<[Shard]>,
    moment: u64,
    heard: Arc<str>,
}

impl Premise {
    /// About `shards`, of which everything was heard that an engine calls `heard`. The `moment` orders the premises of an engine.
    #[must_use]
    pub fn new(shards: &[Shard], moment: u64, heard: Arc<str>) -> Self {
        Self { shards: shards.into(), moment, heard }
    }

    /// The shards.
    #[must_use]
    pub fn shards(&self) -> &[Shard] {
        &self.shards
    }

    /// When it was true.
    #[must_use]
    pub fn moment(&self) -> u64 {
        self.moment
    }

    /// The engine's own words for what was heard.
    #[must_use]
    pub fn heard(&self) -> &str {
        &self.heard
    }

    /// A premise that holds only if both do.
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
        let premise = |shards: &[u64], moment: u64| {
            let shards: Vec<Shard> = shards.iter().copied().map(Shard).collect();
            Premise::new(&shards, moment, moment.to_string().into())
        };
        for (one, other, both) in [
            ((&[1, 2][..], 5), (&[1, 2][..], 7), (&[1, 2][..], 5)),
            ((&[1], 7), (&[2, 1], 5), (&[2, 1], 5)),
            ((&[1, 2], 7), (&[2, 3], 5), (&[2, 3, 1], 5)),
            ((&[], 1), (&[4], 2), (&[4], 1)),
        ] {
            let [one, other, both] = [one, other, both].map(|(shards, moment)| premise(shards, moment));
            assert_eq!(one.and(&other), both);
        }
    }
}
