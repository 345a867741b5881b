//! Lists of documents and databases through the whole server: regression tests for differences from CouchDB.
#![expect(clippy::unwrap_used, reason = "tests")]

use super::json;
use super::node::{Ask, World};

/// Creates two design documents among five others, some of which precede them, and two local documents.
async fn world() -> World {
    let world = World::new();
    world.make_database("db");
    for id in ["_local/l1", "_local/l2", "_design/a", "_design/b", "A", "B", "a", "b", "c"] {
        assert_eq!(world.admin(&format!("PUT /db/{id}"), "{}").await.status, 201, "{id}");
    }
    world
}

/// Rows are in short form: ids, and in parentheses the keys without a document.
async fn list(world: &World, line: &str, body: &str) -> String {
    let ask = Ask::new(line).basic("admin", "pw").header("accept", "application/json").json(body);
    let reply = world.ask(ask).await;
    if reply.status != 200 {
        return reply.line();
    }
    let body = json(&reply.body);
    let raw = |value: settee_model::json::Value<'_>| String::from_utf8(value.raw().to_vec()).unwrap();
    let head = body.value().members().filter(|(name, _)| !name.is_string("rows")).map(|(_, value)| match raw(value) {
        seq if seq.starts_with('"') => "SEQ".to_owned(),
        other => other,
    });
    let rows = body.value().get("rows").into_iter().flat_map(settee_model::json::Value::elements);
    let rows = rows.map(|row| match row.get("id") {
        Some(id) => id.as_str().unwrap().into_owned(),
        None => format!("({})", raw(row.get("key").unwrap())),
    });
    format!("{}: {}", head.collect::<Vec<_>>().join(" "), rows.collect::<Vec<_>>().join(" "))
}

#[tokio::test]
async fn the_offset_of_design_documents_counts_all_documents_up_to_their_number() {
    let world = world().await;
    for (line, expected) in [
        ("GET /db/_design_docs", "2 2: _design/a _design/b"),
        ("GET /db/_design_docs?descending=true", "2 2: _design/b _design/a"),
        ("GET /db/_design_docs?startkey=%22b%22", "2 2: "),
        ("GET /db/_design_docs?key=%22_design/b%22", "2 2: _design/b"),
        ("GET /db/_all_docs?startkey=%22_design/b%22&limit=2", "7 3: _design/b a"),
        ("GET /db/_all_docs?startkey=%22_design/b%22&descending=true&limit=2", "7 3: _design/b _design/a"),
    ] {
        assert_eq!(list(&world, line, "").await, expected, "{line}");
    }
}

/// `skip` and `limit` count keys before those of other kinds are removed.
#[tokio::test]
async fn keys_of_other_kinds_have_no_rows_among_design_and_local_documents() {
    let world = world().await;
    let keys = r#"{"keys":["_design/b","a",1,"_local/l2","_design/z","_local/z"]}"#;
    for (line, expected) in [
        ("POST /db/_design_docs", r#"2 null: _design/b ("_design/z")"#),
        ("POST /db/_design_docs?limit=2&skip=1", "2 null: "),
        ("POST /db/_local_docs", r#"null null: _local/l2 ("_local/z")"#),
        ("POST /db/_local_docs?limit=2", "null null: "),
        ("POST /db/_local_docs?skip=3&limit=2", "null null: _local/l2"),
        ("POST /db/_local_docs?descending=true", r#"null null: ("_local/z") _local/l2"#),
        ("POST /db/_all_docs?limit=4", "7 null: _design/b a (1) _local/l2"),
        ("POST /db/_all_docs?skip=5", r#"7 null: ("_local/z")"#),
    ] {
        assert_eq!(list(&world, line, keys).await, expected, "{line}");
    }
}

#[tokio::test]
async fn checkpoints_of_couchdb_are_listed_on_request() {
    let world = world().await;
    for id in ["_local/purge-mrview-x", "_local/purges", "_local/shard-sync-x-y"] {
        world.admin(&format!("PUT /db/{id}"), "{}").await;
    }
    let all = "null null: _local/l1 _local/l2 _local/purge-mrview-x _local/purges _local/shard-sync-x-y";
    for (line, expected) in [
        ("GET /db/_local_docs", "null null: _local/l1 _local/l2 _local/purges"),
        ("GET /db/_local_docs?limit=3", "null null: _local/l1 _local/l2 _local/purges"),
        ("GET /db/_local_docs?descending=true&skip=1", "null null: _local/l2 _local/l1"),
        ("GET /db/_local_docs?include_system=true", all),
        ("GET /db/_local_docs?include_system=1", "null null: _local/l1 _local/l2 _local/purges"),
        ("GET /db/_local_docs?keys=%5B%22_local/purge-mrview-x%22%5D", "null null: _local/purge-mrview-x"),
    ] {
        assert_eq!(list(&world, line, "").await, expected, "{line}");
    }
    assert_eq!(list(&world, "POST /db/_local_docs", r#"{"include_system":true}"#).await, all);
}

#[tokio::test]
async fn lists_of_keys_and_of_local_documents_have_no_sequence() {
    let world = world().await;
    for (line, expected) in [
        ("GET /db/_all_docs?update_seq=true&key=%22a%22", "7 4 SEQ: a"),
        ("GET /db/_all_docs?update_seq=true&keys=%5B%22a%22%5D", "7 null null: a"),
        ("GET /db/_design_docs?update_seq=true&limit=1", "2 2 SEQ: _design/a"),
        ("GET /db/_local_docs?update_seq=true&limit=1", "null null null: _local/l1"),
        ("GET /db/_local_docs?update_seq=false&limit=1", "null null: _local/l1"),
    ] {
        assert_eq!(list(&world, line, "").await, expected, "{line}");
    }
}

#[tokio::test]
async fn lists_of_databases_are_checked_as_lists_of_documents() {
    let world = World::new();
    for name in ["a", "b", "c"] {
        world.make_database(name);
    }
    let check = async |query: &str, expected: &str| {
        let ask = async |path: &str| world.ask(Ask::new(&format!("GET {path}?{query}")).basic("admin", "pw")).await;
        let reply = ask("/_all_dbs").await;
        let reply = if reply.status == 200 { reply.body } else { reply.line() };
        assert_eq!(reply.trim_end(), expected, "{query}");
        let infos = ask("/_dbs_info").await;
        if infos.status != 200 {
            assert_eq!(infos.line(), expected, "{query}");
            return;
        }
        let infos = json(&infos.body);
        let keys = infos.value().elements().map(|info| info.get("key").unwrap().as_str().unwrap().into_owned());
        assert_eq!(
            format!("[{}]", keys.map(|key| format!("\"{key}\"")).collect::<Vec<_>>().join(",")),
            expected,
            "{query}"
        );
    };
    let refused = |reason: &str| format!(r#"400 {{"error":"query_parse_error","reason":"{reason}"}}"#);
    check("startkey=%22b%22", r#"["b","c"]"#).await;
    check("startkey=%22b%22&descending=true&inclusive_end=false&endkey=%22a%22", r#"["b"]"#).await;
    check("keys=%5B%22c%22%2C%22x%22%2C%22a%22%5D", r#"["c","a"]"#).await;
    check("keys=%5B%22c%22%2C%22x%22%2C%22a%22%5D&skip=1&descending=true", r#"["c"]"#).await;
    check("endkey=1", "[]").await;
    check("startkey=1&limit=1", r#"["a"]"#).await;
    check("reduce=false&group=false&group_level=0&limit=1", r#"["a"]"#).await;
    check("reduce=true", &refused("Reduce is invalid for map-only views.")).await;
    check("group=true", &refused("Invalid use of grouping on a map view.")).await;
    check("group_level=1", &refused("Invalid use of grouping on a map view.")).await;
    check("keys=1", &refused("`keys` must be an array of strings.")).await;
    check("partition=a", &refused("`partition` parameter is not supported on this db")).await;
    let both = refused("`keys` is incompatible with `key`, `start_key` and `end_key`");
    check("keys=%5B%22a%22%2C%22b%22%5D&key=%22a%22", &both).await;
    check("keys=%5B%22b%22%5D&startkey=%22a%22", r#"["a","b"]"#).await;
    check("keys=%5B%22b%22%5D&endkey=%22c%22", r#"["b","c"]"#).await;
}
