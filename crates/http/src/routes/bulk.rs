//! Many documents in one request.

use std::sync::Arc;

use hyper::StatusCode;
use settee_auth::UserContext;
use settee_database::{Database, DocUpdate, EditMode, ReadView, UnknownParent, UpdateOutcome};
use settee_model::json::{Kind, Value, write_string};
use settee_model::{Document, Rev, RevisionHasher};

use super::{design, write};
use crate::node::Node;
use crate::params::document::Extras;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::revision::{self, Encoded};
use crate::{Error, access, bridge};

/// One document of a request: ready to be written, or refused alone.
enum Row {
    Update(DocUpdate),
    Refused { id: String, error: Error },
}

/// `POST /{db}/_bulk_docs`
pub(super) async fn docs(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let mode = edit_mode(body.value())?;
    if body.value().get("all_or_nothing").and_then(Value::as_bool) == Some(true) {
        return all_or_nothing(body.value());
    }
    let node = Arc::clone(&request.node);
    let mut rows = bridge::blocking(move || prepare(&node, body.value(), mode)).await?;
    check_design_documents(&request, &mut rows).await?;
    let ids: Vec<String> = rows.iter().map(|row| row.id().to_owned()).collect();
    let mut refused: Vec<Option<Error>> = Vec::with_capacity(rows.len());
    let mut updates = Vec::with_capacity(rows.len());
    for row in rows {
        match row {
            Row::Update(update) => {
                updates.push(update);
                refused.push(None);
            }
            Row::Refused { error, .. } => refused.push(Some(error)),
        }
    }
    let mut outcomes = bridge::commit(&database, DocUpdate::into_works(updates)).await?.into_iter();
    let mut out = b"[".to_vec();
    for (id, refused) in ids.iter().zip(refused) {
        let outcome = match refused {
            Some(error) => Err(error),
            None => match outcomes.next() {
                Some(UpdateOutcome::Saved(rev)) => Ok(rev),
                Some(UpdateOutcome::Conflict) => Err(Error::conflict()),
                None => Err(Error::internal("the update was not answered")),
            },
        };
        write_row(&mut out, id, outcome, mode);
    }
    out.push(b']');
    Ok(respond::json(StatusCode::CREATED, out))
}

impl Row {
    fn id(&self) -> &str {
        match self {
            Self::Update(update) => update.id(),
            Self::Refused { id, .. } => id,
        }
    }
}

fn edit_mode(body: Value<'_>) -> Result<EditMode, Error> {
    if body.kind() != Kind::Object {
        return Err(Error::bad_request("Request body must be a JSON object"));
    }
    match body.get("new_edits").map(Value::as_bool) {
        Some(Some(false)) => Ok(EditMode::Replicated),
        None | Some(Some(true)) => Ok(EditMode::Interactive(UnknownParent::Accept)),
        Some(None) => Err(Error::bad_request("`new_edits` must be a boolean.")),
    }
}

fn doc_list(body: Value<'_>) -> Result<Value<'_>, Error> {
    let docs = body.get("docs").ok_or_else(|| Error::bad_request("POST body must include `docs` parameter."))?;
    if docs.kind() == Kind::Array { Ok(docs) } else { Err(Error::bad_request("`docs` parameter must be an array.")) }
}

/// A document that is not valid at all spoils the request, as in CouchDB.
fn prepare(node: &Node, body: Value<'_>, mode: EditMode) -> Result<Vec<Row>, Error> {
    let mut hasher = RevisionHasher::default();
    let mut rows = Vec::new();
    for doc in doc_list(body)?.elements() {
        let document = Document::parse(doc)?;
        let id = document.id.clone().unwrap_or_else(|| node.uuid());
        write::check_id(node, &id)?;
        write::check_size(node, doc.raw().len(), &id)?;
        rows.push(Row::Update(write::prepare(id, document, mode, &mut hasher)?));
    }
    Ok(rows)
}

/// Design documents need an administrator, and functions that compile; each fails alone.
async fn check_design_documents(request: &Request, rows: &mut [Row]) -> Result<(), Error> {
    let (node, user): (&Arc<Node>, &UserContext) = (&request.node, &request.user);
    for row in rows {
        let Row::Update(update) = row else { continue };
        if !update.id().starts_with("_design/") {
            continue;
        }
        let mut checked = access::require_database_admin(node, user, &request.captures).await;
        if checked.is_ok() && !update.is_deletion() {
            checked = design::validate(node, update.body()).await;
        }
        if let Err(error) = checked {
            *row = Row::Refused { id: update.id().to_owned(), error };
        }
    }
    Ok(())
}

fn write_row(out: &mut Vec<u8>, id: &str, outcome: Result<Rev, Error>, mode: EditMode) {
    // A replicator hears of failures only.
    if outcome.is_ok() && mode == EditMode::Replicated {
        return;
    }
    if out.len() > 1 {
        out.push(b',');
    }
    match outcome {
        Ok(rev) => {
            out.extend_from_slice(br#"{"ok":true,"id":"#);
            write_string(out, id);
            out.extend_from_slice(format!(r#","rev":"{rev}"}}"#).as_bytes());
        }
        Err(error) => {
            out.extend_from_slice(br#"{"id":"#);
            write_string(out, id);
            write_error_members(out, &error);
            out.push(b'}');
        }
    }
}

fn write_error_members(out: &mut Vec<u8>, error: &Error) {
    out.extend_from_slice(br#","error":"#);
    write_string(out, &error.name);
    out.extend_from_slice(br#","reason":"#);
    write_string(out, &error.reason);
}

/// The old switch for atomic requests: refused document by document.
fn all_or_nothing(body: Value<'_>) -> Answer {
    let mut out = b"[".to_vec();
    for doc in doc_list(body)?.elements() {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"id":"#);
        write_string(&mut out, doc.get("_id").and_then(Value::as_str).as_deref().unwrap_or_default());
        out.extend_from_slice(br#","rev":"0-","error":"not_implemented","reason":"all_or_nothing is not supported"}"#);
    }
    out.push(b']');
    Ok(respond::json(StatusCode::EXPECTATION_FAILED, out))
}

/// `POST /{db}/_bulk_get`
pub(super) async fn get(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_called_json().await?;
    let listed = body.value().get("docs").is_some_and(|docs| docs.kind() == Kind::Array);
    if !listed {
        return Err(Error::bad_request("Missing JSON list of 'docs'."));
    }
    let revs = request.query.is_true("revs");
    let latest = request.query.is_true("latest");
    let extras = Extras { revs, ..Extras::default() };
    bridge::stream(move |output| {
        let view = read(&database)?;
        output.text().extend_from_slice(br#"{"results": ["#);
        let docs = body.value().get("docs").map(|docs| docs.elements()).into_iter().flatten();
        for (index, doc) in docs.enumerate() {
            if index > 0 {
                output.text().push(b',');
            }
            write_result(output.text(), &view, doc, latest, extras)?;
            if output.row_done().is_break() {
                return Ok(());
            }
        }
        output.text().extend_from_slice(b"]}\n");
        Ok(())
    })
    .await
}

fn read(database: &Arc<Database>) -> Result<ReadView, Error> {
    Ok(database.read()?)
}

fn write_result(
    out: &mut Vec<u8>,
    view: &ReadView,
    asked: Value<'_>,
    latest: bool,
    extras: Extras,
) -> Result<(), Error> {
    let Some(id) = asked.get("id").and_then(Value::as_str) else {
        out.extend_from_slice(
            br#"{"id":null,"docs":[{"error":{"id":null,"rev":null,"error":"bad_request","reason":"document id missed"}}]}"#,
        );
        return Ok(());
    };
    out.extend_from_slice(br#"{"id":"#);
    write_string(out, &id);
    out.extend_from_slice(br#","docs":["#);
    let asked_rev = asked.get("rev").and_then(Value::as_str);
    match asked_rev.as_deref().map(Rev::parse).transpose() {
        Err(error) => write_failure(out, &id, asked_rev.as_deref().unwrap_or_default(), &error.into()),
        Ok(rev) => write_revisions(out, view, &id, rev.as_ref(), latest, extras)?,
    }
    out.extend_from_slice(b"]}");
    Ok(())
}

fn write_revisions(
    out: &mut Vec<u8>,
    view: &ReadView,
    id: &str,
    rev: Option<&Rev>,
    latest: bool,
    extras: Extras,
) -> Result<(), Error> {
    let record = view.record(id)?;
    let nodes: Vec<u32> = match (&record, rev) {
        (None, _) => Vec::new(),
        (Some(record), None) => record.tree.winner(|stored| stored.deleted).into_iter().collect(),
        (Some(record), Some(rev)) => match record.tree.find(rev) {
            Some(node) if latest => record.tree.leaves_of(node),
            found => found.into_iter().collect(),
        },
    };
    let mut written = false;
    for node in nodes {
        let Some(record) = &record else { break };
        let before = out.len();
        if written {
            out.push(b',');
        }
        out.extend_from_slice(br#"{"ok":"#);
        if revision::write(out, view, id, record, node, extras)? == Encoded::Gone {
            out.truncate(before);
            continue;
        }
        out.push(b'}');
        written = true;
    }
    if !written {
        let rev = rev.map_or_else(|| "undefined".to_owned(), ToString::to_string);
        write_failure(out, id, &rev, &Error::not_found("missing"));
    }
    Ok(())
}

fn write_failure(out: &mut Vec<u8>, id: &str, rev: &str, error: &Error) {
    out.extend_from_slice(br#"{"error":{"id":"#);
    write_string(out, id);
    out.extend_from_slice(br#","rev":"#);
    write_string(out, rev);
    write_error_members(out, error);
    out.extend_from_slice(b"}}");
}
