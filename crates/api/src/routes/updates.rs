//! `_update`: a function creates a document and a response from a document and a request.

use hyper::StatusCode;
use hyper::header::HeaderName;
use settee_database::{EditMode, Waiting};
use settee_model::Document;
use settee_model::json::{Json, Value};

use super::partition::check_place;
use super::rendered::{Rendered, error_for};
use super::request_object::{Members, RequestObject};
use super::shows::{doc_id, open};
use super::write::{self, Edit, Incoming};
use crate::path::encode_path;
use crate::request::Request;
use crate::respond::Answer;
use crate::{Error, bridge};
use settee_service::Functions;

const NEW_REV: HeaderName = HeaderName::from_static("x-couch-update-newrev");
const ID: HeaderName = HeaderName::from_static("x-couch-id");

pub(super) async fn update(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_body().await?;
    let id = doc_id(&request);
    let object = RequestObject::new(&request, id.as_deref(), &body)?;
    let (store, user, node) = (database.clone(), request.reader.clone(), request.node.clone());
    let caller = request.caller();
    let context = caller.clone();
    let (ddoc, name) = (request.captures.get("ddoc").to_owned(), request.captures.get("function").to_owned());
    let result = request
        .node
        .programs
        .calling(&caller, move || {
            let view = store.read_as(&user, Waiting::Allowed)?;
            let functions = Functions::load(&store, &ddoc)?;
            if let Some(id) = &id {
                check_place(&store, id)?;
            }
            functions.require(&["updates", &name])?;
            let document = open(&view, id.as_deref())?;
            let text = document.map_or_else(|| b"null".to_vec(), |document| document.text);
            let seen = object.to_json(&store, Members::All)?;
            Ok::<_, Error>(functions.call(&node.programs, &context, &store, &["updates", &name], &[&text, &seen])?)
        })
        .await
        .map_err(|error| error_for(&request.reader, error))?;
    let mut parts = result.value().elements().skip(1);
    let (Some(document), Some(answer)) = (parts.next(), parts.next()) else {
        return Err(Error::internal("an update function gave no response"));
    };
    if !document.is_object() {
        return Ok(Rendered::parse(answer, StatusCode::OK)?.sandbox(&request.node).into_response());
    }
    let (id, rev) = save(&request, &database, document).await?;
    let mut rendered = Rendered::parse(answer, StatusCode::CREATED)?;
    rendered.set(NEW_REV, &rev);
    rendered.set(ID, &encode_path(&id));
    Ok(rendered.sandbox(&request.node).into_response())
}

/// Refuses GET and HEAD, which must not change documents.
pub(super) async fn refuse_get(request: Request) -> Answer {
    let database = request.database()?;
    let ddoc = request.captures.get("ddoc").to_owned();
    bridge::blocking(&request.threads, move || Ok(Functions::load(&database, &ddoc)?)).await?;
    let reason = "Update functions do not allow GET";
    Err(Error::new(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", reason))
}

pub(super) async fn invalid_path(request: Request) -> Answer {
    request.database()?;
    Err(Error::new(StatusCode::NOT_FOUND, "update_error", "Invalid path."))
}

async fn save(
    request: &Request,
    database: &std::sync::Arc<settee_database::Database>,
    document: Value<'_>,
) -> Result<(String, String), Error> {
    // The text is from a sandbox and is valid JSON, but may contain duplicate names.
    let document = Json::parse(document.raw())?;
    let document = Document::parse(document.value())?;
    let id = document.id.clone().unwrap_or_default();
    write::check_id(&request.node, database, &id)?;
    write::check_size(&request.node, &document)?;
    if id.starts_with("_design/") {
        request.require_database_admin().await?;
    }
    let edit = Edit { id, document, attachments: Incoming::InDocument, mode: EditMode::Interactive };
    let saved = write::save(request, database, edit).await?;
    Ok((saved.id, saved.rev.to_string()))
}
