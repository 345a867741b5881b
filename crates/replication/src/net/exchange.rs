//! One exchange: timeouts for unresponsive peers, and redirects.

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

use super::{Peering, lasting};
use crate::transport::{Body, BoxFuture, Lasting, TransportError, empty_body, full_body};

/// Maximum number of redirects, as in CouchDB.
const REDIRECTS_MAX: usize = 10;

/// Bodies up to this size are buffered until the answer shows that they need not be sent again to another location.
const KEPT_BYTES_MAX: u64 = 16 << 20;

/// Body of a request: repeatable or not.
enum Carried {
    Bytes(Bytes),
    Once(Body),
}

/// Sends a request, follows redirects, and returns when the head of the response has arrived.
pub(super) async fn call(peering: &Peering, request: Request<Body>) -> Result<Response<Body>, TransportError> {
    let permit = Arc::clone(&peering.connections).acquire_owned().await;
    let mut permit = permit.map_err(|_| TransportError::Refused("no connections any more".to_owned()))?;
    let (mut parts, body) = request.into_parts();
    let mut carried = carry(body).await?;
    if let Some(authorization) = &peering.authorization {
        parts.headers.insert(PROXY_AUTHORIZATION, authorization.clone());
    }
    for redirects in 0.. {
        let (body, again) = match carried {
            Carried::Bytes(bytes) => (full_body(bytes.clone()), Some(bytes)),
            Carried::Once(body) => (body, None),
        };
        let mut sent = Request::new(body);
        *sent.method_mut() = parts.method.clone();
        *sent.uri_mut() = parts.uri.clone();
        *sent.headers_mut() = parts.headers.clone();
        *sent.extensions_mut() = parts.extensions.clone();
        let response = exchange(peering, sent, permit).await?;
        let (Some(target), Some(bytes)) = (redirect(&parts.uri, &response), again) else { return Ok(response) };
        if redirects >= REDIRECTS_MAX {
            return Err(TransportError::Unusable(format!("more than {REDIRECTS_MAX} redirects")));
        }
        let see_other = response.status() == StatusCode::SEE_OTHER;
        carried = Carried::Bytes(if see_other { Bytes::new() } else { bytes });
        if see_other && parts.method != Method::HEAD {
            parts.method = Method::GET;
        }
        leave(&mut parts.headers, &parts.uri, &target, see_other);
        parts.uri = target;
        // The old exchange must end before the next one starts.
        drop(response);
        let next = Arc::clone(&peering.connections).acquire_owned().await;
        permit = next.map_err(|_| TransportError::Refused("no connections any more".to_owned()))?;
    }
    unreachable!("the loop ends by itself")
}

async fn carry(body: Body) -> Result<Carried, TransportError> {
    match body.size_hint().exact() {
        Some(0) => Ok(Carried::Bytes(Bytes::new())),
        Some(size) if size <= KEPT_BYTES_MAX => Ok(Carried::Bytes(body.collect().await?.to_bytes())),
        _ => Ok(Carried::Once(body)),
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

/// Removes headers that must not be sent to another host.
fn leave(headers: &mut HeaderMap, from: &Uri, to: &Uri, see_other: bool) {
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
    peering: &Peering,
    request: Request<Body>,
    permit: OwnedSemaphorePermit,
) -> Result<Response<Body>, TransportError> {
    let alive = Arc::new(Mutex::new(Instant::now()));
    let request = request.map(|body| match body.size_hint().exact() {
        Some(0) => empty_body(),
        _ => Sending { body, alive: Arc::clone(&alive) }.boxed_unsync(),
    });
    let mut answer = send(peering, request);
    let response = loop {
        let deadline = *alive.lock() + peering.timeout;
        match tokio::time::timeout_at(deadline, answer.as_mut()).await {
            Ok(answer) => break answer?,
            // Part of the body was sent since.
            Err(_) if *alive.lock() + peering.timeout > Instant::now() => {}
            Err(_) => return Err(TransportError::Timeout),
        }
    };
    let timeout = peering.timeout;
    Ok(response.map(|body| {
        let quiet = Box::pin(tokio::time::sleep(timeout));
        Receiving { body, quiet, timeout, _permit: permit }.boxed_unsync()
    }))
}

/// Sends a request on shared connections, or on its own connection if its answer is long-lived.
fn send(peering: &Peering, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
    if request.extensions().get::<Lasting>().is_some() {
        let answer = lasting::exchange(&peering.way.connector, request);
        return Box::pin(async move { Ok(answer.await?.map(BodyExt::boxed_unsync)) });
    }
    let answer = peering.way.client.request(request);
    Box::pin(async move {
        let response = answer.await.map_err(|error| explain(&error))?;
        let broken = |error: hyper::Error| TransportError::Broken(error.to_string());
        Ok(response.map(|body| body.map_err(broken).boxed_unsync()))
    })
}

/// Converts an error of the HTTP client. The connector's own error is in the chain of causes.
fn explain(error: &hyper_util::client::legacy::Error) -> TransportError {
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

/// Body of a request that records the time at which the connection last took data from it.
struct Sending {
    body: Body,
    alive: Arc<Mutex<Instant>>,
}

impl http_body::Body for Sending {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            *self.alive.lock() = Instant::now();
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

/// Body of a response that fails after a timeout without data, and holds its connection permit until it is dropped.
struct Receiving {
    body: Body,
    quiet: Pin<Box<Sleep>>,
    timeout: Duration,
    _permit: OwnedSemaphorePermit,
}

impl http_body::Body for Receiving {
    type Data = Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, TransportError>>> {
        match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let deadline = Instant::now() + self.timeout;
                self.quiet.as_mut().reset(deadline);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(end) => Poll::Ready(end),
            Poll::Pending => match self.quiet.as_mut().poll(cx) {
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
