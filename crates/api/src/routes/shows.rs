//! `_show`: a function transforms a document, or none, into a response.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use hyper::{StatusCode, header};
use settee_database::{DocRecord, ReadView, Waiting};

use super::documents::{is_local, local_rev, local_tag, write_local};
use super::partition::check_place;
use super::rendered::{Rendered, error_for};
use super::request_object::{Members, RequestObject};
use crate::Error;
use crate::request::Request;
use crate::respond::{self, Answer};
use settee_edge::etag;
use settee_service::revisions::{Conflicts, write_for_functions};
use settee_service::{Functions, Visibility};

pub(super) async fn show(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_body().await?;
    let id = doc_id(&request);
    let object = RequestObject::new(&request, id.as_deref(), &body)?;
    let (node, caller, user) = (Arc::clone(&request.node), request.caller(), request.reader.clone());
    let context = caller.clone();
    node.programs
        .calling(&caller, move || {
            let view = database.read_as(&request.reader, Waiting::Allowed)?;
            let functions = Functions::load(&database, request.captures.get("ddoc"))?;
            if let Some(id) = &id {
                check_place(&database, id)?;
            }
            let name = request.captures.get("function");
            functions.require(&["shows", name])?;
            if let Some(id) = &id {
                Visibility::of(&request.node.users, &database, &request.user, id)?.require_whole()?;
            }
            let document = open(&view, id.as_deref())?;
            let tag = entity_tag(&request, &functions, document.as_ref());
            if etag::knows(&request.headers, &tag) {
                let mut response = etag::not_modified();
                respond::set_etag(&mut response, &tag);
                return Ok(response);
            }
            let text = document.map_or_else(|| b"null".to_vec(), |document| document.text);
            let seen = object.to_json(&database, Members::All)?;
            let result =
                functions.call(&request.node.programs, &context, &database, &["shows", name], &[&text, &seen])?;
            let answer = result.value().elements().nth(1);
            let answer = answer.ok_or_else(|| Error::internal("a show function gave no response"))?;
            let mut rendered = Rendered::parse(answer, StatusCode::OK)?;
            rendered.set(header::ETAG, &format!("\"{tag}\""));
            rendered.set(header::VARY, "Accept");
            Ok(rendered.sandbox(&request.node).into_response())
        })
        .await
        .map_err(|error| error_for(&user, error))
}

pub(super) async fn invalid_path(request: Request) -> Answer {
    request.database()?;
    Err(Error::new(StatusCode::NOT_FOUND, "show_error", "Invalid path."))
}

pub(super) fn doc_id(request: &Request) -> Option<String> {
    let id = request.captures.get("doc");
    (!id.is_empty()).then(|| id.to_owned())
}

pub(super) struct Opened {
    pub(super) rev: String,
    pub(super) text: Vec<u8>,
}

/// Returns the winner or the local document, or `None` for a deleted document.
pub(super) fn open(view: &ReadView<'_>, id: Option<&str>) -> Result<Option<Opened>, Error> {
    let Some(id) = id else { return Ok(None) };
    if is_local(id) {
        let opened = view.local(id)?.map(|local| {
            let mut text = Vec::new();
            write_local(&mut text, id, &local, true);
            Opened { rev: local_tag(&local_rev(&local), &local.body), text }
        });
        return Ok(opened);
    }
    let Some(record) = view.record(id)? else { return Ok(None) };
    let Some(node) = record.tree.winner(|stored| stored.deleted).filter(|node| is_live(&record, *node)) else {
        return Ok(None);
    };
    let mut text = Vec::new();
    let rev = record.tree.node(node).rev.to_string();
    Ok(write_for_functions(&mut text, view, id, &record, node, Conflicts::Shown)?.then_some(Opened { rev, text }))
}

fn is_live(record: &DocRecord, node: u32) -> bool {
    record.tree.node(node).value.is_some_and(|stored| !stored.deleted)
}

/// Returns a tag of all inputs of a deterministic function.
fn entity_tag(request: &Request, functions: &Functions, document: Option<&Opened>) -> String {
    let mut hasher = DefaultHasher::new();
    functions.rev().hash(&mut hasher);
    document.map(|document| &document.rev).hash(&mut hasher);
    request.header(header::ACCEPT).hash(&mut hasher);
    (&request.user.name, &request.user.roles, request.head.uri.query()).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}
