//! [`Error`]: failure of an operation. Its texts are part of responses to clients.

use std::borrow::Cow;

use settee_auth::user_document::PasswordRefused;
use settee_database::{DatabaseError, InvalidAccess};
use settee_design::{CallError, CompileError};
use settee_model::{AttachmentError, InvalidRev};
use settee_threads::Failed;

#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Attachment(#[from] AttachmentError),
    #[error(transparent)]
    Rev(#[from] InvalidRev),
    #[error(transparent)]
    AccessList(#[from] InvalidAccess),
    #[error(transparent)]
    Compile(#[from] CompileError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Password(#[from] PasswordRefused),
    #[error("{0}")]
    Unauthorized(&'static str),
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    #[error("Document update conflict.")]
    Conflict,
    /// The update would enlarge this document, and its partition is full.
    #[error("Partition limit exceeded due to update on '{0}'")]
    PartitionOverflow(String),
    /// The document does not exist, or must appear so to this user.
    #[error("missing")]
    Missing,
    #[error("deleted")]
    Deleted,
    #[error("missing json key: {0}")]
    MissingFunction(String),
    #[error("{0}")]
    UnknownLanguage(String),
    #[error("Too many functions of this database's design documents run at the same time.")]
    TooManyCalls,
    #[error("Too many logins wait to be checked. Try again later.")]
    TooManyLogins,
    #[error("{0}")]
    Internal(&'static str),
}

impl From<Failed> for Error {
    fn from(failed: Failed) -> Self {
        Self::Internal(failed.0)
    }
}

impl Error {
    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Forbidden(reason.into())
    }
}
