//! [`CommitLog`]: the commits of an engine in their order, each with its time, for those who keep a copy of it elsewhere. What a
//! commit holds only the engine knows, and engines of the same kind that began with a checkpoint of it.

use std::ops::ControlFlow;

use crate::Result;

/// A place between two commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// How often the engine had opened its log: what it had not synced by then may have changed, so that numbers of two openings
    /// cannot be compared.
    pub opening: u64,
    /// Grows with each commit.
    pub number: u64,
}

/// A commit, or several that were made at the same time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// The number of the position behind it.
    pub end: u64,
    /// When it was made, in microseconds of the Unix epoch: not later than anybody heard of it. `None`: the engine made it for
    /// itself, and it changes nothing that is read.
    pub time_us: Option<u64>,
    /// For [`CommitLog::replay`].
    pub bytes: &'a [u8],
}

/// How far a log could be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRead {
    /// Up to here; there is more only if the reader did not want it, or it was committed meanwhile.
    Through(LogPosition),
    /// What follows is not there any more, or the engine has opened its log anew.
    Gap,
}

/// The log of an engine that keeps one. Commits come in an order in which they may be applied: a commit that was answered before
/// another began stands before it.
pub trait CommitLog: Send + Sync {
    /// The position behind all commits that were answered so far.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn end(&self) -> Result<LogPosition>;

    /// Calls `each` with the commits behind `after`, up to those that were answered before the call at least, for as long as
    /// it wants more.
    ///
    /// # Errors
    /// When the engine cannot be read.
    fn read(&self, after: LogPosition, each: &mut dyn FnMut(LogRecord<'_>) -> ControlFlow<()>) -> Result<LogRead>;

    /// Applies a record to an engine that began with a checkpoint, behind all records before it: some of those that the checkpoint
    /// has may be applied once more. Nobody else uses the engine meanwhile. Durable with the next sync.
    ///
    /// # Errors
    /// When it was not applied.
    fn replay(&self, bytes: &[u8]) -> Result<()>;
}
