//! Messages with several writes between nodes: batching, independent answers, and malformed messages.

use std::sync::atomic::{AtomicU64, Ordering};

use settee_auth::{NodeRequest, NodeToken};
use settee_storage::Engine as _;
use settee_wire::frames::{Frame, Reader, write_head};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use super::live::{Client, Reply, TIMEOUT, until};
use super::steering::{AUTHORIZED, Pair};
use crate::handover::TARGET;

/// The start, headers and body of each request of a message.
type Requests = Vec<([String; 3], Vec<(String, String)>, String)>;

/// A node that reports the requests forwarded to it, and answers as the test determines.
struct StandIn {
    messages: mpsc::UnboundedReceiver<(Requests, mpsc::UnboundedSender<Vec<u8>>)>,
    serving: JoinHandle<()>,
}

impl StandIn {
    async fn of(pair: &Pair) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        pair.move_writer(listener.local_addr().unwrap());
        let (response, messages) = mpsc::unbounded_channel();
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, response.clone()));
            }
        });
        Self { messages, serving }
    }

    /// Returns the next message, and a sender for pieces of its response.
    async fn next(&mut self) -> (Requests, mpsc::UnboundedSender<Vec<u8>>) {
        tokio::time::timeout(TIMEOUT, self.messages.recv()).await.unwrap().unwrap()
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    response: mpsc::UnboundedSender<(Requests, mpsc::UnboundedSender<Vec<u8>>)>,
) -> Option<()> {
    loop {
        let mut read = Vec::new();
        let head = loop {
            if stream.read_buf(&mut read).await.ok()? == 0 {
                return None;
            }
            if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
                break String::from_utf8(read.drain(..end + 4).collect()).unwrap().to_lowercase();
            }
        };
        if !head.starts_with(&format!("post {TARGET} ")) {
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await.ok()?;
            continue;
        }
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap().parse().unwrap();
        while read.len() < length {
            stream.read_buf(&mut read).await.ok()?;
        }
        let (answers, mut answered) = mpsc::unbounded_channel();
        response.send((requests(&read), answers)).ok()?;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\nx-settee-writes: taken\r\ntransfer-encoding: chunked\r\n\r\n")
            .await
            .ok()?;
        loop {
            let piece = tokio::select! {
                piece = answered.recv() => piece,
                // The client sends nothing before the response, so readability means that it has disconnected.
                _ = stream.readable() => return None,
            };
            let Some(piece) = piece else { break };
            stream.write_all(format!("{:x}\r\n", piece.len()).as_bytes()).await.ok()?;
            stream.write_all(&piece).await.ok()?;
            stream.write_all(b"\r\n").await.ok()?;
        }
        stream.write_all(b"0\r\n\r\n").await.ok()?;
    }
}

fn requests(message: &[u8]) -> Requests {
    let mut reader = Reader::new(1 << 20);
    reader.feed(message);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let frames = std::iter::from_fn(|| reader.frame().unwrap());
    let all = frames.map(|Frame { start, headers, body }| {
        let headers = headers.iter().map(|(name, value)| (text(name), text(value))).collect();
        (start.map(|part| text(&part)), headers, text(&body))
    });
    all.collect()
}

fn answer(place: usize, status: &str) -> Vec<u8> {
    let (mut out, place) = (Vec::new(), place.to_string());
    write_head(&mut out, [place.as_bytes(), status.as_bytes(), b"somebody"], [(&b"x-a"[..], &b"1"[..])], 2).unwrap();
    out.extend_from_slice(b"{}");
    out
}

/// Starts a write of a separate client.
fn write(pair: &Pair, document: &str) -> JoinHandle<Reply> {
    let (address, line) = (pair.other.address, format!("PUT /db/{document}"));
    tokio::spawn(async move {
        Client::new(TcpStream::connect(address).await.unwrap()).request(&line, &[AUTHORIZED], "{}").await
    })
}

#[tokio::test]
async fn a_request_is_sent_as_it_came_but_for_its_connection() {
    let pair = Pair::new().await;
    let mut writer = StandIn::of(&pair).await;
    let address = pair.other.address;
    let asked = tokio::spawn(async move {
        let headers = [AUTHORIZED, ("X-A", "1"), ("Connection", "keep-alive, X-B"), ("X-B", "2"), ("TE", "trailers")];
        let id = ("X-Couch-Request-ID", "named");
        let mut client = Client::new(TcpStream::connect(address).await.unwrap());
        client.request("PUT /db/a%2Fb?new_edits=true", &[&headers[..], &[id]].concat(), "{\"a\":1}").await
    });
    let (requests, answers) = writer.next().await;
    let [(start, headers, body)] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(start, &["PUT", "/db/a%2Fb?new_edits=true", "http 127.0.0.1"]);
    assert_eq!(body, "{\"a\":1}");
    let values = |name: &str| {
        let found = headers.iter().filter(|(own, _)| own == name).map(|(_, value)| value.as_str());
        found.collect::<Vec<_>>()
    };
    assert_eq!(values("x-couch-request-id"), ["named"]);
    assert_eq!([values("x-a"), values("authorization")], [["1"], [AUTHORIZED.1]]);
    for name in ["connection", "x-b", "te"] {
        assert!(values(name).is_empty(), "{name}: {headers:?}");
    }
    answers.send(answer(0, "418")).unwrap();
    let reply = asked.await.unwrap();
    assert_eq!((reply.status, reply.header("x-a"), reply.body.as_str()), (418, Some("1"), "{}"));
}

/// Two messages are in flight. Requests that arrive concurrently share one message, which is sent after the
/// first answer, even if other answers of that message are late.
#[tokio::test]
async fn requests_during_messages_in_flight_are_batched() {
    let pair = Pair::new().await;
    let mut writer = StandIn::of(&pair).await;
    let slow = write(&pair, "slow");
    let (requests, of_slow) = writer.next().await;
    assert_eq!(requests.len(), 1);
    let first: Vec<_> = (0..8).map(|number| write(&pair, &format!("first{number}"))).collect();
    let mut open = Vec::new();
    let mut count = 0;
    while count < first.len() {
        let (requests, answers) = writer.next().await;
        count += requests.len();
        open.push((requests.len(), answers));
    }
    assert_eq!(count, first.len());
    // Answers arrive in any order and independently.
    for (requests, answers) in open {
        for place in (0..requests).rev() {
            answers.send(answer(place, "201")).unwrap();
        }
    }
    for written in first {
        assert_eq!(written.await.unwrap().status, 201);
    }
    assert!(!slow.is_finished());
    of_slow.send(answer(0, "202")).unwrap();
    assert_eq!(slow.await.unwrap().status, 202);
    assert_eq!(pair.handed_over(), 9);
}

/// A write without a valid answer is in doubt.
#[tokio::test]
async fn half_an_answer_leaves_the_rest_in_doubt() {
    let pair = Pair::new().await;
    let mut writer = StandIn::of(&pair).await;
    let nothing: fn() -> Vec<u8> = Vec::new;
    let broken: [fn() -> Vec<u8>; 5] = [
        nothing,
        || answer(0, "201")[..20].to_vec(),
        || answer(7, "201"),
        || answer(0, "no status"),
        || b"\0\0\0\0 is no frame".to_vec(),
    ];
    for (number, broken) in broken.into_iter().enumerate() {
        let (address, posted) = (pair.other.address, format!("{{\"_id\":\"b{number}\"}}"));
        let asked = tokio::spawn(async move {
            let headers = [AUTHORIZED, ("Content-Type", "application/json")];
            Client::new(TcpStream::connect(address).await.unwrap()).request("POST /db", &headers, &posted).await
        });
        let (requests, answers) = writer.next().await;
        assert_eq!(requests.len(), 1, "{number}");
        let bytes = broken();
        if !bytes.is_empty() {
            answers.send(bytes).unwrap();
        }
        drop(answers);
        let reply = asked.await.unwrap();
        assert_eq!((reply.status, reply.header("retry-after")), (503, Some("1")), "{number}: {reply:?}");
        // After a write in doubt the node sends a health probe first.
        let (nodes, id) = (&pair.other.node.nodes, pair.store_of_writer.members().this());
        until("it answers a health probe", || nodes.health_probes.is_there(id)).await;
    }
}

/// Requests of disconnected clients are abandoned, and so is a message that contains only these.
#[tokio::test]
async fn a_message_without_waiters_is_aborted() {
    let pair = Pair::new().await;
    let mut writer = StandIn::of(&pair).await;
    let abandoned = write(&pair, "abandoned");
    let (_, answers) = writer.next().await;
    abandoned.abort();
    tokio::time::timeout(TIMEOUT, answers.closed()).await.unwrap();
}

#[tokio::test]
async fn only_nodes_may_send_messages() {
    let pair = Pair::new().await;
    let ask = async |headers: &[(&str, &str)], body: &str| {
        pair.writer.client().await.request(&format!("POST {TARGET}"), headers, body).await
    };
    let frame = |start: [&str; 3]| {
        let mut out = Vec::new();
        let authorization = [(&b"authorization"[..], AUTHORIZED.1.as_bytes())];
        write_head(&mut out, start.map(str::as_bytes), authorization, 2).unwrap();
        out.extend_from_slice(b"{}");
        String::from_utf8(out).unwrap()
    };
    let good = frame(["PUT", "/db/of-message", "http 192.0.2.1"]);
    let numbers = AtomicU64::new(0);
    let token_of = |method: &str, target: &str, headers: &[u8], body: &str| {
        let receiver = &pair.writer.node.identity.node;
        let request = NodeRequest { receiver, method, target, headers };
        let number = numbers.fetch_add(1, Ordering::Relaxed) + 1;
        NodeToken::sign(b"of the cluster", &request, body.as_bytes(), (u64::MAX, number), 0)
    };
    // The test client adds this header to each body.
    let json = b"content-type: application/json\n";
    let token = |method: &str, target: &str| token_of(method, target, json, &good);
    let right = |body: &str| token_of("POST", TARGET, json, body);
    // Without the secret the response is that to any client.
    let unknown = ask(&[AUTHORIZED], &good).await;
    assert_eq!((unknown.status, unknown.header("x-settee-writes")), (404, None), "{unknown:?}");
    let recorded = frame(["PUT", "/db/recorded", "http 192.0.2.1"]);
    let used = right(&recorded);
    assert_eq!(ask(&[("X-Settee-Node", &used)], &recorded).await.status, 200);
    // A recorded message is not accepted again.
    assert_eq!(ask(&[("X-Settee-Node", &used), AUTHORIZED], &recorded).await.status, 401);
    for wrong in [
        token("GET", TARGET),
        token("POST", "/db"),
        token_of("POST", TARGET, b"", &good),
        right(&good.replace("of-message", "of-massage")),
        right(""),
        "0:".to_owned(),
        String::new(),
    ] {
        let reply = ask(&[("X-Settee-Node", &wrong), AUTHORIZED], &good).await;
        assert_eq!((reply.status, reply.header("x-settee-writes")), (401, None), "{wrong}: {reply:?}");
    }
    for broken in [
        good[..good.len() - 1].to_owned(),
        good.repeat(65),
        frame(["PUT", "/db/a", "192.0.2.1"]),
        frame(["PUT", "/db/a", "http nowhere"]),
        frame(["P T", "/db/a", "http 192.0.2.1"]),
        frame(["PUT", "not a target", "http 192.0.2.1"]),
    ] {
        let reply = ask(&[("X-Settee-Node", &right(&broken))], &broken).await;
        assert_eq!((reply.status, reply.header("x-settee-writes")), (400, None), "{broken:?}: {reply:?}");
    }
    let large = "x".repeat(600 << 10);
    let large = ask(&[("X-Settee-Node", &right(&large))], &large).await;
    assert_eq!(large.status, 413);
    // The message has no rights of an administrator: each request contains its own credentials.
    let unauthenticated = good.replace(AUTHORIZED.1, "Basic YWRtaW46eHg=");
    let message = format!("{good}{unauthenticated}");
    let length = message.len();
    let mut stream = TcpStream::connect(pair.writer.address).await.unwrap();
    let right = token_of("POST", TARGET, b"", &message);
    let head = format!("POST {TARGET} HTTP/1.1\r\nHost: a\r\nX-Settee-Node: {right}\r\n");
    let rest = format!("Connection: close\r\nContent-Length: {length}\r\n\r\n{message}");
    stream.write_all(format!("{head}{rest}").as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    stream.read_to_end(&mut reply).await.unwrap();
    let end = reply.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
    let head = String::from_utf8(reply.drain(..end).collect()).unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("\r\nX-Settee-Writes: taken\r\n"), "{head}");
    let mut answers = Reader::new(1 << 20);
    let mut pieces = &reply[..];
    while let Some(end) = pieces.windows(2).position(|two| two == b"\r\n") {
        let length = usize::from_str_radix(std::str::from_utf8(&pieces[..end]).unwrap(), 16).unwrap();
        answers.feed(&pieces[end + 2..][..length]);
        pieces = &pieces[end + 2 + length + 2..];
    }
    let mut found: Vec<[String; 3]> = std::iter::from_fn(|| answers.frame().unwrap())
        .map(|frame| frame.start.map(|part| String::from_utf8(part.to_vec()).unwrap()))
        .collect();
    found.sort();
    assert_eq!(found, [["0", "201", "admin"], ["1", "401", ""]]);
}

/// The node that received the request counts and logs it, and the answer contains the user.
#[tokio::test]
async fn a_write_counts_where_it_came_to() {
    let pair = Pair::new().await;
    let requests = || [&pair.other, &pair.writer].map(|server| server.node.metrics.totals().requests());
    let before = requests();
    for number in 0..5 {
        assert_eq!(pair.ask(&format!("PUT /db/counted{number}"), &[AUTHORIZED], "{}").await.status, 201);
    }
    let after = requests();
    assert_eq!([after[0] - before[0], after[1] - before[1], pair.handed_over()], [5, 0, 5]);
}
