//! Creation of jobs from documents: effects of a changed document on jobs, and the worker that computes the replication
//! id.

use std::sync::Arc;
use std::time::Duration;

use settee_model::json::Value;

use super::store::Change;
use super::{Documents, Entry, Phase, Place, complaint, parse, store};
use crate::id::ReplicationId;
use crate::replicator::{Job, Origin, Replicator, State};
use crate::spec::{Filter, Spec};

/// Maximum delay before the computation of an id is retried after the first error. The delay is random; its maximum
/// doubles with each error.
const ERROR_BACKOFF_S: u64 = 64;

/// Maximum number of doublings: a delay of about three days.
const ERROR_DOUBLINGS_MAX: u32 = 12;

/// Minimum interval between reads of a filter function. Its code is part of the id, so changes of the code must be
/// noticed.
const FILTER_CHECK_S: u64 = 60;

impl Replicator {
    /// Handles a document that was written, or that existed at the start.
    pub(super) fn document_changed(self: &Arc<Self>, database: &Arc<str>, id: &str, document: Value<'_>) {
        if id.starts_with("_design/") {
            return;
        }
        let id: Arc<str> = id.into();
        let replication_state = document.get("_replication_state").and_then(Value::as_str);
        match replication_state.as_deref() {
            Some("completed" | "failed") => return self.document_removed(database, &id),
            Some(_) if !self.settings().update_docs => {
                // Transient states in the document were written by another client, or under another value of the
                // setting.
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
        let work = Work { database: Arc::clone(database), id: Arc::clone(&id), spec: Arc::clone(&spec), number };
        let worker = tokio::spawn(work.run(Arc::clone(self))).abort_handle();
        let phase = Phase::Initializing(spec);
        let entry = Entry { number, phase, added_ms: now_ms, updated_ms: now_ms, worker: Some(worker) };
        state.documents.entries.insert((Arc::clone(database), id), entry);
    }

    /// Starts the job of a document for which this server now holds the claim.
    pub(crate) fn document_taken(self: &Arc<Self>, place: &Place) {
        let mut state = self.state.lock();
        let Some(entry) = state.documents.at(place) else { return };
        let Phase::Elsewhere { spec, .. } = &entry.phase else { return };
        let (spec, (database, id)) = (Arc::clone(spec), place.key.clone());
        let work = Work { database, id, spec: Arc::clone(&spec), number: place.number };
        entry.phase = Phase::Initializing(spec);
        entry.updated_ms = (self.dependencies.now_ms)();
        entry.worker = Some(tokio::spawn(work.run(Arc::clone(self))).abort_handle());
    }

    /// Ends the local job of a document whose claim goes to another server. Returns false if the job no longer exists.
    pub(crate) fn document_given(&self, state: &mut State, place: &Place) -> bool {
        let Some(spec) = state.job(&place.job).map(|job| Arc::clone(&job.spec)) else { return false };
        let Some(entry) = state.documents.at(place) else { return false };
        if !matches!(&entry.phase, Phase::Scheduled(job) if *job == place.job) {
            return false;
        }
        entry.phase = Phase::Elsewhere { spec, job: Arc::clone(&place.job) };
        if let Some(worker) = entry.worker.take() {
            worker.abort();
        }
        self.take_out(state, &place.job);
        true
    }

    /// Removes a document that was deleted or whose replication has ended.
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
            self.take_out(state, key);
        }
    }

    pub(crate) fn document_completed(self: &Arc<Self>, job: &Arc<Job>) {
        if let Origin::Document { database, id } = &job.origin {
            store::spawn(self, database, id, Change::Completed(Arc::clone(job)));
        }
    }

    /// Stores that a peer refused the credentials of a job, which ends it. A change of the document restarts it.
    pub(crate) fn document_refused(self: &Arc<Self>, job: &Job, reason: &str) {
        if let Origin::Document { database, id } = &job.origin {
            store::spawn(self, database, id, Change::Failed(reason.to_owned()));
        }
    }

    /// Stores that the job of a document crashed and will be retried.
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
    /// Returns the entry of a document, unless the document has changed since.
    fn at(&mut self, place: &Place) -> Option<&mut Entry> {
        self.entries.get_mut(&place.key).filter(|entry| entry.number == place.number)
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

/// Worker that computes the id of a document's replication and creates its job.
struct Work {
    database: Arc<str>,
    id: Arc<str>,
    spec: Arc<Spec>,
    number: u64,
}

enum Next {
    End,
    /// The step is repeated after this number of seconds.
    Again(u64),
}

impl Work {
    async fn run(self, replicator: Arc<Replicator>) {
        loop {
            let next = match replicator.identify(&self.spec).await {
                Ok(id) => {
                    let key: Arc<str> = id.to_string().into();
                    match replicator.takes(&key).await {
                        true => self.schedule(&replicator, id),
                        false => self.leave(&replicator, key),
                    }
                }
                Err(error) => self.errored(&replicator, error.to_string()),
            };
            match next {
                Next::End => {
                    // The handle would keep the memory of the ended task alive.
                    if let Some(entry) = self.entry(&mut replicator.state.lock()) {
                        entry.worker = None;
                    }
                    return;
                }
                Next::Again(wait_s) => tokio::time::sleep(Duration::from_secs(wait_s)).await,
            }
        }
    }

    /// Records that the job belongs to another server.
    fn leave(&self, replicator: &Replicator, job: Arc<str>) -> Next {
        let mut state = replicator.state.lock();
        let Some(entry) = self.entry(&mut state) else { return Next::End };
        let phase = Phase::Elsewhere { spec: Arc::clone(&self.spec), job };
        if let Phase::Scheduled(old) = std::mem::replace(&mut entry.phase, phase) {
            replicator.take_out(&mut state, &old);
        }
        Next::End
    }

    fn schedule(&self, replicator: &Arc<Replicator>, id: ReplicationId) -> Next {
        let key: Arc<str> = id.to_string().into();
        let mut state = replicator.state.lock();
        let Some(known) = self.entry(&mut state).map(|entry| match &entry.phase {
            Phase::Scheduled(key) => Some(Arc::clone(key)),
            Phase::Initializing(_) | Phase::Error { .. } | Phase::Elsewhere { .. } => None,
        }) else {
            return Next::End;
        };
        if known.as_ref() == Some(&key) {
            return self.look_again(replicator);
        }
        let origin = Origin::Document { database: Arc::clone(&self.database), id: Arc::clone(&self.id) };
        if let Some(other) = state.job(&key).filter(|job| job.origin != origin) {
            drop(state);
            return self.refuse_double(replicator, &other);
        }
        if let Some(old) = known {
            tracing::info!(old = &*old, new = &*key, "a changed filter has changed the id of a replication");
            replicator.take_out(&mut state, &old);
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
        self.look_again(replicator)
    }

    fn look_again(&self, replicator: &Replicator) -> Next {
        match self.spec.filter {
            Filter::Function { .. } => {
                let documents = replicator.state.try_lock().map_or(0, |state| state.documents.entries.len() as u64);
                Next::Again(FILTER_CHECK_S + (replicator.dependencies.random)() % (1 + documents / 5))
            }
            Filter::All | Filter::AllButDesign | Filter::BuiltIn(_) | Filter::DocIds(_) | Filter::Selector(_) => {
                Next::End
            }
        }
    }

    /// Handles a document whose replication is already run by another job.
    fn refuse_double(&self, replicator: &Arc<Replicator>, other: &Job) -> Next {
        let (key, database, id) = (&other.key, &self.database, &self.id);
        replicator.counters().jobs_doubled.increment();
        let label = format!("Replication `{key}` specified by document `{id}` in db `{database}`");
        match &other.origin {
            // The transient job ends eventually, so the document is retried.
            Origin::Transient { .. } => {
                let how = "already running as a transient replication, started via `_replicate` API endpoint";
                self.errored(replicator, format!("{label} {how}"))
            }
            Origin::Document { database: other_database, id: other_id } => {
                let how = format!("already started, triggered by document `{other_id}` from db `{other_database}`");
                replicator.document_removed(database, id);
                store::spawn(replicator, database, id, Change::Failed(format!("{label} {how}")));
                Next::End
            }
        }
    }

    fn errored(&self, replicator: &Arc<Replicator>, reason: String) -> Next {
        let mut state = replicator.state.lock();
        let Some(entry) = self.entry(&mut state) else { return Next::End };
        let errors = match &entry.phase {
            // The filter could not be read now; the job continues.
            Phase::Scheduled(_) => return Next::Again(FILTER_CHECK_S),
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
        Next::Again(1 + (replicator.dependencies.random)() % most_s)
    }

    /// Returns the entry of the document, unless the document has changed since.
    fn entry<'a>(&self, state: &'a mut State) -> Option<&'a mut Entry> {
        let entry = state.documents.entries.get_mut(&(Arc::clone(&self.database), Arc::clone(&self.id)));
        entry.filter(|entry| entry.number == self.number)
    }
}
