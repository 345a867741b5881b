//! Responses: [`Response`], its [`Body`], and the common headers.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::budget::{Account, SLICE_BYTES};
use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Frame;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, StatusCode};
use tokio::sync::mpsc;

pub type Response = hyper::Response<Body>;

/// The sender of a streamed body has failed: the connection is closed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the answer could not be completed")]
pub struct Aborted;

pub enum Body {
    Whole(Option<Bytes>),
    Stream(mpsc::Receiver<Result<Bytes, Aborted>>),
    Sliced(Box<Sliced>),
    Composed(UnsyncBoxBody<Bytes, Aborted>),
}

/// Each transferred slice of a large text is progress of the client.
pub struct Sliced {
    rest: Bytes,
    account: Arc<Account>,
}

impl Sliced {
    pub fn new(text: Bytes, account: Arc<Account>) -> Self {
        Self { rest: text, account }
    }

    pub fn next_slice(&mut self) -> Option<Bytes> {
        if self.rest.is_empty() {
            return None;
        }
        let slice = self.rest.split_to(self.rest.len().min(SLICE_BYTES));
        if self.rest.is_empty() {
            self.rest = Bytes::new();
        }
        Some(self.account.slice(slice))
    }

    pub fn refill(&mut self, text: Bytes) -> Bytes {
        self.rest = text;
        self.next_slice().unwrap_or_default()
    }
}

impl hyper::body::Body for Body {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match &mut *self {
            Self::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Self::Stream(pieces) => pieces.poll_recv(cx).map(|piece| piece.map(|piece| piece.map(Frame::data))),
            Self::Sliced(text) => Poll::Ready(text.next_slice().map(|slice| Ok(Frame::data(slice)))),
            Self::Composed(answers) => Pin::new(answers).poll_frame(cx),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(bytes) => bytes.is_none(),
            Self::Sliced(text) => text.rest.is_empty(),
            Self::Stream(_) | Self::Composed(_) => false,
        }
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self {
            Self::Whole(bytes) => hyper::body::SizeHint::with_exact(bytes.as_ref().map_or(0, Bytes::len) as u64),
            Self::Sliced(text) => hyper::body::SizeHint::with_exact(text.rest.len() as u64),
            Self::Stream(_) | Self::Composed(_) => hyper::body::SizeHint::default(),
        }
    }
}

pub fn whole(status: StatusCode, content_type: &'static str, body: impl Into<Bytes>) -> Response {
    let body = body.into();
    let body = Body::Whole((!body.is_empty()).then_some(body));
    with_headers(status, content_type, body)
}

pub fn streamed(content_type: &'static str, pieces: mpsc::Receiver<Result<Bytes, Aborted>>) -> Response {
    with_headers(StatusCode::OK, content_type, Body::Stream(pieces))
}

/// As in CouchDB, the text ends with a line feed.
pub fn json(status: StatusCode, mut text: Vec<u8>) -> Response {
    text.push(b'\n');
    whole(status, "application/json", text)
}

pub fn ok(status: StatusCode) -> Response {
    json(status, br#"{"ok":true}"#.to_vec())
}

pub fn moved(location: &str) -> Response {
    let mut response = whole(StatusCode::MOVED_PERMANENTLY, "application/json", Bytes::new());
    set(response.headers_mut(), header::LOCATION, location);
    response
}

/// Ignores an invalid value: the value must have been validated or created here.
pub fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) {
    if let Ok(value) = HeaderValue::from_str(value) {
        headers.insert(name, value);
    }
}

pub fn set_etag(response: &mut Response, tag: &str) {
    set(response.headers_mut(), header::ETAG, &format!("\"{tag}\""));
}

fn with_headers(status: StatusCode, content_type: &'static str, body: Body) -> Response {
    let mut response = hyper::Response::new(body);
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("must-revalidate"));
    response
}
