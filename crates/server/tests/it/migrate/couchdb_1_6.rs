//! A server that imitates CouchDB 1.6: sequences are numbers, and `_bulk_get` and `_local_docs` do not exist.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use super::{BOB, succeeds};
use crate::server::{Directory, Server, program, run};

const ANSWERS: &[(&str, u16, &str)] = &[
    (
        "GET /",
        200,
        r#"{"couchdb":"Welcome","uuid":"5c","version":"1.6.1","vendor":{"name":"The Apache Software Foundation","version":"1.6.1"}}"#,
    ),
    ("GET /_all_dbs", 200, r#"["_replicator","_users","shop"]"#),
    (
        "GET /shop",
        200,
        r#"{"db_name":"shop","doc_count":2,"doc_del_count":1,"update_seq":4,"purge_seq":0,"compact_running":false,"disk_size":1,"data_size":1,"instance_start_time":"1447000000000000","disk_format_version":6,"committed_update_seq":4}"#,
    ),
    ("GET /shop/_security", 200, "{}"),
    ("GET /shop/_revs_limit", 200, "1000"),
    (
        "GET /shop/_changes",
        200,
        "{\"results\":[\n{\"seq\":2,\"id\":\"conflict\",\"changes\":[{\"rev\":\"1-b\"},{\"rev\":\"1-a\"}]},\n{\"seq\":3,\"id\":\"gone\",\"changes\":[{\"rev\":\"2-d\"}],\"deleted\":true},\n{\"seq\":4,\"id\":\"_design/d\",\"changes\":[{\"rev\":\"1-e\"}]}\n],\n\"last_seq\":4}",
    ),
    (
        "GET /shop/_changes?filter=_design",
        200,
        "{\"results\":[\n{\"seq\":4,\"id\":\"_design/d\",\"changes\":[{\"rev\":\"1-e\"}]}\n],\n\"last_seq\":4}",
    ),
    ("GET /shop/_local_docs", 404, r#"{"error":"not_found","reason":"missing"}"#),
    ("POST /shop/_bulk_get", 405, r#"{"error":"method_not_allowed","reason":"Only GET,HEAD,PUT,DELETE allowed"}"#),
    ("POST /shop/_ensure_full_commit", 201, r#"{"ok":true,"instance_start_time":"1447000000000000"}"#),
    (
        "GET /_users",
        200,
        r#"{"db_name":"_users","doc_count":2,"update_seq":2,"instance_start_time":"1447000000000001"}"#,
    ),
    ("GET /_users/_security", 200, "{}"),
    ("GET /_users/_revs_limit", 200, "1000"),
    (
        "GET /_users/_changes",
        200,
        "{\"results\":[\n{\"seq\":1,\"id\":\"_design/_auth\",\"changes\":[{\"rev\":\"1-x\"}]},\n{\"seq\":2,\"id\":\"org.couchdb.user:joe\",\"changes\":[{\"rev\":\"1-f\"}]}\n],\n\"last_seq\":2}",
    ),
    ("POST /_users/_bulk_get", 405, r#"{"error":"method_not_allowed","reason":"Only GET,HEAD,PUT,DELETE allowed"}"#),
    ("POST /_users/_ensure_full_commit", 201, r#"{"ok":true,"instance_start_time":"1447000000000001"}"#),
    (
        "GET /_replicator",
        200,
        r#"{"db_name":"_replicator","doc_count":0,"update_seq":0,"instance_start_time":"1447000000000002"}"#,
    ),
    ("GET /_replicator/_security", 200, "{}"),
    ("GET /_replicator/_revs_limit", 200, "1000"),
    ("GET /_replicator/_changes", 200, "{\"results\":[\n\n],\n\"last_seq\":0}"),
    (
        "GET /_config",
        200,
        r#"{"httpd":{"enable_cors":"true","port":"5984"},"admins":{"old":"-hashed-d1ff,00"},"couch_httpd_auth":{"iterations":"10","timeout":"1234"}}"#,
    ),
];

const LEAVES: &[(&str, &str, &str)] = &[
    ("/shop/conflict", "1-b", r#""x":2,"_revisions":{"start":1,"ids":["b"]}"#),
    ("/shop/conflict", "1-a", r#""x":1.0,"_revisions":{"start":1,"ids":["a"]}"#),
    ("/shop/gone", "2-d", r#""_deleted":true,"_revisions":{"start":2,"ids":["d","c"]}"#),
    ("/shop/_design/d", "1-e", r#""views":{},"_revisions":{"start":1,"ids":["e"]}"#),
    // The password is `pw`, hashed as in version 1.2: the SHA-1 of `pw00`.
    (
        "/_users/org.couchdb.user:joe",
        "1-f",
        r#""type":"user","name":"joe","roles":[],"password_scheme":"simple","salt":"00","password_sha":"ab62d8f700be06bf54f49aa14dd7e0fd07353b83","_revisions":{"start":1,"ids":["f"]}"#,
    ),
];

const MISSING: &str = r#"{"error":"not_found","reason":"missing"}"#;

fn start() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let locals = Arc::new(Mutex::new(HashMap::new()));
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let locals = Arc::clone(&locals);
            std::thread::spawn(move || serve(stream, &locals));
        }
    });
    address
}

type Locals = Mutex<HashMap<String, String>>;

fn serve(stream: TcpStream, locals: &Locals) -> Option<()> {
    let mut stream = BufReader::new(stream);
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).ok().filter(|length| *length > 0)?;
        let (mut length, mut header) = (0, String::new());
        while stream.read_line(&mut header).ok()? > 2 {
            if let Some(value) = header.to_ascii_lowercase().strip_prefix("content-length:") {
                length = value.trim().parse().unwrap();
            }
            header.clear();
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).ok()?;
        let request = line.trim_end().trim_end_matches(" HTTP/1.1").replace("%3A", ":");
        let (status, answer) = answer(&request, &String::from_utf8(body).unwrap(), locals);
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            answer.len()
        );
        stream.get_mut().write_all(format!("{head}{answer}").as_bytes()).ok()?;
    }
}

fn answer(request: &str, body: &str, locals: &Locals) -> (u16, String) {
    let (method, target) = request.split_once(' ').unwrap();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let path = if path.len() > 1 { path.trim_end_matches('/') } else { path };
    if path.contains("/_local/") {
        return match method {
            "PUT" => {
                locals.lock().unwrap().insert(path.to_owned(), body.to_owned());
                (201, r#"{"ok":true,"id":"_local/x","rev":"0-1"}"#.to_owned())
            }
            _ => locals.lock().unwrap().get(path).map_or((404, MISSING.to_owned()), |found| (200, found.clone())),
        };
    }
    if path.ends_with("/_changes") && query.split('&').any(|part| matches!(part, "since=4" | "since=2")) {
        let last = if path.starts_with("/shop") { 4 } else { 2 };
        return (200, format!("{{\"results\":[\n\n],\n\"last_seq\":{last}}}"));
    }
    if query.contains("open_revs=") {
        let asked = LEAVES.iter().filter(|(known, rev, _)| *known == path && query.contains(rev));
        let id = path.split_once('/').unwrap().1.split_once('/').unwrap().1;
        let rows: Vec<String> = asked
            .map(|(_, rev, members)| format!("{{\"ok\":{{\"_id\":\"{id}\",\"_rev\":\"{rev}\",{members}}}}}"))
            .collect();
        return (200, format!("[{}]", rows.join(",")));
    }
    let filtered = if query.contains("filter=_design") { "?filter=_design" } else { "" };
    let key = format!("{method} {path}{filtered}");
    let found = ANSWERS.iter().find(|(asked, ..)| *asked == key);
    found.map_or((404, MISSING.to_owned()), |(_, status, text)| (*status, (*text).to_owned()))
}

#[test]
fn couchdb_1_is_migrated() {
    let old = start();
    let directory = Directory::new();
    directory.configure("[admins]\nbob = secret\n[log]\nlevel = warn\n");
    let target = Server::start(&directory);
    let (from, to) = (format!("http://{old}"), format!("http://bob:secret@{}", target.address));
    let response = succeeds(&run(&mut program(&["migrate", &from, "--to", &to])));
    assert!(response.contains("shop: the source does not list local documents"), "{response}");
    assert!(response.contains("set [chttpd] enable_cors = true"), "{response}");
    assert!(response.contains("set [chttpd_auth] timeout = 1234") && !response.contains("iterations"), "{response}");
    assert!(response.contains("created the administrator old"), "{response}");
    assert!(response.contains("3 databases: 5 revisions"), "{response}");
    let mut client = target.client().with(BOB);
    let reply = client.request("GET", "/shop/conflict?open_revs=all", &[("Accept", "application/json")], b"").unwrap();
    assert!(reply.text().contains("\"x\":1.0") && reply.text().contains("\"x\":2"), "{}", reply.text());
    client.get("/shop/gone").expect_error(404, "not_found", "deleted");
    target.client().get("/shop").expect(200);
    let response = succeeds(&run(&mut program(&["migrate", &from, "--to", &to])));
    assert!(response.contains("3 databases: 0 revisions"), "{response}");
    let verify = || run(&mut program(&["migrate", &from, "--to", &to, "--verify"]));
    let report = succeeds(&verify());
    assert!(
        report.contains("equal  shop: 3 documents, 4 leaves, 0 attachments, local documents not listed"),
        "{report}"
    );
    // Accounts with such old hashes work. The login rehashes the password, so it follows the comparison.
    target.client().with("Basic am9lOnB3").get("/_session").expect(200);
    client.put("/shop/new", "{}").expect(201);
    assert!(!verify().status.success());
}
