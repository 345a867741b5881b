//! How many trips to the storage engine each kind of request makes, as a table: on an engine behind a network each
//! is a round trip. The numbers may fall, and who lets one grow says why.

use std::fmt::Write as _;
use std::sync::Arc;

use settee_database::Engine;
use settee_storage::counting::CountingEngine;
use settee_storage::memory::MemoryEngine;

use super::check_file;
use super::node::{Ask, World};

/// How many documents the database has.
const DOCUMENTS: usize = 1_000;

fn ids(count: usize) -> impl Iterator<Item = String> {
    (0..count).map(|number| format!("d{number:04}"))
}

/// Texts in a JSON array.
fn list(items: impl Iterator<Item = String>) -> String {
    format!("[{}]", items.collect::<Vec<_>>().join(","))
}

fn documents(prefix: &str) -> String {
    let documents = ids(DOCUMENTS).map(|id| format!(r#"{{"_id":"{prefix}{id}","n":{}}}"#, id.len()));
    format!(r#"{{"docs":{}}}"#, list(documents))
}

/// The requests of the table, in the order in which they are made.
fn requests(rev: &str) -> Vec<(&'static str, String, String)> {
    let row = |name, line: &str, body: &str| (name, line.to_owned(), body.to_owned());
    let keys = list(ids(128).map(|id| format!("{id:?}")));
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
        row("25 results of _find", "POST /db/_find", r#"{"selector":{"n":{"$gt":1}},"limit":25}"#),
        row("a validation function", "PUT /db/_design/rules", r#"{"validate_doc_update":"anything"}"#),
        row("a new document that is validated", "PUT /db/valid", "{}"),
        row("1,000 documents that are validated", "POST /db/_bulk_docs", &documents("valid")),
        row("the index after 1,000 more documents", "GET /db/_design/i/_view/v?reduce=false&limit=0", ""),
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

    let mut table = "reads  pages  commits  others\n".to_owned();
    for (name, line, body) in requests(&rev) {
        let before = engine.calls();
        let told = world.ask(Ask::new(&line).basic("admin", "pw").json(&body)).await;
        assert!(told.status.is_success(), "{line}: {told:?}");
        let calls = engine.calls().since(before);
        let (reads, pages, commits, others) = (calls.reads, calls.pages, calls.commits, calls.others);
        writeln!(table, "{reads:5}  {pages:5}  {commits:7}  {others:6}  {name}").unwrap();
    }
    check_file("engine_calls.txt", &table);
}
