//! COPY: writes a revision of a document to another document.

use std::sync::Arc;

use hyper::StatusCode;
use settee_database::{EditMode, NewAttachment, NewAttachments, ReadView, Waiting};
use settee_model::json::Json;
use settee_model::{Document, Rev};

use super::documents::{doc_id, is_local};
use super::partition::check_place;
use super::write::{Edit, Incoming, check_id, save, set_location};
use crate::params::document::replaced_rev;
use crate::params::{Plus, decode};
use crate::path::not_text;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::{Error, bridge};

pub(super) async fn copy(request: Request) -> Answer {
    let database = request.database()?;
    let source = doc_id(&request);
    let rev = replaced_rev(&request.query, &request.headers, None)?;
    let (target, target_rev) = destination(&request)?;
    check_id(&request.node, &database, &target)?;
    check_place(&database, &source)?;
    request.node.users.visibility(&request.user, &database, &source).await?.require_whole()?;
    let (store, reader) = (Arc::clone(&database), request.reader.clone());
    let read = move || read_source(&store.read_as(&reader, Waiting::Allowed)?, &source, rev.as_ref());
    let found = bridge::blocking(&request.threads, read).await?;
    if target.starts_with("_design/") {
        request.require_database_admin().await?;
    }
    let document = Document { rev: target_rev, ..found.document };
    let attachments = Incoming::Known(found.attachments);
    let edit = Edit { id: target, document, attachments, mode: EditMode::Interactive };
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::CREATED);
    // The status ignores `w`, unlike those of other edits.
    *response.status_mut() = StatusCode::CREATED;
    set_location(&request, &saved.id, &mut response);
    // Local documents also get the tag of the revision here, unlike in reads.
    respond::set_etag(&mut response, &saved.rev.to_string());
    Ok(response)
}

/// The source revision; a deletion only if it is named.
struct Source {
    document: Document,
    attachments: NewAttachments,
}

fn read_source(view: &ReadView<'_>, id: &str, rev: Option<&Rev>) -> Result<Source, Error> {
    let missing = || Error::not_found("missing");
    let document = |deleted, body| Document { id: None, rev: None, deleted, body, attachments: None, revisions: None };
    if is_local(id) {
        // Local documents have no addressable revisions.
        let local = if rev.is_none() { view.local(id)? } else { None };
        let body = local.ok_or_else(missing)?.body;
        return Ok(Source { document: document(false, body), attachments: NewAttachments::none() });
    }
    let record = view.record(id)?.ok_or_else(missing)?;
    let node = match rev {
        Some(rev) => record.tree.find(rev),
        None => record.tree.winner(|stored| stored.deleted),
    };
    let stored = node.and_then(|node| record.tree.node(node).value).ok_or_else(missing)?;
    if rev.is_none() && stored.deleted {
        return Err(Error::not_found("deleted"));
    }
    let mut revision = view.revision(stored)?.ok_or_else(missing)?;
    let kept = std::mem::take(&mut revision.attachments).into_iter().map(NewAttachment::kept);
    let attachments = NewAttachments::new(view.database(), kept.collect())?;
    Ok(Source { document: document(stored.deleted, Json::trusted(revision.into_body())), attachments })
}

/// Parses `Destination: id?rev=…`. CouchDB takes any single parameter as the revision.
fn destination(request: &Request) -> Result<(String, Option<Rev>), Error> {
    let header = request.headers.get("destination");
    let header = header.ok_or_else(|| Error::bad_request("Destination header is mandatory for COPY."))?;
    let header = std::str::from_utf8(header.as_bytes()).map_err(|_| not_text())?;
    if header.starts_with("http://") || header.starts_with("https://") {
        return Err(Error::bad_request("Destination URL must be relative."));
    }
    let (path, query) = header.split_once('?').map_or((header, None), |(path, query)| (path, Some(query)));
    let rev = query.map(|query| Rev::parse(query.split_once('=').map_or("", |(_, rev)| rev))).transpose()?;
    let id = decode(path, Plus::Space).ok_or_else(not_text)?;
    Ok((id.into_owned(), rev))
}
