//! Limits and timeouts of connections.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::Request;
use hyper::body::Frame;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use crate::tests::live::{Live, TIMEOUT, until};

type Sender = http2::SendRequest<Full<Bytes>>;

async fn h2(server: &Live) -> Sender {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

async fn ask(sender: &mut Sender, method: &str, path: &str, body: &str) -> (u16, hyper::HeaderMap, String) {
    let request = Request::builder().method(method).uri(format!("http://settee.test:99{path}"));
    let request = request.header("content-type", "application/json").body(Full::from(body.to_owned())).unwrap();
    let (head, body) = sender.send_request(request).await.unwrap().into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (head.status.as_u16(), head.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn both_versions_of_http_share_a_port() {
    let server = Live::start(&[]).await;
    let mut sender = h2(&server).await;
    let (status, headers, _) = ask(&mut sender, "PUT", "/db", "").await;
    assert_eq!((status, headers["location"].to_str().unwrap()), (201, "http://settee.test:99/db"));
    let (status, _, body) = ask(&mut sender, "POST", "/db/_bulk_docs", r#"{"docs":[{"_id":"a"},{"_id":"b"}]}"#).await;
    assert!(status == 201 && body.contains(r#""id":"b""#), "{body}");
    let (status, headers, body) = ask(&mut sender, "GET", "/db/a", "").await;
    assert!(status == 200 && body.starts_with(r#"{"_id":"a","#), "{body}");
    assert!(headers.contains_key("x-couch-request-id") && headers.contains_key("etag"));
    let (status, _, body) = ask(&mut sender, "GET", "/nothing", "").await;
    assert_eq!((status, body.as_str()), (404, "{\"error\":\"not_found\",\"reason\":\"Database does not exist.\"}\n"));
    assert_eq!(server.request("GET /db/a", "").await.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn many_feeds_share_a_connection() {
    let server = Live::start(&[]).await;
    let mut sender = h2(&server).await;
    assert_eq!(ask(&mut sender, "PUT", "/db", "").await.0, 201);
    let mut feeds = Vec::new();
    // The number of each kind exceeds the limit of requests without a response.
    for feed in ["continuous", "longpoll", "eventsource"].repeat(20) {
        let feed = format!("http://settee.test/db/_changes?feed={feed}&heartbeat=60000");
        let feed = Request::get(feed).body(Full::default()).unwrap();
        feeds.push(sender.send_request(feed).await.unwrap().into_body());
    }
    assert_eq!(ask(&mut sender, "PUT", "/db/new", "{}").await.0, 201);
    for feed in &mut feeds {
        let mut seen = String::new();
        while !seen.contains(r#""id":"new""#) {
            let frame = feed.frame().await.unwrap().unwrap().into_data().unwrap();
            seen.push_str(std::str::from_utf8(&frame).unwrap());
        }
    }
    server.stop().await;
}

struct Slow(tokio::sync::mpsc::Receiver<Bytes>);

impl hyper::body::Body for Slow {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        self.0.poll_recv(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
    }
}

#[tokio::test]
async fn sixteen_requests_of_a_connection_are_worked_on_at_a_time() {
    let server = Live::start(&[]).await;
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let mut ask = |method: &str, path: &str| {
        let (pieces, body) = tokio::sync::mpsc::channel(1);
        let request = Request::builder().method(method).uri(format!("http://settee.test{path}"));
        let request = request.header("content-type", "application/json").body(Slow(body)).unwrap();
        let answer = Box::pin(tokio::time::timeout(TIMEOUT, sender.send_request(request)));
        (pieces, tokio::spawn(async { answer.await.unwrap().unwrap().status().as_u16() }))
    };
    let mut writers: Vec<_> = (0..15).map(|number| ask("PUT", &format!("/db/{number}"))).collect();
    for (pieces, _) in &writers {
        pieces.send(Bytes::from_static(b"{")).await.unwrap();
    }
    let (pieces, answer) = ask("GET", "/db");
    drop(pieces);
    assert_eq!(answer.await.unwrap(), 200, "there is room for one more");
    writers.push(ask("PUT", "/db/15"));
    writers[15].0.send(Bytes::from_static(b"{")).await.unwrap();
    // Requests start in the order in which their tasks are scheduled.
    let waiting = loop {
        let (pieces, mut answer) = ask("GET", "/db");
        drop(pieces);
        let Ok(status) = tokio::time::timeout(Duration::from_millis(300), &mut answer).await else { break answer };
        assert_eq!(status.unwrap(), 200);
    };
    assert_eq!(server.request("GET /db", "").await.status, 200, "other connections do not wait");
    let (pieces, answer) = writers.pop().unwrap();
    pieces.send(Bytes::from_static(b"}")).await.unwrap();
    drop(pieces);
    assert_eq!((answer.await.unwrap(), waiting.await.unwrap()), (201, 200));
    server.stop().await;
}

/// Clients receive the error in CouchDB's format, even for malformed requests.
#[tokio::test]
async fn broken_heads_are_answered() {
    let server = Live::start(&["chttpd/max_header_bytes=10000", "chttpd/max_headers=20"]).await;
    let line = r#"{"error":"bad_request","reason":"the request line is not one of HTTP/1.1"}"#;
    let head = r#"{"error":"bad_request","reason":"the request's headers are not those of HTTP/1.1"}"#;
    let target = r#"{"error":"too_long","reason":"the request URI is too long"}"#;
    let large = r#"{"error":"too_large","reason":"the request's headers are too many or too large"}"#;
    let (long, many) = ("x".repeat(200_000), "X: y\r\n".repeat(21));
    for (text, status, body) in [
        ("hello\r\n\r\n".to_owned(), 400, line),
        ("GET /a b HTTP/1.1\r\nHost: x\r\n\r\n".to_owned(), 400, line),
        ("GET / HTTP/1.1\r\nnonsense\r\n\r\n".to_owned(), 400, head),
        ("PUT /x HTTP/1.1\r\nHost: x\r\nContent-Length: many\r\n\r\n{}".to_owned(), 400, head),
        (format!("GET /{long} HTTP/1.1\r\n\r\n"), 414, target),
        (format!("GET / HTTP/1.1\r\nX: {long}\r\n\r\n"), 431, large),
        (format!("GET / HTTP/1.1\r\n{many}\r\n"), 431, large),
    ] {
        let mut client = server.client().await;
        client.write(text.as_bytes()).await;
        let reply = client.reply(false).await.unwrap();
        assert_eq!((reply.status, reply.body.trim_end()), (status, body), "{text:.60}");
        assert!(reply.header("content-type") == Some("application/json") && client.rest().await.is_empty());
    }
    server.stop().await;
}

#[tokio::test]
async fn heads_must_come_in_time() {
    let server = Live::start(&["chttpd/header_timeout_ms=100"]).await;
    for beginning in ["", "GET / HT", "GET / HTTP/1.1\r\nHost: x\r\n", "PRI * HT"] {
        let mut client = server.client().await;
        client.write(beginning.as_bytes()).await;
        assert!(client.rest().await.is_empty(), "{beginning}");
    }
    let mut client = server.client().await;
    assert_eq!(client.request("GET /", &[], "").await.status, 200);
    client.write(b"GET").await;
    assert!(client.rest().await.is_empty());
    server.stop().await;
}

#[tokio::test]
async fn connections_without_requests_are_closed() {
    let server = Live::start(&["chttpd/idle_timeout_ms=100"]).await;
    let mut client = server.client().await;
    assert_eq!(client.request("GET /", &[], "").await.status, 200);
    assert!(client.rest().await.is_empty());
    let mut sender = h2(&server).await;
    assert_eq!(ask(&mut sender, "GET", "/", "").await.0, 200);
    until("the connection is closed", || sender.is_closed()).await;
    server.stop().await;
}

#[tokio::test]
async fn beyond_the_limit_connections_wait_for_requests_to_end() {
    let server = Live::start(&["chttpd/max_connections=2"]).await;
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    let (mut one, mut two) = (server.client().await, server.client().await);
    for feed in [&mut one, &mut two] {
        feed.send("GET /db/_changes?feed=continuous&heartbeat=60000", &[], "").await;
    }
    let mut three = server.client().await;
    three.send("GET /", &[], "").await;
    let waits = tokio::time::timeout(Duration::from_millis(300), three.reply(false)).await;
    assert!(waits.is_err(), "a third connection is served");
    drop(one);
    assert_eq!(three.reply(false).await.unwrap().status, 200);
    assert_eq!(three.request("PUT /db/doc", &[], "{}").await.status, 201);
    two.read_until("\"id\":\"doc\"").await;
    server.stop().await;
}

#[tokio::test]
async fn the_connection_that_is_idle_longest_gives_way_to_a_client() {
    let server = Live::start(&["chttpd/max_connections=4"]).await;
    let (mut silent, mut begun) = (server.client().await, server.client().await);
    begun.write(b"GET / HTTP/1.1\r\nHo").await;
    let mut asked = server.client().await;
    assert_eq!(asked.request("GET /", &[], "").await.status, 200);
    let mut sender = h2(&server).await;
    assert_eq!(ask(&mut sender, "GET", "/", "").await.0, 200);
    let mut clients = Vec::new();
    for round in 0..4 {
        let mut client = server.client().await;
        assert_eq!(client.request("GET /", &[], "").await.status, 200, "{round}");
        clients.push(client);
        match round {
            0 => assert!(silent.rest().await.is_empty()),
            1 => assert!(begun.rest().await.is_empty()),
            2 => assert!(asked.rest().await.is_empty()),
            _ => until("the connection is closed", || sender.is_closed()).await,
        }
    }
    for client in &mut clients {
        assert_eq!(client.request("GET /", &[], "").await.status, 200, "all of them have a slot");
    }
    server.stop().await;
}

#[tokio::test]
async fn frequent_requests_get_retry_after() {
    let server = Live::start(&["rate_limit/requests_per_second=1", "rate_limit/burst=3"]).await;
    let mut client = server.client().await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(client.request("GET /", &[], "").await);
    }
    assert_eq!(statuses.iter().map(|reply| reply.status).collect::<Vec<_>>(), [200, 200, 200, 429]);
    assert_eq!(statuses[3].header("retry-after"), Some("1"));
    assert!(statuses[3].body.starts_with(r#"{"error":"too_many_requests","#), "{}", statuses[3].body);
    server.stop().await;
}

/// A client that opens and immediately resets streams causes work; it is disconnected.
#[tokio::test]
async fn floods_of_resets_end_the_connection() {
    let server = Live::start(&[]).await;
    let mut client = server.client().await;
    client.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await;
    client.write(&[0, 0, 0, 4, 0, 0, 0, 0, 0]).await;
    let mut flood = Vec::new();
    for stream in (1..4001_u32).step_by(2) {
        // HEADERS of `GET /` without a host, then RST_STREAM.
        let id = stream.to_be_bytes();
        flood.extend_from_slice(&[0, 0, 3, 1, 5, id[0], id[1], id[2], id[3], 0x82, 0x84, 0x86]);
        flood.extend_from_slice(&[0, 0, 4, 3, 0, id[0], id[1], id[2], id[3], 0, 0, 0, 8]);
    }
    let _ = client.try_write(&flood).await;
    client.rest().await;
    assert_eq!(server.request("GET /", "").await.status, 200);
    server.stop().await;
}
