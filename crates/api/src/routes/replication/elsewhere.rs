//! Replications on other nodes of the cluster, which only those nodes can report.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{self, Json, Value, write_string};
use settee_replication::documents::{DocumentState, STATES};
use settee_replication::{JobState, ReplicateError, Replicated, Replicator, Roles, User};

use crate::nodes::is_node;
use crate::request::Request;
use crate::respond::{self, Response};

pub(super) async fn jobs(request: &Request) -> Option<Vec<JobState>> {
    if !request.node.nodes.is_cluster() {
        return None;
    }
    let answers = request.node.nodes.get_all(&format!("/_scheduler/jobs?limit={}", u32::MAX), &request.user).await;
    let jobs = members(&answers, "jobs", |job| {
        Some(JobState { id: job.get("id")?.as_str()?.into(), json: job.raw().to_vec() })
    });
    Some(jobs)
}

pub(super) async fn documents(request: &Request, database: &str) -> HashMap<String, DocumentState> {
    let target = format!("/_scheduler/docs/{}", utf8_percent_encode(database, NON_ALPHANUMERIC));
    let answers = request.node.nodes.get_all(&target, &request.user).await;
    let documents = members(&answers, "docs", |document| {
        let state = document.get("state")?.as_str()?;
        let state = STATES.into_iter().find(|known| *known == state)?;
        let id = document.get("doc_id")?.as_str()?.into_owned();
        Some((id, DocumentState { state, json: document.raw().to_vec() }))
    });
    documents.into_iter().collect()
}

/// Limit and interval of retries for a replication that a node has claimed but no node reports.
pub(super) const RETRIES_MAX: u32 = 50;
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// Returns the result of the replication, or that it is running, or `None` if no node runs it.
pub(super) async fn join(request: &Request, id: &str, body: Value<'_>) -> Option<Response> {
    ask(request, id, "join", body.raw()).await
}

pub(super) async fn cancel(request: &Request, id: &str) -> Option<Response> {
    let mut text = Vec::new();
    write_string(&mut text, id);
    ask(request, id, "end", &text).await
}

async fn ask(request: &Request, id: &str, label: &str, value: &[u8]) -> Option<Response> {
    let nodes = &request.node.nodes;
    if is_node(&request.user) {
        return None;
    }
    let known = format!("/_scheduler/jobs/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
    let node = nodes.find_node(&known).await?;
    let body = json::object(|object| {
        object.json(label, value);
        if let Some(name) = &request.user.name {
            object.string("name", name);
        }
        object.strings("roles", &request.user.roles);
    });
    let (status, answer) = nodes.post_to(&node, "/_replicate", body).await?;
    Some(respond::whole(status, "application/json", answer))
}

/// Handles a request that another node makes with [`join`] or [`cancel`] on behalf of a user.
pub(super) async fn answer(
    replicator: &Arc<Replicator>,
    body: Value<'_>,
) -> Option<Result<Replicated, ReplicateError>> {
    let text = |name| Some(body.get(name)?.as_str()?.into_owned());
    let roles = body.get("roles").into_iter().flat_map(Value::elements);
    let roles = roles.filter_map(|role| Some(role.as_str()?.into_owned())).collect();
    let user = User { name: text("name"), roles: Roles::Given(roles) };
    if let Some(id) = text("end") {
        return Some(replicator.cancel(&id, &user));
    }
    Some(match replicator.replicate(body.get("join")?, &user).await {
        // The requesting node retries.
        Ok(Replicated::Elsewhere(_)) => Err(ReplicateError::NotFound),
        replicated => replicated,
    })
}

/// Returns the response of another node to the same request, if one has the job.
pub(super) async fn same(request: &Request) -> Option<Response> {
    let answers = request.node.nodes.get_all(request.head.uri.path(), &request.user).await;
    answers.into_iter().next().map(|answer| respond::whole(StatusCode::OK, "application/json", answer))
}

fn members<T>(answers: &[Bytes], list: &str, member: impl Fn(Value<'_>) -> Option<T>) -> Vec<T> {
    let mut found = Vec::new();
    for answer in answers.iter().filter_map(|answer| Json::parse(answer).ok()) {
        found.extend(answer.value().get(list).into_iter().flat_map(Value::elements).filter_map(&member));
    }
    found
}
