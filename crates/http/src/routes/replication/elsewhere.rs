//! Replications that other servers on the same store carry out: only those know how they do.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use settee_model::json::{Json, Value, write_array, write_string};
use settee_replication::documents::{DocumentState, STATES};
use settee_replication::{JobState, ReplicateError, Replicated, Replicator, Roles, User};

use crate::nodes::is_node;
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

/// How often a replication is looked for that no server knows although one has it, and the time between two looks.
pub(super) const LOOKS: u32 = 50;
pub(super) const LOOK_WAIT: Duration = Duration::from_millis(200);

/// What the server says that carries out a replication when it is asked for it as `body` asks here: how it ends, or that it goes on. `None` if none
/// does.
pub(super) async fn join(request: &Request, id: &str, body: Value<'_>) -> Option<Response> {
    ask(request, id, "join", body.raw()).await
}

/// Cancels a replication that another server carries out; `None` if none does.
pub(super) async fn cancel(request: &Request, id: &str) -> Option<Response> {
    let mut text = Vec::new();
    write_string(&mut text, id);
    ask(request, id, "end", &text).await
}

async fn ask(request: &Request, id: &str, what: &str, value: &[u8]) -> Option<Response> {
    let nodes = &request.node.nodes;
    if is_node(&request.user) {
        return None;
    }
    let known = format!("/_scheduler/jobs/{}", utf8_percent_encode(id, NON_ALPHANUMERIC));
    let node = nodes.who_knows(&known).await?;
    let mut body = format!("{{\"{what}\":").into_bytes();
    body.extend_from_slice(value);
    if let Some(name) = &request.user.name {
        body.extend_from_slice(br#","name":"#);
        write_string(&mut body, name);
    }
    body.extend_from_slice(br#","roles":"#);
    write_array(&mut body, &request.user.roles, |out, role| write_string(out, role));
    body.push(b'}');
    let (status, answer) = nodes.post_to(&node, "/_replicate", body).await?;
    Some(respond::whole(status, "application/json", answer))
}

/// What a node asks for with [`join`] or [`cancel`], on behalf of whom.
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
        // Who asks looks again.
        Ok(Replicated::Elsewhere(_)) => Err(ReplicateError::NotFound),
        replicated => replicated,
    })
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
