//! Indexes on a real database: their documents, and their removal with it.

use std::sync::Arc;

use settee_database::tasks::Tasks;
use settee_database::{Catalog, Database, DatabaseOptions, DocUpdate, EditMode, ReadClient, Reader, Waiting, Work};
use settee_model::json::Json;
use settee_model::{Document, Rev, RevisionHasher};
use settee_storage::memory::MemoryEngine;
use settee_storage::nonblocking::attempt;
use settee_storage::{Engine, Shard};
use settee_storage_testing::engine;

use super::{Rows, ddoc, settings};
use crate::query::{Update, ViewQuery};
use crate::testing::Rules;
use crate::{Answer, Views};

pub(super) fn views(engine: Arc<dyn Engine>) -> (Arc<Catalog>, Views) {
    let catalog = Arc::new(Catalog::open(engine, 7).unwrap());
    let languages = Arc::new(|_: &str| Some(Rules::shared()));
    let views = Views::new(Arc::clone(&catalog), languages, Tasks::new(|| 0), Arc::new(|_| {}), settings(2, 1 << 20));
    (catalog, views)
}

fn write(database: &Arc<Database>, text: &str) -> Rev {
    let json = Json::parse(text.as_bytes()).unwrap();
    let mut document = Document::parse(json.value()).unwrap();
    let id = document.id.take().unwrap();
    let mode = EditMode::Interactive;
    let update = DocUpdate::prepare(id, document, mode, &mut RevisionHasher::default()).unwrap();
    match database.update(Work::Documents(vec![update])).unwrap().pop() {
        Some(settee_database::UpdateOutcome::Saved(rev)) => rev,
        other => panic!("{other:?}"),
    }
}

fn ids(views: &Views, database: &Arc<Database>, design: &settee_design::DesignDocument) -> String {
    let mut rows = Rows::default();
    let answer = views.query(database, design, "v", &ViewQuery::default(), &mut rows).unwrap();
    assert_eq!(answer, Answer::Complete);
    let rows: Vec<String> = rows.map.iter().map(|(key, id, value)| format!("{key}:{id}:{value}")).collect();
    rows.join(" ")
}

#[test]
fn indexes_follow_a_database_and_go_with_it() {
    let engine: Arc<dyn Engine> = engine();
    let (catalog, views_now) = views(Arc::clone(&engine));
    let database = catalog
        .create("db", DatabaseOptions { created_ms: 0, instance: 1, layout: settee_database::Layout::Whole, q: 1 })
        .unwrap();
    let design = ddoc(r#""v": {"map": "value k v"}"#);
    assert_eq!(ids(&views_now, &database, &design), "");
    let first = write(&database, r#"{"_id":"a","k":[2,"x"],"v":1}"#);
    write(&database, r#"{"_id":"b","k":1,"v":{"n":null}}"#);
    write(&database, r#"{"_id":"_design/x","k":1,"v":1}"#);
    assert_eq!(ids(&views_now, &database, &design), r#"1:b:{"n":null} [2,"x"]:a:1"#);
    write(&database, &format!(r#"{{"_id":"a","_rev":"{first}","_deleted":true}}"#));
    assert_eq!(ids(&views_now, &database, &design), r#"1:b:{"n":null}"#);

    let (catalog, views_now) = views(Arc::clone(&engine));
    let database = catalog.database("db").unwrap();
    assert_eq!(views_now.info(&database, &design).unwrap().updates_pending, 0);
    assert_eq!(ids(&views_now, &database, &design), r#"1:b:{"n":null}"#);

    let mut local_seq = ddoc(r#""v": {"map": "value _local_seq _id"}"#);
    local_seq.options.local_seq = true;
    assert_eq!(ids(&views_now, &database, &local_seq), r#"2:b:"b""#);
    assert_eq!(views_now.cleanup(&database, std::slice::from_ref(&design), 0).unwrap(), 1);

    let used = || (0..100).filter(|&shard| engine.approximate_size(Shard(shard)) > 0).count();
    assert!(used() > 2);
    views_now.release(&database);
    catalog.delete("db").unwrap();
    assert_eq!(used(), 1, "only the catalog itself");
}

#[test]
fn an_attempt_builds_nothing_and_calls_no_functions() {
    let (catalog, views) = views(Arc::new(MemoryEngine::new()));
    let options = DatabaseOptions { created_ms: 0, instance: 1, layout: settee_database::Layout::Whole, q: 1 };
    let database = catalog.create("db", options).unwrap();
    let design = ddoc(
        r#""age": {"map": "value age name"}, "sum": {"map": "value age name", "reduce": "_count"},
        "custom": {"map": "value age name", "reduce": "summary"}"#,
    );
    let client = ReadClient::default();
    let query_with = |view: &str, query: &ViewQuery, waiting: Waiting<'_>| {
        let reader = (&Reader::Administrator, &client, waiting);
        views.query_as(&database, reader, &design, view, query, &mut Rows::default()).is_ok()
    };
    let query = |view: &str, waiting: Waiting<'_>| query_with(view, &ViewQuery::default(), waiting);
    let attempts = || ["age", "sum", "custom"].map(|view| attempt(|waiting| query(view, waiting)));
    for age in 30..36 {
        write(&database, &format!(r#"{{"_id":"p{age}","name":"Ann","age":{age}}}"#));
        assert_eq!(attempts(), [None; 3], "the index is behind");
        assert!(query("custom", Waiting::Allowed));
        assert_eq!(attempts(), [Some(true), Some(true), None]);
    }
    let lazy = ViewQuery { update: Update::Lazy, ..ViewQuery::default() };
    let lazily = |waiting: Waiting<'_>| query_with("age", &lazy, waiting);
    assert_eq!((attempt(lazily), lazily(Waiting::Allowed)), (None, true), "the lag is read from the store");
}

#[test]
fn purges_of_a_real_database_reach_its_indexes() {
    let engine: Arc<dyn Engine> = engine();
    let (catalog, views) = views(engine);
    let options = DatabaseOptions { created_ms: 0, instance: 1, layout: settee_database::Layout::Whole, q: 1 };
    let database = catalog.create("db", options).unwrap();
    let design = ddoc(r#""v": {"map": "value k v"}"#);
    let purge = |id: &str, rev: &Rev| {
        let purge = settee_database::Purge { id: id.to_owned(), revs: vec![rev.clone()] };
        database.update(Work::Purge(vec![purge])).unwrap();
    };
    let revs: Vec<Rev> =
        ["a", "b", "c", "d"].iter().map(|id| write(&database, &format!(r#"{{"_id":"{id}","k":1,"v":1}}"#))).collect();
    assert_eq!(ids(&views, &database, &design), "1:a:1 1:b:1 1:c:1 1:d:1");
    purge("a", &revs[0]);
    assert_eq!(ids(&views, &database, &design), "1:b:1 1:c:1 1:d:1");
    purge("b", &revs[1]);
    write(&database, r#"{"_id":"b","k":2,"v":2}"#);
    assert_eq!(ids(&views, &database, &design), "1:c:1 1:d:1 2:b:2");
    // The index misses purges whose records were removed.
    database.update(Work::SetPurgedInfosLimit(1)).unwrap();
    purge("c", &revs[2]);
    purge("d", &revs[3]);
    let proceed = &mut || std::ops::ControlFlow::Continue(());
    database.compact(&Tasks::new(|| 0), proceed).unwrap();
    assert_eq!(database.read().unwrap().purges_forgotten().unwrap(), 3);
    assert_eq!(ids(&views, &database, &design), "2:b:2");
    assert_eq!(views.info(&database, &design).unwrap().purge_seq, 4);
}

#[test]
fn a_compaction_runs_from_when_it_is_asked_for() {
    let (catalog, views) = views(engine());
    let options = DatabaseOptions { created_ms: 0, instance: 1, layout: settee_database::Layout::Whole, q: 1 };
    let (database, views) = (catalog.create("db", options).unwrap(), Arc::new(views));
    let (design, mut other) = (Arc::new(ddoc(r#""v": {"map": "value k v"}"#)), ddoc(r#""v": {"map": "value k v"}"#));
    other.id = Arc::from("_design/other");
    let is_running = |design| views.info(&database, design).unwrap().compact_running;
    assert!(!is_running(&design));
    let first = views.begin_compaction(&database, Arc::clone(&design));
    let second = views.begin_compaction(&database, Arc::clone(&design));
    assert!(is_running(&design) && !is_running(&other));
    first.run().unwrap();
    drop(first);
    assert!(is_running(&design), "the second one still is");
    drop(second);
    assert!(!is_running(&design));
}
