//! A commit whose acknowledgement may get lost: an [`Attempt`] finds out whether it happened.
//!
//! It does not decide what to write again; its owner looks at the shard anew and asks for the next try.

use settee_storage::{
    Batch, CommitToken, Durability, Engine, Outcome, Purpose, Shard, ShardState, StorageError, Version,
};

use crate::{DatabaseError, Result};

/// The tries to commit one thing. They share a token, so that a late success of an earlier try is recognised.
pub(crate) struct Attempt {
    token: CommitToken,
    /// The version on which a try was made whose outcome is not known.
    doubt: Option<Version>,
    /// Whether the engine was asked to look after itself.
    tended: bool,
}

impl Attempt {
    /// No try was made yet. No other commit to the shard has `token`.
    pub(crate) fn new(token: CommitToken) -> Self {
        Self { token, doubt: None, tended: false }
    }

    /// The token of all tries.
    pub(crate) fn token(&self) -> CommitToken {
        self.token
    }

    /// Tries to commit `batch` on top of `expected`. `false` if that is to be decided anew: ask [`Self::happened`]
    /// first.
    ///
    /// # Errors
    /// When the engine failed.
    pub(crate) fn commit(
        &mut self,
        engine: &dyn Engine,
        shard: Shard,
        expected: Version,
        batch: Batch,
    ) -> Result<bool> {
        self.commit_as(engine, shard, expected, batch, Durability::Synced)
    }

    /// As [`Self::commit`], with another durability.
    ///
    /// # Errors
    /// When the engine failed.
    pub(crate) fn commit_as(
        &mut self,
        engine: &dyn Engine,
        shard: Shard,
        expected: Version,
        batch: Batch,
        durability: Durability,
    ) -> Result<bool> {
        match engine.commit(shard, expected, self.token, batch, durability) {
            Ok(Outcome::Committed(_)) => return Ok(true),
            Ok(Outcome::Conflict(_)) => {}
            Ok(Outcome::Unknown) => self.doubt = Some(expected),
            Err(error @ StorageError::Present(_)) => return Err(error.into()),
            Err(error) => {
                // The log may have it all the same, which counts if there is another try.
                self.doubt = Some(expected);
                return Err(error.into());
            }
        }
        Ok(false)
    }

    /// Whether a try was made whose outcome is not known.
    pub(crate) fn is_in_doubt(&self) -> bool {
        self.doubt.is_some()
    }

    /// Whether to go on after an error of [`Self::commit`] as if its outcome were not known. What makes room on a full disk may
    /// find that the store has stopped, because a compaction has taken the last of the room: then the store is opened
    /// again, once, instead of telling a client that its deletion has no room. The caller must not hold a snapshot.
    pub(crate) fn goes_on(&mut self, engine: &dyn Engine, purpose: Purpose, error: &DatabaseError) -> bool {
        let is_full = matches!(error, DatabaseError::Storage(StorageError::Full(_)));
        if !is_full || purpose != Purpose::Room || std::mem::replace(&mut self.tended, true) {
            return false;
        }
        // That growth is still refused makes no difference here.
        let _ = engine.tend();
        true
    }

    /// Whether a try whose outcome was not known has happened after all, as the shard's `state` tells.
    ///
    /// # Errors
    /// When others have committed so much since that nobody can tell.
    pub(crate) fn happened(&mut self, state: ShardState) -> Result<bool> {
        let Some(Version(expected)) = self.doubt else {
            return Ok(false);
        };
        if state.token == self.token {
            return Ok(true);
        }
        let Version(version) = state.version;
        if version > expected + 1 {
            return Err(StorageError::Io("the outcome of a commit was lost".to_owned()).into());
        }
        if version > expected {
            // Another node took the place that the try could have had.
            self.doubt = None;
        }
        Ok(false)
    }
}

/// Does what makes room, and once more after the engine has looked after itself if there was none. See [`Attempt::goes_on`].
///
/// # Errors
/// When the engine failed.
pub(crate) fn make_room(
    engine: &dyn Engine,
    act: impl Fn() -> settee_storage::Result<()>,
) -> settee_storage::Result<()> {
    match act() {
        Err(StorageError::Full(_)) => {
            let _ = engine.tend();
            act()
        }
        done => done,
    }
}
