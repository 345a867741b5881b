//! Documents in batches: `_revs_diff`, `_bulk_get`, `_bulk_docs`; and documents that are written individually.

use std::borrow::Cow;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use http::Method;
use settee_model::json::{Json, Value};

use super::auth::Login;
use super::{Ask, Length, Peer, PeerError, Stream, document_path};
use crate::text::{Rows, Splitter, elements, member, members};
use crate::transport::{Body, TransportError};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Id as a JSON string.
    pub(crate) id: Json,
    pub(crate) revs: Vec<String>,
    /// Revisions of the target that may be parents of the missing ones.
    pub(crate) possible_ancestors: Vec<String>,
}

impl Wanted {
    pub(crate) fn id(&self) -> String {
        self.id.value().as_str().unwrap_or_default().into_owned()
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) id: String,
    pub(crate) rev: String,
    pub(crate) error: String,
    pub(crate) reason: String,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum BulkDocs {
    /// The batch was accepted, except these revisions.
    Taken(Vec<Refused>),
    /// The body as a whole was rejected: too long (413), or not understood (400).
    BodyRefused(u16),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Put {
    Taken,
    Refused(Refused),
    /// The target lacks an attachment whose bytes were not sent (412).
    MissingStub,
}

impl Peer {
    /// Returns the missing revisions. `body` is that of `_revs_diff`: `{"id":["1-a"]}`. A body that the peer rejects as
    /// too long is divided.
    pub(crate) async fn revs_diff(&self, body: Bytes) -> Result<Vec<Wanted>, PeerError> {
        let (mut bodies, mut wanted) = (vec![body], Vec::new());
        while let Some(body) = bodies.pop() {
            match self.revs_diff_once(body.clone()).await {
                Ok(found) => wanted.extend(found),
                Err(PeerError::Status { status: 413, .. }) if members(&body).nth(1).is_some() => {
                    let (first, second) = halves(&body);
                    bodies.push(second);
                    bodies.push(first);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(wanted)
    }

    async fn revs_diff_once(&self, body: Bytes) -> Result<Vec<Wanted>, PeerError> {
        let ask = Ask::post(self.uri("_revs_diff"), body);
        let answer = self.exchange(&ask).await?;
        if answer.status != 200 {
            return Err(ask.status(answer.status, &answer.body));
        }
        let json = answer.json(&ask)?;
        let texts = |value: Option<Value<'_>>| -> Vec<String> {
            let values = value.into_iter().flat_map(Value::elements);
            values.filter_map(|value| value.as_str().map(Cow::into_owned)).collect()
        };
        // An invalid answer must not be mistaken for "nothing is missing".
        if !json.value().is_object() {
            return Err(ask.protocol("not an object"));
        }
        let wanted = json.value().members().map(|(id, diff)| {
            let missing = diff.get("missing").filter(|missing| missing.is_array());
            Ok(Wanted {
                id: Json::trusted(id.raw().to_vec()),
                revs: texts(Some(missing.ok_or_else(|| ask.protocol("a row without `missing`"))?)),
                possible_ancestors: texts(diff.get("possible_ancestors")),
            })
        });
        let wanted: Vec<Wanted> = wanted.collect::<Result<_, PeerError>>()?;
        Ok(wanted.into_iter().filter(|wanted| !wanted.revs.is_empty()).collect())
    }

    /// Requests revisions with their histories, and leaves that descend from them. Returns `None` if the peer does not
    /// support `_bulk_get`, indicated by any unexpected answer; the peer is then not asked again, and documents are
    /// fetched individually. A request that is too long for the peer (413) is an error.
    pub(crate) async fn bulk_get(&self, wanted: &[Wanted]) -> Result<Option<BulkGet>, PeerError> {
        if !self.inner.has_bulk_get.load(Ordering::Relaxed) {
            return Ok(None);
        }
        let ask = Ask::post(self.uri("_bulk_get?revs=true&latest=true&attachments=false"), bulk_get_body(wanted));
        match self.open(&ask).await {
            Ok(response) if response.status().as_u16() == 200 => {
                let stream = self.stream(response);
                return Ok(Some(BulkGet { ask, stream, rows: Splitter::new(Rows::InArray), ended: false }));
            }
            Ok(response) if response.status().as_u16() == 413 => return Err(ask.status(413, b"")),
            Ok(_) => {}
            Err(PeerError::Status { status, .. }) if ![413, 429].contains(&status) => {}
            Err(error) => return Err(error),
        }
        self.inner.has_bulk_get.store(false, Ordering::Relaxed);
        Ok(None)
    }

    /// Writes documents unchanged (`new_edits=false`).
    pub(crate) async fn bulk_docs(&self, documents: &[Bytes]) -> Result<BulkDocs, PeerError> {
        let ask = Ask::post(self.uri("_bulk_docs"), bulk_docs_body(documents));
        let answer = self.exchange(&ask).await?;
        match answer.status {
            200..300 => {
                let json = answer.json(&ask)?;
                if !json.value().is_array() {
                    return Err(ask.protocol("not an array"));
                }
                Ok(BulkDocs::Taken(json.value().elements().filter_map(refused).collect()))
            }
            // Old servers answer 417 if all documents were rejected.
            417 => Ok(BulkDocs::Taken(answer.json(&ask)?.value().elements().filter_map(refused).collect())),
            status @ (400 | 413) => Ok(BulkDocs::BodyRefused(status)),
            status => Err(ask.status(status, &answer.body)),
        }
    }

    /// Writes one document unchanged.
    pub(crate) async fn put_document(&self, id: &str, rev: &str, document: Bytes) -> Result<Put, PeerError> {
        let ask = Ask::put(self.uri(&format!("{}?new_edits=false", document_path(id))), document);
        let answer = self.exchange(&ask).await?;
        put_result(&ask, id, rev, answer.status, &answer.body)
    }

    /// Writes one document with its attachments as a `multipart/related` body. There is no retry, because the body
    /// cannot be sent again.
    pub(crate) async fn put_related(
        &self,
        id: &str,
        rev: &str,
        content_type: &str,
        body: Body,
        length: u64,
    ) -> Result<Put, PeerError> {
        let uri = self.uri(&format!("{}?new_edits=false", document_path(id)));
        let ask = Ask { method: Method::PUT, ..Ask::get(uri) };
        let broken = |error: TransportError| ask.transport(error);
        let Login::Sent(cookie) = self.inner.auth.cookie(self).await.map_err(broken)? else {
            return Err(ask.status(401, b"{}"));
        };
        let length = Length::Streamed(length);
        let response =
            self.send_once(&ask, Some(content_type), body, length, cookie.as_deref()).await.map_err(broken)?;
        let status = response.status().as_u16();
        let answer = self.stream(response).all().await.map_err(broken)?;
        if let (401, Some(cookie)) = (status, cookie) {
            // The caller retries, with the new cookie.
            self.inner.auth.renew(self, &cookie).await.map_err(broken)?;
            return Err(ask.transport(TransportError::Broken("the session is over".to_owned())));
        }
        put_result(&ask, id, rev, status, &answer)
    }
}

fn put_result(ask: &Ask, id: &str, rev: &str, status: u16, body: &[u8]) -> Result<Put, PeerError> {
    match status {
        200..300 => Ok(Put::Taken),
        412 => Ok(Put::MissingStub),
        400 | 401 | 403 | 404 | 409 | 413 | 415 | 422 => {
            let (error, reason) = super::error_of(body);
            // A missing database is not a rejection of the document.
            if status == 404 {
                return Err(ask.status(status, body));
            }
            Ok(Put::Refused(Refused { id: id.to_owned(), rev: rev.to_owned(), error, reason }))
        }
        _ => Err(ask.status(status, body)),
    }
}

fn refused(row: Value<'_>) -> Option<Refused> {
    let text = |name| row.get(name).and_then(Value::as_str).map(Cow::into_owned).unwrap_or_default();
    row.get("error")?;
    Some(Refused { id: text("id"), rev: text("rev"), error: text("error"), reason: text("reason") })
}

/// Divides an object into two with half of its members each.
fn halves(object: &[u8]) -> (Bytes, Bytes) {
    let middle = members(object).count() / 2;
    let (mut first, mut second) = (vec![b'{'], vec![b'{']);
    for (index, (name, value)) in members(object).enumerate() {
        let half = if index < middle { &mut first } else { &mut second };
        if half.len() > 1 {
            half.push(b',');
        }
        half.extend_from_slice(name);
        half.push(b':');
        half.extend_from_slice(value);
    }
    first.push(b'}');
    second.push(b'}');
    (first.into(), second.into())
}

fn bulk_get_body(wanted: &[Wanted]) -> Vec<u8> {
    let mut body = b"{\"docs\":[".to_vec();
    for wanted in wanted {
        for rev in &wanted.revs {
            body.extend_from_slice(b"{\"id\":");
            body.extend_from_slice(wanted.id.as_bytes());
            body.extend_from_slice(b",\"rev\":");
            settee_model::json::write_string(&mut body, rev);
            body.extend_from_slice(b"},");
        }
    }
    if body.last() == Some(&b',') {
        body.pop();
    }
    body.extend_from_slice(b"]}");
    body
}

fn bulk_docs_body(documents: &[Bytes]) -> Vec<u8> {
    const HEAD: &[u8] = b"{\"new_edits\":false,\"docs\":[";
    let length: usize = documents.iter().map(|document| document.len() + 1).sum();
    let mut body = Vec::with_capacity(HEAD.len() + length + 2);
    body.extend_from_slice(HEAD);
    for (index, document) in documents.iter().enumerate() {
        if index > 0 {
            body.push(b',');
        }
        body.extend_from_slice(document);
    }
    body.extend_from_slice(b"]}");
    body
}

/// Answer of `_bulk_get` that is being received.
pub(crate) struct BulkGet {
    ask: Ask,
    stream: Stream,
    rows: Splitter,
    ended: bool,
}

/// Part of a `_bulk_get` answer for one document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Got {
    /// Id as JSON text.
    pub(crate) id: Bytes,
    /// Revisions, as JSON text that was not validated.
    pub(crate) documents: Vec<Bytes>,
    /// Number of revisions that the source could not return.
    pub(crate) errors: usize,
}

impl BulkGet {
    pub(crate) async fn next(&mut self) -> Result<Option<Got>, PeerError> {
        loop {
            if let Some(row) = self.rows.next().map_err(|error| self.ask.protocol(error.to_string()))? {
                return Ok(Some(got(&row)));
            }
            if self.ended {
                return Ok(None);
            }
            match self.stream.next().await.map_err(|error| self.ask.transport(error))? {
                Some(bytes) => self.rows.feed(&bytes),
                None if self.rows.is_balanced() => self.ended = true,
                None => {
                    let error = TransportError::Broken("the answer ended in the middle".to_owned());
                    return Err(self.ask.transport(error));
                }
            }
        }
    }
}

fn got(row: &Bytes) -> Got {
    let mut got = Got { id: Bytes::new(), documents: Vec::new(), errors: 0 };
    for (name, value) in members(row) {
        match name {
            b"\"id\"" => got.id = row.slice_ref(value),
            b"\"docs\"" => {
                for (_, result) in elements(value) {
                    match member(result, "ok") {
                        Some(document) => got.documents.push(row.slice_ref(document)),
                        None => got.errors += 1,
                    }
                }
            }
            _ => {}
        }
    }
    got
}
