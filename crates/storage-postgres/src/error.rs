//! Classification of errors of the client library: whether to retry, and on which host.

use std::error::Error as _;
use std::time::Duration;

use settee_storage::StorageError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;
use tokio_postgres::types::WrongType;

use crate::fence::NEXT_VERSION;

const COMMITS_PRIMARY_KEY: &str = "commits_pkey";

#[derive(Debug, thiserror::Error)]
pub(crate) enum ConnectError {
    #[error("{}", describe(.0))]
    Failed(#[from] Error),
    #[error("no response within {} s", .0.as_secs())]
    Timeout(Duration),
    /// Attempts are skipped while heartbeats are not answered.
    #[error("the server does not respond, or the network drops packets")]
    Unresponsive,
}

#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The connection is lost, and the outcome of the statement is unknown.
    Lost(String),
    Retry(String),
    /// Another commit has taken the version, or the claim of the commit is lost.
    Conflict,
    Permanent(StorageError),
}

impl Failure {
    pub(crate) fn into_error(self) -> StorageError {
        match self {
            Self::Lost(text) => StorageError::Unreached(text),
            // Nothing was written, and a retry may succeed.
            Self::Retry(text) => StorageError::Unreached(text),
            Self::Conflict => StorageError::Unreached("the commit conflicted on every attempt".to_owned()),
            Self::Permanent(error) => error,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = describe(&error);
        let Some(response) = error.as_db_error() else {
            let is_decoding = error.source().is_some_and(<dyn std::error::Error>::is::<WrongType>);
            return if is_decoding { Self::Permanent(StorageError::Corrupt(text)) } else { Self::Lost(text) };
        };
        let state = response.code();
        if *state == SqlState::UNIQUE_VIOLATION {
            let is_commit = response.constraint() == Some(COMMITS_PRIMARY_KEY);
            return if is_commit { Self::Conflict } else { Self::Permanent(StorageError::Present(text)) };
        }
        if *state == SqlState::NOT_NULL_VIOLATION && response.table().zip(response.column()) == Some(NEXT_VERSION) {
            return Self::Conflict;
        }
        match state.code() {
            "53100" => Self::Permanent(StorageError::Full(text)),
            "40001" | "40P01" | "55P03" => Self::Retry(text),
            // A primary that became a standby.
            "25006" | "25P03" => Self::Lost(text),
            "XX001" | "XX002" => Self::Permanent(StorageError::Corrupt(text)),
            code if code.starts_with("08") || code.starts_with("57P") => Self::Lost(text),
            // No more connections or memory: a transient state.
            code if code.starts_with("53") => Self::Lost(text),
            _ => Self::Permanent(StorageError::Io(text)),
        }
    }
}

/// Adds the cause of the error, which the library does not include.
pub(crate) fn describe(error: &Error) -> String {
    match (error.as_db_error(), error.source()) {
        (Some(response), _) => format!("PostgreSQL: {} ({})", response.message(), response.code().code()),
        (None, Some(cause)) => format!("{error}: {cause}"),
        (None, None) => error.to_string(),
    }
}
