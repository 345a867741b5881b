//! Writes of one document: PUT, POST and DELETE. Every edit of one document uses [`save`], also in other modules.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::{StatusCode, header};
use settee_database::{Database, DocUpdate, EditMode, NewAttachments, ReadView, Reader, Waiting};
use settee_design::{Caller, Cancellation};
use settee_model::json::Json;
use settee_model::limits::{MAX_GENERATION, MAX_STORED_GENERATION};
use settee_model::{Document, InvalidRev, Rev, RevisionHasher};
use settee_replication::documents::is_replicator_database;
use settee_service::{Visibility, public_part, replicator_documents};
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

/// Size beyond which a document is prepared on a thread that may block.
const LARGE_DOCUMENT_BYTES: usize = 64 << 10;

pub(super) struct Edit {
    pub(super) id: String,
    pub(super) document: Document,
    pub(super) attachments: Incoming,
    pub(super) mode: EditMode,
}

pub(super) enum Incoming {
    InDocument,
    Known(NewAttachments),
}

pub(super) struct Saved {
    pub(super) id: String,
    pub(super) rev: Rev,
    deleted: bool,
    mode: EditMode,
    tag: String,
}

pub(super) async fn put(mut request: Request) -> Answer {
    let database = request.database()?;
    let mode = DocParams::resolve(&request.query)?.mode;
    let id = doc_id(&request);
    check_id(&request.node, &database, &id)?;
    if let Some(content_type) = related(&request) {
        return put_related(request, database, id, content_type, mode).await;
    }
    let body = request.read_json().await?;
    let mut document = parse(&request.node, &database, &body)?;
    document.rev = replaced_rev(&request.query, &request.headers, document.rev.as_ref())?;
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode };
    if is_batch(&request.query) {
        return save_later(&request, &database, edit).await;
    }
    Ok(put_answer(&request, &save(&request, &database, edit).await?))
}

/// Like CouchDB, the server treats bodies of any type other than multipart as JSON.
fn related(request: &Request) -> Option<ContentType> {
    let content_type = request.header(header::CONTENT_TYPE)?;
    content_type.starts_with("multipart/related;").then(|| ContentType::parse(content_type))
}

async fn put_related(
    mut request: Request,
    database: Arc<Database>,
    id: String,
    content_type: ContentType,
    mode: EditMode,
) -> Answer {
    let (policy, store, named) = (request.node.policy(), Arc::clone(&database), id.clone());
    let reader = request.reader.clone();
    let (query, headers) = (request.query.clone(), request.headers.clone());
    let (document, attachments) = request
        .with_pieces(move |pieces| {
            let (documents, policy) = (policy.documents, &policy.attachments);
            let check = |document: &Document| documents.check_document(document);
            let related = attachments::related::receive(&store, policy, &content_type, pieces, check)?;
            let mut document = related.document;
            document.rev = replaced_rev(&query, &headers, document.rev.as_ref())?;
            let place = (&store, &reader, named.as_str());
            let attachments = attachments::resolve(place, policy, &document, mode, related.followed, Waiting::Allowed)?;
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

pub(super) async fn post(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let document = parse(&request.node, &database, &body)?;
    let id = document.id.clone().unwrap_or_else(|| request.node.uuid());
    check_id(&request.node, &database, &id)?;
    if id.starts_with("_design/") {
        request.require_database_admin().await?;
    }
    // CouchDB ignores `new_edits` and `rev` here, sends no entity tag, and returns 201 for deletions as well.
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode: EditMode::Interactive };
    if is_batch(&request.query) {
        return save_later(&request, &database, edit).await;
    }
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::CREATED);
    set_location(&request, &saved.id, &mut response);
    Ok(response)
}

pub(super) async fn delete(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    partition::check_place(&database, &id)?;
    let (store, reader, wanted) = (Arc::clone(&database), request.reader.clone(), id.clone());
    bridge::read(&request.threads, move |waiting| require_live(&store.read_as(&reader, waiting)?, &wanted)).await?;
    // As in CouchDB, a client that does not see a user document cannot find out whether it exists.
    if let Visibility::Public(fields) = request.node.users.visibility(&request.user, &database, &id).await? {
        let (reader, wanted) = (Arc::clone(&database), id.clone());
        bridge::read(&request.threads, move |waiting| {
            Ok(public_part(&reader.read_as(&Reader::Administrator, waiting)?, &wanted, &fields)?)
        })
        .await?;
    }
    let document = tombstone(replaced_rev(&request.query, &request.headers, None)?);
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode: EditMode::Interactive };
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::OK);
    respond::set(response.headers_mut(), header::ETAG, &saved.tag);
    Ok(response)
}

fn require_live(view: &ReadView<'_>, id: &str) -> Result<(), Error> {
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

fn is_batch(query: &Query) -> bool {
    query.get("batch") == Some("ok")
}

/// Returns true if more copies are requested than exist: the write is then accepted with status 202.
pub(super) fn wants_more_copies(copies: Option<i64>) -> bool {
    copies.is_some_and(|copies| copies > 1)
}

pub(super) fn copies(query: &Query) -> Option<i64> {
    query.get("w").and_then(|text| text.parse().ok())
}

/// As in CouchDB the id in the body must be valid too.
fn parse(node: &Node, database: &Database, body: &Json) -> Result<Document, Error> {
    let document = Document::parse(body.value())?;
    node.policy().documents.check_document(&document)?;
    document.id.iter().try_for_each(|id| check_id(node, database, id))?;
    Ok(document)
}

pub(super) fn check_size(node: &Node, document: &Document) -> Result<(), Error> {
    node.policy().documents.check_document(document)
}

pub(super) fn check_id(node: &Node, database: &Database, id: &str) -> Result<(), Error> {
    node.policy().documents.check_id(database, id)
}

/// Returns true for a revision of a local document: `0-N`.
fn is_local_rev(rev: &Rev) -> bool {
    let number = std::str::from_utf8(rev.hash.as_bytes()).ok().and_then(|text| text.parse::<u64>().ok());
    rev.generation == 0 && number.is_some()
}

/// CouchDB reports a replicated local document with a revision other than `0-N` as written and ignores it.
pub(super) fn is_foreign_to_local(id: &str, document: &Document) -> bool {
    is_local(id) && document.rev.as_ref().is_some_and(|rev| !is_local_rev(rev))
}

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

pub(super) async fn save(request: &Request, database: &Arc<Database>, edit: Edit) -> Result<Saved, Error> {
    let (id, deleted, mode) = (edit.id.clone(), edit.document.deleted, edit.mode);
    if edit.mode == EditMode::Replicated
        && is_foreign_to_local(&id, &edit.document)
        && let Some(rev) = edit.document.rev.clone()
    {
        attachments::check(&edit.document)?;
        let tag = local_tag(&rev, &edit.document.body);
        return Ok(Saved { id, rev, deleted, mode, tag });
    }
    // Entity tags of local documents depend on the body, because the revision alone does not identify it.
    let local = is_local(&id).then(|| edit.document.body.clone());
    let update = make_update(request, database, edit).await?;
    let results = request.node.writer.commit(database, &request.user, &request.caller(), vec![update]).await?;
    let unanswered = || Err(settee_service::Error::Internal("the update was not answered"));
    let rev = results.into_iter().next().unwrap_or_else(unanswered)?;
    let tag = local.map_or_else(|| format!("\"{rev}\""), |body| local_tag(&rev, &body));
    Ok(Saved { id, rev, deleted, mode, tag })
}

async fn save_later(request: &Request, database: &Arc<Database>, edit: Edit) -> Answer {
    let response = respond::object(StatusCode::ACCEPTED, |object| _ = object.value("ok", true).string("id", &edit.id));
    let update = make_update(request, database, edit).await?;
    let (node, database, user) = (Arc::clone(&request.node), Arc::clone(database), request.user.clone());
    // The end of the request must not cancel the write.
    let caller = Caller { cancellation: Cancellation::never(), ..request.caller() };
    tokio::spawn(async move { node.writer.commit(&database, &user, &caller, vec![update]).await });
    Ok(response)
}

async fn make_update(request: &Request, database: &Arc<Database>, edit: Edit) -> Result<DocUpdate, Error> {
    let Edit { id, mut document, attachments, mode } = edit;
    if is_replicator_database(database.name()) {
        let (database, user, id) = (Arc::clone(database), request.user.clone(), id.clone());
        let check = move || {
            replicator_documents::before_update(&database, &user, &id, &mut document, mode, Waiting::Allowed)?;
            Ok(document)
        };
        document = bridge::blocking(&request.threads, check).await?;
    }
    design::complete(&id, &mut document, mode);
    let is_design = id.starts_with("_design/") && !document.deleted;
    let waits = matches!(attachments, Incoming::InDocument) && document.attachments.is_some();
    let large = document.body.as_bytes().len() > LARGE_DOCUMENT_BYTES;
    let (policy, store, reader) = (request.node.policy(), Arc::clone(database), request.reader.clone());
    let make = move || {
        let attachments = match attachments {
            Incoming::Known(attachments) => attachments,
            Incoming::InDocument => {
                let (place, policy) = ((&store, &reader, id.as_str()), &policy.attachments);
                attachments::resolve(place, policy, &document, mode, HashMap::new(), Waiting::Allowed)?
            }
        };
        let update = prepare(id, document, attachments, mode, &mut RevisionHasher::default())?;
        Ok(policy.documents.with_partition_limit(&store, update))
    };
    let update = if waits || large { bridge::blocking(&request.threads, make).await? } else { make()? };
    if is_design && !design::is_stored(&request.threads, database, &update, mode).await? {
        design::validate((&request.node, &request.threads), database, update.body()).await?;
    }
    Ok(update)
}

impl Saved {
    /// The status is 202 if an interactive edit requests more copies than exist.
    pub(super) fn answer(&self, request: &Request, status: StatusCode) -> Response {
        let is_short = self.mode == EditMode::Interactive && wants_more_copies(copies(&request.query));
        respond::object(if is_short { StatusCode::ACCEPTED } else { status }, |object| {
            self.rev.write_json(object.value("ok", true).string("id", &self.id).name("rev"));
        })
    }
}

pub(super) fn set_location(request: &Request, id: &str, response: &mut Response) {
    let path = format!("/{}/{}", encode_path(request.captures.get("db")), encode_path(id));
    respond::set(response.headers_mut(), header::LOCATION, &request.absolute(&path));
}
