//! Documents in `_replicator` databases: the replications that they describe, and their states. [`watch`] follows the
//! databases, [`prepare`] creates jobs from documents, and [`store`] writes states back. The rules are those of
//! CouchDB's `couch_replicator_docs`.

mod prepare;
mod store;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;

use settee_model::json::{Value, append_object, object, write_string};
use tokio::task::AbortHandle;

use crate::endpoint::{EndpointError, Roles, User};
use crate::replicator::{Job, Replicator};
use crate::report::{iso8601, proxy, write_statistics};
use crate::spec::{Spec, SpecError};
use crate::tuning::Tuning;

pub const REPLICATOR_DATABASE: &str = "_replicator";

/// Role under which states are written. Its writes are not validated.
pub const REPLICATOR_ROLE: &str = "_replicator";

pub const OWNER: &str = "owner";

#[must_use]
pub fn is_replicator_database(name: &str) -> bool {
    name == REPLICATOR_DATABASE || name.ends_with("/_replicator")
}

/// Parses the replication that a document describes, if any. It runs as the document's `user_ctx`, or else as its owner
/// with the roles of the owner's account.
pub fn parse(document: Value<'_>, tuning: &Tuning) -> Result<Spec, SpecError> {
    Spec::parse(document, &user(document), tuning)
}

#[must_use]
pub fn user(document: Value<'_>) -> User {
    let text = |value: Value<'_>| value.as_str().map(std::borrow::Cow::into_owned);
    match document.get("user_ctx").filter(|user| user.is_object()) {
        Some(user) => User {
            name: user.get("name").and_then(text),
            roles: Roles::Given(user.get("roles").into_iter().flat_map(Value::elements).filter_map(text).collect()),
        },
        None => User { name: document.get(OWNER).and_then(text), roles: Roles::OfAccount },
    }
}

/// Appends a document, or its members, for readers other than its owner.
pub fn write_without_credentials(out: &mut Vec<u8>, document: Value<'_>) {
    out.push(b'{');
    for (index, (name, value)) in document.members().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.raw());
        out.push(b':');
        match name.as_str().as_deref() {
            Some("source" | "target") => write_endpoint(out, value),
            Some("proxy" | "source_proxy" | "target_proxy") => write_url(out, value),
            _ => out.extend_from_slice(value.raw()),
        }
    }
    out.push(b'}');
}

fn write_endpoint(out: &mut Vec<u8>, value: Value<'_>) {
    if !value.is_object() {
        return write_url(out, value);
    }
    append_object(out, |object| {
        for (name, member) in value.members() {
            match name.as_str().as_deref() {
                Some("headers" | "auth") | None => {}
                Some("url") => write_url(object.name("url"), member),
                Some(name) => {
                    object.json(name, member.raw());
                }
            }
        }
    });
}

fn write_url(out: &mut Vec<u8>, value: Value<'_>) {
    match value.as_str() {
        Some(url) => write_string(out, &strip_credentials(&url)),
        None => out.extend_from_slice(value.raw()),
    }
}

#[must_use]
pub fn strip_credentials(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A password may contain any character except an unescaped slash. Slashes that were not escaped are tolerated.
    match (authority.rsplit_once('@'), rest.rsplit_once('@')) {
        (Some((_, host)), _) => format!("{scheme}://{host}{path}"),
        (None, Some((before, host))) if before.contains(':') => format!("{scheme}://{host}"),
        _ => url.to_owned(),
    }
}

#[must_use]
pub fn complaint(error: &SpecError) -> String {
    match error {
        SpecError::Endpoint(EndpointError::Missing) => "Missing replicator database".to_owned(),
        error => error.to_string(),
    }
}

#[derive(Default)]
pub(crate) struct Documents {
    entries: BTreeMap<(Arc<str>, Arc<str>), Entry>,
    watched: BTreeMap<Arc<str>, AbortHandle>,
    numbers: u64,
}

struct Entry {
    number: u64,
    phase: Phase,
    added_ms: u64,
    updated_ms: u64,
    worker: Option<AbortHandle>,
}

enum Phase {
    Initializing(Arc<Spec>),
    Error { spec: Arc<Spec>, reason: String, count: u32 },
    Scheduled(Arc<str>),
    Elsewhere { spec: Arc<Spec>, job: Arc<str> },
}

#[derive(Clone)]
pub(crate) struct DocumentJob {
    key: (Arc<str>, Arc<str>),
    number: u64,
    pub(crate) job: Arc<str>,
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(worker) = &self.worker {
            worker.abort();
        }
    }
}

impl Documents {
    pub(crate) fn document_jobs(&self) -> (Vec<DocumentJob>, Vec<DocumentJob>) {
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for (key, entry) in &self.entries {
            let (list, job) = match &entry.phase {
                Phase::Scheduled(job) => (&mut here, job),
                Phase::Elsewhere { job, .. } => (&mut elsewhere, job),
                Phase::Initializing(_) | Phase::Error { .. } => continue,
            };
            list.push(DocumentJob { key: key.clone(), number: entry.number, job: Arc::clone(job) });
        }
        (here, elsewhere)
    }

    pub(crate) fn clear(&mut self) {
        self.entries.clear();
        for (_, watch) in std::mem::take(&mut self.watched) {
            watch.abort();
        }
    }
}

impl Replicator {
    /// Returns the entry of `_scheduler/docs`; `None` without an active replication on this server.
    #[must_use]
    pub fn document(&self, database: &str, id: &str) -> Option<DocumentState> {
        let state = self.state.lock();
        let key = (Arc::from(database), Arc::from(id));
        let entry = state.documents.entries.get(&key)?;
        let mut shown = ShownDocument { database, id, node: Some(&self.dependencies.node), ..ShownDocument::default() };
        let (spec, count);
        let job: Arc<Job>;
        match &entry.phase {
            Phase::Scheduled(key) => {
                job = state.job(key)?;
                spec = &job.spec;
                let (history, runs) = state.scheduler().find(key)?;
                count = history.crashes(state.scheduler().settings().history);
                shown.state = match (runs, history.is_crashed()) {
                    (true, _) => "running",
                    (false, true) => "crashing",
                    (false, false) => "pending",
                };
                shown.info = match &history.last().event_kind {
                    crate::scheduler::EventKind::Crashed(reason) => error_info(reason),
                    _ => {
                        let mut info = Vec::new();
                        write_statistics(&mut info, &job.progress.statistics());
                        info
                    }
                };
                shown.job = Some(key);
                shown.updated = Some(iso8601(history.last().at_ms));
            }
            // The server that runs the job has the state.
            Phase::Elsewhere { .. } => return None,
            Phase::Initializing(of) => {
                spec = of;
                count = 0;
                shown.state = "initializing";
                shown.updated = Some(iso8601(entry.updated_ms));
            }
            Phase::Error { spec: of, reason, count: errors } => {
                spec = of;
                count = *errors;
                shown.state = "error";
                shown.info = error_info(reason);
                shown.updated = Some(iso8601(entry.updated_ms));
            }
        }
        shown.error_count = count;
        shown.started = Some(iso8601(entry.added_ms));
        shown.source = Some(spec.source.to_string());
        shown.target = Some(spec.target.to_string());
        shown.proxies = (proxy(&spec.source), proxy(&spec.target));
        Some(DocumentState { state: shown.state, json: shown.write() })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DocumentState {
    pub state: &'static str,
    pub json: Vec<u8>,
}

pub const STATES: [&str; 7] = ["initializing", "error", "running", "pending", "crashing", "completed", "failed"];

/// Entry of `_scheduler/docs` of a document whose replication has ended or not started, from its members.
#[must_use]
pub fn resting(database: &str, id: &str, document: Value<'_>) -> DocumentState {
    let text = |name: &str| document.get(name).and_then(Value::as_str).map(std::borrow::Cow::into_owned);
    let url = |name: &str| {
        let value = document.get(name)?;
        let url = value.get("url").filter(|_| value.is_object()).unwrap_or(value).as_str()?;
        Some(strip_credentials(&url))
    };
    let mut shown =
        ShownDocument { database, id, source: url("source"), target: url("target"), ..ShownDocument::default() };
    shown.updated = text("_replication_state_time");
    match text("_replication_state").as_deref() {
        Some("completed") => {
            shown.state = "completed";
            let statistics = document.get("_replication_stats").filter(|statistics| statistics.is_object());
            shown.info = object(|info| {
                for (name, value) in statistics.into_iter().flat_map(Value::members) {
                    match name.as_str().as_deref() {
                        Some("start_time") => shown.started = value.as_str().map(std::borrow::Cow::into_owned),
                        Some(name) => {
                            info.json(name, value.raw());
                        }
                        None => {}
                    }
                }
            });
        }
        Some("failed") => {
            shown.state = "failed";
            shown.error_count = 1;
            shown.started = shown.updated.clone();
            shown.info = error_info(&text("_replication_state_reason").unwrap_or_default());
        }
        _ => shown.state = "initializing",
    }
    DocumentState { state: shown.state, json: shown.write() }
}

fn error_info(reason: &str) -> Vec<u8> {
    object(|object| {
        object.string("error", reason);
    })
}

#[derive(Default)]
struct ShownDocument<'a> {
    database: &'a str,
    id: &'a str,
    job: Option<&'a str>,
    node: Option<&'a str>,
    source: Option<String>,
    target: Option<String>,
    state: &'static str,
    info: Vec<u8>,
    error_count: u32,
    updated: Option<String>,
    started: Option<String>,
    proxies: (Option<String>, Option<String>),
}

impl ShownDocument<'_> {
    fn write(&self) -> Vec<u8> {
        object(|object| {
            object.string("database", self.database);
            object.string("doc_id", self.id);
            object.string_or_null("id", self.job);
            if let Some(node) = self.node {
                object.string("node", node);
            }
            object.string_or_null("source", self.source.as_deref());
            object.string_or_null("target", self.target.as_deref());
            object.string("state", self.state);
            object.json("info", if self.info.is_empty() { b"null" } else { &self.info });
            object.value("error_count", self.error_count);
            object.string_or_null("last_updated", self.updated.as_deref());
            object.string_or_null("start_time", self.started.as_deref());
            object.string_or_null("source_proxy", self.proxies.0.as_deref());
            object.string_or_null("target_proxy", self.proxies.1.as_deref());
        })
    }
}

#[cfg(test)]
mod tests;
