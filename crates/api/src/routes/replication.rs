//! Replications: start, cancellation and state.

mod elsewhere;

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use hyper::{Method, StatusCode};
use settee_database::{Bodies, DOCUMENTS_TOGETHER, Direction, IdRange};
use settee_model::json::{Json, write_array};
use settee_replication::documents::{DocumentState, REPLICATOR_DATABASE, STATES, is_replicator_database, resting};
use settee_replication::{ReplicateError, Replicated, Roles, User};

use crate::nodes::is_node;
use crate::params::view::{Source, ViewParams};
use crate::params::{Query, Raw};
use crate::path::segments;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, body, bridge};

const JOBS_LISTED: u64 = 100;

/// As in CouchDB the body is parsed before the user, the method and the content type are checked.
pub(super) async fn replicate(mut request: Request) -> Answer {
    let body = request.read_object().await?;
    if request.user.name.is_none() && !request.user.is_admin() {
        return Err(Error::unauthorized("You are not an authenticated user"));
    }
    if request.head.method != Method::POST {
        return Err(Error::method_not_allowed("POST"));
    }
    body::require_json(&request.headers)?;
    let replicator = Arc::clone(request.node.replicator()?);
    if is_node(&request.user)
        && let Some(replicated) = elsewhere::answer(&replicator, body.value()).await
    {
        return Ok(answer(replicated?));
    }
    let user = User { name: request.user.name.clone(), roles: Roles::Given(request.user.roles.clone()) };
    let mut retries = 0;
    loop {
        match replicator.replicate(body.value(), &user).await {
            Err(ReplicateError::NotFound) => {
                let id = replicator.cancels(body.value(), &user).await?.ok_or(ReplicateError::NotFound)?;
                return elsewhere::cancel(&request, &id).await.ok_or_else(|| ReplicateError::NotFound.into());
            }
            Ok(Replicated::Elsewhere(id)) => {
                if let Some(reply) = elsewhere::join(&request, &id, body.value()).await {
                    return Ok(reply);
                }
                // The job has ended or its node has failed, and this node may acquire it in the next attempt.
                retries += 1;
                if retries > elsewhere::RETRIES_MAX {
                    let reason = "another node has this replication and does not answer";
                    return Err(Error::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason));
                }
                tokio::time::sleep(elsewhere::RETRY_INTERVAL).await;
            }
            replicated => return Ok(answer(replicated?)),
        }
    }
}

fn answer(replicated: Replicated) -> respond::Response {
    match replicated {
        Replicated::Completed(answer) => {
            respond::object(StatusCode::OK, |object| _ = object.value("ok", true).members(answer.value()))
        }
        Replicated::Continuous(id) | Replicated::Elsewhere(id) => respond_id(StatusCode::ACCEPTED, &id),
        Replicated::Cancelled(id) => respond_id(StatusCode::OK, &id),
    }
}

fn respond_id(status: StatusCode, id: &str) -> respond::Response {
    respond::object(status, |object| _ = object.value("ok", true).string("_local_id", id))
}

pub(super) async fn jobs(request: Request) -> Answer {
    let replicator = request.node.replicator()?;
    let limit = number(&request.query, "limit", JOBS_LISTED)?;
    let skip = number(&request.query, "skip", 0)?;
    let (total, jobs) = match elsewhere::jobs(&request).await {
        None => replicator.jobs(skip, limit),
        Some(others) => {
            let (_, mut jobs) = replicator.jobs(0, usize::MAX);
            jobs.extend(others);
            jobs.sort_by(|a, b| a.id.cmp(&b.id));
            (jobs.len(), jobs.into_iter().skip(skip).take(limit).collect())
        }
    };
    Ok(respond::object(StatusCode::OK, |object| {
        object.value("total_rows", total).value("offset", skip.min(total));
        write_array(object.name("jobs"), &jobs, |out, job| out.extend_from_slice(&job.json));
    }))
}

fn number(query: &Query, name: &str, default: u64) -> Result<usize, Error> {
    let number = match query.get(name) {
        None => default,
        Some(text) => {
            let number = Raw::Text(text.to_owned()).natural();
            number.map_err(|_| Error::query_parse(format!("{name} must be an integer")))?
        }
    };
    Ok(usize::try_from(number).unwrap_or(usize::MAX))
}

pub(super) async fn job(request: Request) -> Answer {
    // A plus sign in a path may have been decoded as a space.
    let id = request.captures.get("job").replace(' ', "+");
    if let Some(job) = request.node.replicator()?.job(&id) {
        return Ok(respond::json(StatusCode::OK, job.json));
    }
    elsewhere::same(&request).await.ok_or_else(|| Error::not_found("missing"))
}

/// CouchDB gives no reason.
pub(super) async fn unknown(_: Request) -> Answer {
    Ok(respond::json(StatusCode::NOT_FOUND, br#"{"error":"not found"}"#.to_vec()))
}

pub(super) async fn docs(request: Request) -> Answer {
    list(request, REPLICATOR_DATABASE.to_owned()).await
}

/// Slashes of the database name may be unescaped, those of the id are escaped.
pub(super) async fn docs_of(request: Request) -> Answer {
    let parts = segments(request.head.uri.path(), request.node.policy().plus)?;
    let named: Vec<String> = parts.into_iter().skip(2).map(Cow::into_owned).collect();
    let whole = named.join("/");
    if is_replicator_database(&whole) {
        return list(request, whole).await;
    }
    let (id, database) = named.split_last().ok_or_else(|| Error::bad_request("Invalid path"))?;
    let database = database.join("/");
    // An id cannot be the name of a replicator database, so that the last segment is unambiguous.
    if !is_replicator_database(&database) || database.starts_with("_replicator/") {
        return Err(Error::bad_request("Invalid path"));
    }
    one(&request, &database, id).await
}

async fn one(request: &Request, database: &str, id: &str) -> Answer {
    let is_asked_by_node = is_node(&request.user);
    if request.node.replicator()?.document(database, id).is_none()
        && let Some(reply) = elsewhere::same(request).await
    {
        return Ok(reply);
    }
    let store = request.node.database(database)?;
    let (database, id) = (database.to_owned(), id.to_owned());
    let replicator = Arc::clone(request.node.replicator()?);
    let state = bridge::blocking(&request.threads, move || {
        let view = store.read()?;
        let head = view.head(&id)?.filter(|head| !head.stored.deleted && !id.starts_with("_design/"));
        let head = head.ok_or_else(|| Error::not_found("missing"))?;
        if let Some(state) = replicator.document(&database, &id) {
            return Ok(state);
        }
        if is_asked_by_node {
            return Err(Error::not_found("missing"));
        }
        let mut text = Vec::new();
        view.write_document(&mut text, &id, &head.rev, head.stored, |_| {})?;
        Ok(resting(&database, &id, Json::trusted(text).value()))
    })
    .await?;
    Ok(respond::json(StatusCode::OK, state.json))
}

async fn list(request: Request, name: String) -> Answer {
    let params = ViewParams::from_query(&request.query, Source::Documents)?;
    let states = states(request.query.get("states"))?;
    let store = request.node.database(&name)?;
    let replicator = Arc::clone(request.node.replicator()?);
    let (mut elsewhere, is_asked_by_node) = (elsewhere::documents(&request, &name).await, is_node(&request.user));
    bridge::stream(request.admit_response(), move |output| {
        let view = store.read()?;
        let total = documents(&view)?;
        let offset = params.skip.min(total);
        output
            .text()
            .extend_from_slice(format!("{{\"total_rows\":{total},\"offset\":{offset},\"docs\":[\r\n").as_bytes());
        let range = range(&params);
        let direction = if params.descending { Direction::Backward } else { Direction::Forward };
        let mut rows = view.all_docs(&range, direction)?;
        let (mut skipped, mut sent) = (0, 0);
        let mut together = VecDeque::new();
        loop {
            if together.is_empty() {
                together.extend(rows.together(DOCUMENTS_TOGETHER, Bodies::Winners)?);
            }
            let Some((id, head)) = together.pop_front() else { break };
            if id.starts_with("_design/") {
                continue;
            }
            if params.limit.is_some_and(|limit| sent >= limit) {
                break;
            }
            let state = match replicator.document(&name, &id).or_else(|| elsewhere.remove(&id)) {
                Some(state) => state,
                // The requesting node needs only the documents with jobs on this node.
                None if is_asked_by_node => continue,
                None => {
                    let mut text = Vec::new();
                    view.write_document(&mut text, &id, &head.rev, head.stored, |_| {})?;
                    resting(&name, &id, Json::trusted(text).value())
                }
            };
            if !wanted(&states, &state) {
                continue;
            }
            if skipped < params.skip {
                skipped += 1;
                continue;
            }
            if sent > 0 {
                output.text().extend_from_slice(b",\r\n");
            }
            output.text().extend_from_slice(&state.json);
            sent += 1;
            if output.row_done().is_break() {
                return Ok(());
            }
        }
        output.text().extend_from_slice(b"\r\n]}\n");
        Ok(())
    })
    .await
}

fn documents(view: &settee_database::ReadView<'_>) -> Result<u64, Error> {
    let range = IdRange { start: Some(b"_design/".to_vec()), end: Some(b"_design0".to_vec()) };
    let mut rows = view.all_docs(&range, Direction::Forward)?;
    let mut design = 0;
    while rows.next()?.is_some() {
        design += 1;
    }
    Ok(view.doc_count()?.saturating_sub(design))
}

fn range(params: &ViewParams) -> IdRange {
    let id = |key: &Option<Json>| key.as_ref()?.value().as_str().map(|id| id.into_owned().into_bytes());
    let (mut low, mut high) = (id(&params.start), id(&params.end));
    if params.descending {
        std::mem::swap(&mut low, &mut high);
    }
    // The next id after an id is the id with a zero byte appended.
    if let Some(high) = &mut high {
        high.push(0);
    }
    IdRange { start: low, end: high }
}

fn wanted(states: &[&str], state: &DocumentState) -> bool {
    states.is_empty() || states.contains(&state.state)
}

fn states(text: Option<&str>) -> Result<Vec<&'static str>, Error> {
    let words = text.into_iter().flat_map(|text| text.split(',')).map(str::trim).filter(|word| !word.is_empty());
    words
        .map(|word| {
            let known = STATES.iter().find(|state| state.eq_ignore_ascii_case(word));
            let all = STATES.join(",");
            known.copied().ok_or_else(|| Error::query_parse(format!("Unknown states [{word}]. Choose from: [{all}]")))
        })
        .collect()
}
