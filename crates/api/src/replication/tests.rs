//! Replications of a whole server in memory, with injected faults of the network and a simulated clock.
#![expect(clippy::unwrap_used, reason = "tests")]

mod convergence;
mod documents;
mod peers;
mod requests;

use std::sync::Weak;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::Method;
use parking_lot::Mutex;
use settee_auth::UserContext;
use settee_edge::budget::{Account, Share};
use settee_mango::MangoLanguage;
use settee_model::json::{Json, Value};
use settee_replication::{Body, BoxFuture, Roles, User, full_body};
use settee_settings::{Persist, Settings};
use settee_storage::memory::MemoryEngine;
use tokio::time::Instant;

use super::*;
use crate::NodeDependencies;
use crate::head::RequestHead;
use crate::request::RequestBody;
use crate::tests::live::Values;
use crate::tests::parts::parts;

const BEGIN_MS: u64 = 1_795_184_917_000;

const TIMEOUT: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Refused,
    Status(u16),
    Cut(usize),
}

#[derive(Default)]
struct OneServer {
    there: Mutex<Option<(Weak<Node>, Arc<Router>)>>,
    fault: Mutex<Option<Fault>>,
    calls: AtomicU64,
}

struct Wire {
    network: Arc<OneServer>,
    inner: InProcess,
}

impl Transport for Wire {
    fn call(&self, request: http::Request<Body>) -> BoxFuture<'_, Result<http::Response<Body>, TransportError>> {
        Box::pin(async move {
            self.network.calls.fetch_add(1, Ordering::Relaxed);
            let fault = *self.network.fault.lock();
            let (mut parts, body) = request.into_parts();
            parts.uri = parts.uri.path_and_query().unwrap().as_str().parse().unwrap();
            match fault {
                Some(Fault::Refused) => return Err(TransportError::Refused("connection refused".to_owned())),
                Some(Fault::Status(status)) => {
                    let body = full_body(r#"{"error":"fault","reason":"as the test wants it"}"#);
                    return Ok(http::Response::builder().status(status).body(body).unwrap());
                }
                Some(Fault::Cut(_)) | None => {}
            }
            if parts.uri.path() == "/_session" {
                // The other server has no sessions, so credentials are sent with each request.
                return Ok(http::Response::builder().status(404).body(full_body("{}")).unwrap());
            }
            let response = self.inner.call(http::Request::from_parts(parts, body)).await?;
            let Some(Fault::Cut(bytes)) = fault else { return Ok(response) };
            Ok(response.map(|body| Cut { body, left: bytes }.boxed_unsync()))
        })
    }
}

struct Cut {
    body: Body,
    left: usize,
}

impl hyper::body::Body for Cut {
    type Data = bytes::Bytes;
    type Error = TransportError;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Result<hyper::body::Frame<bytes::Bytes>, TransportError>>> {
        use std::task::Poll;
        match std::pin::Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                let length = frame.data_ref().map_or(0, bytes::Bytes::len);
                if length > self.left {
                    return Poll::Ready(Some(Err(TransportError::Broken("cut".to_owned()))));
                }
                self.left -= length;
                Poll::Ready(Some(Ok(frame)))
            }
            other => other,
        }
    }
}

/// A connection through [`OneServer`]: requests with credentials are those of the administrator.
struct Way(Arc<OneServer>);

impl Connect for Way {
    fn connect(&self, _: &Endpoint, _: &Tuning) -> Result<Arc<dyn Transport>, TransportError> {
        let there = self.0.there.lock().clone();
        let (node, router) = there.ok_or_else(|| TransportError::Refused("no other server".to_owned()))?;
        let user = User { name: Some("admin".to_owned()), roles: Roles::Given(vec!["_admin".to_owned()]) };
        Ok(Arc::new(Wire { network: Arc::clone(&self.0), inner: InProcess::new(node, router, user) }))
    }
}

struct World {
    engine: Arc<MemoryEngine>,
    settings: Arc<Values>,
    node: Arc<Node>,
    router: Arc<Router>,
    shutdown: Shutdown,
    network: Arc<OneServer>,
    replication: Replication,
}

fn admin() -> UserContext {
    UserContext::admin("admin")
}

fn user(name: &str) -> UserContext {
    UserContext { name: Some(name.to_owned()), roles: Vec::new() }
}

impl World {
    async fn new() -> Self {
        Self::on(Arc::new(MemoryEngine::new()), Arc::default()).await
    }

    async fn on(engine: Arc<MemoryEngine>, settings: Arc<Values>) -> Self {
        let (begin, uuids) = (Instant::now(), AtomicU64::new(1));
        let parts = NodeDependencies {
            settings: Arc::clone(&settings) as Arc<_>,
            uuids: Box::new(move |count| {
                (0..count).map(|_| format!("uuid{}", uuids.fetch_add(1, Ordering::Relaxed))).collect()
            }),
            clock_ms: Box::new(move || BEGIN_MS + u64::try_from(begin.elapsed().as_millis()).unwrap()),
            ..parts(Arc::clone(&engine) as Arc<_>, vec![Arc::new(MangoLanguage)])
        };
        parts.authenticator.set_admins([("admin".to_owned(), "somehow".to_owned())]);
        let (node, shutdown, network) = (Node::new(parts), Shutdown::new(), Arc::new(OneServer::default()));
        let router = Arc::new(routes::router(&shutdown));
        let parts = ReplicationDependencies {
            network: Arc::new(Way(Arc::clone(&network))),
            hostname: "here".to_owned(),
            port: 5984,
        };
        let replication = Replication::start(&node, parts, &shutdown).await.unwrap();
        Self { engine, settings, node, router, shutdown, network, replication }
    }

    async fn pair() -> (Self, Self) {
        let (here, there) = (Self::new().await, Self::new().await);
        *here.network.there.lock() = Some((Arc::downgrade(&there.node), Arc::clone(&there.router)));
        (here, there)
    }

    async fn restarted(self) -> Self {
        self.replication.stop().await;
        self.shutdown.begin();
        Self::on(self.engine, self.settings).await
    }

    fn set(&self, key: &str, value: &str) {
        self.settings.set("replicator", key, value, Persist::No).unwrap();
    }

    async fn ask(&self, user: &UserContext, method: Method, path: &str, body: &str) -> (u16, Json) {
        let mut headers = hyper::HeaderMap::new();
        headers.insert(hyper::header::CONTENT_TYPE, "application/json".parse().unwrap());
        let peer = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
        let head = RequestHead {
            method,
            uri: path.parse().unwrap(),
            peer,
            scheme: settee_edge::origin::Scheme::Http,
            requested: None,
            rewrites: 0,
            handler: None,
            seen: Arc::default(),
            account: Account::new(&self.node.budget, None, Share::Admin),
        };
        let body = RequestBody::Buffered(body.to_owned().into());
        let resolved = self.router.resolve(head.uri.path(), self.node.policy().plus);
        let answer = self.router.handle(&self.node, resolved, (head, headers), user.clone(), Some(body)).await;
        let answer = answer.unwrap_or_else(|error| self.node.refuse(&crate::authentication::Caller::default(), &error));
        let status = answer.status().as_u16();
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let json = Json::parse(&text).unwrap_or_else(|_| Json::empty_object());
        (status, json)
    }

    async fn get(&self, path: &str) -> (u16, Json) {
        self.ask(&admin(), Method::GET, path, "").await
    }

    #[track_caller]
    fn done(&self, method: Method, path: &str, body: &str) -> impl Future<Output = Json> {
        let (path, body, caller) = (path.to_owned(), body.to_owned(), std::panic::Location::caller());
        async move {
            let (status, json) = self.ask(&admin(), method, &path, &body).await;
            assert!(status < 300, "{caller}: {path}: {status} {}", show(&json));
            json
        }
    }

    async fn put(&self, path: &str, body: &str) -> Json {
        self.done(Method::PUT, path, body).await
    }

    async fn post(&self, path: &str, body: &str) -> Json {
        self.done(Method::POST, path, body).await
    }

    async fn databases(&self, names: &[&str]) {
        for name in names {
            self.put(&format!("/{name}"), "").await;
        }
    }

    async fn until(&self, path: &str, label: &str, holds: impl Fn(u16, Value<'_>) -> bool) -> Json {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            let (status, json) = self.get(path).await;
            if holds(status, json.value()) {
                return json;
            }
            assert!(Instant::now() < deadline, "waited too long until {label}: {status} {}", show(&json));
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn until_state(&self, id: &str, state: &str) -> Json {
        let path = format!("/_scheduler/docs/_replicator/{id}");
        self.until(&path, state, |_, json| text(json, "state").as_deref() == Some(state)).await
    }

    async fn until_found(&self, path: &str) -> Json {
        self.until(path, path, |status, _| status == 200).await
    }

    async fn until_gone(&self, path: &str) {
        self.until(path, path, |status, _| status == 404).await;
    }

    async fn jobs(&self) -> u64 {
        let (_, json) = self.get("/_scheduler/jobs").await;
        json.value().get("total_rows").and_then(Value::as_u64).unwrap()
    }
}

fn text(json: Value<'_>, name: &str) -> Option<String> {
    json.get(name).and_then(Value::as_str).map(std::borrow::Cow::into_owned)
}

fn rev(json: &Json) -> String {
    text(json.value(), "rev").or_else(|| text(json.value(), "_rev")).unwrap()
}

fn show(json: &Json) -> String {
    String::from_utf8_lossy(json.as_bytes()).into_owned()
}
