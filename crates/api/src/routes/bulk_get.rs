//! Reads of many revisions in one request: `_bulk_get`, as JSON or multipart.

use std::borrow::Cow;
use std::cmp::Reverse;
use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::header;
use hyper::{HeaderMap, StatusCode};
use settee_database::{BODIES_MAX, Bodies, DOCUMENTS_TOGETHER, Database, DocRecord, ReadView, Stored, Waiting};
use settee_model::json::{Kind, Value, append_object, write_string};
use settee_model::rev_tree::RevTree;
use settee_model::{DocumentError, IllegalId, Rev};
use settee_wire::multipart::Writer;

use super::bulk::{self, check_count};
use super::documents::boundaries;
use crate::limits::Limits;
use crate::params::Query;
use crate::params::attachments::{Data, Shown};
use crate::params::document::Extras;
use crate::reads::reader;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::revision::multipart::Related;
use crate::revision::{self, Encoded};
use crate::{Error, bridge};
use settee_edge::accept;
use settee_edge::bridge::{Head, Output};
use settee_service::Visibility;
use settee_settings::couchdb;

struct Asked {
    extras: Extras,
    latest: bool,
    shown: Shown,
    policy: Limits,
    sees: AccessCheck,
}

type AccessCheck = Box<dyn Fn(&str) -> Result<(), Error> + Send + Sync>;

pub(super) async fn get(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    if body.value().kind() != Kind::Object {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    check_params(&request.query)?;
    let docs = body.value().get("docs").filter(|docs| docs.kind() == Kind::Array);
    let docs = docs.ok_or_else(|| Error::bad_request("Missing JSON list of 'docs'."))?;
    check_count(&request.node, docs.elements().count(), &couchdb::MAX_BULK_GET_COUNT)?;
    let (node, user, store) = (Arc::clone(&request.node), request.user.clone(), Arc::clone(&database));
    let asked = Asked {
        extras: Extras { revs: request.query.is_true("revs"), ..Extras::default() },
        latest: request.query.is_true("latest"),
        shown: Shown::new(None, &request.query),
        policy: node.policy().documents,
        sees: Box::new(move |id| Ok(Visibility::of(&node.users, &store, &user, id)?.require_whole()?)),
    };
    let user = request.reader.clone();
    let multipart = multipart_form(&request.headers).map(|essence| (essence, boundaries(&request)));
    let is_small = bulk::is_small(&body);
    let write = move |output: &mut Output, waiting: Waiting<'_>| -> Result<(), Error> {
        let view = database.read_as(&user, waiting)?.for_client(&reader(output.account()));
        let docs: Vec<Value<'_>> = body.value().get("docs").map(Value::elements).into_iter().flatten().collect();
        match &multipart {
            Some((essence, boundaries)) => send_parts(output, &view, &docs, &asked, essence, boundaries),
            None => write_list(output, &view, &docs, &asked),
        }
    };
    bridge::answer_if(is_small, request.admit_response(), write).await
}

fn check_params(query: &Query) -> Result<(), Error> {
    let one = ["open_revs", "new_edits", "w", "rev", "atts_since"];
    match query.pairs().find(|(name, _)| one.contains(name)) {
        None => Ok(()),
        Some((name, _)) => Err(Error::bad_request(format!("\"{name}\" query parameter is not acceptable"))),
    }
}

fn multipart_form(headers: &HeaderMap) -> Option<&'static str> {
    if accept::accepts(headers, "application/json") {
        return None;
    }
    ["multipart/mixed", "multipart/related"].into_iter().find(|essence| accept::accepts(headers, essence))
}

struct Entry<'a> {
    id: Cow<'a, str>,
    rev: Option<Rev>,
    shown: Cow<'a, Shown>,
}

struct Refused {
    id: Vec<u8>,
    rev: Vec<u8>,
    error: Error,
}

impl Refused {
    fn new(id: &[u8], rev: &[u8], error: impl Into<Error>) -> Box<Self> {
        Box::new(Self { id: id.to_vec(), rev: rev.to_vec(), error: error.into() })
    }

    fn missing(entry: &Entry<'_>) -> Self {
        let (mut id, mut rev) = (Vec::new(), Vec::new());
        write_string(&mut id, &entry.id);
        write_string(&mut rev, &entry.rev.as_ref().map_or_else(|| "undefined".to_owned(), ToString::to_string));
        Self { id, rev, error: Error::not_found("missing") }
    }

    fn write_revision(&self, out: &mut Vec<u8>) {
        append_object(out, |object| self.error.write_members(object.json("rev", &self.rev)));
    }

    fn write(&self, out: &mut Vec<u8>) {
        append_object(out, |object| {
            object.json("rev", &self.rev).string("reason", &self.error.reason);
            object.json("id", &self.id).string("error", &self.error.name);
        });
    }
}

impl<'a> Entry<'a> {
    /// Parses an entry with CouchDB's rules: id, revision, attachments.
    fn of(doc: Value<'a>, asked: &'a Asked, database: &Database) -> Result<Self, Box<Refused>> {
        let bad = |reason: &'static str| Error::bad_request(reason);
        if doc.kind() != Kind::Object || doc.members().next().is_none() {
            return Err(Refused::new(b"null", b"null", bad("document must be a JSON object")));
        }
        let id = doc.get("id").ok_or_else(|| Refused::new(b"null", b"null", bad("document id missed")))?;
        let raw = id.raw();
        let id = id
            .as_str()
            .ok_or_else(|| Refused::new(raw, b"null", Error::from(DocumentError::from(IllegalId::NotAString))))?;
        let allowed = asked.policy.check_id(database, &id).and_then(|()| (asked.sees)(&id));
        allowed.map_err(|error| Refused::new(raw, b"null", error))?;
        let parse = |rev: Value<'_>| {
            let parsed = Rev::parse(rev.as_str().as_deref().unwrap_or_default());
            parsed.map_err(|error| Refused::new(raw, rev.raw(), error))
        };
        let rev = doc.get("rev").map(parse).transpose()?;
        let shown = match doc.get("atts_since") {
            None => Cow::Borrowed(&asked.shown),
            Some(since) if since.kind() != Kind::Array => {
                return Err(Refused::new(raw, since.raw(), bad("att_since value must be array of revs.")));
            }
            Some(since) if since.elements().next().is_none() => Cow::Borrowed(&asked.shown),
            Some(since) => {
                let since = since.elements().map(parse).collect::<Result<_, _>>()?;
                Cow::Owned(Shown { data: Data::Since(since), info: asked.shown.info })
            }
        };
        Ok(Self { id, rev, shown })
    }

    /// The order is that of CouchDB's tree: descending by root, and ascending by branch below each.
    fn nodes(&self, record: &DocRecord, latest: bool) -> Vec<u32> {
        let tree = &record.tree;
        let mut nodes = found(tree, self.rev.as_ref(), latest);
        if nodes.len() <= 1 {
            return nodes;
        }
        nodes.sort_by_cached_key(|node| {
            let mut path: Vec<u32> = tree.history(*node).collect();
            path.reverse();
            (path.first().copied().map(Reverse), path)
        });
        nodes
    }
}

fn read_ahead(view: &ReadView<'_>, docs: &[Value<'_>], index: usize, latest: bool) -> Result<(), Error> {
    if !index.is_multiple_of(DOCUMENTS_TOGETHER) {
        return Ok(());
    }
    let together = &docs[index..docs.len().min(index + DOCUMENTS_TOGETHER)];
    let entries = together.iter().filter_map(|doc| {
        let rev = doc.get("rev").and_then(Value::as_str).and_then(|rev| Rev::parse(&rev).ok());
        doc.get("id").and_then(Value::as_str).filter(|id| !id.is_empty()).map(|id| (id, rev))
    });
    let entries: Vec<_> = entries.collect();
    let mut ids: Vec<&str> = entries.iter().map(|(id, _)| id.as_ref()).collect();
    ids.sort_unstable();
    ids.dedup();
    view.read_ahead(&ids, Bodies::None)?;
    let mut stored = Vec::new();
    for (id, rev) in &entries {
        if let Some(record) = view.record(id)? {
            let nodes = found(&record.tree, rev.as_ref(), latest);
            let values = nodes.into_iter().filter_map(|node| record.tree.node(node).value);
            stored.extend(values.take(BODIES_MAX.saturating_sub(stored.len())));
        }
    }
    Ok(view.read_bodies_ahead(&stored)?)
}

fn found(tree: &RevTree<Stored>, rev: Option<&Rev>, latest: bool) -> Vec<u32> {
    match rev {
        None => tree.leaves().collect(),
        Some(rev) => match tree.find(rev) {
            Some(node) if latest => tree.leaves_of(&[node]),
            found => found.into_iter().collect(),
        },
    }
}

fn write_list(output: &mut Output, view: &ReadView<'_>, docs: &[Value<'_>], asked: &Asked) -> Result<(), Error> {
    output.text().extend_from_slice(br#"{"results":["#);
    for (index, doc) in docs.iter().enumerate() {
        read_ahead(view, docs, index, asked.latest)?;
        if index > 0 {
            output.text().push(b',');
        }
        write_result(output, view, *doc, asked)?;
        if output.row_done().is_break() {
            return Ok(());
        }
    }
    output.text().extend_from_slice(b"]}\n");
    Ok(())
}

fn write_result(output: &mut Output, view: &ReadView<'_>, doc: Value<'_>, asked: &Asked) -> Result<(), Error> {
    let entry = match Entry::of(doc, asked, view.database()) {
        Ok(entry) => entry,
        Err(refused) => {
            output.text().extend_from_slice(br#"{"id":"#);
            output.text().extend_from_slice(&refused.id);
            write_failure(output.text(), br#","docs":["#, &refused);
            return Ok(());
        }
    };
    output.text().extend_from_slice(br#"{"id":"#);
    write_string(output.text(), &entry.id);
    let record = view.record(&entry.id)?;
    let mut before: &[u8] = br#","docs":["#;
    if let Some(record) = &record {
        for node in entry.nodes(record, asked.latest) {
            let kept = output.text().len();
            output.text().extend_from_slice(before);
            output.text().extend_from_slice(br#"{"ok":"#);
            let encoded = revision::write_with(output, view, &entry.id, record, node, asked.extras, &entry.shown)?;
            if encoded == Encoded::Gone {
                output.text().truncate(kept);
                continue;
            }
            output.text().push(b'}');
            before = b",";
        }
    }
    if before == b"," {
        output.text().extend_from_slice(b"]}");
    } else {
        write_failure(output.text(), before, &Refused::missing(&entry));
    }
    Ok(())
}

fn write_failure(out: &mut Vec<u8>, before: &[u8], refused: &Refused) {
    out.extend_from_slice(before);
    append_object(out, |object| refused.write(object.name("error")));
    out.extend_from_slice(b"]}");
}

/// A revision with attachments is a nested multipart body.
fn send_parts(
    output: &mut Output,
    view: &ReadView<'_>,
    docs: &[Value<'_>],
    asked: &Asked,
    essence: &str,
    [outer, inner]: &[String; 2],
) -> Result<(), Error> {
    let writer = Writer::new(outer.clone());
    let mut headers = HeaderMap::new();
    respond::set(&mut headers, header::CONTENT_TYPE, &writer.content_type(essence));
    output.set_head(Head::new(StatusCode::OK, headers));
    if docs.is_empty() {
        // As in CouchDB, a body without parts has no boundaries.
        return Ok(());
    }
    output.text().extend_from_slice(b"\r\n");
    writer.begin(output.text());
    for (index, doc) in docs.iter().enumerate() {
        read_ahead(view, docs, index, asked.latest)?;
        match send_entry(output, view, *doc, asked, &writer, inner) {
            Ok(ControlFlow::Continue(())) => {}
            Ok(ControlFlow::Break(())) => return Ok(()),
            Err(error) => return output.break_off(error),
        }
    }
    writer.end(output.text());
    output.text().extend_from_slice(b"\r\n");
    Ok(())
}

fn send_entry(
    output: &mut Output,
    view: &ReadView<'_>,
    doc: Value<'_>,
    asked: &Asked,
    writer: &Writer,
    inner: &str,
) -> Result<ControlFlow<()>, Error> {
    let entry = match Entry::of(doc, asked, view.database()) {
        Ok(entry) => entry,
        Err(refused) => return Ok(send_failure(output, writer, &refused)),
    };
    let record = view.record(&entry.id)?;
    let shown = entry.shown.with_data();
    let nodes =
        record.iter().flat_map(|record| entry.nodes(record, asked.latest).into_iter().map(move |at| (record, at)));
    let mut sent = false;
    for (record, node) in nodes {
        let read = Related::read(view, &entry.id, record, node, asked.extras, &shown, inner)?;
        let Some(related) = read else { continue };
        let (rev, content_type) = (record.tree.node(node).rev.to_string(), related.content_type());
        let names = [("X-Doc-Id", entry.id.as_ref()), ("X-Rev-Id", rev.as_str())];
        let names = if related.has_parts() { &names[..] } else { &[] };
        writer.part(output.text(), names.iter().copied().chain([("Content-Type", content_type.as_str())]));
        if related.write(output, view)?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        writer.part_end(output.text());
        sent = true;
    }
    if sent {
        return Ok(output.row_done());
    }
    let refused = Refused::missing(&entry);
    Ok(if entry.rev.is_some() {
        send_failure_part(output, writer, |out| refused.write_revision(out))
    } else {
        send_failure(output, writer, &refused)
    })
}

fn send_failure(output: &mut Output, writer: &Writer, refused: &Refused) -> ControlFlow<()> {
    send_failure_part(output, writer, |out| refused.write(out))
}

fn send_failure_part(output: &mut Output, writer: &Writer, write: impl FnOnce(&mut Vec<u8>)) -> ControlFlow<()> {
    writer.part(output.text(), [("Content-Type", "application/json; error=\"true\"")]);
    write(output.text());
    writer.part_end(output.text());
    output.row_done()
}
