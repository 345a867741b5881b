//! Copies a batch of changes: the target lists its missing revisions, which are fetched from the source and written.
//! Documents remain bytes: a row of `_bulk_get` is a slice that becomes a part of a body of `_bulk_docs`. Memory is
//! bounded by [`FLUSH_BYTES`] and one document. A retry requests the missing revisions again, so none is written twice.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;
use settee_model::json::{Json, Value};

use super::context::{Context, Failure};
use super::single::{self, SingleRevision};
use crate::peer::documents::{BulkDocsOutcome, BulkGet, MissingRevs, Rejected};
use crate::peer::{Attempts, PeerError};

const FLUSH_BYTES: usize = 2 << 20;

/// Errors of a target that do not concern the document itself.
const TRANSIENT_ERRORS: [&str; 6] = [
    "internal_server_error",
    "timeout",
    "unknown_error",
    "service_unavailable",
    "too_many_requests",
    "all_workers_died",
];

pub(super) enum CopyError {
    Retryable(Failure),
    Failed(Failure),
}

impl CopyError {
    pub(super) fn source(error: PeerError) -> Self {
        if error.is_transient() {
            Self::Retryable(Failure::Source(error))
        } else {
            Self::Failed(Failure::Source(error))
        }
    }
}

pub(super) async fn copy(context: Arc<Context>, rows: Vec<Bytes>) -> Result<(), Failure> {
    let (revs_diff_body, checked) = revs_diff_body(&rows);
    drop(rows);
    if checked == 0 {
        return Ok(());
    }
    context.progress.update(|statistics| statistics.revisions_checked += checked);
    let mut tries = Attempts::new(context.source.tuning());
    let mut first = true;
    loop {
        let failure = match attempt(&context, revs_diff_body.clone(), first).await {
            Ok(()) => return Ok(()),
            Err(CopyError::Failed(failure)) => return Err(failure),
            Err(CopyError::Retryable(failure)) => failure,
        };
        first = false;
        if !tries.wait(None).await {
            return Err(failure);
        }
        tracing::info!("a batch of a replication is retried: {failure}");
    }
}

/// Body of `_revs_diff`, and number of its revisions. The last of several rows of a document applies.
fn revs_diff_body(rows: &[Bytes]) -> (Bytes, u64) {
    let mut body = b"{".to_vec();
    let mut checked = 0;
    for row in rows {
        let row = Value::trusted(row);
        let (Some(id), Some(changes)) = (row.get("id"), row.get("changes")) else { continue };
        if body.len() > 1 {
            body.push(b',');
        }
        body.extend_from_slice(id.raw());
        body.extend_from_slice(b":[");
        for change in changes.elements() {
            let Some(rev) = change.get("rev") else { continue };
            if body.last() != Some(&b'[') {
                body.push(b',');
            }
            body.extend_from_slice(rev.raw());
            checked += 1;
        }
        body.push(b']');
    }
    body.push(b'}');
    (Bytes::from(body), checked)
}

async fn attempt(context: &Arc<Context>, revs_diff_body: Bytes, first: bool) -> Result<(), CopyError> {
    let missing =
        context.target.revs_diff(revs_diff_body).await.map_err(|error| CopyError::Failed(Failure::Target(error)))?;
    if missing.is_empty() {
        return Ok(());
    }
    let revisions: u64 = missing.iter().map(|missing| missing.revs.len() as u64).sum();
    if first {
        context.progress.update(|statistics| statistics.missing_revisions_found += revisions);
    }
    let mut writer = Writer::new(context);
    let mut singles = Vec::new();
    match fetch_all(context, &missing, &mut writer, &mut singles).await {
        Ok(()) => {}
        Err(ended @ CopyError::Retryable(_)) => {
            // The received documents are written, so the retry does not request them.
            writer.flush().await?;
            return Err(ended);
        }
        Err(ended) => return Err(ended),
    }
    single::copy_all(context, singles, &mut writer).await?;
    writer.flush().await
}

async fn fetch_all(
    context: &Context,
    missing: &[MissingRevs],
    writer: &mut Writer<'_>,
    singles: &mut Vec<SingleRevision>,
) -> Result<(), CopyError> {
    let mut parts = vec![missing];
    while let Some(part) = parts.pop() {
        match context.source.bulk_get(part).await {
            Ok(Some(bulk)) => fetch(context, part, bulk, writer, singles).await?,
            Ok(None) => singles.extend(part.iter().flat_map(SingleRevision::of)),
            Err(error) if error.is_too_large() && part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) if error.is_too_large() => singles.extend(part.iter().flat_map(SingleRevision::of)),
            Err(error) => return Err(CopyError::Failed(Failure::Source(error))),
        }
    }
    Ok(())
}

async fn fetch(
    context: &Context,
    missing: &[MissingRevs],
    mut bulk: BulkGet,
    writer: &mut Writer<'_>,
    singles: &mut Vec<SingleRevision>,
) -> Result<(), CopyError> {
    let requested: u64 = missing.iter().map(|missing| missing.revs.len() as u64).sum();
    context.progress.update(|statistics| statistics.bulk_get_attempts += requested);
    let mut index = RequestIndex::new(missing);
    let mut received = vec![0usize; missing.len()];
    while let Some(bulk_get_row) = bulk.next().await.map_err(CopyError::source)? {
        let Some(position) = index.find(&bulk_get_row.id) else { continue };
        let count = bulk_get_row.documents.len();
        context.progress.update(|statistics| statistics.bulk_get_docs += count as u64);
        received[position] += count;
        for document in bulk_get_row.documents {
            if has_attachments(&document) {
                singles.extend(SingleRevision::attached(&missing[position], &document));
            } else if missing[position].id.as_bytes().starts_with(b"\"_design/") {
                singles.push(SingleRevision::design(&missing[position], document));
            } else {
                context.progress.update(|statistics| statistics.docs_read += 1);
                writer.push(document).await?;
            }
        }
    }
    let incomplete = missing.iter().zip(received).filter(|(missing, received)| *received < missing.revs.len());
    singles.extend(incomplete.flat_map(|(missing, _)| SingleRevision::of(missing)));
    Ok(())
}

pub(super) fn has_attachments(document: &[u8]) -> bool {
    // A search for the name, at any position, is enough for nearly all documents.
    memmem::find(document, b"\"_attachments\"").is_some()
        && Value::trusted(document)
            .get("_attachments")
            .is_some_and(|attachments| attachments.members().next().is_some())
}

/// Finds documents by id. Responses are nearly always in the order of the requests.
struct RequestIndex<'a> {
    missing: &'a [MissingRevs],
    next: usize,
    by_id: HashMap<&'a [u8], usize>,
}

impl<'a> RequestIndex<'a> {
    fn new(missing: &'a [MissingRevs]) -> Self {
        Self { missing, next: 0, by_id: HashMap::new() }
    }

    fn find(&mut self, id: &[u8]) -> Option<usize> {
        for position in self.next..self.missing.len().min(self.next + 2) {
            if self.missing[position].id.as_bytes() == id {
                self.next = position;
                return Some(position);
            }
        }
        if self.by_id.is_empty() {
            self.by_id =
                self.missing.iter().enumerate().map(|(position, missing)| (missing.id.as_bytes(), position)).collect();
        }
        if let Some(position) = self.by_id.get(id) {
            return Some(*position);
        }
        // The same id may be escaped differently.
        let json = Json::parse(id).ok()?;
        let id = json.value().as_str()?;
        self.missing.iter().position(|missing| missing.id() == id)
    }
}

pub(super) struct Writer<'a> {
    context: &'a Context,
    documents: Vec<Bytes>,
    bytes: usize,
}

impl<'a> Writer<'a> {
    fn new(context: &'a Context) -> Self {
        Self { context, documents: Vec::new(), bytes: 0 }
    }

    pub(super) async fn push(&mut self, document: Bytes) -> Result<(), CopyError> {
        self.bytes += document.len();
        self.documents.push(document);
        if self.bytes >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), CopyError> {
        let documents = std::mem::take(&mut self.documents);
        self.bytes = 0;
        write(self.context, &documents).await
    }
}

async fn write(context: &Context, documents: &[Bytes]) -> Result<(), CopyError> {
    let mut batches = vec![documents];
    while let Some(batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        let answer =
            context.target.bulk_docs(batch).await.map_err(|error| CopyError::Failed(Failure::Target(error)))?;
        match answer {
            BulkDocsOutcome::Accepted(rejected) => {
                let (passing, rejected): (Vec<Rejected>, Vec<Rejected>) =
                    rejected.into_iter().partition(|rejected| TRANSIENT_ERRORS.contains(&rejected.error.as_str()));
                let written = batch.len().saturating_sub(rejected.len() + passing.len()) as u64;
                rejected.iter().for_each(|rejected| context.record_rejection(rejected));
                context.progress.update(|statistics| statistics.docs_written += written);
                if let Some(passing) = passing.into_iter().next() {
                    return Err(CopyError::Retryable(Failure::Document(passing.id, passing.error)));
                }
            }
            BulkDocsOutcome::BodyRejected(status) if batch.len() == 1 => {
                let text = |name| {
                    let value = Value::trusted(&batch[0]).get(name);
                    value.map(|value| String::from_utf8_lossy(value.raw()).into_owned())
                };
                context.record_rejection(&Rejected {
                    id: text("_id").unwrap_or_default(),
                    rev: text("_rev").unwrap_or_default(),
                    error: status.to_string(),
                    reason: "the target does not take a body with this document".to_owned(),
                });
            }
            BulkDocsOutcome::BodyRejected(_) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                batches.push(second);
                batches.push(first);
            }
        }
    }
    Ok(())
}
