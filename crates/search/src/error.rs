//! Errors of indexes and queries with CouchDB's texts.

use settee_storage::{StorageError, codec};

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error("Syntax Error, cannot parse {query}: {reason}")]
    Syntax { query: String, reason: String },
    /// Invalid request: an unknown analyzer, a sort by a text, a number out of range.
    #[error("{0}")]
    BadRequest(String),
    #[error("field {field} is of type {found} not {expected}")]
    TypeConflict { field: String, found: &'static str, expected: &'static str },
    /// The document cannot be indexed: too many fields, a term that is too long, an invalid name.
    #[error("{0}")]
    BadField(String),
    #[error("{0}")]
    TooLarge(String),
    #[error("the memory for requests is in use; see the header Retry-After")]
    OutOfMemory,
    #[error("The request could not be processed in a reasonable amount of time.")]
    TimedOut,
    #[error("the client has disconnected")]
    Disconnected,
    #[error("another process is writing to the search index")]
    Contended,
    #[error(transparent)]
    Storage(#[from] StorageError),
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

    /// Wraps the error in one of `tantivy`; [`From`] unwraps it.
    pub(crate) fn within_tantivy(self) -> tantivy::TantivyError {
        std::io::Error::other(self).into()
    }

    pub(crate) fn bad_request(reason: impl Into<String>) -> Self {
        Self::BadRequest(reason.into())
    }
}

impl From<codec::Corrupt> for Error {
    fn from(codec::Corrupt(label): codec::Corrupt) -> Self {
        Self::Corrupt(label.to_owned())
    }
}

impl From<tantivy::TantivyError> for Error {
    fn from(error: tantivy::TantivyError) -> Self {
        use tantivy::TantivyError as E;
        use tantivy::directory::error::{OpenReadError, OpenWriteError};
        // `tantivy` wraps errors of the store in several layers.
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
