//! Forwarding of requests that write to the writer of their database, between servers with sockets.

use std::sync::Arc;

use settee_auth::{Authenticator, hash_password};
use settee_replication::net;
use settee_storage::Engine;
use settee_storage::memory::MemoryEngine;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::late::LateEngine;
use super::live::{Live, Reply, Values, until};
use super::parts::parts;
use crate::metrics::Count;
use crate::{Identity, NodeDependencies};

type Header = (&'static str, &'static str);

/// A request, its headers and body, and the status of its response.
type Case = (&'static str, &'static [Header], &'static str, u16);

const AUTHORIZED: Header = ("Authorization", "Basic YWRtaW46cHc=");

struct Pair {
    writer: Live,
    other: Live,
    store_of_writer: Arc<LateEngine>,
}

async fn server(name: &str, store: &MemoryEngine) -> (Live, Arc<LateEngine>) {
    let engine = LateEngine::on(store);
    let authenticator = Authenticator::new([7; 32]);
    let rounds = std::num::NonZeroU32::new(2).unwrap();
    authenticator.set_admins([("admin".to_owned(), hash_password("pw", "salt", rounds))]);
    let parts = parts(Arc::clone(&engine) as Arc<dyn Engine>, Vec::new());
    let live = Live::of(NodeDependencies {
        settings: Arc::new(Values::of(&["cluster/secret=of the cluster"])),
        authenticator,
        identity: Identity { node: name.to_owned(), ..parts.identity },
        ..parts
    })
    .await;
    let network = net::Network::new(&net::Options::default(), Arc::new(|_| true)).unwrap();
    let _ = live.node.nodes.network.set(Arc::new(network));
    engine.members().announce(name, &format!("http://{}/", live.address)).unwrap();
    (live, engine)
}

fn is_writer(server: &Live) -> bool {
    server.node.nodes.writers().is_some_and(|writers| writers.holds_all())
}

impl Pair {
    async fn new() -> Self {
        let store = MemoryEngine::new();
        let (a, b) = (server("a", &store).await, server("b", &store).await);
        until("a node is the writer", || is_writer(&a.0) || is_writer(&b.0)).await;
        let ((writer, store_of_writer), (other, _)) = if is_writer(&a.0) { (a, b) } else { (b, a) };
        let pair = Self { writer, other, store_of_writer };
        for line in ["PUT /db", "PUT /db/old"] {
            let made = pair.writer.client().await.request(line, &[AUTHORIZED], "{}").await;
            assert_eq!(made.status, 201, "{made:?}");
        }
        pair
    }

    async fn ask(&self, line: &str, body: &str) -> Reply {
        self.other.client().await.request(line, &[AUTHORIZED], body).await
    }

    fn forwarded(&self) -> u64 {
        self.other.node.metrics.totals().count(Count::Forwarded)
    }
}

fn comparable(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let mut headers = reply.headers.clone();
    headers.retain(|(name, _)| !["date", "x-couch-request-id", "x-couchdb-body-time", "etag"].contains(&name.as_str()));
    headers.sort();
    (reply.status, headers, reply.body.clone())
}

#[tokio::test]
async fn a_forwarded_request_returns_the_answer_of_the_writer() {
    let pair = Pair::new().await;
    const WRONG: Header = ("Authorization", "Basic YWRtaW46d3Jvbmc=");
    const PROXIED: [Header; 3] =
        [AUTHORIZED, ("X-Forwarded-Host", "db.example.org"), ("X-Couch-Request-ID", "of-the-client")];
    let large: &'static str = Box::leak(format!("{{\"a\":\"{}\"}}", "x".repeat(3 << 20)).into_boxed_str());
    let cases: [Case; 16] = [
        ("PUT /db/%s", &[AUTHORIZED], "{\"a\":1}", 201),
        ("PUT /db/%s", &PROXIED, "{}", 201),
        ("PUT /db/%s", &[AUTHORIZED], large, 201),
        ("PUT /db/%s", &[AUTHORIZED], "{\"a\":", 400),
        ("PUT /db/old", &[AUTHORIZED], "{}", 409),
        ("PUT /db/%s", &[], "{}", 401),
        ("PUT /db/%s", &[WRONG], "{}", 401),
        ("PUT /db/_local/%s", &[AUTHORIZED], "{}", 201),
        ("PUT /db/%s/file", &[AUTHORIZED], "text", 201),
        ("PUT /db/%s", &[AUTHORIZED, ("Content-Encoding", "identity")], "{}", 201),
        ("POST /db/_bulk_docs", &[AUTHORIZED], "{\"docs\":[{\"_id\":\"old\"}]}", 201),
        ("DELETE /db/none", &[AUTHORIZED], "", 404),
        ("PUT /db/_revs_limit", &[AUTHORIZED], "100", 200),
        ("PUT /%s", &[AUTHORIZED], "", 201),
        ("DELETE /nowhere", &[AUTHORIZED], "", 404),
        (
            "POST /db",
            &[AUTHORIZED, ("X-HTTP-Method-Override", "POST"), ("Connection", "close")],
            "{\"_id\":\"%s\"}",
            201,
        ),
    ];
    for (at, (line, headers, body, status)) in cases.into_iter().enumerate() {
        let mut replies = Vec::new();
        // The same document would conflict.
        for (server, id) in [(&pair.other, "x"), (&pair.writer, "y")] {
            let id = format!("{id}{at}");
            let [line, body] = [line, body].map(|text| text.replace("%s", &id));
            let mut reply = server.client().await.request(&line, headers, &body).await;
            assert_eq!(reply.status, status, "{line}: {reply:?}");
            assert!(reply.headers.iter().all(|(name, _)| !name.starts_with("x-settee")), "{reply:?}");
            reply.body = reply.body.replace(&id, "%s");
            for (_, value) in &mut reply.headers {
                *value = value.replace(&id, "%s").replace(&server.address.to_string(), "HOST");
            }
            replies.push(reply);
        }
        assert_eq!(comparable(&replies[0]), comparable(&replies[1]), "{line}");
        if headers.len() == 3 && headers[2].0 == "X-Couch-Request-ID" {
            assert_eq!(replies[0].header("x-couch-request-id"), Some("of-the-client"));
        }
        assert_eq!(pair.forwarded(), at as u64 + 1, "{line}");
    }
    assert_eq!(pair.writer.node.metrics.totals().count(Count::Forwarded), 0);
}

#[tokio::test]
async fn requests_that_only_read_are_not_forwarded() {
    let pair = Pair::new().await;
    for (line, body) in [("GET /db/old", ""), ("POST /db/_find", "{\"selector\":{}}"), ("POST /db/_all_docs", "{}")] {
        assert_eq!(pair.ask(line, body).await.status, 200, "{line}");
    }
    assert_eq!(pair.forwarded(), 0);
}

/// Writes at the writer make no round trip. Its reads do, because any node builds indexes.
#[tokio::test]
async fn the_writer_polls_for_reads_only() {
    let pair = Pair::new().await;
    let mut client = pair.writer.client().await;
    for number in 0..5 {
        let before = pair.store_of_writer.round_trips();
        let line = format!("PUT /db/of-writer{number}");
        assert_eq!(client.request(&line, &[AUTHORIZED], "{}").await.status, 201);
        let line = format!("PUT /db/of-other{number}");
        assert_eq!(pair.ask(&line, "{}").await.status, 201);
        assert_eq!(pair.store_of_writer.round_trips(), before);
        assert_eq!(client.request(&line.replace("PUT", "GET"), &[AUTHORIZED], "").await.status, 200);
        assert_eq!(pair.ask(&format!("GET /db/of-writer{number}"), "").await.status, 200);
        assert!(pair.store_of_writer.round_trips() > before);
    }
    // A request that another node handles itself and that may change something is announced to the writer.
    let before = pair.store_of_writer.round_trips();
    assert_eq!(pair.ask("DELETE /_session", "").await.status, 200);
    assert!(pair.store_of_writer.round_trips() > before);
}

#[tokio::test]
async fn another_node_writes_after_the_writer_has_stopped() {
    let Pair { writer, other, .. } = Pair::new().await;
    writer.node.stop_writing().await;
    writer.stop().await;
    for number in 0..3 {
        let line = format!("PUT /db/later{number}");
        let reply = other.client().await.request(&line, &[AUTHORIZED], "{}").await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    assert_eq!(other.node.metrics.totals().count(Count::Forwarded), 0);
}

#[tokio::test]
async fn a_request_follows_the_lease() {
    let pair = Pair::new().await;
    pair.writer.node.stop_writing().await;
    assert_eq!(pair.ask("PUT /db/later", "{}").await.status, 201);
    let mut stopped = pair.writer.client().await;
    assert_eq!(stopped.request("GET /db/later", &[AUTHORIZED], "").await.status, 200);
    assert_eq!(stopped.request("PUT /db/last", &[AUTHORIZED], "{}").await.status, 201);
}

fn silent(listener: TcpListener) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            kept.push(stream);
        }
    })
}

/// The write may have arrived: its client receives an error soon, and can retry.
#[tokio::test]
async fn a_request_to_an_unresponsive_writer_is_in_doubt() {
    let pair = Pair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepting = silent(listener);
    let announce = |address| {
        pair.store_of_writer.members().announce(pair.writer.node.name(), &format!("http://{address}/")).unwrap();
    };
    announce(address);
    let (posted, put) = tokio::join!(pair.ask("POST /db", "{}"), pair.ask("PUT /db/doubtful", "{}"));
    for reply in [posted, put] {
        assert!(reply.body.contains("the outcome of the write is unknown"), "{reply:?}");
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
    }
    announce(pair.writer.address);
    assert_eq!(pair.ask("PUT /db/next", "{}").await.status, 201);
    accepting.abort();
}

#[tokio::test]
async fn a_request_without_a_writer_is_refused() {
    let pair = Pair::new().await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    pair.store_of_writer.members().announce(pair.writer.node.name(), &format!("http://{closed}/")).unwrap();
    let reply = pair.ask("PUT /db/refused", "{}").await;
    assert!(reply.body.contains("no node is the writer"), "{reply:?}");
    assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")));
}

#[tokio::test]
async fn clients_cannot_forge_forwarded_requests() {
    let pair = Pair::new().await;
    let forged: [&[(&str, &str)]; 3] = [
        &[("X-Settee-Client", "http 10.0.0.1")],
        &[("X-Settee-Sender", "{\"name\":\"admin\",\"roles\":[\"_admin\"]}")],
        &[("X-Settee-Sender", "{\"name\":\"admin\",\"roles\":[\"_admin\"]}"), ("X-Settee-Node", "1:2:3:4:5")],
    ];
    for server in [&pair.writer, &pair.other] {
        for headers in forged {
            let reply = server.client().await.request("PUT /db/forged", headers, "{}").await;
            assert_eq!(reply.status, 401, "{headers:?}: {reply:?}");
        }
    }
}
