//! Tests of limits: defaults and configured values.

use std::io::Write as _;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::server::{Directory, Server};
use crate::{Client, save};

fn set(client: &mut Client, section: &str, key: &str, value: &str) {
    client.put(&format!("/_node/_local/_config/{section}/{key}"), &format!("\"{value}\"")).expect(200);
}

#[test]
fn long_addresses() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let path = format!("/db/{}", "x".repeat(7996));
    save(&mut client, &path, "{}");
    client.get(&format!("{path}x")).expect_error(414, "too_long", "the request URI is too long");
    client.get(&format!("/db?{}", "x".repeat(60_000))).expect(414);
    set(&mut client, "chttpd", "max_uri_length", "100");
    client.get(&path).expect(414);
    client.get("/db").expect(200);
    // Beyond the read buffer of a connection the response has no body, and the connection is closed.
    let mut client = server.client();
    let _ = client.send("GET", &format!("/{}", "x".repeat(300_000)), &[], b"");
    assert!(matches!(client.reply("GET").map(|reply| reply.status), Ok(414 | 431) | Err(_)));
    server.client().get("/db").expect(200);
}

#[test]
fn many_and_long_headers() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let long = "x".repeat(30_000);
    server.client().request("GET", "/", &[("X-Long", &long)], b"").unwrap().expect(200);
    let many: Vec<(&str, &str)> = (0..90).map(|_| ("X-Many", "1")).collect();
    server.client().request("GET", "/", &many, b"").unwrap().expect(200);
    let huge = "x".repeat(400_000);
    let too_many: Vec<(&str, &str)> = (0..5000).map(|_| ("X-Many", "1")).collect();
    for headers in [&[("X-Huge", huge.as_str())][..], &too_many] {
        let mut client = server.client();
        let _ = client.send("GET", "/", headers, b"");
        assert!(matches!(client.reply("GET").map(|reply| reply.status), Ok(431) | Err(_)));
    }
    server.client().get("/").expect(200);
}

#[test]
fn large_bodies() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let document = |len: usize| format!("{{\"t\":\"{}\"}}", "x".repeat(len));
    client.put("/db/large", &document(7_999_900)).expect(201);
    client.put("/db/larger", &document(8_000_000)).expect_error(413, "document_too_large", "");
    let bulk = format!("{{\"docs\":[{{\"_id\":\"a\"}},{{\"_id\":\"b\",\"t\":\"{}\"}}]}}", "x".repeat(8_000_000));
    client.post("/db/_bulk_docs", &bulk).expect_error(413, "document_too_large", "b");
    client.get("/db/a").expect(404);
    set(&mut client, "couchdb", "max_document_size", "50");
    client.put("/db/small", &document(45)).expect(413);
    client.put("/db/small", &document(30)).expect(201);

    set(&mut client, "chttpd", "max_http_request_size", "1000");
    let too_large = |mut client: Client, headers: &[(&str, &str)], body: &[u8]| {
        let reply = client.request("PUT", "/db/body", headers, body).unwrap();
        reply.expect_error(413, "too_large", "the request entity is too large");
    };
    too_large(server.client(), &[], &[b' '; 1001]);
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&vec![b' '; 1 << 20]).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() > 1000, "the limit holds before decompression");
    too_large(server.client(), &[("Content-Encoding", "gzip")], &bomb);
    set(&mut client, "chttpd", "max_http_request_size", "5000");
    too_large(server.client(), &[("Content-Encoding", "gzip")], &bomb);
    let mut client = server.client();
    let head = client.head("PUT", "/db/body", &[("Content-Length", "99999999999")]);
    client.write(&[&head[..], b"\r\n"].concat()).unwrap();
    assert_eq!(client.reply_head().unwrap().status, 413);
}

#[test]
fn documents_in_one_request() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let docs = |count: usize| format!("{{\"docs\":[{}]}}", vec!["{\"id\":\"x\"}"; count].join(","));
    let new = |count: usize| format!("{{\"docs\":[{}]}}", vec!["{}"; count].join(","));
    let list = |item: &str| format!("[{}]", vec![item; 10_001].join(","));
    let named = |value: &str| {
        let members: Vec<String> = (0..10_001).map(|number| format!("\"d{number}\":{value}")).collect();
        format!("{{{}}}", members.join(","))
    };
    client.post("/db/_bulk_docs", &new(10_001)).expect(201);
    client.post("/db/_bulk_get", &docs(10_001)).expect(200);
    client.post("/db/_revs_diff", &named("[\"1-a\"]")).expect(200);
    client.post("/db/_missing_revs", &named("[\"1-a\"]")).expect(200);
    client.post("/db/_all_docs", &format!("{{\"keys\":{}}}", list("\"x\""))).expect(200);
    client.post("/db/_all_docs/queries", &format!("{{\"queries\":{}}}", list("{\"limit\":0}"))).expect(200);
    client.post("/db/_changes?filter=_doc_ids", &format!("{{\"doc_ids\":{}}}", list("\"x\""))).expect(200);
    for (name, path, body) in [("docs", "/db/_bulk_docs", new(3)), ("get", "/db/_bulk_get", docs(3))] {
        let name = format!("max_bulk_{name}_count");
        set(&mut client, "couchdb", &name, "2");
        client.post(path, &body).expect_error(413, &format!("{name}_exceeded"), "2");
    }
}

#[test]
fn identifiers() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    assert_eq!(
        client.get("/_uuids?count=1000").expect(200).json().value().get("uuids").unwrap().elements().count(),
        1000
    );
    client.get("/_uuids?count=1001").expect_error(400, "bad_request", "count parameter too large");
    client.get("/_uuids?count=18446744073709551615").expect(400);
    client.get("/_uuids?count=0").expect(200);
    client.get("/_uuids?count=-1").expect(400);
    client.put("/db", "").expect(201);
    let id = "i".repeat(8000);
    client.post("/db", &format!("{{\"_id\":\"{id}\"}}")).expect(201);
    client.post("/db", &format!("{{\"_id\":\"{id}i\"}}")).expect_error(400, "illegal_docid", "Document id is too long");
    set(&mut client, "couchdb", "max_document_id_length", "10");
    client.put("/db/12345678901", "{}").expect_error(400, "illegal_docid", "Document id is too long");
    client.put("/db/1234567890", "{}").expect(201);
    let name = |len: usize| format!("/{}", "n".repeat(len));
    client.put(&name(200), "").expect(201);
    client.put(&name(4000), "").expect(400);
}
