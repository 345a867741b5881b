//! Answers of CouchDB to wrong requests, learned from the recorded scenarios: each has to be answered alike here, by a server
//! with a database that has a document, a design document and a local document.
//!
//! `learned.txt` has a line for each request and one for its answer. With `SETTEE_UPDATE=1` it is made anew from the
//! recordings, where there are any (`SETTEE_CONFORMANCE`, or `../shared/conformance` beside the repository). Only what does not
//! depend on the stories that the recordings tell is taken: faults of the request itself.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use settee_model::json::{Json, Value};

use super::cases::{Answer, Asked};
use crate::tests::node::World;

const FILE: &str = "differential/learned.txt";

/// Errors that the request itself decides about.
const OF_THE_REQUEST: [&str; 6] =
    ["bad_request", "query_parse_error", "illegal_docid", "doc_validation", "bad_content_type", "method_not_allowed"];

/// Areas whose requests go to the database of the scenario.
const AREAS: [&str; 8] =
    ["documents", "bulk", "local_docs", "revisions", "attachments", "changes", "purge", "replication"];

/// A request: its line, the type of its body and the body.
type Request = (String, String, String);

fn recordings() -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/conformance");
    let directory = std::env::var_os("SETTEE_CONFORMANCE").map_or(beside, PathBuf::from);
    directory.join("scenarios").is_dir().then(|| directory.join("scenarios"))
}

fn text(value: Value<'_>, name: &str) -> Option<String> {
    value.get(name).and_then(Value::as_str).map(std::borrow::Cow::into_owned)
}

/// The requests of a scenario that are answered with an error of their own.
fn learn(scenario: Value<'_>, found: &mut BTreeMap<Request, Answer>) {
    for step in scenario.get("steps").into_iter().flat_map(Value::elements) {
        let answer = step.get("expect").and_then(|expect| {
            let body = expect.get("body")?;
            let status = expect.get("status").and_then(Value::as_u64)?;
            Some(Answer {
                status: u16::try_from(status).ok()?,
                error: text(body, "error")?,
                reason: text(body, "reason")?,
            })
        });
        let Some(answer) = answer.filter(|answer| OF_THE_REQUEST.contains(&answer.error.as_str())) else { continue };
        let path = text(step, "path").unwrap_or_default().replace("{db}", "db");
        let headers = step.get("headers");
        let others = headers.into_iter().flat_map(Value::members).any(|(name, _)| !name.is_string("Content-Type"));
        let special = ["multipart", "body_base64", "chunked", "auth"].iter().any(|name| step.get(name).is_some());
        let body =
            text(step, "body_text").or_else(|| Some(String::from_utf8_lossy(step.get("body")?.raw()).into_owned()));
        let body = body.unwrap_or_default();
        let varies = |text: &str| {
            text.contains("${") || text.contains("{user") || text.contains("{host}") || text.contains("<<")
        };
        let in_database = path == "/db" || path.starts_with("/db/") || path.starts_with("/db?");
        // Lists of documents have parameters of views.
        let in_database =
            in_database && !["_all_docs", "_design_docs", "_local_docs"].iter().any(|list| path.contains(list));
        if others
            || special
            || !in_database
            || varies(&path)
            || varies(&body)
            || varies(&answer.reason)
            || body.contains('\n')
        {
            continue;
        }
        let declared = headers.and_then(|headers| headers.get("Content-Type"));
        let content_type = declared.map_or("application/json".to_owned(), |value| {
            value.as_str().map(std::borrow::Cow::into_owned).unwrap_or_default()
        });
        let method = text(step, "method").unwrap_or_else(|| "GET".to_owned());
        found.insert((format!("{method} {path}"), content_type, body), answer);
    }
}

fn learned() -> Option<String> {
    let directory = recordings()?;
    let mut found = BTreeMap::new();
    for area in AREAS {
        let mut files: Vec<PathBuf> =
            std::fs::read_dir(directory.join(area)).ok()?.filter_map(|entry| Some(entry.ok()?.path())).collect();
        files.sort();
        for file in files {
            let scenario = Json::parse(&std::fs::read(file).unwrap()).unwrap();
            learn(scenario.value(), &mut found);
        }
    }
    let lines = found.iter().map(|((line, content_type, body), answer)| {
        format!("{line} | {content_type} | {body}\n    {} {}: {}\n", answer.status, answer.error, answer.reason)
    });
    Some(lines.collect())
}

#[tokio::test(start_paused = true)]
async fn wrong_requests_are_answered_as_couchdb_was_recorded_to_answer_them() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests").join(FILE);
    if std::env::var_os("SETTEE_UPDATE").is_some()
        && let Some(text) = learned()
    {
        std::fs::write(&path, text).unwrap();
    }
    let table = std::fs::read_to_string(&path).unwrap();
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/a", "{}").await;
    world.admin("PUT /db/_local/a", "{}").await;
    world.admin("PUT /db/_design/f", "{\"filters\":{\"odd\":\"function() {}\"}}").await;
    let mut asked = Asked::new(&world);
    let mut ours = String::new();
    let mut lines = table.lines();
    while let (Some(request), Some(_)) = (lines.next(), lines.next()) {
        let mut parts = request.splitn(3, " | ");
        let (line, content_type, body) = (parts.next().unwrap(), parts.next().unwrap(), parts.next().unwrap());
        let answer = asked.ask(line, content_type, body).await;
        ours.push_str(&format!("{request}\n    {} {}: {}\n", answer.status, answer.error, answer.reason));
    }
    assert!(!ours.is_empty());
    let differences: Vec<(&str, &str)> =
        table.lines().zip(ours.lines()).filter(|(theirs, ours)| theirs != ours).collect();
    assert!(differences.is_empty(), "CouchDB, and here: {differences:#?}");
}
