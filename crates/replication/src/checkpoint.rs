//! Checkpoints: `_local/<id>` documents in which both sides record the progress of a replication. The format is
//! CouchDB's. Both sides store the same document, with the newest session first in its `history`. A session continues
//! from the newest common entry, because one side may have been restored, or have missed a write.

#[cfg(test)]
mod tests;

use settee_model::json::{Json, Value, write_string, write_u64};

use crate::session::progress::Statistics;

pub(crate) const ID_VERSION: u64 = 4;

const MAX_HISTORY: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Start {
    /// Sequence of the last change that is already at the target.
    pub(crate) since: Json,
    /// Entries up to `since`, newest first.
    pub(crate) history: Vec<Json>,
}

pub(crate) fn zero() -> Json {
    Json::trusted(b"0".to_vec())
}

pub(crate) fn compare(source: Option<&Json>, target: Option<&Json>) -> Start {
    let (source, target) = (source.map(Json::value), target.map(Json::value));
    let session = |side: Option<Value<'_>>| side.and_then(|side| side.get("session_id")).map(owned);
    let history = |side: Option<Value<'_>>| -> Vec<Json> {
        side.and_then(|side| side.get("history")).into_iter().flat_map(Value::elements).map(owned).collect()
    };
    match (session(source), session(target)) {
        (Some(ours), Some(theirs)) if ours == theirs => {
            let since = source.and_then(|source| source.get("source_last_seq")).map_or_else(zero, owned);
            Start { since, history: history(source) }
        }
        _ => common(&history(source), &history(target)),
    }
}

fn common(mut source: &[Json], mut target: &[Json]) -> Start {
    while let ([ours, older_ours @ ..], [theirs, older_theirs @ ..]) = (source, target) {
        let found = if holds(target, ours) {
            Some((ours, older_ours))
        } else if holds(older_ours, theirs) {
            Some((theirs, older_theirs))
        } else {
            None
        };
        if let Some((entry, older)) = found {
            let since = entry.value().get("recorded_seq").map_or_else(zero, owned);
            return Start { since, history: older.to_vec() };
        }
        (source, target) = (older_ours, older_theirs);
    }
    Start { since: zero(), history: Vec::new() }
}

fn holds(history: &[Json], entry: &Json) -> bool {
    let Some(session) = entry.value().get("session_id") else { return false };
    history.iter().any(|other| other.value().get("session_id").is_some_and(|other| other.raw() == session.raw()))
}

fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}

#[derive(Clone, Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) session_id: &'a str,
    pub(crate) start_time: &'a str,
    pub(crate) end_time: &'a str,
    pub(crate) start_last_seq: &'a Json,
    pub(crate) recorded_seq: &'a Json,
    pub(crate) statistics: &'a Statistics,
    /// True for `doc_ids`; such checkpoints have more members for compatibility with CouchDB 0.11.
    pub(crate) by_doc_ids: bool,
}

pub(crate) fn document(entry: &Entry<'_>, history: &[Json]) -> Json {
    let mut out = Members::default();
    out.string("session_id", entry.session_id);
    out.json("source_last_seq", entry.recorded_seq);
    out.number("replication_id_version", ID_VERSION);
    if entry.by_doc_ids {
        out.string("start_time", entry.start_time);
        out.string("end_time", entry.end_time);
        out.number("docs_read", entry.statistics.docs_read);
        out.number("docs_written", entry.statistics.docs_written);
        out.number("doc_write_failures", entry.statistics.doc_write_failures);
    }
    let mut entries = b"[".to_vec();
    entries.extend_from_slice(history_entry(entry).as_bytes());
    for older in history.iter().take(MAX_HISTORY - 1) {
        entries.push(b',');
        entries.extend_from_slice(older.as_bytes());
    }
    entries.push(b']');
    out.json("history", &Json::trusted(entries));
    out.finish()
}

fn history_entry(entry: &Entry<'_>) -> Json {
    let statistics = entry.statistics;
    let mut out = Members::default();
    out.string("session_id", entry.session_id);
    out.string("start_time", entry.start_time);
    out.string("end_time", entry.end_time);
    out.json("start_last_seq", entry.start_last_seq);
    out.json("end_last_seq", entry.recorded_seq);
    out.json("recorded_seq", entry.recorded_seq);
    out.number("missing_checked", statistics.revisions_checked);
    out.number("missing_found", statistics.missing_revisions_found);
    out.number("docs_read", statistics.docs_read);
    out.number("docs_written", statistics.docs_written);
    out.number("doc_write_failures", statistics.doc_write_failures);
    out.number("bulk_get_attempts", statistics.bulk_get_attempts);
    out.number("bulk_get_docs", statistics.bulk_get_docs);
    out.finish()
}

pub(crate) fn counted(entry: Value<'_>) -> Statistics {
    let count = |name| entry.get(name).and_then(Value::as_u64).unwrap_or(0);
    Statistics {
        revisions_checked: count("missing_checked"),
        missing_revisions_found: count("missing_found"),
        docs_read: count("docs_read"),
        docs_written: count("docs_written"),
        doc_write_failures: count("doc_write_failures"),
        bulk_get_attempts: count("bulk_get_attempts"),
        bulk_get_docs: count("bulk_get_docs"),
        ..Statistics::default()
    }
}

pub(crate) fn local_document(name: &str, rev: Option<&str>, members: &Json) -> Vec<u8> {
    let mut out = Members::default();
    out.string("_id", &format!("_local/{name}"));
    if let Some(rev) = rev {
        out.string("_rev", rev);
    }
    out.members(members, |_| true);
    out.finish().into_bytes()
}

pub(crate) fn stripped(document: &Json) -> Json {
    let mut out = Members::default();
    out.members(document, |name| name != "_id" && name != "_rev");
    out.finish()
}

/// Response of `_replicate` if no changes exist: the last checkpoint and `no_changes`.
pub(crate) fn no_changes(last: Option<&Json>) -> Json {
    let mut out = Members::default();
    out.json("no_changes", &Json::trusted(b"true".to_vec()));
    if let Some(last) = last {
        out.members(last, |name| name != "_id" && name != "_rev");
    }
    out.finish()
}

#[derive(Default)]
struct Members(Vec<u8>);

impl Members {
    fn name(&mut self, name: &str) {
        self.0.push(if self.0.is_empty() { b'{' } else { b',' });
        write_string(&mut self.0, name);
        self.0.push(b':');
    }

    fn string(&mut self, name: &str, value: &str) {
        self.name(name);
        write_string(&mut self.0, value);
    }

    fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        write_u64(&mut self.0, value);
    }

    fn json(&mut self, name: &str, value: &Json) {
        self.name(name);
        self.0.extend_from_slice(value.as_bytes());
    }

    fn members(&mut self, object: &Json, keep: impl Fn(&str) -> bool) {
        for (name, value) in object.value().members() {
            if let Some(name) = name.as_str().filter(|name| keep(name)) {
                self.json(&name, &owned(value));
            }
        }
    }

    fn finish(mut self) -> Json {
        if self.0.is_empty() {
            self.0.push(b'{');
        }
        self.0.push(b'}');
        Json::trusted(self.0)
    }
}
