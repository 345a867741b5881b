//! Requests with optimistic validation: they are evaluated against cached state, which their
//! [`commit`](super::commit) validates.

use std::sync::{Arc, OnceLock};

use settee_database::{Database, DatabaseError, ReadSet, StorageError, Submitted, UpdateOutcome, Work, aborted};
use tokio::sync::oneshot;

use super::{lead, require_validated};
use crate::Error;

tokio::task_local! {
    static OPTIMISTIC: Arc<OptimisticRequest>;
}

#[derive(Debug)]
pub enum Optimistic<T> {
    Settled(T),
    /// The response is valid unless the read set is outdated, because the request wrote nothing.
    Open(T),
    /// The read set is outdated, and nothing was written.
    Outdated,
}

/// Read set of a request, and the result of its first commit.
pub(super) struct OptimisticRequest {
    read_set: ReadSet,
    fate: OnceLock<Fate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Validated by a commit, or a commit failed for another reason.
    Settled,
    Outdated,
}

/// Runs a request that depends on `read_set`. It may write only in its own task, by [`commit`](super::commit).
pub async fn with_read_set<F: Future>(read_set: ReadSet, answer: F) -> Optimistic<F::Output> {
    let optimistic = Arc::new(OptimisticRequest { read_set, fate: OnceLock::new() });
    let answer = OPTIMISTIC.scope(Arc::clone(&optimistic), answer).await;
    match optimistic.fate.get() {
        None => Optimistic::Open(answer),
        Some(Fate::Settled) => Optimistic::Settled(answer),
        Some(Fate::Outdated) => Optimistic::Outdated,
    }
}

/// Returns the read set that the next commit of the task must validate.
pub(super) fn current() -> Option<Arc<OptimisticRequest>> {
    let optimistic = OPTIMISTIC.try_with(Arc::clone).ok()?;
    // The first commit has validated the state on which later ones depend.
    (optimistic.fate.get() != Some(&Fate::Settled)).then_some(optimistic)
}

impl OptimisticRequest {
    /// Rejects a request that cannot be validated by one commit.
    pub(super) fn refuse(&self) -> Error {
        let _ = self.fate.set(Fate::Outdated);
        DatabaseError::Storage(StorageError::Outdated).into()
    }

    pub(super) async fn commit(&self, database: &Arc<Database>, work: Work) -> Result<Vec<UpdateOutcome>, Error> {
        if self.fate.get().is_some() {
            return Err(self.refuse());
        }
        require_validated(&work);
        let (sender, receiver) = oneshot::channel();
        // Sending fails if the client has disconnected; the work is done nevertheless.
        let done = Box::new(move |result| drop(sender.send(result)));
        if database.submit_with_read_set(work, &self.read_set, done) == Submitted::Lead {
            lead(database);
        }
        let result = receiver.await;
        if let Ok(Err(DatabaseError::Storage(StorageError::Outdated))) = &result {
            return Err(self.refuse());
        }
        if !matches!(result, Ok(Ok(_))) || self.read_set.is_held() {
            let _ = self.fate.set(Fate::Settled);
        }
        Ok(result.map_err(|_| aborted())??)
    }
}
