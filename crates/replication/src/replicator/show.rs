//! Entries of `_scheduler/jobs` and `_active_tasks`, in CouchDB's terms. Endpoints are shown without credentials.

use std::sync::Arc;

use settee_model::json::{append_object, object, write_array};

use super::{Job, Replicator};
use crate::report::{iso8601, write_counters, write_statistics};
use crate::scheduler::{Event, EventKind};

#[derive(Clone, Debug)]
pub struct JobState {
    pub id: Arc<str>,
    pub json: Vec<u8>,
}

#[derive(Clone, Debug)]
pub struct TaskState {
    pub json: Vec<u8>,
}

impl Replicator {
    /// Returns the number of all jobs, and at most `limit` jobs from position `skip`, sorted by id.
    #[must_use]
    pub fn jobs(&self, skip: usize, limit: usize) -> (usize, Vec<JobState>) {
        let state = self.state.lock();
        let mut jobs: Vec<&Arc<Job>> = state.jobs().collect();
        jobs.sort_by(|a, b| a.key.cmp(&b.key));
        let shown = jobs.iter().skip(skip).take(limit);
        let shown = shown.map(|job| self.show_job(job, state.scheduler().find(&job.key).map(|(history, _)| history)));
        (jobs.len(), shown.collect())
    }

    #[must_use]
    pub fn job(&self, id: &str) -> Option<JobState> {
        let state = self.state.lock();
        let job = state.find(id)?;
        let shown = self.show_job(&job, state.scheduler().find(&job.key).map(|(history, _)| history));
        Some(shown)
    }

    #[must_use]
    pub fn tasks(&self) -> Vec<TaskState> {
        let state = self.state.lock();
        let mut running: Vec<_> =
            state.jobs().filter_map(|job| job.running().map(|(number, started)| (number, started, job))).collect();
        running.sort_by_key(|(number, ..)| *number);
        let now_s = (self.dependencies.now_ms)() / 1000;
        running.into_iter().map(|(number, started_ms, job)| self.show_task(job, number, started_ms, now_s)).collect()
    }

    fn show_job(&self, job: &Job, history: Option<&crate::scheduler::History>) -> JobState {
        let json = object(|object| {
            object.string_or_null("database", job.origin.database());
            object.string("id", &job.key);
            object.string_or_null("pid", job.running().map(|(number, _)| pid(number)).as_deref());
            object.string("source", &job.spec.source.to_string());
            object.string("target", &job.spec.target.to_string());
            object.string_or_null("user", job.spec.user.name.as_deref());
            object.string_or_null("doc_id", job.origin.document());
            write_statistics(object.name("info"), &job.progress.statistics());
            let events = history.into_iter().flat_map(crate::scheduler::History::events);
            write_array(object.name("history"), events, write_event);
            object.string("node", &self.dependencies.node);
            object.string("start_time", &iso8601(job.added_ms));
        });
        JobState { id: Arc::clone(&job.key), json }
    }

    fn show_task(&self, job: &Job, number: u64, started_ms: u64, now_s: u64) -> TaskState {
        let json = object(|object| {
            object.string("node", &self.dependencies.node);
            object.string("pid", &pid(number));
            object.string("type", "replication");
            object.string_or_null("user", job.spec.user.name.as_deref());
            object.string("replication_id", &job.key);
            object.string_or_null("database", job.origin.database());
            object.string_or_null("doc_id", job.origin.document());
            object.string("source", &job.spec.source.to_string());
            object.string("target", &job.spec.target.to_string());
            object.value("continuous", job.spec.continuous);
            object.value("checkpoint_interval", job.spec.tuning.checkpoint_interval_ms);
            object.value("started_on", started_ms / 1000);
            object.value("updated_on", now_s);
            write_counters(object, &job.progress.statistics());
        });
        TaskState { json }
    }
}

fn pid(number: u64) -> String {
    format!("<0.{number}.0>")
}

fn write_event(out: &mut Vec<u8>, event: &Event) {
    append_object(out, |object| {
        object.string("timestamp", &iso8601(event.at_ms));
        object.string("type", event.event_kind.name());
        if let EventKind::Crashed(reason) = &event.event_kind {
            object.string("reason", reason);
        }
    });
}
