//! A commit whose acknowledgement may get lost: an [`Attempt`] finds out whether it happened.
//!
//! It does not decide what to write again; its owner looks at the shard anew and asks for the next try.

use settee_storage::{
    Batch, CommitToken, Durability, Engine, Outcome, Shard, ShardState, Snapshot, StorageError, Version,
};

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

    /// Tries to commit `batch` on top of `expected`. `false` if that must be decided anew.
    ///
    /// # Errors
    /// When the engine failed, or when it cannot be found out any more what became of the batch.
    pub(crate) fn commit(
        &mut self,
        engine: &dyn Engine,
        shard: Shard,
        expected: Version,
        batch: Batch,
    ) -> Result<bool> {
        match engine.commit(shard, expected, self.token, batch, Durability::Synced)? {
            Outcome::Committed(_) => return Ok(true),
            Outcome::Conflict(_) => {}
            Outcome::Unknown => self.doubt = Some(expected),
        }
        let snapshot = engine.snapshot()?;
        self.happened(snapshot.as_ref(), shard)
    }

    /// Whether a try whose outcome was not known has happened after all.
    ///
    /// # Errors
    /// When the engine failed, or when others have committed so much since that nobody can tell.
    pub(crate) fn happened(&mut self, snapshot: &dyn Snapshot, shard: Shard) -> Result<bool> {
        let Some(Version(expected)) = self.doubt else {
            return Ok(false);
        };
        let ShardState { version: Version(version), token } = snapshot.state(shard)?;
        if token == self.token {
            return Ok(true);
        }
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
