//! [`ReadClient`]: its disconnect cancels the reads, and its memory limit bounds the read-ahead.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use settee_design::Cancellation;

/// Memory of a [`Memory`], which is returned when this is dropped.
pub type MemoryGrant = Box<dyn Any + Send + Sync>;

/// Memory budget of a client.
pub trait Memory: Send + Sync {
    /// Takes `bytes`. Returns `None` if they are not available; then less is read ahead.
    fn take(&self, bytes: usize) -> Option<MemoryGrant>;
}

/// Client for which documents are read.
#[derive(Clone)]
pub struct ReadClient {
    /// Reads fail with [`DatabaseError::Cancelled`](crate::DatabaseError::Cancelled) once it is cancelled.
    pub cancellation: Cancellation,
    /// Budget for documents that are read ahead.
    pub memory: Option<Arc<dyn Memory>>,
    /// Called between the steps of a read; it may let other threads run first.
    pub pace: fn(),
}

impl Default for ReadClient {
    fn default() -> Self {
        Self { cancellation: Cancellation::default(), memory: None, pace: || {} }
    }
}

impl fmt::Debug for ReadClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReadClient").field("cancellation", &self.cancellation).finish_non_exhaustive()
    }
}
