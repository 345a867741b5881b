//! [`Peer`]: a database that is accessed by the HTTP protocol. Exchanges with an unknown outcome are retried with
//! increasing delays, so all requests must be idempotent.

mod auth;
pub(crate) mod changes;
mod database;
pub(crate) mod documents;
pub(crate) mod open_revs;
pub(crate) mod plain;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, RETRY_AFTER, SET_COOKIE, USER_AGENT};
use http::{HeaderName, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::BodyExt;
use percent_encoding::utf8_percent_encode;
use settee_model::json::{Json, Value};
use tokio::sync::mpsc;

use auth::Login;

use crate::endpoint::{COMPONENT, Endpoint};
use crate::transport::{Body, LongLived, Transport, TransportError, full_body};
use crate::tuning::Tuning;

const MAX_ANSWER_BYTES: usize = 64 << 20;

/// Size of the pieces of a request. A connection that takes one before the timeout is slow, not unresponsive.
const PIECE_BYTES: usize = 64 << 10;

const RETRY_DELAY_MIN_MS: u64 = 250;

/// Maximum delay, including delays that the peer requests.
const RETRY_DELAY_MAX_MS: u64 = 300_000;

/// Maximum total time during which a peer may return 429 for one request; as in CouchDB it uses no retry.
const RATE_LIMITED_MAX_MS: u64 = 600_000;

#[derive(Clone)]
pub struct Peer {
    inner: Arc<Inner>,
}

struct Inner {
    endpoint: Endpoint,
    database_uri: String,
    transport: Arc<dyn Transport>,
    tuning: Tuning,
    auth: auth::State,
    /// Cleared when the peer has shown that it does not support `_bulk_get`.
    has_bulk_get: AtomicBool,
}

/// Error after all retries. URLs contain no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PeerError {
    #[error("db_not_found: could not open {0}")]
    DbNotFound(String),
    #[error("unauthorized: unauthorized to access or create database {0}")]
    Unauthorized(String),
    #[error("unauthorized: unauthorized to access or create database {0}")]
    Unauthenticated(String),
    #[error("{method} {url}: {status} {error}: {reason}")]
    Status { method: String, url: String, status: u16, error: String, reason: String },
    #[error("{method} {url}: {error}")]
    Transport { method: String, url: String, error: TransportError },
    #[error("{method} {url}: the answer is invalid: {detail}")]
    Protocol { method: String, url: String, detail: String },
}

impl PeerError {
    /// Returns true if the peer rejects the request because of its size, so that a smaller request may succeed.
    pub(crate) fn is_too_large(&self) -> bool {
        matches!(self, Self::Status { status: TOO_LARGE, .. })
    }

    /// Returns true if a retry may succeed: the connection broke, or the peer was busy.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Transport { error, .. } => !matches!(error, TransportError::Unusable(_)),
            Self::Status { status, .. } => is_transient(*status),
            Self::DbNotFound(_) | Self::Unauthorized(_) | Self::Unauthenticated(_) | Self::Protocol { .. } => false,
        }
    }

    /// Returns true if a retry with the same credentials only adds to the failed logins of the account.
    pub(crate) fn is_unauthenticated(&self) -> bool {
        matches!(self, Self::Unauthenticated(_) | Self::Status { status: 401, .. })
    }
}

pub(crate) const TOO_LARGE: u16 = 413;

fn is_transient(status: u16) -> bool {
    status >= 500 && status != 501 || status == 408 || status == 429
}

#[derive(Clone, Debug)]
pub(crate) struct PeerRequest {
    method: Method,
    uri: String,
    accept: &'static str,
    body: Bytes,
    lasts: bool,
}

impl PeerRequest {
    fn get(uri: String) -> Self {
        Self { method: Method::GET, uri, accept: "application/json", body: Bytes::new(), lasts: false }
    }

    fn post(uri: String, body: impl Into<Bytes>) -> Self {
        Self { method: Method::POST, body: body.into(), ..Self::get(uri) }
    }

    fn put(uri: String, body: impl Into<Bytes>) -> Self {
        Self { method: Method::PUT, body: body.into(), ..Self::get(uri) }
    }

    pub(crate) fn transport(&self, error: TransportError) -> PeerError {
        PeerError::Transport { method: self.method.to_string(), url: self.uri.clone(), error }
    }

    fn protocol(&self, detail: impl Into<String>) -> PeerError {
        PeerError::Protocol { method: self.method.to_string(), url: self.uri.clone(), detail: detail.into() }
    }

    fn status(&self, status: u16, body: &[u8]) -> PeerError {
        let (error, reason) = error_of(body);
        PeerError::Status { method: self.method.to_string(), url: self.uri.clone(), status, error, reason }
    }
}

fn error_of(body: &[u8]) -> (String, String) {
    let text = |json: &Json, name| json.value().get(name).and_then(Value::as_str).map(Cow::into_owned);
    match Json::parse(body) {
        Ok(json) => (text(&json, "error").unwrap_or_default(), text(&json, "reason").unwrap_or_default()),
        Err(_) => Default::default(),
    }
}

#[derive(Debug)]
pub(crate) struct PeerResponse {
    pub(crate) status: u16,
    pub(crate) body: Bytes,
}

impl PeerResponse {
    fn json(&self, peer_request: &PeerRequest) -> Result<Json, PeerError> {
        Json::parse(&self.body).map_err(|error| peer_request.protocol(error.to_string()))
    }

    fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }
}

pub(crate) struct Stream {
    body: Body,
    timeout: Option<Duration>,
}

impl Stream {
    pub(crate) async fn next(&mut self) -> Result<Option<Bytes>, TransportError> {
        loop {
            let frame = match self.timeout {
                Some(timeout) => {
                    tokio::time::timeout(timeout, self.body.frame()).await.map_err(|_| TransportError::Timeout)?
                }
                None => self.body.frame().await,
            };
            match frame {
                None => return Ok(None),
                Some(frame) => match frame?.into_data() {
                    Ok(data) if data.is_empty() => {}
                    Ok(data) => return Ok(Some(data)),
                    Err(_trailers) => {}
                },
            }
        }
    }

    async fn all(mut self) -> Result<Bytes, TransportError> {
        let Some(first) = self.next().await? else { return Ok(Bytes::new()) };
        let Some(second) = self.next().await? else { return Ok(first) };
        let mut all = Vec::with_capacity(2 * (first.len() + second.len()));
        all.extend_from_slice(&first);
        all.extend_from_slice(&second);
        while let Some(bytes) = self.next().await? {
            if all.len() + bytes.len() > MAX_ANSWER_BYTES {
                return Err(TransportError::Unusable("the answer is too long".to_owned()));
            }
            all.extend_from_slice(&bytes);
        }
        Ok(Bytes::from(all))
    }
}

impl Peer {
    #[must_use]
    pub fn new(endpoint: Endpoint, transport: Arc<dyn Transport>, tuning: &Tuning) -> Self {
        let database_uri = endpoint.database_uri();
        let auth = auth::State::of(&endpoint);
        let has_bulk_get = AtomicBool::new(tuning.use_bulk_get);
        Self {
            inner: Arc::new(Inner { endpoint, database_uri, transport, tuning: tuning.clone(), auth, has_bulk_get }),
        }
    }

    #[must_use]
    pub fn endpoint(&self) -> &Endpoint {
        &self.inner.endpoint
    }

    pub(crate) fn tuning(&self) -> &Tuning {
        &self.inner.tuning
    }

    fn uri(&self, path: &str) -> String {
        format!("{}/{path}", self.inner.database_uri)
    }

    fn timeout(&self) -> Option<Duration> {
        match &self.inner.endpoint {
            Endpoint::Remote(_) => Some(Duration::from_millis(self.inner.tuning.connection_timeout_ms)),
            // A commit of this server has no time limit.
            Endpoint::Local(_) => None,
        }
    }

    /// Retries if a retry may succeed, and reads the complete response.
    pub(crate) async fn exchange(&self, peer_request: &PeerRequest) -> Result<PeerResponse, PeerError> {
        let mut tries = Attempts::new(&self.inner.tuning);
        loop {
            let result = match self
                .send(peer_request, self.body(&peer_request.body), Length::Known(peer_request.body.len()))
                .await
            {
                Ok(response) => {
                    let (status, wait_ms) = (response.status().as_u16(), retry_after_ms(&response));
                    self.stream(response).all().await.map(|body| (PeerResponse { status, body }, wait_ms))
                }
                Err(error) => Err(error),
            };
            match result {
                Ok((answer, wait_ms)) if is_transient(answer.status) => {
                    if !tries.wait_after(answer.status, wait_ms).await {
                        return Err(peer_request.status(answer.status, &answer.body));
                    }
                }
                Ok((answer, _)) => return Ok(answer),
                Err(error @ TransportError::Unusable(_)) => return Err(peer_request.transport(error)),
                Err(error) => {
                    if !tries.wait(None).await {
                        return Err(peer_request.transport(error));
                    }
                }
            }
        }
    }

    async fn open(&self, peer_request: &PeerRequest) -> Result<Response<Body>, PeerError> {
        let mut tries = Attempts::new(&self.inner.tuning);
        loop {
            match self.send(peer_request, self.body(&peer_request.body), Length::Known(peer_request.body.len())).await {
                Ok(response) if is_transient(response.status().as_u16()) => {
                    let (status, wait_ms) = (response.status().as_u16(), retry_after_ms(&response));
                    let body = self.stream(response).all().await.unwrap_or_default();
                    if !tries.wait_after(status, wait_ms).await {
                        return Err(peer_request.status(status, &body));
                    }
                }
                Ok(response) => return Ok(response),
                Err(error @ TransportError::Unusable(_)) => return Err(peer_request.transport(error)),
                Err(error) => {
                    if !tries.wait(None).await {
                        return Err(peer_request.transport(error));
                    }
                }
            }
        }
    }

    fn body(&self, bytes: &Bytes) -> Body {
        match &self.inner.endpoint {
            Endpoint::Remote(_) if bytes.len() > PIECE_BYTES => SlicedBody(bytes.clone()).boxed_unsync(),
            Endpoint::Remote(_) | Endpoint::Local(_) => full_body(bytes.clone()),
        }
    }

    async fn open_stream(&self, peer_request: &PeerRequest) -> Result<Stream, PeerError> {
        let response = self.open(peer_request).await?;
        let status = response.status();
        let stream = self.stream(response);
        if !status.is_success() {
            let body = stream.all().await.unwrap_or_default();
            return Err(peer_request.status(status.as_u16(), &body));
        }
        Ok(stream)
    }

    fn stream(&self, response: Response<Body>) -> Stream {
        Stream { body: response.into_body(), timeout: self.timeout() }
    }

    /// Makes one attempt, or two if the first one shows that the session has expired.
    async fn send(
        &self,
        peer_request: &PeerRequest,
        body: Body,
        length: Length,
    ) -> Result<Response<Body>, TransportError> {
        let Login::Sent(cookie) = self.inner.auth.cookie(self).await? else { return Ok(auth::refusal()) };
        let again = matches!(length, Length::Known(_)).then(|| self.body(&peer_request.body));
        let content_type = (!peer_request.body.is_empty()).then_some("application/json");
        let response = self.send_once(peer_request, content_type, body, length.clone(), cookie.as_deref()).await?;
        match (again, cookie) {
            (Some(body), Some(cookie)) if response.status() == StatusCode::UNAUTHORIZED => {
                drop(response);
                let Login::Sent(cookie) = self.inner.auth.renew(self, &cookie).await? else {
                    return Ok(auth::refusal());
                };
                self.send_once(peer_request, content_type, body, length, cookie.as_deref()).await
            }
            _ => Ok(response),
        }
    }

    async fn send_once(
        &self,
        peer_request: &PeerRequest,
        content_type: Option<&str>,
        body: Body,
        length: Length,
        cookie: Option<&str>,
    ) -> Result<Response<Body>, TransportError> {
        let unusable =
            |detail: &dyn std::fmt::Display| TransportError::Unusable(format!("{}: {detail}", peer_request.uri));
        let mut request = http::Request::builder()
            .method(peer_request.method.clone())
            .uri(peer_request.uri.as_str())
            .body(())
            .map_err(|error| unusable(&error))?;
        if peer_request.lasts {
            request.extensions_mut().insert(LongLived);
        }
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, HeaderValue::from_static(concat!("Settee-Replicator/", env!("CARGO_PKG_VERSION"))));
        if let Endpoint::Remote(remote) = &self.inner.endpoint {
            for (name, value) in &remote.headers {
                let name = HeaderName::from_bytes(name.as_bytes()).map_err(|error| unusable(&error))?;
                headers.insert(name, HeaderValue::from_str(value).map_err(|error| unusable(&error))?);
            }
        }
        headers.insert(ACCEPT, HeaderValue::from_static(peer_request.accept));
        if let Some(content_type) = content_type {
            headers.insert(CONTENT_TYPE, HeaderValue::from_str(content_type).map_err(|error| unusable(&error))?);
        }
        match length {
            Length::Known(0) if peer_request.method == Method::GET => {}
            Length::Known(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
            Length::Streamed(length) => drop(headers.insert(CONTENT_LENGTH, HeaderValue::from(length))),
        }
        match cookie {
            Some(cookie) => {
                headers.insert(COOKIE, HeaderValue::from_str(cookie).map_err(|error| unusable(&error))?);
            }
            None => self.inner.auth.authorize(headers),
        }
        let response = self.call(request.map(|()| body)).await?;
        if let Some(cookie) = response.headers().get_all(SET_COOKIE).iter().find_map(auth::session_cookie) {
            self.inner.auth.update(cookie);
        }
        Ok(response)
    }

    async fn call(&self, request: http::Request<Body>) -> Result<Response<Body>, TransportError> {
        let Some(timeout) = self.timeout() else { return self.inner.transport.call(request).await };
        let sent = Arc::new(AtomicU64::new(0));
        let (head, body) = request.into_parts();
        let request = http::Request::from_parts(head, with_progress(body, sent.clone()));
        let mut exchange = self.inner.transport.call(request);
        let mut seen = 0;
        loop {
            match tokio::time::timeout(timeout, &mut exchange).await {
                Ok(result) => return result,
                Err(_) if sent.load(Ordering::Relaxed) != seen => seen = sent.load(Ordering::Relaxed),
                Err(_) => return Err(TransportError::Timeout),
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Length {
    Known(usize),
    Streamed(u64),
}

fn with_progress(body: Body, taken: Arc<AtomicU64>) -> Body {
    body.map_frame(move |frame| {
        taken.fetch_add(1, Ordering::Relaxed);
        frame
    })
    .boxed_unsync()
}

struct SlicedBody(Bytes);

impl http_body::Body for SlicedBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let length = self.0.len().min(PIECE_BYTES);
        let piece = self.0.split_to(length);
        Poll::Ready((!piece.is_empty()).then_some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.0.len() as u64)
    }
}

/// Returns a body of `length` bytes from another task. The body fails if that task ends early.
pub(crate) fn channel_body(pieces: mpsc::Receiver<Result<Bytes, TransportError>>, length: u64) -> Body {
    ChannelBody { pieces, left: length }.boxed_unsync()
}

struct ChannelBody {
    pieces: mpsc::Receiver<Result<Bytes, TransportError>>,
    left: u64,
}

impl http_body::Body for ChannelBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        let piece = match std::task::ready!(self.pieces.poll_recv(context)) {
            Some(Ok(piece)) => piece,
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            None => return Poll::Ready(Some(Err(TransportError::Broken("the source ended early".to_owned())))),
        };
        let broken = || TransportError::Broken("the source sent more than it had announced".to_owned());
        self.left = match self.left.checked_sub(piece.len() as u64) {
            Some(left) => left,
            None => return Poll::Ready(Some(Err(broken()))),
        };
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(self.left)
    }
}

fn retry_after_ms(response: &Response<Body>) -> Option<u64> {
    let seconds: u64 = response.headers().get(RETRY_AFTER)?.to_str().ok()?.trim().parse().ok()?;
    Some(seconds.saturating_mul(1000))
}

pub(crate) struct Attempts {
    left: u32,
    wait_ms: u64,
    limited_ms: u64,
}

impl Attempts {
    pub(crate) fn new(tuning: &Tuning) -> Self {
        Self { left: tuning.retries_per_request, wait_ms: RETRY_DELAY_MIN_MS, limited_ms: RATE_LIMITED_MAX_MS }
    }

    /// Waits before the next attempt, at least the requested `asked_ms`. Returns false if no retry is left.
    pub(crate) async fn wait(&mut self, asked_ms: Option<u64>) -> bool {
        if self.left == 0 {
            return false;
        }
        self.left -= 1;
        tokio::time::sleep(Duration::from_millis(self.next_ms(asked_ms))).await;
        true
    }

    async fn wait_after(&mut self, status: u16, asked_ms: Option<u64>) -> bool {
        if status != 429 {
            return self.wait(asked_ms).await;
        }
        let wait_ms = self.next_ms(asked_ms);
        let Some(left_ms) = self.limited_ms.checked_sub(wait_ms) else { return false };
        self.limited_ms = left_ms;
        tokio::time::sleep(Duration::from_millis(wait_ms)).await;
        true
    }

    fn next_ms(&mut self, asked_ms: Option<u64>) -> u64 {
        let wait_ms = self.wait_ms.max(asked_ms.unwrap_or(0)).min(RETRY_DELAY_MAX_MS);
        self.wait_ms = (self.wait_ms * 2).min(RETRY_DELAY_MAX_MS);
        wait_ms
    }
}

fn encoded(text: &str) -> String {
    utf8_percent_encode(text, COMPONENT).to_string()
}

/// The slash after `_design` and `_local` is not escaped.
fn document_path(id: &str) -> String {
    for prefix in ["_design/", "_local/"] {
        if let Some(name) = id.strip_prefix(prefix) {
            return format!("{prefix}{}", encoded(name));
        }
    }
    encoded(id)
}
