//! [`Service`]: the stages of a request, in the order of [`Service::handle`].

use std::pin::Pin;
use std::sync::Arc;

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::header::{self, HeaderName, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use settee_auth::UserContext;
use settee_edge::body::inbound::{Inbound, Leftover};
use settee_edge::body::{self, timeout::ReceiveTimeout};
use settee_edge::budget::{Account, Share};
use settee_edge::connection::Handler;
use settee_edge::origin::Peer;
use settee_edge::rate::{Client, ClientKind};
use settee_edge::server::Listener;
use settee_edge::shutdown::Shutdown;
use settee_edge::slots::Ending;
use settee_edge::target;
use settee_settings::Settings;
use settee_threads::Threads;

use crate::authentication::{self, Caller, TOKEN};
use crate::browser::{self, Viewer};
use crate::forwarding::{self, Forwarded, Sender, WriteGuard};
use crate::head::{REQUEST_ID, RequestHead, Seen, copy};
use crate::node::Node;
use crate::nodes::{ALIVE, REQUEST_BYTES_MAX};
use crate::observe::Observation;
use crate::policy::Policy;
use crate::reads::ReadCounter;
use crate::request::RequestBody;
use crate::respond::{self, Answer, Response};
use crate::router::{Effect, Router};
use crate::{Error, in_process, jsonp, path, peers, routes};

const METHOD_OVERRIDE: HeaderName = HeaderName::from_static("x-http-method-override");
const PREFER: HeaderName = HeaderName::from_static("prefer");

const BODY_TIME: HeaderName = HeaderName::from_static("x-couchdb-body-time");

pub(crate) struct Service {
    node: Arc<Node>,
    router: Arc<Router>,
    version: HeaderValue,
    shutdown: Shutdown,
}

pub async fn serve(node: Arc<Node>, listeners: Vec<Listener>, connections: u64, shutdown: Shutdown) {
    node.begin_writing();
    let router = Arc::new(routes::router(&shutdown));
    let service = Service::new(node, router, shutdown.clone());
    settee_edge::server::serve(service, listeners, connections, shutdown).await;
}

impl Handler for Service {
    fn settings(&self) -> &dyn Settings {
        self.node.settings.as_ref()
    }

    fn handle(
        self: Arc<Self>,
        request: hyper::Request<Incoming>,
        peer: Peer,
        ending: Arc<Ending>,
    ) -> Pin<Box<dyn Future<Output = Response> + Send>> {
        Box::pin(Self::handle(self, request, peer, ending))
    }

    fn stop(&self) {
        let node = Arc::clone(&self.node);
        // A build would delay the query that waits for it; it is resumed after the next start.
        tokio::task::spawn_blocking(move || node.views.stop());
    }
}

impl Service {
    pub(crate) fn new(node: Arc<Node>, router: Arc<Router>, shutdown: Shutdown) -> Arc<Self> {
        let version = version_header(&node);
        Arc::new(Self { node, router, version, shutdown })
    }

    /// The stages have the numbers of the path of a request in ARCHITECTURE.md; the first stage is in `settee_edge`.
    async fn handle(self: Arc<Self>, request: hyper::Request<Incoming>, peer: Peer, ending: Arc<Ending>) -> Response {
        let (mut parts, body) = request.into_parts();
        // Probes of nodes are answered before the token is verified, because that may have to wait for the store.
        if parts.uri.path() == ALIVE && self.node.nodes.is_cluster() && parts.headers.contains_key(TOKEN) {
            return respond::json(StatusCode::OK, b"{}".to_vec());
        }
        let (connection, body) = Connection::of(&parts, body);
        if peers::is_message(&parts) {
            let account = Account::new(&self.node.budget, Some(ending), Share::Admin);
            let answer = peers::answer(&self.node, &parts, body, &account).await;
            return connection.finish(answer.unwrap_or_else(|error| respond::error(&error))).await;
        }
        as_http1(&mut parts);

        // 2. The client, whose address lockout, rate limits and logs use, and the observation.
        let sender = match Sender::of(&self.node, &mut parts, peer) {
            Ok(sender) => sender,
            Err(error) => return connection.finish(respond::error(&error)).await,
        };
        let id = self.request_id(&parts.headers);
        let account = Account::new(&self.node.budget, Some(ending), Share::Anonymous);
        let (head, observation) = self.observe(&parts, sender.peer(), &id, &account);
        let headers = parts.headers;

        // 3. The resource, and the node that handles the request.
        let resolved = self.router.resolve(head.uri.path(), self.node.policy().plus);
        let effect = forwarding::effect(&self.node, &resolved, &head.method);
        let (body, write_guard) = match self.forward(&sender, &effect, (&head, &headers, &id), body).await {
            Ok(here) => here,
            Err(Served::Here(response)) => return observation.answered(connection.finish(response).await, account),
            // The other node counts and logs the request.
            Err(Served::Elsewhere(response)) => return connection.finish(response).await,
        };
        let response = match sender {
            Sender::User(user) => {
                in_process::handle(&self.node, &self.router, &user, resolved, (head, headers), body).await
            }
            Sender::Client(_) | Sender::Node(_) => {
                let mut completion = Completion::of(&head, &headers, id);
                let reads = Arc::new(ReadCounter(Arc::clone(&head.seen.tally)));
                // The future is boxed, as are its stages, because each waiting future would otherwise contain their memory.
                let answer = Box::pin(async {
                    // Other nodes may have changed settings, accounts and security objects.
                    self.catch_up(&effect).await?;
                    // 4. Requests that need no user, and the user.
                    if let Some(response) = self.admit(&head, &headers)? {
                        return Ok(response);
                    }
                    let request = (head, headers, body);
                    let (head, body, user) = self.authenticate(request, &mut completion.renewed).await?;
                    // 5 and 6. The permission, the database, the handler.
                    self.router.handle(&self.node, resolved, head, user, Some(body)).await
                });
                let answer = settee_threads::within(reads, answer).await;
                // 7. The headers of the answer.
                self.complete(completion, answer)
            }
        };
        drop(write_guard);
        if effect == Effect::Server {
            self.node.nodes.notify_writers().await;
        }
        observation.answered(connection.finish(response).await, account)
    }

    fn observe(&self, parts: &Parts, client: Peer, id: &str, account: &Arc<Account>) -> (RequestHead, Observation) {
        let method = effective_method(&parts.method, &parts.headers);
        let mut observation =
            Observation::begin(self.node.observers(), &method, &parts.uri, &parts.headers, client.ip, id);
        observation.ends(account.cancellation());
        let seen = Arc::clone(&observation.seen);
        (RequestHead::of_client(method, parts.uri.clone(), client, seen, Arc::clone(account)), observation)
    }

    /// Forwards a request of a client to its writer. Returns the body if this node handles the request.
    async fn forward(
        &self,
        sender: &Sender,
        effect: &Effect,
        (head, headers, id): (&RequestHead, &HeaderMap, &str),
        body: Inbound,
    ) -> Result<(RequestBody, Option<WriteGuard>), Served> {
        let (Effect::Database(path, database) | Effect::Rewrite(path, database) | Effect::Read(path, database)) =
            effect
        else {
            return Ok((RequestBody::Incoming(body), None));
        };
        match sender {
            Sender::Client(_) => {
                head.seen.set_route(path);
                let stopping = self.shutdown.watch();
                match forwarding::forward(&self.node, database, (head, headers, id), body, stopping).await {
                    Forwarded::Here(body, write_guard) => Ok((body, effect.guard(write_guard))),
                    Forwarded::Answered(response) => Err(Served::Elsewhere(response)),
                    Forwarded::Failed(error) => Err(Served::Here(self.node.refuse(&Caller::of(head, headers), &error))),
                }
            }
            Sender::Node(_) | Sender::User(_) => match forwarding::start(&self.node, database).await {
                Some(write_guard) => Ok((RequestBody::Incoming(body), effect.guard(write_guard))),
                None => Err(Served::Here(forwarding::not_writer())),
            },
        }
    }

    /// Waits until everything that other processes have finished is visible to this process. The writer of all shards makes
    /// the changes of documents itself; other nodes announce other changes (`notify_writers`). Indexes are built by any node.
    async fn catch_up(&self, effect: &Effect) -> Result<(), Error> {
        let is_writer = || self.node.nodes.writers().is_some_and(|writers| writers.holds_all());
        let is_current = matches!(effect, Effect::Database(..)) && is_writer() && !self.node.settings.is_behind();
        if is_current { Ok(()) } else { self.node.catch_up.wait().await }
    }

    fn admit(&self, head: &RequestHead, headers: &HeaderMap) -> Result<Option<Response>, Error> {
        let policy = &self.node.policy();
        if let Some(error) = target::refused(headers) {
            return Err(error.into());
        }
        let limit = policy.max_uri_length;
        if head.uri.path_and_query().is_some_and(|target| target.as_str().len() as u64 > limit) {
            return Err(settee_edge::Error::uri_too_long().into());
        }
        path::require_escapes(head.uri.path_and_query().map_or("", |target| target.as_str()))?;
        if let Some(response) = policy.browser.preflight(&head.method, headers) {
            return Ok(Some(response));
        }
        let all_users_are_admins = !self.node.authenticator.has_admins();
        if all_users_are_admins {
            browser::refuse_public_name(headers)?;
        }
        policy.browser.refuse_forged(&head.method, headers, all_users_are_admins)?;
        self.count(policy, ClientKind::Address, || Client::of_address(head.peer))?;
        Ok(None)
    }

    async fn authenticate(
        &self,
        (mut head, headers, body): (RequestHead, HeaderMap, RequestBody),
        renewed: &mut Option<HeaderValue>,
    ) -> Result<((RequestHead, HeaderMap), RequestBody, UserContext), Error> {
        let found = authentication::authenticate(&self.node.authentication, &head, &headers).await?;
        (head.handler, *renewed) = (found.handler, found.renewed);
        let policy = &self.node.policy();
        let (headers, body) = match &found.token {
            None => (headers, body),
            Some(token) => {
                let body = self.read_buffered(policy, body, &headers, &head).await?;
                authentication::require_body(token, &body)?;
                (authentication::covered(&headers), RequestBody::Buffered(body))
            }
        };
        if let Some(name) = &found.user.name {
            head.seen.set_user(name);
        }
        let client = || found.user.name.clone().map_or_else(|| Client::of_address(head.peer), Client::User);
        self.count(policy, ClientKind::User, client)?;
        if head.method == Method::HEAD {
            head.method = Method::GET;
        }
        Ok(((head, headers), body, found.user))
    }

    fn complete(&self, completion: Completion, answer: Answer) -> Response {
        let Completion { method, uri, id, seen, viewer, caller, prefers_minimal, renewed } = completion;
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
        respond::set(headers, REQUEST_ID, &id);
        headers.insert(BODY_TIME, HeaderValue::from(seen.body_ms()));
        if prefers_minimal {
            let kept = policy.minimal_headers.iter().filter_map(|name| Some((name.clone(), headers.remove(name)?)));
            let kept: HeaderMap = kept.collect();
            *headers = kept;
        }
        response
    }

    async fn read_buffered(
        &self,
        policy: &Policy,
        body: RequestBody,
        headers: &HeaderMap,
        head: &RequestHead,
    ) -> Result<Bytes, Error> {
        match body {
            RequestBody::Buffered(bytes) => Ok(bytes),
            RequestBody::Incoming(body) => {
                let timeout = ReceiveTimeout::new(policy.receive_timeout);
                Ok(body::read(body, headers, REQUEST_BYTES_MAX, timeout, (&head.account, &Threads::default())).await?)
            }
            RequestBody::Streamed(_) => Err(Error::bad_request("a node sends no such body")),
        }
    }

    fn count(&self, policy: &Policy, kind: ClientKind, client: impl FnOnce() -> Client) -> Result<(), Error> {
        match &policy.rate_limit {
            Some(limit) if limit.by == kind => Ok(self.node.rates.take(limit, client())?),
            _ => Ok(()),
        }
    }

    fn request_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get(REQUEST_ID).and_then(|value| value.to_str().ok());
        let harmless = |id: &&str| {
            (1..=36).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
        };
        given.filter(harmless).map_or_else(|| self.node.request_id(), str::to_owned)
    }
}

enum Served {
    Here(Response),
    Elsewhere(Response),
}

struct Connection {
    leftover: Leftover,
    waits_to_be_asked: bool,
    /// False for HTTP/2, because a stream ends without closing the connection.
    may_close: bool,
}

impl Connection {
    fn of(parts: &Parts, body: Incoming) -> (Self, Inbound) {
        let (body, leftover) = Inbound::new(body);
        let waits_to_be_asked = parts.headers.contains_key(header::EXPECT);
        (Self { leftover, waits_to_be_asked, may_close: parts.version < Version::HTTP_2 }, body)
    }

    async fn finish(self, mut response: Response) -> Response {
        if self.may_close && !self.leftover.clear(self.waits_to_be_asked).await {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

struct Completion {
    method: Method,
    uri: Uri,
    id: String,
    seen: Arc<Seen>,
    viewer: Viewer,
    caller: Caller,
    prefers_minimal: bool,
    renewed: Option<HeaderValue>,
}

impl Completion {
    fn of(head: &RequestHead, headers: &HeaderMap, id: String) -> Self {
        Self {
            method: head.method.clone(),
            uri: head.uri.clone(),
            id,
            seen: Arc::clone(&head.seen),
            viewer: Viewer::of(headers, head.scheme),
            caller: Caller::of(head, headers),
            prefers_minimal: headers.get(PREFER).is_some_and(|value| value == "return=minimal"),
            renewed: None,
        }
    }
}

/// Moves the host of an HTTP/2 target to the header `Host`.
fn as_http1(parts: &mut Parts) {
    let Some(authority) = parts.uri.authority().filter(|_| parts.version == Version::HTTP_2) else { return };
    if !parts.headers.contains_key(header::HOST) {
        respond::set(&mut parts.headers, header::HOST, authority.as_str());
    }
    if let Some(target) = parts.uri.path_and_query().cloned() {
        parts.uri = Uri::from(target);
    }
}

/// A header of a POST can override the method for clients that cannot send others.
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
