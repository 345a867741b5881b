//! Writes of many documents in one request.

use std::collections::HashMap;
use std::sync::Arc;

use hyper::StatusCode;
use settee_auth::UserContext;
use settee_database::{Database, DocUpdate, EditMode, Reader, Upload, Waiting};
use settee_model::json::{Json, Kind, Value, append_object, write_array, write_string};
use settee_model::{Document, InvalidRev, Rev, RevisionHasher};
use settee_replication::documents::is_replicator_database;
use settee_settings::{Key, couchdb, key::Number};

use super::{design, write};
use crate::attachments;
use crate::metrics::Measure;
use crate::node::Node;
use crate::policy::Policy;
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::{Error, bridge};
use settee_service::replicator_documents::before_update;

enum Row {
    Update(DocUpdate),
    /// A stored revision, which was not authorized.
    Stored {
        id: String,
        rev: Rev,
    },
    Refused {
        id: String,
        error: Error,
    },
}

struct Bulk<'a> {
    docs: Vec<Value<'a>>,
    /// `None` if `new_edits` is not a boolean, which is reported after the documents are validated.
    mode: Option<EditMode>,
    all_or_nothing: bool,
    copies: Option<i64>,
}

/// Number of documents beyond which they are prepared on two threads.
const PARALLEL_DOCS: usize = 128;

/// Size of a body beyond which its work does not start on the thread of the request. The attachments of smaller bodies stay
/// in memory, so they are prepared without writes.
const SMALL_BODY_BYTES: usize = 16 << 10;
const _: () = assert!(SMALL_BODY_BYTES <= Upload::MEMORY_BYTES);

pub(super) fn is_small(body: &Json) -> bool {
    body.as_bytes().len() <= SMALL_BODY_BYTES
}

pub(super) async fn docs(mut request: Request) -> Answer {
    let database = request.database()?;
    let body = request.read_documents().await?;
    let is_small = is_small(&body);
    let (node, store, user) = (Arc::clone(&request.node), Arc::clone(&database), request.user.clone());
    let reader = request.reader.clone();
    let in_query = write::copies(&request.query);
    let work = move |waiting: Waiting<'_>| {
        let bulk = Bulk::parse(body.value())?;
        check_count(&node, bulk.docs.len(), &couchdb::MAX_BULK_DOCS_COUNT)?;
        let is_interactive = bulk.mode != Some(EditMode::Replicated);
        let is_short = is_interactive && !bulk.docs.is_empty() && write::wants_more_copies(bulk.copies.or(in_query));
        let prepared_mode = bulk.mode.unwrap_or(EditMode::Interactive);
        let rows = prepare((&node, &user, &reader), &store, &bulk, prepared_mode, waiting)?;
        let mode = bulk.mode.ok_or_else(|| Error::bad_request("`new_edits` parameter must be a boolean."))?;
        let is_refused = bulk.all_or_nothing && mode == EditMode::Interactive && !rows.is_empty();
        let rows = if is_refused { Err(all_or_nothing(&rows, &bulk.docs)) } else { Ok(rows) };
        Ok((mode, is_short, bulk.docs.len(), rows))
    };
    let threads = &request.threads;
    let (mode, is_short, count, prepared) = match is_small {
        true => bridge::read(threads, work).await?,
        false => bridge::blocking(threads, move || work(Waiting::Allowed)).await?,
    };
    request.node.metrics.measure(Measure::BulkDocs, count as u64);
    let mut rows = match prepared {
        Ok(rows) => rows,
        Err(refusal) => return Ok(refusal),
    };
    let names: Vec<(String, Option<Rev>)> = rows.iter().map(Row::name).collect();
    check_design_documents(&request, &mut rows, mode).await?;
    let mut answered: Vec<Option<Result<Rev, Error>>> = Vec::with_capacity(rows.len());
    let mut updates = Vec::with_capacity(rows.len());
    let limits = request.node.policy().documents;
    for row in rows {
        match row {
            Row::Update(update) => {
                updates.push(limits.with_partition_limit(&database, update));
                answered.push(None);
            }
            Row::Stored { rev, .. } => answered.push(Some(Ok(rev))),
            Row::Refused { error, .. } => answered.push(Some(Err(error))),
        }
    }
    let mut results =
        request.node.writer.commit(&database, &request.user, &request.caller(), updates).await?.into_iter();
    let unanswered = || Err(settee_service::Error::Internal("the update was not answered"));
    let mut out = b"[".to_vec();
    let mut is_stored = false;
    for ((id, rev), answered) in names.iter().zip(answered) {
        let result = answered.unwrap_or_else(|| results.next().unwrap_or_else(unanswered).map_err(Error::from));
        is_stored |= result.is_ok();
        write_row(&mut out, id, rev.as_ref(), result, mode, is_short);
    }
    out.push(b']');
    // An error needs no further copies: the request is only accepted if a revision was stored.
    let status = if is_short && is_stored { StatusCode::ACCEPTED } else { StatusCode::CREATED };
    Ok(respond::json(status, out))
}

impl Row {
    fn id(&self) -> &str {
        match self {
            Self::Update(update) => update.id(),
            Self::Stored { id, .. } | Self::Refused { id, .. } => id,
        }
    }

    fn replaced(&self) -> Option<&Rev> {
        match self {
            Self::Update(update) => update.path().get(1),
            Self::Stored { .. } | Self::Refused { .. } => None,
        }
    }

    fn name(&self) -> (String, Option<Rev>) {
        match self {
            Self::Update(update) => (update.id().to_owned(), update.path().first().cloned()),
            Self::Stored { id, rev } => (id.clone(), Some(rev.clone())),
            Self::Refused { id, .. } => (id.clone(), None),
        }
    }
}

impl<'a> Bulk<'a> {
    fn parse(body: Value<'a>) -> Result<Self, Error> {
        if body.kind() != Kind::Object {
            return Err(Error::bad_request("Request body must be a JSON object"));
        }
        let (mut docs, mut new_edits, mut all_or_nothing, mut copies) = (None, None, None, None);
        let (mut members, mut elements) = (body.members(), Vec::new());
        while let Some((name, value)) = members.next_with_elements(&mut elements) {
            let elements = std::mem::take(&mut elements);
            match name.as_str().as_deref() {
                Some("docs") => docs = Some((value, elements)),
                Some("new_edits") => new_edits = Some(value.as_bool()),
                Some("all_or_nothing") => all_or_nothing = value.as_bool(),
                Some("w") => copies = std::str::from_utf8(value.raw()).ok().and_then(|text| text.parse().ok()),
                _ => {}
            }
        }
        let mode = match new_edits {
            Some(Some(false)) => Some(EditMode::Replicated),
            None | Some(Some(true)) => Some(EditMode::Interactive),
            Some(None) => None,
        };
        let missing = || Error::bad_request("POST body must include `docs` parameter.");
        let (value, docs) = docs.ok_or_else(missing)?;
        if value.kind() != Kind::Array {
            return Err(Error::bad_request("`docs` parameter must be an array."));
        }
        Ok(Self { docs, mode, all_or_nothing: all_or_nothing == Some(true), copies })
    }
}

pub(super) fn check_count(node: &Node, count: usize, limit: &Key<Number>) -> Result<(), Error> {
    let most = limit.of(&*node.settings);
    if count as u64 <= most {
        return Ok(());
    }
    Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, format!("{}_exceeded", limit.name()), most.to_string()))
}

/// As in CouchDB a single malformed document fails the request.
fn prepare(
    (node, user, reader): (&Node, &UserContext, &Reader),
    database: &Arc<Database>,
    bulk: &Bulk<'_>,
    mode: EditMode,
    waiting: Waiting<'_>,
) -> Result<Vec<Row>, Error> {
    let policy = node.policy();
    let some = |docs: &[Value<'_>]| prepare_some((node, user, reader), database, docs, mode, &policy, waiting);
    if bulk.docs.len() <= PARALLEL_DOCS {
        return some(&bulk.docs);
    }
    waiting.may_block()?;
    let (front, back) = bulk.docs.split_at(bulk.docs.len() / 2);
    std::thread::scope(|scope| {
        let back = scope.spawn(|| some(back));
        let mut rows = some(front)?;
        rows.extend(back.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?);
        Ok(rows)
    })
}

fn prepare_some(
    (node, user, reader): (&Node, &UserContext, &Reader),
    database: &Arc<Database>,
    docs: &[Value<'_>],
    mode: EditMode,
    policy: &Policy,
    waiting: Waiting<'_>,
) -> Result<Vec<Row>, Error> {
    let mut hasher = RevisionHasher::default();
    let mut rows = Vec::with_capacity(docs.len());
    let is_replicator = is_replicator_database(database.name());
    for doc in docs {
        let mut document = Document::parse(*doc)?;
        let id = document.id.clone().unwrap_or_else(|| node.uuid());
        policy.documents.check_id(database, &id)?;
        policy.documents.check_document(&document)?;
        if write::is_foreign_to_local(&id, &document) {
            attachments::check(&document)?;
            if mode == EditMode::Interactive {
                let error = Error::new(StatusCode::BAD_REQUEST, "error", InvalidRev::Format.to_string());
                rows.push(Row::Refused { id, error });
            }
            continue;
        }
        if is_replicator && let Err(error) = before_update(database, user, &id, &mut document, mode, waiting) {
            rows.push(Row::Refused { id, error: error.into() });
            continue;
        }
        design::complete(&id, &mut document, mode);
        let place = (database, reader, id.as_str());
        let attachments = attachments::resolve(place, &policy.attachments, &document, mode, HashMap::new(), waiting)?;
        rows.push(Row::Update(write::prepare(id, document, attachments, mode, &mut hasher)?));
    }
    Ok(rows)
}

async fn check_design_documents(request: &Request, rows: &mut [Row], mode: EditMode) -> Result<(), Error> {
    let database = request.database()?;
    for row in rows {
        let Row::Update(update) = row else { continue };
        if !update.id().starts_with("_design/") {
            continue;
        }
        if request.reader == Reader::Administrator
            && let Some(rev) = update.path().first().cloned()
            && design::is_stored(&request.threads, &database, update, mode).await?
        {
            *row = Row::Stored { id: update.id().to_owned(), rev };
            continue;
        }
        let mut checked = request.require_database_admin().await;
        if checked.is_ok() && !update.is_deletion() {
            checked = design::validate((&request.node, &request.threads), &database, update.body()).await;
        }
        if let Err(error) = checked {
            *row = Row::Refused { id: update.id().to_owned(), error };
        }
    }
    Ok(())
}

fn write_row(
    out: &mut Vec<u8>,
    id: &str,
    rev: Option<&Rev>,
    outcome: Result<Rev, Error>,
    mode: EditMode,
    is_short: bool,
) {
    // Replicators receive only failures.
    if outcome.is_ok() && mode == EditMode::Replicated {
        return;
    }
    if out.len() > 1 {
        out.push(b',');
    }
    append_object(out, |object| match outcome {
        Ok(rev) => {
            rev.write_json(object.value("ok", true).string("id", id).name("rev"));
            if is_short {
                object.value("accepted", true);
            }
        }
        Err(error) => {
            object.string("id", id);
            if let Some(rev) = rev.filter(|_| mode == EditMode::Replicated) {
                rev.write_json(object.name("rev"));
            }
            error.write_members(object);
        }
    });
}

/// Refuses each document, as CouchDB does for its old option for atomic requests. `docs` are those of the rows.
fn all_or_nothing(rows: &[Row], docs: &[Value<'_>]) -> Response {
    let mut out = Vec::new();
    write_array(&mut out, rows.iter().zip(docs), |out, (row, doc)| {
        append_object(out, |object| {
            let rev = object.string("id", row.id()).name("rev");
            // The edit of a local document contains no revision.
            match (row.replaced(), doc.get("_rev").and_then(Value::as_str)) {
                (Some(replaced), _) => replaced.write_json(rev),
                (None, Some(given)) => write_string(rev, &given),
                (None, None) => write_string(rev, "0-"),
            }
            object.string("error", "not_implemented").string("reason", "all_or_nothing is not supported");
        });
    });
    respond::json(StatusCode::EXPECTATION_FAILED, out)
}
