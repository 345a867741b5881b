//! A commit whose acknowledgement may get lost: an [`Attempt`] finds out whether it happened.
//!
//! It does not decide what to write again; its owner looks at the shard anew and asks for the next try.

use settee_storage::{Batch, CommitToken, Durability, Engine, Outcome, Shard, ShardState, StorageError, Version};

use crate::Result;

/// The tries to commit one thing. They share a token, so that a late success of an earlier try is recognised.
pub(crate) struct Attempt {
    token: CommitToken,
    /// The version on which a try was made whose outcome is not known.
    doubt: Option<Version>,
}

impl Attempt {
    /// No try was made yet. No other commit to the shard has `token`.
    pub(crate) fn new(token: CommitToken) -> Self {
        Self { token, doubt: None }
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
        match engine.commit(shard, expected, self.token, batch, durability)? {
            Outcome::Committed(_) => return Ok(true),
            Outcome::Conflict(_) => {}
            Outcome::Unknown => self.doubt = Some(expected),
        }
        Ok(false)
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
