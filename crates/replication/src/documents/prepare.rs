//! Creates jobs from documents: [`JobPreparation`] computes the replication id of a document.

use std::sync::Arc;
use std::time::Duration;

use settee_model::json::Value;

use super::store::Change;
use super::{DocumentJob, Documents, Entry, Phase, complaint, parse, store};
use crate::id::ReplicationId;
use crate::replicator::{Job, Origin, Replicator, State};
use crate::spec::{Filter, Spec};

/// Maximum of the random delay before the first retry of the computation of an id; it doubles with each error.
const ERROR_BACKOFF_S: u64 = 64;

/// Limits the delay to about three days.
const ERROR_DOUBLINGS_MAX: u32 = 12;

/// Interval between reads of a filter function, because a change of its code changes the id.
const FILTER_CHECK_S: u64 = 60;

impl Replicator {
    pub(super) fn document_changed(self: &Arc<Self>, database: &Arc<str>, id: &str, document: Value<'_>) {
        if id.starts_with("_design/") {
            return;
        }
        let id: Arc<str> = id.into();
        let replication_state = document.get("_replication_state").and_then(Value::as_str);
        match replication_state.as_deref() {
            Some("completed" | "failed") => return self.document_removed(database, &id),
            Some(_) if !self.settings().update_docs => {
                // Another client has written these transient states, or the setting was different.
                store::spawn(self, database, &id, Change::Cleared);
            }
            _ => {}
        }
        let spec = match parse(document, &self.settings().tuning) {
            Ok(spec) => Arc::new(spec),
            Err(error) => {
                self.document_removed(database, &id);
                tracing::warn!(database = &**database, id = &*id, %error, "a document does not describe a replication");
                store::spawn(self, database, &id, Change::Failed(complaint(&error)));
                return;
            }
        };
        let mut state = self.state.lock();
        if state.document_spec(database, &id).is_some_and(|known| *known == *spec) {
            return;
        }
        self.forget(&mut state, database, &id);
        state.documents.numbers += 1;
        let number = state.documents.numbers;
        let now_ms = (self.dependencies.now_ms)();
        let prepare =
            JobPreparation { database: Arc::clone(database), id: Arc::clone(&id), spec: Arc::clone(&spec), number };
        let worker = tokio::spawn(prepare.run(Arc::clone(self))).abort_handle();
        let phase = Phase::Initializing(spec);
        let entry = Entry { number, phase, added_ms: now_ms, updated_ms: now_ms, worker: Some(worker) };
        state.documents.entries.insert((Arc::clone(database), id), entry);
    }

    pub(crate) fn claim_acquired(self: &Arc<Self>, document_job: &DocumentJob) {
        let mut state = self.state.lock();
        let Some(entry) = state.documents.at(document_job) else { return };
        let Phase::Elsewhere { spec, .. } = &entry.phase else { return };
        let (spec, (database, id)) = (Arc::clone(spec), document_job.key.clone());
        let prepare = JobPreparation { database, id, spec: Arc::clone(&spec), number: document_job.number };
        entry.phase = Phase::Initializing(spec);
        entry.updated_ms = (self.dependencies.now_ms)();
        entry.worker = Some(tokio::spawn(prepare.run(Arc::clone(self))).abort_handle());
    }

    /// Ends the local job of a document whose claim moves to another server. Returns false if the job no longer exists.
    pub(crate) fn claim_released(&self, state: &mut State, document_job: &DocumentJob) -> bool {
        let Some(spec) = state.job(&document_job.job).map(|job| Arc::clone(&job.spec)) else { return false };
        let Some(entry) = state.documents.at(document_job) else { return false };
        if !matches!(&entry.phase, Phase::Scheduled(job) if *job == document_job.job) {
            return false;
        }
        entry.phase = Phase::Elsewhere { spec, job: Arc::clone(&document_job.job) };
        if let Some(worker) = entry.worker.take() {
            worker.abort();
        }
        self.remove_job(state, &document_job.job);
        true
    }

    pub(super) fn document_removed(&self, database: &Arc<str>, id: &Arc<str>) {
        let mut state = self.state.lock();
        self.forget(&mut state, database, id);
    }

    pub(super) fn documents_removed(&self, database: &Arc<str>) {
        let mut state = self.state.lock();
        let keys = state.documents.entries.keys();
        let ids: Vec<Arc<str>> = keys.filter(|(name, _)| name == database).map(|(_, id)| Arc::clone(id)).collect();
        for id in ids {
            self.forget(&mut state, database, &id);
        }
    }

    fn forget(&self, state: &mut State, database: &Arc<str>, id: &Arc<str>) {
        let entry = state.documents.entries.remove(&(Arc::clone(database), Arc::clone(id)));
        if let Some(Phase::Scheduled(key)) = entry.as_ref().map(|entry| &entry.phase) {
            self.remove_job(state, key);
        }
    }

    pub(crate) fn document_completed(self: &Arc<Self>, job: &Arc<Job>) {
        if let Origin::Document { database, id } = &job.origin {
            store::spawn(self, database, id, Change::Completed(Arc::clone(job)));
        }
    }

    /// Records that a peer refused the credentials. A change of the document restarts the job.
    pub(crate) fn document_refused(self: &Arc<Self>, job: &Job, reason: &str) {
        if let Origin::Document { database, id } = &job.origin {
            store::spawn(self, database, id, Change::Failed(reason.to_owned()));
        }
    }

    pub(crate) fn document_crashed(self: &Arc<Self>, job: &Job, reason: &str) {
        if let Origin::Document { database, id } = &job.origin
            && self.settings().update_docs
        {
            store::spawn(
                self,
                database,
                id,
                Change::Error { id: Some(job.key.to_string()), reason: reason.to_owned() },
            );
        }
    }
}

impl Documents {
    fn at(&mut self, document_job: &DocumentJob) -> Option<&mut Entry> {
        self.entries.get_mut(&document_job.key).filter(|entry| entry.number == document_job.number)
    }
}

impl State {
    fn document_spec(&self, database: &Arc<str>, id: &Arc<str>) -> Option<Arc<Spec>> {
        let entry = self.documents.entries.get(&(Arc::clone(database), Arc::clone(id)))?;
        match &entry.phase {
            Phase::Initializing(spec) | Phase::Error { spec, .. } | Phase::Elsewhere { spec, .. } => {
                Some(Arc::clone(spec))
            }
            Phase::Scheduled(key) => self.job(key).map(|job| Arc::clone(&job.spec)),
        }
    }
}

struct JobPreparation {
    database: Arc<str>,
    id: Arc<str>,
    spec: Arc<Spec>,
    number: u64,
}

enum NextStep {
    End,
    RetryAfter(u64),
}

impl JobPreparation {
    async fn run(self, replicator: Arc<Replicator>) {
        loop {
            let next = match replicator.identify(&self.spec).await {
                Ok(id) => {
                    let key: Arc<str> = id.to_string().into();
                    match replicator.claim_if_preferred(&key).await {
                        true => self.schedule(&replicator, id),
                        false => self.leave_to_other_server(&replicator, key),
                    }
                }
                Err(error) => self.record_error(&replicator, error.to_string()),
            };
            match next {
                NextStep::End => {
                    // The handle would keep the memory of the ended task alive.
                    if let Some(entry) = self.entry(&mut replicator.state.lock()) {
                        entry.worker = None;
                    }
                    return;
                }
                NextStep::RetryAfter(wait_s) => tokio::time::sleep(Duration::from_secs(wait_s)).await,
            }
        }
    }

    fn leave_to_other_server(&self, replicator: &Replicator, job: Arc<str>) -> NextStep {
        let mut state = replicator.state.lock();
        let Some(entry) = self.entry(&mut state) else { return NextStep::End };
        let phase = Phase::Elsewhere { spec: Arc::clone(&self.spec), job };
        if let Phase::Scheduled(old) = std::mem::replace(&mut entry.phase, phase) {
            replicator.remove_job(&mut state, &old);
        }
        NextStep::End
    }

    fn schedule(&self, replicator: &Arc<Replicator>, id: ReplicationId) -> NextStep {
        let key: Arc<str> = id.to_string().into();
        let mut state = replicator.state.lock();
        let Some(known) = self.entry(&mut state).map(|entry| match &entry.phase {
            Phase::Scheduled(key) => Some(Arc::clone(key)),
            Phase::Initializing(_) | Phase::Error { .. } | Phase::Elsewhere { .. } => None,
        }) else {
            return NextStep::End;
        };
        if known.as_ref() == Some(&key) {
            return self.schedule_filter_check(replicator);
        }
        let origin = Origin::Document { database: Arc::clone(&self.database), id: Arc::clone(&self.id) };
        if let Some(other) = state.job(&key).filter(|job| job.origin != origin) {
            drop(state);
            return self.reject_duplicate(replicator, &other);
        }
        if let Some(old) = known {
            tracing::info!(old = &*old, new = &*key, "a changed filter has changed the id of a replication");
            replicator.remove_job(&mut state, &old);
        }
        let (now_ms, spec) = ((replicator.dependencies.now_ms)(), Arc::clone(&self.spec));
        if let Some(entry) = self.entry(&mut state) {
            entry.phase = Phase::Scheduled(Arc::clone(&key));
            entry.updated_ms = now_ms;
        }
        replicator.put(&mut state, Arc::new(Job::new(Arc::clone(&key), id, spec, origin, now_ms)));
        drop(state);
        if replicator.settings().update_docs {
            store::spawn(replicator, &self.database, &self.id, Change::Triggered(key.to_string()));
        }
        self.schedule_filter_check(replicator)
    }

    fn schedule_filter_check(&self, replicator: &Replicator) -> NextStep {
        match self.spec.filter {
            Filter::Function { .. } => {
                let documents = replicator.state.try_lock().map_or(0, |state| state.documents.entries.len() as u64);
                NextStep::RetryAfter(FILTER_CHECK_S + (replicator.dependencies.random)() % (1 + documents / 5))
            }
            Filter::All | Filter::AllButDesign | Filter::BuiltIn(_) | Filter::DocIds(_) | Filter::Selector(_) => {
                NextStep::End
            }
        }
    }

    fn reject_duplicate(&self, replicator: &Arc<Replicator>, other: &Job) -> NextStep {
        let (key, database, id) = (&other.key, &self.database, &self.id);
        replicator.counters().jobs_doubled.increment();
        let label = format!("Replication `{key}` specified by document `{id}` in db `{database}`");
        match &other.origin {
            // The transient job ends eventually, so the document is retried.
            Origin::Transient { .. } => {
                let how = "already running as a transient replication, started via `_replicate` API endpoint";
                self.record_error(replicator, format!("{label} {how}"))
            }
            Origin::Document { database: other_database, id: other_id } => {
                let how = format!("already started, triggered by document `{other_id}` from db `{other_database}`");
                replicator.document_removed(database, id);
                store::spawn(replicator, database, id, Change::Failed(format!("{label} {how}")));
                NextStep::End
            }
        }
    }

    fn record_error(&self, replicator: &Arc<Replicator>, reason: String) -> NextStep {
        let mut state = replicator.state.lock();
        let Some(entry) = self.entry(&mut state) else { return NextStep::End };
        let errors = match &entry.phase {
            // The job continues, because only the filter could not be read.
            Phase::Scheduled(_) => return NextStep::RetryAfter(FILTER_CHECK_S),
            Phase::Initializing(_) | Phase::Elsewhere { .. } => 1,
            Phase::Error { count, .. } => count + 1,
        };
        tracing::warn!(database = &*self.database, id = &*self.id, reason, "a replication cannot start yet");
        entry.phase = Phase::Error { spec: Arc::clone(&self.spec), reason: reason.clone(), count: errors };
        entry.updated_ms = (replicator.dependencies.now_ms)();
        drop(state);
        if replicator.settings().update_docs {
            store::spawn(replicator, &self.database, &self.id, Change::Error { id: None, reason });
        }
        let most_s = ERROR_BACKOFF_S << (errors - 1).min(ERROR_DOUBLINGS_MAX);
        NextStep::RetryAfter(1 + (replicator.dependencies.random)() % most_s)
    }

    fn entry<'a>(&self, state: &'a mut State) -> Option<&'a mut Entry> {
        let entry = state.documents.entries.get_mut(&(Arc::clone(&self.database), Arc::clone(&self.id)));
        entry.filter(|entry| entry.number == self.number)
    }
}
