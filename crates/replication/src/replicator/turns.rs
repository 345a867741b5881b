//! Which of several servers on the same databases carries out the replication of a document: all know of all documents, and one
//! of them has the claim to each job. Jobs go to the server that is best for them, also when servers come and go. What a request asks for
//! is carried out by the server that got it, unless another one has the claim already.
//!
//! A claim steers. Should two servers run the same job for a moment, each writes what the other does, and checkpoints conflict.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Job, Origin, Replicator};
use crate::documents::Place;

/// How often claims are looked at.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How long a run that is handed over may take to write down how far it came.
const END_WAIT: Duration = Duration::from_secs(4);

/// The servers that share the work, as one of them sees it.
pub trait Turns: Send + Sync {
    /// Whether there are no others, ever.
    fn is_alone(&self) -> bool;

    /// Whether this server is the best one for a job. Costs nothing.
    fn is_preferred(&self, job: &str) -> bool;

    /// Whether this server has the claim to a job. Costs nothing.
    fn holds(&self, job: &str) -> bool;

    /// Claims a job; `false` if another server has it, or nobody knows. May block.
    fn claim(&self, job: &str) -> bool;

    /// Gives a claim back. May block.
    fn release(&self, job: &str);

    /// The jobs to which this server has a claim.
    fn held(&self) -> Vec<String>;

    /// The names of all databases, if other servers have made some since this was asked last. May block.
    fn new_databases(&self) -> Option<Vec<String>>;
}

/// A server that shares with nobody.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Turns for Alone {
    fn is_alone(&self) -> bool {
        true
    }

    fn is_preferred(&self, _: &str) -> bool {
        true
    }

    fn holds(&self, _: &str) -> bool {
        true
    }

    fn claim(&self, _: &str) -> bool {
        true
    }

    fn release(&self, _: &str) {}

    fn held(&self) -> Vec<String> {
        Vec::new()
    }

    fn new_databases(&self) -> Option<Vec<String>> {
        None
    }
}

impl Replicator {
    /// Whether this server carries out a job: it is the best one for it and nobody else has it.
    pub(crate) async fn takes(&self, job: &Arc<str>) -> bool {
        let turns = Arc::clone(&self.dependencies.turns);
        if turns.is_alone() {
            return true;
        }
        let job = Arc::clone(job);
        let claimed = tokio::task::spawn_blocking(move || turns.is_preferred(&job) && turns.claim(&job));
        claimed.await.unwrap_or_default()
    }

    /// Whether this server carries out what was asked of it: no other one does.
    pub(super) async fn claims(&self, job: &Arc<str>) -> bool {
        let turns = Arc::clone(&self.dependencies.turns);
        if turns.is_alone() {
            return true;
        }
        let job = Arc::clone(job);
        tokio::task::spawn_blocking(move || turns.claim(&job)).await.unwrap_or_default()
    }

    /// A job that was asked for is over: another server may begin it at once.
    pub(super) fn give_back(self: &Arc<Self>, job: &Job) {
        if self.dependencies.turns.is_alone() || !matches!(job.origin, Origin::Transient { .. }) {
            return;
        }
        let (replicator, key) = (Arc::clone(self), Arc::clone(&job.key));
        tokio::task::spawn_blocking(move || {
            // It may have begun again.
            if !replicator.state.lock().jobs.contains_key(&key) {
                replicator.dependencies.turns.release(&key);
            }
        });
    }

    /// Takes and hands over jobs as servers come and go, until the end.
    pub async fn take_turns(self: Arc<Self>) {
        let turns = Arc::clone(&self.dependencies.turns);
        if turns.is_alone() {
            return;
        }
        let mut is_over = self.is_over.subscribe();
        // Claims that no job was seen to need at the last look.
        let mut idle = HashSet::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(LOOK_INTERVAL) => {}
                _ = is_over.wait_for(|is_over| *is_over) => return,
            }
            self.look(&mut idle).await;
        }
    }

    async fn look(self: &Arc<Self>, idle: &mut HashSet<String>) {
        let turns = Arc::clone(&self.dependencies.turns);
        let asking = Arc::clone(&turns);
        let names = tokio::task::spawn_blocking(move || asking.new_databases()).await.unwrap_or_default();
        for name in names.into_iter().flatten() {
            self.database_found(&name);
        }
        let (own, elsewhere, asked) = {
            let state = self.state.lock();
            let asked = state.jobs().filter(|job| matches!(job.origin, Origin::Transient { .. }));
            let asked: Vec<Arc<str>> = asked.map(|job| Arc::clone(&job.key)).collect();
            let (own, elsewhere) = state.documents.places();
            (own, elsewhere, asked)
        };
        for place in elsewhere.iter().filter(|place| turns.is_preferred(&place.job)) {
            if self.takes(&place.job).await {
                self.document_taken(place);
            }
        }
        for place in own.iter().filter(|place| !turns.holds(&place.job) || !turns.is_preferred(&place.job)) {
            tokio::spawn(Arc::clone(self).hand_over(place.clone()));
        }
        // What begins just now claims again when it needs to.
        let needed: HashSet<&str> = own.iter().map(|place| &*place.job).chain(asked.iter().map(|job| &**job)).collect();
        let unused: HashSet<String> = turns.held().into_iter().filter(|job| !needed.contains(&**job)).collect();
        let release: Vec<String> = unused.intersection(idle).cloned().collect();
        *idle = unused;
        if !release.is_empty() {
            // Who waits for it looks again soon.
            let _ = tokio::task::spawn_blocking(move || release.iter().for_each(|job| turns.release(job))).await;
        }
    }

    /// Ends a job here, so that another server can go on where it is.
    async fn hand_over(self: Arc<Self>, place: Place) {
        let ended = {
            let mut state = self.state.lock();
            let job = state.job(&place.job);
            if !self.document_given(&mut state, &place) {
                return;
            }
            job
        };
        tracing::info!(id = &*place.job, "a replication goes on on another server");
        if let Some(job) = ended {
            // After that time the other one begins all the same.
            let _ = tokio::time::timeout(END_WAIT, job.ended()).await;
        }
        let turns = Arc::clone(&self.dependencies.turns);
        let _ = tokio::task::spawn_blocking(move || turns.release(&place.job)).await;
    }
}
