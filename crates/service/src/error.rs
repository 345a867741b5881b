//! [`Error`]: why something was not done.

use std::borrow::Cow;

use settee_auth::user_document::PasswordRefused;
use settee_database::DatabaseError;
use settee_design::{CallError, CompileError};
use settee_model::{AttachmentError, InvalidRev};

/// Why something was not done. The texts are what clients read.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Error {
    /// The database is not there, or its engine failed.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// An attachment makes no sense.
    #[error(transparent)]
    Attachment(#[from] AttachmentError),
    /// A text is no revision.
    #[error(transparent)]
    Rev(#[from] InvalidRev),
    /// A design document's functions do not compile.
    #[error(transparent)]
    Compile(#[from] CompileError),
    /// A function of a design document refused or failed.
    #[error(transparent)]
    Call(#[from] CallError),
    /// A password is none that users may have.
    #[error(transparent)]
    Password(#[from] PasswordRefused),
    /// Somebody else may perhaps do this: whoever asks should say who that is.
    #[error("{0}")]
    Unauthorized(&'static str),
    /// The user may not do this.
    #[error("{0}")]
    Forbidden(Cow<'static, str>),
    /// Another revision is there.
    #[error("Document update conflict.")]
    Conflict,
    /// The document of this id would grow, and its partition is full.
    #[error("Partition limit exceeded due to update on '{0}'")]
    PartitionOverflow(String),
    /// The document is not there, or whoever asks may not know that it is.
    #[error("missing")]
    Missing,
    /// The document is not there any more.
    #[error("deleted")]
    Deleted,
    /// A design document has no such function.
    #[error("missing json key: {0}")]
    MissingFunction(String),
    /// No language of this name is offered.
    #[error("{0}")]
    UnknownLanguage(String),
    /// Functions of one database wait for each other for too long.
    #[error("Too many functions of this database's design documents run at the same time.")]
    TooManyCalls,
    /// The queue of those who log in is full.
    #[error("Too many logins wait to be checked. Try again later.")]
    TooManyLogins,
    /// A fault of the server.
    #[error("{0}")]
    Internal(&'static str),
}

impl Error {
    /// A refusal in these words.
    pub fn forbidden(reason: impl Into<Cow<'static, str>>) -> Self {
        Self::Forbidden(reason.into())
    }
}
