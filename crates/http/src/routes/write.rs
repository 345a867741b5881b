//! Writing one document: PUT, POST and DELETE, ordinary, design and local documents alike. [`save`] is where every edit of
//! one document goes, also those of the other modules.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::{StatusCode, header};
use settee_database::{Database, DocUpdate, EditMode, NewAttachments};
use settee_design::{Caller, Cancellation};
use settee_model::json::{Json, write_string};
use settee_model::limits::{MAX_GENERATION, MAX_STORED_GENERATION};
use settee_model::{Document, InvalidRev, Rev, RevisionHasher};
use settee_replication::documents::is_replicator_database;
use settee_service::replicator_documents;
use settee_wire::multipart::ContentType;

use super::documents::{doc_id, is_local, local_tag};
use super::{design, partition};
use crate::attachments;
use crate::node::Node;
use crate::params::Query;
use crate::params::document::{DocParams, replaced_rev};
use crate::path::encode_path;
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::{Error, bridge};

/// Above this size a document is prepared on a thread that may block.
const LARGE_DOCUMENT_BYTES: usize = 64 << 10;

/// An edit of one document.
pub(super) struct Edit {
    pub(super) id: String,
    pub(super) document: Document,
    pub(super) attachments: Incoming,
    pub(super) mode: EditMode,
}

/// The attachments of a document that is to be saved.
pub(super) enum Incoming {
    /// As its member `_attachments` has it.
    InDocument,
    /// These.
    Known(NewAttachments),
}

/// The outcome of an edit that was written.
pub(super) struct Saved {
    pub(super) id: String,
    pub(super) rev: Rev,
    deleted: bool,
    mode: EditMode,
    /// The entity tag of what is there now.
    tag: String,
}

/// `PUT /{db}/{doc}`
pub(super) async fn put(mut request: Request) -> Answer {
    let database = request.database()?;
    let mode = DocParams::resolve(&request.query)?.mode;
    let id = doc_id(&request);
    check_id(&request.node, &database, &id)?;
    if let Some(content_type) = related(&request) {
        return put_related(request, database, id, content_type, mode).await;
    }
    let body = request.read_json().await?;
    let mut document = parse(&request.node, &body)?;
    document.rev = replaced_rev(&request.query, &request.headers, document.rev.as_ref())?;
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode };
    if is_batch(&request.query) {
        return save_later(&request, &database, edit).await;
    }
    Ok(put_answer(&request, &save(&request, &database, edit).await?))
}

/// The type of a body of parts. CouchDB takes bodies that are called otherwise for JSON, whatever they are.
fn related(request: &Request) -> Option<ContentType> {
    let content_type = request.header(header::CONTENT_TYPE)?;
    content_type.starts_with("multipart/related;").then(|| ContentType::parse(content_type))
}

/// A document with the data of its attachments behind it.
async fn put_related(
    mut request: Request,
    database: Arc<Database>,
    id: String,
    content_type: ContentType,
    mode: EditMode,
) -> Answer {
    let (policy, store, named) = (request.node.policy(), Arc::clone(&database), id.clone());
    let (query, headers) = (request.query.clone(), request.headers.clone());
    let (document, attachments) = request
        .with_pieces(move |pieces| {
            let (documents, policy) = (policy.documents, &policy.attachments);
            let check = |document: &Document| documents.check_document(document);
            let related = attachments::related::receive(&store, policy, &content_type, pieces, check)?;
            let mut document = related.document;
            document.rev = replaced_rev(&query, &headers, document.rev.as_ref())?;
            let attachments = attachments::resolve(&store, policy, &named, &document, mode, related.followed)?;
            Ok((document, attachments))
        })
        .await?;
    let edit = Edit { id, document, attachments: Incoming::Known(attachments), mode };
    Ok(put_answer(&request, &save(&request, &database, edit).await?))
}

fn put_answer(request: &Request, saved: &Saved) -> Response {
    let status = if saved.deleted { StatusCode::OK } else { StatusCode::CREATED };
    let mut response = saved.answer(request, status);
    set_location(request, &saved.id, &mut response);
    respond::set(response.headers_mut(), header::ETAG, &saved.tag);
    response
}

/// `POST /{db}`
pub(super) async fn post(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let document = parse(&request.node, &body)?;
    let id = document.id.clone().unwrap_or_else(|| request.node.uuid());
    check_id(&request.node, &database, &id)?;
    if id.starts_with("_design/") {
        request.require_database_admin().await?;
    }
    // CouchDB knows neither `new_edits` nor `rev` here, sends no entity tag, and answers 201 also to deletions.
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode: EditMode::Interactive };
    if is_batch(&request.query) {
        return save_later(&request, &database, edit).await;
    }
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::CREATED);
    set_location(&request, &saved.id, &mut response);
    Ok(response)
}

/// `DELETE /{db}/{doc}`
pub(super) async fn delete(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    partition::check_place(&database, &id)?;
    let (reader, wanted) = (Arc::clone(&database), id.clone());
    bridge::blocking(move || require_live(&reader, &wanted)).await?;
    let document = tombstone(replaced_rev(&request.query, &request.headers, None)?);
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode: EditMode::Interactive };
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::OK);
    respond::set(response.headers_mut(), header::ETAG, &saved.tag);
    Ok(response)
}

/// Refuses a document that is not there, or no more.
fn require_live(database: &Arc<Database>, id: &str) -> Result<(), Error> {
    let view = database.read()?;
    if is_local(id) {
        return view.local(id)?.map(drop).ok_or_else(|| Error::not_found("missing"));
    }
    match view.head(id)? {
        None => Err(Error::not_found("missing")),
        Some(head) if head.stored.deleted => Err(Error::not_found("deleted")),
        Some(_) => Ok(()),
    }
}

fn tombstone(rev: Option<Rev>) -> Document {
    Document { id: None, rev, deleted: true, body: Json::empty_object(), attachments: None, revisions: None }
}

/// Whether the client does not wait until the document is on disk (`batch=ok`).
fn is_batch(query: &Query) -> bool {
    query.get("batch") == Some("ok")
}

/// Whether more copies are asked for than there are: it was accepted then, but not by so many.
pub(super) fn wants_more_copies(copies: Option<i64>) -> bool {
    copies.is_some_and(|copies| copies > 1)
}

/// The copies that the parameter `w` asks for.
pub(super) fn copies(query: &Query) -> Option<i64> {
    query.get("w").and_then(|text| text.parse().ok())
}

/// Takes a document of a body of its own apart.
fn parse(node: &Node, body: &Json) -> Result<Document, Error> {
    let document = Document::parse(body.value())?;
    node.policy().documents.check_document(&document)?;
    Ok(document)
}

/// Refuses a document that is too large, see [`crate::limits`].
pub(super) fn check_size(node: &Node, document: &Document) -> Result<(), Error> {
    node.policy().documents.check_document(document)
}

/// Refuses an id that no document can have, see [`crate::limits`].
pub(super) fn check_id(node: &Node, database: &Database, id: &str) -> Result<(), Error> {
    node.policy().documents.check_id(database, id)
}

/// Whether a local document may have this revision: `0-N`.
fn is_local_rev(rev: &Rev) -> bool {
    let number = std::str::from_utf8(rev.hash.as_bytes()).ok().and_then(|text| text.parse::<u64>().ok());
    rev.generation == 0 && number.is_some()
}

/// Returns true for a local document with a revision that no local document has. CouchDB reports a replicated one as
/// written and ignores it.
pub(super) fn is_foreign_to_local(id: &str, document: &Document) -> bool {
    is_local(id) && document.rev.as_ref().is_some_and(|rev| !is_local_rev(rev))
}

/// Turns a document into an update.
pub(super) fn prepare(
    id: String,
    document: Document,
    attachments: NewAttachments,
    mode: EditMode,
    hasher: &mut RevisionHasher,
) -> Result<DocUpdate, Error> {
    // The deletion of a local document does not compare its revision.
    if !document.deleted && is_foreign_to_local(&id, &document) {
        return Err(InvalidRev::Format.into());
    }
    let most = match mode {
        EditMode::Replicated => MAX_STORED_GENERATION,
        EditMode::Interactive => MAX_GENERATION - 1,
    };
    if document.rev.as_ref().is_some_and(|rev| rev.generation > most) {
        return Err(Error::bad_request(
            "The generation of the revision is too large: the document could not be edited again",
        ));
    }
    DocUpdate::prepare_with(id, document, attachments, mode, hasher).ok_or_else(|| {
        Error::bad_request("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")
    })
}

/// Writes an edit.
pub(super) async fn save(request: &Request, database: &Arc<Database>, edit: Edit) -> Result<Saved, Error> {
    let (id, deleted, mode) = (edit.id.clone(), edit.document.deleted, edit.mode);
    if edit.mode == EditMode::Replicated
        && is_foreign_to_local(&id, &edit.document)
        && let Some(rev) = edit.document.rev
    {
        let tag = format!("\"{rev}\"");
        return Ok(Saved { id, rev, deleted, mode, tag });
    }
    // What is not replicated has a tag that its revision alone does not tell.
    let local = is_local(&id).then(|| edit.document.body.clone());
    let update = make_update(request, database, edit).await?;
    let results = request.node.writer.commit(database, &request.user, &request.caller(), vec![update]).await?;
    let unanswered = || Err(settee_service::Error::Internal("the update was not answered"));
    let rev = results.into_iter().next().unwrap_or_else(unanswered)?;
    let tag = local.map_or_else(|| format!("\"{rev}\""), |body| local_tag(&rev, &body));
    Ok(Saved { id, rev, deleted, mode, tag })
}

/// Writes an edit soon, whether or not the client still listens.
async fn save_later(request: &Request, database: &Arc<Database>, edit: Edit) -> Answer {
    let mut out = br#"{"ok":true,"id":"#.to_vec();
    write_string(&mut out, &edit.id);
    out.push(b'}');
    let update = make_update(request, database, edit).await?;
    let (node, database, user) = (Arc::clone(&request.node), Arc::clone(database), request.user.clone());
    // The end of the request does not end this.
    let caller = Caller { cancellation: Cancellation::never(), ..request.caller() };
    tokio::spawn(async move { node.writer.commit(&database, &user, &caller, vec![update]).await });
    Ok(respond::json(StatusCode::ACCEPTED, out))
}

async fn make_update(request: &Request, database: &Arc<Database>, edit: Edit) -> Result<DocUpdate, Error> {
    let Edit { id, mut document, attachments, mode } = edit;
    if is_replicator_database(database.name()) {
        let (database, user, id) = (Arc::clone(database), request.user.clone(), id.clone());
        let judge = move || {
            replicator_documents::before_update(&database, &user, &id, &mut document, mode)?;
            Ok(document)
        };
        document = bridge::blocking(judge).await?;
    }
    design::complete(&id, &mut document, mode);
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
        let update = prepare(id, document, attachments, mode, &mut RevisionHasher::default())?;
        Ok(policy.documents.within(&database, update))
    };
    if waits || large { bridge::blocking(make).await } else { make() }
}

impl Saved {
    /// The answer to an edit, with this status unless an interactive edit asks for more copies than there are.
    pub(super) fn answer(&self, request: &Request, status: StatusCode) -> Response {
        let mut out = br#"{"ok":true,"id":"#.to_vec();
        write_string(&mut out, &self.id);
        out.extend_from_slice(br#","rev":"#);
        self.rev.write_json(&mut out);
        out.push(b'}');
        let is_short = self.mode == EditMode::Interactive && wants_more_copies(copies(&request.query));
        respond::json(if is_short { StatusCode::ACCEPTED } else { status }, out)
    }
}

/// Says where a document is.
pub(super) fn set_location(request: &Request, id: &str, response: &mut Response) {
    let path = format!("/{}/{}", encode_path(request.captures.get("db")), encode_path(id));
    respond::set(response.headers_mut(), header::LOCATION, &request.absolute(&path));
}
