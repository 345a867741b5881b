//! `_rewrite`: rules or a function of a design document redirect a request internally. `Rule`s are tried in order. A
//! path that matches none is not found; the rewritten request is served like any other, with its own permission. The
//! semantics of rules are CouchDB's (`chttpd_rewrite`). The author of a design document administers its database, and
//! visitors may have more rights. With `[chttpd] secure_rewrites`, which is on by default, a rewrite therefore stays in
//! its database, cannot do anything that requires a server administrator, and cannot change a read to a write.

use bytes::Bytes;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{Method, StatusCode, Uri};
use settee_design::rewrites::{self, JSON_PARAMETERS, RewriteError, Rewritten};
use settee_model::json::{self, Json, Kind, Value};
use settee_settings::chttpd;
use tokio::task::JoinSet;

use super::rendered::Rendered;
use super::request_object::{Members, RequestObject};
use crate::head::RequestHead;
use crate::node::Node;
use crate::params::Raw;
use crate::path::{encode_path, split};
use crate::request::{Request, RequestBody};
use crate::respond::Answer;
use crate::{Error, bridge};
use settee_service::{Functions, Permission};

pub(super) async fn rewrite(mut request: Request) -> Answer {
    let limit = chttpd::REWRITE_LIMIT.of(&*request.node.settings);
    if request.head.rewrites >= limit {
        return Err(Error::bad_request("Exceeded rewrite recursion limit"));
    }
    let database = request.database()?;
    let (reader, ddoc) = (database.clone(), request.captures.get("ddoc").to_owned());
    let functions = bridge::blocking(&request.threads, move || Ok(Functions::load(&reader, &ddoc)?)).await?;
    let Some(rewrites) = functions.document().get("rewrites") else {
        return Err(invalid_path());
    };
    if rewrites.is_array() {
        let target = by_rules(&request, rewrites)?;
        return follow(request, Target { path: target, ..Target::default() }).await;
    }
    let body = request.read_body().await?;
    let object = RequestObject::new(&request, None, &body)?;
    let node = request.node.clone();
    let caller = request.caller();
    let context = caller.clone();
    let result = request
        .node
        .programs
        .calling(&caller, move || {
            let seen = object.to_json(&database, Members::OfRewrite)?;
            Ok::<_, Error>(functions.call(&node.programs, &context, &database, &["rewrites"], &[&seen])?)
        })
        .await?;
    let mut parts = result.value().elements();
    let word = parts.next().and_then(Value::as_str);
    match (word.as_deref(), parts.next()) {
        (Some("ok"), Some(rewrite)) => by_function(request, rewrite, body).await,
        _ => Err(invalid_path()),
    }
}

fn invalid_path() -> Error {
    Error::new(StatusCode::NOT_FOUND, "rewrite_error", "Invalid path.")
}

/// Absent members stay unchanged.
#[derive(Default)]
struct Target {
    path: String,
    method: Option<Method>,
    headers: Vec<(HeaderName, HeaderValue)>,
    body: Option<Bytes>,
}

async fn follow(request: Request, target: Target) -> Answer {
    let uri: Uri = target.path.parse().map_err(|_| failed("bad path"))?;
    if chttpd::SECURE_REWRITES.of(&*request.node.settings) {
        require_harmless(&request, target.method.as_ref().unwrap_or(&request.head.method), &uri)?;
    }
    let Request { node, router, head, mut headers, user, body, .. } = request;
    for (name, value) in target.headers {
        headers.insert(name, value);
    }
    let head = RequestHead {
        method: target.method.unwrap_or(head.method),
        requested: Some(head.requested.unwrap_or_else(|| head.uri.path().to_owned())),
        uri,
        peer: head.peer,
        scheme: head.scheme,
        rewrites: head.rewrites + 1,
        handler: head.handler,
        seen: head.seen,
        account: head.account,
    };
    let body = target.body.map(RequestBody::Buffered).or(body);
    // A separate task, aborted with this one, has its own stack: a hundred nested rewrites would overflow one.
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let resolved = router.resolve(head.uri.path(), node.policy().plus);
        router.handle(&node, resolved, (head, headers), user, body).await
    });
    match tasks.join_next().await {
        Some(Ok(answer)) => answer,
        Some(Err(_)) | None => Err(Error::internal("the request was not served to its end")),
    }
}

/// Resources of a database that are read-only, also with POST.
const READ_BY_POST: [&str; 9] = [
    "_all_docs",
    "_bulk_get",
    "_changes",
    "_design_docs",
    "_explain",
    "_find",
    "_local_docs",
    "_missing_revs",
    "_revs_diff",
];

const FUNCTIONS_READ_BY_POST: [&str; 5] = ["_list", "_nouveau", "_search", "_show", "_view"];

/// Returns an error if a rewrite leaves its database, requires a server administrator, or changes a read to a
/// write: a link, which any page can make a browser follow, must not change data.
fn require_harmless(request: &Request, method: &Method, uri: &Uri) -> Result<(), Error> {
    let plus = request.node.policy().plus;
    let parts = split(uri.path(), plus).parts;
    if parts.first().is_none_or(|database| database != request.captures.get("db")) {
        return Err(rejected(RewriteError::Insecure));
    }
    let Some((resource, permission)) = request.router.served(method, uri.path(), plus) else { return Ok(()) };
    if permission == Permission::ServerAdmin {
        return Err(Error::forbidden(format!("a rewrite may not lead to {method} {resource}")));
    }
    let from = &request.head.method;
    let is_read = |method: &Method| [Method::GET, Method::HEAD, Method::OPTIONS].contains(method);
    let reads_by_post = || match resource.split('/').skip(2).collect::<Vec<_>>()[..] {
        ["_design", _, function, ..] => FUNCTIONS_READ_BY_POST.contains(&function),
        [name, ..] => READ_BY_POST.contains(&name),
        [] => false,
    };
    if !is_read(from) || is_read(method) || (*method == Method::POST && reads_by_post()) {
        return Ok(());
    }
    Err(Error::forbidden(format!("a rewrite may not make {method} {resource} of a {from}")))
}

fn prefix(request: &Request) -> String {
    let captures = &request.captures;
    format!("/{}/_design/{}", encode_path(captures.get("db")), encode_path(captures.get("ddoc")))
}

fn by_rules(request: &Request, rewrites: Value<'_>) -> Result<String, Error> {
    let secure = chttpd::SECURE_REWRITES.of(&*request.node.settings);
    let rules = rewrites::parse(rewrites, secure).map_err(rejected)?;
    let query: Vec<(String, String)> = request
        .query
        .raw()
        .filter_map(|(name, raw)| match raw {
            Raw::Text(text) => Some((name.to_owned(), text)),
            Raw::Json(_) => None,
        })
        .collect();
    for (_, text) in query.iter().filter(|(name, _)| JSON_PARAMETERS.contains(&name.as_str())) {
        Json::parse(text.as_bytes())?;
    }
    // An escaped slash is a part of its segment, so the captured path cannot be split.
    let mut parts = split(request.head.uri.path(), request.node.policy().plus).parts;
    let below = if parts.get(1).is_some_and(|part| part == "_partition") { 6 } else { 4 };
    let parts = parts.split_off(below.min(parts.len()));
    let parts: Vec<&str> = parts.iter().map(AsRef::as_ref).collect();
    let found = rules.iter().find_map(|rule| rule.apply(request.head.method.as_str(), &parts, &query));
    let Rewritten { path, query } = found.ok_or_else(|| Error::not_found("missing"))?;
    Ok(rewrites::target(&prefix(request), &path, &query))
}

fn rejected(error: RewriteError) -> Error {
    let name = match error {
        RewriteError::NoTarget => "error",
        RewriteError::Insecure => "insecure_rewrite_rule",
    };
    Error::new(StatusCode::INTERNAL_SERVER_ERROR, name, error.to_string())
}

fn failed(reason: &str) -> Error {
    Error::new(StatusCode::INTERNAL_SERVER_ERROR, "rewrite_error", reason.to_owned())
}

async fn by_function(request: Request, rewrite: Value<'_>, body: Bytes) -> Answer {
    let rewrite = check(rewrite)?;
    if rewrite.get("code").is_some() {
        return answer(rewrite, &request.node);
    }
    let path = text_member(rewrite, "path").ok_or_else(|| failed("Rewrite result must produce a new path."))?;
    let query = match rewrite.get("query") {
        Some(query) => text_members(query),
        None => {
            request.query.raw().filter_map(|(name, raw)| Some((name.to_owned(), raw.word()?.into_owned()))).collect()
        }
    };
    let method = match text_member(rewrite, "method") {
        Some(name) => Some(Method::from_bytes(name.as_bytes()).map_err(|_| failed("bad method"))?),
        None => None,
    };
    let headers = rewrite.get("headers").map(text_members).unwrap_or_default();
    let headers = headers.iter().map(|(name, value)| {
        let pair = (HeaderName::try_from(name.as_str()), HeaderValue::try_from(value.as_str()));
        if let (Ok(name), Ok(value)) = pair { Ok((name, value)) } else { Err(failed("bad headers")) }
    });
    let headers = headers.collect::<Result<Vec<_>, _>>()?;
    let target = rewrites::target(&prefix(&request), &path, &query);
    let body = text_member(rewrite, "body").map(|text| Bytes::from(text.into_bytes())).unwrap_or(body);
    follow(request, Target { path: target, method, headers, body: Some(body) }).await
}

/// The response is sandboxed like that of a show function.
fn answer(rewrite: Value<'_>, node: &Node) -> Answer {
    let answer = json::object(|object| {
        for name in ["code", "headers", "body"] {
            if let Some(value) = rewrite.get(name) {
                object.json(name, value.raw());
            }
        }
    });
    Ok(Rendered::parse(Value::trusted(&answer), StatusCode::OK)?.sandbox(node).into_response())
}

fn text_member(object: Value<'_>, name: &str) -> Option<String> {
    object.get(name)?.as_str().map(Into::into)
}

fn text_members(object: Value<'_>) -> Vec<(String, String)> {
    let pairs = object.members().filter_map(|(name, value)| Some((name.as_str()?, value.as_str()?)));
    pairs.map(|(name, value)| (name.into_owned(), value.into_owned())).collect()
}

fn check(rewrite: Value<'_>) -> Result<Value<'_>, Error> {
    if !rewrite.is_object() {
        return Err(failed("bad rewrite"));
    }
    for name in ["method", "path", "body"] {
        if rewrite.get(name).is_some_and(|value| value.kind() != Kind::String) {
            return Err(failed(&format!("bad {name}")));
        }
    }
    for name in ["headers", "query"] {
        let Some(object) = rewrite.get(name) else { continue };
        if !object.is_object() {
            return Err(failed(&format!("bad {name}")));
        }
        if object.members().any(|(_, value)| value.kind() != Kind::String) {
            return Err(failed("object key/value must be strings"));
        }
    }
    let is_code = |value: Value<'_>| value.as_u64().is_some_and(|code| (200..600).contains(&code));
    if rewrite.get("code").is_some_and(|code| !is_code(code)) {
        return Err(failed("bad code"));
    }
    Ok(rewrite)
}
