//! [`SearchError`]: reason why a search failed.

use settee_database::DatabaseError;
use settee_design::{CompileError, RunError};
use settee_views::{Abandoned, ViewError};

use crate::Error;

/// A failed build returns the same error to all its waiters.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SearchError {
    /// The design document has no such index. CouchDB: 404 `not_found` with this text.
    #[error("{0} not found.")]
    MissingIndex(String),
    /// CouchDB: 400 `invalid_design_doc` with this text.
    #[error("index `{0}` must have parameter `index`")]
    NoFunction(String),
    #[error(transparent)]
    Index(#[from] Error),
    #[error(transparent)]
    Build(#[from] ViewError),
}

impl SearchError {
    #[must_use]
    pub fn is_end(&self) -> bool {
        matches!(self, Self::Build(ViewError::Stopped | ViewError::Paused | ViewError::Cancelled))
    }
}

impl From<DatabaseError> for SearchError {
    fn from(error: DatabaseError) -> Self {
        Self::Build(error.into())
    }
}

impl From<Abandoned> for SearchError {
    fn from(abandoned: Abandoned) -> Self {
        Self::Build(abandoned.into())
    }
}

impl From<CompileError> for SearchError {
    fn from(error: CompileError) -> Self {
        Self::Build(error.into())
    }
}

impl From<RunError> for SearchError {
    fn from(error: RunError) -> Self {
        Self::Build(error.into())
    }
}
