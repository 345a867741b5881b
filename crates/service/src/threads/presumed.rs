//! Requests that are judged by what this process knows, and find out with their [`commit`](super::commit) whether that was all there is to know.

use std::sync::{Arc, OnceLock};

use settee_database::{Database, DatabaseError, Premise, StorageError, Submitted, UpdateOutcome, Work};
use tokio::sync::oneshot;

use super::{lead, require_validated};
use crate::Error;

tokio::task_local! {
    /// What the request of this task presumes.
    static PRESUMED: Arc<Presumed>;
}

/// What became of a request that presumes something.
#[derive(Debug)]
pub enum Judged<T> {
    /// It has its answer, whatever that is.
    Settled(T),
    /// This is its answer, unless there is news: it had nothing to write.
    Open(T),
    /// There is news, and nothing was written.
    Outdated,
}

/// What a request presumes, and what its first commit has found out.
pub(super) struct Presumed {
    premise: Premise,
    fate: OnceLock<Fate>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It was committed, or nobody knows.
    Settled,
    Outdated,
}

/// Answers a request that is judged by `premise`. Only its own task may write for it, by [`commit`](super::commit).
pub async fn presuming<F: Future>(premise: Premise, answer: F) -> Judged<F::Output> {
    let presumed = Arc::new(Presumed { premise, fate: OnceLock::new() });
    let answer = PRESUMED.scope(Arc::clone(&presumed), answer).await;
    match presumed.fate.get() {
        None => Judged::Open(answer),
        Some(Fate::Settled) => Judged::Settled(answer),
        Some(Fate::Outdated) => Judged::Outdated,
    }
}

/// What the next commit of the task has to find out.
pub(super) fn current() -> Option<Arc<Presumed>> {
    let presumed = PRESUMED.try_with(Arc::clone).ok()?;
    // What follows a commit was judged by what that has found out.
    (presumed.fate.get() != Some(&Fate::Settled)).then_some(presumed)
}

impl Presumed {
    /// Gives up what cannot find out: several works are several commits.
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
        // Nobody listens when the client has gone; the work is done all the same.
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
