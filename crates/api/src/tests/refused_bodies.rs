//! Requests that are refused before their bodies are read.

use tokio::task::JoinSet;

use crate::tests::live::{Live, until};

/// The end of a head, and the start of one.
const CHUNKED: &str = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
const REFUSED: &str = "PUT /nothing/doc/attachment HTTP/1.1\r\nHost: x\r\n";

#[tokio::test]
async fn after_a_short_body_the_connection_goes_on() {
    let server = Live::start(&[]).await;
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    let body = "x".repeat(500_000);
    let mut client = server.client().await;
    for (line, status) in [
        ("PUT /nothing/doc", 404),
        ("PUT /nothing/doc/attachment", 404),
        ("PUT /db", 412),
        ("PUT /db/doc/attachment?rev=1-x", 409),
        ("POST /_session", 400),
        ("PATCH /db", 405),
    ] {
        let reply = client.request(line, &[], &body).await;
        assert_eq!(reply.status, status, "{line}: {}", reply.body);
        assert_eq!(reply.header("connection"), None, "{line}");
        let mut head = format!("{line} HTTP/1.1\r\nHost: x\r\n{CHUNKED}").into_bytes();
        for _ in 0..100 {
            head.extend_from_slice(format!("400\r\n{}\r\n", "x".repeat(1024)).as_bytes());
        }
        head.extend_from_slice(b"0\r\n\r\n");
        client.write(&head).await;
        let reply = client.reply(false).await.unwrap();
        assert_eq!((reply.status, reply.header("connection")), (status, None), "{line}");
    }
    assert_eq!(client.request("PUT /db/valid", &[], "{}").await.status, 201);
    server.stop().await;
}

#[tokio::test]
async fn after_a_long_body_the_connection_ends_in_order() {
    let server = Live::start(&[]).await;
    for framing in ["Content-Length: 20000000\r\n\r\n", "Transfer-Encoding: chunked\r\n\r\n1312D00\r\n"] {
        let mut client = server.client().await;
        client.write(format!("{REFUSED}{framing}").as_bytes()).await;
        // The whole body can be sent, although it is discarded.
        for _ in 0..20 {
            client.write(&vec![b'x'; 1_000_000]).await;
        }
        let reply = client.reply(false).await.unwrap();
        assert_eq!((reply.status, reply.header("connection")), (404, Some("close")), "{framing:?}");
        assert!(client.rest().await.is_empty(), "{framing:?}");
    }
    server.stop().await;
}

#[tokio::test]
async fn a_rejected_client_gets_no_100_continue() {
    let server = Live::start(&[]).await;
    let mut client = server.client().await;
    client.write(format!("{REFUSED}Content-Length: 10\r\nExpect: 100-continue\r\n\r\n").as_bytes()).await;
    let reply = client.reply(false).await.unwrap();
    assert_eq!((reply.status, reply.header("connection")), (404, Some("close")));
    assert!(client.rest().await.is_empty());
    server.stop().await;
}

/// No valid write may use a connection that the server closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_valid_write_fails_beside_refused_ones() {
    let server = Live::start(&[]).await;
    assert_eq!(server.request("PUT /db", "").await.status, 201);
    let mut clients = JoinSet::new();
    for number in 0..20 {
        let mut client = server.client().await;
        let address = server.address;
        clients.spawn(async move {
            for round in 0..30 {
                if round % 5 == number % 5 {
                    let body = "x".repeat(if round % 2 == 0 { 3_000_000 } else { 30_000 });
                    let length = body.len();
                    client.write(format!("{REFUSED}Content-Length: {length}\r\n\r\n").as_bytes()).await;
                    client.write(body.as_bytes()).await;
                    let reply = client.reply(false).await.unwrap();
                    assert_eq!(reply.status, 404);
                    if reply.header("connection") == Some("close") {
                        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
                        client = crate::tests::live::Client::new(stream);
                    }
                }
                let reply = client.request(&format!("PUT /db/{number}-{round}"), &[], "{}").await;
                assert_eq!(reply.status, 201, "{}", reply.body);
            }
        });
    }
    while let Some(done) = clients.join_next().await {
        done.unwrap();
    }
    until("nothing is kept", || server.node.budget.used() == 0).await;
    server.stop().await;
}
