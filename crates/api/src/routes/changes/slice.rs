//! [`TimeSlice`]: time limit of a read of a feed, after which it sends its rows.

use std::time::Duration;

use tokio::time::Instant;

/// Maximum time between sends. A disconnected client is detected after about this time.
const LENGTH: Duration = Duration::from_millis(500);

#[derive(Clone, Copy, Debug)]
pub(super) struct TimeSlice {
    end: Option<Instant>,
}

impl TimeSlice {
    pub(super) fn start() -> Self {
        Self { end: Some(Instant::now() + LENGTH) }
    }

    pub(super) fn endless() -> Self {
        Self { end: None }
    }

    #[cfg(test)]
    pub(super) fn over() -> Self {
        Self { end: Some(Instant::now()) }
    }

    pub(super) fn is_over(&self) -> bool {
        self.end.is_some_and(|end| end <= Instant::now())
    }
}
