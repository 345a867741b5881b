//! Documents in batches (`_revs_diff`, `_bulk_get`, `_bulk_docs`) and individually.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Method;
use settee_model::json::{Json, Value, append_object, object, write_array};

use super::auth::Login;
use super::{Length, Peer, PeerError, PeerRequest, Stream, document_path};
use crate::rows::{RowSplitter, Rows};
use crate::transport::{Body, TransportError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MissingRevs {
    pub(crate) id: Json,
    pub(crate) revs: Vec<String>,
    /// Revisions of the target that may be parents of the missing ones.
    pub(crate) possible_ancestors: Vec<String>,
}

impl MissingRevs {
    pub(crate) fn id(&self) -> String {
        self.id.value().as_str().unwrap_or_default().into_owned()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Rejected {
    pub(crate) id: String,
    pub(crate) rev: String,
    pub(crate) error: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkDocsOutcome {
    /// The batch was accepted, except these revisions.
    Accepted(Vec<Rejected>),
    /// The body as a whole was rejected: too long (413), or not understood (400).
    BodyRejected(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PutOutcome {
    Accepted,
    Rejected(Rejected),
    /// The target lacks an attachment whose bytes were not sent (412).
    MissingStub,
}

impl Peer {
    /// `body` is that of `_revs_diff`: `{"id":["1-a"]}`. A body that the peer rejects as too long is divided.
    pub(crate) async fn revs_diff(&self, body: Bytes) -> Result<Vec<MissingRevs>, PeerError> {
        let (mut bodies, mut wanted) = (vec![body], Vec::new());
        while let Some(body) = bodies.pop() {
            match self.revs_diff_once(body.clone()).await {
                Ok(found) => wanted.extend(found),
                Err(PeerError::Status { status: 413, .. }) if Value::trusted(&body).members().nth(1).is_some() => {
                    let (first, second) = halves(Value::trusted(&body));
                    bodies.push(second);
                    bodies.push(first);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(wanted)
    }

    async fn revs_diff_once(&self, body: Bytes) -> Result<Vec<MissingRevs>, PeerError> {
        let peer_request = PeerRequest::post(self.uri("_revs_diff"), body);
        let answer = self.exchange(&peer_request).await?;
        if answer.status != 200 {
            return Err(peer_request.status(answer.status, &answer.body));
        }
        let json = answer.json(&peer_request)?;
        let texts = |value: Option<Value<'_>>| -> Vec<String> {
            let values = value.into_iter().flat_map(Value::elements);
            values.filter_map(|value| value.as_str().map(Cow::into_owned)).collect()
        };
        // An invalid response must not be mistaken for "no revision is missing".
        if !json.value().is_object() {
            return Err(peer_request.protocol("not an object"));
        }
        let wanted = json.value().members().map(|(id, diff)| {
            let missing = diff.get("missing").filter(|missing| missing.is_array());
            Ok(MissingRevs {
                id: Json::trusted(id.raw().to_vec()),
                revs: texts(Some(missing.ok_or_else(|| peer_request.protocol("a row without `missing`"))?)),
                possible_ancestors: texts(diff.get("possible_ancestors")),
            })
        });
        let wanted: Vec<MissingRevs> = wanted.collect::<Result<_, PeerError>>()?;
        Ok(wanted.into_iter().filter(|wanted| !wanted.revs.is_empty()).collect())
    }

    /// Requests revisions with their histories, and leaves that descend from them. Returns `None`, then and later, if
    /// the peer does not support `_bulk_get`, which any unexpected response indicates. A request that is too long (413)
    /// is an error.
    pub(crate) async fn bulk_get(&self, wanted: &[MissingRevs]) -> Result<Option<BulkGet>, PeerError> {
        if !self.inner.has_bulk_get.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let peer_request =
            PeerRequest::post(self.uri("_bulk_get?revs=true&latest=true&attachments=false"), bulk_get_body(wanted));
        match self.open(&peer_request).await {
            Ok(response) if response.status().as_u16() == 200 => {
                let stream = self.stream(response);
                return Ok(Some(BulkGet { peer_request, stream, rows: RowSplitter::new(Rows::InArray), ended: false }));
            }
            Ok(response) if response.status().as_u16() == 413 => return Err(peer_request.status(413, b"")),
            Ok(_) => {}
            Err(PeerError::Status { status, .. }) if ![413, 429].contains(&status) => {}
            Err(error) => return Err(error),
        }
        self.inner.has_bulk_get.store(false, Ordering::Relaxed);
        Ok(None)
    }

    pub(crate) async fn bulk_docs(&self, documents: &[Bytes]) -> Result<BulkDocsOutcome, PeerError> {
        let peer_request = PeerRequest::post(self.uri("_bulk_docs"), bulk_docs_body(documents));
        let answer = self.exchange(&peer_request).await?;
        match answer.status {
            200..300 => {
                let json = answer.json(&peer_request)?;
                if !json.value().is_array() {
                    return Err(peer_request.protocol("not an array"));
                }
                Ok(BulkDocsOutcome::Accepted(json.value().elements().filter_map(parse_rejected).collect()))
            }
            // Old servers return 417 if all documents were rejected.
            417 => Ok(BulkDocsOutcome::Accepted(
                answer.json(&peer_request)?.value().elements().filter_map(parse_rejected).collect(),
            )),
            status @ (400 | 413) => Ok(BulkDocsOutcome::BodyRejected(status)),
            status => Err(peer_request.status(status, &answer.body)),
        }
    }

    pub(crate) async fn put_document(&self, id: &str, rev: &str, document: Bytes) -> Result<PutOutcome, PeerError> {
        let peer_request = PeerRequest::put(self.uri(&format!("{}?new_edits=false", document_path(id))), document);
        let answer = self.exchange(&peer_request).await?;
        put_result(&peer_request, id, rev, answer.status, &answer.body)
    }

    /// Makes one attempt, because the body cannot be sent again. After an expired session the error is a transient one,
    /// so that the caller retries with a new body.
    pub(crate) async fn put_related(
        &self,
        id: &str,
        rev: &str,
        content_type: &str,
        body: Body,
        length: u64,
    ) -> Result<PutOutcome, PeerError> {
        let uri = self.uri(&format!("{}?new_edits=false", document_path(id)));
        let peer_request = PeerRequest { method: Method::PUT, ..PeerRequest::get(uri) };
        let broken = |error: TransportError| peer_request.transport(error);
        let Login::Sent(cookie) = self.inner.auth.cookie(self).await.map_err(broken)? else {
            return Err(peer_request.status(401, b"{}"));
        };
        let length = Length::Streamed(length);
        let response =
            self.send_once(&peer_request, Some(content_type), body, length, cookie.as_deref()).await.map_err(broken)?;
        let status = response.status().as_u16();
        let answer = self.stream(response).all().await.map_err(broken)?;
        if let (401, Some(cookie)) = (status, cookie) {
            self.inner.auth.renew(self, &cookie).await.map_err(broken)?;
            return Err(peer_request.transport(TransportError::Broken("the session is over".to_owned())));
        }
        put_result(&peer_request, id, rev, status, &answer)
    }
}

fn put_result(
    peer_request: &PeerRequest,
    id: &str,
    rev: &str,
    status: u16,
    body: &[u8],
) -> Result<PutOutcome, PeerError> {
    match status {
        200..300 => Ok(PutOutcome::Accepted),
        412 => Ok(PutOutcome::MissingStub),
        400 | 401 | 403 | 404 | 409 | 413 | 415 | 422 => {
            let (error, reason) = super::error_of(body);
            // A missing database is not a rejection of the document.
            if status == 404 {
                return Err(peer_request.status(status, body));
            }
            Ok(PutOutcome::Rejected(Rejected { id: id.to_owned(), rev: rev.to_owned(), error, reason }))
        }
        _ => Err(peer_request.status(status, body)),
    }
}

fn parse_rejected(row: Value<'_>) -> Option<Rejected> {
    let text = |name| row.get(name).and_then(Value::as_str).map(Cow::into_owned).unwrap_or_default();
    row.get("error")?;
    Some(Rejected { id: text("id"), rev: text("rev"), error: text("error"), reason: text("reason") })
}

fn halves(object: Value<'_>) -> (Bytes, Bytes) {
    let members: Vec<(Value<'_>, Value<'_>)> = object.members().collect();
    let (first, second) = members.split_at(members.len() / 2);
    let object = |members: &[(Value<'_>, Value<'_>)]| {
        let members: Vec<Vec<u8>> =
            members.iter().map(|(name, value)| [name.raw(), b":", value.raw()].concat()).collect();
        Bytes::from([&b"{"[..], members.join(&b',').as_slice(), &b"}"[..]].concat())
    };
    (object(first), object(second))
}

fn bulk_get_body(wanted: &[MissingRevs]) -> Vec<u8> {
    let revs = wanted.iter().flat_map(|wanted| wanted.revs.iter().map(|rev| (&wanted.id, rev)));
    object(|body| {
        write_array(body.name("docs"), revs, |out, (id, rev)| {
            append_object(out, |wanted| {
                wanted.json("id", id.as_bytes()).string("rev", rev);
            });
        });
    })
}

fn bulk_docs_body(documents: &[Bytes]) -> Vec<u8> {
    object(|body| {
        let out = body.value("new_edits", false).name("docs");
        out.reserve(documents.iter().map(|document| document.len() + 1).sum::<usize>() + 2);
        write_array(out, documents, |out, document| out.extend_from_slice(document));
    })
}

pub(crate) struct BulkGet {
    peer_request: PeerRequest,
    stream: Stream,
    rows: RowSplitter,
    ended: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BulkGetRow {
    pub(crate) id: Bytes,
    pub(crate) documents: Vec<Bytes>,
    pub(crate) errors: usize,
}

impl BulkGet {
    pub(crate) async fn next(&mut self) -> Result<Option<BulkGetRow>, PeerError> {
        loop {
            if let Some(row) = self.rows.next().map_err(|error| self.peer_request.protocol(error.to_string()))? {
                return Ok(Some(bulk_get_row(&row)));
            }
            if self.ended {
                return Ok(None);
            }
            match self.stream.next().await.map_err(|error| self.peer_request.transport(error))? {
                Some(bytes) => self.rows.feed(&bytes),
                None if self.rows.is_balanced() => self.ended = true,
                None => {
                    let error = TransportError::Broken("the response ended within a row".to_owned());
                    return Err(self.peer_request.transport(error));
                }
            }
        }
    }
}

fn bulk_get_row(row: &Bytes) -> BulkGetRow {
    let mut bulk_get_row = BulkGetRow { id: Bytes::new(), documents: Vec::new(), errors: 0 };
    for (name, value) in Value::trusted(row).members() {
        match name.raw() {
            b"\"id\"" => bulk_get_row.id = row.slice_ref(value.raw()),
            b"\"docs\"" => {
                for result in value.elements() {
                    match result.get("ok") {
                        Some(document) => bulk_get_row.documents.push(row.slice_ref(document.raw())),
                        None => bulk_get_row.errors += 1,
                    }
                }
            }
            _ => {}
        }
    }
    bulk_get_row
}
