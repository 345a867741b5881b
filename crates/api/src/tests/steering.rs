//! Forwarding of writes to the preferred node of their database, between servers with sockets.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use settee_auth::{Authenticator, hash_password};
use settee_replication::net;
use settee_storage::Engine;
use settee_storage::members::{NodeId, preferred};
use settee_storage::memory::MemoryEngine;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use super::late::LateEngine;
use super::live::{Live, Reply, TIMEOUT, Values, until};
use super::parts::parts;
use crate::load::SPREAD_MS;
use crate::metrics::Count;
use crate::nodes::HANDED_OVER_MAX;
use crate::{Identity, NodeDependencies, Operation, Platform};

pub(super) type Header = (&'static str, &'static str);

/// A request, its headers and body, and the status of its response.
type Case = (&'static str, &'static [Header], &'static str, u16);

pub(super) const AUTHORIZED: Header = ("Authorization", "Basic YWRtaW46cHc=");

/// The common clock of the servers of a test, and the processor time of each, in milliseconds.
#[derive(Clone, Default)]
struct Machine {
    now: Arc<AtomicU64>,
    taken: Arc<AtomicU64>,
}

/// Two servers on one store, which write to the database `db`.
pub(super) struct Pair {
    pub(super) writer: Live,
    pub(super) other: Live,
    pub(super) store_of_writer: Arc<LateEngine>,
    machine_of_writer: Machine,
    documents: u32,
}

async fn server(name: &str, store: &MemoryEngine, machine: &Machine) -> (Live, Arc<LateEngine>) {
    let engine = LateEngine::on(store);
    let authenticator = Authenticator::new([7; 32]);
    let rounds = std::num::NonZeroU32::new(2).unwrap();
    authenticator.set_admins([("admin".to_owned(), hash_password("pw", "salt", rounds))]);
    let parts = parts(Arc::clone(&engine) as Arc<dyn Engine>, Vec::new());
    let Machine { now, taken } = machine.clone();
    let live = Live::of(NodeDependencies {
        settings: Arc::new(Values::of(&["cluster/secret=of the cluster"])),
        authenticator,
        identity: Identity { node: name.to_owned(), ..parts.identity },
        platform: Platform { processor_time: Arc::new(move || taken.load(Ordering::Relaxed)), ..parts.platform },
        operation: Operation { monotonic_us: Box::new(move || now.load(Ordering::Relaxed) * 1000), ..parts.operation },
        ..parts
    })
    .await;
    let network = net::Network::new(&net::Options::default(), Arc::new(|_| true)).unwrap();
    let _ = live.node.nodes.network.set(Arc::new(network));
    engine.members().announce(name, &format!("http://{}/", live.address)).unwrap();
    (live, engine)
}

impl Pair {
    /// Creates two nodes that have observed each other's writes, so that the other one forwards its writes.
    pub(super) async fn new() -> Self {
        let store = MemoryEngine::new();
        let machine = Machine::default();
        let other_machine = Machine { now: Arc::clone(&machine.now), ..Machine::default() };
        let (a, b) = (server("a", &store, &machine).await, server("b", &store, &other_machine).await);
        let made = a.0.client().await.request("PUT /db", &[AUTHORIZED], "").await;
        assert_eq!(made.status, 201, "{made:?}");
        let best = a.0.node.nodes.writer(&a.0.node.database("db").unwrap()).unwrap().name;
        let (of_best, of_other, machine_of_writer) = if best == "a" { (a, b, machine) } else { (b, a, other_machine) };
        let ((writer, store_of_writer), (other, _)) = (of_best, of_other);
        let mut pair = Self { writer, other, store_of_writer, machine_of_writer, documents: 0 };
        pair.meet("db").await;
        // The next write should be forwarded, but the preferred node has not answered a health probe yet.
        assert_eq!(pair.ask("PUT /db/_local/a", &[AUTHORIZED], "{}").await.status, 201);
        until("the preferred node answers a health probe", || pair.is_there()).await;
        assert_eq!(pair.handed_over(), 0);
        pair
    }

    /// Makes each node observe a faster write of the other one.
    pub(super) async fn meet(&mut self, database: &str) {
        for is_writer in [false, true, false] {
            let server = if is_writer { &self.writer } else { &self.other };
            self.documents += 1;
            let line = format!("PUT /{database}/met{}", self.documents);
            let response = server.client().await.request(&line, &[AUTHORIZED], "{}").await;
            assert_eq!(response.status, 201, "{response:?}");
        }
        assert_eq!(self.handed_over(), 0);
    }

    pub(super) async fn ask(&self, line: &str, headers: &[(&str, &str)], body: &str) -> Reply {
        self.other.client().await.request(line, headers, body).await
    }

    pub(super) fn handed_over(&self) -> u64 {
        self.other.node.metrics.totals().count(Count::HandedOver)
    }

    /// Announces another address of the preferred node.
    pub(super) fn move_writer(&self, address: SocketAddr) {
        self.store_of_writer.members().announce(self.writer.node.name(), &format!("http://{address}/")).unwrap();
    }

    fn other_id(&self) -> NodeId {
        let live = self.store_of_writer.members().live();
        live.iter().find(|node| node.name == self.other.node.name()).unwrap().id
    }

    fn is_there(&self) -> bool {
        self.other.node.nodes.health_probes.is_there(self.store_of_writer.members().this())
    }
}

/// Removes headers that depend on the time or the request.
fn comparable(reply: &Reply) -> (u16, Vec<(String, String)>, String) {
    let mut headers = reply.headers.clone();
    headers.retain(|(name, _)| !["date", "x-couch-request-id", "x-couchdb-body-time", "etag"].contains(&name.as_str()));
    headers.sort();
    (reply.status, headers, reply.body.clone())
}

#[tokio::test]
async fn a_forwarded_write_returns_the_answer_of_the_writer() {
    let pair = Pair::new().await;
    const WRONG: Header = ("Authorization", "Basic YWRtaW46d3Jvbmc=");
    const PROXIED: [Header; 3] =
        [AUTHORIZED, ("X-Forwarded-Host", "db.example.org"), ("X-Couch-Request-ID", "of-the-client")];
    let cases: [Case; 10] = [
        ("PUT /db/%s", &[AUTHORIZED], "{\"a\":1}", 201),
        ("PUT /db/%s", &PROXIED, "{}", 201),
        ("PUT /db/%s", &[AUTHORIZED], "{\"a\":", 400),
        ("PUT /db/met1", &[AUTHORIZED], "{}", 409),
        ("PUT /db/%s", &[], "{}", 401),
        ("PUT /db/%s", &[WRONG], "{}", 401),
        ("PUT /db/_local/%s", &[AUTHORIZED], "{}", 201),
        ("POST /db/_bulk_docs", &[AUTHORIZED], "{\"docs\":[{\"_id\":\"met1\"}]}", 201),
        ("DELETE /db/none", &[AUTHORIZED], "", 404),
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
            assert!(reply.header("x-settee-writes").is_none(), "{reply:?}");
            reply.body = reply.body.replace(&id, "%s");
            for (_, value) in &mut reply.headers {
                *value = value.replace(&id, "%s");
            }
            replies.push(reply);
        }
        assert_eq!(comparable(&replies[0]), comparable(&replies[1]), "{line}");
        if headers.len() == 3 && headers[2].0 == "X-Couch-Request-ID" {
            assert_eq!(replies[0].header("x-couch-request-id"), Some("of-the-client"));
        }
        assert_eq!(pair.handed_over(), at as u64 + 1, "{line}");
    }
}

#[tokio::test]
async fn other_requests_than_small_writes_are_not_forwarded() {
    let pair = Pair::new().await;
    let cases: [Case; 6] = [
        ("GET /db/met1", &[AUTHORIZED], "", 200),
        ("PUT /db/file/a", &[AUTHORIZED], "text", 201),
        ("PUT /db/packed", &[AUTHORIZED, ("Content-Encoding", "identity")], "{}", 201),
        ("POST /db/_find", &[AUTHORIZED], "{\"selector\":{}}", 200),
        ("PUT /db/_revs_limit", &[AUTHORIZED], "100", 200),
        ("PUT /another", &[AUTHORIZED], "", 201),
    ];
    for (line, headers, body, status) in cases {
        let reply = pair.ask(line, headers, body).await;
        assert_eq!(reply.status, status, "{line}: {reply:?}");
    }
    let large = format!("{{\"a\":\"{}\"}}", "x".repeat(70_000));
    assert_eq!(pair.ask("PUT /db/large", &[AUTHORIZED], &large).await.status, 201);
    assert_eq!(pair.handed_over(), 0);
    let places = u32::try_from(HANDED_OVER_MAX).unwrap();
    let taken = pair.other.node.nodes.handing_over.try_acquire_many(places).unwrap();
    assert_eq!(pair.ask("PUT /db/_local/b", &[AUTHORIZED], "{}").await.status, 201);
    assert_eq!(pair.handed_over(), 0, "there is no place");
    drop(taken);
    assert_eq!(pair.ask("PUT /db/_local/c", &[AUTHORIZED], "{}").await.status, 201);
    assert_eq!(pair.handed_over(), 1);
    // The preferred node forwards nothing, whatever writes it has observed.
    for name in ["u", "v"] {
        let line = format!("PUT /db/{name}");
        assert_eq!(pair.ask(&line, &[AUTHORIZED], "{}").await.status, 201);
        assert_eq!(pair.writer.client().await.request(&line, &[AUTHORIZED], "{}").await.status, 409);
    }
    assert_eq!(pair.writer.node.metrics.totals().count(Count::HandedOver), 0);
}

#[tokio::test]
async fn a_node_without_another_writes_itself() {
    let Pair { writer, other, .. } = Pair::new().await;
    writer.stop().await;
    for number in 0..3 {
        let line = format!("PUT /db/alone{number}");
        let reply = other.client().await.request(&line, &[AUTHORIZED], "{}").await;
        assert_eq!(reply.status, 201, "{reply:?}");
    }
    assert_eq!(other.node.metrics.totals().count(Count::HandedOver), 0);
}

/// A node can be busy because of its users' code. Writes are distributed then: each database has its own
/// preferred node.
#[tokio::test]
async fn a_busy_node_writes_for_fewer_databases() {
    let mut pair = Pair::new().await;
    let live = pair.store_of_writer.members().live();
    let mut of_writer = None;
    let mut of_other = None;
    // Each of two nodes is preferred for half of the databases, by name.
    for number in 0..64 {
        let name = format!("db{number}");
        assert_eq!(pair.ask(&format!("PUT /{name}"), &[AUTHORIZED], "").await.status, 201);
        let shard = pair.other.node.database(&name).unwrap().shard();
        let best = &preferred(&live, &format!("writes {:x}", shard.0)).unwrap().name;
        let known = if best == pair.writer.node.name() { &mut of_writer } else { &mut of_other };
        known.get_or_insert(name);
    }
    let (of_writer, of_other) = (of_writer.unwrap(), of_other.unwrap());
    for name in [&of_writer, &of_other] {
        pair.meet(name).await;
    }
    let handed_over = async |server: &Live, name: &str, document: &str| {
        let count = || server.node.metrics.totals().count(Count::HandedOver);
        let before = count();
        let reply = server.client().await.request(&format!("PUT /{name}/{document}"), &[AUTHORIZED], "{}").await;
        assert_eq!(reply.status, 201, "{reply:?}");
        assert!(reply.header("x-settee-writes").is_none(), "{reply:?}");
        count() > before
    };
    for name in [&of_writer, &of_other] {
        assert!(handed_over(&pair.other, name, "a").await, "{name}");
        assert!(!handed_over(&pair.writer, name, "b").await, "{name}");
    }
    let Machine { now, taken } = pair.machine_of_writer.clone();
    now.fetch_add(1000, Ordering::Relaxed);
    taken.fetch_add(1000, Ordering::Relaxed);
    assert!(handed_over(&pair.other, &of_other, "c").await, "it has not observed the load yet");
    assert!(!handed_over(&pair.other, &of_other, "d").await);
    assert!(handed_over(&pair.other, &of_writer, "e").await);
    // The busy node also forwards writes, because it has observed a write of the other one.
    assert!(!handed_over(&pair.writer, &of_other, "f").await, "it probes the other node first");
    until("the other node answers a health probe", || pair.writer.node.nodes.health_probes.is_there(pair.other_id()))
        .await;
    assert!(handed_over(&pair.writer, &of_other, "g").await);
    now.fetch_add(SPREAD_MS, Ordering::Relaxed);
    assert!(handed_over(&pair.other, &of_other, "h").await, "it is busy no more");
    assert!(!handed_over(&pair.writer, &of_other, "i").await);
}

/// Accepts connections and sends a fixed response.
fn stand_in(listener: TcpListener, answer: &'static [u8]) -> JoinHandle<()> {
    tokio::spawn(async move {
        let mut kept = Vec::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            if answer.is_empty() {
                kept.push(stream);
                continue;
            }
            tokio::spawn(async move {
                let mut head = [0; 4096];
                while stream.read(&mut head).await.is_ok_and(|read| read > 0) && stream.write_all(answer).await.is_ok()
                {
                }
            });
        }
    })
}

/// The write may have arrived. Its client receives an error soon, and the next write is made.
#[tokio::test]
async fn a_forwarded_write_to_an_unresponsive_node_is_in_doubt() {
    let pair = Pair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let silent = stand_in(listener, b"");
    pair.move_writer(address);
    let begun = tokio::time::Instant::now();
    // A POST is not retried, because it would create a second document; a retry that conflicts may conflict
    // with itself and is in doubt.
    let headers = [AUTHORIZED];
    let deletion = "DELETE /db/gone?rev=1-967a00dff5e02add41819138abb3284d";
    let (posted, conflict, gone, made) = tokio::join!(
        pair.ask("POST /db", &headers, "{}"),
        pair.ask("PUT /db/met1", &headers, "{}"),
        pair.ask(deletion, &headers, ""),
        pair.ask("PUT /db/doubtful", &headers, "{}")
    );
    assert_eq!(made.status, 201, "{made:?}");
    let name = pair.writer.node.name();
    let expected = format!(
        "{{\"error\":\"service_unavailable\",\"reason\":\"node {name} was to write this and has vanished: it is not known whether it did\"}}\n"
    );
    for reply in [posted, conflict, gone] {
        assert_eq!(
            (reply.status, reply.body.as_str(), reply.header("retry-after")),
            (503, expected.as_str(), Some("1"))
        );
    }
    // Tests that run concurrently need time as well. The duration on an idle machine follows from the
    // constants of `health_probe`.
    assert!(begun.elapsed() < TIMEOUT / 10, "{:?}", begun.elapsed());
    assert!(!pair.is_there());
    assert_eq!(pair.ask("PUT /db/next", &[AUTHORIZED], "{}").await.status, 201);
    assert_eq!(pair.ask(deletion, &headers, "").await.status, 404);
    assert_eq!(pair.handed_over(), 0);
    // The node is probed further, and receives writes again after it responds.
    pair.move_writer(pair.writer.address);
    until("it answers", || pair.is_there()).await;
    assert_eq!(pair.ask("PUT /db/last", &[AUTHORIZED], "{}").await.status, 201);
    assert_eq!(pair.handed_over(), 1);
    silent.abort();
}

/// A node refuses messages if it has an earlier version or a wrong clock.
#[tokio::test]
async fn a_write_that_is_not_taken_is_made_here() {
    let pair = Pair::new().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    pair.move_writer(listener.local_addr().unwrap());
    let refusing = stand_in(listener, b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n");
    let reply = pair.ask("PUT /db/refused", &[AUTHORIZED], "{}").await;
    assert_eq!((reply.status, pair.handed_over(), pair.is_there()), (201, 0, true), "{reply:?}");
    refusing.abort();
}

#[tokio::test]
async fn a_write_waits_for_a_slow_node_that_gives_signs_of_life() {
    let pair = Pair::new().await;
    pair.store_of_writer.hold_round_trips(true);
    let (address, node) = (pair.other.address, Arc::clone(&pair.writer.node));
    let asked = node.metrics.totals().requests();
    let write = tokio::spawn(async move {
        let mut client = super::live::Client::new(tokio::net::TcpStream::connect(address).await.unwrap());
        client.request("PUT /db/slow", &[AUTHORIZED], "{}").await
    });
    until("it is probed", || node.metrics.totals().requests() >= asked + 3).await;
    pair.store_of_writer.hold_round_trips(false);
    let reply = write.await.unwrap();
    assert_eq!((reply.status, pair.handed_over(), pair.is_there()), (201, 1, true), "{reply:?}");
}
