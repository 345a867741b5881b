//! [`CommitLog`]: the commits of an engine in order, each with its time, for copies of the store elsewhere. Only
//! engines of the same kind, restored from a checkpoint of it, can interpret the contents of a commit.

use std::ops::ControlFlow;

use crate::Result;

/// Position between two commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogPosition {
    /// Number of times that the engine has opened its log. Commits that were unsynced at an opening may have changed,
    /// so numbers of different openings are not comparable.
    pub opening: u64,
    /// Increases with each commit.
    pub number: u64,
}

/// A commit, or several concurrent ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRecord<'a> {
    /// Number of the position after the record.
    pub end: u64,
    /// Time of the commit in microseconds of the Unix epoch; not later than the time at which any client observed it.
    /// `None` for a commit that the engine made for itself and that changes no read.
    pub time_us: Option<u64>,
    /// Argument of [`CommitLog::replay`].
    pub bytes: &'a [u8],
}

/// Extent of a read of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogRead {
    /// Read up to this position. More records exist only if the reader stopped, or if they were committed concurrently.
    Through(LogPosition),
    /// The following records were removed, or the engine has reopened its log.
    Gap,
}

/// The log of an engine that exports one. The order of commits is one in which they can be applied: if a commit was
/// acknowledged before another one started, it precedes that one.
pub trait CommitLog: Send + Sync {
    /// Returns the position after all commits that were acknowledged so far.
    fn end(&self) -> Result<LogPosition>;

    /// Calls `each` with the commits after `after`, at least up to those acknowledged before the call, until it returns
    /// `Break`.
    fn read(&self, after: LogPosition, each: &mut dyn FnMut(LogRecord<'_>) -> ControlFlow<()>) -> Result<LogRead>;

    /// Applies a record to an engine that was restored from a checkpoint, after all records before it. Records that the
    /// checkpoint already contains may be applied again. The caller must have exclusive use of the engine. Durable with
    /// the next sync.
    fn replay(&self, bytes: &[u8]) -> Result<()>;
}
