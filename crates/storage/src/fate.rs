//! [`Fate`]: the outcome of a commit whose acknowledgement was lost.

use crate::{
    Batch, CommitToken, Durability, Engine, Outcome, Request, Result, Shard, ShardState, Snapshot, StorageError,
    Version, read,
};

/// Outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It was applied.
    Applied,
    /// Another commit has its version.
    Overtaken,
    /// The commit may be in progress.
    Open,
    /// The engine has deleted the token, so the outcome cannot be determined.
    Forgotten,
}

impl Fate {
    /// Reads the token of the version after `expected`.
    pub fn of(token: CommitToken, expected: Version, state: ShardState, snapshot: &dyn Snapshot) -> Result<Self> {
        let made = Version(expected.0 + 1);
        let found = match state.version {
            version if version < made => return Ok(Self::Open),
            version if version == made => Some(state.token),
            _ => token_of(snapshot, made)?,
        };
        Ok(match found {
            Some(found) if found == token => Self::Applied,
            Some(_) => Self::Overtaken,
            None => Self::Forgotten,
        })
    }
}

fn token_of(snapshot: &dyn Snapshot, version: Version) -> Result<Option<CommitToken>> {
    let bytes = read::one(snapshot, Request::Token(version))?.into_value()?;
    Ok(bytes.and_then(|bytes| Some(CommitToken(u128::from_be_bytes(bytes.try_into().ok()?)))))
}

/// Commits, and determines the outcome if the acknowledgement was lost. Returns the new version, or `None` after a
/// conflict. Fails with [`StorageError::InDoubt`] if the outcome cannot be determined.
pub fn commit_once(
    engine: &dyn Engine,
    shard: Shard,
    expected: Version,
    token: CommitToken,
    batch: Batch,
    durability: Durability,
) -> Result<Option<Version>> {
    match engine.commit(shard, expected, token, batch, durability)? {
        Outcome::Committed(version) => return Ok(Some(version)),
        Outcome::Conflict(_) => return Ok(None),
        Outcome::Unknown => {}
    }
    let fate = || {
        let snapshot = engine.snapshot(shard)?;
        Fate::of(token, expected, snapshot.state()?, snapshot.as_ref())
    };
    match fate().map_err(StorageError::in_doubt)? {
        Fate::Applied => Ok(Some(Version(expected.0 + 1))),
        Fate::Overtaken => Ok(None),
        Fate::Open | Fate::Forgotten => Err(StorageError::unrecorded()),
    }
}
