//! Requests of a peer, its authentication, and its delays.
#![expect(clippy::unwrap_used, reason = "tests")]

mod pieces;

use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt;
use parking_lot::Mutex;
use settee_model::json::Json;

use super::{Peer, PeerError};
use crate::endpoint::{Endpoint, User};
use crate::transport::{Body, BoxFuture, Transport, TransportError, full_body};
use crate::tuning::Tuning;

struct Scripted<F> {
    answer: F,
    log: Mutex<Vec<String>>,
}

impl<F> Scripted<F>
where
    F: Fn(usize, &str) -> Result<Response<Body>, TransportError> + Send + Sync + 'static,
{
    fn new(answer: F) -> Arc<Self> {
        Arc::new(Self { answer, log: Mutex::default() })
    }

    fn peer(self: &Arc<Self>, source: &str) -> Peer {
        let json = Json::parse(source.as_bytes()).unwrap();
        let endpoint = Endpoint::parse(Some(json.value()), None, &User::default()).unwrap();
        Peer::new(endpoint, self.clone(), &Tuning::default())
    }
}

impl<F> Transport for Scripted<F>
where
    F: Fn(usize, &str) -> Result<Response<Body>, TransportError> + Send + Sync + 'static,
{
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        let (head, body) = request.into_parts();
        Box::pin(async move {
            let body = body.collect().await?.to_bytes();
            let header = |name: &str| head.headers.get(name).map(|value| value.to_str().unwrap().to_owned());
            let mut line = format!("{} {}", head.method, head.uri);
            for name in ["authorization", "cookie", "x-test"] {
                if let Some(value) = header(name) {
                    line.push_str(&format!(" {name}={value}"));
                }
            }
            if !body.is_empty() {
                line.push_str(&format!(" {}", String::from_utf8_lossy(&body)));
            }
            let number = self.log.lock().len();
            self.log.lock().push(line.clone());
            (self.answer)(number, &line)
        })
    }
}

const INFO: &str = "{\"update_seq\":\"5-x\",\"instance_start_time\":\"0\"}";

fn answer(status: u16, headers: &[(&str, &str)], body: &'static str) -> Result<Response<Body>, TransportError> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(*name, *value);
    }
    Ok(response.body(full_body(body)).unwrap())
}

#[tokio::test(start_paused = true)]
async fn a_session_is_started_and_restarted() {
    let scripted = Scripted::new(|number, line| match number {
        0 => answer(200, &[("set-cookie", "AuthSession=one; Version=1; Path=/")], "{\"ok\":true}"),
        1 => answer(200, &[], INFO),
        2 => answer(401, &[], "{}"),
        3 => answer(200, &[("set-cookie", "AuthSession=two; Path=/")], "{\"ok\":true}"),
        4 => answer(200, &[("set-cookie", "AuthSession=three")], INFO),
        5 => answer(200, &[], INFO),
        _ => panic!("{line}"),
    });
    let peer = scripted.peer("{\"url\":\"http://u:p@host:1/db\",\"headers\":{\"X-Test\":\"1\"}}");
    for _ in 0..3 {
        peer.info().await.unwrap();
    }
    let login = "POST http://host:1/_session authorization=Basic dTpw x-test=1 {\"name\":\"u\",\"password\":\"p\"}";
    let expected = [
        login,
        "GET http://host:1/db/ cookie=AuthSession=one x-test=1",
        "GET http://host:1/db/ cookie=AuthSession=one x-test=1",
        login,
        "GET http://host:1/db/ cookie=AuthSession=two x-test=1",
        "GET http://host:1/db/ cookie=AuthSession=three x-test=1",
    ];
    assert_eq!(*scripted.log.lock(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_password_where_there_are_no_sessions() {
    for status in [404, 405, 200] {
        let scripted = Scripted::new(move |number, _| match number {
            0 => answer(status, &[], "{}"),
            _ => answer(200, &[], INFO),
        });
        scripted.peer("\"http://u:p@host/db\"").info().await.unwrap();
        assert_eq!(scripted.log.lock()[1], "GET http://host/db/ authorization=Basic dTpw");
    }
    let scripted = Scripted::new(|_, _| answer(401, &[], "{}"));
    let error = scripted.peer("\"http://u:p@host/db\"").info().await.unwrap_err();
    assert_eq!(error.to_string(), "unauthorized: unauthorized to access or create database http://host/db/");
    assert_eq!(scripted.log.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn refused_credentials_are_sent_once() {
    let rejected = "unauthorized: unauthorized to access or create database http://host/db/";
    for (answers, requests) in [(vec![401], 1), (vec![404, 401], 2), (vec![200, 401, 401], 3)] {
        let answers_of = answers.clone();
        let scripted = Scripted::new(move |number, line| {
            let status = answers_of.get(number).copied().unwrap_or_else(|| panic!("{line}"));
            match line.contains("_session") && status == 200 {
                true => answer(200, &[("set-cookie", "AuthSession=one; Path=/")], "{}"),
                false => answer(status, &[], "{}"),
            }
        });
        let peer = scripted.peer("\"http://u:p@host/db\"");
        let error = peer.info().await.unwrap_err();
        assert!(error.is_unauthenticated() && !error.is_transient(), "{answers:?}: {error}");
        assert_eq!(error.to_string(), rejected, "{answers:?}");
        assert_eq!(scripted.log.lock().len(), requests, "{answers:?}");
    }
    let scripted = Scripted::new(|number, _| answer(if number == 0 { 404 } else { 403 }, &[], "{}"));
    let error = scripted.peer("\"http://u:p@host/db\"").info().await.unwrap_err();
    assert!(!error.is_unauthenticated());
    assert_eq!(error.to_string(), rejected);
}

#[tokio::test(start_paused = true)]
async fn waits_grow_and_end() {
    let started = tokio::time::Instant::now();
    let scripted = Scripted::new(|_, _| answer(503, &[], "{\"error\":\"busy\",\"reason\":\"later\"}"));
    let error = scripted.peer("\"http://host/db\"").info().await.unwrap_err();
    assert_eq!(error.to_string(), "GET http://host/db/: 503 busy: later");
    assert_eq!(scripted.log.lock().len(), 6);
    assert_eq!(started.elapsed().as_millis(), 250 + 500 + 1000 + 2000 + 4000);

    let started = tokio::time::Instant::now();
    let scripted = Scripted::new(|number, _| match number {
        0 => answer(429, &[("retry-after", "7")], "{}"),
        _ => answer(200, &[], INFO),
    });
    scripted.peer("\"http://host/db\"").info().await.unwrap();
    assert_eq!(started.elapsed(), Duration::from_secs(7));
}

struct Silent;

impl Transport for Silent {
    fn call(&self, _request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        Box::pin(std::future::pending())
    }
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_peer_times_out() {
    let json = Json::parse(b"\"http://host/db\"").unwrap();
    let endpoint = Endpoint::parse(Some(json.value()), None, &User::default()).unwrap();
    let tuning = Tuning { retries_per_request: 0, ..Tuning::default() };
    let started = tokio::time::Instant::now();
    let error = Peer::new(endpoint, Arc::new(Silent), &tuning).info().await.unwrap_err();
    assert!(matches!(error, PeerError::Transport { error: TransportError::Timeout, .. }), "{error}");
    assert_eq!(started.elapsed(), Duration::from_secs(30));
}

struct Slow;

impl Transport for Slow {
    fn call(&self, request: Request<Body>) -> BoxFuture<'_, Result<Response<Body>, TransportError>> {
        Box::pin(async move {
            let mut body = request.into_body();
            while let Some(frame) = body.frame().await {
                frame?;
                tokio::time::sleep(Duration::from_secs(10)).await;
            }
            answer(200, &[], "{}")
        })
    }
}

#[tokio::test(start_paused = true)]
async fn slow_is_not_silent() {
    let json = Json::parse(b"\"http://host/db\"").unwrap();
    let endpoint = Endpoint::parse(Some(json.value()), None, &User::default()).unwrap();
    let tuning = Tuning { retries_per_request: 0, ..Tuning::default() };
    let started = tokio::time::Instant::now();
    let peer = Peer::new(endpoint, Arc::new(Slow), &tuning);
    assert_eq!(peer.revs_diff(vec![b' '; 1 << 20].into()).await, Ok(Vec::new()));
    assert_eq!(started.elapsed(), Duration::from_secs(160));
}
