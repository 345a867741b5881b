//! [`Fate`]: the outcome of a commit whose acknowledgement was lost, determined from later reads of its shard.

use crate::{
    Batch, CommitToken, Durability, Engine, Outcome, Request, Result, Shard, ShardState, Snapshot, StorageError,
    Version, read,
};

/// Outcome of a commit, as far as it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The commit was applied.
    Applied,
    /// Another commit has taken the version, so the commit can never be applied.
    Overtaken,
    /// The shard has not reached the version: the commit may still be in progress.
    Open,
    /// Other commits followed, and the engine no longer stores the token of the version.
    Forgotten,
}

impl Fate {
    /// Determines the outcome of the commit `token` on top of version `expected`. `state` and `snapshot` must be newer
    /// than the commit.
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

/// Returns the token of the commit that created this version, if the engine still stores it.
fn token_of(snapshot: &dyn Snapshot, version: Version) -> Result<Option<CommitToken>> {
    let bytes = read::one(snapshot, Request::Token(version))?.into_value()?;
    Ok(bytes.and_then(|bytes| Some(CommitToken(u128::from_be_bytes(bytes.try_into().ok()?)))))
}

/// Commits as [`Engine::commit`] does, and determines the outcome if the acknowledgement was lost. Returns the new
/// version, or `None` after a conflict. For callers that start over if a commit fails.
///
/// # Errors
/// As [`Engine::commit`], and [`StorageError::InDoubt`] if the outcome cannot be determined.
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
