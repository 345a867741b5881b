//! [`Clock`]: the source of time, supplied by the caller.

use std::fmt;
use std::sync::Arc;

/// A monotonic clock in microseconds since an arbitrary moment.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// Creates a clock that calls `now_us`.
    pub fn new(now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_us))
    }

    /// Creates a clock that does not advance.
    #[must_use]
    pub fn stopped() -> Self {
        Self::new(|| 0)
    }

    /// Returns the time in microseconds.
    #[must_use]
    pub fn now_us(&self) -> u64 {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
