//! [`Shares`]: who of several owners may take one of a limited number of things, such as processes, so that none can keep
//! the others from having any.
//!
//! An owner may take another one as long as it has less than twice as many as are free. One alone gets two thirds of all,
//! the next one two thirds of the rest, and so on: what a newcomer needs is free when it comes, however long the others keep
//! what they have. (Switches share their buffers in this way: dynamic thresholds.) Waiting, and the order of those who wait,
//! is up to callers.
//!
//! Clients without an account fill at most half of all, and users three quarters: many addresses must not keep an account from
//! having any, nor many accounts an administrator.

use std::collections::HashMap;

/// The number of free ones that let an owner have how many.
const SHARE: usize = 2;

/// The rank of an owner: the part of all things that owners of this rank and below may have together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rank {
    /// Half.
    Anonymous,
    /// Three quarters.
    User,
    /// All.
    Admin,
}

/// An owner: an account, an address or a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Distinguishes owners of one rank.
    pub number: u64,
    /// Its rank.
    pub rank: Rank,
}

impl From<u64> for Owner {
    /// An owner that may have all things.
    fn from(number: u64) -> Self {
        Self { number, rank: Rank::Admin }
    }
}

impl Rank {
    /// The number of things that owners of this rank and below may have together. It is at least one.
    fn of(self, capacity: usize) -> usize {
        match self {
            Self::Anonymous => capacity.div_ceil(2),
            Self::User => (capacity * 3).div_ceil(4),
            Self::Admin => capacity,
        }
    }
}

/// A number of things and who has them.
#[derive(Debug)]
pub struct Shares {
    capacity: usize,
    taken: usize,
    held: HashMap<Owner, usize>,
}

impl Shares {
    /// Nobody has any of `capacity` things. There is one at least.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), taken: 0, held: HashMap::new() }
    }

    /// Takes one if `owner` may. Who has no owner takes what there is.
    pub fn try_take(&mut self, owner: Option<Owner>) -> bool {
        let free = owner.map_or(self.capacity, |owner| owner.rank.of(self.capacity)).saturating_sub(self.taken);
        let held = owner.map_or(0, |owner| self.held.get(&owner).copied().unwrap_or(0));
        if free == 0 || owner.is_some() && held >= SHARE * free {
            return false;
        }
        self.taken += 1;
        if let Some(owner) = owner {
            *self.held.entry(owner).or_default() += 1;
        }
        true
    }

    /// Gives back one that was taken for `owner`.
    pub fn give_back(&mut self, owner: Option<Owner>) {
        self.taken = self.taken.saturating_sub(1);
        let Some(owner) = owner else { return };
        if let Some(held) = self.held.get_mut(&owner) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&owner);
            }
        }
    }

    /// How many nobody has.
    #[must_use]
    pub fn free(&self) -> usize {
        self.capacity - self.taken
    }

    /// How many are taken.
    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of each of several owners that gets who come one after another and take what they may.
    fn shares(capacity: usize, owners: u64) -> Vec<usize> {
        let mut shares = Shares::new(capacity);
        let all = |owner: u64| {
            std::iter::repeat_with(|| shares.try_take(Some(owner.into()))).take_while(|taken| *taken).count()
        };
        (0..owners).map(all).collect()
    }

    #[test]
    fn newcomers_find_something() {
        assert_eq!(shares(24, 4), [16, 6, 2, 0]);
        assert_eq!(shares(100, 6), [67, 22, 8, 2, 1, 0]);
        assert_eq!(shares(64, 5), [43, 14, 5, 2, 0]);
        // Few are for who comes first.
        assert_eq!(shares(1, 2), [1, 0]);
        assert_eq!(shares(2, 2), [2, 0]);
        assert_eq!(shares(3, 3), [2, 1, 0]);
        assert_eq!(shares(0, 2), [1, 0]);
    }

    #[test]
    fn lower_ranks_leave_room_for_higher_ones() {
        let mut shares = Shares::new(16);
        let mut take = |rank, numbers: std::ops::Range<u64>| {
            let mut all = |number| {
                let owner = Some(Owner { number, rank });
                std::iter::repeat_with(|| shares.try_take(owner)).take_while(|taken| *taken).count()
            };
            numbers.map(&mut all).sum::<usize>()
        };
        assert_eq!(take(Rank::Anonymous, 0..50), 8);
        assert_eq!(take(Rank::User, 0..50), 4);
        assert_eq!(take(Rank::Admin, 0..1), 3);
        // One thing alone is for any of them.
        assert!(Shares::new(1).try_take(Some(Owner { number: 1, rank: Rank::Anonymous })));
    }

    #[test]
    fn what_is_given_back_is_for_who_has_little() {
        let mut shares = Shares::new(6);
        let mut take = |owner, times: usize| (0..times).filter(|_| shares.try_take(Some(u64::into(owner)))).count();
        assert_eq!((take(1, 9), take(2, 9)), (4, 2));
        assert_eq!(take(3, 1), 0);
        shares.give_back(Some(1.into()));
        // Neither of those who have some, but who has none.
        assert!(!shares.try_take(Some(1.into())) && !shares.try_take(Some(2.into())));
        assert!(shares.try_take(Some(3.into())));
        assert_eq!((shares.free(), shares.taken()), (0, 6));
        // Who has no owner takes the last.
        shares.give_back(Some(2.into()));
        assert!(shares.try_take(None) && !shares.try_take(None));
        shares.give_back(None);
        for (owner, held) in [(1, 3), (2, 1), (3, 1)] {
            (0..held).for_each(|_| shares.give_back(Some(u64::into(owner))));
        }
        assert_eq!((shares.free(), shares.held.len()), (6, 0));
    }
}
