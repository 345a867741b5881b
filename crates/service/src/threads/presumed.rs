//! Requests with optimistic validation: they are evaluated against cached state, which their
//! [`commit`](super::commit) validates.

use std::sync::{Arc, OnceLock};

use settee_database::{Database, DatabaseError, Premise, StorageError, Submitted, UpdateOutcome, Work};
use tokio::sync::oneshot;

use super::{lead, require_validated};
use crate::Error;

tokio::task_local! {
    /// Read set of the request of this task.
    static PRESUMED: Arc<Presumed>;
}

/// Outcome of a request with optimistic validation.
#[derive(Debug)]
pub enum Judged<T> {
    /// The response is final.
    Settled(T),
    /// The response is valid unless the read set is outdated, because the request wrote nothing.
    Open(T),
    /// The read set is outdated, and nothing was written.
    Outdated,
}

/// Read set of a request, and the result of its first commit.
pub(super) struct Presumed {
    premise: Premise,
    fate: OnceLock<Fate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Validated by a commit, or a commit failed for another reason.
    Settled,
    Outdated,
}

/// Runs a request that depends on `premise`. It may write only in its own task, by [`commit`](super::commit).
pub async fn presuming<F: Future>(premise: Premise, answer: F) -> Judged<F::Output> {
    let presumed = Arc::new(Presumed { premise, fate: OnceLock::new() });
    let answer = PRESUMED.scope(Arc::clone(&presumed), answer).await;
    match presumed.fate.get() {
        None => Judged::Open(answer),
        Some(Fate::Settled) => Judged::Settled(answer),
        Some(Fate::Outdated) => Judged::Outdated,
    }
}

/// Returns the read set that the next commit of the task must validate.
pub(super) fn current() -> Option<Arc<Presumed>> {
    let presumed = PRESUMED.try_with(Arc::clone).ok()?;
    // The first commit has validated the state on which later ones depend.
    (presumed.fate.get() != Some(&Fate::Settled)).then_some(presumed)
}

impl Presumed {
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
        if database.submit_presuming(work, &self.premise, done) == Submitted::Lead {
            lead(database);
        }
        let result = receiver.await;
        if let Ok(Err(DatabaseError::Storage(StorageError::Outdated))) = &result {
            return Err(self.refuse());
        }
        if !matches!(result, Ok(Ok(_))) || self.premise.is_held() {
            let _ = self.fate.set(Fate::Settled);
        }
        Ok(result.map_err(|_| Error::Internal("the update was not completed"))??)
    }
}
