//! Table of the number of calls to the storage engine for each kind of request. On an engine behind a network
//! each call is a round trip. An increase of a number needs a reason.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use settee_database::Engine;
use settee_storage::counting::CountingEngine;
use settee_storage::memory::MemoryEngine;

use super::check_file;
use super::node::{Ask, TestResponse, World};

const DOCUMENTS: usize = 1_000;

fn ids(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("d{number:04}"))
}

fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn documents(prefix: &str) -> String {
    let documents = ids(DOCUMENTS).map(|id| format!(r#"{{"_id":"{prefix}{id}","n":{}}}"#, id.len()));
    format!(r#"{{"docs":{}}}"#, list(documents))
}

fn attached(rev: Option<&str>, count: usize, stubs: usize) -> String {
    let attachment = |number: usize| match number < stubs {
        true => format!(r#""a{number}":{{"stub":true}}"#),
        false => format!(r#""a{number}":{{"content_type":"image/png","data":"{number:04}"}}"#),
    };
    let attachments = (0..count).map(attachment).collect::<Vec<_>>().join(",");
    let rev = rev.map_or(String::new(), |rev| format!(r#""_rev":"{rev}","#));
    format!(r#"{{{rev}"_attachments":{{{attachments}}}}}"#)
}

fn searched(limit: usize) -> String {
    format!(r#"{{"selector":{{"n":{{"$gt":1}}}},"use_index":["s","t"],"limit":{limit}}}"#)
}

fn requests(rev: &str, attached_rev: &str) -> Vec<(&'static str, String, String)> {
    let row = |name, line: &str, body: &str| (name, line.to_owned(), body.to_owned());
    let keys = list(ids(128).map(|id| format!("{id:?}")));
    let numbers = list((0..128).map(|number| format!("[{number}]")));
    let asked = list(ids(200).map(|id| format!(r#"{{"id":"{id}"}}"#)));
    let revs = ids(500).map(|id| format!(r#""{id}":["9-00000000000000000000000000000000"]"#)).collect::<Vec<_>>();
    vec![
        row("a new document", "PUT /db/new", "{}"),
        row("an edit", "PUT /db/edited", &format!(r#"{{"_rev":"{rev}","n":2}}"#)),
        row("a document", "GET /db/d0001", ""),
        row("a document with its conflicts", "GET /db/d0001?conflicts=true", ""),
        row("1,000 new documents", "POST /db/_bulk_docs", &documents("new")),
        row("a page of 128 ids", "GET /db/_all_docs?limit=128", ""),
        row("128 documents by range", "GET /db/_all_docs?limit=128&include_docs=true", ""),
        row("128 documents by key", "POST /db/_all_docs?include_docs=true", &format!(r#"{{"keys":{keys}}}"#)),
        row("128 changes", "GET /db/_changes?limit=128", ""),
        row("128 changes with documents", "GET /db/_changes?limit=128&include_docs=true", ""),
        row("_bulk_get of 200", "POST /db/_bulk_get", &format!(r#"{{"docs":{asked}}}"#)),
        row("_revs_diff of 500", "POST /db/_revs_diff", &format!("{{{}}}", revs.join(","))),
        row("an index of 2,002 documents", "GET /db/_design/i/_view/v?reduce=false&limit=0", ""),
        row("128 rows of a view", "GET /db/_design/i/_view/v?reduce=false&limit=128", ""),
        row("128 rows with documents", "GET /db/_design/i/_view/v?reduce=false&limit=128&include_docs=true", ""),
        row(
            "128 keys of a view",
            "POST /db/_design/i/_view/v?reduce=false&limit=128",
            &format!(r#"{{"keys":{numbers}}}"#),
        ),
        row("groups of a view", "GET /db/_design/i/_view/v?group=true", ""),
        row("a first _find", "POST /db/_find", r#"{"selector":{"n":{"$gt":1}},"limit":1}"#),
        row("25 results of _find", "POST /db/_find", r#"{"selector":{"n":{"$gt":1}},"limit":25}"#),
        row("100 results of _find by id", "POST /db/_find", r#"{"selector":{"_id":{"$gt":"d"}},"limit":100}"#),
        row(
            "128 changes with conflicts",
            "GET /db/_changes?limit=128&style=all_docs&include_docs=true&conflicts=true",
            "",
        ),
        row("128 changes backwards", "GET /db/_changes?limit=128&descending=true&include_docs=true", ""),
        row("128 selected changes", "POST /db/_changes?limit=128&filter=_selector", r#"{"selector":{"n":{"$gt":1}}}"#),
        row("changes of 128 documents", "POST /db/_changes?filter=_doc_ids", &format!(r#"{{"doc_ids":{keys}}}"#)),
        row("two databases", "POST /_dbs_info", r#"{"keys":["db","_users"]}"#),
        row(
            "a validation function",
            "PUT /db/_design/rules",
            r#"{"validate_doc_update":"a","filters":{"everything":"a"}}"#,
        ),
        row("a first filtered page", "GET /db/_changes?limit=1&filter=rules/everything", ""),
        row("128 filtered changes", "GET /db/_changes?limit=128&filter=rules/everything", ""),
        row("a new document that is validated", "PUT /db/valid", "{}"),
        row("1,000 documents that are validated", "POST /db/_bulk_docs", &documents("valid")),
        row("the index after 1,000 more documents", "GET /db/_design/i/_view/v?reduce=false&limit=0", ""),
        row("a document with 10 attachments", "PUT /attached/new", &attached(None, 10, 0)),
        row("an edit that keeps 10 and brings 10", "PUT /attached/edited", &attached(Some(attached_rev), 20, 10)),
        row("a search index of 4,000 documents", "POST /db/_find", &searched(1)),
        row("25 hits of a search", "POST /db/_find", &searched(25)),
    ]
}

#[tokio::test]
async fn requests_make_as_many_calls_of_the_engine_as_the_table_says() {
    let engine = Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new())));
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    world.make_database("_users");
    world.make_database("db");
    world.admin("POST /db/_bulk_docs", &documents("")).await;
    let made = world.admin("PUT /db/edited", "{}").await;
    let rev = made.header("etag").trim_matches('"').to_owned();
    world.admin("POST /db/_index", r#"{"index":{"fields":["n"]},"ddoc":"i","name":"v"}"#).await;
    let text = r#"{"type":"text","index":{"fields":[{"name":"n","type":"number"}]},"ddoc":"s","name":"t"}"#;
    assert_eq!(world.admin("POST /db/_index", text).await.status, 200);

    world.make_database("attached");
    let made = world.admin("PUT /attached/edited", &attached(None, 10, 0)).await;
    let attached_rev = made.header("etag").trim_matches('"').to_owned();

    let mut table = "reads  pages  commits  others\n".to_owned();
    for (name, line, body) in requests(&rev, &attached_rev) {
        let before = engine.calls();
        let reply = world.ask(Ask::new(&line).basic("admin", "pw").json(&body)).await;
        assert!(reply.status.is_success(), "{line}: {reply:?}");
        let calls = engine.calls().since(before);
        // Other requests take at most 15 ms on a network with a latency of one millisecond.
        let is_long = name.contains("index") || name.contains("1,000");
        let network = Duration::from_millis(calls.total());
        assert!(is_long || network < Duration::from_millis(15), "{name}: {calls:?}");
        let (reads, pages, commits, others) = (calls.reads, calls.pages, calls.commits, calls.others);
        writeln!(table, "{reads:5}  {pages:5}  {commits:7}  {others:6}  {name}").unwrap();
    }
    check_file("engine_calls.txt", &table);
}

const STUB: &str = r#"{"docs":[{"_id":"kept","_rev":"REV","_attachments":{"f":{"stub":true}}},{"_id":"x"}]}"#;

/// Requests that are attempted on the thread of the runtime, and their bodies. An attempt that opens a snapshot without
/// its [`Waiting`](settee_database::Waiting) calls the engine there.
const ATTEMPTED: [(&str, &str); 20] = [
    ("GET /db/d", ""),
    ("GET /db/d?conflicts=true&revs_info=true", ""),
    ("GET /db/kept?attachments=true", ""),
    ("GET /db/kept/f", ""),
    ("GET /db/_local/l", ""),
    ("GET /db/_all_docs?include_docs=true&update_seq=true", ""),
    ("POST /db/_all_docs?include_docs=true", r#"{"keys":["d","kept","_local/l"]}"#),
    ("GET /db/_design_docs", ""),
    ("POST /db/_bulk_get?attachments=true", r#"{"docs":[{"id":"d"},{"id":"kept"}]}"#),
    ("GET /db/_changes?include_docs=true&style=all_docs&conflicts=true", ""),
    ("GET /db/_changes?descending=true", ""),
    ("POST /db/_changes?filter=_doc_ids", r#"{"doc_ids":["d"]}"#),
    ("POST /db/_changes?filter=_selector&include_docs=true", r#"{"selector":{"n":1}}"#),
    ("GET /db/_changes?feed=longpoll", ""),
    ("GET /db/_design/i/_view/v?reduce=false&include_docs=true", ""),
    ("GET /db/_design/i/_view/v?group=true&update=lazy", ""),
    ("POST /db/_find", r#"{"selector":{"n":{"$gt":0}},"conflicts":true}"#),
    ("POST /db/_find", r#"{"selector":{"$or":[{"n":1},{"_id":"d"}]}}"#),
    ("POST /db/_bulk_docs", STUB),
    ("DELETE /db/d?rev=REV", ""),
];

#[tokio::test]
async fn attempts_call_the_engine_on_no_thread_of_the_runtime() {
    let (runtime, on_runtime) = (thread::current().id(), Arc::new(AtomicU64::new(0)));
    let counter = Arc::clone(&on_runtime);
    let observe = move || {
        counter.fetch_add(u64::from(thread::current().id() == runtime), Ordering::Relaxed);
    };
    let engine = Arc::new(CountingEngine::observed(Arc::new(MemoryEngine::new()), observe));
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    world.make_database("_users");
    world.make_database("db");
    let rev = |reply: &TestResponse| reply.header("etag").trim_matches('"').to_owned();
    let document = rev(&world.admin("PUT /db/d", r#"{"n":1}"#).await);
    let kept = rev(&world.admin("PUT /db/kept", r#"{"n":2,"_attachments":{"f":{"data":"AAAA"}}}"#).await);
    world.admin("PUT /db/_local/l", "{}").await;
    world.admin("POST /db/_index", r#"{"index":{"fields":["n"]},"ddoc":"i","name":"v"}"#).await;
    let mut wrong = Vec::new();
    let mut check = async |line: &str, ask: Ask| {
        let before = engine.calls();
        on_runtime.store(0, Ordering::Relaxed);
        let reply = world.ask(ask.basic("admin", "pw")).await;
        assert!(reply.status.is_success(), "{line}: {reply:?}");
        assert!(engine.calls() != before, "{line} reads nothing");
        if on_runtime.load(Ordering::Relaxed) > 0 {
            wrong.push(line.to_owned());
        }
    };
    check("PUT /db/new/f", Ask::new("PUT /db/new/f").text("text/plain", "short")).await;
    for (line, body) in ATTEMPTED {
        let (line, body) = (line.replace("REV", &document), body.replace("REV", &kept));
        check(&line, Ask::new(&line).json(&body)).await;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[tokio::test]
async fn non_administrators_cost_no_more_calls() {
    let engine = Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new())));
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    world.make_database("_users");
    world.make_database("db");
    world.admin("PUT /db/d", "{}").await;
    let get = || world.ask(Ask::new("GET /db/d"));
    assert_eq!(get().await.status, 401);
    world.admin("PUT /db/_security", r#"{"members":{}}"#).await;
    let before = engine.calls();
    assert_eq!(get().await.status, 200);
    assert_eq!(engine.calls().since(before).total(), 2, "the document and its body");
    world.admin("PUT /db/_security", r#"{"members":{"names":["ann"]}}"#).await;
    assert_eq!(get().await.status, 401, "a new security object counts at once");
}

/// Other commits wait for the whole of a commit, so a large one is divided.
#[tokio::test]
async fn a_commit_takes_two_thousand_updates_at_most() {
    let engine = Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new())));
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    world.make_database("db");
    let docs = list((0..10_000).map(|number| format!(r#"{{"_id":"{number}"}}"#)));
    let before = engine.calls();
    let _ = engine.take_largest();
    let reply = world.admin("POST /db/_bulk_docs", &format!(r#"{{"docs":{docs}}}"#)).await;
    assert_eq!(reply.status, 201);
    let commits = engine.calls().since(before).commits;
    assert!((5..12).contains(&commits), "{commits}");
    let writes = engine.take_largest().writes;
    assert!(writes < 3 * 2_048 + 100, "{writes}");
}
