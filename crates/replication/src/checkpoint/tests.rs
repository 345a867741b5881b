//! Checkpoints.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::json::Json;

use super::{Entry, compare, document};
use crate::session::Statistics;

/// A log whose sessions are these, the newest first; session `x` ended at sequence `"at-x"`.
fn log(sessions: &str) -> Option<Json> {
    let entries: Vec<String> = sessions
        .chars()
        .map(|session| format!("{{\"session_id\":\"{session}\",\"recorded_seq\":\"at-{session}\"}}"))
        .collect();
    let first = sessions.chars().next()?;
    let text = format!(
        "{{\"_id\":\"_local/x\",\"session_id\":\"{first}\",\"source_last_seq\":\"at-{first}\",\"history\":[{}]}}",
        entries.join(",")
    );
    Some(Json::parse(text.as_bytes()).unwrap())
}

fn check(source: &str, target: &str, since: &str, history: &str) {
    let start = compare(log(source).as_ref(), log(target).as_ref());
    assert_eq!(std::str::from_utf8(start.since.as_bytes()).unwrap(), since, "{source} {target}");
    let sessions: String = start
        .history
        .iter()
        .map(|entry| entry.value().get("session_id").unwrap().as_str().unwrap().into_owned())
        .collect();
    assert_eq!(sessions, history, "{source} {target}");
}

/// As CouchDB's replicator compares.
#[test]
fn common_histories() {
    check("", "", "0", "");
    check("a", "", "0", "");
    check("", "a", "0", "");
    check("cba", "cba", "\"at-c\"", "cba");
    // The last checkpoint reached only the source.
    check("cba", "ba", "\"at-b\"", "a");
    check("ba", "cba", "\"at-b\"", "a");
    check("xyb", "zba", "\"at-b\"", "a");
    check("xyz", "abc", "0", "");
}

#[test]
fn histories_have_a_limit() {
    let zero = super::zero();
    let statistics = Statistics::default();
    let entry = Entry {
        session_id: "s",
        start_time: "then",
        end_time: "now",
        start_last_seq: &zero,
        recorded_seq: &zero,
        statistics: &statistics,
        by_doc_ids: true,
    };
    let older = vec![Json::parse(b"{\"session_id\":\"o\"}").unwrap(); 60];
    let document = document(&entry, &older);
    let value = document.value();
    assert_eq!(value.get("history").unwrap().elements().count(), 50);
    let names: Vec<_> = value.members().map(|(name, _)| name.as_str().unwrap().into_owned()).collect();
    let expected = [
        "session_id",
        "source_last_seq",
        "replication_id_version",
        "start_time",
        "end_time",
        "docs_read",
        "docs_written",
        "doc_write_failures",
        "history",
    ];
    assert_eq!(names, expected);
}
