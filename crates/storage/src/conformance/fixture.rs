//! Engines under test, random input, and the commits and reads that all properties share.

use std::sync::Arc;

use crate::{
    Batch, CommitToken, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Outcome, Shard, Snapshot,
    StorageError, Version,
};

/// Opens a new engine without entries.
pub type Open<'a> = &'a dyn Fn() -> Arc<dyn Engine>;

/// Opens one store for two processes.
pub type OpenTwice<'a> = &'a dyn Fn() -> [Arc<dyn Engine>; 2];

/// Pseudorandom generator (splitmix64): a seed gives the same numbers on every machine.
#[derive(Clone, Debug)]
pub struct Generator(u64);

impl Generator {
    /// Creates a generator that `seed` fully determines.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns any 64-bit number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `limit`, which must not be 0.
    pub fn below(&mut self, limit: usize) -> usize {
        let limit = limit as u64;
        usize::try_from(self.number() % limit).expect("it is below a usize")
    }

    /// Returns incompressible bytes.
    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }

    /// Returns one of `choices`, which must not be empty.
    pub fn choose<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.below(choices.len())]
    }
}

/// Commits and resolves an unknown outcome as callers must do it. No other commit to the shard may be in progress.
pub(super) fn commit(engine: &dyn Engine, shard: Shard, batch: Batch) -> Version {
    let before = view(engine, shard).state().expect("a state can be read").version;
    let token = CommitToken(u128::from(before.0) + 1);
    commit_at(engine, shard, before, token, batch)
        .unwrap_or_else(|found| panic!("{shard:?} is at {found:?} and not {before:?}"))
}

pub(super) fn commit_at(
    engine: &dyn Engine,
    shard: Shard,
    expected: Version,
    token: CommitToken,
    batch: Batch,
) -> Result<Version, Version> {
    match engine.commit(shard, expected, token, batch, Durability::Buffered).expect("the engine can be written") {
        Outcome::Committed(version) => Ok(version),
        Outcome::Conflict(version) => Err(version),
        Outcome::Unknown => {
            let state = view(engine, shard).state().expect("a state can be read");
            if state.token == token { Ok(state.version) } else { Err(state.version) }
        }
    }
}

/// Returns a snapshot after its first read, because some engines start it with that.
pub(super) fn view(engine: &dyn Engine, shard: Shard) -> Arc<dyn Snapshot> {
    let snapshot = engine.snapshot(shard).expect("a snapshot can be taken");
    let state = snapshot.state();
    assert!(matches!(state, Ok(_) | Err(StorageError::Dropped)), "a snapshot of {shard:?} can be read: {state:?}");
    snapshot
}

pub(super) fn puts(space: Keyspace, entries: &[(&[u8], &[u8])]) -> Batch {
    let mut batch = Batch::new();
    for (key, value) in entries {
        batch.put(space, key, value);
    }
    batch
}

pub(super) type Entries = Vec<(Vec<u8>, Vec<u8>)>;

pub(super) fn entries(snapshot: &dyn Snapshot, space: Keyspace) -> Entries {
    scanned(snapshot, space, KeyRange::default(), Direction::Forward)
}

pub(super) fn scanned(snapshot: &dyn Snapshot, space: Keyspace, range: KeyRange<'_>, direction: Direction) -> Entries {
    let mut cursor = snapshot.scan(space, range, direction, Expect::Few).expect("a scan can start");
    let mut entries = Vec::new();
    while let Some((key, value)) = cursor.next().expect("a scan continues") {
        entries.push((key.to_vec(), value.to_vec()));
    }
    entries
}
