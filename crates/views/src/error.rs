//! [`ViewError`]: failure of a view query or build; [`QueryError`]: invalid parameters.

use settee_design::{CompileError, RunError};
use settee_storage::StorageError;
use settee_storage::codec::Corrupt;

/// Failure of a view query. A failed build returns the same error to all its waiters.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// The design document has no such view. CouchDB: 404 `not_found` with this text.
    #[error("missing_named_view")]
    MissingView,
    /// CouchDB: 400 `query_parse_error`.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// CouchDB: `compilation_error`.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// The language is unavailable. CouchDB: 500 `unknown_query_language` with the name as the reason.
    #[error("{0}")]
    UnknownLanguage(String),
    /// A function ended the build, or its runtime failed. Contains CouchDB's `error` and `reason` if available.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The storage engine failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// Temporary files could not be written or read.
    #[error("temporary file: {0}")]
    Spill(String),
    /// The database could not be read.
    #[error("{0}")]
    Source(String),
    /// The server stops or the database is deleted.
    #[error("the index was not updated: its build was stopped")]
    Stopped,
    /// An administrator has paused the build.
    #[error("the index is paused; resume it, or query its current state with update=false")]
    Paused,
    /// An administrator has cancelled the build.
    #[error("the index was not updated: its build was cancelled")]
    Cancelled,
    /// Another process builds the same index; a retry succeeds after that build.
    #[error("another process is writing to the index")]
    Contended,
    /// The waiting client has disconnected. The build continues.
    #[error(transparent)]
    Disconnected(#[from] settee_design::Cancelled),
    /// The stored bytes of an index are invalid.
    #[error("view index is corrupt: {0}")]
    Corrupt(&'static str),
    /// The tree of an index refers to a node that the shard does not contain at this state.
    #[error("view index is corrupt: node {node} is missing in shard {shard} at commit {version}, token {token:x}")]
    MissingNode {
        /// Number of the node.
        node: u64,
        /// Number of the shard.
        shard: u64,
        /// Version of the shard.
        version: u64,
        /// Token of its last commit.
        token: u128,
    },
}

/// Contradictory parameters, or parameters that do not match the type of view. CouchDB: 400 `query_parse_error` with
/// these texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// `reduce=true` on a view without reduce function.
    #[error("Reduce is invalid for map-only views.")]
    ReduceOnMap,
    /// `group` or `group_level` on a view without reduce function or with `reduce=false`.
    #[error("Invalid use of grouping on a map view.")]
    GroupingOnMap,
    /// `include_docs` with a reduction.
    #[error("`include_docs` is invalid for reduce")]
    DocsOnReduce,
    /// Several `keys` with a reduction other than `group=true`.
    #[error("Multi-key fetches for reduce views must use `group=true`")]
    ManyKeysOnReduce,
    /// A partitioned view was queried without a partition.
    #[error("`partition` parameter is mandatory for queries to this view.")]
    PartitionMissing,
    /// A global view was queried with a partition.
    #[error("`partition` parameter is not supported in this design doc")]
    PartitionOnGlobal,
    /// `startkey` is after `endkey`.
    #[error("No rows can match your key range, reverse your start_key and end_key or set descending=true")]
    RangeNotAscending,
    /// `startkey` is before `endkey` although `descending=true`.
    #[error("No rows can match your key range, reverse your start_key and end_key or set descending=false")]
    RangeNotDescending,
}

impl From<Corrupt> for ViewError {
    fn from(Corrupt(label): Corrupt) -> Self {
        Self::Corrupt(label)
    }
}

impl From<std::io::Error> for ViewError {
    fn from(error: std::io::Error) -> Self {
        Self::Spill(error.to_string())
    }
}

pub(crate) type Result<T, E = ViewError> = std::result::Result<T, E>;
