//! Alters the responses of the model.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use tokio::sync::mpsc;

use crate::peer::channel_body;
use crate::transport::{Body, BoxFuture, Transport, TransportError, empty_body, full_body};

/// The peer handles the request in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Alteration {
    None,
    Bytes,
    /// Pieces of a hundred bytes, with twenty seconds between them.
    Slow,
    Spaced,
    Cut(usize),
    Stalled,
    Twice,
    Text(&'static str),
    Page(u16),
    Status(u16),
    Moved(u16),
}

pub(crate) const HARMLESS: [Alteration; 4] =
    [Alteration::None, Alteration::Bytes, Alteration::Slow, Alteration::Spaced];

pub(crate) const HARMFUL: [Alteration; 23] = [
    Alteration::Cut(0),
    Alteration::Cut(1),
    Alteration::Cut(8),
    Alteration::Cut(15),
    Alteration::Stalled,
    Alteration::Twice,
    Alteration::Text("[]"),
    Alteration::Text("{}"),
    Alteration::Text("null"),
    Alteration::Text("7"),
    Alteration::Text("\"x\""),
    Alteration::Text("[[]]"),
    Alteration::Text("[null]"),
    Alteration::Text("{\"results\":null}"),
    Alteration::Text("{\"results\":{}}"),
    Alteration::Text("{\"a\":01}"),
    Alteration::Text("\u{feff}{}"),
    Alteration::Page(200),
    Alteration::Page(502),
    Alteration::Status(204),
    Alteration::Status(304),
    Alteration::Moved(301),
    Alteration::Moved(307),
];

pub(crate) struct Altering {
    inner: Arc<dyn Transport>,
    alteration: Alteration,
    kind: &'static str,
    count: u64,
    altered: AtomicU64,
}

impl Altering {
    pub(crate) fn new(inner: Arc<dyn Transport>, kind: &'static str, alteration: Alteration, count: u64) -> Arc<Self> {
        Arc::new(Self { inner, alteration, kind, count, altered: AtomicU64::new(0) })
    }

    pub(crate) fn altered(&self) -> u64 {
        self.altered.load(Ordering::SeqCst)
    }
}

/// The flags are true if the kind occurs with the source, and with the target.
pub(crate) const KINDS: [(&str, bool, bool); 11] = [
    ("information", true, true),
    ("read checkpoint", true, true),
    ("write checkpoint", true, true),
    ("commit", true, true),
    ("changes", true, false),
    ("bulk_get", true, false),
    ("open_revs", true, false),
    ("revs_diff", false, true),
    ("bulk_docs", false, true),
    ("put", false, true),
    ("create", false, true),
];

fn kind(request: &Request<Body>) -> &'static str {
    let path = request.uri().path();
    let is_get = request.method() == Method::GET;
    let name = path.trim_start_matches('/').split_once('/').map_or("", |(_, rest)| rest);
    match name {
        "" if is_get => "information",
        "" => "create",
        "_changes" => "changes",
        "_bulk_get" => "bulk_get",
        "_revs_diff" => "revs_diff",
        "_bulk_docs" => "bulk_docs",
        "_ensure_full_commit" => "commit",
        _ if name.starts_with("_local") && is_get => "read checkpoint",
        _ if name.starts_with("_local") => "write checkpoint",
        _ if request.uri().query().unwrap_or_default().contains("open_revs") => "open_revs",
        _ if is_get => "document",
        _ => "put",
    }
}

fn spaced(text: &[u8]) -> Vec<u8> {
    let (mut out, mut in_string, mut escaped) = (b"\r\n".to_vec(), false, false);
    for &byte in text {
        let is_sign = !in_string && b"{}[],:".contains(&byte);
        if is_sign {
            out.extend_from_slice(b" \t");
        }
        out.push(byte);
        if is_sign {
            out.extend_from_slice(b"\n ");
        }
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            _ => {}
        }
    }
    out
}

pub(crate) fn in_pieces(pieces: Vec<Bytes>, pause: Duration, ends: bool) -> Body {
    let length: usize = pieces.iter().map(Bytes::len).sum();
    let (sender, receiver) = mpsc::channel(1);
    tokio::spawn(async move {
        for piece in pieces {
            tokio::time::sleep(pause).await;
            if sender.send(Ok(piece)).await.is_err() {
                return;
            }
        }
        if !ends {
            sender.closed().await;
        }
    });
    channel_body(receiver, if ends { length as u64 } else { u64::MAX })
}

fn cut(bytes: &Bytes, length: usize) -> Vec<Bytes> {
    (0..bytes.len()).step_by(length).map(|at| bytes.slice(at..bytes.len().min(at + length))).collect()
}

impl Alteration {
    async fn apply(self, response: Response<Body>) -> Result<Response<Body>, TransportError> {
        let (head, body) = response.into_parts();
        let bytes = body.collect().await?.to_bytes();
        let is_json = head.headers.get("content-type").is_some_and(|value| value == "application/json");
        let answer = |status: u16, content_type: &str, body: Body| {
            let builder = Response::builder().status(status).header("content-type", content_type);
            builder.body(body).map_err(|error| TransportError::Unusable(error.to_string()))
        };
        let body = match self {
            Self::Text(text) => return answer(200, "application/json", full_body(text)),
            Self::Page(status) => return answer(status, "text/html", full_body("<html><p>Welcome \"here</p></html>")),
            Self::Status(status) => return answer(status, "text/plain", empty_body()),
            Self::Moved(status) => {
                let builder = Response::builder().status(status).header("location", "http://elsewhere.example/db/");
                return builder.body(empty_body()).map_err(|error| TransportError::Unusable(error.to_string()));
            }
            Self::Spaced if is_json => full_body(spaced(&bytes)),
            Self::None | Self::Spaced => full_body(bytes),
            Self::Bytes => in_pieces(cut(&bytes, 1), Duration::ZERO, true),
            Self::Slow => in_pieces(cut(&bytes, 100), Duration::from_secs(20), true),
            Self::Cut(sixteenths) => full_body(bytes.slice(..bytes.len() * sixteenths / 16)),
            Self::Stalled => in_pieces(vec![bytes.slice(..bytes.len() / 2)], Duration::ZERO, false),
            Self::Twice => full_body([&bytes[..], &bytes[..]].concat()),
        };
        Ok(Response::from_parts(head, body))
    }
}

impl Transport for Altering {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        let is_altered = kind(&request) == self.kind && self.altered.load(Ordering::SeqCst) < self.count;
        if is_altered {
            self.altered.fetch_add(1, Ordering::SeqCst);
        }
        Box::pin(async move {
            let response = self.inner.call(request).await?;
            if is_altered { self.alteration.apply(response).await } else { Ok(response) }
        })
    }
}
