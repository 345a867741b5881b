//! Distribution of replications between servers on the same databases. All servers read all documents, and one of them
//! holds the claim to each job. Each job moves to its preferred server, also when servers are added and removed. A
//! replication that a request asks for runs on the server that received the request, unless another server holds its
//! claim.
//!
//! A claim is advisory. If two servers run the same job for a moment, both write the same revisions, and their
//! checkpoints conflict.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::{Job, Origin, Replicator};
use crate::documents::Place;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for a run that is handed over to record its progress.
const END_WAIT: Duration = Duration::from_secs(4);

/// Servers that share the work, as one of them observes them.
pub trait Servers: Send + Sync {
    /// Returns true if there is only one server, permanently.
    fn is_alone(&self) -> bool;

    /// Returns true if this server is the preferred one for a job. Must be cheap.
    fn is_preferred(&self, job: &str) -> bool;

    /// Returns true if this server holds the claim to a job. Must be cheap.
    fn holds(&self, job: &str) -> bool;

    /// Claims a job; returns false if another server holds the claim or the claim cannot be determined. May block.
    fn claim(&self, job: &str) -> bool;

    /// Releases a claim. May block.
    fn release(&self, job: &str);

    /// Returns the jobs whose claims this server holds.
    fn held(&self) -> Vec<String>;

    /// Returns the names of all databases, if other servers may have created some since the last call. May block.
    fn new_databases(&self) -> Option<Vec<String>>;
}

/// Single server, which shares with no other.
#[derive(Clone, Copy, Debug, Default)]
pub struct Alone;

impl Servers for Alone {
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
    /// Returns true if this server runs a job: it is the preferred server and has obtained the claim.
    pub(crate) async fn takes(&self, job: &Arc<str>) -> bool {
        let servers = Arc::clone(&self.dependencies.servers);
        if servers.is_alone() {
            return true;
        }
        let job = Arc::clone(job);
        let claimed = tokio::task::spawn_blocking(move || servers.is_preferred(&job) && servers.claim(&job));
        claimed.await.unwrap_or_default()
    }

    /// Returns true if this server runs a job that was requested from it: no other server holds the claim.
    pub(super) async fn claims(&self, job: &Arc<str>) -> bool {
        let servers = Arc::clone(&self.dependencies.servers);
        if servers.is_alone() {
            return true;
        }
        let job = Arc::clone(job);
        tokio::task::spawn_blocking(move || servers.claim(&job)).await.unwrap_or_default()
    }

    /// Releases the claim to a requested job that has ended, so that another server may start it at once.
    pub(super) fn give_back(self: &Arc<Self>, job: &Job) {
        if self.dependencies.servers.is_alone() || !matches!(job.origin, Origin::Transient { .. }) {
            return;
        }
        let (replicator, key) = (Arc::clone(self), Arc::clone(&job.key));
        tokio::task::spawn_blocking(move || {
            // The job may have been started again.
            if !replicator.state.lock().jobs.contains_key(&key) {
                replicator.dependencies.servers.release(&key);
            }
        });
    }

    /// Takes and hands over jobs as servers are added and removed, until the replicator stops.
    pub async fn balance(self: Arc<Self>) {
        let servers = Arc::clone(&self.dependencies.servers);
        if servers.is_alone() {
            return;
        }
        let mut is_over = self.is_over.subscribe();
        // Claims that no job needed at the last check.
        let mut idle = HashSet::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                _ = is_over.wait_for(|is_over| *is_over) => return,
            }
            self.check_claims(&mut idle).await;
        }
    }

    async fn check_claims(self: &Arc<Self>, idle: &mut HashSet<String>) {
        let servers = Arc::clone(&self.dependencies.servers);
        let asking = Arc::clone(&servers);
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
        for place in elsewhere.iter().filter(|place| servers.is_preferred(&place.job)) {
            if self.takes(&place.job).await {
                self.document_taken(place);
            }
        }
        for place in own.iter().filter(|place| !servers.holds(&place.job) || !servers.is_preferred(&place.job)) {
            tokio::spawn(Arc::clone(self).hand_over(place.clone()));
        }
        // A job that starts at this moment claims again when it needs to.
        let needed: HashSet<&str> = own.iter().map(|place| &*place.job).chain(asked.iter().map(|job| &**job)).collect();
        let unused: HashSet<String> = servers.held().into_iter().filter(|job| !needed.contains(&**job)).collect();
        let release: Vec<String> = unused.intersection(idle).cloned().collect();
        *idle = unused;
        if !release.is_empty() {
            // A server that waits for the claim checks again soon.
            let _ = tokio::task::spawn_blocking(move || release.iter().for_each(|job| servers.release(job))).await;
        }
    }

    /// Ends a job on this server, so that another server can continue it.
    async fn hand_over(self: Arc<Self>, place: Place) {
        let ended = {
            let mut state = self.state.lock();
            let job = state.job(&place.job);
            if !self.document_given(&mut state, &place) {
                return;
            }
            job
        };
        tracing::info!(id = &*place.job, "a replication continues on another server");
        if let Some(job) = ended {
            // After that time the other server starts the job in any case.
            let _ = tokio::time::timeout(END_WAIT, job.ended()).await;
        }
        let servers = Arc::clone(&self.dependencies.servers);
        let _ = tokio::task::spawn_blocking(move || servers.release(&place.job)).await;
    }
}
