//! [`Session`]: carries a replication out, once or continuously.

mod progress;

use std::sync::Arc;

use settee_model::json::Json;
use tokio::sync::watch;

use crate::id::ReplicationId;
use crate::peer::{Peer, PeerError};
use crate::spec::Spec;
pub use progress::{Progress, Statistics};

/// What a session needs from outside.
#[derive(Clone)]
pub struct Services {
    /// Seconds since 1970 by the clock of the wall, for the dates in checkpoints.
    pub now_s: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// A new random id of 32 hexadecimal digits.
    pub new_uuid: Arc<dyn Fn() -> String + Send + Sync>,
}

/// What a running session is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Control {
    /// Go on.
    #[default]
    Run,
    /// Record how far it came and end.
    Stop,
}

/// How a session ended.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// A one-shot replication is through. The members of the answer of `_replicate` behind `ok`: an object with
    /// `session_id`, `source_last_seq`, `history` and so on, as CouchDB answers it.
    Completed(Json),
    /// It was told to stop, and the checkpoint is written (or could not be).
    Stopped,
    /// It cannot go on; perhaps a later session can.
    Failed(Failure),
}

/// Why a session ended early.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Failure {
    /// An exchange with the source.
    #[error("source: {0}")]
    Source(#[source] PeerError),
    /// An exchange with the target.
    #[error("target: {0}")]
    Target(#[source] PeerError),
    /// A checkpoint.
    #[error("checkpoint: {0}")]
    Checkpoint(String),
}

/// One run of a replication.
pub struct Session {
    spec: Spec,
    id: ReplicationId,
    source: Peer,
    target: Peer,
    services: Services,
    progress: Arc<Progress>,
}

impl Session {
    /// A session that has not begun. `progress` goes on counting where earlier sessions of the job ended.
    #[must_use]
    pub fn new(
        spec: Spec,
        id: ReplicationId,
        source: Peer,
        target: Peer,
        services: Services,
        progress: Arc<Progress>,
    ) -> Self {
        Self { spec, id, source, target, services, progress }
    }

    /// Runs to its end. A one-shot session completes when it has seen what the source had when it came there; a continuous
    /// one runs until it is told to stop or fails.
    pub async fn run(self, control: watch::Receiver<Control>) -> Outcome {
        let _ = (self.spec, self.id, self.source, self.target, self.services, self.progress, control);
        Outcome::Stopped
    }
}
