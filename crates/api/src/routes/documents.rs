//! Reads of ordinary and local documents.

use std::ops::ControlFlow;
use std::sync::Arc;

use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode, header};
use settee_database::{DOCUMENTS_TOGETHER, DocRecord, LocalDocument, ReadView, Stored, Waiting};
use settee_model::json::{Json, append_object};
use settee_model::{Document, Rev, RevHash, RevisionHasher};
use settee_replication::documents::is_replicator_database;
use settee_wire::multipart::Writer;

use super::partition::check_place;
use crate::params::attachments::Data;
use crate::params::document::{DocParams, Extras, OpenRevs, RevisionSelection};
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::revision::multipart::Related;
use crate::revision::{self, Encoded};
use crate::{Error, bridge};
use settee_edge::accept;
use settee_edge::bridge::{Head, Output};
use settee_edge::etag;
use settee_service::{Visibility, public_part};

pub(super) fn doc_id(request: &Request) -> String {
    let captures = &request.captures;
    match (captures.find("ddoc"), captures.find("local")) {
        (None, None) => captures.get("doc").to_owned(),
        // An escaped slash at the end leaves the name empty.
        (Some(ddoc), _) => format!("_design/{ddoc}"),
        (None, Some(local)) => format!("_local/{local}"),
    }
}

/// Size beyond which documents are read with a memory reservation, and without blocking short reads.
const LARGE_BYTES: usize = 64 << 10;

pub(super) async fn get(request: Request) -> Answer {
    let (database, reader) = (request.database()?, request.reader.clone());
    let id = doc_id(&request);
    let params = DocParams::resolve(&request.query)?;
    check_place(&database, &id)?;
    let known = request.header(header::IF_NONE_MATCH).map(str::to_owned);
    if let Visibility::Public(fields) = request.node.users.visibility(&request.user, &database, &id).await? {
        return bridge::read(&request.threads, move |waiting| {
            let (rev, out) = public_part(&database.read_as(&reader, waiting)?, &id, &fields)?;
            let mut response = respond::json(StatusCode::OK, out);
            respond::set_etag(&mut response, &rev.to_string());
            Ok(response)
        })
        .await;
    }
    if let RevisionSelection::Open(open) = &params.which {
        let open = open.clone();
        // Credentials can be removed from JSON only.
        let is_masked =
            is_replicator_database(database.name()) && accept::accepts(&request.headers, "application/json");
        let takes_parts = accept::accepts(&request.headers, "multipart/mixed") && !is_masked;
        let multipart = takes_parts.then(|| boundaries(&request));
        return bridge::stream(request.admit_response(), move |output| {
            let view = database.read_as(&reader, Waiting::Allowed)?;
            match multipart {
                Some(boundaries) => send_open_revs(output, &view, &id, &open, &params, boundaries),
                None => write_open_revs(output, &view, &id, &open, &params),
            }
        })
        .await;
    }
    if is_local(&id) {
        return bridge::read(&request.threads, move |waiting| {
            local(&database.read_as(&reader, waiting)?, &id, &params, known.as_deref())
        })
        .await;
    }
    if params.attachments.is_plain() {
        let read = move |bytes_max: usize, waiting: Waiting<'_>| {
            one(&database.read_as(&reader, waiting)?, &id, &params, known.as_deref(), bytes_max)
        };
        return plain(&request, Arc::new(read)).await;
    }
    let related = accept::accepts(&request.headers, "multipart/related") && params.attachments.data != Data::None;
    let boundary = related.then(|| request.node.uuid());
    let response = bridge::answer(request.admit_response(), move |output, waiting| {
        let view = database.read_as(&reader, waiting)?;
        one_with_attachments(output, &view, &id, &params, known.as_deref(), boundary.as_deref())
    });
    let mut response = response.await?;
    if response.status() == StatusCode::NOT_MODIFIED {
        response.headers_mut().remove(header::CONTENT_TYPE);
    }
    Ok(response)
}

pub(super) fn boundaries(request: &Request) -> [String; 2] {
    [request.node.uuid(), request.node.uuid()]
}

fn choose(record: &DocRecord, params: &DocParams) -> Result<(u32, Extras), Error> {
    let winner = record.tree.winner(is_deleted).ok_or_else(|| Error::not_found("missing"))?;
    match &params.which {
        RevisionSelection::Rev(rev) => {
            let node = record.tree.find(rev).ok_or_else(|| Error::not_found("missing"))?;
            // Members about the whole document are added only to the winner.
            Ok((node, Extras { revs: params.extras.revs, ..Extras::default() }))
        }
        RevisionSelection::Winner { deleted } => {
            if !deleted && record.tree.node(winner).value.as_ref().is_some_and(is_deleted) {
                return Err(Error::not_found("deleted"));
            }
            Ok((winner, params.extras))
        }
        RevisionSelection::Open(_) => Err(Error::internal("a list of revisions is no single one")),
    }
}

enum One {
    Answer(Response),
    Larger(usize),
}

/// Reads a document of at most the given size.
type ReadOne = dyn Fn(usize, Waiting<'_>) -> Result<One, Error> + Send + Sync;

async fn plain(request: &Request, read: Arc<ReadOne>) -> Answer {
    let small = Arc::clone(&read);
    let mut found = bridge::read(&request.threads, move |waiting| small(LARGE_BYTES, waiting)).await?;
    loop {
        found = match found {
            One::Answer(response) => return Ok(response),
            One::Larger(size) => {
                let large = Arc::clone(&read);
                let read = move || large(size, Waiting::Allowed);
                // Once in its stored form, and once encoded.
                settee_edge::bridge::long(request.admit_response(), 2 * size, read).await??
            }
        }
    }
}

fn one(view: &ReadView<'_>, id: &str, params: &DocParams, known: Option<&str>, bytes_max: usize) -> Result<One, Error> {
    let record = view.record(id)?.ok_or_else(|| Error::not_found("missing"))?;
    let (node, extras) = choose(&record, params)?;
    let size = record.tree.node(node).value.map_or(0, |stored| stored.size as usize);
    if size > bytes_max {
        return Ok(One::Larger(size));
    }
    let mut out = Vec::new();
    let encoded = revision::write(&mut out, view, id, &record, node, extras)?;
    let tag = format!("\"{}\"", record.tree.node(node).rev);
    match encoded {
        Encoded::Gone => Err(Error::not_found("missing")),
        Encoded::ByDocument => Ok(One::Answer(respond::json(StatusCode::OK, out))),
        Encoded::ByRevision => {
            let mut response =
                if etag::is_known(known, &tag) { etag::not_modified() } else { respond::json(StatusCode::OK, out) };
            respond::set(response.headers_mut(), header::ETAG, &tag);
            Ok(One::Answer(response))
        }
    }
}

fn one_with_attachments(
    output: &mut Output,
    view: &ReadView<'_>,
    id: &str,
    params: &DocParams,
    known: Option<&str>,
    boundary: Option<&str>,
) -> Result<(), Error> {
    let record = view.record(id)?.ok_or_else(|| Error::not_found("missing"))?;
    let (node, extras) = choose(&record, params)?;
    let mut headers = HeaderMap::new();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    if revision::depends(view, &record, node, extras)? == Encoded::ByRevision {
        let tag = format!("\"{}\"", record.tree.node(node).rev);
        respond::set(&mut headers, header::ETAG, &tag);
        if etag::is_known(known, &tag) {
            output.set_head(Head::new(StatusCode::NOT_MODIFIED, headers));
            return Ok(());
        }
    }
    let shown = &params.attachments;
    let related = boundary.map(|boundary| Related::read(view, id, &record, node, extras, shown, boundary));
    match related.transpose()?.flatten().filter(Related::has_parts) {
        Some(related) => {
            headers.remove(header::CACHE_CONTROL);
            respond::set(&mut headers, header::CONTENT_TYPE, &related.content_type());
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(related.length()));
            output.set_head(Head::new(StatusCode::OK, headers));
            related.write(output, view).map_or_else(|error| output.break_off(error), |_| Ok(()))
        }
        None => {
            output.set_head(Head::new(StatusCode::OK, headers));
            let encoded = revision::write_with(output, view, id, &record, node, extras, shown)?;
            output.text().push(b'\n');
            if encoded == Encoded::Gone { Err(Error::not_found("missing")) } else { Ok(()) }
        }
    }
}

fn is_deleted(stored: &Stored) -> bool {
    stored.deleted
}

/// Returns an empty document if the revisions are named and the document does not exist.
fn opened(view: &ReadView<'_>, id: &str, open: &OpenRevs) -> Result<Arc<DocRecord>, Error> {
    match (view.record(id)?, open) {
        (Some(record), _) => Ok(record),
        (None, OpenRevs::All) => Err(Error::not_found("missing")),
        (None, OpenRevs::Some(_)) => Ok(Arc::new(DocRecord::empty())),
    }
}

/// Writes several revisions as a list of `{"ok":…}` and `{"missing":…}`.
fn write_open_revs(
    output: &mut Output,
    view: &ReadView<'_>,
    id: &str,
    open: &OpenRevs,
    params: &DocParams,
) -> Result<(), Error> {
    let record = opened(view, id, open)?;
    let (nodes, missing) = open_nodes(&record, open, params.latest);
    let extras = Extras { revs: params.extras.revs, ..Extras::default() };
    let mut separator = b'[';
    let empty = nodes.is_empty() && missing.is_empty();
    for together in nodes.chunks(DOCUMENTS_TOGETHER) {
        let stored = together.iter().filter_map(|node| record.tree.node(*node).value);
        view.read_bodies_ahead(&stored.collect::<Vec<_>>())?;
        for node in together {
            output.text().push(std::mem::replace(&mut separator, b','));
            output.text().extend_from_slice(br#"{"ok":"#);
            revision::write_with(output, view, id, &record, *node, extras, &params.attachments)?;
            output.text().push(b'}');
            if output.row_done().is_break() {
                return Ok(());
            }
        }
    }
    for rev in missing {
        output.text().push(std::mem::replace(&mut separator, b','));
        append_object(output.text(), |object| rev.write_json(object.name("missing")));
    }
    output.text().extend_from_slice(if empty { b"[]\n" } else { b"]\n" });
    Ok(())
}

fn send_open_revs(
    output: &mut Output,
    view: &ReadView<'_>,
    id: &str,
    open: &OpenRevs,
    params: &DocParams,
    [outer, inner]: [String; 2],
) -> Result<(), Error> {
    let record = opened(view, id, open)?;
    let (nodes, missing) = open_nodes(&record, open, params.latest);
    let extras = Extras { revs: params.extras.revs, ..Extras::default() };
    let shown = params.attachments.with_data();
    let writer = Writer::new(outer);
    let mut headers = HeaderMap::new();
    respond::set(&mut headers, header::CONTENT_TYPE, &writer.content_type("multipart/mixed"));
    output.set_head(Head::new(StatusCode::OK, headers));
    writer.begin(output.text());
    for node in nodes {
        let Some(related) = Related::read(view, id, &record, node, extras, &shown, &inner)? else { continue };
        writer.part(output.text(), [("Content-Type", related.content_type().as_str())]);
        match related.write(output, view) {
            Ok(ControlFlow::Continue(())) => writer.part_end(output.text()),
            Ok(ControlFlow::Break(())) => return Ok(()),
            Err(error) => return output.break_off(error),
        }
    }
    for rev in missing {
        writer.part(output.text(), [("Content-Type", "application/json; error=\"true\"")]);
        append_object(output.text(), |object| rev.write_json(object.name("missing")));
        writer.part_end(output.text());
    }
    writer.end(output.text());
    Ok(())
}

/// Returns the nodes of `open_revs` and the missing revisions, each sorted by revision and without duplicates.
fn open_nodes(record: &DocRecord, open: &OpenRevs, latest: bool) -> (Vec<u32>, Vec<Rev>) {
    let tree = &record.tree;
    let (mut nodes, mut missing) = (Vec::new(), Vec::new());
    match open {
        OpenRevs::All => nodes.extend(tree.leaves()),
        OpenRevs::Some(revs) => {
            for rev in revs {
                match tree.find(rev) {
                    // Missing revisions include those without a body, which are only ancestors.
                    Some(node) if latest || tree.node(node).value.is_some() => nodes.push(node),
                    Some(_) | None => missing.push(rev.clone()),
                }
            }
            if latest {
                nodes = tree.leaves_of(&nodes);
            }
        }
    }
    nodes.sort_unstable();
    nodes.dedup();
    missing.sort();
    missing.dedup();
    (nodes, missing)
}

pub(super) fn is_local(id: &str) -> bool {
    id.starts_with("_local/")
}

/// The only revision of a local document cannot be requested.
fn local(view: &ReadView<'_>, id: &str, params: &DocParams, known: Option<&str>) -> Answer {
    let found = if matches!(params.which, RevisionSelection::Winner { .. }) { view.local(id)? } else { None };
    let local = found.ok_or_else(|| Error::not_found("missing"))?;
    let tag = local_tag(&local_rev(&local), &local.body);
    let mut response = if etag::is_known(known, &tag) {
        etag::not_modified()
    } else {
        let mut out = Vec::new();
        write_local(&mut out, id, &local, params.extras.revs);
        respond::json(StatusCode::OK, out)
    };
    respond::set(response.headers_mut(), header::ETAG, &tag);
    Ok(response)
}

pub(super) fn local_rev(local: &LocalDocument) -> Rev {
    Rev::new(0, RevHash::from_bytes(local.rev.to_string().as_bytes()))
}

/// The tag contains the body, because unlike other revisions `0-1` does not identify a body.
pub(super) fn local_tag(rev: &Rev, body: &Json) -> String {
    let hash = RevisionHasher::default().hash(false, Some(rev), body.value(), &[]);
    format!("\"{}\"", RevHash::from(hash))
}

pub(super) fn write_local(out: &mut Vec<u8>, id: &str, local: &LocalDocument, revs: bool) {
    let revisions = |out: &mut Vec<u8>| {
        if revs {
            out.extend_from_slice(format!(r#","_revisions":{{"start":0,"ids":["{}"]}}"#, local.rev).as_bytes());
        }
    };
    Document::write_json(out, id, &local_rev(local), false, revisions, local.body.as_bytes());
}
