//! Batch of changes: asks the target for the missing revisions, fetches those from the source, and writes them.
//!
//! Documents stay bytes: a row of `_bulk_get` holds a slice that goes into a body of `_bulk_docs`. The memory of a
//! batch is bounded by [`FLUSH_BYTES`] and one document. The retry of a broken batch asks again for the missing
//! revisions, so that no revision is written twice.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use memchr::memmem;

use super::single::{self, Single};
use super::{Context, Failure};
use crate::peer::{Attempts, BulkDocs, BulkGet, PeerError, Refused, Wanted};
use crate::text::{elements, member, members};

const FLUSH_BYTES: usize = 2 << 20;

/// Errors of a target that do not concern the document itself.
const PASSING_ERRORS: [&str; 6] = [
    "internal_server_error",
    "timeout",
    "unknown_error",
    "service_unavailable",
    "too_many_requests",
    "all_workers_died",
];

pub(super) enum Ended {
    /// The exchange broke; a retry may succeed.
    Broken(Failure),
    Failed(Failure),
}

impl Ended {
    /// Classifies an error in an answer of the source that was read in part.
    pub(super) fn source(error: PeerError) -> Self {
        if error.is_passing() { Self::Broken(Failure::Source(error)) } else { Self::Failed(Failure::Source(error)) }
    }
}

/// Copies the changes of these rows of a feed to the target.
pub(super) async fn copy(context: Arc<Context>, rows: Vec<Bytes>) -> Result<(), Failure> {
    let (question, checked) = question(&rows);
    drop(rows);
    if checked == 0 {
        return Ok(());
    }
    context.progress.update(|statistics| statistics.revisions_checked += checked);
    let mut tries = Attempts::new(context.source.tuning());
    let mut first = true;
    loop {
        let failure = match attempt(&context, question.clone(), first).await {
            Ok(()) => return Ok(()),
            Err(Ended::Failed(failure)) => return Err(failure),
            Err(Ended::Broken(failure)) => failure,
        };
        first = false;
        if !tries.wait(None).await {
            return Err(failure);
        }
        tracing::info!("a batch of a replication is retried: {failure}");
    }
}

/// Returns the body of `_revs_diff` and the number of its revisions. Later rows of the same document replace earlier
/// ones, because the last member of a name counts.
fn question(rows: &[Bytes]) -> (Bytes, u64) {
    let mut body = b"{".to_vec();
    let mut checked = 0;
    for row in rows {
        let (Some(id), Some(changes)) = (member(row, "id"), member(row, "changes")) else { continue };
        if body.len() > 1 {
            body.push(b',');
        }
        body.extend_from_slice(id);
        body.extend_from_slice(b":[");
        for (_, change) in elements(changes) {
            let Some(rev) = member(change, "rev") else { continue };
            if body.last() != Some(&b'[') {
                body.push(b',');
            }
            body.extend_from_slice(rev);
            checked += 1;
        }
        body.push(b']');
    }
    body.push(b'}');
    (Bytes::from(body), checked)
}

async fn attempt(context: &Arc<Context>, question: Bytes, first: bool) -> Result<(), Ended> {
    let wanted = missing(context, question).await.map_err(|error| Ended::Failed(Failure::Target(error)))?;
    if wanted.is_empty() {
        return Ok(());
    }
    let revisions: u64 = wanted.iter().map(|wanted| wanted.revs.len() as u64).sum();
    if first {
        context.progress.update(|statistics| statistics.missing_revisions_found += revisions);
    }
    let mut writer = Writer::new(context);
    let mut singles = Vec::new();
    match fetch_all(context, &wanted, &mut writer, &mut singles).await {
        Ok(()) => {}
        Err(ended @ Ended::Broken(_)) => {
            // The received documents are written: the retry does not request them again.
            writer.flush().await?;
            return Err(ended);
        }
        Err(ended) => return Err(ended),
    }
    single::copy_all(context, singles, &mut writer).await?;
    writer.flush().await
}

/// Asks the target for the missing revisions, in smaller requests if the target rejects the whole request as too long
/// (413).
async fn missing(context: &Context, question: Bytes) -> Result<Vec<Wanted>, PeerError> {
    let (mut questions, mut wanted) = (vec![question], Vec::new());
    while let Some(question) = questions.pop() {
        match context.target.revs_diff(question.clone()).await {
            Ok(more) => wanted.extend(more),
            Err(error) if error.is_too_large() => {
                let (first, second) = halves(&question).ok_or(error)?;
                questions.extend([second, first]);
            }
            Err(error) => return Err(error),
        }
    }
    Ok(wanted)
}

/// Divides the members of an object between two objects. `None` if it has fewer than two.
fn halves(object: &Bytes) -> Option<(Bytes, Bytes)> {
    let members: Vec<(&[u8], &[u8])> = members(object).collect();
    let (first, second) = members.split_at(members.len() / 2);
    let object = |members: &[(&[u8], &[u8])]| {
        let members: Vec<Vec<u8>> = members.iter().map(|(name, value)| [*name, b":", *value].concat()).collect();
        Bytes::from([&b"{"[..], &members.join(&b","[..]), b"}"].concat())
    };
    (!first.is_empty()).then(|| (object(first), object(second)))
}

/// Fetches revisions by `_bulk_get`, in smaller requests if the source rejects the whole request as too long (413); the
/// remaining revisions are added to `singles`.
async fn fetch_all(
    context: &Context,
    wanted: &[Wanted],
    writer: &mut Writer<'_>,
    singles: &mut Vec<Single>,
) -> Result<(), Ended> {
    let mut parts = vec![wanted];
    while let Some(part) = parts.pop() {
        match context.source.bulk_get(part).await {
            Ok(Some(bulk)) => fetch(context, part, bulk, writer, singles).await?,
            Ok(None) => singles.extend(part.iter().flat_map(Single::of)),
            Err(error) if error.is_too_large() && part.len() > 1 => {
                let (first, second) = part.split_at(part.len() / 2);
                parts.extend([second, first]);
            }
            Err(error) if error.is_too_large() => singles.extend(part.iter().flat_map(Single::of)),
            Err(error) => return Err(Ended::Failed(Failure::Source(error))),
        }
    }
    Ok(())
}

/// Reads the answer of one `_bulk_get` request.
async fn fetch(
    context: &Context,
    wanted: &[Wanted],
    mut bulk: BulkGet,
    writer: &mut Writer<'_>,
    singles: &mut Vec<Single>,
) -> Result<(), Ended> {
    let asked: u64 = wanted.iter().map(|wanted| wanted.revs.len() as u64).sum();
    context.progress.update(|statistics| statistics.bulk_get_attempts += asked);
    let mut places = Places::new(wanted);
    // Number of revisions of each document that are done.
    let mut settled = vec![0usize; wanted.len()];
    while let Some(got) = bulk.next().await.map_err(Ended::source)? {
        let Some(place) = places.find(&got.id) else { continue };
        let count = got.documents.len();
        context.progress.update(|statistics| statistics.bulk_get_docs += count as u64);
        settled[place] += count;
        for document in got.documents {
            if has_attachments(&document) {
                singles.extend(Single::attached(&wanted[place], &document));
            } else if wanted[place].id.as_bytes().starts_with(b"\"_design/") {
                singles.push(Single::design(&wanted[place], document));
            } else {
                context.progress.update(|statistics| statistics.docs_read += 1);
                writer.push(document).await?;
            }
        }
    }
    let unsettled = wanted.iter().zip(settled).filter(|(wanted, settled)| *settled < wanted.revs.len());
    singles.extend(unsettled.flat_map(|(wanted, _)| Single::of(wanted)));
    Ok(())
}

pub(super) fn has_attachments(document: &[u8]) -> bool {
    // A search for the name, at any position, is enough for nearly all documents.
    memmem::find(document, b"\"_attachments\"").is_some()
        && member(document, "_attachments").is_some_and(|attachments| members(attachments).next().is_some())
}

/// Finds documents by id; answers are nearly always in the order of the requests.
struct Places<'a> {
    wanted: &'a [Wanted],
    next: usize,
    by_id: HashMap<&'a [u8], usize>,
}

impl<'a> Places<'a> {
    fn new(wanted: &'a [Wanted]) -> Self {
        Self { wanted, next: 0, by_id: HashMap::new() }
    }

    fn find(&mut self, id: &[u8]) -> Option<usize> {
        for place in self.next..self.wanted.len().min(self.next + 2) {
            if self.wanted[place].id.as_bytes() == id {
                self.next = place;
                return Some(place);
            }
        }
        if self.by_id.is_empty() {
            self.by_id = self.wanted.iter().enumerate().map(|(place, wanted)| (wanted.id.as_bytes(), place)).collect();
        }
        if let Some(place) = self.by_id.get(id) {
            return Some(*place);
        }
        // The same id may be escaped differently.
        let json = settee_model::json::Json::parse(id).ok()?;
        let id = json.value().as_str()?;
        self.wanted.iter().position(|wanted| wanted.id() == id)
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

    pub(super) async fn push(&mut self, document: Bytes) -> Result<(), Ended> {
        self.bytes += document.len();
        self.documents.push(document);
        if self.bytes >= FLUSH_BYTES { self.flush().await } else { Ok(()) }
    }

    async fn flush(&mut self) -> Result<(), Ended> {
        let documents = std::mem::take(&mut self.documents);
        self.bytes = 0;
        write(self.context, &documents).await
    }
}

/// Writes documents, in smaller batches if the target requires it.
async fn write(context: &Context, documents: &[Bytes]) -> Result<(), Ended> {
    let mut batches = vec![documents];
    while let Some(batch) = batches.pop() {
        if batch.is_empty() {
            continue;
        }
        let answer = context.target.bulk_docs(batch).await.map_err(|error| Ended::Failed(Failure::Target(error)))?;
        match answer {
            BulkDocs::Taken(refused) => {
                let (passing, refused): (Vec<Refused>, Vec<Refused>) =
                    refused.into_iter().partition(|refused| PASSING_ERRORS.contains(&refused.error.as_str()));
                let written = batch.len().saturating_sub(refused.len() + passing.len()) as u64;
                refused.iter().for_each(|refused| context.refused(refused));
                context.progress.update(|statistics| statistics.docs_written += written);
                if let Some(passing) = passing.into_iter().next() {
                    return Err(Ended::Broken(Failure::Document(passing.id, passing.error)));
                }
            }
            BulkDocs::BodyRefused(status) if batch.len() == 1 => {
                let text = |name| member(&batch[0], name).map(|text| String::from_utf8_lossy(text).into_owned());
                context.refused(&Refused {
                    id: text("_id").unwrap_or_default(),
                    rev: text("_rev").unwrap_or_default(),
                    error: status.to_string(),
                    reason: "the target does not take a body with this document".to_owned(),
                });
            }
            BulkDocs::BodyRefused(_) => {
                let (first, second) = batch.split_at(batch.len() / 2);
                batches.push(second);
                batches.push(first);
            }
        }
    }
    Ok(())
}
