//! [`Job`]: one replication, and [`start`]: one run of it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_model::json::Json;
use tokio::sync::{oneshot, watch};

use super::Replicator;
use crate::id::ReplicationId;
use crate::peer::{Peer, PeerError};
use crate::session::{Control, Failure, Outcome, Progress, Session};
use crate::spec::Spec;
use crate::transport::TransportError;

/// Where a job comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A request to `_replicate`.
    Transient {
        /// The user that asked.
        user: Option<Arc<str>>,
    },
    /// A document.
    Document {
        /// The name of its database.
        database: Arc<str>,
        /// Its id.
        id: Arc<str>,
    },
}

impl Origin {
    /// With whom jobs of this origin share.
    pub(super) fn group(&self) -> Arc<str> {
        match self {
            Self::Transient { user } => user.clone().unwrap_or_default(),
            Self::Document { database, .. } => Arc::clone(database),
        }
    }
}

/// The state of a job.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// It is done; the answer of `_replicate`.
    Completed(Json),
    /// A run failed.
    Failed(Failure),
    /// It was taken out.
    Removed,
}

/// One replication.
pub(crate) struct Job {
    /// The id as text.
    pub(crate) key: Arc<str>,
    pub(crate) id: ReplicationId,
    pub(crate) spec: Arc<Spec>,
    pub(crate) origin: Origin,
    /// When it was put in.
    pub(crate) added_ms: u64,
    /// The statistics of all runs together.
    pub(crate) progress: Arc<Progress>,
    run: Mutex<Option<Run>>,
    /// Held by a run until its end, so that the next one finds its checkpoint.
    turn: Arc<tokio::sync::Mutex<()>>,
    waiting: Mutex<Vec<oneshot::Sender<Ended>>>,
}

#[derive(Debug)]
struct Run {
    number: u64,
    started_ms: u64,
    control: watch::Sender<Control>,
}

impl Job {
    pub(crate) fn new(key: Arc<str>, id: ReplicationId, spec: Arc<Spec>, origin: Origin, added_ms: u64) -> Self {
        Self {
            key,
            id,
            spec,
            origin,
            added_ms,
            progress: Arc::default(),
            run: Mutex::default(),
            turn: Arc::default(),
            waiting: Mutex::default(),
        }
    }

    /// Learns how the job ends.
    pub(super) fn wait(&self) -> oneshot::Receiver<Ended> {
        let (sender, ended) = oneshot::channel();
        self.waiting.lock().push(sender);
        ended
    }

    /// Tells those who wait.
    pub(super) fn end(&self, ended: &Ended) {
        for sender in self.waiting.lock().drain(..) {
            // The client has gone.
            let _ = sender.send(ended.clone());
        }
    }

    /// Tells the run to end, if there is one. It ends later.
    pub(super) fn stop(&self) {
        if let Some(run) = self.run.lock().take() {
            run.control.send_replace(Control::Stop);
        }
    }

    /// Waits until no run of it goes on.
    pub(super) async fn ended(&self) {
        drop(self.turn.lock().await);
    }

    pub(super) fn is_run(&self, number: u64) -> bool {
        self.run.lock().as_ref().is_some_and(|run| run.number == number)
    }

    pub(super) fn forget_run(&self) {
        self.run.lock().take();
    }

    /// The number of the run and when it began.
    pub(super) fn running(&self) -> Option<(u64, u64)> {
        self.run.lock().as_ref().map(|run| (run.number, run.started_ms))
    }
}

/// Starts a run after some time.
pub(super) fn start(replicator: &Arc<Replicator>, job: Arc<Job>, number: u64, jitter_ms: u64) {
    let (control, controlled) = watch::channel(Control::Run);
    let started_ms = (replicator.dependencies.now_ms)();
    *job.run.lock() = Some(Run { number, started_ms, control });
    replicator.active.send_modify(|active| *active += 1);
    let ending = Ending { replicator: Arc::clone(replicator), job, number, outcome: None };
    tokio::spawn(run(ending, controlled, jitter_ms));
}

/// Tells the replicator how a run ended, also when it ended in a panic.
struct Ending {
    replicator: Arc<Replicator>,
    job: Arc<Job>,
    number: u64,
    outcome: Option<Outcome>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        // A run that is dropped on its way belongs to a runtime that ends, and then nobody wants to know.
        if self.outcome.is_some() || std::thread::panicking() {
            self.replicator.ended(&self.job, self.number, self.outcome.take());
        }
        self.replicator.active.send_modify(|active| *active -= 1);
    }
}

async fn run(mut ending: Ending, mut control: watch::Receiver<Control>, jitter_ms: u64) {
    let turn = Arc::clone(&ending.job.turn).lock_owned().await;
    let stopped = async { control.wait_for(|control| *control == Control::Stop).await.is_ok() };
    if tokio::time::timeout(Duration::from_millis(jitter_ms), stopped).await.is_ok() {
        ending.outcome = Some(Outcome::Stopped);
        return;
    }
    let session = session(&ending.replicator, &ending.job);
    // On the heap: what waits for its next change for days should hold no more than it needs.
    let outcome = match session {
        Ok(session) => Box::pin(session.run(control)).await,
        Err(failure) => {
            ending.replicator.counters().failed_starts.increment();
            Outcome::Failed(failure)
        }
    };
    // Before the replicator is notified of it: a waiting run may then begin.
    drop(turn);
    ending.outcome = Some(outcome);
}

fn session(replicator: &Replicator, job: &Job) -> Result<Session, Failure> {
    let connect = |endpoint| replicator.connect(endpoint, &job.spec.tuning);
    let failed = |endpoint: &dyn std::fmt::Display, error: TransportError| PeerError::Transport {
        method: "CONNECT".to_owned(),
        url: endpoint.to_string(),
        error,
    };
    let (source, target) = (&job.spec.source, &job.spec.target);
    let from = connect(source).map_err(|error| Failure::Source(failed(source, error)))?;
    let to = connect(target).map_err(|error| Failure::Target(failed(target, error)))?;
    Ok(Session::new(
        Arc::clone(&job.spec),
        job.id.clone(),
        Peer::new(source.clone(), from, &job.spec.tuning),
        Peer::new(target.clone(), to, &job.spec.tuning),
        replicator.dependencies.services.clone(),
        Arc::clone(&job.progress),
    ))
}
