//! [`Groups`]: the groups of shards that have a writer of their own.

use std::num::NonZeroU32;

use settee_storage::Shard;
use settee_storage::members::WRITER_PREFIX;

/// The assignment of shards to groups. Nodes with different numbers of groups have different claims: the later ones
/// acquire none until the earlier ones have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    count: NonZeroU32,
}

impl Default for Groups {
    fn default() -> Self {
        Self::new(NonZeroU32::MIN)
    }
}

impl Groups {
    /// Creates an assignment to `count` groups.
    #[must_use]
    pub const fn new(count: NonZeroU32) -> Self {
        Self { count }
    }

    /// Returns the number of groups.
    #[must_use]
    pub const fn count(self) -> u32 {
        self.count.get()
    }

    /// Returns the group of a shard: the same in every version of the program.
    #[must_use]
    pub fn of(self, shard: Shard) -> u32 {
        // The final mix of SplitMix64: consecutive shards are in different groups.
        let mixed = (shard.0 ^ (shard.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let group = (mixed ^ (mixed >> 31)) % u64::from(self.count());
        u32::try_from(group).expect("less than the number of groups")
    }

    /// Returns the key of the claim whose holder is the writer of a group.
    #[must_use]
    pub fn key(self, group: u32) -> String {
        format!("{WRITER_PREFIX}{}/{group}", self.count)
    }

    /// Returns the group with this key.
    #[must_use]
    pub fn of_key(self, key: &str) -> Option<u32> {
        let (_, group) = key.strip_prefix(WRITER_PREFIX)?.split_once('/')?;
        let group = group.parse().ok()?;
        (group < self.count() && self.key(group) == key).then_some(group)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_shards_never_change() {
        let groups = Groups::new(NonZeroU32::new(8).expect("positive"));
        let of: Vec<u32> = (0..12).map(|shard| groups.of(Shard(shard))).collect();
        assert_eq!(of, [0, 5, 2, 0, 4, 4, 4, 4, 0, 7, 1, 5]);
        assert_eq!(groups.of(Shard(u64::MAX)), 3);
        let mut counts = [0; 8];
        (0..8000).for_each(|shard| counts[groups.of(Shard(shard)) as usize] += 1);
        assert!(counts.iter().all(|count| (900..1100).contains(count)), "{counts:?}");
        assert!((0..100).all(|shard| Groups::default().of(Shard(shard)) == 0));
    }

    #[test]
    fn keys_name_their_groups() {
        let groups = Groups::new(NonZeroU32::new(4).expect("positive"));
        assert_eq!(groups.key(3), "writer/4/3");
        let keys = ["writer/4/3", "writer/4/4", "writer/4/03", "writer/8/3", "writer/3", "index/4/3"];
        assert_eq!(keys.map(|key| groups.of_key(key)), [Some(3), None, None, None, None, None]);
    }
}
