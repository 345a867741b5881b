//! Tests of hostile requests: every response is a client error or harmless, and the server continues.

use crate::server::{Directory, Server};
use crate::{Client, Reply, design, load, rows, save, text};

fn start(directory: &Directory) -> Server {
    let server = Server::start(directory);
    server.client().put("/db", "").expect(201);
    server
}

fn put(server: &Server, path: &str, body: &[u8]) -> Reply {
    server.client().request("PUT", path, &[], body).unwrap()
}

#[test]
fn bodies_that_are_not_json() {
    let directory = Directory::new();
    let server = start(&directory);
    let invalid: [&[u8]; 22] = [
        b"",
        b" ",
        b"{",
        b"}",
        b"{\"a\"}",
        b"{\"a\":}",
        b"{\"a\":1,}",
        b"{a:1}",
        b"{'a':1}",
        b"{\"a\":1}{}",
        b"{\"a\":01}",
        b"{\"a\":+1}",
        b"{\"a\":.5}",
        b"{\"a\":NaN}",
        b"{\"a\":\"\n\"}",
        b"{\"a\":\"\xff\"}",
        b"{\"a\":\"\xed\xa0\x80\"}",
        b"\xef\xbb\xbf{}",
        b"{\"a\":\"\\x\"}",
        b"\0",
        b"{\"a\":1\0}",
        b"{\"a\":1e999999}",
    ];
    for body in invalid {
        let reason = if body.is_empty() { "Missing request body" } else { "invalid UTF-8 JSON" };
        put(&server, "/db/doc", body).expect_error(400, "bad_request", reason);
        let json = [("Content-Type", "application/json")];
        for path in ["/db", "/db/_bulk_docs", "/db/_all_docs", "/db/_bulk_get", "/db/_revs_diff", "/db/_temp_view"] {
            let reply = server.client().request("POST", path, &json, body).unwrap();
            reply.expect_error(400, "bad_request", reason);
        }
    }
    for body in ["[]", "1", "\"x\"", "null", "true"] {
        put(&server, "/db/doc", body.as_bytes()).expect_error(400, "bad_request", "Document must be a JSON object");
        for path in ["/db/_bulk_docs", "/db/_bulk_get", "/db/_revs_diff", "/db/_temp_view", "/db/_all_docs/queries"] {
            assert_eq!(server.client().post(path, body).status, 400, "{path} {body}");
        }
    }
    server.client().get("/db/doc").expect(404);
}

#[test]
fn nesting_and_numbers() {
    let directory = Directory::new();
    let server = start(&directory);
    let nested = |depth: usize| format!("{{\"a\":{}{}}}", "[".repeat(depth), "]".repeat(depth));
    let objects = |depth: usize| format!("{}1{}", "{\"a\":".repeat(depth), "}".repeat(depth));
    put(&server, "/db/nested", nested(900).as_bytes()).expect(201);
    put(&server, "/db/objects", objects(900).as_bytes()).expect(201);
    for body in [nested(1001), objects(1001), nested(1_000_000), "[".repeat(5_000_000), "{\"a\":".repeat(1_000_000)] {
        put(&server, "/db/deep", body.as_bytes()).expect_error(400, "bad_request", "invalid UTF-8 JSON");
    }
    let number = |text: &str| put(&server, "/db/number", format!("{{\"_id\":\"number\",\"n\":{text}}}").as_bytes());
    let digits = "7".repeat(50_000);
    let mut rev = String::new();
    for text in ["18446744073709551616", "-9223372036854775809", "1e308", "-0", "-0.0", "1e-400", "0.1e1", &digits] {
        let body =
            format!("{{\"n\":{text}{}}}", if rev.is_empty() { String::new() } else { format!(",\"_rev\":\"{rev}\"") });
        rev = save(&mut server.client(), "/db/number", &body);
        let doc = server.client().get("/db/number").expect(200).text();
        assert!(doc.ends_with(&format!(",\"n\":{text}}}\n")), "{}", &text[..text.len().min(50)]);
    }
    number(&"7".repeat(100_001)).expect(400);
    number("1e309").expect(400);
    save(&mut server.client(), "/db/_design/d", &design("function (doc) { emit(doc._id, doc); }", None));
    let view = server.client().get("/db/_design/d/_view/v").expect(200).json();
    assert!(rows(&view).iter().any(|row| text(*row, "id") == "number"));
}

#[test]
fn duplicate_and_special_members() {
    let directory = Directory::new();
    let server = start(&directory);
    let check = |body: &str, status: u16| {
        let reply = put(&server, "/db/members", body.as_bytes());
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
    };
    check(r#"{"a":1,"a":2}"#, 201);
    let doc = server.client().get("/db/members").expect(200).text();
    let first = doc.clone();
    assert_eq!(server.client().get("/db/members").text(), first);
    check(r#"{"_id":"members","_id":"other"}"#, 409);
    for body in [
        r#"{"_x":1}"#,
        r#"{"_":1}"#,
        r#"{"_rev":1}"#,
        r#"{"_rev":"1"}"#,
        r#"{"_rev":"-1-a"}"#,
        r#"{"_rev":"99999999999999999999999999-a"}"#,
        r#"{"_rev":null}"#,
        r#"{"_deleted":1}"#,
        r#"{"_deleted":"true"}"#,
        r#"{"_revisions":1}"#,
        r#"{"_revisions":{"start":-1,"ids":["a"]}}"#,
        r#"{"_revisions":{"start":1e3,"ids":["a"]}}"#,
        r#"{"_revisions":{"start":1,"ids":["a","b","c"]}}"#,
        r#"{"_revisions":{"start":1,"ids":[1]}}"#,
        r#"{"_attachments":1}"#,
    ] {
        let reply = put(&server, "/db/special?new_edits=false", body.as_bytes());
        assert!((400..500).contains(&reply.status), "{body}: {} {}", reply.status, reply.text());
        let bulk = server.client().post("/db/_bulk_docs", &format!(r#"{{"new_edits":false,"docs":[{body}]}}"#));
        assert!((400..500).contains(&bulk.status) || bulk.status == 201, "{body}: {}", bulk.text());
    }
    assert_eq!(server.client().get("/db/members").text(), first);
}

#[test]
fn names_and_ids() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let long = format!("/{}", "d".repeat(5000));
    for path in
        ["/%00", "/a%00b", "/A", "/9a", "/_x", "/a%20b", "/..", "/%2e%2e%2fetc", "/a%5cb", "/%C3%A9", "/a%0ab", &long]
    {
        let created = client.put(path, "");
        assert_eq!(created.status, 400, "{path}: {}", created.text());
        let expected = if path.len() > 300 { "database_name_too_long" } else { "illegal_database_name" };
        assert_eq!(text(created.json().value(), "error"), expected, "{path}");
        assert!((400..500).contains(&client.get(path).status), "{path}");
        assert!((400..500).contains(&client.delete(path).status), "{path}");
    }
    client.put("/%ff", "").expect(400);
    client.put("/db/%ff", "{}").expect_error(400, "illegal_docid", "Document id must be valid UTF-8");
    client.get("/db/_all_docs?startkey=%22%ff%22").expect(400);
    for path in ["/db/%", "/db/%zz", "/%zz"] {
        client.put(path, "{}").expect_error(400, "bad_request", "invalid_url_encoding");
    }
    let odd = [
        "%00",
        "a%00b",
        "a%00",
        "%25x",
        "%25",
        "%25zz",
        "%2e%2e",
        "a%2Fb",
        "%20",
        "%0d%0a",
        "%22",
        "%F0%9F%98%80",
        "%EF%BF%BF",
    ];
    for id in odd {
        let saved = client.put(&format!("/db/{id}"), &format!("{{\"path\":\"{id}\"}}")).expect(201).json();
        let read = client.get(&format!("/db/{id}")).expect(200).json();
        assert_eq!(text(read.value(), "_id"), text(saved.value(), "id"), "{id}");
        assert_eq!(text(read.value(), "path"), id);
    }
    let all = client.get("/db/_all_docs").expect(200).json();
    assert_eq!(rows(&all).len(), odd.len());
    save(&mut client, "/db/_design/d", &design("function (doc) { emit(doc._id, 1); }", Some("_count")));
    let view = client.get("/db/_design/d/_view/v?reduce=false").expect(200).json();
    assert_eq!(rows(&view).len(), odd.len());
    for row in rows(&view) {
        assert_eq!(text(row, "id"), text(row, "key"));
    }
    for path in ["/db/_x", "/db/_design", "/db/_design/", "/db/_local", "/db/_local/"] {
        let status = client.put(path, "{}").status;
        assert!((400..500).contains(&status), "{path}: {status}");
    }
}

#[test]
fn parameters_beyond_reason() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    load(&mut client, "/db", 100, 0);
    save(&mut client, "/db/_design/d", &design("function (doc) { emit(doc.n, 1); }", Some("_sum")));
    let lists = ["/db/_all_docs", "/db/_design_docs", "/db/_local_docs", "/db/_design/d/_view/v"];
    let max = u64::MAX;
    for list in lists {
        let mut status = |query: &str| client.get(&format!("{list}?{query}")).status;
        for name in ["limit", "skip", "group_level"] {
            for value in ["-1", "-9223372036854775808", "1e5", "0x10", "", "%00", "null", "1%2C2"] {
                assert_eq!(status(&format!("{name}={value}")), 400, "{list} {name}={value}");
            }
        }
        let grouped = if list.ends_with('v') { "&group=true" } else { "" };
        for query in [
            format!("limit={max}&skip={max}"),
            format!("skip={max}"),
            format!("limit=0&skip={max}&descending=true"),
            "limit=0".to_owned(),
            "startkey=%22z%22&endkey=%22zz%22".to_owned(),
            "keys=%5B%5D".to_owned(),
        ] {
            let expected = if query.starts_with("limit=1") { 400 } else { 200 };
            assert_eq!(status(&format!("{query}{grouped}")), expected, "{list} {query}");
        }
        for query in ["startkey=%22", "key=%7B", "keys=%22a%22", "descending=1", "startkey=%ff", "keys=%5B%ff%5D"] {
            assert_eq!(status(query), 400, "{list} {query}");
        }
    }
    for query in ["since=-1", "since=x", "since=18446744073709551615", "heartbeat=-1", "heartbeat=0", "seq_interval=x"]
    {
        let reply = client.get(&format!("/db/_changes?{query}"));
        assert_eq!(reply.status, 400, "{query}: {}", reply.text());
    }
    for query in [format!("limit={max}"), format!("seq_interval={max}"), "descending=true".to_owned()] {
        client.get(&format!("/db/_changes?{query}")).expect(200);
    }
    client.get(&format!("/db/_changes?feed=continuous&limit=1&heartbeat={max}")).expect(200);
    client.get(&format!("/db/_changes?feed=longpoll&timeout={max}")).expect(200);
    for path in ["/db?q=0", "/new?q=-1", "/new?n=x", "/new?partitioned=maybe", "/new?q=99999999999"] {
        assert!((400..500).contains(&client.put(path, "").status), "{path}");
    }
    for body in ["0", "-1", "1.5", "\"x\"", "[]", "18446744073709551616", "null"] {
        client.put("/db/_revs_limit", body).expect(400);
    }
}

#[test]
fn a_hundred_thousand_keys() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    load(&mut client, "/db", 1000, 0);
    save(&mut client, "/db/_design/d", &design("function (doc) { emit(doc._id, 1); }", Some("_sum")));
    let keys: Vec<String> = (0..100_000).map(|n| format!("\"d{:06}\"", n % 2000)).collect();
    let body = format!("{{\"keys\":[{}]}}", keys.join(","));
    let all = client.post("/db/_all_docs?include_docs=true", &body).expect(200).json();
    assert_eq!(rows(&all).len(), 100_000);
    let view = client.post("/db/_design/d/_view/v?reduce=false", &body).expect(200).json();
    assert_eq!(rows(&view).len(), 50_000);
    let grouped = client.post("/db/_design/d/_view/v?group=true", &body).expect(200).json();
    assert_eq!(rows(&grouped).len(), 50_000);
    let members: Vec<String> = (0..100_000).map(|n| format!("\"m{n}\":{n}")).collect();
    client.put("/db/members", &format!("{{{}}}", members.join(","))).expect(201);
    let revs: Vec<String> = (0..100_000).map(|n| format!("\"r{n}\":[\"1-{n:032x}\"]")).collect();
    client.post("/db/_revs_diff", &format!("{{{}}}", revs.join(","))).expect(200);
    let open: Vec<String> = (0..150).map(|n| format!("%221-{n:032x}%22")).collect();
    client.get(&format!("/db/members?open_revs=%5B{}%5D", open.join(","))).expect(200);
    let history: Vec<String> = (0..100_000).map(|n| format!("\"{n:032x}\"")).collect();
    let revisions = format!("{{\"_revisions\":{{\"start\":100000,\"ids\":[{}]}}}}", history.join(","));
    client.put("/db/old?new_edits=false", &revisions).expect(201);
    let read = client.get("/db/old?revs=true").expect(200).json();
    assert!(read.value().get("_revisions").unwrap().get("ids").unwrap().elements().count() <= 1000);
}

#[test]
fn headers_cannot_be_injected() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    let check = |reply: &Reply| {
        assert_eq!(reply.header("set-cookie"), None, "{reply:?}");
        assert!(reply.headers.iter().all(|(name, _)| name != "evil"), "{reply:?}");
    };
    let saved = client.put("/db/x%0d%0aSet-Cookie:%20a=1%0d%0a%0d%0abody", "{}").expect(201);
    check(&saved);
    assert_eq!(saved.header("location").unwrap(), "http://settee.test/db/x%0D%0ASet-Cookie:%20a%3D1%0D%0A%0D%0Abody");
    check(&client.get("/db%0d%0aEvil:1"));
    check(&client.get("/db/none?x=%0d%0aEvil:%201"));
    for headers in [
        ("Host", "a\tb"),
        ("Destination", "x%0d%0aEvil:1"),
        ("If-Match", "\"%0d%0a\""),
        ("X-Couch-Request-ID", "a%0d%0aEvil"),
        ("X-HTTP-Method-Override", "COPY\tx"),
        ("Authorization", "Basic \u{e9}"),
        ("Authorization", "Bearer x"),
        ("If-None-Match", "\u{1}"),
    ] {
        for method in ["GET", "COPY", "POST"] {
            let mut client = server.client();
            if let Ok(reply) = client.request(method, "/db/doc", &[headers], b"{}") {
                check(&reply);
                assert!(reply.status < 500, "{method} {headers:?}: {}", reply.text());
            }
        }
    }
    for smuggled in
        ["Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}", "Content-Length: x\r\n\r\n", "Content-Length: -1\r\n\r\n"]
    {
        let mut client = server.client();
        client.write(format!("PUT /db/smuggled HTTP/1.1\r\nHost: x\r\n{smuggled}").as_bytes()).unwrap();
        let status = client.reply("PUT").map(|reply| reply.status);
        assert!(matches!(status, Ok(400) | Err(_)), "{smuggled:?}: {status:?}");
    }
    server.client().get("/db/smuggled").expect(404);
}

#[test]
fn the_configuration_file_cannot_be_forged() {
    let directory = Directory::new();
    let server = start(&directory);
    let config = "/_node/_local/_config";
    let attempt = |client: &mut Client, path: &str, value: &str| {
        let status = client.put(&format!("{config}/{path}"), value).status;
        assert!(status < 500, "{path} {value}");
    };
    let mut client = server.client();
    attempt(&mut client, "mine/key", r#""a\n[admins]\nmallory = pw""#);
    attempt(&mut client, "mine/key2", r#""a\r[admins]\rmallory = pw""#);
    attempt(&mut client, "mine/a%0a%5Badmins%5D%0amallory", "\"pw\"");
    attempt(&mut client, "mine%5D%0a%5Badmins/mallory", "\"pw\"");
    attempt(&mut client, "admins%0a/mallory", "\"pw\"");
    attempt(&mut client, "mine/%5Badmins%5D", "\"pw\"");
    attempt(&mut client, "mine/a=b%0amallory", "\"pw\"");
    for value in ["1", "null", "{}", "[\"a\"]", "", "\"\\ud800\""] {
        client.put(&format!("{config}/mine/key3"), value).expect(400);
    }
    client.post(&format!("{config}/_reload"), "").expect(200);
    client.get("/_all_dbs").expect(200);
    server.kill();
    let server = Server::start(&directory);
    let mut client = server.client();
    client.get("/_all_dbs").expect(200);
    assert_eq!(client.get(&format!("{config}/admins")).expect(200).text(), "{}\n", "{}", directory.configuration());
}

#[test]
fn functions_that_go_astray() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut client = server.client();
    load(&mut client, "/db", 10, 0);
    for (name, map) in [
        ("syntax", "function (doc) {"),
        ("none", "42"),
        ("nul", "function (doc) { emit('\0'); }"),
        ("deep", &format!("function (doc) {{ return {}1{}; }}", "(".repeat(100_000), ")".repeat(100_000))),
    ] {
        let reply = client.put(&format!("/db/_design/{name}"), &design(map, None));
        assert!(matches!(reply.status, 201 | 400), "{name}: {} {}", reply.status, reply.text());
    }
    for (name, map) in [
        ("throws", "function (doc) { throw new Error('no'); }"),
        ("cycle", "function (doc) { var a = {}; a.a = a; emit(a, a); }"),
        ("undefined", "function (doc) { emit(); emit(undefined, function () {}); emit(NaN, Infinity); }"),
        ("proto", "function (doc) { Object.prototype.x = 1; emit(doc._id, {}); }"),
    ] {
        save(&mut client, &format!("/db/_design/{name}"), &design(map, Some("_count")));
        let reply = client.get(&format!("/db/_design/{name}/_view/v"));
        assert_eq!(reply.status, 200, "{name}: {}", reply.text());
    }
    // As in CouchDB this ends the build instead of leaving out the document.
    let endless = "function (doc) { function f() { return f(); } f(); }";
    save(&mut client, "/db/_design/recursion", &design(endless, None));
    let reply = client.get("/db/_design/recursion/_view/v").expect(500);
    assert_eq!(text(reply.json().value(), "error"), "InternalError");
    client.get("/db").expect(200);
}
