//! A commit whose acknowledgement may get lost: an [`Attempt`] finds out whether it happened.
//!
//! It does not decide what to write again; its owner looks at the shard anew and asks for the next try.

use settee_storage::{
    Batch, CommitToken, Durability, Engine, Outcome, Purpose, Shard, ShardState, StorageError, Version,
};

use crate::{DatabaseError, Premise, Result};

/// The tries to commit one thing. They share a token, so that a late success of an earlier try is recognised.
pub(crate) struct Attempt {
    token: CommitToken,
    /// The version on which a try was made whose outcome is not known.
    doubt: Option<Version>,
    /// What was presumed for that which is committed.
    premises: Vec<Premise>,
    /// Whether the engine was asked to look after itself.
    tended: bool,
}

impl Attempt {
    /// No try was made yet. No other commit to the shard has `token`.
    pub(crate) fn new(token: CommitToken) -> Self {
        Self { token, doubt: None, premises: Vec::new(), tended: false }
    }

    /// Commits nothing unless all `premises` hold.
    pub(crate) fn presuming(self, premises: Vec<Premise>) -> Self {
        Self { premises, ..self }
    }

    /// Has a commit find out whether the premises hold.
    ///
    /// # Errors
    /// [`StorageError::Outdated`] when it is known that one does not.
    pub(crate) fn presume(&self, batch: &mut Batch) -> Result<()> {
        self.check()?;
        let around = self.premises.iter().map(|premise| premise.around().clone());
        if let Some(all) = around.reduce(|one, other| one.and(&other)) {
            batch.presume(all);
        }
        Ok(())
    }

    /// Gives up what is known to be outdated, before any more is done for it.
    ///
    /// # Errors
    /// [`StorageError::Outdated`].
    pub(crate) fn check(&self) -> Result<()> {
        if self.premises.iter().any(Premise::is_overtaken) { Err(self.outdated().into()) } else { Ok(()) }
    }

    /// The error of a try that has not written anything because a premise does not hold.
    fn outdated(&self) -> StorageError {
        match self.doubt {
            None => StorageError::Outdated,
            // An earlier try may be on its way, and whoever made it again would conflict with that.
            Some(_) => lost(),
        }
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
            Ok(Outcome::Committed(_)) => {
                self.hold();
                return Ok(true);
            }
            Ok(Outcome::Conflict(_)) => {}
            Ok(Outcome::Unknown) => self.doubt = Some(expected),
            Err(error @ StorageError::Present(_)) => return Err(error.into()),
            Err(StorageError::Outdated) => return Err(self.outdated().into()),
            Err(error) => {
                // The log may have it all the same, which counts if there is another try.
                self.doubt = Some(expected);
                return Err(error.into());
            }
        }
        Ok(false)
    }

    fn hold(&self) {
        self.premises.iter().for_each(Premise::hold);
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
            self.hold();
            return Ok(true);
        }
        let Version(version) = state.version;
        if version > expected + 1 {
            return Err(lost().into());
        }
        if version > expected {
            // Another node took the place that the try could have had.
            self.doubt = None;
        }
        Ok(false)
    }
}

/// The error of who cannot know.
fn lost() -> StorageError {
    StorageError::Io("the outcome of a commit was lost".to_owned())
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use settee_storage::Keyspace;
    use settee_storage::memory::MemoryEngine;

    use super::*;
    use crate::Catalog;

    /// Who made it again would conflict with a try that is on its way still.
    #[test]
    fn what_is_outdated_after_a_try_of_which_nobody_knows_is_lost() {
        let store = MemoryEngine::new();
        let [ours, theirs] = [1, 2].map(|seed| Catalog::open(Arc::new(store.user()), seed).unwrap());
        let options = crate::DatabaseOptions { created_ms: 0, instance: 1, layout: crate::Layout::Whole, q: 1 };
        let database = ours.create("db", options).unwrap();
        let premise = Premise::of(&database, Vec::new()).unwrap();
        theirs.create("other", options).unwrap();
        for (doubt, expected) in [
            (None, StorageError::Outdated.to_string()),
            (Some(Version(7)), "storage failed: the outcome of a commit was lost".to_owned()),
        ] {
            let mut attempt = Attempt { doubt, ..Attempt::new(CommitToken(1)) }.presuming(vec![premise.clone()]);
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            attempt.presume(&mut batch).unwrap();
            let refused = attempt.commit(ours.engine().as_ref(), Shard(1000), Version(0), batch).unwrap_err();
            assert_eq!(refused.to_string(), expected);
            assert_eq!(attempt.is_in_doubt(), doubt.is_some());
        }
    }
}
