//! Commits with possibly lost acknowledgements: an [`Attempt`] determines whether its commit was applied.
//!
//! The owner of an attempt decides what to write again: it reads the state of the shard and starts the next try.

use settee_storage::{
    Batch, CommitToken, Durability, Engine, Fate, Outcome, Purpose, Shard, ShardState, Snapshot, StorageError, Version,
};

use crate::{DatabaseError, ReadSet, Result};

/// Tries to apply one commit. All tries share a token, so that a late success of an earlier try is recognized.
pub(crate) struct Attempt {
    token: CommitToken,
    /// Expected version of a try with an unknown outcome.
    doubt: Option<Version>,
    /// True if the engine lost the acknowledgement of that try, so that it may have been applied. False if the engine
    /// reported an error.
    is_lost: bool,
    /// Read sets on which the commit depends.
    read_sets: Vec<ReadSet>,
    /// True if [`Engine::maintain`] was called already.
    maintained: bool,
}

impl Attempt {
    /// Creates an attempt without tries. `token` must be unique among the commits to the shard.
    pub(crate) fn new(token: CommitToken) -> Self {
        Self { token, doubt: None, is_lost: false, read_sets: Vec::new(), maintained: false }
    }

    /// Sets the read sets that the commit must validate.
    pub(crate) fn with_read_sets(self, read_sets: Vec<ReadSet>) -> Self {
        Self { read_sets, ..self }
    }

    /// Adds the validation of the read sets to `batch`.
    ///
    /// # Errors
    /// Returns [`StorageError::Outdated`] if a read set is already known to be outdated.
    pub(crate) fn add_read_sets(&self, batch: &mut Batch) -> Result<()> {
        if self.is_overtaken() {
            return Err(self.outdated().into());
        }
        let around = self.read_sets.iter().map(|read_set| read_set.around().clone());
        if let Some(all) = around.reduce(|one, other| one.and(&other)) {
            batch.set_read_set(all);
        }
        Ok(())
    }

    /// Checks the read sets before further work is done. The outcome of an attempt in doubt must be determined first
    /// ([`Self::happened`]), so this function ignores it.
    ///
    /// # Errors
    /// Returns [`StorageError::Outdated`].
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_in_doubt() && self.is_overtaken() { Err(StorageError::Outdated.into()) } else { Ok(()) }
    }

    fn is_overtaken(&self) -> bool {
        self.read_sets.iter().any(ReadSet::is_overtaken)
    }

    /// Returns the error of a try that wrote nothing because a read set is outdated.
    fn outdated(&self) -> StorageError {
        match self.doubt {
            None => StorageError::Outdated,
            // An earlier try may still be in progress, and a new one would conflict with it.
            Some(_) => StorageError::unrecorded(),
        }
    }

    /// Token shared by all tries.
    pub(crate) fn token(&self) -> CommitToken {
        self.token
    }

    /// Tries to commit `batch` on top of `expected`. Returns `false` if the commit conflicted or its outcome is
    /// unknown; before a retry the caller must call [`Self::happened`].
    pub(crate) fn commit(
        &mut self,
        engine: &dyn Engine,
        shard: Shard,
        expected: Version,
        batch: Batch,
    ) -> Result<bool> {
        self.commit_as(engine, shard, expected, batch, Durability::Synced)
    }

    /// Commits as [`Self::commit`] does, with the given durability.
    pub(crate) fn commit_as(
        &mut self,
        engine: &dyn Engine,
        shard: Shard,
        expected: Version,
        batch: Batch,
        durability: Durability,
    ) -> Result<bool> {
        match engine.commit(shard, expected, self.token, batch, durability) {
            Ok(Outcome::Committed(_)) => {
                self.hold();
                return Ok(true);
            }
            Ok(Outcome::Conflict(_)) => {}
            Ok(Outcome::Unknown) => (self.doubt, self.is_lost) = (Some(expected), true),
            Err(error @ StorageError::Present(_)) => return Err(error.into()),
            Err(StorageError::Outdated) => return Err(self.outdated().into()),
            Err(error) => {
                // The commit log may contain the commit nevertheless, which a retry has to detect.
                self.doubt = Some(expected);
                return Err(error.into());
            }
        }
        Ok(false)
    }

    fn hold(&self) {
        self.read_sets.iter().for_each(ReadSet::hold);
    }

    /// Returns true if the outcome of a try is unknown.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Returns true if the caller should retry after an error of [`Self::commit`]. This applies once, to a commit
    /// that frees space and failed because the disk is full: a compaction may have used the remaining space and
    /// stopped the store, so the store is opened again. The caller must not hold a snapshot.
    pub(crate) fn goes_on(&mut self, engine: &dyn Engine, purpose: Purpose, error: &DatabaseError) -> bool {
        let is_full = matches!(error, DatabaseError::Storage(StorageError::Full(_)));
        if !is_full || purpose != Purpose::Room || std::mem::replace(&mut self.maintained, true) {
            return false;
        }
        // The result is ignored, because a store that refuses growth may still accept a deletion.
        let _ = engine.maintain();
        true
    }

    /// Returns true if a try with an unknown outcome was applied, according to the shard's `state` and the commit
    /// tokens in `snapshot`.
    ///
    /// # Errors
    /// Returns [`StorageError::InDoubt`] if other commits followed and the engine no longer stores the token. Fails
    /// if the engine fails.
    pub(crate) fn happened(&mut self, state: ShardState, snapshot: &dyn Snapshot) -> Result<bool> {
        let Some(expected) = self.doubt else { return Ok(false) };
        match Fate::of(self.token, expected, state, snapshot)? {
            Fate::Open => Ok(false),
            Fate::Applied => {
                self.hold();
                Ok(true)
            }
            Fate::Overtaken => {
                (self.doubt, self.is_lost) = (None, false);
                Ok(false)
            }
            Fate::Forgotten => Err(StorageError::unrecorded().into()),
        }
    }

    /// Converts the error with which the caller ends the attempt: a try that was not acknowledged may have been
    /// applied, whatever the reason why its outcome could not be determined.
    pub(crate) fn give_up(&self, error: DatabaseError) -> DatabaseError {
        if self.is_lost { error.in_doubt() } else { error }
    }
}

/// Calls `act`, which frees space, and retries it once after [`Engine::maintain`] if the disk is full. See
/// [`Attempt::goes_on`].
pub(crate) fn make_room(
    engine: &dyn Engine,
    act: impl Fn() -> settee_storage::Result<()>,
) -> settee_storage::Result<()> {
    match act() {
        Err(StorageError::Full(_)) => {
            let _ = engine.maintain();
            act()
        }
        done => done,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use settee_storage::Keyspace;
    use settee_storage::memory::MemoryEngine;

    use super::*;
    use crate::Catalog;

    /// A retry by the caller would conflict with the first try, which may still be in progress.
    #[test]
    fn a_commit_that_is_outdated_after_an_unknown_attempt_is_lost() {
        let store = MemoryEngine::new();
        let [ours, theirs] = [1, 2].map(|seed| Catalog::open(Arc::new(store.user()), seed).unwrap());
        let options = crate::DatabaseOptions { created_ms: 0, instance: 1, layout: crate::Layout::Whole, q: 1 };
        let database = ours.create("db", options).unwrap();
        let read_set = ReadSet::of(&database, Vec::new()).unwrap();
        theirs.create("other", options).unwrap();
        for (doubt, expected) in
            [(None, StorageError::Outdated.to_string()), (Some(Version(7)), StorageError::unrecorded().to_string())]
        {
            let mut attempt = Attempt { doubt, ..Attempt::new(CommitToken(1)) }.with_read_sets(vec![read_set.clone()]);
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            attempt.add_read_sets(&mut batch).unwrap();
            let refused = attempt.commit(ours.engine().as_ref(), Shard(1000), Version(0), batch).unwrap_err();
            assert_eq!(refused.to_string(), expected);
            assert_eq!(attempt.is_in_doubt(), doubt.is_some());
        }
    }

    /// The outcome is found after several foreign commits, and a foreign commit is not mistaken for it.
    #[test]
    fn a_commit_is_found_by_its_token_as_long_as_the_engine_has_it() {
        let store: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let commit = |version: u64, token: u128| {
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            let made = store.commit(Shard(1000), Version(version), CommitToken(token), batch, Durability::Synced);
            assert_eq!(made.unwrap(), Outcome::Committed(Version(version + 1)));
        };
        // Creates commits with the tokens 100 to 103; a token of 7 belongs to none of them.
        (0..4).for_each(|version| commit(version, 100 + u128::from(version)));
        let judge = |token: u128, doubt: u64| {
            let mut attempt = Attempt { doubt: Some(Version(doubt)), ..Attempt::new(CommitToken(token)) };
            let snapshot = store.snapshot(Shard(1000)).unwrap();
            let happened = attempt.happened(snapshot.state().unwrap(), snapshot.as_ref());
            (happened.map_err(|error| error.to_string()), attempt.is_in_doubt())
        };
        assert_eq!(judge(101, 1), (Ok(true), true));
        assert_eq!(judge(103, 3), (Ok(true), true));
        assert_eq!(judge(7, 1), (Ok(false), false));
        assert_eq!(judge(7, 3), (Ok(false), false));
        // The commit may still be in progress.
        assert_eq!(judge(7, 4), (Ok(false), true));
        (4..2_000).for_each(|version| commit(version, 100 + u128::from(version)));
        assert_eq!(judge(101, 1), (Err(StorageError::unrecorded().to_string()), true));
    }
}
