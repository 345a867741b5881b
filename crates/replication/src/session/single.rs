//! Documents that are copied individually: those with attachments, whose bytes are streamed; design documents, which a
//! target may reject; and documents that `_bulk_get` did not return.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use settee_model::json::{Json, Value, write_string};
use settee_wire::multipart::{Attached, Event, Writer as Parts};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::batch::{CopyError, Writer, has_attachments};
use super::context::{Context, Failure};
use crate::peer::documents::{MissingRevs, PutOutcome, Rejected};
use crate::peer::open_revs::{OpenRevs, OpenRevsItem};
use crate::peer::{Attempts, PeerError, channel_body};
use crate::rows::MAX_ROW_BYTES;
use crate::transport::TransportError;

const PIECES: usize = 4;

#[derive(Clone, Debug)]
pub(super) struct SingleRevision {
    id: String,
    rev: String,
    possible_ancestors: Vec<String>,
    document: Option<Bytes>,
}

impl SingleRevision {
    pub(super) fn of(wanted: &MissingRevs) -> impl Iterator<Item = Self> {
        wanted.revs.iter().map(|rev| Self {
            id: wanted.id(),
            rev: rev.clone(),
            possible_ancestors: wanted.possible_ancestors.clone(),
            document: None,
        })
    }

    /// `document` was received without the bytes of its attachments.
    pub(super) fn attached(wanted: &MissingRevs, document: &[u8]) -> Option<Self> {
        let possible_ancestors = wanted.possible_ancestors.clone();
        Some(Self { id: wanted.id(), rev: rev_of(document)?, possible_ancestors, document: None })
    }

    pub(super) fn design(wanted: &MissingRevs, document: Bytes) -> Self {
        let rev = rev_of(&document).unwrap_or_default();
        Self { id: wanted.id(), rev, possible_ancestors: Vec::new(), document: Some(document) }
    }
}

fn rev_of(document: &[u8]) -> Option<String> {
    Value::trusted(document).get("_rev")?.as_str().map(Cow::into_owned)
}

pub(super) async fn copy_all(
    context: &Arc<Context>,
    singles: Vec<SingleRevision>,
    writer: &mut Writer<'_>,
) -> Result<(), CopyError> {
    let tuning = context.source.tuning();
    let at_once = (tuning.http_connections / tuning.worker_processes).max(1);
    let mut running = JoinSet::new();
    let mut singles = singles.into_iter();
    loop {
        while running.len() < at_once
            && let Some(single) = singles.next()
        {
            running.spawn(copy(context.clone(), single));
        }
        match running.join_next().await {
            None => return Ok(()),
            Some(Ok(documents)) => {
                for document in documents? {
                    context.progress.update(|statistics| statistics.docs_read += 1);
                    writer.push(document).await?;
                }
            }
            Some(Err(error)) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                Err(_cancelled) => return Ok(()),
            },
        }
    }
}

/// Retries if the connection breaks. Returns documents that can be written in a batch.
async fn copy(context: Arc<Context>, single: SingleRevision) -> Result<Vec<Bytes>, CopyError> {
    let mut tries = Attempts::new(context.source.tuning());
    let mut single = single;
    loop {
        let failure = match attempt(&context, &single).await {
            Ok(Attempt::Done(documents)) => return Ok(documents),
            Ok(Attempt::MissingStub) if !single.possible_ancestors.is_empty() => {
                // The target has lost its revisions, so all bytes must be sent.
                single.possible_ancestors.clear();
                continue;
            }
            Ok(Attempt::MissingStub) => {
                let (error, reason) = ("missing_stub".to_owned(), String::new());
                context.record_rejection(&Rejected { id: single.id, rev: single.rev, error, reason });
                return Ok(Vec::new());
            }
            // The revision may not have reached this node of a cluster yet, or was purged.
            Ok(Attempt::Missing) => Failure::Missing(single.id.clone(), single.rev.clone()),
            Err(CopyError::Retryable(failure)) => failure,
            Err(ended @ CopyError::Failed(_)) => return Err(ended),
        };
        if !tries.wait(None).await {
            return Err(CopyError::Failed(failure));
        }
        tracing::info!("the copy of a document is retried: {failure}");
    }
}

enum Attempt {
    Done(Vec<Bytes>),
    Missing,
    /// The target lacks an attachment whose bytes were not sent.
    MissingStub,
}

async fn attempt(context: &Context, single: &SingleRevision) -> Result<Attempt, CopyError> {
    if let Some(document) = &single.document {
        return put_single(context, single, document.clone()).await;
    }
    let opened = context.source.open_revs(&single.id, &single.rev, &single.possible_ancestors).await;
    let mut opened = opened.map_err(|error| CopyError::Failed(Failure::Source(error)))?;
    let (mut documents, mut has_revision) = (Vec::new(), false);
    while let Some(arriving) = opened.next().await.map_err(CopyError::source)? {
        let attempt = match arriving {
            OpenRevsItem::Missing => continue,
            OpenRevsItem::Related => related(context, single, &mut opened).await?,
            OpenRevsItem::Document(document) if has_attachments(&document) && opened.sends_no_attachments() => {
                stubbed(context, single, &document).await?
            }
            OpenRevsItem::Document(document) if has_attachments(&document) || single.id.starts_with("_design/") => {
                put_single(context, single, document).await?
            }
            OpenRevsItem::Document(document) => {
                documents.push(document);
                has_revision = true;
                continue;
            }
        };
        if matches!(attempt, Attempt::MissingStub) {
            return Ok(attempt);
        }
        has_revision = true;
    }
    // An empty response is treated as a missing revision.
    Ok(if has_revision { Attempt::Done(documents) } else { Attempt::Missing })
}

async fn put_single(context: &Context, single: &SingleRevision, document: Bytes) -> Result<Attempt, CopyError> {
    let rev = rev_of(&document).unwrap_or_else(|| single.rev.clone());
    let put = context.target.put_document(&single.id, &rev, document).await;
    done(context, put.map_err(|error| CopyError::Failed(Failure::Target(error)))?)
}

fn done(context: &Context, put: PutOutcome) -> Result<Attempt, CopyError> {
    match put {
        PutOutcome::MissingStub => return Ok(Attempt::MissingStub),
        PutOutcome::Accepted => context.progress.update(|statistics| {
            statistics.docs_read += 1;
            statistics.docs_written += 1;
        }),
        PutOutcome::Rejected(rejected) => {
            context.progress.update(|statistics| statistics.docs_read += 1);
            context.record_rejection(&rejected);
        }
    }
    Ok(Attempt::Done(Vec::new()))
}

struct PendingAttachment {
    name: String,
    content_type: String,
    length: u64,
    encoding: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// Bytes as the source stores them, possibly compressed.
    Stored,
    Identity,
}

/// Returns the attachments with the member `mark`, in their order. `None` if one has no length.
fn attachments_with(document: &Json, mark: &str, coding: Coding) -> Option<Vec<PendingAttachment>> {
    let attachments = document.value().get("_attachments")?;
    let marked = attachments.members().filter(|(_, value)| value.get(mark).and_then(Value::as_bool) == Some(true));
    let attachments_left = marked.map(|(name, value)| {
        let text = |name| value.get(name).and_then(Value::as_str).map(Cow::into_owned);
        let encoding = text("encoding").filter(|encoding| coding == Coding::Stored && encoding != "identity");
        let length = match encoding {
            Some(_) => value.get("encoded_length"),
            None => value.get("length"),
        };
        Some(PendingAttachment {
            name: name.as_str()?.into_owned(),
            content_type: text("content_type").unwrap_or_else(|| "application/octet-stream".to_owned()),
            length: length?.as_u64()?,
            encoding,
        })
    });
    attachments_left.collect()
}

async fn related(context: &Context, single: &SingleRevision, opened: &mut OpenRevs) -> Result<Attempt, CopyError> {
    let text = related_document(opened).await.map_err(CopyError::source)?;
    let document = Json::parse(&text).map_err(|_| CopyError::source(opened.protocol("a document is not JSON")))?;
    let attachments_left = attachments_with(&document, "follows", Coding::Stored)
        .ok_or_else(|| CopyError::source(opened.protocol("an attachment has no length")))?;
    let body = Body::new(context, document.as_bytes(), &attachments_left);
    let (sender, receiver) = mpsc::channel(PIECES);
    let pump = async {
        let result = pump_related(opened, &attachments_left, &body, &sender).await;
        finish(result, sender).await
    };
    let rev = rev_of(document.as_bytes()).unwrap_or_else(|| single.rev.clone());
    let put = put_streamed(context, single, &rev, &body, receiver, pump).await?;
    done(context, put)
}

async fn related_document(opened: &mut OpenRevs) -> Result<Bytes, PeerError> {
    let mut text = Vec::new();
    loop {
        match opened.related().await? {
            Event::Part(_) => {}
            Event::Data(bytes) if text.len() + bytes.len() > MAX_ROW_BYTES => {
                return Err(opened.protocol("a document is too long"));
            }
            Event::Data(bytes) => text.extend_from_slice(&bytes),
            Event::PartEnd => return Ok(Bytes::from(text)),
            Event::End => return Err(opened.protocol("it contains no document")),
        }
    }
}

struct Body {
    content_type: String,
    begin: Bytes,
    heads: Vec<Bytes>,
    end: Bytes,
    length: u64,
}

impl Body {
    fn new(context: &Context, document: &[u8], attachments_left: &[PendingAttachment]) -> Self {
        let parts = Parts::new((context.services.new_uuid)());
        let mut begin = Vec::with_capacity(document.len() + 128);
        parts.begin(&mut begin);
        parts.part(&mut begin, [("Content-Type", "application/json")]);
        begin.extend_from_slice(document);
        let heads = attachments_left.iter().map(|attachments_left| {
            let mut head = Vec::new();
            parts.part_end(&mut head);
            parts.attachment(
                &mut head,
                Attached {
                    name: &attachments_left.name,
                    content_type: &attachments_left.content_type,
                    length: attachments_left.length,
                    encoding: attachments_left.encoding.as_deref(),
                },
            );
            Bytes::from(head)
        });
        let heads: Vec<Bytes> = heads.collect();
        let mut end = Vec::new();
        parts.part_end(&mut end);
        parts.end(&mut end);
        let text = begin.len() + end.len() + heads.iter().map(Bytes::len).sum::<usize>();
        let length = text as u64 + attachments_left.iter().map(|attachments_left| attachments_left.length).sum::<u64>();
        let content_type = parts.content_type("multipart/related");
        Self { content_type, begin: begin.into(), heads, end: end.into(), length }
    }
}

type Pieces = mpsc::Sender<Result<Bytes, TransportError>>;

/// The target has already responded, so the pieces are not needed.
struct BodyNotNeeded;

enum Stop {
    BodyNotNeeded,
    Source(PeerError),
}

impl From<BodyNotNeeded> for Stop {
    fn from(_: BodyNotNeeded) -> Self {
        Self::BodyNotNeeded
    }
}

impl From<PeerError> for Stop {
    fn from(error: PeerError) -> Self {
        Self::Source(error)
    }
}

async fn send(pieces: &Pieces, bytes: Bytes) -> Result<(), BodyNotNeeded> {
    pieces.send(Ok(bytes)).await.map_err(|_| BodyNotNeeded)
}

async fn pump_related(
    opened: &mut OpenRevs,
    attachments_left: &[PendingAttachment],
    body: &Body,
    pieces: &Pieces,
) -> Result<(), Stop> {
    send(pieces, body.begin.clone()).await?;
    let mut waiting: Vec<usize> = (0..attachments_left.len()).collect();
    loop {
        match opened.related().await? {
            Event::Part(head) => {
                // Parts without a name are in the order of the document.
                let name = head.filename();
                let named =
                    waiting.iter().position(|position| Some(&attachments_left[*position].name) == name.as_ref());
                if waiting.is_empty() {
                    return Err(opened.protocol("it has more parts than attachments").into());
                }
                let position = waiting.remove(named.unwrap_or(0));
                send(pieces, body.heads[position].clone()).await?;
            }
            Event::Data(bytes) => send(pieces, bytes).await?,
            Event::PartEnd => {}
            Event::End => break,
        }
    }
    send(pieces, body.end.clone()).await?;
    Ok(())
}

async fn finish(result: Result<(), Stop>, pieces: Pieces) -> Result<(), PeerError> {
    match result {
        Ok(()) | Err(Stop::BodyNotNeeded) => Ok(()),
        Err(Stop::Source(error)) => {
            let _ = pieces.send(Err(TransportError::Broken("the source failed".to_owned()))).await;
            Err(error)
        }
    }
}

async fn put_streamed(
    context: &Context,
    single: &SingleRevision,
    rev: &str,
    body: &Body,
    pieces: mpsc::Receiver<Result<Bytes, TransportError>>,
    pump: impl Future<Output = Result<(), PeerError>>,
) -> Result<PutOutcome, CopyError> {
    let stream = channel_body(pieces, body.length);
    let put = context.target.put_related(&single.id, rev, &body.content_type, stream, body.length);
    tokio::pin!(put, pump);
    let mut pumped = None;
    let put = loop {
        tokio::select! {
            put = &mut put => break put,
            result = &mut pump, if pumped.is_none() => pumped = Some(result),
        }
    };
    match (put, pumped) {
        (_, Some(Err(error))) => Err(CopyError::source(error)),
        (Ok(put), _) => Ok(put),
        (Err(error), _) if error.is_transient() => Err(CopyError::Retryable(Failure::Target(error))),
        (Err(error), _) => Err(CopyError::Failed(Failure::Target(error))),
    }
}

/// Requests each attachment separately, because the source does not send attachment bytes with the document.
async fn stubbed(context: &Context, single: &SingleRevision, text: &[u8]) -> Result<Attempt, CopyError> {
    let fail = |url: &str, detail: &str| {
        let (method, url, detail) = ("GET".to_owned(), url.to_owned(), detail.to_owned());
        CopyError::Failed(Failure::Source(PeerError::Protocol { method, url, detail }))
    };
    let document = Json::parse(text).map_err(|_| fail(&single.id, "a document is not JSON"))?;
    let attachments_left = attachments_with(&document, "stub", Coding::Identity)
        .ok_or_else(|| fail(&single.id, "an attachment has no length"))?;
    let rev = rev_of(text).unwrap_or_else(|| single.rev.clone());
    let body = Body::new(context, &following_document(&document), &attachments_left);
    let (sender, receiver) = mpsc::channel(PIECES);
    let pump = async {
        let result = pump_stubs(context, single, &rev, &attachments_left, &body, &sender).await;
        finish(result, sender).await
    };
    let put = put_streamed(context, single, &rev, &body, receiver, pump).await?;
    done(context, put)
}

async fn pump_stubs(
    context: &Context,
    single: &SingleRevision,
    rev: &str,
    attachments_left: &[PendingAttachment],
    body: &Body,
    pieces: &Pieces,
) -> Result<(), Stop> {
    send(pieces, body.begin.clone()).await?;
    for (attachment, head) in attachments_left.iter().zip(&body.heads) {
        send(pieces, head.clone()).await?;
        let (ask, mut stream) = context.source.attachment(&single.id, rev, &attachment.name).await?;
        while let Some(bytes) = stream.next().await.map_err(|error| ask.transport(error))? {
            send(pieces, bytes).await?;
        }
    }
    send(pieces, body.end.clone()).await?;
    Ok(())
}

fn following_document(document: &Json) -> Vec<u8> {
    let mut out = b"{".to_vec();
    for (name, value) in document.value().members() {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(name.raw());
        out.push(b':');
        if name.is_string("_attachments") {
            write_following(value, &mut out);
        } else {
            out.extend_from_slice(value.raw());
        }
    }
    out.push(b'}');
    out
}

fn write_following(attachments: Value<'_>, out: &mut Vec<u8>) {
    out.push(b'{');
    for (index, (name, attachment)) in attachments.members().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(name.raw());
        out.extend_from_slice(b":{");
        let mut first = true;
        for (name, value) in attachment.members() {
            let name = name.as_str().unwrap_or_default();
            // The digest is that of the encoded bytes.
            if ["encoding", "encoded_length", "digest"].contains(&name.as_ref()) {
                continue;
            }
            if !std::mem::take(&mut first) {
                out.push(b',');
            }
            write_string(out, if name == "stub" { "follows" } else { &name });
            out.push(b':');
            out.extend_from_slice(value.raw());
        }
        out.push(b'}');
    }
    out.push(b'}');
}
