//! Forwarding: requests that write to a database are handled by the node that is the writer of its shard. A node that
//! is not the writer sends the complete request, of any size, to the writer ([`forward`]), which handles it as if its
//! client were connected to it ([`Sender`]) and refuses it if another node has become the writer. The token of a node
//! vouches for the address of the client, or for the user of a request from within the server; it does not cover the
//! body, which is streamed. A request is sent again, after the lease has moved, only if it was certainly not handled.
//! Otherwise the client receives 503, because the outcome is unknown.

use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::Frame;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, Uri};
use parking_lot::Mutex;
use settee_cluster::WriterLocation;
use settee_database::Shard;
use settee_database::members::Node as Member;
use settee_edge::body::inbound::Inbound;
use settee_edge::body::{self, timeout::ReceiveTimeout};
use settee_edge::origin::{Peer, Scheme};
use settee_edge::respond::{Aborted, Body};
use settee_edge::shutdown::until_true;
use settee_model::json::{self, Json, Value};
use settee_replication::{BoxFuture, Roles, TransportError, User, foreign_body, full_body};
use settee_threads::Threads;
use tokio::sync::{OwnedRwLockReadGuard, watch};
use tokio::time::sleep;

use crate::Error;
use crate::authentication::{self, TOKEN};
use crate::head::{REQUEST_ID, RequestHead};
use crate::metrics::Count;
use crate::node::Node;
use crate::nodes::{MemberRequest, Nodes};
use crate::observe::is_feed;
use crate::request::RequestBody;
use crate::respond::{self, Response};
use crate::router::{Effect, Resolved};

pub(crate) const CLIENT: HeaderName = HeaderName::from_static("x-settee-client");

pub(crate) const USER: HeaderName = HeaderName::from_static("x-settee-sender");

/// Header of a response: the node is not the writer, and has not handled the request.
const NOT_WRITER: HeaderName = HeaderName::from_static("x-settee-not-writer");

/// Time for which a request waits for a writer. The lease of a failed node moves within this time.
const WAIT_MAX: Duration = Duration::from_secs(2);
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

const DEPOSED_TIMEOUT: Duration = Duration::from_millis(200);

const PROBE_INTERVAL: Duration = Duration::from_secs(1);

/// Bodies up to this size are kept, so that the request can be sent again.
const KEPT_BODY_BYTES: usize = 64 << 10;

const OF_CONNECTION: [HeaderName; 8] = [
    header::CONNECTION,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

pub(crate) enum Sender {
    Client(Peer),
    Node(Peer),
    User(User),
}

impl Sender {
    /// Removes the headers of forwarding. Returns an error if the token of a forwarded request is invalid.
    pub(crate) fn of(node: &Node, parts: &mut Parts, peer: Peer) -> Result<Self, Error> {
        let headers = &parts.headers;
        let is_forwarded = headers.contains_key(TOKEN) && (headers.contains_key(CLIENT) || headers.contains_key(USER));
        if !is_forwarded {
            let ip = node.policy().trusted_proxies.client(peer.ip, headers);
            return Ok(Self::Client(Peer { ip, ..peer }));
        }
        authentication::require_node(&node.authentication, parts)?;
        let sender = parts.headers.remove(CLIENT).map_or_else(
            || parts.headers.remove(USER).and_then(|user| user_of(&user)).map(Self::User),
            |client| peer_of(&client).map(Self::Node),
        );
        parts.headers.remove(TOKEN);
        sender.ok_or_else(|| Error::bad_request("This is no forwarded request."))
    }
}

impl Sender {
    pub(crate) fn peer(&self) -> Peer {
        match self {
            Self::Client(peer) | Self::Node(peer) => *peer,
            Self::User(_) => Peer { ip: IpAddr::V4(Ipv4Addr::LOCALHOST), scheme: Scheme::Http },
        }
    }
}

fn peer_of(value: &HeaderValue) -> Option<Peer> {
    let (scheme, ip) = value.to_str().ok()?.split_once(' ')?;
    Some(Peer { ip: ip.parse().ok()?, scheme: Scheme::named(scheme)? })
}

fn user_of(value: &HeaderValue) -> Option<User> {
    let json = Json::parse(value.as_bytes()).ok()?;
    let text = |value: Value<'_>| value.as_str().map(std::borrow::Cow::into_owned);
    let roles = json.value().get("roles").and_then(|roles| roles.elements().map(text).collect::<Option<_>>());
    let roles = if json.value().get("roles").is_some() { Roles::Given(roles?) } else { Roles::OfAccount };
    Some(User { name: json.value().get("name").and_then(text), roles })
}

pub(crate) fn user_header(user: &User) -> Option<HeaderValue> {
    let text = json::object(|object| {
        if let Some(name) = &user.name {
            object.string("name", name);
        }
        if let Roles::Given(roles) = &user.roles {
            object.strings("roles", roles);
        }
    });
    HeaderValue::from_bytes(&text).ok()
}

pub(crate) enum Payload {
    Kept(Bytes),
    /// Sent at most once.
    Streamed(settee_replication::Body),
}

impl Payload {
    pub(crate) fn into_body(self) -> RequestBody {
        match self {
            Self::Kept(bytes) => RequestBody::Buffered(bytes),
            Self::Streamed(body) => RequestBody::Streamed(Mutex::new(body)),
        }
    }
}

/// A write in progress on the writer. A node that stops releases its lease after the last one.
pub(crate) struct WriteGuard {
    _guard: Option<OwnedRwLockReadGuard<()>>,
}

pub(crate) enum Sent {
    Here(Payload, WriteGuard),
    Answered(http::Response<settee_replication::Body>),
}

pub(crate) enum Forwarded {
    Here(RequestBody, WriteGuard),
    Answered(Response),
    Failed(Error),
}

/// Returns what a request may change, or which database it reads if only one node does so without a round trip. A single
/// node handles everything.
pub(crate) fn effect(node: &Node, resolved: &Resolved<'_>, method: &Method) -> Effect {
    if !node.nodes.is_cluster() {
        return Effect::Nothing;
    }
    match resolved.effect(method) {
        Effect::Nothing if node.nodes.engine.peers().is_some() => resolved.read(),
        effect => effect,
    }
}

pub(crate) async fn start(node: &Arc<Node>, database: &str) -> Option<WriteGuard> {
    let Some(writers) = node.nodes.writers() else { return Some(WriteGuard { _guard: None }) };
    // The guard is acquired before the location is read: a node that stops releases its shards before it waits for the
    // guards.
    let guard = Arc::clone(&node.nodes.writing).try_read_owned().ok()?;
    let is_here = writers.location(shard_of(node, database).await) == WriterLocation::Here;
    is_here.then_some(WriteGuard { _guard: Some(guard) })
}

/// Returns the shard of a database; that of the catalog if the database does not exist.
async fn shard_of(node: &Arc<Node>, name: &str) -> Shard {
    if let Some(shard) = node.catalog.cached_shard(name) {
        return shard;
    }
    let (opening, name) = (Arc::clone(node), name.to_owned());
    let opened = settee_threads::run(move || opening.database(&name)).await;
    opened.map_or(settee_database::CATALOG, |database| database.shard())
}

pub(crate) async fn forward(
    node: &Arc<Node>,
    database: &str,
    (head, headers, id): (&RequestHead, &HeaderMap, &str),
    body: Inbound,
    mut stopping: watch::Receiver<bool>,
) -> Forwarded {
    if let Some(write_guard) = start(node, database).await {
        return Forwarded::Here(RequestBody::Incoming(body), write_guard);
    }
    let is_small = hyper::body::Body::size_hint(&body).upper().is_some_and(|bytes| bytes <= KEPT_BODY_BYTES as u64);
    let payload = if is_small && !headers.contains_key(header::CONTENT_ENCODING) {
        let timeout = ReceiveTimeout::new(node.policy().receive_timeout);
        match body::read(body, headers, KEPT_BODY_BYTES, timeout, (&head.account, &Threads::default())).await {
            Ok(body) => Payload::Kept(body),
            Err(error) => return Forwarded::Failed(error.into()),
        }
    } else {
        Payload::Streamed(foreign_body(body))
    };
    let mut passed = forwarded_headers(headers);
    passed.remove(USER);
    let client = format!("{} {}", head.scheme.name(), head.peer);
    for (name, value) in [(CLIENT, client.as_str()), (REQUEST_ID, id)] {
        respond::set(&mut passed, name, value);
    }
    let is_feed = is_feed(&head.uri);
    let sent = tokio::select! {
        sent = send(node, database, (&head.method, &head.uri), &passed, payload) => sent,
        () = until_true(&mut stopping), if is_feed => Err(Error::no_writer()),
    };
    match sent {
        Ok(Sent::Here(payload, write_guard)) => Forwarded::Here(payload.into_body(), write_guard),
        Ok(Sent::Answered(response)) => {
            node.metrics.count(Count::Forwarded);
            let (parts, body) = response.into_parts();
            let body = body.map_err(|_| Aborted);
            let body = if is_feed { FeedBody::new(body, stopping).boxed_unsync() } else { body.boxed_unsync() };
            let mut response = Response::new(Body::Composed(body));
            *response.status_mut() = parts.status;
            *response.headers_mut() = forwarded_headers(&parts.headers);
            Forwarded::Answered(response)
        }
        Err(error) => Forwarded::Failed(error),
    }
}

/// A feed of another node, which does not end it when this server stops.
struct FeedBody<B> {
    body: Pin<Box<B>>,
    stopping: BoxFuture<'static, ()>,
}

impl<B> FeedBody<B> {
    fn new(body: B, mut stopping: watch::Receiver<bool>) -> Self {
        Self { body: Box::pin(body), stopping: Box::pin(async move { until_true(&mut stopping).await }) }
    }
}

impl<B: hyper::body::Body<Data = Bytes, Error = Aborted>> hyper::body::Body for FeedBody<B> {
    type Data = Bytes;
    type Error = Aborted;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Aborted>>> {
        match self.stopping.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Some(Err(Aborted))),
            Poll::Pending => self.body.as_mut().poll_frame(cx),
        }
    }
}

/// Waits for a writer while there is none. Returns 503 if no writer exists in time, or if the writer failed after the
/// request was sent.
pub(crate) async fn send(
    node: &Arc<Node>,
    database: &str,
    (method, uri): (&Method, &Uri),
    headers: &HeaderMap,
    payload: Payload,
) -> Result<Sent, Error> {
    let nodes = &node.nodes;
    let Some(writers) = nodes.writers() else { return Ok(Sent::Here(payload, WriteGuard { _guard: None })) };
    let (mut deadline, mut moves) = (pin!(sleep(WAIT_MAX)), nodes.moves.subscribe());
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let mut payload = Some(payload);
    loop {
        moves.borrow_and_update();
        if let Some(write_guard) = start(node, database).await {
            return payload.map(|payload| Sent::Here(payload, write_guard)).ok_or_else(Error::no_writer);
        }
        let shard = shard_of(node, database).await;
        let location = writers.location(shard);
        let live = nodes.engine.members().live();
        let member = live.iter().find(|member| location == WriterLocation::At(member.id) && !member.address.is_empty());
        if let Some(member) = member {
            let body = match payload.take().ok_or_else(Error::no_writer)? {
                Payload::Streamed(body) => body,
                Payload::Kept(bytes) => {
                    payload = Some(Payload::Kept(bytes.clone()));
                    full_body(bytes)
                }
            };
            let member_request = MemberRequest::new(method.clone(), target, headers.clone());
            let exchange = nodes.forward(member, member_request, body);
            match while_writer(nodes, member, (shard, location), exchange).await {
                Some(Ok(response)) if !response.headers().contains_key(NOT_WRITER) => {
                    return Ok(Sent::Answered(response));
                }
                // The database may have been created again, with another shard.
                Some(Ok(_)) => node.catch_up.wait().await?,
                Some(Err(TransportError::Refused(_) | TransportError::Tls(_) | TransportError::Unusable(_))) => {}
                unanswered @ (Some(Err(TransportError::Broken(_) | TransportError::Timeout)) | None) => {
                    let cause = unanswered.and_then(Result::err).map(|error| error.to_string());
                    let cause = cause.as_deref().unwrap_or("it is silent, or its lease has moved");
                    tracing::warn!(node = member.name, cause, "the outcome of a forwarded request is unknown");
                    // The client repeats the request, which then must reach the next writer.
                    tokio::select! {
                        () = &mut deadline => {}
                        () = wait_for_writer(nodes, member, (shard, location)) => {}
                    }
                    return Err(Error::in_doubt(&member.name));
                }
            }
        }
        // Without the store this node does not observe the next writer.
        if let Err(error) = nodes.engine.check() {
            return Err(Error::no_store(&error.to_string()));
        }
        writers.refresh();
        tokio::select! {
            biased;
            () = &mut deadline => return Err(Error::no_writer()),
            // Fails only if the sender is dropped, which this node owns.
            _ = moves.changed() => {}
            () = sleep(RETRY_INTERVAL) => {}
        }
    }
}

/// Returns `None` if the node is no longer the writer or does not answer probes.
async fn while_writer<T>(
    nodes: &Nodes,
    member: &Member,
    (shard, location): (Shard, WriterLocation),
    exchange: impl Future<Output = T>,
) -> Option<T> {
    let mut moves = nodes.moves.subscribe();
    let mut exchange = pin!(exchange);
    let moved = async {
        while nodes.writers().is_some_and(|writers| writers.location(shard) == location) {
            if moves.changed().await.is_err() {
                return;
            }
        }
        sleep(DEPOSED_TIMEOUT).await;
    };
    let silent = async {
        loop {
            sleep(PROBE_INTERVAL).await;
            if !nodes.is_alive(member).await {
                return;
            }
        }
    };
    tokio::select! {
        biased;
        done = &mut exchange => Some(done),
        () = moved => None,
        () = silent => None,
    }
}

/// Waits until a writer whose connection has ended is replaced, or answers a probe.
async fn wait_for_writer(nodes: &Nodes, member: &Member, (shard, location): (Shard, WriterLocation)) {
    let is_writer = || nodes.writers().is_some_and(|writers| writers.location(shard) == location);
    while is_writer() && !nodes.is_alive(member).await {
        nodes.writers().into_iter().for_each(|writers| writers.refresh());
        sleep(RETRY_INTERVAL).await;
    }
}

pub(crate) fn not_writer() -> Response {
    let mut response = respond::error(&Error::no_writer());
    response.headers_mut().insert(NOT_WRITER, HeaderValue::from_static("true"));
    response
}

fn forwarded_headers(headers: &HeaderMap) -> HeaderMap {
    let named = headers.get(header::CONNECTION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let is_of_connection = |name: &HeaderName| {
        OF_CONNECTION.contains(name) || named.split(',').any(|one| one.trim().eq_ignore_ascii_case(name.as_str()))
    };
    let passed = headers.iter().filter(|(name, _)| !is_of_connection(name));
    passed.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt as _, stream};
    use http_body_util::StreamBody;
    use settee_edge::shutdown::Shutdown;

    use super::*;

    #[tokio::test]
    async fn a_forwarded_feed_ends_when_the_server_stops() {
        let shutdown = Shutdown::new();
        let endless = StreamBody::new(stream::pending::<Result<Frame<Bytes>, Aborted>>());
        let mut feed = FeedBody::new(endless, shutdown.watch());
        assert!(feed.frame().now_or_never().is_none());
        shutdown.begin();
        assert!(matches!(feed.frame().await, Some(Err(Aborted))));
    }
}
