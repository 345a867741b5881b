//! Connections: accepting, limits, the way of a request through the stages, and an orderly end.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Method};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::node::Node;
use crate::request::{Line, Unread};
use crate::respond::{self, Answer, Response};
use crate::router::Router;
use crate::target::Lenient;
use crate::{Error, access, routes};

/// The most connections at a time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 20_000;

/// How long a client may take to send the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);

/// The most bytes of a request's head, and of what is read ahead of its body.
const READ_BUFFER_BYTES: usize = 128 << 10;

/// How long open requests may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
const METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");

/// Tells the server to stop.
#[derive(Clone, Debug)]
pub struct Shutdown(watch::Sender<bool>);

impl Shutdown {
    /// A server that was not told to stop yet.
    #[must_use]
    pub fn new() -> Self {
        Self(watch::Sender::new(false))
    }

    /// Begins the end: feeds end, running requests finish, nothing new is accepted.
    pub fn begin(&self) {
        self.0.send_replace(true);
    }

    /// Becomes true when the end has begun.
    pub(crate) fn watch(&self) -> watch::Receiver<bool> {
        self.0.subscribe()
    }
}

impl Default for Shutdown {
    fn default() -> Self {
        Self::new()
    }
}

/// Serves `listener` until `shutdown` begins and open requests have ended, or have had their time.
pub async fn serve(node: Arc<Node>, listener: TcpListener, shutdown: Shutdown) {
    let router = Arc::new(routes::router(&shutdown));
    let service = Arc::new(Service { node, router, version: version_header() });
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut stopping = shutdown.watch();
    loop {
        let accept = async {
            let slot = Arc::clone(&slots).acquire_owned().await;
            (listener.accept().await, slot)
        };
        tokio::select! {
            biased;
            () = until_true(&mut stopping) => break,
            (accepted, slot) = accept => match accepted {
                Ok((stream, peer)) => {
                    let connection = connection(Arc::clone(&service), stream, peer.ip(), shutdown.watch());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    // Most often too many open files: wait for some to close.
                    tracing::warn!(%error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
            },
        }
        while connections.try_join_next().is_some() {}
    }
    drop(listener);
    // A build would hold up the query that waits for it, and is continued after the next start.
    let node = Arc::clone(&service.node);
    tokio::task::spawn_blocking(move || node.views.stop());
    let drained = tokio::time::timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} });
    if drained.await.is_err() {
        tracing::warn!(open = connections.len(), "connections were closed before their requests ended");
    }
}

async fn connection(service: Arc<Service>, stream: TcpStream, peer: IpAddr, mut stopping: watch::Receiver<bool>) {
    // Answers are written in one go, so waiting for more to send only adds delay.
    let _ = stream.set_nodelay(true);
    let serve = service_fn(move |request| {
        let service = Arc::clone(&service);
        async move { Ok::<_, Infallible>(service.answer(request, peer).await) }
    });
    let mut builder = http1::Builder::new();
    // No flushing of several answers at once: with it the library takes in whole answers that nobody reads.
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(READ_BUFFER_BYTES);
    let connection = builder.serve_connection(TokioIo::new(Lenient::new(stream)), serve);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        () = until_true(&mut stopping) => None,
    };
    let ended = match ended {
        Some(ended) => ended,
        None => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended");
    }
}

/// Ends when the end of the server has begun.
pub(crate) async fn until_true(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server; without one the end has come all the same.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

struct Service {
    node: Arc<Node>,
    router: Arc<Router>,
    version: HeaderValue,
}

impl Service {
    async fn answer(&self, request: hyper::Request<Incoming>, peer: IpAddr) -> Response {
        let (parts, body) = request.into_parts();
        let id = self.request_id(&parts.headers);
        let method = effective_method(&parts.method, &parts.headers);
        let line = Line { method: method.clone(), uri: parts.uri.clone(), peer, requested: None, rewrites: 0 };
        let answer = self.route(line, parts.headers, body).await;
        let mut response = answer.unwrap_or_else(|error| {
            if error.status.is_server_error() {
                tracing::error!(%method, path = parts.uri.path(), request = id, name = %error.name,
                    reason = %error.reason, "a request failed");
            }
            access::refuse(&self.node, &error)
        });
        tracing::debug!(%method, path = parts.uri.path(), status = response.status().as_u16(), request = id, "answered");
        let headers = response.headers_mut();
        headers.insert(header::SERVER, self.version.clone());
        respond::set(headers, REQUEST_ID, &id);
        response
    }

    async fn route(&self, mut line: Line, headers: HeaderMap, body: Incoming) -> Answer {
        let limit = self.node.settings.number("chttpd", "max_uri_length", 8000);
        if line.uri.path_and_query().is_some_and(|target| target.as_str().len() as u64 > limit) {
            return Err(Error::new(hyper::StatusCode::URI_TOO_LONG, "too_long", "the request URI is too long"));
        }
        let user = access::authenticate(&self.node, &headers).await?;
        if line.method == Method::HEAD {
            line.method = Method::GET;
        }
        self.router.dispatch(&self.node, line, headers, user, Some(Unread::Incoming(body))).await
    }

    /// The client's own id if it is harmless, otherwise a fresh one.
    fn request_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let harmless = |id: &&str| {
            (1..=36).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        given.filter(harmless).map_or_else(|| self.node.request_id(), str::to_owned)
    }
}

/// POST may stand for another method, for clients that can send nothing else.
fn effective_method(method: &Method, headers: &HeaderMap) -> Method {
    if method != Method::POST {
        return method.clone();
    }
    let named = headers.get(METHOD_OVERRIDE).and_then(|value| value.to_str().ok());
    match named.map(str::to_ascii_uppercase).as_deref() {
        Some("GET") => Method::GET,
        Some("HEAD") => Method::HEAD,
        Some("PUT") => Method::PUT,
        Some("DELETE") => Method::DELETE,
        Some("COPY") => copy(),
        _ => Method::POST,
    }
}

/// CouchDB's own method.
pub(crate) fn copy() -> Method {
    Method::from_bytes(b"COPY").expect("COPY is a token")
}

fn version_header() -> HeaderValue {
    HeaderValue::from_static(concat!("Settee/", env!("CARGO_PKG_VERSION")))
}
