//! Transition from asynchronous callers to synchronous work: pools of threads for blocking work and for work that waits
//! for clients ([`Threads`]), and separate threads for expensive requests ([`SlowLane`]); fair permits ([`Permits`],
//! [`Shares`]) and the cancellation of work ([`Cancellation`]). This crate is independent of HTTP and of databases.

mod cancellation;
mod lane;
mod permits;
mod pool;
mod run_slots;
mod shares;
mod spawner;

use std::fmt::Display;
use std::sync::{Arc, LazyLock};

pub use cancellation::{CANCELLATION_INTERVAL, CancelOnDrop, Cancellation, Cancelled};
pub use lane::SlowLane;
pub use permits::{Permit, Permits};
pub use pool::{GiveWay, Running, Threads, lower_priority, release_slot, yield_if_long};
pub use shares::{Owner, Rank, Shares};
pub use spawner::Spawner;

/// Maximum number of threads for work that waits for disks and other processes, but never for clients.
pub const SHORT_WORK_MAX: usize = 512;

static SHORT_WORK: LazyLock<Threads> = LazyLock::new(|| Threads::at_most("settee-short", SHORT_WORK_MAX));

tokio::task_local! {
    /// Observes the work of a request, and must not change it.
    static SCOPE: Arc<dyn Scope>;
}

/// Work ended without a result. The text is part of the response to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failed(pub &'static str);

/// Scope in which the work of a request runs on each thread, for example a counter of its reads.
pub trait Scope: Send + Sync {
    /// Must call `work` exactly once.
    fn during(self: Arc<Self>, work: &mut dyn FnMut());
}

pub async fn within<F: Future>(scope: Arc<dyn Scope>, answer: F) -> F::Output {
    SCOPE.scope(scope, answer).await
}

/// Wraps `work` so that it runs on another thread in the scope of the calling task.
pub fn scoped<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let scope = SCOPE.try_with(Arc::clone).ok();
    move || match scope {
        Some(scope) => {
            let (mut work, mut done) = (Some(work), None);
            scope.during(&mut || done = work.take().map(|work| work()));
            done.expect("a scope runs its work once")
        }
        None => work(),
    }
}

/// Runs `work` on the default threads for blocking work, see [`Threads::run`].
pub async fn run<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Failed> + Send + 'static,
{
    SHORT_WORK.run(work).await
}

pub fn begin(work: impl FnOnce() + Send + 'static) {
    drop(SHORT_WORK.spawn(work));
}

#[must_use]
pub fn busy() -> usize {
    SHORT_WORK.busy()
}

fn panicked(panic: &dyn Display) -> Failed {
    tracing::error!(%panic, "a request ended in a panic");
    Failed("the request failed; the cause is in the server's log")
}
