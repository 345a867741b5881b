//! One document with its attachments: `GET /db/doc?open_revs=["1-a"]`, streamed. CouchDB returns `multipart/mixed` with
//! one part per revision; a revision with attachment bytes is a nested `multipart/related` body. Other servers return a
//! JSON array.

use bytes::Bytes;
use settee_model::json::{Json, Value};
use settee_wire::multipart::{ContentType, Event, MultipartError, Parser};

use super::{MAX_ANSWER_BYTES, Peer, PeerError, PeerRequest, Stream, document_path, encoded};
use crate::rows::compacted;
use crate::transport::TransportError;

/// Maximum length of a URL; a longer one omits possible ancestors.
const MAX_URL_BYTES: usize = 7_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum OpenRevsItem {
    /// Revision as compact JSON text, or text that is not JSON. Attachments are stubs or inline.
    Document(Bytes),
    /// Revision in several parts. [`OpenRevs::related`] must be called until it returns `End`.
    Related,
    Missing,
}

pub(crate) struct OpenRevs {
    peer_request: PeerRequest,
    stream: Stream,
    shape: Shape,
}

enum Shape {
    Array(Option<std::vec::IntoIter<OpenRevsItem>>),
    Mixed { outer: Box<Parser>, inner: Option<Box<Parser>> },
}

impl Peer {
    /// Requests a revision and its descendant leaves, with attachments newer than `possible_ancestors`.
    pub(crate) async fn open_revs(
        &self,
        id: &str,
        rev: &str,
        possible_ancestors: &[String],
    ) -> Result<OpenRevs, PeerError> {
        let revs = encoded(&format!("[\"{rev}\"]"));
        let mut uri = self.uri(&format!("{}?revs=true&latest=true&open_revs={revs}", document_path(id)));
        let mut since = String::new();
        for ancestor in possible_ancestors {
            let text = encoded(&format!("{}\"{ancestor}\"", if since.is_empty() { "" } else { "," }));
            if uri.len() + since.len() + text.len() + "&atts_since=%5B%5D".len() > MAX_URL_BYTES {
                break;
            }
            since.push_str(&text);
        }
        if !since.is_empty() {
            uri.push_str(&format!("&atts_since=%5B{since}%5D"));
        }
        let peer_request = PeerRequest { accept: "multipart/mixed", ..PeerRequest::get(uri) };
        let response = self.open(&peer_request).await?;
        let status = response.status().as_u16();
        let content_type = response.headers().get(http::header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let content_type = ContentType::parse(content_type.unwrap_or_default());
        let stream = self.stream(response);
        if status != 200 {
            let body = stream.all().await.unwrap_or_default();
            return Err(peer_request.status(status, &body));
        }
        if content_type.is_multipart() {
            let outer = Parser::of(&content_type).map_err(|error| peer_request.protocol(error.to_string()))?;
            return Ok(OpenRevs { peer_request, stream, shape: Shape::Mixed { outer: Box::new(outer), inner: None } });
        }
        Ok(OpenRevs { peer_request, stream, shape: Shape::Array(None) })
    }

    pub(crate) async fn attachment(&self, id: &str, rev: &str, name: &str) -> Result<(PeerRequest, Stream), PeerError> {
        let name: Vec<String> = name.split('/').map(encoded).collect();
        let uri = self.uri(&format!("{}/{}?rev={}", document_path(id), name.join("/"), encoded(rev)));
        let peer_request = PeerRequest { accept: "*/*", ..PeerRequest::get(uri) };
        let response = self.open(&peer_request).await?;
        let status = response.status().as_u16();
        let stream = self.stream(response);
        if status != 200 {
            let body = stream.all().await.unwrap_or_default();
            return Err(peer_request.status(status, &body));
        }
        Ok((peer_request, stream))
    }
}

fn array_rows(body: &Bytes) -> Option<Vec<OpenRevsItem>> {
    let body = Bytes::from(Json::parse_envelope(body).ok()?.into_bytes());
    let array = Some(Value::trusted(&body)).filter(|value| value.is_array())?;
    let rows = array.elements().map(|row| match row.get("ok") {
        Some(document) => OpenRevsItem::Document(body.slice_ref(document.raw())),
        None => OpenRevsItem::Missing,
    });
    Some(rows.collect())
}

async fn collect(stream: &mut Stream) -> Result<Bytes, TransportError> {
    let mut all = Vec::new();
    while let Some(bytes) = stream.next().await? {
        if all.len() + bytes.len() > MAX_ANSWER_BYTES {
            return Err(TransportError::Unusable("the answer is too long".to_owned()));
        }
        all.extend_from_slice(&bytes);
    }
    Ok(Bytes::from(all))
}

impl OpenRevs {
    /// Returns `None` after the last revision. Skips the unread remainder of the previous one.
    pub(crate) async fn next(&mut self) -> Result<Option<OpenRevsItem>, PeerError> {
        if let Shape::Array(rows) = &mut self.shape {
            let rows = match rows {
                Some(rows) => rows,
                None => {
                    let body = collect(&mut self.stream).await.map_err(|error| self.peer_request.transport(error))?;
                    rows.insert(
                        array_rows(&body).ok_or_else(|| self.peer_request.protocol("not an array"))?.into_iter(),
                    )
                }
            };
            return Ok(rows.next());
        }
        loop {
            let Some(event) = self.outer().await? else { return Ok(None) };
            let Event::Part(head) = event else { continue };
            let content_type = head.content_type().unwrap_or_else(|| ContentType::parse("application/json"));
            if content_type.is_multipart() {
                let parser =
                    Parser::of(&content_type).map_err(|error| self.peer_request.protocol(error.to_string()))?;
                if let Shape::Mixed { inner, .. } = &mut self.shape {
                    *inner = Some(Box::new(parser));
                }
                return Ok(Some(OpenRevsItem::Related));
            }
            let text = self.part_text().await?;
            let missing = content_type.parameter("error").is_some();
            return Ok(Some(if missing { OpenRevsItem::Missing } else { OpenRevsItem::Document(text) }));
        }
    }

    pub(crate) async fn related(&mut self) -> Result<Event, PeerError> {
        loop {
            let Shape::Mixed { inner: Some(inner), .. } = &mut self.shape else { return Ok(Event::End) };
            if let Some(event) = inner.next().map_err(|error| self.invalid_response(error))? {
                if event == Event::End
                    && let Shape::Mixed { inner, .. } = &mut self.shape
                {
                    *inner = None;
                }
                return Ok(event);
            }
            let event = self.outer().await?;
            let Shape::Mixed { inner: Some(inner), .. } = &mut self.shape else { return Ok(Event::End) };
            match event {
                Some(Event::Data(bytes)) => inner.feed(&bytes),
                _ => inner.finish(),
            }
        }
    }

    async fn part_text(&mut self) -> Result<Bytes, PeerError> {
        let mut text = Vec::new();
        loop {
            match self.outer().await? {
                Some(Event::Data(bytes)) if text.len() + bytes.len() > MAX_ANSWER_BYTES => {
                    return Err(self.peer_request.protocol("a document is too long"));
                }
                Some(Event::Data(bytes)) => text.extend_from_slice(&bytes),
                _ => return Ok(compacted(Bytes::from(text))),
            }
        }
    }

    async fn outer(&mut self) -> Result<Option<Event>, PeerError> {
        loop {
            let Shape::Mixed { outer, .. } = &mut self.shape else { return Ok(None) };
            match outer.next() {
                Ok(Some(Event::End)) => return Ok(None),
                Ok(Some(event)) => return Ok(Some(event)),
                Ok(None) => {}
                Err(error) => return Err(self.invalid_response(error)),
            }
            let bytes = self.stream.next().await.map_err(|error| self.peer_request.transport(error))?;
            let Shape::Mixed { outer, .. } = &mut self.shape else { return Ok(None) };
            match bytes {
                Some(bytes) => outer.feed(&bytes),
                None => outer.finish(),
            }
        }
    }

    fn invalid_response(&self, error: MultipartError) -> PeerError {
        match error {
            // A broken connection may appear only as an early end.
            MultipartError::EndedEarly => self.peer_request.transport(TransportError::Broken(error.to_string())),
            _ => self.peer_request.protocol(error.to_string()),
        }
    }

    /// Returns true if the response contains stubs even for attachments that are newer than the possible ancestors.
    pub(crate) fn sends_no_attachments(&self) -> bool {
        matches!(self.shape, Shape::Array(_))
    }

    pub(crate) fn protocol(&self, detail: impl Into<String>) -> PeerError {
        self.peer_request.protocol(detail)
    }
}
