//! Writing one document: PUT, POST, DELETE, COPY, and their forms for local documents.

use std::sync::Arc;

use hyper::{StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use settee_database::{Database, DocUpdate, EditMode, UnknownParent, UpdateOutcome, Work};
use settee_model::json::{Json, write_string};
use settee_model::{Document, Rev, RevisionHasher, validate_doc_id};

use super::design;
use super::documents::doc_id;
use crate::node::Node;
use crate::params::document::replaced_rev;
use crate::params::{Query, decode};
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::{Error, access, bridge};

/// The characters that CouchDB leaves as they are in addresses.
const PATH: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b':');

/// Above this size a document is prepared on a thread that may block.
const LARGE_DOCUMENT_BYTES: usize = 64 << 10;

/// When a write is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ack {
    /// When it is on disk.
    Durable,
    /// At once (`batch=ok`).
    Batch,
}

impl Ack {
    fn of(query: &Query) -> Self {
        if query.get("batch") == Some("ok") { Self::Batch } else { Self::Durable }
    }
}

/// Encodes a name as one segment of a path.
pub(super) fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, PATH).to_string()
}

/// `PUT /{db}/{doc}`
pub(super) async fn put(mut request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let body = request.read_json().await?;
    check_size(&request.node, body.as_bytes().len(), "")?;
    let mut document = Document::parse(body.value())?;
    check_id(&request.node, &id)?;
    document.rev = replaced_rev(&request.query, &request.headers, document.rev.as_ref())?;
    let mode = edit_mode(&request.query);
    save(&request, &database, id, document, mode).await
}

/// `POST /{db}`
pub(super) async fn post(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let document = Document::parse(body.value())?;
    let id = document.id.clone().unwrap_or_else(|| request.node.uuid());
    check_size(&request.node, body.as_bytes().len(), &id)?;
    check_id(&request.node, &id)?;
    if id.starts_with("_design/") {
        access::require_database_admin(&request.node, &request.user, &request.captures).await?;
    }
    let mut response = save(&request, &database, id, document, edit_mode(&request.query)).await?;
    // Unlike PUT, CouchDB sends no entity tag, and 201 also for deletions.
    response.headers_mut().remove(header::ETAG);
    if response.status() == StatusCode::OK {
        *response.status_mut() = StatusCode::CREATED;
    }
    Ok(response)
}

/// `DELETE /{db}/{doc}`
pub(super) async fn delete(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let (reader, wanted) = (Arc::clone(&database), id.clone());
    let head = bridge::blocking(move || Ok(reader.read()?.head(&wanted)?)).await?;
    match head {
        None => return Err(Error::not_found("missing")),
        Some(head) if head.stored.deleted && !head.has_conflicts => return Err(Error::not_found("deleted")),
        Some(_) => {}
    }
    let rev = replaced_rev(&request.query, &request.headers, None)?;
    let document = tombstone(rev);
    let mut response = save(&request, &database, id, document, edit_mode(&request.query)).await?;
    response.headers_mut().remove(header::LOCATION);
    Ok(response)
}

/// `COPY /{db}/{doc}`
pub(super) async fn copy(request: Request) -> Answer {
    let database = request.database()?;
    let source = doc_id(&request);
    let (target, target_rev) = destination(&request)?;
    check_id(&request.node, &target)?;
    if target.starts_with("_design/") {
        access::require_database_admin(&request.node, &request.user, &request.captures).await?;
    }
    let rev = replaced_rev(&request.query, &request.headers, None)?;
    let reader = Arc::clone(&database);
    let body = bridge::blocking(move || read_source(&reader, &source, rev.as_ref())).await?;
    save_copy(&request, &database, target, target_rev, body).await
}

/// `PUT /{db}/_local/{local}`
pub(super) async fn put_local(mut request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let body = request.read_json().await?;
    check_size(&request.node, body.as_bytes().len(), "")?;
    let mut document = Document::parse(body.value())?;
    check_id(&request.node, &id)?;
    document.rev = replaced_rev(&request.query, &request.headers, document.rev.as_ref())?;
    save(&request, &database, id, document, EditMode::Interactive(UnknownParent::Refuse)).await
}

/// `DELETE /{db}/_local/{local}`
pub(super) async fn delete_local(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let (reader, wanted) = (Arc::clone(&database), id.clone());
    let found = bridge::blocking(move || Ok(reader.read()?.local(&wanted)?)).await?;
    if found.is_none() {
        return Err(Error::not_found("missing"));
    }
    let mode = EditMode::Interactive(UnknownParent::Refuse);
    let mut response = save(&request, &database, id, tombstone(None), mode).await?;
    response.headers_mut().remove(header::LOCATION);
    Ok(response)
}

/// `COPY /{db}/_local/{local}`
pub(super) async fn copy_local(request: Request) -> Answer {
    let database = request.database()?;
    let source = doc_id(&request);
    let (target, target_rev) = destination(&request)?;
    check_id(&request.node, &target)?;
    let reader = Arc::clone(&database);
    let body = bridge::blocking(move || {
        let local = reader.read()?.local(&source)?;
        Ok(local.ok_or_else(|| Error::not_found("missing"))?.body)
    })
    .await?;
    save_copy(&request, &database, target, target_rev, body).await
}

fn tombstone(rev: Option<Rev>) -> Document {
    Document { id: None, rev, deleted: true, body: Json::empty_object(), attachments: None, revisions: None }
}

fn read_source(database: &Arc<Database>, id: &str, rev: Option<&Rev>) -> Result<Json, Error> {
    let view = database.read()?;
    let record = view.record(id)?.ok_or_else(|| Error::not_found("missing"))?;
    let node = match rev {
        Some(rev) => record.tree.find(rev),
        None => record.tree.winner(|stored| stored.deleted),
    };
    let stored = node.and_then(|node| record.tree.node(node).value).ok_or_else(|| Error::not_found("missing"))?;
    if rev.is_none() && stored.deleted {
        return Err(Error::not_found("deleted"));
    }
    let mut body = Vec::new();
    if view.read_body(stored, &mut body)? { Ok(Json::trusted(body)) } else { Err(Error::not_found("missing")) }
}

async fn save_copy(
    request: &Request,
    database: &Arc<Database>,
    target: String,
    target_rev: Option<Rev>,
    body: Json,
) -> Answer {
    let document = Document { id: None, rev: target_rev, deleted: false, body, attachments: None, revisions: None };
    let mode = EditMode::Interactive(UnknownParent::Refuse);
    let response = save(request, database, target, document, mode).await?;
    let (mut parts, body) = response.into_parts();
    // A copy's answer carries the tag of the revision also for local documents.
    if !parts.headers.contains_key(header::ETAG)
        && let Some(rev) = parts.extensions.get::<SavedRev>()
    {
        let tag = format!("\"{}\"", rev.0);
        respond::set(&mut parts.headers, header::ETAG, &tag);
    }
    Ok(Response::from_parts(parts, body))
}

/// The revision that an answer tells of, for handlers that add to the answer.
#[derive(Clone, Debug)]
struct SavedRev(Rev);

/// `Destination: id?rev=…`
fn destination(request: &Request) -> Result<(String, Option<Rev>), Error> {
    let header = request.header("destination");
    let header = header.ok_or_else(|| Error::bad_request("Destination header is mandatory for COPY."))?;
    let (path, query) = header.split_once('?').map_or((header, None), |(path, query)| (path, Some(query)));
    if path.contains("://") {
        return Err(Error::bad_request("Destination URL must be relative."));
    }
    let rev = Query::parse(query).get("rev").map(Rev::parse).transpose()?;
    Ok((decode(path.trim_start_matches('/')).into_owned(), rev))
}

fn edit_mode(query: &Query) -> EditMode {
    if query.get("new_edits") == Some("false") {
        EditMode::Replicated
    } else {
        EditMode::Interactive(UnknownParent::Refuse)
    }
}

/// Refuses a document above `[couchdb] max_document_size`.
pub(super) fn check_size(node: &Node, size: usize, id: &str) -> Result<(), Error> {
    let limit = node.settings.number("couchdb", "max_document_size", 8_000_000);
    if size as u64 <= limit {
        return Ok(());
    }
    Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", id.to_owned()))
}

/// Refuses an id that no document can have.
pub(super) fn check_id(node: &Node, id: &str) -> Result<(), Error> {
    validate_doc_id(id)?;
    let limit = node.settings.number("couchdb", "max_document_id_length", u64::MAX);
    if id.len() as u64 > limit {
        return Err(Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id is too long"));
    }
    Ok(())
}

/// Turns a document into an update. Refuses what cannot be stored yet instead of losing it.
pub(super) fn prepare(
    id: String,
    document: Document,
    mode: EditMode,
    hasher: &mut RevisionHasher,
) -> Result<DocUpdate, Error> {
    if document.attachments.is_some() {
        return Err(Error::not_implemented("Attachments are not available yet."));
    }
    DocUpdate::prepare(id, document, mode, hasher).ok_or_else(|| {
        Error::bad_request("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
    })
}

async fn save(request: &Request, database: &Arc<Database>, id: String, document: Document, mode: EditMode) -> Answer {
    let deleted = document.deleted;
    if id.starts_with("_design/") && !deleted {
        design::validate(&request.node, &document.body).await?;
    }
    let large = document.body.as_bytes().len() > LARGE_DOCUMENT_BYTES;
    let named = id.clone();
    let make = move || prepare(named, document, mode, &mut RevisionHasher::default());
    let update = if large { bridge::blocking(make).await? } else { make()? };
    let work = Work::Documents(vec![update]);
    if Ack::of(&request.query) == Ack::Batch {
        // Written soon, whether or not the client still listens.
        drop(bridge::submit(database, work));
        return Ok(accepted(request, &id));
    }
    match bridge::commit(database, vec![work]).await?.pop() {
        Some(UpdateOutcome::Saved(rev)) => Ok(saved(request, &id, rev, deleted)),
        Some(UpdateOutcome::Conflict) => Err(Error::conflict()),
        None => Err(Error::internal("the update was not answered")),
    }
}

fn accepted(request: &Request, id: &str) -> Response {
    let mut out = br#"{"ok":true,"id":"#.to_vec();
    write_string(&mut out, id);
    out.push(b'}');
    with_location(request, id, respond::json(StatusCode::ACCEPTED, out))
}

fn saved(request: &Request, id: &str, rev: Rev, deleted: bool) -> Response {
    let mut out = br#"{"ok":true,"id":"#.to_vec();
    write_string(&mut out, id);
    out.extend_from_slice(format!(r#","rev":"{rev}"}}"#).as_bytes());
    let status = if deleted { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = with_location(request, id, respond::json(status, out));
    if !id.starts_with("_local/") {
        respond::set_etag(&mut response, &rev.to_string());
    }
    response.extensions_mut().insert(SavedRev(rev));
    response
}

fn with_location(request: &Request, id: &str, mut response: Response) -> Response {
    let path = format!("/{}/{}", encode_path(request.captures.get("db")), encode_path(id));
    respond::set(response.headers_mut(), header::LOCATION, &request.absolute(&path));
    response
}
