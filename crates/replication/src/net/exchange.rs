//! One exchange, with timeouts for unresponsive peers and redirects.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, COOKIE, HOST, LOCATION, PROXY_AUTHORIZATION};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body::{Body as _, Frame, SizeHint};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep};

use super::{RemoteTransport, long_lived};
use crate::transport::{Body, BoxFuture, Direct, LongLived, TransportError, empty_body, full_body};

const REDIRECTS_MAX: usize = 10;

/// Bodies up to this size are buffered, because a redirect requires sending them again.
const BUFFERED_BYTES_MAX: u64 = 16 << 20;

enum RequestBody {
    Bytes(Bytes),
    Streamed(Body),
}

pub(super) async fn call(
    transport: &RemoteTransport,
    request: Request<Body>,
) -> Result<Response<Body>, TransportError> {
    let permit = Arc::clone(&transport.connections).acquire_owned().await;
    let mut permit = permit.map_err(|_| TransportError::Refused("the transport has been closed".to_owned()))?;
    let (mut parts, body) = request.into_parts();
    let mut request_body = buffer_body(body).await?;
    if let Some(authorization) = &transport.authorization {
        parts.headers.insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    for redirects in 0.. {
        let (body, buffered) = match request_body {
            RequestBody::Bytes(bytes) => (full_body(bytes.clone()), Some(bytes)),
            RequestBody::Streamed(body) => (body, None),
        };
        let mut sent = Request::new(body);
        *sent.method_mut() = parts.method.clone();
        *sent.uri_mut() = parts.uri.clone();
        *sent.headers_mut() = parts.headers.clone();
        *sent.extensions_mut() = parts.extensions.clone();
        let response = exchange(transport, sent, permit).await?;
        let target = redirect(&parts.uri, &response).filter(|_| parts.extensions.get::<Direct>().is_none());
        let (Some(target), Some(bytes)) = (target, buffered) else { return Ok(response) };
        if redirects >= REDIRECTS_MAX {
            return Err(TransportError::Unusable(format!("more than {REDIRECTS_MAX} redirects")));
        }
        let see_other = response.status() == StatusCode::SEE_OTHER;
        request_body = RequestBody::Bytes(if see_other { Bytes::new() } else { bytes });
        if see_other && parts.method != Method::HEAD {
            parts.method = Method::GET;
        }
        adjust_headers_for_redirect(&mut parts.headers, &parts.uri, &target, see_other);
        parts.uri = target;
        // The permit of the old exchange must be released before the next one is acquired.
        drop(response);
        let next = Arc::clone(&transport.connections).acquire_owned().await;
        permit = next.map_err(|_| TransportError::Refused("the transport has been closed".to_owned()))?;
    }
    unreachable!("the loop ends by itself")
}

async fn buffer_body(body: Body) -> Result<RequestBody, TransportError> {
    match body.size_hint().exact() {
        Some(0) => Ok(RequestBody::Bytes(Bytes::new())),
        Some(size) if size <= BUFFERED_BYTES_MAX => Ok(RequestBody::Bytes(body.collect().await?.to_bytes())),
        _ => Ok(RequestBody::Streamed(body)),
    }
}

fn redirect(from: &Uri, response: &Response<Body>) -> Option<Uri> {
    let redirects = [301, 302, 303, 307, 308].contains(&response.status().as_u16());
    let location = response.headers().get(LOCATION).filter(|_| redirects)?.to_str().ok()?;
    if location.contains("://") {
        return location.parse().ok().filter(|uri: &Uri| matches!(uri.scheme_str(), Some("http" | "https")));
    }
    let (scheme, authority) = (from.scheme_str()?, from.authority()?.as_str());
    let absolute = match location.strip_prefix("//") {
        Some(rest) => format!("{scheme}://{rest}"),
        None if location.starts_with('/') => format!("{scheme}://{authority}{location}"),
        None => {
            let directory = from.path().rsplit_once('/').map_or("", |(directory, _)| directory);
            format!("{scheme}://{authority}{directory}/{location}")
        }
    };
    absolute.parse().ok()
}

fn adjust_headers_for_redirect(headers: &mut HeaderMap, from: &Uri, to: &Uri, see_other: bool) {
    headers.remove(HOST);
    if (from.scheme(), from.authority()) != (to.scheme(), to.authority()) {
        headers.remove(AUTHORIZATION);
        headers.remove(COOKIE);
    }
    if see_other {
        headers.remove(CONTENT_LENGTH);
        headers.remove(CONTENT_TYPE);
    }
}

async fn exchange(
    transport: &RemoteTransport,
    request: Request<Body>,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, TransportError> {
    let last_progress = Arc::new(Mutex::new(Instant::now()));
    let request = request.map(|body| match body.size_hint().exact() {
        Some(0) => empty_body(),
        _ => SendBody { body, last_progress: Arc::clone(&last_progress) }.boxed_unsync(),
    });
    let mut answer = send(transport, request);
    let response = loop {
        let deadline = *last_progress.lock() + transport.timeout;
        match tokio::time::timeout_at(deadline, answer.as_mut()).await {
            Ok(answer) => break answer?,
            Err(_) if *last_progress.lock() + transport.timeout > Instant::now() => {}
            Err(_) => return Err(TransportError::Timeout),
        }
    };
    let timeout = transport.timeout;
    Ok(response.map(|body| {
        let idle_timer = Box::pin(tokio::time::sleep(timeout));
        ReceiveBody { body, idle_timer, timeout, _permit: permit }.boxed_unsync()
    }))
}

/// A long-lived response gets a connection of its own.
fn send(transport: &RemoteTransport, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
    if request.extensions().get::<LongLived>().is_some() {
        let answer = long_lived::exchange(&transport.route.connector, request);
        return Box::pin(async move { Ok(answer.await?.map(BodyExt::boxed_unsync)) });
    }
    let answer = transport.route.client.request(request);
    Box::pin(async move {
        let response = answer.await.map_err(|error| transport_error(&error))?;
        let broken = |error: hyper::Error| TransportError::Broken(error.to_string());
        Ok(response.map(|body| body.map_err(broken).boxed_unsync()))
    })
}

fn transport_error(error: &hyper_util::client::legacy::Error) -> TransportError {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    let mut innermost = String::new();
    while let Some(error) = cause {
        if let Some(known) = error.downcast_ref::<TransportError>() {
            return known.clone();
        }
        innermost = error.to_string();
        cause = error.source();
    }
    if error.is_connect() { TransportError::Refused(innermost) } else { TransportError::Broken(innermost) }
}

/// Records the time at which the connection last took data.
struct SendBody {
    body: Body,
    last_progress: Arc<Mutex<Instant>>,
}

impl http_body::Body for SendBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            *self.last_progress.lock() = Instant::now();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Fails after a timeout without data. Holds the connection permit until it is dropped.
struct ReceiveBody {
    body: Body,
    idle_timer: Pin<Box<Sleep>>,
    timeout: Duration,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for ReceiveBody {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let deadline = Instant::now() + self.timeout;
                self.idle_timer.as_mut().reset(deadline);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => match self.idle_timer.as_mut().poll(cx) {
                Poll::Ready(()) => Poll::Ready(Some(Err(TransportError::Timeout))),
                Poll::Pending => Poll::Pending,
            },
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
