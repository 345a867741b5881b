//! Classification of errors of the client library: whether to retry, and on which host.

use std::error::Error as _;
use std::time::Duration;

use settee_storage::StorageError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::WrongType;

use crate::fence::NEXT;

/// Primary key of the table of commits, the fence of commits.
const COMMITS_KEY: &str = "commits_pkey";

/// Reason why there is no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unreached {
    /// The connection was refused or lost.
    #[error("{}", in_words(.0))]
    Failed(#[from] Error),
    /// A host that accepts connections does not respond.
    #[error("no answer for {} s", .0.as_secs())]
    Silent(Duration),
    /// No attempt is made while heartbeats are not answered.
    #[error("the server does not answer, or the network drops packets")]
    Swallowed,
}

/// Reason why a statement failed.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The connection is lost, and the outcome of the statement is unknown.
    Lost(String),
    /// The server asks for a retry.
    Again(String),
    /// Another commit has taken the version.
    Conflict,
    /// The read set is outdated, or cannot be validated. Nothing was written.
    Outdated,
    /// Another error, which a retry would not resolve.
    Refused(StorageError),
}

impl Failure {
    /// Converts the failure for callers that do not retry.
    pub(crate) fn into_error(self) -> StorageError {
        match self {
            Self::Lost(text) => StorageError::Unreached(text),
            // Nothing was written, and a retry may succeed.
            Self::Again(text) => StorageError::Unreached(text),
            Self::Conflict => StorageError::Unreached("a commit met a conflict on every attempt".to_owned()),
            Self::Outdated => StorageError::Outdated,
            Self::Refused(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = in_words(&error);
        let Some(answer) = error.as_db_error() else {
            let is_ours = error.source().is_some_and(<dyn std::error::Error>::is::<WrongType>);
            return if is_ours { Self::Refused(StorageError::Corrupt(text)) } else { Self::Lost(text) };
        };
        let state = answer.code();
        if *state == SqlState::UNIQUE_VIOLATION {
            let is_commit = answer.constraint() == Some(COMMITS_KEY);
            return if is_commit { Self::Conflict } else { Self::Refused(StorageError::Present(text)) };
        }
        if *state == SqlState::NOT_NULL_VIOLATION && answer.table().zip(answer.column()) == Some(NEXT) {
            return Self::Conflict;
        }
        match state.code() {
            "53100" => Self::Refused(StorageError::Full(text)),
            "40001" | "40P01" | "55P03" => Self::Again(text),
            // A primary that became a standby.
            "25006" | "25P03" => Self::Lost(text),
            "XX001" | "XX002" => Self::Refused(StorageError::Corrupt(text)),
            code if code.starts_with("08") || code.starts_with("57P") => Self::Lost(text),
            // No more connections or memory: a transient state.
            code if code.starts_with("53") => Self::Lost(text),
            _ => Self::Refused(StorageError::Io(text)),
        }
    }
}

/// Describes an error and its cause, which the library does not include.
pub(crate) fn in_words(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(answer), _) => format!("PostgreSQL: {} ({})", answer.message(), answer.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
