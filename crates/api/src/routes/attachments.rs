//! Attachments: GET (with ranges), PUT and DELETE.

use std::ops::ControlFlow;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use settee_database::{
    Attachment, Compression, ContentEncoding, EditMode, Form, Head, NewAttachment, NewAttachments, ReadView, Upload,
    Waiting,
};
use settee_edge::accept;
use settee_edge::bridge::Output;
use settee_edge::etag;
use settee_model::json::Json;
use settee_model::{DEFAULT_CONTENT_TYPE, Document, Rev, Revisions, validate_attachment_name};
use settee_settings::csp;
use settee_wire::multipart::Writer;

use super::documents::doc_id;
use super::partition::check_place;
use super::write::{Edit, Incoming, check_id, save};
use crate::Error;
use crate::attachments::upload;
use crate::bridge;
use crate::params::document::{DocParams, replaced_rev};
use crate::path::encode_path;
use crate::request::Request;
use crate::respond::{self, Answer};
use crate::revision::attachments::each_piece;

/// Maximum number of ranges. As in CouchDB the response to more is the whole attachment.
const RANGES_MAX: usize = 9;

struct Asked {
    id: String,
    params: DocParams,
    /// `None` if the name is not UTF-8.
    name: Option<String>,
    takes_gzip: bool,
    takes_anything: bool,
    known: Option<String>,
    range: Option<String>,
    policy: Option<HeaderValue>,
    boundary: String,
}

pub(super) async fn get(request: Request) -> Answer {
    let database = request.database()?;
    request.node.users.visibility(&request.user, &database, &doc_id(&request)).await?.require_whole()?;
    let settings = &*request.node.settings;
    let sandbox = csp::ATTACHMENTS_ENABLE.of(settings);
    let value = csp::ATTACHMENTS_HEADER_VALUE.literal(settings);
    let asked = Asked {
        id: doc_id(&request),
        params: DocParams::resolve(&request.query)?,
        name: request.captures.require_text().is_ok().then(|| request.captures.get("attachment").to_owned()),
        takes_gzip: accept::accepts_gzip(&request.headers),
        takes_anything: accept::accepts_gzip_or_identity(&request.headers),
        known: request.header(header::IF_NONE_MATCH).map(str::to_owned),
        range: request.header(header::RANGE).map(str::to_owned),
        policy: HeaderValue::from_str(&value).ok().filter(|_| sandbox),
        boundary: request.node.uuid(),
    };
    check_place(&database, &asked.id)?;
    let reader = request.reader.clone();
    let mut response = bridge::answer(request.admit_response(), move |output, waiting| {
        let view = database.read_as(&reader, waiting)?;
        let attachment = find(&view, &asked)?;
        if !asked.takes_anything {
            return Err(Error::not_acceptable("unsupported encoding"));
        }
        match send(output, &view, &attachment, &asked) {
            Ok(_) => Ok(()),
            Err(error) => output.break_off(error),
        }
    })
    .await?;
    if response.status() == StatusCode::NOT_MODIFIED {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    Ok(response)
}

fn find(view: &ReadView<'_>, asked: &Asked) -> Result<Attachment, Error> {
    let record = view.record(&asked.id)?.ok_or_else(|| Error::not_found("missing"))?;
    let node = match &asked.params.rev {
        Some(rev) => record.tree.find(rev),
        None => record.tree.winner(|stored| stored.deleted),
    };
    let stored = node.and_then(|node| record.tree.node(node).value).ok_or_else(|| Error::not_found("missing"))?;
    if asked.params.rev.is_none() && stored.deleted && !asked.params.deleted {
        return Err(Error::not_found("deleted"));
    }
    let revision = view.revision(stored)?.ok_or_else(|| Error::not_found("missing"))?;
    let is_named = |attachment: &Attachment| Some(&attachment.name) == asked.name.as_ref();
    let found = revision.attachments.into_iter().find(is_named);
    found.ok_or_else(|| Error::not_found("Document is missing attachment"))
}

fn send(
    output: &mut Output,
    view: &ReadView<'_>,
    attachment: &Attachment,
    asked: &Asked,
) -> Result<ControlFlow<()>, Error> {
    let tag = tag(attachment);
    let mut headers = HeaderMap::new();
    respond::set(&mut headers, header::ETAG, &tag);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    if etag::is_known(asked.known.as_deref(), &tag) {
        output.set_head(settee_edge::bridge::Head::new(StatusCode::NOT_MODIFIED, headers));
        return Ok(ControlFlow::Continue(()));
    }
    headers.insert(header::CONTENT_TYPE, content_type(attachment));
    let is_plain = attachment.encoding == ContentEncoding::Identity;
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static(if is_plain { "bytes" } else { "none" }));
    if let Some(policy) = &asked.policy {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    }
    let content = view.content(attachment)?;
    let (form, length) = match (is_plain, asked.takes_gzip) {
        (true, _) => (Form::Stored, Some(attachment.length)),
        (false, true) => {
            headers.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
            (Form::Stored, Some(attachment.stored_length))
        }
        // The uncompressed length of data that was received compressed is unknown.
        (false, false) if attachment.length == attachment.stored_length => (Form::Identity, None),
        (false, false) => (Form::Identity, Some(attachment.length)),
    };
    let ranges = length.map_or(Ok(None), |length| ranges(asked.range.as_deref(), length))?;
    // Like CouchDB, the server rejects ranges beyond a compressed attachment and ignores others.
    let ranges = ranges.filter(|_| is_plain);
    if let Some(&[(from, to)]) = ranges.as_deref() {
        respond::set(&mut headers, header::CONTENT_RANGE, &format!("bytes {from}-{to}/{}", attachment.length));
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(to + 1 - from));
        output.set_head(settee_edge::bridge::Head::new(StatusCode::PARTIAL_CONTENT, headers));
        return copy_to_output(output, &mut content.range(from..to + 1));
    }
    if let Some(ranges) = ranges.filter(|ranges| ranges.len() <= RANGES_MAX) {
        return send_ranges(output, &content, attachment, &ranges, asked);
    }
    if let Some(length) = length {
        headers.insert(header::CONTENT_LENGTH, HeaderValue::from(length));
    }
    output.set_head(settee_edge::bridge::Head::new(StatusCode::OK, headers));
    copy_to_output(output, content.reader(form).as_mut())
}

fn send_ranges(
    output: &mut Output,
    content: &settee_database::Content,
    attachment: &Attachment,
    ranges: &[(u64, u64)],
    asked: &Asked,
) -> Result<ControlFlow<()>, Error> {
    let writer = Writer::new(asked.boundary.clone());
    let mut headers = HeaderMap::new();
    respond::set(&mut headers, header::CONTENT_TYPE, &writer.content_type("multipart/byteranges"));
    output.set_head(settee_edge::bridge::Head::new(StatusCode::PARTIAL_CONTENT, headers));
    writer.begin(output.text());
    // Like CouchDB, the server sends multipart ranges without a length.
    if output.begin().is_break() {
        return Ok(ControlFlow::Break(()));
    }
    for &(from, to) in ranges {
        let range = format!("bytes {from}-{to}/{}", attachment.length);
        let headers = [("Content-Type", attachment.content_type.as_str()), ("Content-Range", &range)];
        writer.part(output.text(), headers);
        if copy_to_output(output, &mut content.range(from..to + 1))?.is_break() {
            return Ok(ControlFlow::Break(()));
        }
        writer.part_end(output.text());
    }
    writer.end(output.text());
    Ok(ControlFlow::Continue(()))
}

fn copy_to_output(output: &mut Output, reader: &mut (impl std::io::Read + ?Sized)) -> Result<ControlFlow<()>, Error> {
    each_piece(reader, |piece| {
        output.text().extend_from_slice(piece);
        output.row_done()
    })
}

fn tag(attachment: &Attachment) -> String {
    let mut tag = b"\"".to_vec();
    attachment.write_digest(&mut tag);
    tag.push(b'"');
    String::from_utf8_lossy(&tag).into_owned()
}

fn content_type(attachment: &Attachment) -> HeaderValue {
    HeaderValue::from_str(&attachment.content_type).unwrap_or(HeaderValue::from_static(DEFAULT_CONTENT_TYPE))
}

/// Returns `None` for the whole attachment. As in CouchDB the response to an empty list has no parts. Unlike in
/// CouchDB, which omits the first byte, `-100` of 10 bytes is the whole attachment.
fn ranges(header: Option<&str>, length: u64) -> Result<Option<Vec<(u64, u64)>>, Error> {
    let Some(list) = header.and_then(|header| header.strip_prefix("bytes=")) else {
        return Ok(None);
    };
    let asked = list.split(',').map(str::trim).filter(|range| !range.is_empty()).map(parse_range);
    let Some(asked) = asked.collect::<Option<Vec<_>>>() else {
        return Ok(None);
    };
    let length = i128::from(length);
    let mut ranges = Vec::with_capacity(asked.len());
    for (from, to) in asked {
        if from == Some(0) && to.is_none() {
            return Ok(None);
        }
        let (from, to) = match (from, to) {
            (None, count) => (length.saturating_sub(count.unwrap_or_default()).max(0), length - 1),
            (Some(from), to) => (from, to.unwrap_or(length - 1).min(length - 1)),
        };
        match (u64::try_from(from), u64::try_from(to)) {
            (Ok(from), Ok(to)) if from <= to => ranges.push((from, to)),
            _ => {
                let reason = "Requested range not satisfiable";
                return Err(Error::new(StatusCode::RANGE_NOT_SATISFIABLE, "requested_range_not_satisfiable", reason));
            }
        }
    }
    Ok(Some(ranges))
}

/// Parses `from-to`, `from-`, `from` or `-count`.
fn parse_range(range: &str) -> Option<(Option<i128>, Option<i128>)> {
    if let Some(count) = range.strip_prefix('-') {
        return Some((None, Some(count.parse().ok()?)));
    }
    let mut numbers = range.split('-').filter(|number| !number.is_empty()).map(|number| number.parse().ok());
    let (from, to) = (numbers.next()??, numbers.next());
    if numbers.next().is_some() { None } else { Some((Some(from), to.map_or(Some(None), |to| to.map(Some))?)) }
}

pub(super) struct Base {
    pub(super) document: Document,
    pub(super) attachments: Vec<Attachment>,
}

fn document(rev: Option<Rev>, deleted: bool, body: Json) -> Document {
    Document { id: None, rev, deleted, body, attachments: None, revisions: None }
}

impl Base {
    /// Edits that would fail are rejected here, before any data is received.
    pub(super) fn read(view: &ReadView<'_>, id: &str, rev: Option<&Rev>) -> Result<Self, Error> {
        if let Some(rev) = rev {
            let (base, is_leaf) = Self::of_revision(view, id, rev)?;
            return if is_leaf { Ok(base) } else { Err(Error::conflict()) };
        }
        let live = |head: &Head| !head.stored.deleted;
        if view.record(id)?.and_then(|record| record.head()).as_ref().is_some_and(live) {
            return Err(Error::conflict());
        }
        Ok(Self { document: document(None, false, Json::empty_object()), attachments: Vec::new() })
    }

    /// Returns the base, and true if the revision is a leaf, so that it can be edited.
    fn of_revision(view: &ReadView<'_>, id: &str, rev: &Rev) -> Result<(Self, bool), Error> {
        let missing_rev = || Error::new(StatusCode::CONFLICT, "not_found", "missing_rev");
        let record = view.record(id)?.ok_or_else(missing_rev)?;
        let node = record.tree.find(rev).ok_or_else(missing_rev)?;
        let stored = record.tree.node(node).value.ok_or_else(missing_rev)?;
        let mut revision = view.revision(stored)?.ok_or_else(missing_rev)?;
        let attachments = std::mem::take(&mut revision.attachments);
        let body = Json::trusted(revision.into_body());
        let hashes = record.tree.history(node).map(|ancestor| record.tree.node(ancestor).rev.hash.clone()).collect();
        // Validation functions receive the whole history of a document that the server has read itself.
        let revisions = Some(Revisions { start: rev.generation, hashes });
        let document = Document { revisions, ..document(Some(rev.clone()), stored.deleted, body) };
        Ok((Self { document, attachments }, record.tree.is_leaf(node)))
    }

    fn of_removal(view: &ReadView<'_>, id: &str, rev: Option<&Rev>, name: &str) -> Result<Self, Error> {
        let (base, is_leaf) = match rev {
            Some(rev) => Self::of_revision(view, id, rev)?,
            None => (Self::shown(view, id)?, true),
        };
        if !base.attachments.iter().any(|attachment| attachment.name == name) {
            return Err(Error::not_found("Document is missing attachment"));
        }
        if is_leaf { Ok(base) } else { Err(Error::conflict()) }
    }

    /// The base has no revision, so that an edit of it is a conflict unless the document does not exist.
    fn shown(view: &ReadView<'_>, id: &str) -> Result<Self, Error> {
        let head = view.head(id)?.ok_or_else(|| Error::not_found("missing"))?;
        if head.stored.deleted {
            return Err(Error::not_found("deleted"));
        }
        let revision = view.revision(head.stored)?.ok_or_else(|| Error::not_found("missing"))?;
        Ok(Self { document: document(None, false, Json::empty_object()), attachments: revision.attachments })
    }
}

/// A larger upload has a thread.
const SHORT_BYTES: u64 = 16 << 10;
const _: () = assert!(SHORT_BYTES <= Upload::MEMORY_BYTES as u64);

fn some(content: Bytes) -> impl FnMut() -> Result<Option<Bytes>, Error> {
    let mut content = Some(content).filter(|content| !content.is_empty());
    move || Ok(content.take())
}

pub(super) async fn put(mut request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let name = name(&request)?;
    let given = request.headers.get(header::CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()));
    let content_type = given.map_or_else(|| DEFAULT_CONTENT_TYPE.to_owned(), std::borrow::Cow::into_owned);
    let policy = request.node.policy();
    let length = request.header(header::CONTENT_LENGTH).and_then(|length| length.parse().ok());
    policy.attachments.check(&name, length.unwrap_or(0))?;
    let compression = match request.header(header::CONTENT_ENCODING).map(|value| value.trim().to_ascii_lowercase()) {
        None => policy.attachments.compression(&content_type),
        Some(encoding) if encoding == "identity" => policy.attachments.compression(&content_type),
        Some(encoding) if encoding == "gzip" => Compression::Gzipped { length: None },
        Some(_) => {
            return Err(
                settee_edge::Error::bad_encoding("Only gzip and identity content-encodings are supported").into()
            );
        }
    };
    let rev = replaced_rev(&request.query, &request.headers, None)?;
    check_id(&request.node, &database, &id)?;
    let (store, doc, named) = (Arc::clone(&database), id.clone(), name.clone());
    let reader = request.reader.clone();
    let receive = move |next: &mut dyn FnMut() -> Result<Option<Bytes>, Error>, waiting: Waiting<'_>| {
        let base = Base::read(&store.read_as(&reader, waiting)?, &doc, rev.as_ref())?;
        let uploaded = upload(&store, &policy.attachments, &named, compression, next)?;
        let kept = base.attachments.into_iter().map(NewAttachment::kept).collect();
        let new = NewAttachment::uploaded(named.clone(), content_type.clone(), None, uploaded);
        Ok((base.document, NewAttachments::new(&store, kept)?.replaced(&store, vec![new])?))
    };
    let is_short = length.is_some_and(|length| length <= SHORT_BYTES);
    let (document, attachments) = if is_short && !request.headers.contains_key(header::CONTENT_ENCODING) {
        let content = request.read_body().await?;
        bridge::read(&request.threads, move |waiting| receive(&mut some(content.clone()), waiting)).await?
    } else {
        request.with_pieces(move |pieces| receive(&mut || Ok(pieces.next_piece()?), Waiting::Allowed)).await?
    };
    let edit = Edit { id, document, attachments: Incoming::Known(attachments), mode: EditMode::Interactive };
    let saved = save(&request, &database, edit).await?;
    let mut response = saved.answer(&request, StatusCode::CREATED);
    let (db, doc) = (encode_path(request.captures.get("db")), encode_path(&saved.id));
    let location = request.absolute(&format!("/{db}/{doc}/{}", encode_path(&name)));
    respond::set(response.headers_mut(), header::LOCATION, &location);
    Ok(response)
}

pub(super) async fn delete(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let name = name(&request)?;
    let rev = replaced_rev(&request.query, &request.headers, None)?;
    check_place(&database, &id)?;
    request.node.users.visibility(&request.user, &database, &id).await?.require_whole()?;
    let (store, reader, doc) = (Arc::clone(&database), request.reader.clone(), id.clone());
    let (document, attachments) = bridge::blocking(&request.threads, move || {
        let base = Base::of_removal(&store.read_as(&reader, Waiting::Allowed)?, &doc, rev.as_ref(), &name)?;
        let others = base.attachments.into_iter().filter(|attachment| attachment.name != name);
        Ok((base.document, NewAttachments::new(&store, others.map(NewAttachment::kept).collect())?))
    })
    .await?;
    let edit = Edit { id, document, attachments: Incoming::Known(attachments), mode: EditMode::Interactive };
    let saved = save(&request, &database, edit).await?;
    // The status ignores `w`, unlike those of other edits.
    let mut response = saved.answer(&request, StatusCode::OK);
    *response.status_mut() = StatusCode::OK;
    Ok(response)
}

fn name(request: &Request) -> Result<String, Error> {
    let name = request.captures.get("attachment");
    validate_attachment_name(name)?;
    request.captures.require_text()?;
    Ok(name.to_owned())
}

pub(super) async fn refuse_local(request: Request) -> Answer {
    request.database()?;
    Err(Error::bad_request("_local documents do not accept attachments."))
}

#[cfg(test)]
mod tests;
