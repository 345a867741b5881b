//! [`Cancellation`]: notifies work on behalf of a client that the client has disconnected. Work is cancelled
//! cooperatively: it checks its cancellation between steps. A thread that waits for another one or for a process checks
//! it every [`CANCELLATION_INTERVAL`]. It never discards committed data.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Maximum time between two checks of a waiting thread.
pub const CANCELLATION_INTERVAL: Duration = Duration::from_millis(25);

#[derive(Clone, Debug, Default)]
pub struct Cancellation(Arc<AtomicBool>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the client has disconnected")]
pub struct Cancelled;

#[derive(Debug)]
pub struct CancelOnDrop(Cancellation);

impl Cancellation {
    /// Returns the cancellation of work without a client: it never occurs.
    #[must_use]
    pub fn never() -> Self {
        Self::default()
    }

    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn check(&self) -> Result<(), Cancelled> {
        if self.is_cancelled() { Err(Cancelled) } else { Ok(()) }
    }

    #[must_use]
    pub fn on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }
}

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_are_cancelled_together_and_others_are_not() {
        let (first, other) = (Cancellation::default(), Cancellation::never());
        let guard = first.clone().on_drop();
        assert_eq!((first.check(), other.check()), (Ok(()), Ok(())));
        drop(guard);
        assert_eq!((first.check(), other.check()), (Err(Cancelled), Ok(())));
    }
}
