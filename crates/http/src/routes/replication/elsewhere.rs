//! Replications that other servers on the same store carry out: only those know how they do.

use std::collections::HashMap;

use bytes::Bytes;
use hyper::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{Json, Value, write_string};
use settee_replication::JobState;
use settee_replication::documents::{DocumentState, STATES};

use crate::request::Request;
use crate::respond::{self, Response};

/// The jobs of other servers; `None` if this one is all that counts.
pub(super) async fn jobs(request: &Request) -> Option<Vec<JobState>> {
    if !request.node.nodes.is_cluster() {
        return None;
    }
    let answers = request.node.nodes.ask_all(&format!("/_scheduler/jobs?limit={}", u32::MAX), &request.user).await;
    let jobs = members(&answers, "jobs", |job| {
        Some(JobState { id: job.get("id")?.as_str()?.into(), json: job.raw().to_vec() })
    });
    Some(jobs)
}

/// The documents of a database that are at work on other servers, by their ids.
pub(super) async fn documents(request: &Request, database: &str) -> HashMap<String, DocumentState> {
    let target = format!("/_scheduler/docs/{}", utf8_percent_encode(database, NON_ALPHANUMERIC));
    let answers = request.node.nodes.ask_all(&target, &request.user).await;
    let documents = members(&answers, "docs", |document| {
        let state = document.get("state")?.as_str()?;
        let state = STATES.into_iter().find(|known| *known == state)?;
        let id = document.get("doc_id")?.as_str()?.into_owned();
        Some((id, DocumentState { state, json: document.raw().to_vec() }))
    });
    documents.into_iter().collect()
}

/// Cancels a transient replication that another server carries out.
pub(super) async fn cancel(request: &Request, id: Option<&str>) -> Option<Response> {
    let mut body = br#"{"cancel":true,"replication_id":"#.to_vec();
    write_string(&mut body, id?);
    body.push(b'}');
    let answers = request.node.nodes.post_all("/_replicate", body, &request.user).await;
    answers.into_iter().next().map(|answer| respond::whole(StatusCode::OK, "application/json", answer))
}

/// What another server answers to the same request, if one knows.
pub(super) async fn same(request: &Request) -> Option<Response> {
    let answers = request.node.nodes.ask_all(request.head.uri.path(), &request.user).await;
    answers.into_iter().next().map(|answer| respond::whole(StatusCode::OK, "application/json", answer))
}

fn members<T>(answers: &[Bytes], list: &str, member: impl Fn(Value<'_>) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for answer in answers.iter().filter_map(|answer| Json::parse(answer).ok()) {
        found.extend(answer.value().get(list).into_iter().flat_map(Value::elements).filter_map(&member));
    }
    found
}
