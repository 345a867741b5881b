//! Writing one document: PUT, POST, DELETE, COPY, and their forms for local documents.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::{StatusCode, header};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use settee_database::{Database, DocUpdate, EditMode, NewAttachment, NewAttachments, UnknownParent};
use settee_model::json::{Json, write_string};
use settee_model::{Document, Rev, RevisionHasher, validate_doc_id};
use settee_replication::documents::is_replicator_database;
use settee_wire::multipart::ContentType;

use super::documents::doc_id;
use super::{design, partition};
use crate::attachments;
use crate::node::Node;
use crate::params::document::replaced_rev;
use crate::params::{Query, decode};
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::{Error, Settings, access, bridge, replicator_documents, users, validation};

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
pub(crate) fn encode_path(name: &str) -> String {
    utf8_percent_encode(name, PATH).to_string()
}

/// `PUT /{db}/{doc}`
pub(super) async fn put(mut request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let content_type = request.header(header::CONTENT_TYPE).map(ContentType::parse);
    if let Some(content_type) = content_type.filter(|one| one.essence == "multipart/related") {
        return put_related(request, database, id, content_type).await;
    }
    let body = request.read_json().await?;
    let mut document = Document::parse(body.value())?;
    check_size(&request.node, size_of(&body, &document), "")?;
    check_id(&request.node, &database, &id)?;
    document.rev = replaced_rev(&request.query, &request.headers, document.rev.as_ref())?;
    let mode = edit_mode(&request.query);
    save(&request, &database, id, document, mode).await
}

/// A document with the data of its attachments behind it.
async fn put_related(mut request: Request, database: Arc<Database>, id: String, content_type: ContentType) -> Answer {
    let mode = edit_mode(&request.query);
    check_id(&request.node, &database, &id)?;
    let (policy, store, named) = (request.node.policy(), Arc::clone(&database), id.clone());
    let (query, headers) = (request.query.clone(), request.headers.clone());
    let (document, attachments) = request
        .with_pieces(move |pieces| {
            let (documents, policy) = (policy.documents, &policy.attachments);
            let check = |json: &Json, document: &Document| documents.check_size(size_of(json, document), "");
            let related = attachments::related::receive(&store, policy, &content_type, pieces, check)?;
            let mut document = related.document;
            document.rev = replaced_rev(&query, &headers, document.rev.as_ref())?;
            let attachments = attachments::resolve(&store, policy, &named, &document, mode, related.followed)?;
            Ok((document, attachments))
        })
        .await?;
    save_with(&request, &database, id, document, Incoming::Known(attachments), mode).await
}

/// The size of a document that is limited: without its attachments.
fn size_of(text: &Json, document: &Document) -> usize {
    let attachments = document.attachments.as_ref().map_or(0, |attachments| attachments.as_bytes().len());
    text.as_bytes().len() - attachments
}

/// `POST /{db}`
pub(super) async fn post(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let document = Document::parse(body.value())?;
    let id = document.id.clone().unwrap_or_else(|| request.node.uuid());
    check_size(&request.node, size_of(&body, &document), &id)?;
    check_id(&request.node, &database, &id)?;
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
    check_id(&request.node, &database, &target)?;
    if target.starts_with("_design/") {
        access::require_database_admin(&request.node, &request.user, &request.captures).await?;
    }
    users::sight(&request, &database, &source).await?.require_whole()?;
    let rev = replaced_rev(&request.query, &request.headers, None)?;
    let reader = Arc::clone(&database);
    let (body, attachments) = bridge::blocking(move || read_source(&reader, &source, rev.as_ref())).await?;
    save_copy(&request, &database, target, target_rev, body, attachments).await
}

/// `PUT /{db}/_local/{local}`
pub(super) async fn put_local(mut request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let body = request.read_json().await?;
    check_size(&request.node, body.as_bytes().len(), "")?;
    let mut document = Document::parse(body.value())?;
    check_id(&request.node, &database, &id)?;
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
    check_id(&request.node, &database, &target)?;
    let reader = Arc::clone(&database);
    let body = bridge::blocking(move || {
        let local = reader.read()?.local(&source)?;
        Ok(local.ok_or_else(|| Error::not_found("missing"))?.body)
    })
    .await?;
    save_copy(&request, &database, target, target_rev, body, NewAttachments::none()).await
}

fn tombstone(rev: Option<Rev>) -> Document {
    Document { id: None, rev, deleted: true, body: Json::empty_object(), attachments: None, revisions: None }
}

fn read_source(database: &Arc<Database>, id: &str, rev: Option<&Rev>) -> Result<(Json, NewAttachments), Error> {
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
    let mut revision = view.revision(stored)?.ok_or_else(|| Error::not_found("missing"))?;
    let kept = std::mem::take(&mut revision.attachments).into_iter().map(NewAttachment::kept);
    let attachments = NewAttachments::new(kept.collect())?;
    Ok((Json::trusted(revision.into_body()), attachments))
}

async fn save_copy(
    request: &Request,
    database: &Arc<Database>,
    target: String,
    target_rev: Option<Rev>,
    body: Json,
    attachments: NewAttachments,
) -> Answer {
    let document = Document { id: None, rev: target_rev, deleted: false, body, attachments: None, revisions: None };
    let response = save_attached(request, database, target, document, attachments).await?;
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
    let rev = Query::parse(query)?.get("rev").map(Rev::parse).transpose()?;
    let id =
        decode(path.trim_start_matches('/')).ok_or_else(|| Error::bad_request("Destination is not valid UTF-8."))?;
    Ok((id.into_owned(), rev))
}

fn edit_mode(query: &Query) -> EditMode {
    if query.get("new_edits") == Some("false") {
        EditMode::Replicated
    } else {
        EditMode::Interactive(UnknownParent::Refuse)
    }
}

/// How large documents and their ids may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    document_bytes: u64,
    id_bytes: u64,
}

impl Limits {
    /// The limits in force: `[couchdb] max_document_size` and `max_document_id_length`.
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self {
            document_bytes: settings.number("couchdb", "max_document_size", 8_000_000),
            id_bytes: settings.number("couchdb", "max_document_id_length", u64::MAX),
        }
    }

    /// Refuses a document that is too large.
    pub(super) fn check_size(self, size: usize, id: &str) -> Result<(), Error> {
        if size as u64 <= self.document_bytes {
            return Ok(());
        }
        Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", id.to_owned()))
    }

    /// Refuses an id that no document of `database` can have.
    pub(super) fn check_id(self, database: &Database, id: &str) -> Result<(), Error> {
        validate_doc_id(id)?;
        partition::check_id(database, id)?;
        if id.len() as u64 > self.id_bytes {
            return Err(Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id is too long"));
        }
        Ok(())
    }
}

/// Refuses a document that is too large, see [`Limits`].
pub(super) fn check_size(node: &Node, size: usize, id: &str) -> Result<(), Error> {
    node.policy().documents.check_size(size, id)
}

/// Refuses an id that no document can have, see [`Limits`].
pub(super) fn check_id(node: &Node, database: &Database, id: &str) -> Result<(), Error> {
    node.policy().documents.check_id(database, id)
}

/// Turns a document into an update.
pub(super) fn prepare(
    id: String,
    document: Document,
    attachments: NewAttachments,
    mode: EditMode,
    hasher: &mut RevisionHasher,
) -> Result<DocUpdate, Error> {
    DocUpdate::prepare_with(id, document, attachments, mode, hasher).ok_or_else(|| {
        Error::bad_request("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
    })
}

/// The attachments of a document that is to be saved.
enum Incoming {
    /// As its member `_attachments` has it.
    InDocument,
    /// These.
    Known(NewAttachments),
}

async fn save(request: &Request, database: &Arc<Database>, id: String, document: Document, mode: EditMode) -> Answer {
    save_with(request, database, id, document, Incoming::InDocument, mode).await
}

/// Saves an edit with these attachments.
pub(super) async fn save_attached(
    request: &Request,
    database: &Arc<Database>,
    id: String,
    document: Document,
    attachments: NewAttachments,
) -> Answer {
    let mode = EditMode::Interactive(UnknownParent::Refuse);
    save_with(request, database, id, document, Incoming::Known(attachments), mode).await
}

async fn save_with(
    request: &Request,
    database: &Arc<Database>,
    id: String,
    document: Document,
    attachments: Incoming,
    mode: EditMode,
) -> Answer {
    let deleted = document.deleted;
    let update = make_update(request, database, id.clone(), document, attachments, mode).await?;
    if Ack::of(&request.query) == Ack::Batch {
        // Written soon, whether or not the client still listens.
        let (node, database, user) = (Arc::clone(&request.node), Arc::clone(database), request.user.clone());
        tokio::spawn(async move { validation::commit(&node, &database, &user, vec![update]).await });
        return Ok(accepted(request, &id));
    }
    let rev = save_one(request, database, update).await?;
    Ok(saved(request, &id, rev, deleted))
}

/// Saves a document and answers its new revision.
pub(super) async fn save_document(
    request: &Request,
    database: &Arc<Database>,
    id: String,
    document: Document,
    mode: EditMode,
) -> Result<Rev, Error> {
    let update = make_update(request, database, id, document, Incoming::InDocument, mode).await?;
    save_one(request, database, update).await
}

async fn make_update(
    request: &Request,
    database: &Arc<Database>,
    id: String,
    mut document: Document,
    attachments: Incoming,
    mode: EditMode,
) -> Result<DocUpdate, Error> {
    if is_replicator_database(database.name()) {
        let (database, user, id) = (Arc::clone(database), request.user.clone(), id.clone());
        let judge = move || {
            replicator_documents::before_update(&database, &user, &id, &mut document, mode)?;
            Ok(document)
        };
        document = bridge::blocking(judge).await?;
    }
    if id.starts_with("_design/") && !document.deleted {
        design::validate(&request.node, database, &document.body).await?;
    }
    let waits = matches!(attachments, Incoming::InDocument) && document.attachments.is_some();
    let large = document.body.as_bytes().len() > LARGE_DOCUMENT_BYTES;
    let (policy, database) = (request.node.policy(), Arc::clone(database));
    let make = move || {
        let attachments = match attachments {
            Incoming::Known(attachments) => attachments,
            Incoming::InDocument => {
                attachments::resolve(&database, &policy.attachments, &id, &document, mode, HashMap::new())?
            }
        };
        prepare(id, document, attachments, mode, &mut RevisionHasher::default())
    };
    if waits || large { bridge::blocking(make).await } else { make() }
}

/// Commits one update past the validation functions.
async fn save_one(request: &Request, database: &Arc<Database>, update: DocUpdate) -> Result<Rev, Error> {
    let results = validation::commit(&request.node, database, &request.user, vec![update]).await?;
    results.into_iter().next().unwrap_or_else(|| Err(Error::internal("the update was not answered")))
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
    out.extend_from_slice(br#","rev":"#);
    rev.write_json(&mut out);
    out.push(b'}');
    let status = if deleted { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = with_location(request, id, respond::json(status, out));
    if !id.starts_with("_local/") {
        respond::set_etag(&mut response, &rev.to_string());
    }
    response.extensions_mut().insert(SavedRev(rev));
    response
}

fn with_location(request: &Request, id: &str, mut response: Response) -> Response {
    let mut location = request.absolute("/");
    location.extend(utf8_percent_encode(request.captures.get("db"), PATH));
    location.push('/');
    location.extend(utf8_percent_encode(id, PATH));
    respond::set(response.headers_mut(), header::LOCATION, &location);
    response
}
