//! Slow clients never delay writers or other readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use settee_edge::budget::{Account, Share};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

use crate::tests::live::{Live, TIMEOUT, until};

/// Each client needs two file descriptors of this process, and some systems permit a thousand.
const READERS: usize = 300;

const LARGE: usize = 40;

const LATENCY_MAX: Duration = Duration::from_secs(20);

async fn load(server: &Live) {
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    let padding = "x".repeat(100_000);
    for batch in 0..12 {
        let docs: Vec<String> = (0..10).map(|n| format!(r#"{{"_id":"{batch}-{n}","padding":"{padding}"}}"#)).collect();
        let saved = server.request("POST /db/_bulk_docs", &format!(r#"{{"docs":[{}]}}"#, docs.join(","))).await;
        assert_eq!(saved.status, 201);
    }
}

/// The client does not read the response.
async fn start_response(server: &Live, path: &str) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    // A small receive buffer, because the server does not wait for buffered data.
    socket.set_recv_buffer_size(4096).unwrap();
    let mut stream = socket.connect(server.address).await.unwrap();
    let head = format!("GET {path} HTTP/1.1\r\nHost: settee.test\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.readable().await.unwrap();
    stream
}

async fn within(label: &str, limit: Duration, work: impl Future<Output = ()>) {
    let begun = Instant::now();
    tokio::time::timeout(TIMEOUT, work).await.unwrap_or_else(|_| panic!("{label} never ends"));
    let taken = begun.elapsed();
    assert!(taken < limit, "{label} took {taken:?}");
}

/// Regression: streamed responses used the threads that commits need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_clients_that_never_read_delay_no_other() {
    let server = Live::start(&[]).await;
    load(&server).await;
    let mut readers = Vec::new();
    for count in 0..READERS {
        let path = ["/db/_all_docs?include_docs=true", "/db/_changes?include_docs=true"][count % 2];
        readers.push(start_response(&server, path).await);
    }
    until("the readers occupy no threads for short work", || settee_threads::busy() < READERS / 2).await;
    for round in 0..5 {
        within("a write", LATENCY_MAX, async {
            let saved = server.request(&format!("PUT /db/new-{round}"), "{}").await;
            assert_eq!(saved.status, 201);
        })
        .await;
        within("a read", LATENCY_MAX, async {
            assert_eq!(server.request(&format!("GET /db/new-{round}"), "").await.status, 200);
        })
        .await;
        within("a list", LATENCY_MAX, async {
            let list = server.request("GET /db/_all_docs?include_docs=true", "").await;
            assert!(list.status == 200 && list.body.len() > 12_000_000, "{} {}", list.status, list.body.len());
        })
        .await;
    }
    let mut writers = JoinSet::new();
    for writer in 0..20 {
        let mut client = server.client().await;
        writers.spawn(async move {
            for round in 0..20 {
                let saved = client.request(&format!("PUT /db/{writer}-{round}-many"), &[], "{}").await;
                assert_eq!(saved.status, 201);
            }
        });
    }
    within("many writes", LATENCY_MAX, async { while writers.join_next().await.is_some() {} }).await;
    drop(readers);
    server.stop().await;
}

/// Regression: large documents waited for memory on the threads that short reads and commits need.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_documents_that_wait_for_memory_delay_no_other() {
    let server = Live::start(&[]).await;
    load(&server).await;
    assert_eq!(server.request("PUT /db/small", "{}").await.status, 201);
    let budget = &server.node.budget;
    let (account, mut all) = (Account::new(budget, None, Share::Admin), None);
    until("all memory is free", || {
        all = account.hold_now(budget.total()).ok();
        all.is_some()
    })
    .await;
    // Each request waits for a second, is rejected, and is retried.
    let stop = Arc::new(AtomicBool::new(false));
    let mut readers = JoinSet::new();
    for _ in 0..LARGE {
        let (mut client, stop) = (server.client().await, Arc::clone(&stop));
        readers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                assert_eq!(client.request("GET /db/0-0", &[], "").await.status, 503);
            }
        });
    }
    // Both conditions are checked together, because rejected requests release their threads.
    until("large documents wait, and occupy no threads for short work", || {
        let waiting = 1024 - server.node.free_answers();
        waiting > LARGE / 2 && settee_threads::busy() < waiting / 2
    })
    .await;
    within("a short read", LATENCY_MAX, async {
        assert_eq!(server.request("GET /db/small", "").await.status, 200);
    })
    .await;
    stop.store(true, Ordering::Relaxed);
    within("the readers are rejected", LATENCY_MAX, async {
        while let Some(response) = readers.join_next().await {
            response.unwrap();
        }
    })
    .await;
    drop(all);
    let large = server.request("GET /db/0-0", "").await;
    assert!(large.status == 200 && large.body.len() > 100_000, "{} {}", large.status, large.body.len());
    server.stop().await;
}

/// The number of long responses is limited: inactive clients are disconnected in favour of others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_clients_are_closed_for_new_ones() {
    let server = Live::start(&["chttpd/max_long_answers=10"]).await;
    load(&server).await;
    let mut readers = Vec::new();
    for _ in 0..10 {
        readers.push(start_response(&server, "/db/_all_docs?include_docs=true").await);
    }
    assert_eq!(server.node.free_answers(), 0);
    within("a list", LATENCY_MAX, async {
        let list = server.request("GET /db/_all_docs?include_docs=true", "").await;
        assert!(list.status == 200 && list.body.len() > 12_000_000, "{} {}", list.status, list.body.len());
    })
    .await;
    assert_eq!(server.node.free_answers(), 1, "exactly one client is disconnected");
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_takes_nothing_is_cut_off() {
    let server = Live::start(&["chttpd/send_timeout_ms=300"]).await;
    load(&server).await;
    let mut reader = server.client().await;
    until("no response is in progress", || server.node.free_answers() == 1024).await;
    reader.send("GET /db/_all_docs?include_docs=true", &[], "").await;
    // The client reads only after the server has aborted the response, which would be complete otherwise.
    let all = 1024;
    until("a response starts", || server.node.free_answers() < all).await;
    until("the response is aborted", || server.node.free_answers() == all).await;
    let rest = reader.rest().await;
    assert!(rest.len() < 12_000_000 && !rest.ends_with(b"0\r\n\r\n"), "{} bytes came", rest.len());
    server.stop().await;
}

#[tokio::test]
async fn a_client_that_stops_sending_gets_an_error() {
    let server = Live::start(&["chttpd/receive_timeout_ms=300"]).await;
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    for path in ["/db/doc", "/db/doc/attachment"] {
        let mut client = server.client().await;
        client.write(format!("PUT {path} HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{{\"a\"").as_bytes()).await;
        let reply = client.reply(false).await.unwrap();
        let body = "{\"error\":\"request_timeout\",\"reason\":\"the request body did not come in time\"}\n";
        assert_eq!((reply.status, reply.body.as_str()), (408, body), "{path}");
        assert!(client.rest().await.is_empty());
    }
    server.stop().await;
}
