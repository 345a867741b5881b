//! A commit whose acknowledgement may get lost: an [`Attempt`] finds out whether it happened.
//!
//! It does not decide what to write again; its owner looks at the shard anew and asks for the next try.

use settee_storage::{
    Batch, CommitToken, Durability, Engine, Outcome, Purpose, Reply, Request, Shard, ShardState, Snapshot,
    StorageError, Version,
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
        if self.is_overtaken() {
            return Err(self.outdated().into());
        }
        let around = self.premises.iter().map(|premise| premise.around().clone());
        if let Some(all) = around.reduce(|one, other| one.and(&other)) {
            batch.presume(all);
        }
        Ok(())
    }

    /// Gives up what is known to be outdated, before any more is done for it. An attempt in doubt is looked up first ([`Self::happened`]).
    ///
    /// # Errors
    /// [`StorageError::Outdated`].
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_in_doubt() && self.is_overtaken() { Err(StorageError::Outdated.into()) } else { Ok(()) }
    }

    fn is_overtaken(&self) -> bool {
        self.premises.iter().any(Premise::is_overtaken)
    }

    /// The error of a try that has not written anything because a premise does not hold.
    fn outdated(&self) -> StorageError {
        match self.doubt {
            None => StorageError::Outdated,
            // An earlier try may be on its way, and a new one would conflict with that.
            Some(_) => in_doubt(),
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

    /// Returns true if a try whose outcome was unknown has happened, as the shard's `state` in `snapshot` and the tokens of its commits show.
    ///
    /// # Errors
    /// [`StorageError::InDoubt`] when other commits followed and the engine no longer has the token. Errors of the engine.
    pub(crate) fn happened(&mut self, state: ShardState, snapshot: &dyn Snapshot) -> Result<bool> {
        let Some(Version(expected)) = self.doubt else {
            return Ok(false);
        };
        let made = Version(expected + 1);
        let found = match state.version {
            version if version < made => return Ok(false),
            version if version == made => Some(state.token),
            _ => token_of(snapshot, made)?,
        };
        match found {
            Some(token) if token == self.token => {
                self.hold();
                Ok(true)
            }
            Some(_) => {
                // Another process made the commit of that version, so the try can never happen.
                self.doubt = None;
                Ok(false)
            }
            None => Err(in_doubt().into()),
        }
    }
}

/// Returns the token of the commit that made this version, if the engine still has it.
fn token_of(snapshot: &dyn Snapshot, version: Version) -> Result<Option<CommitToken>> {
    let replies = snapshot.read(&[Request::Token(version)])?;
    let bytes = replies.into_iter().next().map(Reply::into_value).transpose()?.flatten();
    Ok(bytes.and_then(|bytes| Some(CommitToken(u128::from_be_bytes(bytes.try_into().ok()?)))))
}

/// The error of a commit whose outcome cannot be found out.
fn in_doubt() -> StorageError {
    StorageError::InDoubt("the store lost the connection to it and has no record of it".to_owned())
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
        for (doubt, expected) in
            [(None, StorageError::Outdated.to_string()), (Some(Version(7)), in_doubt().to_string())]
        {
            let mut attempt = Attempt { doubt, ..Attempt::new(CommitToken(1)) }.presuming(vec![premise.clone()]);
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            attempt.presume(&mut batch).unwrap();
            let refused = attempt.commit(ours.engine().as_ref(), Shard(1000), Version(0), batch).unwrap_err();
            assert_eq!(refused.to_string(), expected);
            assert_eq!(attempt.is_in_doubt(), doubt.is_some());
        }
    }

    /// Two writes of others are not enough to lose a commit, and neither is one of them taken for it.
    #[test]
    fn a_commit_is_found_by_its_token_as_long_as_the_engine_has_it() {
        let store: Arc<dyn Engine> = Arc::new(MemoryEngine::new());
        let commit = |version: u64, token: u128| {
            let mut batch = Batch::new();
            batch.put(Keyspace::Local, b"key", b"value");
            let made = store.commit(Shard(1000), Version(version), CommitToken(token), batch, Durability::Synced);
            assert_eq!(made.unwrap(), Outcome::Committed(Version(version + 1)));
        };
        // Ours is the commit of version 2, in one case.
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
        // It may be on its way.
        assert_eq!(judge(7, 4), (Ok(false), true));
        (4..2_000).for_each(|version| commit(version, 100 + u128::from(version)));
        assert_eq!(judge(101, 1), (Err(in_doubt().to_string()), true));
    }
}
