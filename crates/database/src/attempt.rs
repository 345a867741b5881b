//! [`Attempt`]: a commit with possibly lost acknowledgements, and the check whether it was applied.

use settee_storage::members::Claim;
use settee_storage::{
    Batch, CommitToken, Durability, Engine, Fate, Outcome, Purpose, Shard, ShardState, Snapshot, StorageError, Version,
};

use crate::{DatabaseError, Result};

/// All tries of one commit share a token, so that a late success of an earlier try is recognized.
pub(crate) struct Attempt {
    token: CommitToken,
    /// Expected version of a try with an unknown outcome.
    doubt: Option<Version>,
    /// True if the engine lost the acknowledgement of that try, false if it reported an error.
    is_lost: bool,
    claim: Option<Claim>,
    maintained: bool,
}

impl Attempt {
    /// `token` must be unique among the commits to the shard.
    pub(crate) fn new(token: CommitToken) -> Self {
        Self { token, doubt: None, is_lost: false, claim: None, maintained: false }
    }

    pub(crate) fn under(self, claim: Option<Claim>) -> Self {
        Self { claim, ..self }
    }

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
        mut batch: Batch,
        durability: Durability,
    ) -> Result<bool> {
        if let Some(claim) = &self.claim {
            batch.set_claim(claim.clone());
        }
        match engine.commit(shard, expected, self.token, batch, durability) {
            Ok(Outcome::Committed(_)) => return Ok(true),
            Ok(Outcome::Conflict(_)) => {}
            Ok(Outcome::Unknown) => (self.doubt, self.is_lost) = (Some(expected), true),
            Err(error @ StorageError::Present(_)) => return Err(error.into()),
            // An earlier try may still be in progress, and its token cannot be relied on after the writer has changed.
            Err(StorageError::Deposed) if self.doubt.is_some() => return Err(StorageError::unrecorded().into()),
            Err(error @ StorageError::Deposed) => return Err(error.into()),
            Err(error) => {
                // The commit log may contain the commit nevertheless, which a retry has to detect.
                self.doubt = Some(expected);
                return Err(error.into());
            }
        }
        Ok(false)
    }

    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Returns true if the caller must retry after an error of [`Self::commit`]. This applies once, to a commit that
    /// frees space on a full disk: a compaction may have used the remaining space and stopped the store, which is then
    /// opened again. Precondition: the caller holds no snapshot.
    pub(crate) fn prepare_retry(&mut self, engine: &dyn Engine, purpose: Purpose, error: &DatabaseError) -> bool {
        let is_full = matches!(error, DatabaseError::Storage(StorageError::Full(_)));
        if !is_full || purpose != Purpose::Room || std::mem::replace(&mut self.maintained, true) {
            return false;
        }
        // A store that refuses growth may still accept a deletion, so the result is ignored.
        let _ = engine.maintain();
        true
    }

    /// Returns true if a try with an unknown outcome was applied, according to the shard's `state` and the commit
    /// tokens in `snapshot`. Fails with [`StorageError::InDoubt`] if other commits followed and the engine no longer
    /// stores the token.
    pub(crate) fn happened(&mut self, state: ShardState, snapshot: &dyn Snapshot) -> Result<bool> {
        let Some(expected) = self.doubt else { return Ok(false) };
        match Fate::of(self.token, expected, state, snapshot)? {
            Fate::Open => Ok(false),
            Fate::Applied => Ok(true),
            Fate::Overtaken => {
                (self.doubt, self.is_lost) = (None, false);
                Ok(false)
            }
            Fate::Forgotten => Err(StorageError::unrecorded().into()),
        }
    }

    /// Converts the error with which the attempt ends: a try that was not acknowledged may have been applied.
    pub(crate) fn final_error(&self, error: DatabaseError) -> DatabaseError {
        if self.is_lost { error.in_doubt() } else { error }
    }
}

/// Calls `act`, which frees space, and retries it once if the disk is full, as [`Attempt::prepare_retry`].
pub(crate) fn free_space(
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

    /// A retry by the caller would conflict with the first try, which may still be in progress.
    #[test]
    fn a_commit_under_a_lost_claim_is_in_doubt_after_an_unknown_try() {
        let store = MemoryEngine::new();
        let [ours, theirs] = [store.user(), store.user()];
        let claim = ours.members().claim("writer/0").unwrap().unwrap();
        ours.members().release(&claim).unwrap();
        theirs.members().claim("writer/0").unwrap().unwrap();
        for (doubt, expected) in
            [(None, StorageError::Deposed.to_string()), (Some(Version(7)), StorageError::unrecorded().to_string())]
        {
            let mut attempt = Attempt { doubt, ..Attempt::new(CommitToken(1)) }.under(Some(claim.clone()));
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            let refused = attempt.commit(&ours, Shard(1000), Version(0), batch, Durability::Synced).unwrap_err();
            assert_eq!(refused.to_string(), expected);
            assert_eq!(attempt.is_in_doubt(), doubt.is_some());
        }
    }

    /// Foreign commits that follow must not be mistaken for the commit.
    #[test]
    fn a_commit_is_found_by_its_token_as_long_as_the_engine_has_it() {
        let store: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let commit = |version: u64, token: u128| {
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            let made = store.commit(Shard(1000), Version(version), CommitToken(token), batch, Durability::Synced);
            assert_eq!(made.unwrap(), Outcome::Committed(Version(version + 1)));
        };
        // The tokens are 100 to 103; 7 belongs to no commit.
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
        assert_eq!(judge(7, 4), (Ok(false), true));
        (4..2_000).for_each(|version| commit(version, 100 + u128::from(version)));
        assert_eq!(judge(101, 1), (Err(StorageError::unrecorded().to_string()), true));
    }
}
