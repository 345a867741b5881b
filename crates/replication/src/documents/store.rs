//! Writes the states of replications into their documents.

use std::sync::Arc;
use std::time::Duration;

use http::{Method, StatusCode};
use http_body_util::{BodyExt, Limited};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{Json, Value, object, write_string};

use super::{REPLICATOR_ROLE, parse};
use crate::endpoint::{Endpoint, Local, Roles, User};
use crate::replicator::{Job, Replicator};
use crate::report::{iso8601, write_counters};
use crate::transport::{Body, Transport, empty_body, full_body};

const ATTEMPTS_MAX: u32 = 20;

/// Delay after the first conflict; it grows linearly with the attempts.
const CONFLICT_WAIT_MS: u64 = 100;

const DOCUMENT_BYTES_MAX: usize = 64 << 20;

pub(super) enum Change {
    Cleared,
    Triggered(String),
    /// The replication could not start or was interrupted, and is retried.
    Error {
        id: Option<String>,
        reason: String,
    },
    Failed(String),
    Completed(Arc<Job>),
}

/// `None` removes a member.
type Members = Vec<(&'static str, Option<Vec<u8>>)>;

pub(super) fn spawn(replicator: &Arc<Replicator>, database: &Arc<str>, id: &Arc<str>, change: Change) {
    let (replicator, database, id) = (Arc::clone(replicator), Arc::clone(database), Arc::clone(id));
    tokio::spawn(async move {
        if let Err(error) = store(&replicator, &database, &id, &change).await {
            tracing::warn!(database = &*database, id = &*id, error, "the state of a replication was not written");
        }
    });
}

async fn store(replicator: &Replicator, database: &str, id: &str, change: &Change) -> Result<(), String> {
    let transport = connect(replicator, database)?;
    let uri =
        format!("/{}/{}", utf8_percent_encode(database, NON_ALPHANUMERIC), utf8_percent_encode(id, NON_ALPHANUMERIC));
    for attempt in 1..=ATTEMPTS_MAX {
        let (status, text) = call(&*transport, Method::GET, &uri, empty_body()).await?;
        if status == StatusCode::NOT_FOUND {
            return Ok(());
        }
        let document = Json::parse(&text).map_err(|error| format!("{status}: {error}"))?;
        if status != StatusCode::OK {
            return Err(format!("{status}: {}", reason(&document)));
        }
        let Some(changed) = apply(replicator, document.value(), change) else { return Ok(()) };
        let (status, text) = call(&*transport, Method::PUT, &uri, full_body(changed)).await?;
        match status {
            StatusCode::CONFLICT if attempt < ATTEMPTS_MAX => {
                tokio::time::sleep(Duration::from_millis(CONFLICT_WAIT_MS * u64::from(attempt))).await;
            }
            status if status.is_success() => {
                match change {
                    Change::Completed(_) => replicator.counters().documents_completed.increment(),
                    Change::Failed(_) => replicator.counters().documents_failed.increment(),
                    Change::Cleared | Change::Triggered(_) | Change::Error { .. } => {}
                }
                return Ok(());
            }
            status => {
                let answer = Json::parse(&text).unwrap_or_else(|_| Json::empty_object());
                return Err(format!("{status}: {}", reason(&answer)));
            }
        }
    }
    Ok(())
}

fn reason(answer: &Json) -> String {
    answer.value().get("reason").and_then(Value::as_str).map(std::borrow::Cow::into_owned).unwrap_or_default()
}

pub(super) fn connect(replicator: &Replicator, database: &str) -> Result<Arc<dyn Transport>, String> {
    let roles = vec!["_admin".to_owned(), REPLICATOR_ROLE.to_owned()];
    let endpoint =
        Endpoint::Local(Local { name: database.to_owned(), user: User { name: None, roles: Roles::Given(roles) } });
    let tuning = replicator.settings().tuning;
    replicator.dependencies.connect.connect(&endpoint, &tuning).map_err(|error| error.to_string())
}

async fn call(
    transport: &dyn Transport,
    method: Method,
    uri: &str,
    body: Body,
) -> Result<(StatusCode, Vec<u8>), String> {
    let request = http::Request::builder()
        .method(method)
        .uri(uri)
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body)
        .map_err(|error| error.to_string())?;
    let response = transport.call(request).await.map_err(|error| error.to_string())?;
    let status = response.status();
    let body = Limited::new(response.into_body(), DOCUMENT_BYTES_MAX).collect().await;
    Ok((status, body.map_err(|error| error.to_string())?.to_bytes().to_vec()))
}

fn apply(replicator: &Replicator, document: Value<'_>, change: &Change) -> Option<Vec<u8>> {
    if let Change::Completed(job) = change {
        // A document that was changed concurrently describes a different replication, which is not complete.
        let asked = parse(document, &replicator.settings().tuning).ok()?;
        if asked != *job.spec {
            return None;
        }
    }
    let mut members = members(change);
    let reply = |text: &Option<Vec<u8>>| text.clone();
    let state = members.iter().find(|(name, _)| *name == "_replication_state").and_then(|(_, text)| reply(text));
    let old = document.get("_replication_state").map(|value| value.raw().to_vec());
    if state.is_some() && state != old {
        members.push(("_replication_state_time", Some(quoted(&iso8601((replicator.dependencies.now_ms)())))));
    }
    let changed = replace(document, &members);
    (changed != document.raw()).then_some(changed)
}

fn members(change: &Change) -> Members {
    match change {
        Change::Cleared => vec![
            ("_replication_state", None),
            ("_replication_state_time", None),
            ("_replication_state_reason", None),
            ("_replication_id", None),
            ("_replication_stats", None),
        ],
        Change::Triggered(id) => vec![
            ("_replication_state", Some(quoted("triggered"))),
            ("_replication_state_reason", None),
            ("_replication_id", Some(quoted(id))),
            ("_replication_stats", None),
        ],
        Change::Error { id, reason } => vec![
            ("_replication_state", Some(quoted("error"))),
            ("_replication_state_reason", Some(quoted(reason))),
            ("_replication_stats", None),
            ("_replication_id", Some(id.as_deref().map_or_else(|| b"null".to_vec(), quoted))),
        ],
        Change::Failed(reason) => vec![
            ("_replication_state", Some(quoted("failed"))),
            ("_replication_stats", None),
            ("_replication_state_reason", Some(quoted(reason))),
        ],
        Change::Completed(job) => {
            let statistics = object(|statistics| {
                statistics.string("start_time", &iso8601(job.added_ms));
                write_counters(statistics, &job.progress.statistics());
            });
            vec![
                ("_replication_state", Some(quoted("completed"))),
                ("_replication_state_reason", None),
                ("_replication_stats", Some(statistics)),
            ]
        }
    }
}

fn quoted(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    write_string(&mut out, text);
    out
}

fn replace(document: Value<'_>, members: &Members) -> Vec<u8> {
    let mut left: Vec<_> = members.iter().collect();
    object(|object| {
        for (name, value) in document.members() {
            let Some(name) = name.as_str() else { continue };
            match left.iter().position(|(changed, _)| *changed == name) {
                None => {
                    object.json(&name, value.raw());
                }
                Some(at) => {
                    if let (name, Some(text)) = left.swap_remove(at) {
                        object.json(name, text);
                    }
                }
            }
        }
        for (name, text) in members.iter().filter(|member| left.iter().any(|(name, _)| *name == member.0)) {
            if let Some(text) = text {
                object.json(name, text);
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_replaced_where_they_stand() {
        let members: Members = vec![
            ("a", Some(b"1".to_vec())),
            ("b", None),
            ("c", Some(b"3".to_vec())),
            ("d", None),
            ("e", Some(b"5".to_vec())),
        ];
        let cases = [
            ("{}", r#"{"a":1,"c":3,"e":5}"#),
            (r#"{"x":0,"c":[],"y":{"a":0},"b":2}"#, r#"{"x":0,"c":3,"y":{"a":0},"a":1,"e":5}"#),
        ];
        for (document, expected) in cases {
            let document = Json::parse(document.as_bytes()).unwrap_or_else(|_| Json::empty_object());
            assert_eq!(String::from_utf8_lossy(&replace(document.value(), &members)), expected);
        }
    }
}
