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

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    Transient { user: Option<Arc<str>> },
    Document { database: Arc<str>, id: Arc<str> },
}

impl Origin {
    pub(crate) fn database(&self) -> Option<&str> {
        match self {
            Self::Transient { .. } => None,
            Self::Document { database, .. } => Some(database),
        }
    }

    pub(crate) fn document(&self) -> Option<&str> {
        match self {
            Self::Transient { .. } => None,
            Self::Document { id, .. } => Some(id),
        }
    }

    pub(super) fn group(&self) -> Arc<str> {
        match self {
            Self::Transient { user } => user.clone().unwrap_or_default(),
            Self::Document { database, .. } => Arc::clone(database),
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) enum RunEnd {
    Completed(Json),
    Failed(Failure),
    Removed,
}

pub(crate) struct Job {
    pub(crate) key: Arc<str>,
    pub(crate) id: ReplicationId,
    pub(crate) spec: Arc<Spec>,
    pub(crate) origin: Origin,
    pub(crate) added_ms: u64,
    pub(crate) progress: Arc<Progress>,
    run: Mutex<Option<Run>>,
    /// Held by a run until its end, so that the next run finds its checkpoint.
    run_lock: Arc<tokio::sync::Mutex<()>>,
    waiting: Mutex<Vec<oneshot::Sender<RunEnd>>>,
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
            run_lock: Arc::default(),
            waiting: Mutex::default(),
        }
    }

    pub(super) fn wait(&self) -> oneshot::Receiver<RunEnd> {
        let (sender, ended) = oneshot::channel();
        self.waiting.lock().push(sender);
        ended
    }

    pub(super) fn end(&self, ended: &RunEnd) {
        for sender in self.waiting.lock().drain(..) {
            let _ = sender.send(ended.clone());
        }
    }

    pub(super) fn stop(&self) {
        if let Some(run) = self.run.lock().take() {
            run.control.send_replace(Control::Stop);
        }
    }

    pub(super) async fn ended(&self) {
        drop(self.run_lock.lock().await);
    }

    pub(super) fn is_run(&self, number: u64) -> bool {
        self.run.lock().as_ref().is_some_and(|run| run.number == number)
    }

    pub(super) fn forget_run(&self) {
        self.run.lock().take();
    }

    pub(super) fn running(&self) -> Option<(u64, u64)> {
        self.run.lock().as_ref().map(|run| (run.number, run.started_ms))
    }
}

pub(super) fn start(replicator: &Arc<Replicator>, job: Arc<Job>, number: u64, jitter_ms: u64) {
    let (control, controlled) = watch::channel(Control::Run);
    let started_ms = (replicator.dependencies.now_ms)();
    *job.run.lock() = Some(Run { number, started_ms, control });
    replicator.active.send_modify(|active| *active += 1);
    let ending = RunGuard { replicator: Arc::clone(replicator), job, number, outcome: None };
    tokio::spawn(run(ending, controlled, jitter_ms));
}

/// Reports the end of a run, also after a panic.
struct RunGuard {
    replicator: Arc<Replicator>,
    job: Arc<Job>,
    number: u64,
    outcome: Option<Outcome>,
}

impl Drop for RunGuard {
    fn drop(&mut self) {
        // A run that is dropped before its end belongs to a runtime that is shut down; its end is not reported.
        if self.outcome.is_some() || std::thread::panicking() {
            self.replicator.ended(&self.job, self.number, self.outcome.take());
        }
        self.replicator.active.send_modify(|active| *active -= 1);
    }
}

async fn run(mut ending: RunGuard, mut control: watch::Receiver<Control>, jitter_ms: u64) {
    let run_lock = Arc::clone(&ending.job.run_lock).lock_owned().await;
    let stopped = async { control.wait_for(|control| *control == Control::Stop).await.is_ok() };
    if tokio::time::timeout(Duration::from_millis(jitter_ms), stopped).await.is_ok() {
        ending.outcome = Some(Outcome::Stopped);
        return;
    }
    let session = session(&ending.replicator, &ending.job);
    // A session that waits for its next change for days uses little memory, because the future is on the heap.
    let outcome = match session {
        Ok(session) => Box::pin(session.run(control)).await,
        Err(failure) => {
            ending.replicator.counters().failed_starts.increment();
            Outcome::Failed(failure)
        }
    };
    // The lock is released before the replicator is notified, because the notification may start a waiting run.
    drop(run_lock);
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
