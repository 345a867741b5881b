//! Tests of HTTP/1.1: persistent connections, pipelined requests, bodies in all forms, and headers.

use std::io::Write as _;
use std::net::Shutdown;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::server::{Directory, Server};
use crate::{Client, load, rows, save};

const JSON: (&str, &str) = ("Content-Type", "application/json");

fn start(directory: &Directory) -> Server {
    let server = Server::start(directory);
    server.client().put("/db", "").expect(201);
    server
}

#[test]
fn a_connection_serves_many_requests() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    for n in 0..100 {
        save(&mut client, &format!("/db/d{n}"), "{}");
        client.get("/db/missing").expect_error(404, "not_found", "missing");
    }
    let close = client.request("GET", "/db", &[("Connection", "close")], b"").unwrap().expect(200);
    assert_eq!(close.header("connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn requests_that_are_sent_at_once_are_answered_in_order() {
    let directory = Directory::new();
    let server = start(&directory);
    load(&mut server.client(), "/db", 2000, 100);
    let mut client = server.client();
    let mut bytes = Vec::new();
    let mut expected = Vec::new();
    for n in 0..50 {
        let id = format!("request-{n}");
        let headers = [("X-Couch-Request-ID", id.as_str()), JSON];
        let (head, body, status) = match n % 5 {
            0 => (client.head("PUT", &format!("/db/p{n}"), &headers), "{\"n\":1}", 201),
            1 => (client.head("GET", &format!("/db/p{}", n - 1), &headers), "", 200),
            2 => (client.head("GET", "/db/_all_docs?include_docs=true", &headers), "", 200),
            3 => (client.head("POST", "/db/_bulk_docs", &headers), "{\"docs\":[{},{}]}", 201),
            _ => (client.head("GET", "/db/nothing", &headers), "", 404),
        };
        bytes.extend_from_slice(&head);
        if !body.is_empty() {
            bytes.extend_from_slice(format!("Content-Length: {}\r\n", body.len()).as_bytes());
        }
        bytes.extend_from_slice(format!("\r\n{body}").as_bytes());
        expected.push((id, status));
    }
    client.write(&bytes).unwrap();
    for (id, status) in expected {
        let reply = client.reply("GET").unwrap().expect(status);
        assert_eq!(reply.header("x-couch-request-id"), Some(id.as_str()));
    }
}

#[test]
fn a_client_that_waits_gets_100_continue() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(100_000));
    let length = body.len().to_string();
    let waiting = [("Expect", "100-continue"), ("Content-Length", length.as_str())];
    let head = client.head("PUT", "/db/doc", &waiting);
    client.write(&[&head[..], b"\r\n"].concat()).unwrap();
    assert_eq!(client.reply_head().unwrap().status, 100);
    client.write(body.as_bytes()).unwrap();
    client.reply("PUT").unwrap().expect(201);
    let head = client.head("PUT", "/missing/doc", &waiting);
    client.write(&[&head[..], b"\r\n"].concat()).unwrap();
    assert_eq!(client.reply_head().unwrap().status, 404);
}

#[test]
fn bodies_may_come_in_chunks() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let head = client.head("PUT", "/db/doc", &[("Transfer-Encoding", "chunked")]);
    client.write(&[&head[..], b"\r\n"].concat()).unwrap();
    for piece in ["{\"a\":", "[1,", "2]", "}"] {
        client.write(format!("{:x};ext=1\r\n{piece}\r\n", piece.len()).as_bytes()).unwrap();
    }
    client.write(b"0\r\nTrailer: x\r\n\r\n").unwrap();
    client.reply("PUT").unwrap().expect(201);
    assert!(client.get("/db/doc").expect(200).text().ends_with(",\"a\":[1,2]}\n"));
    let head = client.head("PUT", "/db/doc2", &[("Transfer-Encoding", "chunked")]);
    client.write(&[&head[..], b"\r\nzz\r\n"].concat()).unwrap();
    assert!(matches!(client.reply("PUT").map(|reply| reply.status), Ok(400) | Err(_)));
    server.client().get("/db/doc2").expect(404);
}

#[test]
fn bodies_may_be_compressed() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let docs: Vec<String> = (0..5000).map(|n| format!("{{\"_id\":\"z{n}\"}}")).collect();
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(format!("{{\"docs\":[{}]}}", docs.join(",")).as_bytes()).unwrap();
    let body = encoder.finish().unwrap();
    let headers = [JSON, ("Content-Encoding", "gzip")];
    client.request("POST", "/db/_bulk_docs", &headers, &body).unwrap().expect(201);
    assert_eq!(rows(&client.get("/db/_all_docs").json()).len(), 5000);
    client.request("POST", "/db/_bulk_docs", &headers, &body[..50]).unwrap().expect(400);
    client.request("POST", "/db/_bulk_docs", &headers, b"{\"docs\":[]}").unwrap().expect(400);
    client.request("PUT", "/db/x", &[("Content-Encoding", "br")], b"{}").unwrap().expect(415);
}

#[test]
fn head_is_get_without_the_body() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    load(&mut client, "/db", 3000, 100);
    let rev = save(&mut client, "/db/doc", "{}");
    for path in ["/", "/db", "/db/doc", "/db/_all_docs?include_docs=true", "/db/_changes", "/db/none", "/_uuids"] {
        let get = client.get(path);
        let head = client.request("HEAD", path, &[], b"").unwrap().expect(get.status);
        assert!(head.body.is_empty());
        let tag = if path == "/_uuids" { "x-none" } else { "etag" };
        for name in ["content-type", tag, "content-length", "server", "cache-control"] {
            assert_eq!(head.header(name), get.header(name), "{name} of {path}");
        }
    }
    let head = client.request("HEAD", "/db/doc", &[], b"").unwrap();
    assert_eq!(head.header("etag"), Some(format!("\"{rev}\"").as_str()));
    let known = client.request("GET", "/db/doc", &[("If-None-Match", &format!("\"{rev}\""))], b"").unwrap();
    assert_eq!((known.status, known.body.len()), (304, 0));
    client.get("/db/doc").expect(200);
}

#[test]
fn every_answer_has_an_id() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let mut id = |given: Option<&str>| {
        let headers: Vec<_> = given.map(|id| ("X-Couch-Request-ID", id)).into_iter().collect();
        let reply = client.request("GET", "/db/none", &headers, b"").unwrap();
        reply.header("x-couch-request-id").unwrap().to_owned()
    };
    let (first, second) = (id(None), id(None));
    for id in [&first, &second] {
        assert!(id.len() == 10 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{id}");
    }
    assert_ne!(first, second);
    assert_eq!(id(Some("my_own-ID7")), "my_own-ID7");
    let long = "x".repeat(37);
    for odd in ["a b", "<script>", "ä", long.as_str(), ""] {
        let id = id(Some(odd));
        assert!(id.len() == 10 && id.bytes().all(|byte| byte.is_ascii_hexdigit()), "{odd:?} became {id:?}");
    }
}

#[test]
fn slow_clients_delay_no_other() {
    let directory = Directory::new();
    let server = start(&directory);
    let begun = |bytes: &[u8]| {
        let mut client = server.client();
        client.write(bytes).unwrap();
        client
    };
    let mut slow: Vec<Client> = Vec::new();
    for _ in 0..50 {
        slow.push(begun(b""));
        slow.push(begun(b"GET /db HTTP/1.1\r\nHos"));
        slow.push(begun(b"PUT /db/slow HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{\"a\""));
        slow.push(begun(b"PUT /db/slow HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"a"));
    }
    let mut client = server.client();
    for n in 0..50 {
        save(&mut client, &format!("/db/d{n}"), "{}");
        client.get("/db/_all_docs?limit=10").expect(200);
    }
    slow[1].write(b"t: x\r\n\r\n").unwrap();
    slow[1].reply("GET").unwrap().expect(200);
    slow[2].write(format!(":\"{}\"}}", "x".repeat(92)).as_bytes()).unwrap();
    slow[2].reply("PUT").unwrap().expect(201);
}

#[test]
fn a_disconnected_client_affects_no_other() {
    let directory = Directory::new();
    let server = start(&directory);
    load(&mut server.client(), "/db", 20_000, 200);
    for _ in 0..20 {
        let mut client = server.client();
        client.send("GET", "/db/_all_docs?include_docs=true", &[], b"").unwrap();
        client.reply_head().unwrap().expect(200);
        client.chunk().unwrap();
    }
    let mut client = server.client();
    client.send("PUT", "/db/left", &[("Content-Length", "100")], b"").unwrap();
    drop(client);
    let mut client = server.client();
    client.get("/db/left").expect(404);
    assert_eq!(rows(&client.get("/db/_all_docs").json()).len(), 20_000);
}

#[test]
fn legacy_forms_of_requests_are_accepted() {
    let directory = Directory::new();
    let server = start(&directory);
    load(&mut server.client(), "/db", 3000, 0);
    let mut client = server.client();
    client.write(b"GET /db/_all_docs HTTP/1.0\r\n\r\n").unwrap();
    let reply = client.reply("GET").unwrap().expect(200);
    assert_eq!(reply.header("transfer-encoding"), None);
    assert_eq!(rows(&reply.json()).len(), 3000);
    let mut client = server.client();
    client.write(b"GET http://elsewhere.test/db?x=1 HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n").unwrap();
    client.reply("GET").unwrap().expect(200);
    client.write(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    client.reply("OPTIONS").unwrap().expect(404);
    client
        .write(b"POST /db/over HTTP/1.1\r\nHost: x\r\nX-HTTP-Method-Override: PUT\r\nContent-Length: 2\r\n\r\n{}")
        .unwrap();
    client.reply("POST").unwrap().expect(201);
    client.write(b"\r\nGET /db/over HTTP/1.1\nHost: x\n\n").unwrap();
    client.reply("GET").unwrap().expect(200);
}

#[test]
fn invalid_http_ends_only_its_connection() {
    let directory = Directory::new();
    let server = start(&directory);
    let tls = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03";
    for bytes in
        [&tls[..], b"\0\0\0\0\r\n\r\n", b"GET\r\n\r\n", b"GET /db HTTP/9.9\r\n\r\n", b"GET /d b HTTP/1.1\r\n\r\n"]
    {
        let stream = std::net::TcpStream::connect(server.address).unwrap();
        (&stream).write_all(bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let mut answer = Vec::new();
        let _ = std::io::Read::read_to_end(&mut &stream, &mut answer);
        let text = String::from_utf8_lossy(&answer);
        assert!(answer.is_empty() || text.starts_with("HTTP/1.1 400"), "{bytes:?}: {text}");
    }
    server.client().get("/db").expect(200);
}
