//! Reading documents.

use std::sync::Arc;

use hyper::{StatusCode, header};
use settee_database::{DocRecord, ReadView, Stored};
use settee_model::{Rev, json};

use crate::params::document::{Extras, OpenRevs, ReadParams, Which};
use crate::request::Request;
use crate::respond::{self, Answer, Response};
use crate::revision::{self, Encoded};
use crate::{Error, bridge};

/// The id of the document that the path names.
pub(super) fn doc_id(request: &Request) -> String {
    let captures = &request.captures;
    match (captures.get("ddoc"), captures.get("local")) {
        ("", "") => captures.get("doc").to_owned(),
        (ddoc, "") => format!("_design/{ddoc}"),
        (_, local) => format!("_local/{local}"),
    }
}

/// `GET /{db}/{doc}`
pub(super) async fn get(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    let params = ReadParams::resolve(&request.query)?;
    let known = request.header(header::IF_NONE_MATCH).map(|tags| tags.to_owned());
    bridge::blocking(move || {
        let view = database.read()?;
        let record = view.record(&id)?;
        match (&params.which, record) {
            (Which::Open(open), record) => open_revs(&view, &id, record, open, &params),
            (_, None) => Err(Error::not_found("missing")),
            (_, Some(record)) => one(&view, &id, &record, &params, known.as_deref()),
        }
    })
    .await
}

/// One revision as the whole answer.
fn one(view: &ReadView, id: &str, record: &DocRecord, params: &ReadParams, known: Option<&str>) -> Answer {
    let winner = record.tree.winner(is_deleted).ok_or_else(|| Error::not_found("missing"))?;
    let (node, extras) = match &params.which {
        Which::Rev(rev) if !params.latest => {
            let node = record.tree.find(rev).ok_or_else(|| Error::not_found("missing"))?;
            // Members that tell of other leaves go with the winner only.
            (node, Extras { revs: params.extras.revs, local_seq: params.extras.local_seq, ..Extras::default() })
        }
        Which::Rev(_) => (winner, params.extras),
        Which::Winner { deleted } => {
            if !deleted && record.tree.node(winner).value.as_ref().is_some_and(is_deleted) {
                return Err(Error::not_found("deleted"));
            }
            (winner, params.extras)
        }
        Which::Open(_) => return Err(Error::internal("a list of revisions is no single one")),
    };
    let mut out = Vec::new();
    let encoded = revision::write(&mut out, view, id, record, node, extras)?;
    let tag = format!("\"{}\"", record.tree.node(node).rev);
    match encoded {
        Encoded::Gone => Err(Error::not_found("missing")),
        Encoded::ByDocument => Ok(respond::json(StatusCode::OK, out)),
        Encoded::ByRevision => {
            let unchanged =
                known.is_some_and(|known| known.split(',').any(|one| one.trim() == tag || one.trim() == "*"));
            let mut response = if unchanged { not_modified() } else { respond::json(StatusCode::OK, out) };
            respond::set(response.headers_mut(), header::ETAG, &tag);
            Ok(response)
        }
    }
}

fn not_modified() -> Response {
    let mut response = respond::whole(StatusCode::NOT_MODIFIED, "application/json", Vec::new());
    response.headers_mut().remove(header::CONTENT_TYPE);
    response
}

fn is_deleted(stored: &Stored) -> bool {
    stored.deleted
}

/// Several revisions as a list of `{"ok":…}` and `{"missing":…}`.
fn open_revs(view: &ReadView, id: &str, record: Option<DocRecord>, open: &OpenRevs, params: &ReadParams) -> Answer {
    let record = match (record, open) {
        (Some(record), _) => record,
        (None, OpenRevs::All) => return Err(Error::not_found("missing")),
        (None, OpenRevs::Some(_)) => DocRecord::empty(),
    };
    let (nodes, missing) = open_nodes(&record, open, params.latest);
    let extras = Extras { revs: params.extras.revs, ..Extras::default() };
    let mut out = b"[".to_vec();
    for node in nodes {
        separate(&mut out);
        out.extend_from_slice(br#"{"ok":"#);
        revision::write(&mut out, view, id, &record, node, extras)?;
        out.push(b'}');
    }
    for rev in missing {
        separate(&mut out);
        out.extend_from_slice(br#"{"missing":"#);
        json::write_string(&mut out, &rev.to_string());
        out.push(b'}');
    }
    out.push(b']');
    Ok(respond::json(StatusCode::OK, out))
}

fn separate(out: &mut Vec<u8>) {
    if out.last() != Some(&b'[') {
        out.push(b',');
    }
}

/// The nodes that `open_revs` asks for, in the order of the tree as CouchDB walks it, and what is missing.
fn open_nodes(record: &DocRecord, open: &OpenRevs, latest: bool) -> (Vec<u32>, Vec<Rev>) {
    let tree = &record.tree;
    let mut missing = Vec::new();
    let mut nodes: Vec<u32> = match open {
        OpenRevs::All => tree.leaves().collect(),
        OpenRevs::Some(revs) => {
            let mut nodes = Vec::new();
            for rev in revs {
                match tree.find(rev).filter(|node| tree.node(*node).value.is_some()) {
                    Some(node) if latest => nodes.extend(tree.leaves_of(node)),
                    Some(node) => nodes.push(node),
                    None => missing.push(rev.clone()),
                }
            }
            nodes
        }
    };
    nodes.sort_by_cached_key(|node| {
        let mut path: Vec<Rev> = tree.history(*node).map(|ancestor| tree.node(ancestor).rev.clone()).collect();
        path.reverse();
        path
    });
    nodes.dedup();
    (nodes, missing)
}

/// `GET /{db}/_local/{local}`
pub(super) async fn get_local(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    bridge::blocking(move || {
        let local = database.read()?.local(&id)?.ok_or_else(|| Error::not_found("missing"))?;
        let mut out = Vec::new();
        write_local(&mut out, &id, &local);
        Ok(respond::json(StatusCode::OK, out))
    })
    .await
}

/// Appends a local document as JSON.
pub(super) fn write_local(out: &mut Vec<u8>, id: &str, local: &settee_database::LocalDocument) {
    let rev = Rev::new(0, settee_model::RevHash::from_bytes(local.rev.to_string().as_bytes()));
    settee_model::Document::write_json(out, id, &rev, false, |_| {}, local.body.as_bytes());
}

/// `POST /{db}/{doc}`: the upload form of old consoles is not served.
pub(super) async fn post(request: Request) -> Answer {
    let _ = Arc::clone(&request.node);
    Err(Error::bad_request("Invalid `Content-Type` header for form upload"))
}

/// `GET /{db}/{doc}/{attachment}`: documents have no attachments yet.
pub(super) async fn attachment(request: Request) -> Answer {
    let database = request.database()?;
    let id = doc_id(&request);
    bridge::blocking(move || match database.read()?.head(&id)? {
        Some(head) if !head.stored.deleted => Err(Error::not_found("Document is missing attachment")),
        Some(_) => Err(Error::not_found("deleted")),
        None => Err(Error::not_found("missing")),
    })
    .await
}

/// Writing an attachment: says so instead of losing it.
pub(super) async fn refuse_attachment(request: Request) -> Answer {
    request.database()?;
    Err(Error::not_implemented("Attachments are not available yet."))
}
