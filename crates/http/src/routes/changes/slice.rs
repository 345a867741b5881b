//! [`Slice`]: the time that a feed may read before it sends what it has found.

use std::time::Duration;

use tokio::time::Instant;

/// A feed sends rows at least this often while it finds some, and notices about this long after it that its client has disconnected.
const LENGTH: Duration = Duration::from_millis(500);

/// A period of reading.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    end: Option<Instant>,
}

impl Slice {
    /// A slice that ends after [`LENGTH`].
    pub(super) fn start() -> Self {
        Self { end: Some(Instant::now() + LENGTH) }
    }

    /// A slice without an end.
    pub(super) fn endless() -> Self {
        Self { end: None }
    }

    /// A slice of one step.
    #[cfg(test)]
    pub(super) fn over() -> Self {
        Self { end: Some(Instant::now()) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= Instant::now())
    }
}
