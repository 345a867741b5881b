//! [`Replicator`]: all replications of a server, from requests to their ends. Jobs come from `_replicate`
//! ([`Replicator::replicate`]) or from documents (`documents::watch`). The [`Scheduler`] decides which of them run; a
//! run is one [`Session`](crate::Session) in its own task. The databases authorize reads and writes.

mod claims;
mod job;
mod servers;
pub(crate) mod show;

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_model::json::{Json, Value};
use tokio::sync::{Notify, oneshot, watch};

pub(crate) use job::{Job, Origin, RunEnd};
pub use servers::{Alone, Servers};

use crate::counters::{Counters, Tally, with_counters};
use crate::documents::Documents;
use crate::endpoint::{Endpoint, User};
use crate::id::{IdError, Identity, ReplicationId};
use crate::peer::Peer;
use crate::scheduler::{self, Decision, JobKind, Lifetime, Scheduler};
use crate::session::{Failure, Outcome, Services};
use crate::spec::{CancelTarget, Request, Spec, SpecError};
use crate::transport::{Connect, Transport, TransportError};
use crate::tuning::Tuning;

/// A shorter interval would be a busy loop.
const INTERVAL_MIN_MS: u64 = 100;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub scheduling: scheduler::Settings,
    pub tuning: Tuning,
    /// Maximum random delay before a run, so that the start of a server does not start all runs at once.
    pub startup_jitter_ms: u64,
    /// True if documents also record transient states.
    pub update_docs: bool,
}

pub struct Dependencies {
    pub connect: Arc<dyn Connect>,
    pub services: Services,
    pub identity: Identity,
    pub node: String,
    pub now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub random: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub settings: Arc<dyn Fn() -> Settings + Send + Sync>,
    pub servers: Arc<dyn Servers>,
}

#[derive(Clone, Debug)]
pub enum Replicated {
    /// Members of the response after `ok`, an object.
    Completed(Json),
    Continuous(String),
    Cancelled(String),
    /// Another server runs the replication with this id and has its outcome.
    Elsewhere(String),
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum ReplicateError {
    #[error(transparent)]
    Spec(#[from] SpecError),
    #[error(transparent)]
    Id(#[from] IdError),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error("missing")]
    NotFound,
    #[error("You are not a server admin.")]
    NotYours,
    #[error(transparent)]
    Failed(#[from] Failure),
    #[error("the replication was cancelled")]
    Cancelled,
}

pub struct Replicator {
    pub(crate) dependencies: Dependencies,
    pub(crate) state: Mutex<State>,
    wake: Notify,
    active: watch::Sender<usize>,
    is_stopping: watch::Sender<bool>,
}

pub(crate) struct State {
    scheduler: Scheduler,
    jobs: HashMap<Arc<str>, Arc<Job>>,
    pub(crate) documents: Documents,
    runs: u64,
}

impl Replicator {
    #[must_use]
    pub fn new(dependencies: Dependencies) -> Arc<Self> {
        let settings = (dependencies.settings)();
        let scheduler = Scheduler::new(settings.scheduling, (dependencies.now_ms)());
        let state = State { scheduler, jobs: HashMap::new(), documents: Documents::default(), runs: 0 };
        Arc::new(Self {
            dependencies,
            state: Mutex::new(state),
            wake: Notify::new(),
            active: watch::Sender::new(0),
            is_stopping: watch::Sender::new(false),
        })
    }

    pub async fn run(self: Arc<Self>) {
        let mut is_stopping = self.is_stopping.subscribe();
        let mut tick_ms = (self.dependencies.now_ms)() + self.settings().scheduling.interval_ms;
        loop {
            let now_ms = (self.dependencies.now_ms)();
            tick_ms = tick_ms.min(now_ms + self.settings().scheduling.interval_ms.max(INTERVAL_MIN_MS));
            let due_ms = self.state.lock().scheduler.due_ms().map_or(tick_ms, |due_ms| due_ms.min(tick_ms));
            tokio::select! {
                () = tokio::time::sleep(std::time::Duration::from_millis(due_ms.saturating_sub(now_ms))) => {}
                () = self.wake.notified() => {}
                _ = is_stopping.wait_for(|is_stopping| *is_stopping) => return,
            }
            let now_ms = (self.dependencies.now_ms)();
            let mut state = self.state.lock();
            let decisions = if now_ms >= tick_ms {
                let settings = self.settings().scheduling;
                tick_ms = now_ms + settings.interval_ms.max(INTERVAL_MIN_MS);
                state.scheduler.configure(settings);
                state.scheduler.reschedule(now_ms)
            } else {
                state.scheduler.fill(now_ms)
            };
            self.apply_decisions(&mut state, decisions);
        }
    }

    /// Signals all runs to end; each records its progress. No further run starts.
    pub fn begin_stop(&self) {
        self.is_stopping.send_replace(true);
        let mut state = self.state.lock();
        state.documents.clear();
        for job in state.jobs.values() {
            job.stop();
        }
    }

    pub async fn stopped(&self) {
        let mut active = self.active.subscribe();
        // `self` owns the sender, so the wait cannot fail.
        let _ = active.wait_for(|active| *active == 0).await;
    }

    pub(crate) fn settings(&self) -> Settings {
        (self.dependencies.settings)()
    }

    /// Runs a one-shot replication to its end, starts a continuous replication, or cancels one. After an error the
    /// request may have been handled in part.
    pub async fn replicate(self: &Arc<Self>, body: Value<'_>, user: &User) -> Result<Replicated, ReplicateError> {
        match Request::parse(body, user, &self.settings().tuning)? {
            Request::Cancel(CancelTarget::Id(id)) => self.cancel(&id, user),
            Request::Cancel(CancelTarget::Like(spec)) => {
                let id = self.identify(&spec).await?;
                self.cancel(&id.to_string(), user)
            }
            Request::Replicate(spec) => {
                let id = self.identify(&spec).await?;
                self.begin((*spec).into(), id, user).await
            }
        }
    }

    /// Returns the id of the replication that a request cancels, because another server may run it; `None` for others.
    pub async fn cancels(&self, body: Value<'_>, user: &User) -> Result<Option<String>, ReplicateError> {
        match Request::parse(body, user, &self.settings().tuning)? {
            Request::Cancel(CancelTarget::Id(id)) => Ok(Some(id)),
            Request::Cancel(CancelTarget::Like(spec)) => Ok(Some(self.identify(&spec).await?.to_string())),
            Request::Replicate(_) => Ok(None),
        }
    }

    async fn begin(
        self: &Arc<Self>,
        spec: Arc<Spec>,
        id: ReplicationId,
        user: &User,
    ) -> Result<Replicated, ReplicateError> {
        let key: Arc<str> = id.to_string().into();
        if !self.state.lock().jobs.contains_key(&key) && !self.claims(&key).await {
            return Ok(Replicated::Elsewhere(key.to_string()));
        }
        let job = {
            let mut state = self.state.lock();
            let known = state.jobs.get(&key).cloned();
            if let Some(job) = &known {
                require_owner(job, user)?;
            }
            // A request for a replication that already runs waits for the end of the existing job, of any origin.
            let same = known.filter(|job| job.spec.is_like(&spec) || !matches!(job.origin, Origin::Transient { .. }));
            match same {
                Some(job) => {
                    self.counters().jobs_doubled.increment();
                    let ended = job.wait();
                    (job, ended)
                }
                None => {
                    let origin = Origin::Transient { user: user.name.as_deref().map(Into::into) };
                    let job = Arc::new(Job::new(Arc::clone(&key), id, spec, origin, (self.dependencies.now_ms)()));
                    let ended = job.wait();
                    self.put(&mut state, Arc::clone(&job));
                    (job, ended)
                }
            }
        };
        Self::outcome(job).await
    }

    async fn outcome((job, ended): (Arc<Job>, oneshot::Receiver<RunEnd>)) -> Result<Replicated, ReplicateError> {
        if job.spec.continuous {
            return Ok(Replicated::Continuous(job.key.to_string()));
        }
        drop(job);
        match ended.await {
            Ok(RunEnd::Completed(answer)) => Ok(Replicated::Completed(answer)),
            Ok(RunEnd::Failed(failure)) => Err(failure.into()),
            Ok(RunEnd::Removed) | Err(_) => Err(ReplicateError::Cancelled),
        }
    }

    /// `id` may omit the extension. Fails if the job does not exist or belongs to another user.
    pub fn cancel(self: &Arc<Self>, id: &str, user: &User) -> Result<Replicated, ReplicateError> {
        let mut state = self.state.lock();
        let job = state.find(id).ok_or(ReplicateError::NotFound)?;
        require_owner(&job, user)?;
        self.remove_job(&mut state, &job.key);
        self.release_claim(&job);
        Ok(Replicated::Cancelled(job.key.to_string()))
    }

    pub(crate) async fn identify(&self, spec: &Spec) -> Result<ReplicationId, ReplicateError> {
        let transport = self.connect(&spec.source, &spec.tuning)?;
        let source = Peer::new(spec.source.clone(), transport, &spec.tuning);
        Ok(ReplicationId::compute(spec, &self.dependencies.identity, &source).await?)
    }

    fn connect(&self, endpoint: &Endpoint, tuning: &Tuning) -> Result<Arc<dyn Transport>, TransportError> {
        let transport = self.dependencies.connect.connect(endpoint, tuning)?;
        Ok(with_counters(transport, Arc::clone(&self.dependencies.services.counters)))
    }

    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.dependencies.services.counters
    }

    #[must_use]
    pub fn tally(&self) -> Tally {
        self.state.lock().scheduler.tally()
    }

    pub(crate) fn put(self: &Arc<Self>, state: &mut State, job: Arc<Job>) {
        if *self.is_stopping.borrow() {
            job.end(&RunEnd::Removed);
            return;
        }
        self.remove_job(state, &job.key);
        let settings = self.settings().scheduling;
        if *state.scheduler.settings() != settings {
            state.scheduler.configure(settings);
            self.wake.notify_one();
        }
        let scheduled = scheduler::Job {
            group: job.origin.group(),
            lifetime: match job.origin {
                Origin::Transient { .. } => Lifetime::Transient,
                Origin::Document { .. } => Lifetime::Persistent,
            },
            job_kind: if job.spec.continuous { JobKind::Continuous } else { JobKind::OneShot },
        };
        let key = Arc::clone(&job.key);
        tracing::info!(id = &*key, source = %job.spec.source, target = %job.spec.target, "a replication was added");
        self.counters().jobs_added.increment();
        state.jobs.insert(Arc::clone(&key), job);
        let decisions = state.scheduler.add(&key, scheduled, (self.dependencies.now_ms)());
        self.apply_decisions(state, decisions);
    }

    pub(crate) fn remove_job(&self, state: &mut State, key: &str) {
        if let Some(job) = state.jobs.remove(key) {
            state.scheduler.remove(key, (self.dependencies.now_ms)());
            job.stop();
            job.end(&RunEnd::Removed);
            self.counters().jobs_removed.increment();
            tracing::info!(id = key, "a replication was removed");
            self.wake.notify_one();
        }
    }

    fn apply_decisions(self: &Arc<Self>, state: &mut State, decisions: Vec<Decision>) {
        for decision in decisions {
            match decision {
                Decision::Stop(key) => {
                    if let Some(job) = state.jobs.get(&key) {
                        job.stop();
                        self.counters().jobs_stopped.increment();
                    }
                }
                Decision::Start(key) => {
                    let Some(job) = state.jobs.get(&key).cloned() else { continue };
                    state.runs += 1;
                    self.counters().jobs_started.increment();
                    let jitter = self.jitter_ms(state.scheduler.running());
                    job::start(self, job, state.runs, jitter);
                }
            }
        }
    }

    /// The maximum of the random delay grows with the number of runs; a single job starts without delay.
    fn jitter_ms(&self, running: usize) -> u64 {
        const EACH_MS: u64 = 10;
        let most_ms = self.settings().startup_jitter_ms.min(EACH_MS * (running as u64).saturating_sub(1));
        (self.dependencies.random)() % (most_ms + 1)
    }

    /// Handles a run that ended by itself; a run without an outcome panicked.
    fn ended(self: &Arc<Self>, job: &Arc<Job>, run: u64, outcome: Option<Outcome>) {
        if *self.is_stopping.borrow() || !job.is_run(run) {
            return;
        }
        let mut state = self.state.lock();
        let now_ms = (self.dependencies.now_ms)();
        if !job.is_run(run) {
            return;
        }
        job.forget_run();
        let (reason, ended) = match outcome {
            Some(Outcome::Completed(answer)) => {
                tracing::info!(id = &*job.key, "a replication is complete");
                state.jobs.remove(&job.key);
                self.counters().jobs_removed.increment();
                self.release_claim(job);
                job.end(&RunEnd::Completed(answer));
                self.document_completed(job);
                let decisions = state.scheduler.completed(&job.key, now_ms);
                self.apply_decisions(&mut state, decisions);
                self.wake.notify_one();
                return;
            }
            Some(Outcome::Failed(failure)) if failure.is_unauthenticated() => {
                return self.refused(state, job, failure, now_ms);
            }
            Some(Outcome::Failed(failure)) => (failure.to_string(), RunEnd::Failed(failure)),
            Some(Outcome::Stopped) => ("stopped".to_owned(), RunEnd::Removed),
            None => ("the replication ended in a panic".to_owned(), RunEnd::Removed),
        };
        let (id, source, target) = (&*job.key, &job.spec.source, &job.spec.target);
        tracing::warn!(id, %source, %target, reason, "a replication failed");
        self.counters().jobs_crashed.increment();
        if matches!(job.origin, Origin::Transient { .. }) {
            state.jobs.remove(&job.key);
            self.release_claim(job);
            self.counters().jobs_removed.increment();
        }
        self.document_crashed(job, &reason);
        job.end(&ended);
        let decisions = state.scheduler.crashed(&job.key, &reason, now_ms);
        self.apply_decisions(&mut state, decisions);
        self.wake.notify_one();
    }

    /// Retries with the same password would lock the account, so the job ends.
    fn refused(
        self: &Arc<Self>,
        mut state: parking_lot::MutexGuard<'_, State>,
        job: &Arc<Job>,
        failure: Failure,
        now_ms: u64,
    ) {
        let (id, source, target, reason) = (&*job.key, &job.spec.source, &job.spec.target, failure.to_string());
        tracing::warn!(id, %source, %target, reason, "a replication has ended: a peer refuses its credentials");
        state.jobs.remove(&job.key);
        self.counters().jobs_crashed.increment();
        self.counters().jobs_removed.increment();
        self.release_claim(job);
        self.document_refused(job, &reason);
        job.end(&RunEnd::Failed(failure));
        let decisions = state.scheduler.completed(&job.key, now_ms);
        self.apply_decisions(&mut state, decisions);
        self.wake.notify_one();
    }
}

impl State {
    pub(crate) fn job(&self, key: &str) -> Option<Arc<Job>> {
        self.jobs.get(key).cloned()
    }

    /// An id without extension must match exactly one job.
    pub(crate) fn find(&self, id: &str) -> Option<Arc<Job>> {
        if let Some(job) = self.jobs.get(id) {
            return Some(Arc::clone(job));
        }
        let mut fitting = self.jobs.values().filter(|job| job.id.base == id);
        let found = fitting.next()?;
        fitting.next().is_none().then(|| Arc::clone(found))
    }

    pub(crate) fn jobs(&self) -> impl Iterator<Item = &Arc<Job>> {
        self.jobs.values()
    }

    pub(crate) fn scheduler(&self) -> &Scheduler {
        &self.scheduler
    }
}

fn require_owner(job: &Job, user: &User) -> Result<(), ReplicateError> {
    let is_admin = user.roles.given().iter().any(|role| role == "_admin");
    let is_owner = match &job.origin {
        Origin::Transient { user: owner } => owner.as_deref() == user.name.as_deref(),
        Origin::Document { .. } => job.spec.user.name == user.name,
    };
    if is_admin || is_owner { Ok(()) } else { Err(ReplicateError::NotYours) }
}
