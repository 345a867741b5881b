//! [`Clock`]: the time, as the owner of the real clock hands it down.

use std::fmt;
use std::sync::Arc;

/// Tells microseconds since some moment. Never goes back.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl Clock {
    /// A clock that asks `now_us`.
    pub fn new(now_us: impl Fn() -> u64 + Send + Sync + 'static) -> Self {
        Self(Arc::new(now_us))
    }

    /// A clock that stands still.
    #[must_use]
    pub fn stopped() -> Self {
        Self::new(|| 0)
    }

    /// The time.
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
