//! [`ReadClient`]: the client that documents are read for. Its disconnect ends the reads, and its memory bounds what is read ahead.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use settee_design::Cancellation;

/// Memory that was taken from a [`Memory`]. It is returned when this is dropped.
pub type Taken = Box<dyn Any + Send + Sync>;

/// The memory that a client may use.
pub trait Memory: Send + Sync {
    /// Takes `bytes`. `None` if they are not available: then less is read ahead.
    fn take(&self, bytes: usize) -> Option<Taken>;
}

/// The client that documents are read for.
#[derive(Clone, Default)]
pub struct ReadClient {
    /// Reads fail with [`DatabaseError::Cancelled`](crate::DatabaseError::Cancelled) once it is cancelled.
    pub cancellation: Cancellation,
    /// Documents that are read ahead are charged to this.
    pub memory: Option<Arc<dyn Memory>>,
}

impl fmt::Debug for ReadClient {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("ReadClient").field("cancellation", &self.cancellation).finish_non_exhaustive()
    }
}
