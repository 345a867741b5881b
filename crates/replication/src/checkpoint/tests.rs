//! Tests of checkpoints.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::json::Json;
use settee_model::testing::Random;

use super::{Entry, compare, counted, document, local_document, no_changes, stripped};
use crate::session::Statistics;

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

#[test]
fn common_histories() {
    check("", "", "0", "");
    check("a", "", "0", "");
    check("", "a", "0", "");
    check("cba", "cba", "\"at-c\"", "cba");
    check("cba", "ba", "\"at-b\"", "a");
    check("ba", "cba", "\"at-b\"", "a");
    check("xyb", "zba", "\"at-b\"", "a");
    check("xyz", "abc", "0", "");
}

#[test]
fn histories_of_any_kind() {
    let mut random = Random::new();
    let mut found = 0;
    for _ in 0..20_000 {
        let mut all: Vec<char> = ('a'..='j').collect();
        if random.one_in(4) {
            random.shuffle(&mut all);
        }
        let is_sorted = all.is_sorted();
        let mut side = || all.iter().rev().filter(|_| !random.one_in(3)).collect::<String>();
        let (source, target) = (side(), side());
        let start = compare(log(&source).as_ref(), log(&target).as_ref());
        let since = String::from_utf8(start.since.as_bytes().to_vec()).unwrap();
        let common: Vec<char> = source.chars().filter(|session| target.contains(*session)).collect();
        let Some(session) = since.strip_prefix("\"at-").and_then(|rest| rest.chars().next()) else {
            assert_eq!((since.as_str(), common.len(), start.history.len()), ("0", 0, 0), "{source} {target}");
            continue;
        };
        found += 1;
        assert!(common.contains(&session), "{source} {target}: {session}");
        assert!(!is_sorted || common[0] == session, "{source} {target}: {session} is not the newest");
        let ids = start.history.iter().map(|entry| entry.value().get("session_id").unwrap().to_text());
        let history: String = ids.collect();
        assert!(source.ends_with(&history) || target.ends_with(&history), "{source} {target}: {history}");
    }
    assert!(found > 10_000, "only {found}");
}

#[test]
fn logs_without_sense() {
    let good = log("cba").unwrap();
    let cases = [
        ("{}", "0"),
        (r#"{"session_id":"c"}"#, "0"),
        (r#"{"session_id":"c","source_last_seq":5}"#, "5"),
        (r#"{"session_id":null,"source_last_seq":5,"history":[]}"#, "0"),
        (r#"{"session_id":"x","history":null}"#, "0"),
        (r#"{"session_id":"x","history":{"session_id":"b"}}"#, "0"),
        (r#"{"session_id":"x","history":[null,5,"b",{},{"session_id":null}]}"#, "0"),
        (r#"{"session_id":"x","history":[{},{"session_id":"b"}]}"#, "\"at-b\""),
        (r#"{"history":[{"session_id":"a","recorded_seq":[1,"x"]}]}"#, r#"[1,"x"]"#),
    ];
    for (text, since) in cases {
        let other = Json::parse(text.as_bytes()).unwrap();
        let start = compare(Some(&good), Some(&other));
        let found = String::from_utf8(start.since.as_bytes().to_vec()).unwrap();
        let expected = if text.contains("\"session_id\":\"c\"") { "\"at-c\"" } else { since };
        assert_eq!(found, expected, "{text}");
        let start = compare(Some(&other), Some(&good));
        if expected == "0" {
            assert_eq!(start.since.as_bytes(), b"0", "{text}");
        }
    }
}

#[test]
fn recorded_history_is_read_again() {
    let mut history = Vec::new();
    let mut last = None;
    for session in 0..60_u64 {
        let (since, seq) =
            (Json::trusted(session.to_string().into_bytes()), Json::trusted((session + 1).to_string().into_bytes()));
        let statistics = Statistics { docs_read: session, doc_write_failures: 2, ..Statistics::default() };
        let entry = Entry {
            session_id: &format!("s{session}"),
            start_time: "then",
            end_time: "now",
            start_last_seq: &since,
            recorded_seq: &seq,
            statistics: &statistics,
            by_doc_ids: session % 2 == 0,
        };
        let written = document(&entry, &history);
        let stored = Json::parse(&local_document("x", Some("0-1"), &written)).unwrap();
        assert_eq!(stripped(&stored), written);
        assert_eq!(stored.value().get("_id").unwrap().to_text(), "_local/x");
        let start = compare(Some(&stored), Some(&stored));
        assert_eq!((start.since.as_bytes(), start.history.len()), (seq.as_bytes(), 50.min(session as usize + 1)));
        let before = compare(Some(&stored), last.as_ref());
        assert_eq!(before.since.as_bytes(), if session == 0 { b"0".as_slice() } else { since.as_bytes() });
        let newest = counted(start.history[0].value());
        assert_eq!((newest.docs_read, newest.doc_write_failures, newest.docs_written), (session, 2, 0));
        let answer = no_changes(Some(&stored));
        assert!(answer.as_bytes().starts_with(b"{\"no_changes\":true,\"session_id\":"));
        assert!(answer.value().get("_id").is_none() && answer.value().get("_rev").is_none());
        history = start.history;
        last = Some(stored);
    }
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
