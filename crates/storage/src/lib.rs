//! The storage interface: ordered byte keys in keyspaces, split into shards.
//!
//! An [`Engine`] gives repeatable reads through a [`Snapshot`] and writes through an atomic
//! [`Engine::commit`] of one [`Batch`]. Every engine passes [`conformance`]; everything above this
//! crate knows only these traits. Files that are not an engine's are made durable by [`durable`]; values of several
//! parts are put together by [`codec`]. The crate knows nothing of documents, revisions or views.

mod batch;
pub mod codec;
pub mod conformance;
pub mod counting;
pub mod durable;
pub mod faulty;
mod log;
pub mod members;
pub mod memory;
mod premise;
mod read;
pub mod tally;

use std::fmt;
use std::ops::RangeInclusive;
use std::path::Path;
use std::sync::Arc;

pub use batch::{Batch, Operation, Purpose};
pub use log::{CommitLog, LogPosition, LogRead, LogRecord};
pub use members::Members;
pub use premise::Premise;
pub use read::{Page, PageRange, Reply, Request};

/// A kind of entry. Engines may store and tune each kind apart from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Keyspace {
    /// Names, settings, counters and roots: few, small, read often.
    Catalog,
    /// Document id to revision tree.
    Documents,
    /// Update sequence to document id and winning revision.
    Sequence,
    /// Bodies of documents, by the sequence at which they were written.
    Bodies,
    /// Chunks of attachments.
    Attachments,
    /// Local documents.
    Local,
    /// Nodes of the aggregate trees of view indexes.
    IndexNodes,
    /// Document id to the keys that it emitted into an index.
    IndexEntries,
}

impl Keyspace {
    /// All keyspaces, each at the place that `space as usize` tells.
    pub const ALL: [Self; 8] = [
        Self::Catalog,
        Self::Documents,
        Self::Sequence,
        Self::Bodies,
        Self::Attachments,
        Self::Local,
        Self::IndexNodes,
        Self::IndexEntries,
    ];

    /// The name under which engines store this keyspace. Never changes.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Catalog => "catalog",
            Self::Documents => "documents",
            Self::Sequence => "sequence",
            Self::Bodies => "bodies",
            Self::Attachments => "attachments",
            Self::Local => "local",
            Self::IndexNodes => "index_nodes",
            Self::IndexEntries => "index_entries",
        }
    }
}

/// A part of the key space whose commits are atomic and ordered. A database has one or more, a view
/// index has its own. Numbers are given out by the catalog and never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u64);

/// The number of commits that a shard has seen; 0 for a shard that was never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// Names one commit, so that a caller who lost the answer can find out whether it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommitToken(pub u128);

/// The longest head of a shard, in bytes.
pub const MAX_HEAD_BYTES: usize = 1024;

/// The longest key, in bytes. Engines whose own keys are shorter store a hash in the place of the rest.
pub const MAX_KEY_BYTES: usize = 10_000;

/// The longest value, in bytes: engines and networks below them hold one in memory as a whole.
pub const MAX_VALUE_BYTES: usize = 256 << 20;

/// The number of bytes that the keys and values of one commit have at most: it is one record of a log, or one message.
pub const MAX_COMMIT_BYTES: usize = 1 << 30;

/// The state that must be reached when `commit` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The batch is on disk. Commits that wait at the same time share one sync.
    Synced,
    /// The batch is visible; a crash may lose it, together with everything committed after it and
    /// not synced, never without it.
    Buffered,
}

/// The outcome of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The batch was applied; this is the shard's version now.
    Committed(Version),
    /// Somebody else committed to the shard first; nothing was written. This is its version.
    Conflict(Version),
    /// The acknowledgement was lost. Read [`Snapshot::state`] of the shard until it answers, and
    /// compare its token, or that of the version after the expected one ([`Request::Token`]).
    Unknown,
}

/// The last commit of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    /// The number of commits.
    pub version: Version,
    /// The token of the last one.
    pub token: CommitToken,
}

/// The order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// The number of rows of a scan the caller is about to take, as far as it knows. It bounds nothing: an engine that
/// fetches pages makes the first one so large.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Not many, or nobody knows.
    Few,
    /// About so many.
    Rows(usize),
    /// All that there are.
    All,
}

/// A half-open range of keys: `start` is in it, `end` is not. An absent bound is open.
#[derive(Clone, Copy, Default)]
pub struct KeyRange<'a> {
    /// The least key.
    pub start: Option<&'a [u8]>,
    /// The least key that is greater than all keys of the range.
    pub end: Option<&'a [u8]>,
}

impl fmt::Debug for KeyRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.start, self.end)
    }
}

/// Why an engine could not do what it was asked.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// The disk or the network below the engine failed.
    #[error("storage failed: {0}")]
    Io(String),
    /// The server that keeps the data does not answer. The same may work a moment later, or elsewhere; a write may have happened.
    #[error("the store cannot be reached: {0}")]
    Unreached(String),
    /// It is unknown whether a write happened, and it may still happen. Its client reads before it retries.
    #[error("it is not known whether the write was made: {0}")]
    InDoubt(String),
    /// The stored bytes are not what the engine wrote.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// The engine was opened again while somebody read it: reading may start over.
    #[error("the read was interrupted: {0}")]
    Interrupted(String),
    /// An earlier sync failed: nothing more is accepted until the engine is opened again.
    #[error("storage refuses writes after a failed sync: {0}")]
    Poisoned(String),
    /// The disk is full, or so full that nothing may grow.
    #[error("no space left: {0}")]
    Full(String),
    /// A key that a commit was to insert has a value. Nothing was written.
    #[error("a key to insert has a value: {0}")]
    Present(String),
    /// Another process has committed to what a batch [presumes](Batch::presume) to be known. Nothing was written.
    #[error("the store has changed since this was decided")]
    Outdated,
    /// The shard was dropped.
    #[error("the shard was dropped")]
    Dropped,
    /// A key, a value or a commit is longer than any may be.
    #[error("too large to be stored: {0}")]
    TooLarge(String),
}

/// The result of a storage operation.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// Hears of commits: the shard, and the version that it has at least.
pub type CommitListener = Box<dyn Fn(Shard, Version) + Send + Sync>;

/// A turn to write, for as long as it lives.
#[derive(Default)]
#[must_use]
pub struct Turn {
    held: Option<Box<dyn Send>>,
    seen: Option<Vec<Reply>>,
}

impl Turn {
    /// A turn that ends when `held` is dropped, in which the replies of [`Engine::line_up`] were `seen`.
    pub fn of(held: impl Send + 'static, seen: Vec<Reply>) -> Self {
        Self { held: Some(Box::new(held)), seen: Some(seen) }
    }

    /// Whether others wait for its end.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// What was asked for, once.
    pub fn take_seen(&mut self) -> Option<Vec<Reply>> {
        self.seen.take()
    }
}

impl fmt::Debug for Turn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Turn").field("is_held", &self.is_held()).finish_non_exhaustive()
    }
}

/// A store of ordered keys. All methods may be called from any thread and may block.
pub trait Engine: Send + Sync + 'static {
    /// A view of `shard` as it is now, unchanged by later commits. Engines may begin it with its first read.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>>;

    /// Applies `batch` to `shard` as a whole or not at all, if the shard is at version `expected`.
    /// Commits to one shard happen one after the other; commits to different shards share syncs.
    ///
    /// # Errors
    /// When nothing was written, for a reason other than a conflict: that is so as well for a batch that [`Batch::check`]
    /// refuses.
    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome>;

    /// Whether a commit that inserts a key which has a value fails with [`StorageError::Present`], and a look before it would
    /// cost a trip. Others take such a commit as if it put the value.
    fn refuses_present(&self) -> bool {
        false
    }

    /// Waits for a turn to write to `shard` behind other processes that wait for theirs, so that their commits do not conflict. It ends with the next
    /// commit to the shard, or when what is returned is dropped. Nobody has to line up, and who would wait for long goes on without: it is
    /// for speed alone, where several processes write to one shard. Others have nobody to wait for.
    ///
    /// The turn brings the replies to `wanted`. [`Request::State`] is read first: if others commit without a turn, the rest may be newer, and a
    /// commit on that state conflicts.
    fn line_up(&self, shard: Shard, wanted: &[Request<'_>]) -> Turn {
        let _ = (shard, wanted);
        Turn::default()
    }

    /// Whether the engine takes commits of any purpose.
    ///
    /// # Errors
    /// The outcome of a commit of [`Purpose::Growth`], were it made now.
    fn check(&self) -> Result<()>;

    /// Reports why writes fail, for health checks: what [`Self::check`] does, and a refusal of the last commit that may be over with the
    /// next one.
    ///
    /// # Errors
    /// The reason.
    fn health(&self) -> Result<()> {
        self.check()
    }

    /// Looks after what may have changed around the engine: takes commits again once the cause of an error is gone, and
    /// notices when room gets scarce. To be called about once a second; cheap when nothing is wrong. Answers what
    /// [`Self::check`] does. An engine that has no platform does nothing more.
    ///
    /// # Errors
    /// Why the engine does not take commits yet.
    fn tend(&self) -> Result<()> {
        self.check()
    }

    /// Removes all entries of a shard, with a last commit after which reads of later snapshots answer
    /// [`StorageError::Dropped`] and all commits conflict: what the shard was can never be taken for something new. Durable
    /// when it returns. A shard that was never written can be dropped as well, and one that is dropped again.
    ///
    /// # Errors
    /// When the shard may still be there.
    fn drop_shard(&self, shard: Shard) -> Result<()>;

    /// Writes `batch` into a shard and makes `state` its last commit, whatever that was: for copies of a store, in which shards
    /// keep their versions. An entry of the batch that is there already is replaced, inserted ones excepted. Nothing keeps
    /// others from writing to the shard meanwhile, and nobody is told; it is durable after [`Self::sync`].
    ///
    /// # Errors
    /// When nothing may have been written, [`StorageError::Dropped`] among them.
    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        let _ = (shard, state, batch);
        Err(StorageError::Io("nothing can be copied into this engine".to_owned()))
    }

    /// Gives back, as far as is easily done, the space of entries of a shard that were removed or replaced. Blocks
    /// while it works, and nobody else.
    ///
    /// # Errors
    /// When the engine failed. Nothing is lost then.
    fn reclaim(&self, shard: Shard) -> Result<()>;

    /// About how many bytes the entries of a shard take on disk, unwritten buffers included.
    fn approximate_size(&self, shard: Shard) -> u64;

    /// Calls `listener` after each commit to any shard, dropping included, that another process has made; for as long as the
    /// engine lives. Several commits to a shard may be one call, with the version of the last of them; calls may come late, and for commits
    /// that a snapshot has shown already. After a failure of the store they may be for what is as it was, with version 0. The listener must be
    /// quick, and ask nothing of the engine. An engine that no other process can write to never
    /// calls it.
    fn subscribe(&self, listener: CommitListener) {
        let _ = listener;
    }

    /// Waits until the listeners have heard of all commits that other processes had finished before the call: what is read and
    /// kept in memory after it is not older. Calls at the same time share one trip. An engine that no other process can write to
    /// has nothing to wait for.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    /// What this process has heard of `shards` so far, for batches that [presume](Batch::presume) it. `None` where that is not known at the moment, or
    /// nobody else writes.
    fn premise(&self, shards: &[Shard]) -> Option<Premise> {
        let _ = shards;
        None
    }

    /// The processes that serve this store.
    fn members(&self) -> &dyn Members {
        &members::Sole
    }

    /// Makes every commit made so far durable.
    ///
    /// # Errors
    /// When the sync failed; the engine is poisoned then.
    fn sync(&self) -> Result<()>;

    /// Writes a consistent copy of the whole engine into `directory`, which must not exist.
    ///
    /// # Errors
    /// When the copy is not complete.
    fn checkpoint(&self, directory: &Path) -> Result<()>;

    /// The log of commits, of an engine that keeps one for others.
    fn log(&self) -> Option<&dyn CommitLog> {
        None
    }

    /// The stored data that is known to be damaged, in words. Everything else is served.
    fn damage(&self) -> Option<String> {
        None
    }

    /// The shards that damage concerns, in ranges of their numbers.
    fn damaged_shards(&self) -> Vec<RangeInclusive<u64>> {
        Vec::new()
    }

    /// Counters worth showing to an operator: name and value.
    fn statistics(&self) -> Vec<(&'static str, u64)>;
}

/// A repeatable view of one shard.
///
/// An engine that is reached over a network pays for each call of [`Self::read`], and for each page that a cursor
/// fetches: what is known to be needed is asked for together.
pub trait Snapshot: Send + Sync {
    /// Answers several requests in one trip: one [`Reply`] of the same kind for each, in their order.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>>;

    /// A cursor before the first entry of `range` in `direction`.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn scan<'a>(
        &'a self,
        space: Keyspace,
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Box<dyn Cursor + 'a>>;

    /// The last commit of the shard.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn state(&self) -> Result<ShardState> {
        read::one(self, Request::State)?.into_state()
    }

    /// The head of the shard: a short record that commits replace so often that it would be a waste to store it as an
    /// entry, see [`Batch::set_head`]. `None` if none was ever set.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn head(&self) -> Result<Option<Vec<u8>>> {
        read::one(self, Request::Head)?.into_value()
    }

    /// The value of a key.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        read::one(self, Request::Get(space, key))?.into_value()
    }

    /// The values of several keys, in their order.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn multi_get(&self, space: Keyspace, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        read::one(self, Request::MultiGet(space, keys))?.into_values()
    }
}

/// A position in a scan.
pub trait Cursor: Send {
    /// Moves to the next entry and lends it; `None` after the last one, and for ever after.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;

    /// Moves so that the next entry is the first one at or after `key` in the scan's direction,
    /// within its range. May move back.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
}
