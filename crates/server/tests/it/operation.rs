//! Tests of operator interfaces: the log, statistics, traces, the restart, external settings.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;

use settee_model::json::Json;

use crate::server::{Directory, Server, program, run, serve};
use crate::{Client, number, save, text, wait_for};

const ANN: &str = "Basic YW5uOmdlaGVpbS0wMQ==";

/// `ann:geheim-01`, and other secrets in the requests below.
const PLANTED: [&str; 6] = ["geheim", "YW5uOmdlaGVp", "Z2VoZWltL", "c2VjcmV0LWNvb2tpZQ", "eyJnZWhlaW0", "-pbkdf2"];

fn plant(client: &mut Client) {
    client.get("/_all_dbs").expect(200);
    for (name, value) in [
        ("Authorization", "Basic Ym9iOmdlaGVpbS0wMg=="),
        ("Authorization", "Bearer eyJnZWhlaW0iOiJ4In0.e30.c2ln"),
        ("Cookie", "AuthSession=c2VjcmV0LWNvb2tpZQ; other=geheim-03"),
        ("X-Auth-CouchDB-Token", "geheim-04"),
        ("Referer", "http://ann:geheim-05@host/"),
    ] {
        client.request("GET", "/db/doc", &[(name, value)], b"").unwrap();
    }
    client.get("/_session?name=ann&password=geheim-06");
    client.get("/db/_changes?filter=x&source=http%3A%2F%2Fann%3Ageheim-07%40host%2Fdb");
    client.get("/db/_all_docs?x=http://ann:geheim-08@host:5984/db");
    client.post("/_session", r#"{"name":"ann","password":"geheim-09"}"#);
    client.post("/_replicate", r#"{"source":"http://ann:geheim-10@host/db","target":"db"}"#);
    client.put("/_node/_local/_config/admins/bob", "\"geheim-11\"").expect(200);
    client.put("/_node/_local/_config/chttpd_auth/secret", "\"geheim-12\"").expect(200);
    client.put("/_node/_local/_config/chttpd/port", "\"geheim-13\"").expect(400);
    let map = "function (doc) { log('Authorization: Basic Z2VoZWltLTE0'); throw 'http://a:geheim-15@h/'; }";
    save(client, "/db/_design/d", &crate::design(map, None));
    client.get("/db/_design/d/_view/v").expect(200);
}

#[test]
fn secrets_never_reach_the_log() {
    for format in ["text", "json"] {
        let directory = Directory::new();
        directory.configure(&format!("[log]\nlevel = debug\nformat = {format}\n[admins]\nann = geheim-01\n"));
        let server = Server::start(&directory);
        let mut client = server.client().with(ANN);
        client.put("/db", "").expect(201);
        save(&mut client, "/db/doc", "{}");
        plant(&mut client);
        let tail = client.get("/_log?bytes=1000000").expect(200).text();
        assert!(tail.contains("/_session?name=ann&password=***") && tail.contains("map function"), "{tail}");
        server.terminate();
        let log = fs::read_to_string(directory.path().join("log")).unwrap();
        assert!(log.lines().count() > 15, "{log}");
        for planted in PLANTED {
            assert!(!log.contains(planted) && !tail.contains(planted), "{format}: {planted} is in the log:\n{log}");
        }
        if format == "json" {
            log.lines().for_each(|line| assert!(Json::parse(line.as_bytes()).is_ok(), "{line}"));
        }
    }
}

#[test]
fn each_request_has_a_line_and_slow_ones_a_warning() {
    let directory = Directory::new();
    directory.configure("[log]\nwriter = file\nslow_request_ms = 0\n");
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let headers = [("X-Couch-Request-ID", "mine-1")];
    client.request("GET", "/db?x=1", &headers, b"").unwrap().expect(200);
    client.get("/db/_changes?feed=longpoll&since=0&timeout=1").expect(200);
    let docs: Vec<String> = (0..40).map(|n| format!("{{\"_id\":\"{n}\"}}")).collect();
    client.post("/db/_bulk_docs", &format!("{{\"docs\":[{}]}}", docs.join(","))).expect(201);
    client.get("/db/_all_docs?include_docs=true").expect(200);
    client.put("/_node/_local/_config/log/slow_request_ms", "\"infinity\"").expect(200);
    client.get("/db/none").expect(404);
    let log = client.get("/_node/_local/_log?bytes=100000").expect(200);
    assert_eq!(log.header("content-type"), Some("text/plain; charset=utf-8"));
    let log = log.text();
    assert!(
        log.contains("[notice]") && log.contains(" mine-1 settee.test 127.0.0.1 undefined GET /db?x=1 200 ok "),
        "{log}"
    );
    assert!(log.contains(" mine-1 a slow request method=GET target=/db?x=1 "), "{log}");
    let all = log.lines().find(|line| line.contains("a slow request method=GET target=/db/_all_docs")).unwrap();
    let number = |name: &str| all.split(name).nth(1)?.split(' ').next()?.parse::<u64>().ok();
    assert!(number(" entries=").unwrap() >= 40 && number(" read_bytes=").unwrap() > 400, "{all}");
    assert!(number(" reads=").unwrap() < 40, "{all}");
    assert!(!log.contains("a slow request method=GET target=/db/_changes"), "feeds wait: {log}");
    assert!(!log.contains("a slow request method=GET target=/db/none"), "{log}");
    assert!(fs::read_to_string(directory.path().join("settee.log")).unwrap().starts_with(&log));
    let last = client.get("/_log?bytes=50").text();
    assert_eq!(last.len(), 50);
    assert_eq!(client.get("/_log?bytes=50&offset=10").text().len(), 40);
    client.get("/_log?bytes=x").expect(400);
    let slow = String::from_utf8_lossy(&run(program(&["doctor", "--data"]).arg(directory.path())).stdout).into_owned();
    assert!(slow.contains("were slow recently"), "{slow}");
}

#[test]
fn statistics_count_events() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    let stats = "/_node/_local/_stats";
    let value =
        |client: &mut Client, path: &str| number(client.get(&format!("{stats}/{path}")).json().value(), "value");
    client.put("/db", "").expect(201);
    save(&mut client, "/db/_design/d", &crate::design("function (doc) { emit(1); }", None));
    let writes = value(&mut client, "couchdb/document_writes");
    let inserts = value(&mut client, "couchdb/document_inserts");
    crate::load(&mut client, "/db", 100, 10);
    assert_eq!(value(&mut client, "couchdb/document_writes"), writes + 100);
    assert_eq!(value(&mut client, "couchdb/document_inserts"), inserts + 100);
    client.get("/db/d000001").expect(200);
    client.get("/db/_design/d/_view/v").expect(200);
    client.put("/db/_local/x", "{}").expect(201);
    assert_eq!(value(&mut client, "couchdb/local_document_writes"), 1);
    assert_eq!(value(&mut client, "couchdb/httpd/view_reads"), 1);
    assert_eq!(value(&mut client, "couchdb/httpd/bulk_requests"), 1);
    assert_eq!(value(&mut client, "couchdb/httpd_request_methods/PUT"), 3);
    assert!(value(&mut client, "couchdb/database_reads") >= 1);
    let bulk = client.get(&format!("{stats}/couchdb/httpd/bulk_docs")).expect(200).json();
    assert_eq!(number(bulk.value().get("value").unwrap(), "n"), 1);
    assert_eq!(client.get(&format!("{stats}/couchdb/no/such")).expect(200).text(), "null\n");
    client.get("/_node/other/_stats").expect(404);

    let old = client.get("/_stats/httpd/view_reads").expect(200).json();
    let old = old.value().get("httpd").unwrap().get("view_reads").unwrap();
    assert_eq!((number(old, "current"), text(old, "description")), (1, "number of view reads".to_owned()));
    assert!(client.get("/_stats?range=60").expect(200).json().value().get("httpd_status_codes").is_some());

    let metrics = client.get("/_node/_local/_prometheus").expect(200).text();
    for expected in [
        "couchdb_httpd_view_reads_total 1\n",
        "\ncouchdb_request_time_seconds_count ",
        "\nsettee_engine_memtable_bytes ",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
    let mut feed = server.client();
    feed.send("GET", "/db/_changes?feed=continuous&since=now&heartbeat=true", &[], b"").unwrap();
    let path = "couchdb/httpd/clients_requesting_changes";
    wait_for("the feed to count", || (value(&mut client, path) == 1).then_some(()));
    drop(feed);
    save(&mut client, "/db/wakes", "{}");
    wait_for("the feed to be forgotten", || (value(&mut client, path) == 0).then_some(()));
}

#[test]
fn a_restart_starts_a_new_server_in_the_same_process() {
    let directory = Directory::new();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let mut command = program(&["serve", "--port", &free.port().to_string(), "--data"]);
    let server = Server::start_as(&directory, command.arg(directory.path()));
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let rev = save(&mut client, "/db/doc", "{}");
    client.put("/_node/_local/_config/uuids/algorithm", "\"random\"").expect(200);
    for path in ["/_restart", "/_node/_local/_restart", "/_config/_reload", "/_node/_local/_config/_reload"] {
        client.request("POST", path, &[], b"").unwrap().expect(415);
    }
    for path in ["/_node/_local/_restart", "/_restart"] {
        let answer = client.post(path, "").text();
        assert_eq!(answer, "{\"ok\":true}\n");
        assert!(client.is_closed(), "{path}: open connections end");
        client = wait_for("the server to come back", || {
            let mut client = Client::try_connect(server.address).ok()?;
            client.request("GET", "/_up", &[], b"").is_ok_and(|reply| reply.status == 200).then_some(client)
        });
        let found = client.get("/db/doc").expect(200).json();
        assert_eq!(text(found.value(), "_rev"), rev, "{path}");
        assert_eq!(client.get("/_node/_local/_config/uuids/algorithm").text(), "\"random\"\n");
    }
    let log = client.get("/_log?bytes=100000").text();
    assert!(!log.contains("a restart was requested"), "the tail of the log is that of the new server: {log}");
    assert!(server.terminate().0.success());
}

#[test]
fn settings_come_from_files_environment_and_arguments() {
    let directory = Directory::new();
    directory
        .configure("[couchdb]\nmax_document_size = 1\n[chttpd]\nmax_uri_length = 500\n[uuids]\nalgorithm = random\n");
    let mut command = serve(&directory);
    command.env("SETTEE_COUCHDB__MAX_DOCUMENT_SIZE", "2").env("SETTEE_UUIDS__ALGORITHM", "utc_random");
    command.env("SETTEE_MINE__OWN", "kept").args(["--set", "uuids/algorithm=sequential"]);
    let server = Server::start_as(&directory, &mut command);
    let mut client = server.client();
    let config = "/_node/_local/_config";
    for (key, expected) in [
        ("couchdb/max_document_size", "\"2\"\n"),
        ("chttpd/max_uri_length", "\"500\"\n"),
        ("uuids/algorithm", "\"sequential\"\n"),
        ("mine/own", "\"kept\"\n"),
    ] {
        assert_eq!(client.get(&format!("{config}/{key}")).text(), expected, "{key}");
    }
    for (key, value, expected) in
        [("log/level", "debug", "at-once"), ("chttpd/port", "1", "after-restart"), ("mine/own", "x", "nowhere")]
    {
        let reply = client.put(&format!("{config}/{key}"), &format!("\"{value}\"")).expect(200);
        assert_eq!(reply.header("x-settee-applies"), Some(expected), "{key}");
    }
    let stored = directory.configuration();
    assert!(
        !stored.contains("utc_random") && !stored.contains("kept"),
        "the environment is not written down: {stored}"
    );
    drop(server);
    let wrong = run(serve(&directory).args(["--set", "port=1"]));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("section/key=value"), "{wrong:?}");
    let wrong = run(serve(&directory).env("SETTEE_CHTTPD__PORT", "many").env_remove("SETTEE_X"));
    assert!(
        String::from_utf8_lossy(&wrong.stderr)
            .contains("SETTEE_CHTTPD__PORT: [chttpd] port = many: it must be an integer"),
        "{wrong:?}"
    );
}

#[test]
fn requests_become_spans() {
    let collector = TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = Directory::new();
    directory.configure(&format!("[tracing]\nendpoint = http://{}\n", collector.local_addr().unwrap()));
    let server = Server::start(&directory);
    let mut client = server.client();
    client.put("/db", "").expect(201);
    let parent = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")];
    client.request("GET", "/db/none?password=geheim", &parent, b"").unwrap().expect(404);
    let unsampled = [("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")];
    client.request("GET", "/_uuids", &unsampled, b"").unwrap().expect(200);
    let response = std::thread::spawn(move || {
        let (mut stream, _) = collector.accept().unwrap();
        let mut request = Vec::new();
        let mut piece = [0; 65536];
        while !request.ends_with(b"]}]}]}") {
            let length = stream.read(&mut piece).unwrap();
            assert!(length > 0, "{}", String::from_utf8_lossy(&request));
            request.extend_from_slice(&piece[..length]);
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}").unwrap();
        String::from_utf8(request).unwrap()
    });
    assert!(server.terminate().0.success());
    let request = response.join().unwrap();
    assert!(request.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{request}");
    let body = request.split_once("\r\n\r\n").unwrap().1;
    Json::parse(body.as_bytes()).unwrap();
    assert!(body.contains(r#""traceId":"0af7651916cd43dd8448eb211c80319c""#), "{body}");
    assert!(body.contains(r#""parentSpanId":"b7ad6b7169203331","name":"GET /{db}/{doc}""#), "{body}");
    assert!(body.contains(r#"{"key":"http.response.status_code","value":{"intValue":"404"}}"#), "{body}");
    assert!(body.contains("PUT /{db}\"") && !body.contains("_uuids") && !body.contains("geheim"), "{body}");
}

#[test]
fn maintenance_mode_keeps_load_balancers_away() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    let mut client = server.client();
    let mode = "/_node/_local/_config/couchdb/maintenance_mode";
    for (value, status, answer) in [
        ("true", 404, "{\"status\":\"maintenance_mode\"}\n"),
        ("nolb", 404, "{\"status\":\"nolb\"}\n"),
        ("false", 200, "{\"status\":\"ok\",\"seeds\":{}}\n"),
    ] {
        client.put(mode, &format!("\"{value}\"")).expect(200);
        assert_eq!(client.get("/_up").expect(status).text(), answer);
        client.get("/_all_dbs").expect(200);
    }
    client.put(mode, "\"perhaps\"").expect(400);
}
