//! [`Shares`]: fair allocation of a limited number of units, such as processes, to several owners, so that none can
//! exclude the others. An owner may take another unit while it holds less than twice as many as are free. A single
//! owner gets two thirds of all units, the next one two thirds of the rest, and so on: a newcomer finds free units,
//! however long the others keep theirs. (Network switches share their buffers in this way: dynamic thresholds.) Callers
//! implement waiting and its order. Clients without an account hold at most half of all units, and users three
//! quarters: many addresses must not exclude accounts, nor many accounts an administrator.

use std::collections::HashMap;

const SHARE: usize = 2;

/// Determines the part of all units that owners of this rank and below may hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Rank {
    Anonymous,
    User,
    Admin,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    pub number: u64,
    pub rank: Rank,
    /// Distinguishes what an owner works on, such as databases; 0 if unknown. Units are shared between owners, and
    /// those of an owner between its parts.
    pub part: u64,
}

impl Owner {
    fn whole(self) -> Self {
        Self { part: 0, ..self }
    }

    fn keys(self) -> impl Iterator<Item = Self> {
        [Some(self.whole()), (self.part != 0).then_some(self)].into_iter().flatten()
    }
}

impl From<u64> for Owner {
    fn from(number: u64) -> Self {
        Self { number, rank: Rank::Admin, part: 0 }
    }
}

impl Rank {
    fn of(self, capacity: usize) -> usize {
        match self {
            Self::Anonymous => capacity.div_ceil(2),
            Self::User => (capacity * 3).div_ceil(4),
            Self::Admin => capacity,
        }
    }
}

#[derive(Debug)]
pub struct Shares {
    capacity: usize,
    taken: usize,
    held: HashMap<Owner, usize>,
}

impl Shares {
    /// Creates an allocation of `capacity` free units, at least one.
    #[must_use]
    pub fn new(capacity: usize) -> Self {
        Self { capacity: capacity.max(1), taken: 0, held: HashMap::new() }
    }

    pub fn try_take(&mut self, owner: Option<Owner>) -> bool {
        let free = owner.map_or(self.capacity, |owner| owner.rank.of(self.capacity)).saturating_sub(self.taken);
        if free == 0 || owner.is_some_and(|owner| !self.may_take(owner, free)) {
            return false;
        }
        self.taken += 1;
        for key in owner.iter().flat_map(|owner| owner.keys()) {
            *self.held.entry(key).or_default() += 1;
        }
        true
    }

    /// The parts of an owner share the units that it may still take, as owners share all units.
    fn may_take(&self, owner: Owner, free: usize) -> bool {
        let held = |owner: Owner| self.held.get(&owner).copied().unwrap_or(0);
        let limit = SHARE * free;
        let whole = held(owner.whole());
        whole < limit && (owner.part == 0 || held(owner) < SHARE * (limit - whole).div_ceil(SHARE + 1))
    }

    pub fn give_back(&mut self, owner: Option<Owner>) {
        self.taken = self.taken.saturating_sub(1);
        for key in owner.iter().flat_map(|owner| owner.keys()) {
            let Some(held) = self.held.get_mut(&key) else { continue };
            *held -= 1;
            if *held == 0 {
                self.held.remove(&key);
            }
        }
    }

    #[must_use]
    pub fn free(&self) -> usize {
        self.capacity - self.taken
    }

    #[must_use]
    pub fn taken(&self) -> usize {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units of each of several owners that arrive in order and take as many as they can.
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
        assert_eq!(shares(1, 2), [1, 0]);
        assert_eq!(shares(2, 2), [2, 0]);
        assert_eq!(shares(3, 3), [2, 1, 0]);
        assert_eq!(shares(0, 2), [1, 0]);
    }

    #[test]
    fn parts_of_an_owner_leave_room_for_each_other_and_for_other_owners() {
        let mut shares = Shares::new(24);
        let mut all = |number, part| {
            let owner = Some(Owner { part, ..Owner::from(number) });
            std::iter::repeat_with(|| shares.try_take(owner)).take_while(|taken| *taken).count()
        };
        assert_eq!([all(1, 1), all(1, 2), all(1, 3), all(2, 1), all(2, 2)], [11, 4, 1, 4, 2]);
        let mut shares = Shares::new(1);
        let owner = Some(Owner { part: 1, ..Owner::from(1) });
        assert!(shares.try_take(owner) && !shares.try_take(owner));
        shares.give_back(owner);
        assert!(shares.held.is_empty() && shares.try_take(owner));
    }

    #[test]
    fn lower_ranks_leave_room_for_higher_ones() {
        let mut shares = Shares::new(16);
        let mut take = |rank, numbers: std::ops::Range<u64>| {
            let mut all = |number| {
                let owner = Some(Owner { number, rank, part: number });
                std::iter::repeat_with(|| shares.try_take(owner)).take_while(|taken| *taken).count()
            };
            numbers.map(&mut all).sum::<usize>()
        };
        assert_eq!(take(Rank::Anonymous, 0..50), 8);
        assert_eq!(take(Rank::User, 0..50), 4);
        assert_eq!(take(Rank::Admin, 0..1), 3);
        assert!(Shares::new(1).try_take(Some(Owner { number: 1, rank: Rank::Anonymous, part: 0 })));
    }

    #[test]
    fn released_permits_go_to_the_owner_with_the_fewest() {
        let mut shares = Shares::new(6);
        let mut take = |owner, times: usize| (0..times).filter(|_| shares.try_take(Some(u64::into(owner)))).count();
        assert_eq!((take(1, 9), take(2, 9)), (4, 2));
        assert_eq!(take(3, 1), 0);
        shares.give_back(Some(1.into()));
        assert!(!shares.try_take(Some(1.into())) && !shares.try_take(Some(2.into())));
        assert!(shares.try_take(Some(3.into())));
        assert_eq!((shares.free(), shares.taken()), (0, 6));
        shares.give_back(Some(2.into()));
        assert!(shares.try_take(None) && !shares.try_take(None));
        shares.give_back(None);
        for (owner, held) in [(1, 3), (2, 1), (3, 1)] {
            (0..held).for_each(|_| shares.give_back(Some(u64::into(owner))));
        }
        assert_eq!((shares.free(), shares.held.len()), (6, 0));
    }
}
