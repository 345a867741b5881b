//! [`ViewError`]: why a view gave no answer.

use settee_design::{CompileError, RunError};
use settee_storage::StorageError;

use crate::query::QueryError;

/// Why a view gave no answer. A failed build gives the same error to everybody who waited for it.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ViewError {
    /// The design document has no view of this name. CouchDB: 404 `not_found`, with this text.
    #[error("missing_named_view")]
    MissingView,
    /// The parameters do not fit. CouchDB: 400 `query_parse_error`.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// A function does not compile. CouchDB: `compilation_error`.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// Nothing runs this language. CouchDB: 500 `unknown_query_language`, with the name as the reason.
    #[error("{0}")]
    UnknownLanguage(String),
    /// A function ended the build, or what runs it failed. Carries CouchDB's `error` and `reason` where they are known.
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
    /// The work was stopped because the server stops or the database goes away.
    #[error("the index was not brought up to date: it was told to stop")]
    Stopped,
    /// An administrator has paused the build.
    #[error("the index is paused; resume it, or ask with update=false for what there is")]
    Paused,
    /// An administrator ended the build.
    #[error("the index was not brought up to date: the build was cancelled")]
    Cancelled,
    /// Another server builds the same index; the answer is there when it is ready.
    #[error("the index is being changed by somebody else")]
    Contended,
    /// Stored bytes of an index are not what was written.
    #[error("view index is corrupt: {0}")]
    Corrupt(&'static str),
}

impl From<std::io::Error> for ViewError {
    fn from(error: std::io::Error) -> Self {
        Self::Spill(error.to_string())
    }
}

/// The result of an operation on indexes.
pub(crate) type Result<T, E = ViewError> = std::result::Result<T, E>;
