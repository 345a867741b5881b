//! Rows that the engine reads for requests of a member of a database with per-document access, and for the same requests
//! in a database of only this member's documents.

use std::fmt::Write as _;
use std::sync::Arc;

use settee_database::Engine;
use settee_storage::counting::CountingEngine;
use settee_storage::memory::MemoryEngine;

use super::access_feeds::last_seq_in;
use super::check_file;
use super::node::{Ask, TestResponse, World};

/// Numbers of documents in the databases.
const SIZES: [usize; 3] = [1_000, 10_000, 100_000];

const VISIBLE: usize = 100;

fn id(user: usize, number: usize) -> String {
    format!("{user:04}-{number:04}")
}

fn documents(users: std::ops::Range<usize>, is_listed: bool) -> String {
    let document = |(user, number): (usize, usize)| {
        let role = if number % 10 == 0 { format!(r#","team{user}""#) } else { String::new() };
        let access = if is_listed { format!(r#","_access":["u{user}"{role}]"#) } else { String::new() };
        format!(r#"{{"_id":"{}","kind":{},"at":{number}{access}}}"#, id(user, number), number % 10)
    };
    let pairs = users.flat_map(|user| (0..VISIBLE).map(move |number| (user, number)));
    format!(r#"{{"docs":[{}]}}"#, pairs.map(document).collect::<Vec<_>>().join(","))
}

const INDEX: &str = r#"{"index":{"fields":["kind","at"]},"ddoc":"i","name":"v"}"#;

async fn load(world: &World) {
    world.make_database("_users");
    for size in SIZES {
        world.admin(&format!("PUT /db{size}?access=true"), "").await;
        world.admin(&format!("PUT /db{size}/_security"), r#"{"members":{"roles":["_users"]}}"#).await;
        for begin in (0..size / VISIBLE).step_by(10) {
            let reply = world.admin(&format!("POST /db{size}/_bulk_docs"), &documents(begin..begin + 10, true)).await;
            assert_eq!(reply.status, 201);
        }
        world.admin(&format!("POST /db{size}/_index"), INDEX).await;
    }
    world.make_database("own");
    world.admin("POST /own/_bulk_docs", &documents(0..1, false)).await;
    world.admin("POST /own/_index", INDEX).await;
    let account = r#"{"name":"u0","type":"user","roles":["team0"],"password":"pw"}"#;
    world.admin("PUT /_users/org.couchdb.user:u0", account).await;
}

fn requests(since: &str, revs: &[String]) -> Vec<(&'static str, String, String)> {
    let row = |name, line: &str, body: &str| (name, line.to_owned(), body.to_owned());
    let wanted = revs.iter().enumerate().map(|(number, rev)| format!(r#"{{"id":"{}","rev":"{rev}"}}"#, id(0, number)));
    let wanted = format!(r#"{{"docs":[{}]}}"#, wanted.collect::<Vec<_>>().join(","));
    let view = "GET /DB/_design/i/_view/v";
    vec![
        row("a document", "GET /DB/0000-0001", ""),
        row("a missing document", "GET /DB/0001-none", ""),
        row("a foreign document", "GET /DB/0001-0001", ""),
        row("_all_docs, 100 rows", "GET /DB/_all_docs", ""),
        row("_all_docs, 10 rows of a range", "GET /DB/_all_docs?startkey=%220000-0040%22&limit=10", ""),
        row("_changes, 100 rows", "GET /DB/_changes?style=all_docs", ""),
        row("_bulk_get of 100", "POST /DB/_bulk_get?revs=true&latest=true", &wanted),
        row("_changes, one later row", &format!("GET /DB/_changes?since={since}"), ""),
        row("a group of a view, 10 rows", &format!("{view}?group_level=1&startkey=[3]&endkey=[3,%7B%7D]"), ""),
        row("10 rows of a view", &format!("{view}?reduce=false&startkey=[3]&endkey=[3,%7B%7D]"), ""),
        row("100 rows of a view", &format!("{view}?reduce=false"), ""),
        row("_find with an index, 10 results", "POST /DB/_find", r#"{"selector":{"kind":3}}"#),
        row("_find by id, 10 results", "POST /DB/_find", r#"{"selector":{"_id":{"$gt":"0000-0089"}}}"#),
        row("a write", "PUT /DB/new", r#"{"_access":["u0"],"kind":3}"#),
    ]
}

async fn ask(world: &World, database: &str, line: &str, body: &str) -> TestResponse {
    let line = line.replace("DB", database);
    let (caller, body) = match database {
        "own" => ("admin", body.replace(r#""_access":["u0"],"#, "")),
        _ => ("u0", body.to_owned()),
    };
    let ask = Ask::new(&line).basic(caller, "pw");
    world.ask(if body.is_empty() { ask } else { ask.json(&body) }).await
}

/// Returns the rows that the engine reads for each request.
async fn rows_of(world: &World, engine: &CountingEngine, database: &str) -> Vec<(&'static str, u64)> {
    let range = ask(world, database, "GET /DB/_all_docs?endkey=%220001%22", "").await.body;
    let revs = range.split(r#""rev":""#).skip(1).map(|rest| rest[..rest.find('"').unwrap()].to_owned());
    let revs: Vec<String> = revs.collect();
    assert_eq!(revs.len(), VISIBLE, "{database}");
    let since = last_seq_in(&ask(world, database, "GET /DB/_changes", "").await.body);
    let later = ask(world, database, "PUT /DB/later", r#"{"_access":["u0"],"kind":11}"#).await;
    assert_eq!(later.status, 201, "{later:?}");
    let mut counted = Vec::new();
    for (name, line, body) in requests(&since, &revs) {
        // The first request reads accounts, design documents and changes for the index.
        let _ = ask(world, database, &line.replace("/new", "/before"), &body).await;
        let before = engine.rows();
        let reply = ask(world, database, &line, &body).await;
        let is_absent = name.contains("missing") || name.contains("foreign");
        assert_eq!(reply.status.is_success(), !is_absent, "{line}: {reply:?}");
        counted.push((name, engine.rows() - before));
    }
    counted
}

#[tokio::test]
async fn the_rows_read_for_a_member_do_not_depend_on_the_size_of_the_database() {
    let engine = Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new())));
    let world = World::on(Arc::clone(&engine) as Arc<dyn Engine>);
    load(&world).await;
    let own = rows_of(&world, &engine, "own").await;
    let mut shared = Vec::new();
    for size in SIZES {
        shared.push(rows_of(&world, &engine, &format!("db{size}")).await);
    }
    let mut table = "  own  shared\n".to_owned();
    for (index, (name, own)) in own.iter().enumerate() {
        let of_sizes: Vec<u64> = shared.iter().map(|counted| counted[index].1).collect();
        assert!(of_sizes.iter().all(|rows| *rows == of_sizes[0]), "{name}: {of_sizes:?}");
        writeln!(table, "{own:5}  {:6}  {name}", of_sizes[0]).unwrap();
    }
    check_file("access_costs.txt", &table);
    foreign_and_missing_documents_are_read_alike(&world, &engine).await;
}

/// Reads of the document ID.
const READS: [(&str, &str); 9] = [
    ("GET /DB/ID", ""),
    ("GET /DB/ID?rev=1-a&attachments=true", ""),
    ("GET /DB/ID?open_revs=all", ""),
    ("GET /DB/ID/f", ""),
    ("POST /DB/_bulk_get", r#"{"docs":[{"id":"ID"},{"id":"ID","rev":"1-a"}]}"#),
    ("POST /DB/_all_docs?include_docs=true", r#"{"keys":["ID"]}"#),
    ("POST /DB/_revs_diff", r#"{"ID":["1-a"]}"#),
    ("POST /DB/_changes?filter=_doc_ids", r#"{"doc_ids":["ID"]}"#),
    ("POST /DB/_find", r#"{"selector":{"_id":"ID"}}"#),
];

async fn foreign_and_missing_documents_are_read_alike(world: &World, engine: &CountingEngine) {
    let database = format!("db{}", SIZES[0]);
    for (line, body) in READS {
        let mut counted = Vec::new();
        for id in ["0001-none", "0001-none", "0001-0001"] {
            let before = (engine.rows(), engine.calls());
            ask(world, &database, &line.replace("ID", id), &body.replace("ID", id)).await;
            counted.push((engine.rows() - before.0, engine.calls().since(before.1)));
        }
        assert_eq!(counted[1], counted[2], "{line} {body}");
    }
}
