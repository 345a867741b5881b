//! The claims of this server to jobs: acquisition, release, and the transfer of jobs to other servers.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::Replicator;
use super::job::{Job, Origin};
use crate::documents::DocumentJob;

const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum time for a run to record its progress before another server starts the job.
const TRANSFER_TIMEOUT: Duration = Duration::from_secs(4);

impl Replicator {
    /// Returns true if this server is the preferred one for a job and has obtained the claim.
    pub(crate) async fn claim_if_preferred(&self, job: &Arc<str>) -> bool {
        let servers = Arc::clone(&self.dependencies.servers);
        if servers.is_alone() {
            return true;
        }
        let job = Arc::clone(job);
        let claimed = tokio::task::spawn_blocking(move || servers.is_preferred(&job) && servers.claim(&job));
        claimed.await.unwrap_or_default()
    }

    /// Returns true if this server may run a job that a client requested from it.
    pub(super) async fn claims(&self, job: &Arc<str>) -> bool {
        let servers = Arc::clone(&self.dependencies.servers);
        if servers.is_alone() {
            return true;
        }
        let job = Arc::clone(job);
        tokio::task::spawn_blocking(move || servers.claim(&job)).await.unwrap_or_default()
    }

    /// Releases the claim to a transient job that has ended, so that another server may start it at once.
    pub(super) fn release_claim(self: &Arc<Self>, job: &Job) {
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
        let mut is_stopping = self.is_stopping.subscribe();
        let mut idle = HashSet::new();
        loop {
            tokio::select! {
                () = tokio::time::sleep(CHECK_INTERVAL) => {}
                _ = is_stopping.wait_for(|is_stopping| *is_stopping) => return,
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
            let (own, elsewhere) = state.documents.document_jobs();
            (own, elsewhere, asked)
        };
        for document_job in elsewhere.iter().filter(|document_job| servers.is_preferred(&document_job.job)) {
            if self.claim_if_preferred(&document_job.job).await {
                self.claim_acquired(document_job);
            }
        }
        for document_job in own
            .iter()
            .filter(|document_job| !servers.holds(&document_job.job) || !servers.is_preferred(&document_job.job))
        {
            tokio::spawn(Arc::clone(self).transfer_job(document_job.clone()));
        }
        // A job that starts concurrently claims again.
        let needed: HashSet<&str> =
            own.iter().map(|document_job| &*document_job.job).chain(asked.iter().map(|job| &**job)).collect();
        let unused: HashSet<String> = servers.held().into_iter().filter(|job| !needed.contains(&**job)).collect();
        let release: Vec<String> = unused.intersection(idle).cloned().collect();
        *idle = unused;
        if !release.is_empty() {
            // A server that waits for the claim checks again soon.
            let _ = tokio::task::spawn_blocking(move || release.iter().for_each(|job| servers.release(job))).await;
        }
    }

    /// Ends a job on this server, so that another server can continue it.
    async fn transfer_job(self: Arc<Self>, document_job: DocumentJob) {
        let ended = {
            let mut state = self.state.lock();
            let job = state.job(&document_job.job);
            if !self.claim_released(&mut state, &document_job) {
                return;
            }
            job
        };
        tracing::info!(id = &*document_job.job, "a replication continues on another server");
        if let Some(job) = ended {
            // After the timeout the other server starts the job in any case.
            let _ = tokio::time::timeout(TRANSFER_TIMEOUT, job.ended()).await;
        }
        let servers = Arc::clone(&self.dependencies.servers);
        let _ = tokio::task::spawn_blocking(move || servers.release(&document_job.job)).await;
    }
}
