//! What can go wrong with an index or a query, in CouchDB's words. Which status goes with which is for those who answer.

use settee_storage::{StorageError, codec};

/// The result of an operation on an index.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why an index or a query could not be served.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// A query that no grammar admits.
    #[error("Syntax Error, cannot parse {query}: {reason}")]
    Syntax {
        /// The query.
        query: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A request that makes no sense: an unknown analyzer, a sort by a text, a number out of range.
    #[error("{0}")]
    BadRequest(String),
    /// A document gives a field another type than it has.
    #[error("field {field} is of type {found} not {expected}")]
    TypeConflict {
        /// The field.
        field: String,
        /// The type that the document gives it.
        found: &'static str,
        /// The type that it has.
        expected: &'static str,
    },
    /// A document that no index takes: too many fields, too long a term, a broken name.
    #[error("{0}")]
    BadField(String),
    /// A query that is too large for what there is of memory.
    #[error("{0}")]
    TooLarge(String),
    /// The memory for the search is in use by other requests.
    #[error("the memory for requests is in use; see the header Retry-After")]
    OutOfMemory,
    /// The time of the search is over.
    #[error("The request could not be processed in a reasonable amount of time.")]
    TimedOut,
    /// The client disconnected.
    #[error("the client has disconnected")]
    Disconnected,
    /// Somebody else writes to the index.
    #[error("the search index is being written by somebody else")]
    Contended,
    /// The store failed.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// The stored index is not what was written.
    #[error("the search index is corrupt: {0}")]
    Corrupt(String),
}

impl Error {
    pub(crate) fn from_io(error: std::io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(error) => error,
            Err(error) => Self::Corrupt(error.to_string()),
        }
    }

    /// The error as one of `tantivy`. It becomes the same error again on its way out.
    pub(crate) fn within_tantivy(self) -> tantivy::TantivyError {
        std::io::Error::other(self).into()
    }

    pub(crate) fn bad_request(reason: impl Into<String>) -> Self {
        Self::BadRequest(reason.into())
    }
}

impl From<codec::Corrupt> for Error {
    fn from(codec::Corrupt(what): codec::Corrupt) -> Self {
        Self::Corrupt(what.to_owned())
    }
}

impl From<tantivy::TantivyError> for Error {
    fn from(error: tantivy::TantivyError) -> Self {
        use tantivy::TantivyError as E;
        use tantivy::directory::error::{OpenReadError, OpenWriteError};
        // What the store said is wrapped by those in between.
        let io = match &error {
            E::IoError(io) => io,
            E::OpenReadError(OpenReadError::IoError { io_error, .. })
            | E::OpenWriteError(OpenWriteError::IoError { io_error, .. }) => io_error,
            E::InvalidArgument(reason) | E::SchemaError(reason) => return Self::BadRequest(reason.clone()),
            _ => return Self::Corrupt(error.to_string()),
        };
        match io.get_ref().and_then(|inner| inner.downcast_ref::<Self>()) {
            Some(inner) => inner.clone(),
            None => Self::Corrupt(error.to_string()),
        }
    }
}
