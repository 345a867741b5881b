//! The storage interface: ordered byte keys in keyspaces, split into shards.
//!
//! An [`Engine`] provides repeatable reads through a [`Snapshot`] and writes through an atomic [`Engine::commit`] of
//! one [`Batch`]. Every engine passes `conformance`; the crates above use only these traits. All methods that return a
//! [`Result`] fail if the store cannot be accessed. Their documentation lists other errors.

#![warn(missing_docs)]

mod batch;
pub mod codec;
#[cfg(any(test, feature = "conformance"))]
#[expect(missing_docs, reason = "support of tests: the names state the properties")]
pub mod conformance;
#[expect(missing_docs, reason = "support of tests: the names state the properties")]
pub mod counting;
pub mod durable;
mod fate;
#[expect(missing_docs, reason = "support of tests: the names state the properties")]
pub mod faulty;
mod log;
pub mod members;
pub mod memory;
pub mod nonblocking;
mod peers;
mod read;
pub mod tally;

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;

pub use batch::{Batch, Operation, Purpose};
pub use fate::{Fate, commit_once};
pub use log::{CommitLog, LogPosition, LogRead, LogRecord};
pub use members::Members;
use nonblocking::Attempt;
pub use peers::PeerService;
pub use read::{Page, PageRange, Reply, Request};

/// Kind of entry. Engines may store and tune each kind separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Keyspace {
    /// Names, settings, counters and roots: few, small, frequently read.
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
    /// All keyspaces; the index of each is `space as usize`.
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

    /// Name under which engines store this keyspace. It never changes.
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

/// Unit of atomic and ordered commits. A database has one or more shards, a view index has its own. The catalog assigns
/// the numbers and never reuses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Shard(pub u64);

/// Number of commits to a shard; 0 for a shard that was never written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(pub u64);

/// Identifier of one commit, by which a caller that lost the response can find out whether the commit was applied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CommitToken(pub u128);

/// Maximum length of the head of a shard in bytes.
pub const MAX_HEAD_BYTES: usize = 1024;

/// Maximum length of a key in bytes. Engines with shorter keys replace the rest by a hash.
pub const MAX_KEY_BYTES: usize = 10_000;

/// Maximum length of a value in bytes, because engines and network layers hold one in memory as a whole.
pub const MAX_VALUE_BYTES: usize = 256 << 20;

/// Maximum total length of the keys and values of one commit in bytes, because a commit is one record of a log, or one
/// message.
pub const MAX_COMMIT_BYTES: usize = 1 << 30;

/// State that must be reached when `commit` returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// The batch is on disk. Concurrent commits share one sync.
    Synced,
    /// The batch is visible. A crash may lose it, but then also loses everything that was committed after it and not
    /// synced, and ends all processes that have observed it. An engine of several processes syncs every batch.
    Buffered,
}

/// Result of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Outcome {
    /// The batch was applied; this is the new version of the shard.
    Committed(Version),
    /// The shard has this version, because of another commit; nothing was written.
    Conflict(Version),
    /// The acknowledgement was lost. The caller must read [`Snapshot::state`] until it succeeds, and compare its token,
    /// or that of the version after the expected one ([`Request::Token`]).
    Unknown,
}

/// The last commit of a shard.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardState {
    /// Number of commits.
    pub version: Version,
    /// Token of the last commit.
    pub token: CommitToken,
}

/// Order of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending keys.
    Forward,
    /// Descending keys.
    Backward,
}

/// Number of rows of a scan that the caller will probably read: the size of the first page. The scan is not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Few, or unknown.
    Few,
    /// About this many.
    Rows(usize),
    /// All rows of the range.
    All,
}

/// A half-open range of keys: it includes `start` and excludes `end`. An absent bound is open.
#[derive(Clone, Copy, Default)]
pub struct KeyRange<'a> {
    /// Smallest key.
    pub start: Option<&'a [u8]>,
    /// Smallest key that is greater than all keys of the range.
    pub end: Option<&'a [u8]>,
}

impl fmt::Debug for KeyRange<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.start, self.end)
    }
}

/// Reason why an engine failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum StorageError {
    /// The disk or the network below the engine failed.
    #[error("storage failed: {0}")]
    Io(String),
    /// The server with the data is unreachable. A retry may succeed, here or on another node; a write may have been
    /// applied.
    #[error("the store cannot be reached: {0}")]
    Unreached(String),
    /// The outcome of a write is unknown. The client must read before it retries.
    #[error("the outcome of the write is unknown: {0}")]
    InDoubt(String),
    /// The stored bytes differ from those that the engine wrote.
    #[error("storage is corrupt: {0}")]
    Corrupt(String),
    /// The engine was reopened during the read; the reader may restart.
    #[error("the read was interrupted: {0}")]
    Interrupted(String),
    /// An earlier sync failed. No commit is accepted until the engine is reopened.
    #[error("storage refuses writes after a failed sync: {0}")]
    Poisoned(String),
    /// The disk is full, or too full for writes that need space.
    #[error("no space left: {0}")]
    Full(String),
    /// The key of an insert has a value. Nothing was written.
    #[error("a key to insert already exists: {0}")]
    Present(String),
    /// This process does not hold the [claim](Batch::set_claim) of the commit any more. Nothing was written.
    #[error("another node has become the writer")]
    Deposed,
    /// The shard was dropped.
    #[error("the shard was dropped")]
    Dropped,
    /// The read would wait, or exceed the bound of an [attempt](nonblocking::attempt), which repeats it elsewhere.
    #[error("the operation may block")]
    WouldBlock,
    /// A key, a value or a commit exceeds its limit.
    #[error("too large to be stored: {0}")]
    TooLarge(String),
}

impl StorageError {
    /// Returns true if a retry may succeed, although the write may have been applied.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        matches!(self, Self::Unreached(_) | Self::InDoubt(_) | Self::Interrupted(_) | Self::Deposed)
    }

    /// Converts an error that follows an unacknowledged write.
    #[must_use]
    pub fn in_doubt(self) -> Self {
        if self.is_temporary() || matches!(self, Self::Dropped) { self } else { Self::InDoubt(self.to_string()) }
    }

    /// Error of a write without record.
    #[must_use]
    pub fn unrecorded() -> Self {
        Self::InDoubt("the store lost the connection to it and has no record of it".to_owned())
    }
}

/// Result of a storage operation.
pub type Result<T, E = StorageError> = std::result::Result<T, E>;

/// Listener for commit notifications: the shard, and a lower bound of its version.
pub type CommitListener = Box<dyn Fn(Shard, Version) + Send + Sync>;

/// A store of ordered keys. All methods may be called from any thread, and all except
/// [`Self::snapshot_for_attempt`](Engine::snapshot_for_attempt) may block.
pub trait Engine: Send + Sync + 'static {
    /// Returns a view of the current state of `shard`. Engines may start it with its first read.
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>>;

    /// As [`Self::snapshot`], without waiting: the call, and all reads of the snapshot, fail with
    /// [`StorageError::WouldBlock`] instead, and beyond the bound of the attempt. Engines that wait for every read
    /// refuse the call.
    fn snapshot_for_attempt<'a>(&self, shard: Shard, attempt: &'a Attempt) -> Result<Arc<dyn Snapshot + 'a>> {
        let _ = shard;
        Err(attempt.refuse())
    }

    /// Applies `batch` to `shard` atomically if the shard is at version `expected`. Commits to one shard are
    /// serialized; commits to different shards share syncs. After a [temporary error](StorageError::is_temporary) the
    /// batch may have been written, after other errors it was not.
    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome>;

    /// Returns true if inserting a key that has a value fails with [`StorageError::Present`], and reading it beforehand
    /// would cost a round trip. Other engines treat the insert as a put.
    fn refuses_present(&self) -> bool {
        false
    }

    /// Returns the error with which a commit of [`Purpose::Growth`] would fail now.
    fn check(&self) -> Result<()>;

    /// Returns the reason why writes fail, for health checks: the result of [`Self::check`], or the error of the last
    /// commit, which the next one may resolve.
    fn health(&self) -> Result<()> {
        self.check()
    }

    /// Performs periodic maintenance and returns the result of [`Self::check`]: accepts commits again once the cause of
    /// an error is removed. The caller must call it about once a second; it is cheap in normal operation.
    fn maintain(&self) -> Result<()> {
        self.check()
    }

    /// Removes all entries of a shard. After this last commit, reads of later snapshots return
    /// [`StorageError::Dropped`] and all commits conflict, so the shard number can never be mistaken for a new shard.
    /// Durable when it returns. Idempotent; a shard that was never written can be dropped as well. After an error the
    /// shard may still exist.
    fn drop_shard(&self, shard: Shard) -> Result<()>;

    /// Writes `batch` into a shard and makes `state` its last commit, whatever the current one is: for copies of a
    /// store, in which shards keep their versions. Entries of the batch replace existing ones, except for inserts.
    /// Concurrent writers are not excluded, and no listener is notified. Durable after [`Self::sync`].
    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        let _ = (shard, state, batch);
        Err(StorageError::Io("this engine does not support copying".to_owned()))
    }

    /// Reclaims, as far as it is cheap, the space of removed or replaced entries of a shard. Blocks the caller but no
    /// other operation. An error loses no data.
    fn reclaim(&self, shard: Shard) -> Result<()>;

    /// Approximate number of bytes of the entries of a shard on disk, including unwritten buffers.
    fn approximate_size(&self, shard: Shard) -> u64;

    /// Registers `listener` for the lifetime of the engine. It is called after each commit to any shard by another
    /// process, including drops; an engine of a single process never calls it. Several commits to a shard may be one
    /// call, with the version of the last. Calls may be late, and for commits that a snapshot has already shown. After
    /// a failure of the store calls may be spurious, with version 0. The listener must be quick, and must not call the
    /// engine.
    fn subscribe(&self, listener: CommitListener) {
        let _ = listener;
    }

    /// Waits until the listeners were notified of all commits that other processes had finished before the call: data
    /// that is read and cached afterwards is at least that recent. Concurrent calls share one round trip.
    fn catch_up(&self) -> Result<()> {
        Ok(())
    }

    /// Returns the membership of this store.
    fn members(&self) -> &dyn Members {
        &members::SingleMember
    }

    /// Returns the number of groups of shards, each of which one process serves: the holder of its writer lease. `None`
    /// if every process can read and write all shards.
    fn group_count(&self) -> Option<NonZeroU32> {
        None
    }

    /// Returns the service for the other processes of the store. `None` if they send no messages to each other.
    fn peers(&self) -> Option<&dyn PeerService> {
        None
    }

    /// Makes all commits so far durable. A failed sync poisons the engine.
    fn sync(&self) -> Result<()>;

    /// Writes a consistent copy of the whole engine into `directory`, which must not exist. After an error the copy is
    /// incomplete.
    fn checkpoint(&self, directory: &Path) -> Result<()>;

    /// The log of commits, if the engine exports one.
    fn log(&self) -> Option<&dyn CommitLog> {
        None
    }

    /// Describes the stored data that was found to be damaged. All other data is served.
    fn damage(&self) -> Option<String> {
        None
    }

    /// Returns counters for operators: names and values.
    fn statistics(&self) -> Vec<(&'static str, u64)>;
}

/// A repeatable view of one shard. With an engine that is reached over a network, each call of [`Self::read`] and each
/// page of a cursor costs a round trip, so callers should combine requests.
pub trait Snapshot: Send + Sync {
    /// Answers several requests in one round trip: one [`Reply`] of the matching kind for each, in order.
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>>;

    /// Returns a cursor before the first entry of `range` in `direction`.
    fn scan<'a>(
        &'a self,
        space: Keyspace,
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Box<dyn Cursor + 'a>>;

    /// Returns the last commit of the shard.
    fn state(&self) -> Result<ShardState> {
        read::one(self, Request::State)?.into_state()
    }

    /// Returns the head of the shard: a short record that commits replace too often for storing it as an entry, see
    /// [`Batch::set_head`]. `None` if none was ever set.
    fn head(&self) -> Result<Option<Vec<u8>>> {
        read::one(self, Request::Head)?.into_value()
    }

    /// Value of a key.
    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        read::one(self, Request::Get(space, key))?.into_value()
    }

    /// Values of several keys, in order.
    fn multi_get(&self, space: Keyspace, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        if keys.is_empty() {
            return Ok(Vec::new());
        }
        read::one(self, Request::MultiGet(space, keys))?.into_values()
    }
}

/// A position in a scan.
pub trait Cursor: Send {
    /// Moves to the next entry and returns a reference to it; `None` after the last one and on all later calls.
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>>;

    /// Moves so that the next entry is the first one at or after `key` in the direction of the scan, within its range.
    /// May move back.
    fn seek(&mut self, key: &[u8]) -> Result<()>;
}
