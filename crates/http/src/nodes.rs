//! [`Nodes`]: the other servers on the same store, as they are asked for what only they know. A node that does not answer in time is
//! left out, or told of; nobody waits longer for it. A server on a store of its own has none.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::header::{self, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode, Uri};
use settee_auth::{ADMIN_ROLE, NodeRequest, NodeToken, UserContext};
use settee_database::members::{Node as Member, preferred};
use settee_database::{Database, Engine};
use settee_replication::{Auth, Connect, Endpoint, Remote, Roles, TransportError, Tuning, User, full_body};
use settee_settings::{Derived, Settings, cluster};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Error;
use crate::authentication::{COVERED, NODE_ROLE, TOKEN, covered_text};
use crate::handover::couriers::Couriers;
use crate::handover::{BUSY, TAKEN};
use crate::load::Load;
use crate::pulse::Pulses;
use crate::respond::{self, Answer};

/// The time that another node has for an answer.
const ANSWER_TIME: Duration = Duration::from_secs(2);

/// The time that it has for the end of what it is about.
const PATIENCE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The most bytes of an answer of another node.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// Requests that are handed over at a time. Further ones are served here.
pub(crate) const HANDED_OVER_MAX: usize = 256;

/// A node with fewer small writes under way commits those itself that no other node meets: each would wait for a trip more.
pub(crate) const WRITES_MIN: usize = 4;

/// With fewer nodes, PostgreSQL has no less to do when one of them makes the commits of all.
pub(crate) const NODES_MIN: usize = 3;

/// The most bytes of a request of another node. Messages of writes have a lower limit.
pub(crate) const REQUEST_BYTES_MAX: usize = 64 << 20;

/// The target of requests for a sign of life. They are answered before anything else is looked at.
pub(crate) const ALIVE: &str = "/_node/_local/_alive";

/// The servers on one store.
pub(crate) struct Nodes {
    pub(crate) engine: Arc<dyn Engine>,
    /// What this one is called.
    pub(crate) own: String,
    pub(crate) settings: Arc<dyn Settings>,
    /// By which nodes know each other.
    pub(crate) secret: Derived<Option<String>>,
    pub(crate) clock_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    /// The way to others, there when replication has begun.
    pub(crate) network: OnceLock<Arc<dyn Connect>>,
    pub(crate) pulses: Pulses,
    pub(crate) load: Load,
    pub(crate) couriers: Couriers,
    /// What small writes of clients share that are under way here.
    pub(crate) writing: Arc<()>,
    /// The places of requests that are handed over: strangers' ones are not judged before, and must not take all that another node has.
    pub(crate) handing_over: Semaphore,
    /// Number of requests that this process has signed.
    pub(crate) signed: AtomicU64,
}

/// What one node asks another.
#[derive(Clone)]
pub(crate) struct Question {
    pub(crate) method: Method,
    pub(crate) target: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Question {
    fn get(target: &str) -> Self {
        Self { method: Method::GET, target: target.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// A POST of JSON.
    fn post(target: &str, body: Vec<u8>) -> Self {
        let headers = HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        Self { method: Method::POST, target: target.to_owned(), headers, body: body.into() }
    }
}

impl Nodes {
    /// Whether there can be others.
    pub(crate) fn is_cluster(&self) -> bool {
        !self.engine.members().is_sole()
    }

    /// The names of all nodes that live, sorted.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.others().into_iter().map(|node| node.name).collect();
        names.push(self.own.clone());
        names.sort();
        names
    }

    fn others(&self) -> Vec<Member> {
        let live = self.engine.members().live();
        live.iter().filter(|node| node.name != self.own).cloned().collect()
    }

    /// The node that a request is to be passed on to: the path names another one, and no node has passed it on already.
    pub(crate) fn named(&self, name: &str, user: &UserContext) -> Option<Member> {
        if name.is_empty() || name == self.own || is_node(user) {
            return None;
        }
        self.others().into_iter().find(|node| node.name == name)
    }

    /// Has another node answer a request.
    pub(crate) async fn pass_on(
        &self,
        node: &Member,
        (method, uri): (&Method, &Uri),
        headers: &HeaderMap,
        body: Bytes,
    ) -> Answer {
        let target = uri.path_and_query().map_or("/", |target| target.as_str()).to_owned();
        let passed = COVERED.into_iter().filter_map(|name| Some((name.clone(), headers.get(&name)?.clone())));
        let question = Question { method: method.clone(), target, headers: passed.collect(), body };
        let (status, headers, body) = self.ask(node, question).await.map_err(|why| {
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

    /// The node that small writes to a database are best given to, if others write to it as well. It is one for all databases, as what one commits
    /// together takes PostgreSQL least, until it is busy. Where there are several nodes with much to write, those that one of them has for itself go
    /// there as well.
    pub(crate) fn writer(&self, database: &Database, others_write: bool) -> Option<Member> {
        let (is_spread, writes) = (self.load.is_spread(), Arc::strong_count(&self.writing) - 1);
        if !others_write && (is_spread || writes < WRITES_MIN) {
            return None;
        }
        let live = self.engine.members().live();
        if !others_write && live.len() < NODES_MIN {
            return None;
        }
        let key = if is_spread { format!("writes {:x}", database.shard().0) } else { "writes".to_owned() };
        preferred(&live, &key).cloned()
    }

    /// What the answer to a message of requests says that another node has handed over.
    pub(crate) fn taken(&self) -> HeaderValue {
        if self.load.is_busy() { BUSY } else { TAKEN }
    }

    /// Whether another node gives a sign of life.
    pub(crate) async fn is_alive(&self, node: &Member) -> bool {
        self.exchange(node, Question::get(ALIVE), ANSWER_TIME).await.is_ok()
    }

    /// What all other nodes answer to a GET of `target`, those that answer in time and with success. Who asks for another node is
    /// told of one only.
    pub(crate) async fn ask_all(&self, target: &str, user: &UserContext) -> Vec<Bytes> {
        self.question_all(Question::get(target), user).await
    }

    /// The same for a POST of JSON.
    pub(crate) async fn post_all(&self, target: &str, body: Vec<u8>, user: &UserContext) -> Vec<Bytes> {
        self.question_all(Question::post(target, body), user).await
    }

    /// The other node that answers a GET of `target` with success.
    pub(crate) async fn who_knows(&self, target: &str) -> Option<Member> {
        let mut asking = JoinSet::new();
        for node in self.others() {
            let asked = self.ask(&node, Question::get(target));
            asking.spawn(async move { matches!(asked.await, Ok((StatusCode::OK, ..))).then_some(node) });
        }
        while let Some(answered) = asking.join_next().await {
            if let Ok(Some(node)) = answered {
                return Some(node);
            }
        }
        None
    }

    /// The answer of another node to a POST of JSON, however long it takes; `None` if there is none, or 404.
    pub(crate) async fn post_to(&self, node: &Member, target: &str, body: Vec<u8>) -> Option<(StatusCode, Bytes)> {
        match self.exchange(node, Question::post(target, body), PATIENCE).await {
            Ok((StatusCode::NOT_FOUND, ..)) => None,
            Ok((status, _, body)) => Some((status, body)),
            Err(why) => {
                tracing::warn!(node = node.name, %why, "a node does not answer");
                None
            }
        }
    }

    async fn question_all(&self, question: Question, user: &UserContext) -> Vec<Bytes> {
        if is_node(user) {
            return Vec::new();
        }
        let mut asking = JoinSet::new();
        for node in self.others() {
            let asked = self.ask(&node, question.clone());
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

    /// Asks another node for what it knows at once.
    fn ask(
        &self,
        node: &Member,
        question: Question,
    ) -> impl Future<Output = Result<(StatusCode, HeaderMap, Bytes), String>> + Send + use<> {
        let exchange = self.exchange(node, question, ANSWER_TIME);
        async move {
            let in_time = tokio::time::timeout(ANSWER_TIME, exchange).await.map_err(|_| "not in time".to_owned())?;
            in_time.map_err(|error| error.to_string())
        }
    }

    /// Has another node answer, however long it takes. The answer comes in pieces.
    pub(crate) fn send(
        &self,
        node: &Member,
        question: Question,
    ) -> impl Future<Output = Result<http::Response<settee_replication::Body>, TransportError>> + Send + use<> {
        self.call(node, question, PATIENCE)
    }

    /// Asks another node, which begins to answer within `time`.
    fn exchange(
        &self,
        node: &Member,
        question: Question,
        time: Duration,
    ) -> impl Future<Output = Result<(StatusCode, HeaderMap, Bytes), TransportError>> + Send + use<> {
        let called = self.call(node, question, time);
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
        question: Question,
        time: Duration,
    ) -> impl Future<Output = Result<http::Response<settee_replication::Body>, TransportError>> + Send + use<> {
        let request = self.request(node, question, time);
        async move {
            let (transport, request) = request.map_err(TransportError::Unusable)?;
            transport.call(request).await
        }
    }

    fn request(
        &self,
        node: &Member,
        question: Question,
        time: Duration,
    ) -> Result<(Arc<dyn settee_replication::Transport>, http::Request<settee_replication::Body>), String> {
        let Question { method, target, headers, body } = question;
        let network = self.network.get().ok_or("this node has not begun yet")?;
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
        // Each start of a node is another sender.
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

/// Whether a node asks.
pub(crate) fn is_node(user: &UserContext) -> bool {
    user.roles.iter().any(|role| role == NODE_ROLE)
}

/// The root of another node. It may be on a network that is not public.
fn remote(address: &str) -> Result<Remote, String> {
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
