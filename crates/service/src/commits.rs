//! Commits of documents: [`commit`] submits work to the update queue of a database.

use std::sync::Arc;

use settee_database::{Completion, Database, Submitted, UpdateOutcome, Work, aborted};
use settee_threads::begin;
use tokio::sync::oneshot;

use crate::Error;

pub async fn commit(database: &Arc<Database>, works: Vec<Work>) -> Result<Vec<UpdateOutcome>, Error> {
    let mut outcomes = Vec::new();
    for result in submit(database, works) {
        let result = result.await.map_err(|_| aborted())?;
        outcomes.extend(result?);
    }
    Ok(outcomes)
}

fn spawn_leader(database: &Arc<Database>) {
    let database = Arc::clone(database);
    begin(move || database.run_as_leader());
}

fn require_validated(work: &Work) {
    let Work::Documents(updates) = work else { return };
    let is_validated = updates.iter().all(|update| update.is_validated() || !update.is_subject_to_validation());
    assert!(is_validated, "documents are written by `Writer::commit`, which has them validated");
}

pub type Submission = oneshot::Receiver<settee_database::Result<Vec<UpdateOutcome>>>;

/// Queues the works of one client, in order, and starts a leader if none is active. The receivers get the results.
pub fn submit(database: &Arc<Database>, works: Vec<Work>) -> Vec<Submission> {
    works.iter().for_each(require_validated);
    let mut receivers = Vec::with_capacity(works.len());
    let mut queued: Vec<(Work, Completion)> = Vec::with_capacity(works.len());
    for work in works {
        let (sender, receiver) = oneshot::channel();
        // Sending fails if the client has disconnected. The work is done nevertheless.
        queued.push((work, Box::new(move |result| drop(sender.send(result)))));
        receivers.push(receiver);
    }
    if database.submit_all(queued) == Submitted::Leader {
        spawn_leader(database);
    }
    receivers
}
