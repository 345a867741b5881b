//! Tests of `settee migrate`: servers in use, interrupted runs, and the comparison.

mod couchdb_1_6;
mod files;

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::client::Client;
use crate::server::{Directory, Server, program, run};
use crate::{load, number, save, text, wait_for};
pub(crate) use files::fixture;

const ANN: &str = "Basic YW5uOnNlY3JldA==";
const BOB: &str = "Basic Ym9iOnNlY3JldA==";

const BULK: usize = 8;

const BULK_DOCUMENTS: usize = 1500;

struct Pair {
    source: Server,
    target: Server,
    _directories: [Directory; 2],
}

impl Pair {
    fn start() -> Self {
        let directories = [Directory::new(), Directory::new()];
        directories[0]
            .configure("[admins]\nann = secret\n[cors]\norigins = https://shop.example\n[log]\nlevel = warn\n");
        directories[1].configure("[admins]\nbob = secret\n[log]\nlevel = warn\n");
        let [source, target] = [&directories[0], &directories[1]].map(Server::start);
        Self { source, target, _directories: directories }
    }

    fn source(&self) -> Client {
        self.source.client().with(ANN)
    }

    fn target(&self) -> Client {
        self.target.client().with(BOB)
    }

    fn command(&self, further: &[&str]) -> std::process::Command {
        let source = format!("http://ann:secret@{}", self.source.address);
        let target = format!("http://bob:secret@{}", self.target.address);
        let mut command = program(&["migrate", &source, "--to", &target]);
        command.args(further);
        command
    }

    #[track_caller]
    fn migrate(&self, further: &[&str]) -> String {
        succeeds(&run(&mut self.command(further)))
    }

    fn verify(&self, further: &[&str]) -> (bool, String) {
        let output = run(self.command(&["--verify"]).args(further));
        (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn couchdb() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let lines = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&lines);
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map(Result::unwrap) {
            let head = BufReader::new(&stream).lines().map(Result::unwrap).take_while(|line| !line.is_empty());
            seen.lock().unwrap().extend(head.take(1));
            let body = r#"{"couchdb":"Welcome","version":"3.5.2","uuid":"x","vendor":{"name":"The Apache Software Foundation"}}"#;
            let length = body.len();
            let head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close";
            stream.write_all(format!("{head}\r\nContent-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
        }
    });
    (url, lines)
}

#[test]
fn a_target_that_is_not_settee_needs_force() {
    let directory = Directory::new();
    let server = Server::start(&directory);
    server.client().put("/db", "").expect(201);
    let (url, lines) = couchdb();
    let output = run(&mut program(&["migrate", &format!("http://{}", server.address), "--to", &url]));
    let printed = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && printed.contains("CouchDB 3.5.2") && printed.contains("--force"), "{printed}");
    let lines = lines.lock().unwrap();
    assert!(!lines.is_empty() && lines.iter().all(|line| line.starts_with("GET / ")), "{lines:?}");
}

#[track_caller]
fn succeeds(output: &Output) -> String {
    let response = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{response}{}", String::from_utf8_lossy(&output.stderr));
    response
}

#[track_caller]
fn bulk(client: &mut Client, database: &str, docs: &str) {
    let body = format!("{{\"new_edits\":false,\"docs\":[{docs}]}}");
    let reply = client.post(&format!("/{database}/_bulk_docs"), &body).expect(201);
    assert_eq!(reply.text().trim(), "[]");
}

fn fill(client: &mut Client) {
    client.put("/shop%2Forders", "").expect(201);
    save(client, "/shop%2Forders/plain%2F1", r#"{"price":1.50,"big":12345678901234567890}"#);
    bulk(
        client,
        "shop%2Forders",
        r#"{"_id":"conflict","_rev":"2-bb","_revisions":{"start":2,"ids":["bb","aa"]},"x":1},
           {"_id":"conflict","_rev":"2-cc","_revisions":{"start":2,"ids":["cc","aa"]},"x":2},
           {"_id":"conflict","_rev":"1-dd","_deleted":true},
           {"_id":"gone","_rev":"2-ee","_revisions":{"start":2,"ids":["ee","aa"]},"_deleted":true,"why":"sold"}"#,
    );
    save(
        client,
        "/shop%2Forders/photo",
        r#"{"_attachments":{"t ü.txt":{"content_type":"text/plain","data":"aGVsbG8="}}}"#,
    );
    let rev = save(client, "/shop%2Forders/large", "{}");
    let headers = [("Content-Type", "text/plain")];
    let bytes = vec![b'x'; 300_000];
    client.request("PUT", &format!("/shop%2Forders/large/a?rev={rev}"), &headers, &bytes).unwrap().expect(201);
    save(
        client,
        "/shop%2Forders/_design/guard",
        r#"{"validate_doc_update":"function () { throw {forbidden: 'no'}; }"}"#,
    );
    client.put("/shop%2Forders/_local/note%201", r#"{"n":1.50}"#).expect(201);
    client.put("/shop%2Forders/_security", r#"{"members":{"names":["joe"]}}"#).expect(200);
    client.put("/shop%2Forders/_revs_limit", "77").expect(200);
    client.put("/parts?partitioned=true", "").expect(201);
    save(client, "/parts/p:1", "{}");
    save(client, "/_users/org.couchdb.user:joe", r#"{"type":"user","name":"joe","roles":["r"],"password":"pw"}"#);
    let replication = r#"{"source":"http://127.0.0.1:1/x","target":"parts","continuous":true}"#;
    save(client, "/_replicator/pull", replication);
}

fn bulk_name(index: usize) -> String {
    format!("bulk{index}")
}

#[test]
fn a_server_under_load_is_migrated_despite_kills() {
    let pair = Pair::start();
    let mut source = pair.source();
    fill(&mut source);
    for index in 0..BULK {
        source.put(&format!("/{}", bulk_name(index)), "").expect(201);
        load(&mut source, &format!("/{}", bulk_name(index)), BULK_DOCUMENTS, 100);
    }
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = {
        let (mut client, is_over) = (pair.source(), Arc::clone(&is_over));
        std::thread::spawn(move || {
            let mut written = 0;
            while !is_over.load(Ordering::Relaxed) {
                let database = bulk_name(written % BULK);
                save(&mut client, &format!("/{database}/w{written}"), "{}");
                let rev = text(client.get(&format!("/{database}/d{written:06}")).json().value(), "_rev");
                let gone = format!("{{\"_rev\":\"{rev}\",\"_deleted\":true}}");
                client.put(&format!("/{database}/d{written:06}"), &gone).expect(200);
                written += 1;
            }
            written
        })
    };
    let mut target = pair.target();
    for round in 1..=3 {
        let mut child = pair.command(&["--parallel", "3"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let wanted = (BULK * BULK_DOCUMENTS / 5 * round) as i64;
        wait_for("documents to arrive", || {
            let mut there = 0;
            for index in 0..BULK {
                let reply = target.get(&format!("/{}", bulk_name(index)));
                there += if reply.status == 200 { number(reply.json().value(), "doc_count") } else { 0 };
            }
            (there >= wanted).then_some(())
        });
        assert!(child.try_wait().unwrap().is_none(), "it was to be killed in the middle");
        child.kill().unwrap();
        child.wait().unwrap();
    }
    is_over.store(true, Ordering::Relaxed);
    let written = writer.join().unwrap();
    assert!(written > 0);
    let response = pair.migrate(&[]);
    assert!(response.contains("created the administrator ann"), "{response}");
    let (is_equal, report) = pair.verify(&[]);
    assert!(is_equal, "{report}");
    assert!(report.contains("equal  shop/orders: 6 documents, 8 leaves, 2 attachments, 1 local documents"), "{report}");
    assert!(report.ends_with("both sides are equal\n"), "{report}");
    check_target(&pair);
    let response = pair.migrate(&[]);
    assert!(response.starts_with("12 databases: 0 revisions and 0 local documents were copied"), "{response}");
}

#[track_caller]
fn check_target(pair: &Pair) {
    let mut target = pair.target();
    let leaves = "/shop%2Forders/conflict?open_revs=all&revs=true";
    let ask = |client: &mut Client, path: &str| {
        let reply = client.request("GET", path, &[("Accept", "application/json")], b"").unwrap().expect(200);
        reply.text()
    };
    let mut source = pair.source();
    for path in [leaves, "/shop%2Forders/gone?open_revs=all&revs=true", "/shop%2Forders/large/a", "/parts/p:1"] {
        assert_eq!(ask(&mut target, path), ask(&mut source, path), "{path}");
    }
    assert_eq!(
        target.get("/shop%2Forders/_local/note%201").expect(200).text(),
        "{\"_id\":\"_local/note 1\",\"_rev\":\"0-1\",\"n\":1.50}\n"
    );
    assert_eq!(target.get("/shop%2Forders/_revs_limit").text(), "77\n");
    target.put("/parts/nopartition", "{}").expect(400);
    let mut joe = pair.target.client().with("Basic am9lOnB3");
    joe.get("/shop%2Forders").expect(200);
    joe.get("/parts").expect(403);
    let origins = pair.target.client().with(ANN).get("/_node/_local/_config/cors/origins").expect(200);
    assert_eq!(origins.text(), "\"https://shop.example\"\n");
    assert_eq!(number(target.get("/_scheduler/docs").json().value(), "total_rows"), 0);
    target.get("/_replicator/pull").expect(404);
    target.get("/replicator_paused/pull").expect(200);
    let go = r#"{"source":"replicator_paused","target":"_replicator"}"#;
    pair.target().post("/_replicate", go).expect(200);
    wait_for("the replication to be known", || {
        (number(target.get("/_scheduler/docs").json().value(), "total_rows") == 1).then_some(())
    });
}

#[track_caller]
fn finds(pair: &Pair, expected: &str) {
    let (is_equal, report) = pair.verify(&[]);
    let is_found = report.contains(expected) && report.contains("the sides are NOT equal");
    assert!(!is_equal && is_found, "{expected}: {report}");
}

#[test]
fn a_deliberate_difference_is_found() {
    let pair = Pair::start();
    let mut source = pair.source();
    fill(&mut source);
    save(&mut source, "/_users/org.couchdb.user:eve", r#"{"type":"user","name":"eve","roles":[],"password":"pw"}"#);
    pair.migrate(&["--without-config"]);
    assert!(pair.verify(&[]).0);
    let mut target = pair.target();
    let rev = text(source.get("/parts/p:1").json().value(), "_rev");
    target.delete(&format!("/parts/p:1?rev={rev}")).expect(200);
    finds(&pair, &format!("p:1: at the source its leaves are {rev}"));
    target.delete("/parts").expect(200);
    finds(&pair, "there is no database parts at the target");
    // The revision has the same id and another content, which no list of revisions shows.
    target.put("/parts?partitioned=true", "").expect(201);
    bulk(&mut target, "parts", &format!("{{\"_id\":\"p:1\",\"_rev\":\"{rev}\",\"x\":1}}"));
    finds(&pair, &format!("p:1 {rev}: its members are not the same"));
    let (is_equal, report) = pair.verify(&["--leaves-only", "--database", "parts"]);
    assert!(is_equal, "that is not read: {report}");
    bulk(&mut target, "parts", r#"{"_id":"q:1","_rev":"1-a"}"#);
    finds(&pair, "q:1: at the target its leaves are 1-a");
    target.put("/shop%2Forders/_local/note%201", r#"{"_rev":"0-1","n":2}"#).expect(201);
    finds(&pair, "_local/note 1 is not the same");
    target.put("/shop%2Forders/_revs_limit", "78").expect(200);
    finds(&pair, "_revs_limit is 77 at the source and 78 at the target");
    let path = "/_users/org.couchdb.user:eve";
    let rev = text(target.get(path).json().value(), "_rev");
    target.delete(&format!("{path}?rev={rev}")).expect(200);
    finds(&pair, "org.couchdb.user:eve: at the source its leaves are");
}

#[test]
fn rejections_are_reported_and_moved_later() {
    let pair = Pair::start();
    let mut source = pair.source();
    source.put("/db", "").expect(201);
    save(&mut source, "/db/first", "{}");
    let guard = r#"{"validate_doc_update":"function (doc) { if (doc.no) throw {forbidden: 'not here'}; }"}"#;
    save(&mut source, "/db/_design/guard", guard);
    pair.migrate(&["--without-design"]);
    assert!(pair.verify(&["--without-design"]).0);
    assert!(!pair.verify(&[]).0, "the design document is not there yet");
    pair.migrate(&[]);
    assert!(pair.verify(&[]).0);
    let mut target = pair.target();
    let rev = text(source.get("/db/_design/guard").json().value(), "_rev");
    source.delete(&format!("/db/_design/guard?rev={rev}")).expect(200);
    save(&mut source, "/db/second", r#"{"no":true}"#);
    let refused = run(&mut pair.command(&["--database", "db", "--without-design"]));
    let response = String::from_utf8_lossy(&refused.stdout).into_owned();
    assert!(!refused.status.success() && response.contains("not here") && response.contains("`second`"), "{response}");
    assert!(!pair.verify(&[]).0);
    pair.migrate(&[]);
    target.get("/db/_design/guard").expect(404);
    target.get("/db/second").expect(404);
    pair.migrate(&["--from-start"]);
    let (is_equal, report) = pair.verify(&[]);
    assert!(is_equal, "{report}");
}
