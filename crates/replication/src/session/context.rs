//! [`Context`]: the peers and the services of a session, and its [`Failure`].

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::progress::Progress;
use crate::counters::Counters;
use crate::peer::documents::Rejected;
use crate::peer::{Peer, PeerError};

/// Maximum number of sessions that open their databases concurrently. Opening takes several exchanges, and thousands of
/// sessions that start with the server would need more memory than they do while they wait for changes.
pub(super) const CONCURRENT_STARTS_MAX: usize = 64;

/// A session then starts without a permit, because the holders may wait for unresponsive peers.
pub(super) const START_PERMIT_TIMEOUT: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Places(Arc<Semaphore>);

impl Default for Places {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(CONCURRENT_STARTS_MAX)))
    }
}

impl Places {
    /// The permit is held until the result is dropped. Returns `None` after `START_PERMIT_TIMEOUT`.
    pub(super) async fn take(&self) -> Option<SemaphorePermit<'_>> {
        tokio::time::timeout(START_PERMIT_TIMEOUT, self.0.acquire()).await.ok()?.ok()
    }
}

#[derive(Clone)]
pub struct Services {
    pub now_s: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub new_uuid: Arc<dyn Fn() -> String + Send + Sync>,
    pub places: Places,
    pub counters: Arc<Counters>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Source(#[source] PeerError),
    #[error("{0}")]
    Target(#[source] PeerError),
    #[error("checkpoint_commit_failure: {0}")]
    Checkpoint(String),
    /// The target rejected this document with this transient error.
    #[error("the target temporarily rejects document `{0}`: {1}")]
    Document(String, String),
    /// The source listed this revision of this document and does not have it.
    #[error("document `{0}` is missing revision {1} at the source")]
    Missing(String, String),
}

impl Failure {
    /// Returns true if a side refuses the credentials. A retry would be one more failed login of the account.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        match self {
            Self::Source(error) | Self::Target(error) => error.is_unauthenticated(),
            Self::Checkpoint(_) | Self::Document(..) | Self::Missing(..) => false,
        }
    }
}

pub(super) struct Context {
    pub(super) source: Peer,
    pub(super) target: Peer,
    pub(super) services: Services,
    pub(super) progress: Arc<Progress>,
}

impl Context {
    pub(super) fn record_rejection(&self, rejected: &Rejected) {
        let Rejected { id, rev, error, reason } = rejected;
        let target = self.target.endpoint();
        tracing::warn!("replication could not write document `{id}`, revision {rev}, to {target}: {error}: {reason}");
        self.progress.record_rejection(format!("`{id}`, revision {rev}: {error}: {reason}"));
    }
}
