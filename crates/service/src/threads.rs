//! Transition from asynchronous callers to the synchronous core: threads for blocking work ([`run`]), threads that
//! wait for clients ([`Threads`]), and separate threads for expensive requests ([`SlowLane`]).

mod lane;
mod optimistic;
mod pool;
mod run_slots;

use std::fmt::Display;
use std::sync::{Arc, LazyLock};

use settee_database::{Completion, Database, Submitted, Tally, UpdateOutcome, Work, aborted};
use tokio::sync::oneshot;

use crate::Error;

pub use lane::SlowLane;
pub use optimistic::{Optimistic, with_read_set};
pub use pool::{GiveWay, Running, Threads, give_way, release_slot, yield_if_long};

/// Maximum number of threads for work that waits for disks and other processes, but never for clients. It exceeds
/// what any machine can use and is acceptable on all.
pub const SHORT_WORK_MAX: usize = 512;

static SHORT_WORK: LazyLock<Threads> = LazyLock::new(|| Threads::at_most("settee-short", SHORT_WORK_MAX));

tokio::task_local! {
    static TALLY: Arc<Tally>;

    /// Threads of a task that does not use the default ones.
    static THREADS: Arc<Threads>;
}

/// Runs `answer` and counts its reads by [`run`] and [`tallied`] in `tally`.
pub async fn counted<F: Future>(tally: Arc<Tally>, answer: F) -> F::Output {
    TALLY.scope(tally, answer).await
}

/// Wraps `work` for another thread, so that its reads are counted for the request of this task.
pub fn tallied<T>(work: impl FnOnce() -> T) -> impl FnOnce() -> T {
    let tally = TALLY.try_with(Arc::clone).ok();
    move || match tally {
        Some(tally) => tally.during(work),
        None => work(),
    }
}

/// Runs `work` on a thread that may block.
///
/// # Errors
/// Returns errors of `work`, and an error if it panicked.
pub async fn run<T, E>(work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, E>
where
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let work = tallied(work);
    let running = match THREADS.try_with(Arc::clone) {
        Ok(threads) => threads.spawn(work),
        Err(_) => SHORT_WORK.spawn(work),
    };
    running.end().await?
}

/// Starts `work` on a thread that may block, without waiting for it.
pub fn begin(work: impl FnOnce() + Send + 'static) {
    drop(SHORT_WORK.spawn(work));
}

/// Number of threads that are busy with work of [`run`] and [`begin`].
#[must_use]
pub fn busy() -> usize {
    SHORT_WORK.busy()
}

/// Logs a panic and returns the error for the client.
#[must_use]
pub fn panicked(panic: &dyn Display) -> Error {
    tracing::error!(%panic, "a request ended in a panic");
    Error::Internal("the request failed; the cause is in the server's log")
}

/// Commits `works` in order and returns all outcomes.
pub async fn commit(database: &Arc<Database>, works: Vec<Work>) -> Result<Vec<UpdateOutcome>, Error> {
    if let Some(optimistic) = optimistic::current() {
        let [work]: [Work; 1] = works.try_into().map_err(|_| optimistic.refuse())?;
        return optimistic.commit(database, work).await;
    }
    let mut outcomes = Vec::new();
    for result in submit(database, works) {
        let result = result.await.map_err(|_| aborted())?;
        outcomes.extend(result?);
    }
    Ok(outcomes)
}

fn lead(database: &Arc<Database>) {
    let database = Arc::clone(database);
    begin(move || database.lead());
}

fn require_validated(work: &Work) {
    assert!(is_validated(work), "documents are written by `Writer::commit`, which has them validated");
}

fn is_validated(work: &Work) -> bool {
    let Work::Documents(updates) = work else { return true };
    updates.iter().all(|update| update.is_validated() || !update.is_subject_to_validation())
}

pub type Submission = oneshot::Receiver<settee_database::Result<Vec<UpdateOutcome>>>;

/// Queues the works of one client, in order, and starts a leader if none is active. The receivers get the results.
pub fn submit(database: &Arc<Database>, works: Vec<Work>) -> Vec<Submission> {
    works.iter().for_each(require_validated);
    let mut receivers = Vec::with_capacity(works.len());
    let mut queued: Vec<(Work, Completion)> = Vec::with_capacity(works.len());
    for work in works {
        let (sender, receiver) = oneshot::channel();
        // Sending fails if the client has disconnected; the work is done nevertheless.
        queued.push((work, Box::new(move |result| drop(sender.send(result)))));
        receivers.push(receiver);
    }
    if database.submit_all(queued) == Submitted::Lead {
        lead(database);
    }
    receivers
}
