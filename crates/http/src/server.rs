//! Accepting connections, the way of a request through the stages, and an orderly end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri, Version};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use settee_settings::{Settings, chttpd};

use crate::authentication::{self, Caller};
use crate::body::inbound::Inbound;
use crate::browser::{self, Viewer};
use crate::budget::{Account, Share};
use crate::connection::{self, Accepted, Peer};
use crate::node::Node;
use crate::observe::Observation;
use crate::policy::Policy;
use crate::rate::{Client, ClientKind};
use crate::request::{Line, Unread};
use crate::respond::{self, Answer, Response};
use crate::router::Router;
use crate::slots::{Ending, Slots};
use crate::tls::Tls;
use crate::{Error, jsonp, routes, target};

/// How long open requests may take to finish when the server stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(4);

const REQUEST_ID: HeaderName = HeaderName::from_static("x-couch-request-id");
const METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// How long the body took to come, in milliseconds.
const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");

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

    /// Waits for the end to begin.
    pub async fn begun(&self) {
        until_true(&mut self.watch()).await;
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

/// Where clients come in.
pub enum Listener {
    /// HTTP/1.1 and HTTP/2 in plain text.
    Tcp(TcpListener),
    /// The same over TLS.
    Tls(TcpListener, Tls),
    /// The same over a socket in the file system.
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<Accepted> {
        match self {
            Self::Tcp(listener) => listener.accept().await.map(|(stream, peer)| Accepted::Tcp(stream, peer.ip())),
            Self::Tls(listener, tls) => {
                let (stream, peer) = listener.accept().await?;
                Ok(Accepted::Tls(stream, peer.ip(), tls.clone()))
            }
            Self::Unix(listener) => listener.accept().await.map(|(stream, _)| Accepted::Unix(stream)),
        }
    }
}

/// How many connections the configuration allows at a time.
#[must_use]
pub fn connections_max(settings: &dyn Settings) -> u64 {
    chttpd::MAX_CONNECTIONS.of(settings).max(1)
}

/// Serves `listeners`, and so many connections at a time, until `shutdown` begins and open requests have ended, or have had
/// their time.
pub async fn serve(node: Arc<Node>, listeners: Vec<Listener>, connections: u64, shutdown: Shutdown) {
    let router = Arc::new(routes::router(&shutdown));
    let most = usize::try_from(connections).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
    let slots = Slots::new(most);
    let version = version_header(&node);
    let service = Arc::new(Service { node, router, version });
    let mut accepting = JoinSet::new();
    for listener in listeners {
        accepting.spawn(accept_all(Arc::clone(&service), listener, Arc::clone(&slots), shutdown.clone()));
    }
    let mut connections = accepting.join_all().await;
    // A build would hold up the query that waits for it, and is continued after the next start.
    let node = Arc::clone(&service.node);
    tokio::task::spawn_blocking(move || node.views.stop());
    let drained = tokio::time::timeout(DRAIN_TIMEOUT, async {
        for connections in &mut connections {
            while connections.join_next().await.is_some() {}
        }
    });
    if drained.await.is_err() {
        let open: usize = connections.iter().map(JoinSet::len).sum();
        tracing::warn!(open, "connections were closed before their requests ended");
    }
}

/// Accepts clients until the end begins. Those that are still there are given back.
async fn accept_all(service: Arc<Service>, listener: Listener, slots: Arc<Slots>, shutdown: Shutdown) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let mut stopping = shutdown.watch();
    loop {
        // A slot is needed only when there is a client: idle connections give way to clients, not to nobody.
        let accept = async {
            let client = listener.accept().await?;
            io::Result::Ok((client, slots.take().await))
        };
        tokio::select! {
            biased;
            () = until_true(&mut stopping) => return connections,
            accepted = accept => match accepted {
                Ok((client, slot)) => {
                    let ending = Arc::clone(slot.ending());
                    let connection = connection::serve(Arc::clone(&service), client, ending, shutdown.watch());
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
}

/// Ends when the end of the server has begun.
pub(crate) async fn until_true(stopping: &mut watch::Receiver<bool>) {
    // The sender lives as long as the server; without one the end has come all the same.
    drop(stopping.wait_for(|stopping| *stopping).await);
}

/// What answers requests.
pub(crate) struct Service {
    node: Arc<Node>,
    router: Arc<Router>,
    version: HeaderValue,
}

impl Service {
    pub(crate) fn settings(&self) -> &dyn Settings {
        self.node.settings.as_ref()
    }

    pub(crate) async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        peer: Peer,
        ending: Arc<Ending>,
    ) -> Response {
        let (mut parts, body) = request.into_parts();
        let waits_to_be_asked = parts.headers.contains_key(header::EXPECT);
        let (body, leftover) = Inbound::new(body);
        as_http1(&mut parts);
        let id = self.request_id(&parts.headers);
        let method = effective_method(&parts.method, &parts.headers);
        let policy = self.node.policy();
        let viewer = Viewer::of(&parts.headers, peer.scheme);
        let prefers_minimal = parts.headers.get(PREFER).is_some_and(|value| value == "return=minimal");
        let Peer { ip: peer, scheme } = peer;
        let uri = parts.uri.clone();
        let observation = Observation::begin(&self.node, &method, &uri, &parts.headers, peer, &id);
        let seen = Arc::clone(&observation.seen);
        let account = Account::new(&self.node.budget, Some(ending), Share::Anonymous);
        let line = Line {
            method: method.clone(),
            uri,
            peer,
            scheme,
            handler: None,
            requested: None,
            rewrites: 0,
            seen: Arc::clone(&seen),
            account: Arc::clone(&account),
        };
        let caller = Caller::of(&line, &parts.headers);
        let mut renewed = None;
        let answer = self.route(&policy, line, parts.headers, body, &mut renewed).await;
        let mut response = answer.unwrap_or_else(|error| {
            if error.status.is_server_error() {
                tracing::error!(%method, path = parts.uri.path(), request = id, name = %error.name,
                    reason = %error.reason, "a request failed");
            }
            caller.refuse(&self.node, &error)
        });
        authentication::renew(&mut response, renewed);
        policy.browser.mark(&viewer, parts.uri.path(), &mut response);
        if policy.allows_jsonp {
            response = jsonp::wrap(parts.uri.query(), response);
        }
        let headers = response.headers_mut();
        let version = if policy.tells_versions { self.version.clone() } else { HeaderValue::from_static("CouchDB") };
        headers.insert(header::SERVER, version);
        respond::set(headers, REQUEST_ID, &id);
        headers.insert(BODY_TIME, HeaderValue::from(seen.body_ms()));
        if prefers_minimal {
            let kept = policy.minimal_headers.iter().filter_map(|name| Some((name.clone(), headers.remove(name)?)));
            let kept: HeaderMap = kept.collect();
            *headers = kept;
        }
        // A stream of HTTP/2 ends by itself.
        if parts.version < Version::HTTP_2 && !leftover.clear(waits_to_be_asked).await {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        observation.answered(response, account)
    }

    async fn route(
        &self,
        policy: &Policy,
        mut line: Line,
        headers: HeaderMap,
        body: Inbound,
        renewed: &mut Option<HeaderValue>,
    ) -> Answer {
        if let Some(error) = target::refused(&headers) {
            return Err(error);
        }
        let limit = policy.max_uri_length;
        if line.uri.path_and_query().is_some_and(|target| target.as_str().len() as u64 > limit) {
            return Err(Error::uri_too_long());
        }
        if let Some(response) = policy.browser.preflight(&line.method, &headers) {
            return Ok(response);
        }
        let anybody_is_admin = !self.node.authenticator.has_admins();
        if anybody_is_admin {
            browser::refuse_public_name(&headers)?;
        }
        policy.browser.refuse_forged(&line.method, &headers, anybody_is_admin)?;
        let by_address = Client::of_address(line.peer);
        self.count(policy, ClientKind::Address, || by_address.clone())?;
        let found = authentication::authenticate(&self.node, &line, &headers).await?;
        (line.handler, *renewed) = (found.handler, found.renewed);
        if let Some(name) = &found.user.name {
            line.seen.set_user(name);
        }
        self.count(policy, ClientKind::User, || found.user.name.clone().map_or(by_address, Client::User))?;
        if line.method == Method::HEAD {
            line.method = Method::GET;
        }
        self.router.dispatch(&self.node, line, headers, found.user, Some(Unread::Incoming(body))).await
    }

    /// Refuses the request if its client makes too many and this is how clients are told apart.
    fn count(&self, policy: &Policy, kind: ClientKind, client: impl FnOnce() -> Client) -> Result<(), Error> {
        match &policy.rate_limit {
            Some(limit) if limit.by == kind => self.node.rates.take(limit, client()),
            _ => Ok(()),
        }
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

/// Gives a request of HTTP/2 the form of one of HTTP/1.1: handlers know the host by its header, and the target has none.
fn as_http1(parts: &mut hyper::http::request::Parts) {
    let Some(authority) = parts.uri.authority().filter(|_| parts.version == Version::HTTP_2) else { return };
    if !parts.headers.contains_key(header::HOST) {
        respond::set(&mut parts.headers, header::HOST, authority.as_str());
    }
    if let Some(target) = parts.uri.path_and_query().cloned() {
        parts.uri = Uri::from(target);
    }
}

/// POST may stand for another method, for clients that can send nothing else. Methods are in capitals.
fn effective_method(method: &Method, headers: &HeaderMap) -> Method {
    if method != Method::POST {
        return method.clone();
    }
    let named = headers.get(METHOD_OVERRIDE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match named.split(';').next().unwrap_or_default().trim() {
        "GET" => Method::GET,
        "HEAD" => Method::HEAD,
        "PUT" => Method::PUT,
        "DELETE" => Method::DELETE,
        "TRACE" => Method::TRACE,
        "CONNECT" => Method::CONNECT,
        "COPY" => copy(),
        _ => Method::POST,
    }
}

/// CouchDB's own method.
pub(crate) fn copy() -> Method {
    Method::from_bytes(b"COPY").expect("COPY is a token")
}

/// Clients of CouchDB take the version of CouchDB out of it that they can count on.
fn version_header(node: &Node) -> HeaderValue {
    let version = format!("CouchDB/{} (Settee/{})", node.identity.couchdb_version, env!("CARGO_PKG_VERSION"));
    HeaderValue::try_from(version).unwrap_or_else(|_| HeaderValue::from_static("CouchDB"))
}
