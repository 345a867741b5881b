//! [`Nodes`]: requests to the other nodes of the cluster, for data that only they have. A node that does not respond in
//! time is left out or reported, so that it delays no request further. A server with its own store has no other nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use settee_auth::{ADMIN_ROLE, NodeRequest, NodeToken, UserContext};
use settee_cluster::{Groups, Writers};
use settee_database::Engine;
use settee_database::members::Node as Member;
use settee_replication::{
    Auth, Body, Connect, Direct, Endpoint, Remote, Roles, Transport, TransportError, Tuning, User, full_body,
};
use settee_settings::{Derived, Settings, cluster};
use tokio::sync::{RwLock, watch};
use tokio::task::JoinSet;

use crate::Error;
use crate::authentication::{COVERED, NODE_ROLE, TOKEN, covered_text};
use crate::respond::{self, Answer};

const ANSWER_TIME: Duration = Duration::from_secs(2);

const LONG_REQUEST_TIMEOUT: Duration = Duration::from_secs(30 * 24 * 60 * 60);

const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Maximum size of a request of another node, except for requests that it forwards.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 20;

pub(crate) const ALIVE: &str = "/_node/_local/_alive";

/// A cheap target. Every request of a node makes the receiver catch up first.
const OBSERVED: &str = "/_up";

pub(crate) struct Nodes {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) own: String,
    pub(crate) settings: Arc<dyn Settings>,
    pub(crate) secret: Derived<Option<String>>,
    pub(crate) clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The client for other nodes. Empty until replication has started.
    pub(crate) network: OnceLock<Arc<dyn Connect>>,
    /// The leases of the writers. Empty if no other node can exist, and until requests are served.
    pub(crate) writers: OnceLock<Arc<Writers>>,
    /// Changes whenever a lease may have moved.
    pub(crate) moves: watch::Sender<u64>,
    /// Shared by the writes in progress under a lease, see [`crate::forwarding::WriteGuard`].
    pub(crate) writing: Arc<RwLock<()>>,
    pub(crate) signed: AtomicU64,
}

#[derive(Clone)]
pub(crate) struct MemberRequest {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl MemberRequest {
    pub(crate) fn new(method: Method, target: &str, headers: HeaderMap) -> Self {
        Self { method, target: target.to_owned(), headers, body: Bytes::new() }
    }

    fn get(target: &str) -> Self {
        Self::new(Method::GET, target, HeaderMap::new())
    }

    fn post(target: &str, body: Vec<u8>) -> Self {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { method: Method::POST, target: target.to_owned(), headers, body: body.into() }
    }
}

impl Nodes {
    pub(crate) fn is_cluster(&self) -> bool {
        !self.engine.members().is_sole()
    }

    pub(crate) fn writers(&self) -> Option<&Arc<Writers>> {
        self.writers.get()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.others().into_iter().map(|node| node.name).collect();
        names.push(self.own.clone());
        names.sort();
        names
    }

    pub(crate) fn owned_groups(&self) -> Option<BTreeMap<String, BTreeSet<u32>>> {
        let groups = Groups::new(self.engine.group_count()?);
        let members = self.engine.members();
        let (live, own) = (members.live(), members.this());
        let mut owned: BTreeMap<_, _> = self.names().into_iter().map(|name| (name, BTreeSet::new())).collect();
        for (claim, node) in members.writers().iter() {
            let other = live.iter().find(|live| live.id == *node).map(|live| &live.name);
            let name = if *node == own { Some(&self.own) } else { other };
            if let (Some(numbers), Some(group)) = (name.and_then(|name| owned.get_mut(name)), groups.of_key(&claim.key))
            {
                numbers.insert(group);
            }
        }
        Some(owned)
    }

    pub(crate) fn others(&self) -> Vec<Member> {
        let live = self.engine.members().live();
        live.iter().filter(|node| node.name != self.own).cloned().collect()
    }

    /// Returns the node that the path names, or `None` if another node has passed the request on already.
    pub(crate) fn named(&self, name: &str, user: &UserContext) -> Option<Member> {
        if name.is_empty() || name == self.own || is_node(user) {
            return None;
        }
        self.others().into_iter().find(|node| node.name == name)
    }

    pub(crate) async fn forward_buffered(
        &self,
        node: &Member,
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
        body: Bytes,
    ) -> Answer {
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let passed = COVERED.into_iter().filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())));
        let member_request = MemberRequest { method: method.clone(), target, headers: passed.collect(), body };
        let (status, headers, body) = self.call_in_time(node, member_request).await.map_err(|why| {
            let reason = format!("node {} does not answer: {why}", node.name);
            Error::new(StatusCode::SERVICE_UNAVAILABLE, "service_unavailable", reason)
        })?;
        let mut response = respond::whole(status, "application/json", body);
        for name in COVERED {
            if let Some(value) = headers.get(&name) {
                response.headers_mut().insert(name, value.clone());
            }
        }
        Ok(response)
    }

    pub(crate) async fn is_alive(&self, node: &Member) -> bool {
        self.exchange(node, MemberRequest::get(ALIVE), ANSWER_TIME).await.is_ok()
    }

    /// Returns the successful responses of all nodes that respond in time. Sends nothing if the request itself comes
    /// from a node.
    pub(crate) async fn get_all(&self, target: &str, user: &UserContext) -> Vec<Bytes> {
        self.request_all(MemberRequest::get(target), user).await
    }

    pub(crate) async fn post_all(&self, target: &str, body: Vec<u8>, user: &UserContext) -> Vec<Bytes> {
        self.request_all(MemberRequest::post(target, body), user).await
    }

    /// Waits until the writers have observed what this node has changed, unless it is the only writer: they do not
    /// poll.
    pub(crate) async fn notify_writers(&self) {
        let Some(writers) = self.writers().filter(|writers| !writers.holds_all()) else { return };
        writers.refresh();
        let holders = self.engine.members().writers();
        let others = self.others().into_iter().filter(|node| holders.iter().any(|(_, holder)| *holder == node.id));
        let asking: JoinSet<_> = others.map(|node| self.call_in_time(&node, MemberRequest::get(OBSERVED))).collect();
        // A writer that does not respond loses its lease, and its successor catches up.
        asking.join_all().await;
    }

    pub(crate) async fn find_node(&self, target: &str) -> Option<Member> {
        let mut asking = JoinSet::new();
        for node in self.others() {
            let asked = self.call_in_time(&node, MemberRequest::get(target));
            asking.spawn(async move { matches!(asked.await, Ok((StatusCode::OK, ..))).then_some(node) });
        }
        while let Some(answered) = asking.join_next().await {
            if let Ok(Some(node)) = answered {
                return Some(node);
            }
        }
        None
    }

    /// Sends a POST with the timeout [`LONG_REQUEST_TIMEOUT`]. Returns `None` if the request fails or its status is
    /// 404.
    pub(crate) async fn post_to(&self, node: &Member, target: &str, body: Vec<u8>) -> Option<(StatusCode, Bytes)> {
        match self.exchange(node, MemberRequest::post(target, body), LONG_REQUEST_TIMEOUT).await {
            Ok((StatusCode::NOT_FOUND, ..)) => None,
            Ok((status, _, body)) => Some((status, body)),
            Err(why) => {
                tracing::warn!(node = node.name, %why, "a node does not answer");
                None
            }
        }
    }

    async fn request_all(&self, member_request: MemberRequest, user: &UserContext) -> Vec<Bytes> {
        if is_node(user) {
            return Vec::new();
        }
        let mut asking = JoinSet::new();
        for node in self.others() {
            let asked = self.call_in_time(&node, member_request.clone());
            asking.spawn(async move {
                match asked.await {
                    Ok((StatusCode::OK, _, body)) => Some(body),
                    Ok(_) => None,
                    Err(why) => {
                        tracing::warn!(node = node.name, why, "a node does not answer");
                        None
                    }
                }
            });
        }
        asking.join_all().await.into_iter().flatten().collect()
    }

    fn call_in_time(
        &self,
        node: &Member,
        member_request: MemberRequest,
    ) -> impl Future<Output = Result<(StatusCode, HeaderMap, Bytes), String>> + Send + use<> {
        let exchange = self.exchange(node, member_request, ANSWER_TIME);
        async move {
            let in_time = tokio::time::timeout(ANSWER_TIME, exchange).await.map_err(|_| "not in time".to_owned())?;
            in_time.map_err(|error| error.to_string())
        }
    }

    /// The token of the request does not cover its body, because the body is streamed.
    pub(crate) fn forward(
        &self,
        node: &Member,
        member_request: MemberRequest,
        body: Body,
    ) -> impl Future<Output = Result<http::Response<Body>, TransportError>> + Send + use<> {
        let request = self.request(node, member_request, LONG_REQUEST_TIMEOUT);
        async move {
            let (transport, request) = request.map_err(TransportError::Unusable)?;
            let mut request = request.map(|_| body);
            request.extensions_mut().insert(Direct);
            transport.call(request).await
        }
    }

    /// The other node must start to respond within `time`.
    fn exchange(
        &self,
        node: &Member,
        member_request: MemberRequest,
        time: Duration,
    ) -> impl Future<Output = Result<(StatusCode, HeaderMap, Bytes), TransportError>> + Send + use<> {
        let called = self.call(node, member_request, time);
        async move {
            let (parts, body) = called.await?.into_parts();
            let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            let body = body.map_err(|error| TransportError::Broken(error.to_string()))?;
            Ok((parts.status, parts.headers, body.to_bytes()))
        }
    }

    fn call(
        &self,
        node: &Member,
        member_request: MemberRequest,
        time: Duration,
    ) -> impl Future<Output = Result<http::Response<Body>, TransportError>> + Send + use<> {
        let request = self.request(node, member_request, time);
        async move {
            let (transport, request) = request.map_err(TransportError::Unusable)?;
            transport.call(request).await
        }
    }

    fn request(
        &self,
        node: &Member,
        member_request: MemberRequest,
        time: Duration,
    ) -> Result<(Arc<dyn Transport>, http::Request<Body>), String> {
        let MemberRequest { method, target, headers, body } = member_request;
        let network = self.network.get().ok_or("this node has not started yet")?;
        let secret = self.secret.current(self.settings.as_ref(), |settings| cluster::SECRET.text(settings));
        let secret = secret.as_ref().as_ref().ok_or("there is no secret")?;
        let remote = remote(&node.address)?;
        let uri = format!("{}{target}", remote.url.trim_end_matches('/'));
        let tuning =
            Tuning { connection_timeout_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX), ..Tuning::default() };
        let transport = network.connect(&Endpoint::Remote(remote), &tuning).map_err(|error| error.to_string())?;
        let headers_text = covered_text(&headers);
        let signed =
            NodeRequest { receiver: &node.name, method: method.as_str(), target: &target, headers: &headers_text };
        // A restarted node is a new sender.
        let sender = (self.engine.members().this().0 & u128::from(u64::MAX)) as u64;
        let number = self.signed.fetch_add(1, Ordering::Relaxed) + 1;
        let token = NodeToken::sign(secret.as_bytes(), &signed, &body, (sender, number), (self.clock_ms)() / 1000);
        let token = HeaderValue::try_from(token).map_err(|error| error.to_string())?;
        let mut request = http::Request::builder()
            .method(method)
            .uri(uri)
            .body(full_body(body))
            .map_err(|error| error.to_string())?;
        *request.headers_mut() = headers;
        request.headers_mut().insert(TOKEN, token);
        Ok((transport, request))
    }
}

pub(crate) fn is_node(user: &UserContext) -> bool {
    user.roles.iter().any(|role| role == NODE_ROLE)
}

/// Returns the root of another node. It may have a private address.
pub(crate) fn remote(address: &str) -> Result<Remote, String> {
    let unusable = || format!("its address is none: {address:?}");
    let uri: Uri = address.parse().map_err(|_| unusable())?;
    let (scheme, usual) = match uri.scheme_str() {
        Some("http") => ("http", 80),
        Some("https") => ("https", 443),
        _ => return Err(unusable()),
    };
    Ok(Remote {
        scheme,
        host: uri.host().ok_or_else(unusable)?.to_owned(),
        port: uri.port_u16().unwrap_or(usual),
        path: "/".to_owned(),
        url: format!("{}/", address.trim_end_matches('/')),
        headers: Vec::new(),
        auth: Auth::None,
        proxy: None,
        user: User { name: None, roles: Roles::Given(vec![ADMIN_ROLE.to_owned()]) },
    })
}
