//! [`Server`]: model databases in memory behind the requests that a replication sends.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use percent_encoding::percent_decode_str;
use settee_model::json::{Json, Value};
use settee_wire::multipart::{ContentType, Event, Parser};
use tokio::sync::{mpsc, watch};

use super::database::{Database, Leaf, Sequences};
use crate::peer::channel_body;
use crate::transport::{Body, BoxFuture, Transport, TransportError, full_body};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
/// Requests that the server refuses, as old versions of CouchDB do.
pub(crate) struct Unsupported {
    pub(crate) bulk_get: bool,
    pub(crate) multipart: bool,
}

pub(crate) struct Server {
    pub(crate) databases: Arc<Mutex<BTreeMap<String, Database>>>,
    pub(crate) sequences: Sequences,
    pub(crate) unsupported: Unsupported,
    /// Ids of documents that are refused with 403.
    pub(crate) forbidden: Mutex<Vec<String>>,
    pub(crate) max_body_bytes: usize,
    /// Method and target of each request.
    pub(crate) log: Mutex<Vec<String>>,
    /// Increased after each request that may have changed a database, for continuous feeds.
    pub(crate) changed: watch::Sender<u64>,
}

type Answer = (u16, String);

type Parts = BTreeMap<String, Vec<u8>>;

fn error(status: u16, error: &str) -> Answer {
    (status, format!("{{\"error\":\"{error}\",\"reason\":\"said the model\"}}"))
}

fn text(value: Option<Value<'_>>) -> String {
    value.and_then(Value::as_str).map(Cow::into_owned).unwrap_or_default()
}

fn quoted(text: &str) -> String {
    let mut out = Vec::new();
    settee_model::json::write_string(&mut out, text);
    String::from_utf8(out).unwrap()
}

impl Server {
    pub(crate) fn new(sequences: Sequences, unsupported: Unsupported) -> Arc<Self> {
        Arc::new(Self {
            databases: Arc::default(),
            sequences,
            unsupported,
            forbidden: Mutex::default(),
            max_body_bytes: usize::MAX,
            log: Mutex::default(),
            changed: watch::Sender::new(0),
        })
    }

    pub(crate) fn with(names: &[&str]) -> Arc<Self> {
        let server = Self::new(Sequences::Strings, Unsupported::default());
        for name in names {
            server.databases.lock().insert((*name).to_owned(), Database::default());
        }
        server
    }

    pub(crate) fn write(&self, database: &str, id: &str, leaf: Leaf) {
        self.databases.lock().get_mut(database).unwrap().write(id, leaf);
        self.changed.send_modify(|count| *count += 1);
    }

    pub(crate) fn database(&self, name: &str) -> Database {
        self.databases.lock()[name].clone()
    }

    async fn answer(&self, request: Request<Body>) -> Result<Response<Body>, TransportError> {
        let (head, body) = request.into_parts();
        self.log.lock().push(format!("{} {}", head.method, head.uri));
        let body = body.collect().await?.to_bytes();
        let query: BTreeMap<String, String> = head
            .uri
            .query()
            .unwrap_or_default()
            .split('&')
            .filter_map(|pair| pair.split_once('='))
            .map(|(name, value)| (name.to_owned(), percent_decode_str(value).decode_utf8().unwrap().into_owned()))
            .collect();
        let path = head.uri.path().trim_start_matches('/');
        let (database, rest) = path.split_once('/').unwrap_or((path, ""));
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().unwrap().into_owned();
        if query.contains_key("rev") {
            let prefix_bytes = if rest.starts_with("_design/") { "_design/".len() } else { 0 };
            let (id, name) = rest.split_at(prefix_bytes + rest[prefix_bytes..].find('/').unwrap());
            let name = &name[1..];
            let bytes = self.database(database).leaf(&decoded(id), &query["rev"]).unwrap().attachments[&decoded(name)]
                .2
                .clone();
            return Ok(Response::new(full_body(bytes)));
        }
        let rest = decoded(rest);
        if head.method == Method::PUT && rest.is_empty() {
            let mut databases = self.databases.lock();
            let instance = databases.len() as u64 + 1;
            databases.entry(database.to_owned()).or_insert(Database { instance, ..Database::default() });
            return Ok(respond((201, "{\"ok\":true}".to_owned())));
        }
        if !self.databases.lock().contains_key(database) {
            return Ok(respond(error(404, "not_found")));
        }
        if body.len() > self.max_body_bytes {
            return Ok(respond(error(413, "too_large")));
        }
        if rest == "_changes" && query.get("feed").is_some_and(|feed| feed == "continuous") {
            return Ok(self.continuous(database, &query));
        }
        if head.method == Method::GET && query.contains_key("open_revs") && !self.unsupported.multipart {
            return Ok(self.multipart_revisions(database, &rest, &query));
        }
        let content_type = head.headers.get("content-type").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let mut databases = self.databases.lock();
        let database = databases.get_mut(database).unwrap();
        let answer = match (&head.method, rest.as_str()) {
            (&Method::GET, "") => (
                200,
                format!(
                    "{{\"update_seq\":{},\"instance_start_time\":\"{}\"}}",
                    self.sequences.write(database.seq),
                    database.instance
                ),
            ),
            (&Method::POST, "_ensure_full_commit") => {
                (201, format!("{{\"ok\":true,\"instance_start_time\":\"{}\"}}", database.instance))
            }
            (_, "_changes") => self.changes(database, &query, &body),
            (&Method::POST, "_revs_diff") => revs_diff(database, &body),
            (&Method::POST, "_bulk_get") if self.unsupported.bulk_get => error(405, "method_not_allowed"),
            (&Method::POST, "_bulk_get") => bulk_get(database, &body),
            (&Method::POST, "_bulk_docs") => self.bulk_docs(database, &body),
            (method, rest) if rest.starts_with("_local/") => local(database, method, rest, &body),
            (&Method::PUT, id) => self.put(database, id, content_type, &body),
            (&Method::GET, rest) => get(database, rest, &query),
            _ => error(405, "method_not_allowed"),
        };
        drop(databases);
        self.changed.send_modify(|count| *count += 1);
        Ok(respond(answer))
    }

    fn changes(&self, database: &Database, query: &BTreeMap<String, String>, body: &[u8]) -> Answer {
        let since = self.sequences.read(&query["since"]);
        let rows: Vec<String> =
            rows(database, self.sequences, since, query, body).into_iter().map(|(_, row)| row).collect();
        let last = self.sequences.write(database.seq);
        (200, format!("{{\"results\":[\n{}\n],\n\"last_seq\":{last},\"pending\":0}}\n", rows.join(",\n")))
    }

    fn continuous(&self, name: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let sequences = self.sequences;
        let mut since = sequences.read(&query["since"]);
        let heartbeat = Duration::from_millis(query["heartbeat"].parse().unwrap());
        let (databases, name, query) = (self.databases.clone(), name.to_owned(), query.clone());
        let mut changed = self.changed.subscribe();
        let (sender, receiver) = mpsc::channel(4);
        let instance = self.database(&name).instance;
        tokio::spawn(async move {
            loop {
                let rows = match databases.lock().get(&name) {
                    Some(database) if database.instance == instance => rows(database, sequences, since, &query, b""),
                    _ => return,
                };
                for (seq, row) in rows {
                    since = seq;
                    if sender.send(Ok(Bytes::from(format!("{row}\n")))).await.is_err() {
                        return;
                    }
                }
                tokio::select! {
                    () = sender.closed() => return,
                    changed = changed.changed() => if changed.is_err() { return },
                    () = tokio::time::sleep(heartbeat) => {
                        if sender.send(Ok(Bytes::from_static(b"\n"))).await.is_err() {
                            return;
                        }
                    }
                }
            }
        });
        Response::builder().header("content-type", "application/json").body(channel_body(receiver, u64::MAX)).unwrap()
    }

    fn bulk_docs(&self, database: &mut Database, body: &[u8]) -> Answer {
        let Ok(body) = Json::parse(body) else { return error(400, "bad_request") };
        assert_eq!(body.value().get("new_edits").and_then(Value::as_bool), Some(false));
        let mut refused = Vec::new();
        for document in body.value().get("docs").unwrap().elements() {
            let (id, rev) = (text(document.get("_id")), text(document.get("_rev")));
            if self.forbidden.lock().contains(&id) {
                refused.push(format!(
                    "{{\"id\":{},\"rev\":\"{rev}\",\"error\":\"forbidden\",\"reason\":\"no\"}}",
                    quoted(&id)
                ));
                continue;
            }
            match leaf_of(database, document, &BTreeMap::new()) {
                Some(leaf) => database.write(&id, leaf),
                None => return error(412, "missing_stub"),
            }
        }
        (201, format!("[{}]", refused.join(",")))
    }

    fn put(&self, database: &mut Database, id: &str, content_type: &str, body: &[u8]) -> Answer {
        if self.forbidden.lock().iter().any(|forbidden| forbidden == id) {
            return error(403, "forbidden");
        }
        let content_type = ContentType::parse(content_type);
        let (document, parts) = match content_type.is_multipart() {
            true => match related(&content_type, body) {
                Some(parts) => parts,
                None => return error(400, "bad_request"),
            },
            false => (body.to_vec(), BTreeMap::new()),
        };
        let Ok(document) = Json::parse(&document) else { return error(400, "bad_request") };
        match leaf_of(database, document.value(), &parts) {
            Some(leaf) => {
                let rev = leaf.history[0].clone();
                database.write(id, leaf);
                (201, format!("{{\"ok\":true,\"id\":{},\"rev\":\"{rev}\"}}", quoted(id)))
            }
            None => error(412, "missing_stub"),
        }
    }

    fn multipart_revisions(&self, database: &str, id: &str, query: &BTreeMap<String, String>) -> Response<Body> {
        let databases = self.databases.lock();
        let database = &databases[database];
        let since: Vec<String> = revs_in(query.get("atts_since"));
        let mut out = Vec::new();
        for rev in revs_in(query.get("open_revs")) {
            out.extend_from_slice(b"--outer\r\n");
            let Some(leaf) = database.leaf(id, &rev) else {
                let part =
                    format!("Content-Type: application/json; error=\"true\"\r\n\r\n{{\"missing\":\"{rev}\"}}\r\n");
                out.extend_from_slice(part.as_bytes());
                continue;
            };
            let known = leaf.history.iter().find(|rev| since.contains(rev)).map_or(0, |rev| generation(rev));
            let follows: Vec<&String> =
                leaf.attachments.iter().filter(|(_, (_, made, _))| *made > known).map(|(name, _)| name).collect();
            let document = written(id, leaf, |name| if follows.contains(&name) { "follows" } else { "stub" });
            if follows.is_empty() {
                out.extend_from_slice(format!("Content-Type: application/json\r\n\r\n{document}\r\n").as_bytes());
                continue;
            }
            out.extend_from_slice(b"Content-Type: multipart/related; boundary=\"inner\"\r\n\r\n");
            let part = format!("--inner\r\nContent-Type: application/json\r\n\r\n{document}");
            out.extend_from_slice(part.as_bytes());
            for name in follows {
                let head = format!("\r\n--inner\r\nContent-Disposition: attachment; filename=\"{name}\"\r\n\r\n");
                out.extend_from_slice(head.as_bytes());
                out.extend_from_slice(&leaf.attachments[name].2);
            }
            out.extend_from_slice(b"\r\n--inner--\r\n");
        }
        out.extend_from_slice(b"--outer--");
        let content_type = "multipart/multipart_revisions; boundary=\"outer\"";
        Response::builder().header("content-type", content_type).body(full_body(out)).unwrap()
    }
}

fn revs_in(parameter: Option<&String>) -> Vec<String> {
    let json = parameter.and_then(|text| Json::parse(text.as_bytes()).ok());
    json.iter().flat_map(|json| json.value().elements().map(|rev| text(Some(rev))).collect::<Vec<_>>()).collect()
}

fn rows(
    database: &Database,
    sequences: Sequences,
    since: u64,
    query: &BTreeMap<String, String>,
    body: &[u8],
) -> Vec<(u64, String)> {
    let filter = Json::parse(body).ok();
    let ids: Option<Vec<String>> = filter
        .as_ref()
        .and_then(|filter| filter.value().get("doc_ids"))
        .map(|ids| ids.elements().map(|id| text(Some(id))).collect());
    let winners = query.get("style").is_none_or(|style| style == "main_only");
    let mut rows: Vec<(u64, String)> = Vec::new();
    for (id, (seq, _)) in &database.documents {
        if *seq <= since || ids.as_ref().is_some_and(|ids| !ids.contains(id)) {
            continue;
        }
        let leaves = database.leaves(id);
        let leaves = leaves.iter().take(if winners { 1 } else { usize::MAX });
        let revs: Vec<String> = leaves.map(|leaf| format!("{{\"rev\":\"{}\"}}", leaf.history[0])).collect();
        let seq_text = sequences.write(*seq);
        rows.push((*seq, format!("{{\"seq\":{seq_text},\"id\":{},\"changes\":[{}]}}", quoted(id), revs.join(","))));
    }
    rows.sort();
    for (id, rev) in &database.phantoms {
        let seq_text = sequences.write(database.seq);
        rows.push((
            database.seq,
            format!("{{\"seq\":{seq_text},\"id\":{},\"changes\":[{{\"rev\":\"{rev}\"}}]}}", quoted(id)),
        ));
    }
    rows
}

fn revs_diff(database: &Database, body: &[u8]) -> Answer {
    let body = Json::parse(body).unwrap();
    let mut missing = Vec::new();
    for (id, revs) in body.value().members() {
        let id = text(Some(id));
        let lacks: Vec<String> =
            revs.elements().map(|rev| text(Some(rev))).filter(|rev| !database.has(&id, rev)).collect();
        if lacks.is_empty() {
            continue;
        }
        let ancestors = database.possible_ancestors(&id, &lacks[0]);
        missing.push(format!("{}:{{\"missing\":{lacks:?},\"possible_ancestors\":{ancestors:?}}}", quoted(&id)));
    }
    (200, format!("{{{}}}", missing.join(",")))
}

fn generation(rev: &str) -> u64 {
    rev.split('-').next().and_then(|generation| generation.parse().ok()).unwrap()
}

/// Returns the JSON text of a revision. `mark` is `stub` or `follows` for each attachment.
fn written(id: &str, leaf: &Leaf, mark: impl Fn(&String) -> &'static str) -> String {
    let ids: Vec<&str> = leaf.history.iter().map(|rev| rev.split_once('-').unwrap().1).collect();
    let mut out = format!("{{\"_id\":{},\"_rev\":\"{}\"", quoted(id), leaf.history[0]);
    let inner = leaf.body.strip_prefix('{').and_then(|body| body.strip_suffix('}')).unwrap();
    if !inner.is_empty() {
        out.push_str(&format!(",{inner}"));
    }
    if leaf.deleted {
        out.push_str(",\"_deleted\":true");
    }
    out.push_str(&format!(",\"_revisions\":{{\"start\":{},\"ids\":{ids:?}}}", generation(&leaf.history[0])));
    if !leaf.attachments.is_empty() {
        let attachments: Vec<String> = leaf
            .attachments
            .iter()
            .map(|(name, (content_type, made, bytes))| {
                format!(
                    "{}:{{\"content_type\":\"{content_type}\",\"revpos\":{made},\"length\":{},\"{}\":true}}",
                    quoted(name),
                    bytes.len(),
                    mark(name)
                )
            })
            .collect();
        out.push_str(&format!(",\"_attachments\":{{{}}}", attachments.join(",")));
    }
    out.push('}');
    out
}

fn bulk_get(database: &Database, body: &[u8]) -> Answer {
    let body = Json::parse(body).unwrap();
    let rows: Vec<String> = body
        .value()
        .get("docs")
        .unwrap()
        .elements()
        .map(|asked| {
            let (id, rev) = (text(asked.get("id")), text(asked.get("rev")));
            let result = match database.leaf(&id, &rev) {
                Some(leaf) => format!("{{\"ok\":{}}}", written(&id, leaf, |_| "stub")),
                None => format!(
                    "{{\"error\":{{\"id\":{},\"rev\":\"{rev}\",\"error\":\"not_found\",\"reason\":\"missing\"}}}}",
                    quoted(&id)
                ),
            };
            format!("{{\"id\":{},\"docs\":[{result}]}}", quoted(&id))
        })
        .collect();
    (200, format!("{{\"results\": [{}]}}", rows.join(",\n")))
}

fn get(database: &Database, path: &str, query: &BTreeMap<String, String>) -> Answer {
    if !query.contains_key("open_revs") {
        return match database.leaves(path).first() {
            Some(leaf) => (200, written(path, leaf, |_| "stub")),
            None => error(404, "not_found"),
        };
    }
    let rows: Vec<String> = revs_in(query.get("open_revs"))
        .iter()
        .map(|rev| match database.leaf(path, rev) {
            Some(leaf) => format!("{{\"ok\":{}}}", written(path, leaf, |_| "stub")),
            None => format!("{{\"missing\":\"{rev}\"}}"),
        })
        .collect();
    (200, format!("[{}]", rows.join(",")))
}

/// Returns nothing if the document refers to an attachment that neither `parts` nor the database contains.
fn leaf_of(database: &Database, document: Value<'_>, parts: &Parts) -> Option<Leaf> {
    let revisions = document.get("_revisions").unwrap();
    let start = revisions.get("start").and_then(Value::as_u64).unwrap();
    let history: Vec<String> = revisions
        .get("ids")
        .unwrap()
        .elements()
        .zip(0..)
        .map(|(id, back): (_, u64)| format!("{}-{}", start - back, text(Some(id))))
        .collect();
    let body: Vec<String> = document
        .members()
        .filter(|(name, _)| !text(Some(*name)).starts_with('_'))
        .map(|(name, value)| format!("{}:{}", utf8(name.raw()), utf8(value.raw())))
        .collect();
    let id = text(document.get("_id"));
    let mut attachments = BTreeMap::new();
    for (name, value) in document.get("_attachments").into_iter().flat_map(Value::members) {
        let name = text(Some(name));
        let flag = |name| value.get(name).and_then(Value::as_bool) == Some(true);
        let bytes = if flag("follows") {
            parts.get(&name)?.clone()
        } else {
            let mut known = history.iter().filter_map(|rev| database.documents.get(&id)?.1.get(rev));
            known.find_map(|leaf| leaf.attachments.get(&name))?.2.clone()
        };
        assert_eq!(value.get("length").and_then(Value::as_u64), Some(bytes.len() as u64));
        let made = value.get("revpos").and_then(Value::as_u64).unwrap();
        attachments.insert(name, (text(value.get("content_type")), made, bytes));
    }
    let deleted = document.get("_deleted").and_then(Value::as_bool) == Some(true);
    Some(Leaf { history, deleted, body: format!("{{{}}}", body.join(",")), attachments })
}

fn utf8(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

fn related(content_type: &ContentType, body: &[u8]) -> Option<(Vec<u8>, Parts)> {
    let mut parser = Parser::of(content_type).ok()?;
    parser.feed(body);
    parser.finish();
    let (mut document, mut parts, mut name) = (Vec::new(), BTreeMap::new(), None);
    while let Some(event) = parser.next().ok()? {
        match event {
            Event::Part(head) => {
                name = head.filename();
                if let Some(name) = &name {
                    parts.insert(name.clone(), Vec::new());
                }
            }
            Event::Data(bytes) => match &name {
                Some(name) => parts.get_mut(name).unwrap().extend_from_slice(&bytes),
                None => document.extend_from_slice(&bytes),
            },
            Event::PartEnd | Event::End => {}
        }
    }
    Some((document, parts))
}

fn local(database: &mut Database, method: &Method, name: &str, body: &[u8]) -> Answer {
    let there = database.locals.get(name);
    if method == Method::GET {
        return match there {
            Some((rev, document)) => {
                let members = utf8(document.as_bytes()).strip_prefix('{').unwrap();
                (200, format!("{{\"_id\":{},\"_rev\":\"0-{rev}\",{members}", quoted(name)))
            }
            None => error(404, "not_found"),
        };
    }
    let document = Json::parse(body).unwrap();
    let rev = there.map(|(rev, _)| *rev);
    if rev.map(|rev| format!("0-{rev}")).unwrap_or_default() != text(document.value().get("_rev")) {
        return error(409, "conflict");
    }
    let next = rev.unwrap_or(0) + 1;
    database.locals.insert(name.to_owned(), (next, crate::checkpoint::stripped(&document)));
    (201, format!("{{\"ok\":true,\"id\":{},\"rev\":\"0-{next}\"}}", quoted(name)))
}

fn respond((status, text): Answer) -> Response<Body> {
    Response::builder().status(status).header("content-type", "application/json").body(full_body(text)).unwrap()
}

impl Transport for Server {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        Box::pin(self.answer(request))
    }
}
