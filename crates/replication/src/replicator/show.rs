//! Entries of `_scheduler/jobs` and `_active_tasks`, in CouchDB's terms. Endpoints are shown without credentials.

use std::sync::Arc;

use settee_model::calendar::Day;
use settee_model::json::{write_array, write_string};

use super::{Job, Origin, Replicator};
use crate::endpoint::Endpoint;
use crate::scheduler::{Event, EventKind};
use crate::session::Statistics;

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
        let mut object = Object::new();
        object.text("database", job.origin.database());
        object.text("id", Some(&job.key));
        object.text("pid", job.running().map(|(number, _)| pid(number)).as_deref());
        object.text("source", Some(&job.spec.source.to_string()));
        object.text("target", Some(&job.spec.target.to_string()));
        object.text("user", job.spec.user.name.as_deref());
        object.text("doc_id", job.origin.document());
        object.raw("info", |out| write_statistics(out, &job.progress.statistics()));
        object.raw("history", |out| {
            write_array(out, history.into_iter().flat_map(crate::scheduler::History::events), |out, event| {
                write_event(out, event);
            });
        });
        object.text("node", Some(&self.dependencies.node));
        object.text("start_time", Some(&iso8601(job.added_ms)));
        JobState { id: Arc::clone(&job.key), json: object.end() }
    }

    fn show_task(&self, job: &Job, number: u64, started_ms: u64, now_s: u64) -> TaskState {
        let statistics = job.progress.statistics();
        let mut object = Object::new();
        object.text("node", Some(&self.dependencies.node));
        object.text("pid", Some(&pid(number)));
        object.text("type", Some("replication"));
        object.text("user", job.spec.user.name.as_deref());
        object.text("replication_id", Some(&job.key));
        object.text("database", job.origin.database());
        object.text("doc_id", job.origin.document());
        object.text("source", Some(&job.spec.source.to_string()));
        object.text("target", Some(&job.spec.target.to_string()));
        object.raw("continuous", |out| out.extend_from_slice(job.spec.continuous.to_string().as_bytes()));
        object.number("checkpoint_interval", job.spec.tuning.checkpoint_interval_ms);
        object.number("started_on", started_ms / 1000);
        object.number("updated_on", now_s);
        write_counters(&mut object, &statistics);
        TaskState { json: object.end() }
    }
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
}

fn pid(number: u64) -> String {
    format!("<0.{number}.0>")
}

fn write_event(out: &mut Vec<u8>, event: &Event) {
    let mut object = Object::new();
    object.text("timestamp", Some(&iso8601(event.at_ms)));
    object.text("type", Some(event.event_kind.name()));
    if let EventKind::Crashed(reason) = &event.event_kind {
        object.text("reason", Some(reason));
    }
    out.extend_from_slice(&object.end());
}

pub(crate) fn write_statistics(out: &mut Vec<u8>, statistics: &Statistics) {
    let mut object = Object::new();
    write_counters(&mut object, statistics);
    out.extend_from_slice(&object.end());
}

pub(crate) fn write_counters(object: &mut Object, statistics: &Statistics) {
    let Statistics { revisions_checked, missing_revisions_found, docs_read, docs_written, .. } = *statistics;
    object.number("revisions_checked", revisions_checked);
    object.number("missing_revisions_found", missing_revisions_found);
    object.number("docs_read", docs_read);
    object.number("docs_written", docs_written);
    object.raw("changes_pending", |out| match statistics.changes_pending {
        Some(pending) => out.extend_from_slice(pending.to_string().as_bytes()),
        None => out.extend_from_slice(b"null"),
    });
    object.number("doc_write_failures", statistics.doc_write_failures);
    object.number("bulk_get_docs", statistics.bulk_get_docs);
    object.number("bulk_get_attempts", statistics.bulk_get_attempts);
    let sequences = [
        ("checkpointed_source_seq", &statistics.checkpointed_source_seq),
        ("source_seq", &statistics.source_seq),
        ("through_seq", &statistics.through_seq),
    ];
    for (name, seq) in sequences {
        object.raw(name, |out| out.extend_from_slice(seq.as_ref().map_or(b"0", |seq| seq.as_bytes())));
    }
}

pub(crate) fn proxy(endpoint: &Endpoint) -> Option<String> {
    let Endpoint::Remote(remote) = endpoint else { return None };
    let proxy = remote.proxy.as_deref()?;
    let (scheme, rest) = proxy.split_once("://")?;
    let host = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    Some(format!("{scheme}://{host}"))
}

pub(crate) struct Object(Vec<u8>);

impl Object {
    pub(crate) fn new() -> Self {
        Self(b"{".to_vec())
    }

    pub(crate) fn raw(&mut self, name: &str, write: impl FnOnce(&mut Vec<u8>)) {
        if self.0.len() > 1 {
            self.0.push(b',');
        }
        write_string(&mut self.0, name);
        self.0.push(b':');
        write(&mut self.0);
    }

    pub(crate) fn text(&mut self, name: &str, text: Option<&str>) {
        self.raw(name, |out| match text {
            Some(text) => write_string(out, text),
            None => out.extend_from_slice(b"null"),
        });
    }

    pub(crate) fn number(&mut self, name: &str, number: u64) {
        self.raw(name, |out| out.extend_from_slice(number.to_string().as_bytes()));
    }

    pub(crate) fn end(mut self) -> Vec<u8> {
        self.0.push(b'}');
        self.0
    }
}

/// Format: `2026-11-20T14:30:00Z`.
pub(crate) fn iso8601(at_ms: u64) -> String {
    let (days, second) = (at_ms / 86_400_000, at_ms / 1000 % 86_400);
    let Day { year, month, day, .. } = Day::since_1970(days.cast_signed());
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}Z", second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399_999, "2000-02-28T23:59:59Z"),
            (951_782_400_000, "2000-02-29T00:00:00Z"),
            (951_868_800_000, "2000-03-01T00:00:00Z"),
            (1_795_184_999_000, "2026-11-20T14:29:59Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00Z"),
        ];
        for (at_ms, expected) in cases {
            assert_eq!(iso8601(at_ms), expected, "{at_ms}");
        }
    }
}
