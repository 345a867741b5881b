//! A server without sockets: [`World`] receives requests as values and answers them.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{HeaderName, HeaderValue};
use hyper::{HeaderMap, Method, StatusCode};
use settee_auth::{Authenticator, hash_password};
use settee_database::{DatabaseOptions, Engine, Layout};
use settee_design::{
    CallError, CompileError, DesignProgram, DesignSource, DocumentBatch, Emissions, Language, Limits, MapSource,
    Program, ReduceRows, Reducer, RunError, SearchKind, TakeRows,
};
use settee_mango::MangoLanguage;
use settee_model::json::Value;
use settee_settings::{Persist, Settings};
use settee_storage::memory::MemoryEngine;

use crate::authentication::jwt::KeyReader;
use crate::authentication::{self, Caller};
use crate::head::RequestHead;
use crate::node::{Node, NodeDependencies, Platform};
use crate::request::RequestBody;
use crate::router::Router;
use crate::routes::router;
use crate::tests::live::Values;
use crate::tests::parts::parts;
use settee_design::scripted::Scripted;
use settee_edge::budget::{Account, Share};
use settee_edge::origin::Scheme;
use settee_edge::shutdown::Shutdown;

pub(crate) struct Ask<'a> {
    method: Method,
    target: &'a str,
    headers: HeaderMap,
    body: Vec<u8>,
    peer: IpAddr,
    scheme: Scheme,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(line: &'a str) -> Self {
        let (method, target) = line.split_once(' ').unwrap();
        Self {
            method: method.parse().unwrap(),
            target,
            headers: HeaderMap::new(),
            body: Vec::new(),
            peer: Ipv4Addr::LOCALHOST.into(),
            scheme: Scheme::Http,
        }
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.insert(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
        self
    }

    pub(crate) fn json(self, text: &str) -> Self {
        self.text("application/json", text)
    }

    pub(crate) fn text(self, content_type: &str, text: &str) -> Self {
        self.header("content-type", content_type).body(text)
    }

    pub(crate) fn body(self, text: &str) -> Self {
        let length = text.len().to_string();
        Self { body: text.as_bytes().to_vec(), ..self.header("content-length", &length) }
    }

    pub(crate) fn basic(self, name: &str, password: &str) -> Self {
        let mut out = Vec::new();
        let mut encoder = settee_model::base64::Encoder::default();
        encoder.push(format!("{name}:{password}").as_bytes(), &mut out);
        encoder.finish(&mut out);
        let value = format!("Basic {}", String::from_utf8(out).unwrap());
        self.header("authorization", &value)
    }

    pub(crate) fn into_headers(self) -> HeaderMap {
        self.headers
    }

    pub(crate) fn from(self, last: u8) -> Self {
        Self { peer: Ipv4Addr::new(10, 0, 0, last).into(), ..self }
    }

    pub(crate) fn encrypted(self) -> Self {
        Self { scheme: Scheme::Https, ..self }
    }
}

struct Agreeable(Scripted);

/// Functions are words. A word that is a JSON array is the result itself. The validation function `refuse` throws
/// `{forbidden: [newDoc, oldDoc]}`; other validations accept. The show function `document` and the update function
/// `same` return the document that they receive, and the show function `both` also the request; other shows return
/// `shown`.
fn called(source: &DesignSource, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
    let document = Value::trusted(&source.json);
    let word = path.iter().try_fold(document, |value, name| value.get(name)).and_then(Value::as_str);
    let first = arguments.first().copied().unwrap_or_default();
    match (path.first().copied().unwrap_or_default(), word.as_deref().unwrap_or_default()) {
        (_, result) if result.starts_with('[') => Ok(result.as_bytes().to_vec()),
        ("validate_doc_update", "refuse") => {
            let both = [b"[", first, b",", arguments[1], b"]"].concat();
            Err(CallError::Forbidden(Value::trusted(&both).into()))
        }
        ("shows", "document") => Ok([br#"["resp",{"json":"#, first, b"}]"].concat()),
        ("shows", "both") => Ok([br#"["resp",{"json":["#, first, b",", arguments[1], b"]}]"].concat()),
        ("shows", _) => Ok(br#"["resp",{"body":"shown"}]"#.to_vec()),
        ("updates", _) => Ok([br#"["up","#, first, br#",{"body":"updated"}]"#].concat()),
        _ => Ok(b"1".to_vec()),
    }
}

pub(crate) struct EmptyView;

impl Language for Agreeable {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn program(&self, _: &MapSource, _: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(EmptyView))
    }

    fn index_program(&self, _: SearchKind, _: &MapSource, _: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(EmptyView))
    }

    fn reducer(&self, _: &str, _: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Ok(Box::new(EmptyView))
    }

    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        self.0.design_program(source, limits)
    }
}

impl Program for EmptyView {
    fn map_in_parts(&mut self, _: &DocumentBatch, _: &mut Emissions, _: &mut TakeRows<'_>) -> Result<(), RunError> {
        Ok(())
    }
}

impl Reducer for EmptyView {
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError> {
        Ok(vec![b"null".to_vec(); groups.len()])
    }

    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError> {
        Ok(vec![b"null".to_vec(); groups.len()])
    }
}

#[derive(Debug)]
pub(crate) struct TestResponse {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: String,
}

impl TestResponse {
    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(crate) fn line(&self) -> String {
        format!("{} {}", self.status.as_u16(), self.body.trim_end())
    }
}

/// A server with the administrator `admin`, whose password is `pw`.
pub(crate) struct World {
    pub(crate) node: Arc<Node>,
    pub(crate) settings: Arc<Values>,
    pub(crate) authenticator: Authenticator,
    router: Arc<Router>,
    now_ms: Arc<AtomicU64>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self::within(Platform::default())
    }

    pub(crate) fn on(engine: Arc<dyn Engine>) -> Self {
        Self::called("node", engine)
    }

    pub(crate) fn called(name: &str, engine: Arc<dyn Engine>) -> Self {
        Self::made(engine, Platform::default(), name)
    }

    pub(crate) fn with_keys(read_keys: KeyReader) -> Self {
        Self::within(Platform { read_keys, ..Platform::default() })
    }

    pub(crate) fn within(platform: Platform) -> Self {
        Self::made(Arc::new(MemoryEngine::new()), platform, "node")
    }

    fn made(engine: Arc<dyn Engine>, platform: Platform, name: &str) -> Self {
        let (settings, now_ms) = (Arc::new(Values::default()), Arc::new(AtomicU64::new(1_700_000_000_000)));
        settings.set("chttpd_auth", "iterations", "2", Persist::No).unwrap();
        let clock = Arc::clone(&now_ms);
        let language = Agreeable(Scripted::new(called));
        let of_engine = parts(engine, vec![Arc::new(language), Arc::new(MangoLanguage)]);
        let parts = NodeDependencies {
            identity: crate::Identity { node: name.to_owned(), ..of_engine.identity },
            settings: Arc::clone(&settings) as Arc<dyn Settings>,
            clock_ms: Box::new(move || clock.load(Ordering::Relaxed)),
            platform,
            ..of_engine
        };
        let authenticator = parts.authenticator.clone();
        let node = Node::new(parts);
        let world = Self { node, settings, authenticator, router: Arc::new(router(&Shutdown::new())), now_ms };
        world.set_admins(&["admin"]);
        world
    }

    pub(crate) fn set_admins(&self, names: &[&str]) {
        let rounds = std::num::NonZeroU32::new(2).unwrap();
        let admins = names.iter().map(|name| ((*name).to_owned(), hash_password("pw", "salt", rounds)));
        self.authenticator.set_admins(admins.collect::<Vec<_>>());
    }

    pub(crate) fn set(&self, section: &str, key: &str, value: &str) {
        self.settings.set(section, key, value, Persist::No).unwrap();
    }

    pub(crate) fn wait_s(&self, seconds: u64) {
        self.now_ms.fetch_add(seconds * 1000, Ordering::Relaxed);
    }

    pub(crate) fn back_to_s(&self, time_s: u64) {
        self.now_ms.store(time_s * 1000, Ordering::Relaxed);
    }

    pub(crate) fn make_database(&self, name: &str) {
        let options = DatabaseOptions { created_ms: 0, instance: 7, layout: Layout::Whole, q: 1 };
        self.node.catalog.create(name, options).unwrap();
    }

    pub(crate) async fn exchange(&self, request: http::Request<Vec<u8>>) -> TestResponse {
        let (parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().unwrap().as_str();
        let line = format!("{} {target}", parts.method);
        self.ask(Ask { headers: parts.headers, body, ..Ask::new(&line) }).await
    }

    pub(crate) async fn ask(&self, ask: Ask<'_>) -> TestResponse {
        let Ask { method, target, headers, body, peer, scheme } = ask;
        let uri = target.parse().unwrap();
        let account = Account::new(&self.node.budget, None, Share::Anonymous);
        let seen = Arc::default();
        let mut head =
            RequestHead { method, uri, peer, requested: None, rewrites: 0, handler: None, scheme, seen, account };
        let caller = Caller::of(&head, &headers);
        let mut renewed = None;
        let answer = async {
            self.node.catch_up.wait().await?;
            let found = authentication::authenticate(&self.node.authentication, &head, &headers).await?;
            (head.handler, renewed) = (found.handler, found.renewed);
            let headers = match &found.token {
                None => headers,
                Some(token) => {
                    authentication::require_body(token, &body)?;
                    authentication::covered(&headers)
                }
            };
            let body = Some(RequestBody::Buffered(Bytes::from(body)));
            let resolved = self.router.resolve(head.uri.path(), self.node.policy().plus);
            self.router.handle(&self.node, resolved, (head, headers), found.user, body).await
        };
        let mut response = answer.await.unwrap_or_else(|error| self.node.refuse(&caller, &error));
        authentication::renew(&mut response, renewed);
        let (parts, body) = response.into_parts();
        let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let body = String::from_utf8_lossy(&body).into_owned();
        TestResponse { status: parts.status, headers: parts.headers, body }
    }

    pub(crate) async fn admin(&self, line: &str, json: &str) -> TestResponse {
        let reply = self.ask(Ask::new(line).basic("admin", "pw").json(json)).await;
        assert!(reply.status.is_success(), "{line}: {reply:?}");
        reply
    }
}
