//! [`Service`]: passes a request through the stages, from its head to the last header of its response.

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, Uri, Version};
use settee_edge::body::inbound::Inbound;
use settee_edge::body::{self, timeout::ReceiveTimeout};
use settee_edge::budget::{Account, Share};
use settee_edge::connection::Handler;
use settee_edge::origin::Peer;
use settee_edge::rate::{Client, ClientKind};
use settee_edge::server::Listener;
use settee_edge::shutdown::Shutdown;
use settee_edge::slots::Ending;
use settee_edge::target;
use settee_service::commits::{self, Optimistic};
use settee_settings::Settings;

use crate::authentication::{self, Caller};
use crate::browser::{self, Viewer};
use crate::handover::Handed;
use crate::head::{REQUEST_ID, RequestHead, Seen, copy};
use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::node::Node;
use crate::nodes::REQUEST_BYTES_MAX;
use crate::observe::Observation;
use crate::policy::Policy;
use crate::reads::ReadCounter;
use crate::request::Unread;
use crate::respond::{self, Answer, Response};
use crate::router::Router;
use crate::steering::{self, Arriving, Steered};
use crate::{Error, handed, jsonp, optimistic, routes};

const METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Header with the time to receive the body, in milliseconds.
const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");

pub(crate) struct Service {
    node: Arc<Node>,
    router: Arc<Router>,
    version: HeaderValue,
}

/// Serves requests with `node`, see [`settee_edge::server::serve`].
pub async fn serve(node: Arc<Node>, listeners: Vec<Listener>, connections: u64, shutdown: Shutdown) {
    let router = Arc::new(routes::router(&shutdown));
    settee_edge::server::serve(Service::new(node, router), listeners, connections, shutdown).await;
}

impl Handler for Service {
    fn settings(&self) -> &dyn Settings {
        self.node.settings.as_ref()
    }

    fn answer(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        peer: Peer,
        ending: Arc<Ending>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(self.respond(request, peer, ending))
    }

    fn stop(&self) {
        let node = Arc::clone(&self.node);
        // A build would delay the query that waits for it; it is resumed after the next start.
        tokio::task::spawn_blocking(move || node.views.stop());
    }
}

impl Service {
    pub(crate) fn new(node: Arc<Node>, router: Arc<Router>) -> Arc<Self> {
        let version = version_header(&node);
        Arc::new(Self { node, router, version })
    }

    pub(crate) fn node(&self) -> &Arc<Node> {
        &self.node
    }

    async fn respond(self: Arc<Self>, request: hyper::Request<Incoming>, peer: Peer, ending: Arc<Ending>) -> Response {
        let (mut parts, body) = request.into_parts();
        let waits_to_be_asked = parts.headers.contains_key(header::EXPECT);
        let (body, leftover) = Inbound::new(body);
        as_http1(&mut parts);
        // A stream of HTTP/2 ends without closing the connection.
        let may_close = parts.version < Version::HTTP_2;
        let finish = async |mut response: Response| {
            if may_close && !leftover.clear(waits_to_be_asked).await {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            response
        };
        if handed::is_message(&parts) {
            return finish(handed::answer(&self, &parts, body, &ending).await).await;
        }
        // From here on the address is that of the client; lockout, rate limits and logs use it.
        let peer = Peer { ip: self.node.policy().trusted_proxies.client(peer.ip, &parts.headers), ..peer };
        let id = self.request_id(&parts.headers);
        let method = effective_method(&parts.method, &parts.headers);
        let mut observation =
            Observation::begin(self.node.observers(), &method, &parts.uri, &parts.headers, peer.ip, &id);
        let account = Account::new(&self.node.budget, Some(ending), Share::Anonymous);
        observation.ends(account.cancellation());
        let arriving = Arriving {
            method,
            uri: parts.uri,
            headers: parts.headers,
            peer,
            id: &id,
            seen: Arc::clone(&observation.seen),
            account: Arc::clone(&account),
        };
        let response = finish(self.serve(arriving, body).await).await;
        observation.answered(response, account)
    }

    /// Handles a request that another node has forwarded and collects its facts in `seen`. The forwarding node
    /// counts and logs it.
    pub(crate) async fn answer_handed(&self, request: Handed, seen: &Arc<Seen>, account: &Arc<Account>) -> Response {
        let Handed { method, uri, headers, client, body } = request;
        let id = self.request_id(&headers);
        let head = RequestHead::of_client(method, uri, client, Arc::clone(seen), Arc::clone(account));
        self.handle(head, headers, Unread::Incoming(Inbound::of_message(body)), &id).await
    }

    /// Handles a request here or forwards it to the preferred node of its database.
    async fn serve(&self, request: Arriving<'_>, body: Inbound) -> Response {
        let (body, doubt) = match steering::steer(&self.node, &self.router, &request, body).await {
            Steered::Answered(response) => return response,
            Steered::Here(body) => (body, None),
            Steered::Again(body, doubt) => (body, Some(doubt)),
        };
        let Arriving { method, uri, headers, peer, id, seen, account } = request;
        let head = RequestHead::of_client(method, uri, peer, seen, account);
        let response = self.handle(head, headers, body, id).await;
        match doubt {
            Some(doubt) => doubt.resolve(response),
            None => response,
        }
    }

    async fn handle(&self, head: RequestHead, headers: HeaderMap, body: Unread, id: &str) -> Response {
        let viewer = Viewer::of(&headers, head.scheme);
        let prefers_minimal = headers.get(PREFER).is_some_and(|value| value == "return=minimal");
        let (method, uri, seen) = (head.method.clone(), head.uri.clone(), Arc::clone(&head.seen));
        let caller = Caller::of(&head, &headers);
        let mut renewed = None;
        // Boxed, as are its stages, because each waiting future would otherwise contain their memory once or
        // twice, and be moved with it.
        let answer = Box::pin(self.decide(head, headers, body, &mut renewed));
        let answer = settee_threads::within(Arc::new(ReadCounter(Arc::clone(&seen.tally))), answer).await;
        let policy = self.node.policy();
        let mut response = answer.unwrap_or_else(|error| {
            if error.status.is_server_error() {
                tracing::error!(%method, path = uri.path(), request = id, name = %error.name,
                    reason = %error.reason, "a request failed");
            }
            self.node.refuse(&caller, &error)
        });
        authentication::renew(&mut response, renewed);
        policy.browser.mark(&viewer, uri.path(), &mut response);
        if policy.allows_jsonp {
            response = jsonp::wrap(uri.query(), response);
        }
        let headers = response.headers_mut();
        let version = if policy.reports_versions { self.version.clone() } else { HeaderValue::from_static("CouchDB") };
        headers.insert(header::SERVER, version);
        respond::set(headers, REQUEST_ID, id);
        headers.insert(BODY_TIME, HeaderValue::from(seen.body_ms()));
        if prefers_minimal {
            let kept = policy.minimal_headers.iter().filter_map(|name| Some((name.clone(), headers.remove(name)?)));
            let kept: HeaderMap = kept.collect();
            *headers = kept;
        }
        response
    }

    /// Handles the request with optimistic validation if possible, and otherwise after a catch-up.
    async fn decide(
        &self,
        head: RequestHead,
        headers: HeaderMap,
        mut body: Unread,
        renewed: &mut Option<HeaderValue>,
    ) -> Answer {
        if let Some(answer) = self.handle_optimistically(&head, &headers, &mut body, renewed).await {
            return answer;
        }
        // Precedes all decisions that depend on state that other nodes may have changed: settings, accounts,
        // security objects.
        self.node.catch_up.wait().await?;
        let policy = self.node.policy();
        Box::pin(self.route(&policy, head, headers, body, renewed)).await
    }

    /// Handles a small write with optimistic validation. Returns `None` if the node must catch up first.
    async fn handle_optimistically(
        &self,
        head: &RequestHead,
        headers: &HeaderMap,
        body: &mut Unread,
        renewed: &mut Option<HeaderValue>,
    ) -> Option<Answer> {
        let Unread::Incoming(incoming) = body else { return None };
        let asked = (&head.method, &head.uri, headers);
        let (_, database) = optimistic::small_write(&self.node, &self.router, asked, incoming)?;
        let read_set = optimistic::read_set(&self.node, &database, &head.uri, headers)?;
        let policy = self.node.policy();
        let Unread::Incoming(incoming) = std::mem::replace(body, Unread::Known(Bytes::new())) else { return None };
        let (begun_us, timeout) = ((self.node.operation.monotonic_us)(), ReceiveTimeout::new(policy.receive_timeout));
        let bytes = match body::read(incoming, headers, SMALL_BODY_BYTES_MAX, timeout, &head.account).await {
            Ok(bytes) => bytes,
            Err(error) => return Some(Err(error.into())),
        };
        head.seen.set_body_time(begun_us, (self.node.operation.monotonic_us)());
        *body = Unread::Known(bytes.clone());
        let routed = Box::pin(self.route(&policy, head.clone(), headers.clone(), Unread::Known(bytes), renewed));
        match commits::with_read_set(read_set.clone(), routed).await {
            Optimistic::Settled(answer) => Some(answer),
            Optimistic::Open(answer) => {
                let is_all = self.node.catch_up.wait().await.is_ok() && read_set.is_current();
                is_all.then_some(answer)
            }
            Optimistic::Outdated => None,
        }
    }

    async fn route(
        &self,
        policy: &Policy,
        mut head: RequestHead,
        headers: HeaderMap,
        body: Unread,
        renewed: &mut Option<HeaderValue>,
    ) -> Answer {
        head.seen.set_handled();
        if let Some(error) = target::refused(&headers) {
            return Err(error.into());
        }
        let limit = policy.max_uri_length;
        if head.uri.path_and_query().is_some_and(|target| target.as_str().len() as u64 > limit) {
            return Err(settee_edge::Error::uri_too_long().into());
        }
        if let Some(response) = policy.browser.preflight(&head.method, &headers) {
            return Ok(response);
        }
        let all_users_are_admins = !self.node.authenticator.has_admins();
        if all_users_are_admins {
            browser::refuse_public_name(&headers)?;
        }
        policy.browser.refuse_forged(&head.method, &headers, all_users_are_admins)?;
        let by_address = Client::of_address(head.peer);
        self.count(policy, ClientKind::Address, || by_address.clone())?;
        let found = authentication::authenticate(&self.node.authentication, &head, &headers).await?;
        (head.handler, *renewed) = (found.handler, found.renewed);
        let (headers, body) = match &found.token {
            None => (headers, body),
            Some(token) => {
                let body = self.read_known(policy, body, &headers, &head).await?;
                authentication::require_body(token, &body)?;
                (authentication::covered(&headers), Unread::Known(body))
            }
        };
        if let Some(name) = &found.user.name {
            head.seen.set_user(name);
        }
        self.count(policy, ClientKind::User, || found.user.name.clone().map_or(by_address, Client::User))?;
        if head.method == Method::HEAD {
            head.method = Method::GET;
        }
        self.router.dispatch(&self.node, head, headers, found.user, Some(body)).await
    }

    /// Reads the whole body of a request of another node.
    async fn read_known(
        &self,
        policy: &Policy,
        body: Unread,
        headers: &HeaderMap,
        head: &RequestHead,
    ) -> Result<Bytes, Error> {
        match body {
            Unread::Known(bytes) => Ok(bytes),
            Unread::Incoming(body) => {
                let timeout = ReceiveTimeout::new(policy.receive_timeout);
                Ok(body::read(body, headers, REQUEST_BYTES_MAX, timeout, &head.account).await?)
            }
            // Requests from within this process have no token.
            Unread::Streamed(_) => Err(Error::bad_request("a node sends no such body")),
        }
    }

    /// Applies the rate limit if it uses this kind of client.
    fn count(&self, policy: &Policy, kind: ClientKind, client: impl FnOnce() -> Client) -> Result<(), Error> {
        match &policy.rate_limit {
            Some(limit) if limit.by == kind => Ok(self.node.rates.take(limit, client())?),
            _ => Ok(()),
        }
    }

    /// Returns the id from the client if it is valid, otherwise a new one.
    fn request_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let harmless = |id: &&str| {
            (1..=36).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        given.filter(harmless).map_or_else(|| self.node.request_id(), str::to_owned)
    }
}

/// Converts an HTTP/2 request to the form of HTTP/1.1: the host becomes a header and is removed from the
/// target.
fn as_http1(parts: &mut hyper::http::request::Parts) {
    let Some(authority) = parts.uri.authority().filter(|_| parts.version == Version::HTTP_2) else { return };
    if !parts.headers.contains_key(header::HOST) {
        respond::set(&mut parts.headers, header::HOST, authority.as_str());
    }
    if let Some(target) = parts.uri.path_and_query().cloned() {
        parts.uri = Uri::from(target);
    }
}

/// Returns the method, which a header of a POST can override for clients that cannot send others. Methods are
/// in upper case.
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

/// Returns the header `Server`, from which clients parse the supported version of CouchDB.
fn version_header(node: &Node) -> HeaderValue {
    let version = format!("CouchDB/{} (Settee/{})", node.identity.couchdb_version, env!("CARGO_PKG_VERSION"));
    HeaderValue::try_from(version).unwrap_or_else(|_| HeaderValue::from_static("CouchDB"))
}
