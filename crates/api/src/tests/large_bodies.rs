//! Requests with bodies above a megabyte run on low-priority threads; all others, also reads of large documents, do
//! not.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::thread;

use parking_lot::Mutex;
use settee_threads::{Scope, within};

use crate::Platform;
use crate::tests::node::{Ask, World};

const LANE: &str = "settee-lane";
const LANE_WORK: &str = "settee-large";

fn world() -> (World, Arc<Mutex<BTreeSet<String>>>) {
    let names = Arc::new(Mutex::new(BTreeSet::new()));
    let noted = Arc::clone(&names);
    let give_way = Arc::new(move || noted.lock().extend(thread::current().name().map(str::to_owned)));
    let world = World::within(Platform { give_way, ..Platform::default() });
    world.make_database("db");
    (world, names)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_above_a_megabyte_run_on_low_priority_threads() {
    let (world, names) = world();
    let of_lane = || names.lock().iter().any(|name| name == LANE || name == LANE_WORK);
    let text = |bytes| format!("{{\"text\":\"{}\"}}", "x".repeat(bytes));
    let reply = world.ask(Ask::new("PUT /db/small").basic("admin", "pw").json(&text(1_000_000))).await;
    assert!(reply.status == 201 && !of_lane(), "{}", reply.line());
    let reply = world.ask(Ask::new("PUT /db/large").basic("admin", "pw").json(&text(2_000_000))).await;
    assert!(reply.status == 201 && names.lock().contains(LANE) && names.lock().contains(LANE_WORK), "{}", reply.line());
    names.lock().clear();
    let reply = world.ask(Ask::new("GET /db/large").basic("admin", "pw")).await;
    assert!(reply.status == 200 && reply.body.len() > 2_000_000 && !of_lane());
}

/// Notes the threads of a request, without the leader of its commits.
#[derive(Default)]
struct Noted(Mutex<BTreeSet<String>>);

impl Scope for Noted {
    fn during(self: Arc<Self>, work: &mut dyn FnMut()) {
        self.0.lock().insert(thread::current().name().unwrap_or_default().to_owned());
        work();
    }
}

const JSON: &str = "application/json";
const RELATED: &str = "multipart/related; boundary=s";

type Kind = (&'static str, &'static str, &'static str, u16);

/// `TEXT` is a text of any length.
const KINDS: [Kind; 28] = [
    ("PUT /db/ID", JSON, r#"{"text":"TEXT"}"#, 201),
    ("PUT /db/ID?new_edits=false", JSON, r#"{"_rev":"1-a","text":"TEXT"}"#, 201),
    ("PUT /db/_local/ID", JSON, r#"{"text":"TEXT"}"#, 201),
    ("PUT /db/ID", JSON, r#"{"_attachments":{"f":{"data":"TEXT"}}}"#, 201),
    ("PUT /db/_design/ID", JSON, r#"{"views":{"v":{"map":"TEXT"}}}"#, 201),
    ("PUT /access/ID", JSON, r#"{"_access":["ann"],"text":"TEXT"}"#, 201),
    ("PUT /checked/ID", JSON, r#"{"text":"TEXT"}"#, 201),
    ("PUT /checked/ID?batch=ok", JSON, r#"{"text":"TEXT"}"#, 202),
    ("PUT /_replicator/ID", JSON, r#"{"source":"a","target":"b","state":"x","text":"TEXT"}"#, 201),
    ("POST /db", JSON, r#"{"_id":"ID","text":"TEXT"}"#, 201),
    ("POST /db/_bulk_docs", JSON, r#"{"docs":[{"_id":"ID","text":"TEXT"}]}"#, 201),
    ("POST /db/_bulk_docs", JSON, r#"{"docs":[{"_id":"_design/ID","views":{"v":{"map":"TEXT"}}}]}"#, 201),
    ("POST /checked/_bulk_docs", JSON, r#"{"docs":[{"_id":"ID","text":"TEXT"}]}"#, 201),
    ("POST /db/_bulk_get", JSON, r#"{"docs":[{"id":"a","atts_since":["TEXT"]}]}"#, 200),
    ("POST /db/_revs_diff", JSON, r#"{"TEXT":["1-a"]}"#, 200),
    ("POST /db/_missing_revs", JSON, r#"{"TEXT":["1-a"]}"#, 200),
    ("POST /db/_purge", JSON, r#"{"TEXT":["1-a"]}"#, 201),
    ("POST /db/_all_docs", JSON, r#"{"keys":["TEXT"]}"#, 200),
    ("POST /db/_changes?filter=_doc_ids", JSON, r#"{"doc_ids":["TEXT"]}"#, 200),
    ("POST /db/_find", JSON, r#"{"selector":{"text":"TEXT"}}"#, 200),
    ("POST /db/_explain", JSON, r#"{"selector":{"text":"TEXT"}}"#, 200),
    ("POST /db/_view_test", JSON, r#"{"map":"m","documents":[{"text":"TEXT"}]}"#, 200),
    ("POST /db/_design/d/_view/v", JSON, r#"{"keys":["TEXT"]}"#, 200),
    ("POST /db/_design/d/_view/v/queries", JSON, r#"{"queries":[{"keys":["TEXT"]}]}"#, 200),
    ("POST /db/_design/d/_show/s", "text/plain", "TEXT", 200),
    ("POST /db/_design/d/_update/u", JSON, r#"["TEXT"]"#, 200),
    ("PUT /db/ID/f", "text/plain", "TEXT", 201),
    ("PUT /db/ID", RELATED, "--s\r\nContent-Type: application/json\r\n\r\n{\"text\":\"TEXT\"}\r\n--s--", 201),
];

async fn with_functions() -> World {
    let world = World::new();
    for name in ["db", "checked", "_replicator"] {
        world.make_database(name);
    }
    world.admin("PUT /access?access=true", "").await;
    world.admin("PUT /checked/_design/d", r#"{"validate_doc_update":"accept"}"#).await;
    let functions = r#"{"views":{"v":{"map":"m"}},"shows":{"s":"s"},"updates":{"u":"[\"up\",null,{}]"}}"#;
    world.admin("PUT /db/_design/d", functions).await;
    world
}

async fn threads_of(world: &World, (line, content_type, body, _): Kind, bytes: usize) -> (u16, BTreeSet<String>) {
    let id = format!("of-{bytes}");
    let (line, body) = (line.replace("ID", &id), body.replace("ID", &id).replace("TEXT", &"a".repeat(bytes)));
    let noted = Arc::<Noted>::default();
    let ask = Ask::new(&line).basic("admin", "pw").text(content_type, &body);
    let reply = within(Arc::<Noted>::clone(&noted), world.ask(ask)).await;
    let threads = noted.0.lock().clone();
    (reply.status.as_u16(), threads)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_work_for_a_body_above_a_megabyte_runs_on_the_default_threads() {
    let mut wrong = Vec::new();
    for kind in KINDS {
        let (world, expected_status) = (with_functions().await, kind.3);
        let is_upload = kind.0.ends_with("/f") || kind.1 == RELATED;
        let expected = if is_upload { "settee-client" } else { LANE_WORK };
        let (status, threads) = threads_of(&world, kind, 1_600_000).await;
        if status != expected_status || !threads.contains(expected) || threads.contains("settee-short") {
            wrong.push(format!("large {kind:?}: {status} on {threads:?}"));
        }
        let (status, threads) = threads_of(&world, kind, 300_000).await;
        let is_on_default_threads = is_upload || threads.contains("settee-short");
        if status != expected_status || !is_on_default_threads || threads.contains(LANE_WORK) {
            wrong.push(format!("small {kind:?}: {status} on {threads:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
