//! Changes feeds through the whole server. Each test is a regression test for a difference from CouchDB.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::json::{Json, Value};

use super::json;
use super::live::Live;
use super::node::{Ask, World};

/// Creates the changes 2, 3 and 4; one of a design document, one of a document that was changed twice.
async fn world() -> World {
    let world = World::new();
    world.make_database("db");
    let first = world.admin("PUT /db/a", "{}").await;
    let rev = json(&first.body).value().get("rev").and_then(Value::as_str).unwrap().into_owned();
    world.admin("PUT /db/b", r#"{"b":1}"#).await;
    world.admin("PUT /db/_design/c", "{}").await;
    world.admin("PUT /db/a", &format!(r#"{{"_rev":"{rev}"}}"#)).await;
    world
}

fn number(seq: Value<'_>) -> String {
    seq.as_str().unwrap().split('-').next().unwrap().to_owned()
}

async fn feed(world: &World, line: &str, body: &str) -> String {
    let reply = world.ask(Ask::new(line).basic("admin", "pw").json(body)).await;
    assert_eq!(reply.status, 200, "{line}: {reply:?}");
    let (mut rows, mut end) = (Vec::new(), String::new());
    let mut add = |value: Value<'_>| match value.get("last_seq") {
        Some(seq) => end = format!("| {} {}", number(seq), show(value.get("pending").unwrap())),
        None => rows.push(number(value.get("seq").unwrap())),
    };
    let texts: Vec<Json> = match Json::parse(reply.body.as_bytes()) {
        Ok(whole) => vec![whole],
        Err(_) => {
            let lines = reply.body.lines().map(|line| line.strip_prefix("data: ").unwrap_or(line));
            lines.filter(|line| line.starts_with('{')).map(json).collect()
        }
    };
    for text in &texts {
        text.value().get("results").into_iter().flat_map(Value::elements).for_each(&mut add);
        add(text.value());
    }
    rows.push(end);
    rows.join(" ").trim_end().to_owned()
}

fn show(value: Value<'_>) -> &str {
    std::str::from_utf8(value.raw()).unwrap()
}

/// Regression: the feed reported no pending changes.
#[tokio::test]
async fn a_descending_feed_sends_the_preceding_changes() {
    let world = world().await;
    for (query, expected) in [
        ("", "4 3 2 | 2 0"),
        ("&limit=0", "| 4 3"),
        ("&limit=1", "4 | 4 2"),
        ("&limit=2", "4 3 | 3 1"),
        ("&limit=3", "4 3 2 | 2 0"),
        ("&limit=9", "4 3 2 | 2 0"),
        ("&since=3", "4 3 2 | 2 0"),
        ("&since=now&limit=1", "4 | 4 2"),
        ("&filter=_design", "3 | 3 2"),
    ] {
        assert_eq!(feed(&world, &format!("GET /db/_changes?descending=true{query}"), "").await, expected, "{query}");
    }
    let ids = async |ids: &str| {
        let line = "POST /db/_changes?descending=true&filter=_doc_ids";
        feed(&world, line, &format!(r#"{{"doc_ids":[{ids}]}}"#)).await
    };
    assert_eq!(ids(r#""b","a""#).await, "4 2 | 2 1");
    assert_eq!(ids("").await, "| 4 3");
    let selected = r#"{"selector":{"b":1}}"#;
    assert_eq!(feed(&world, "POST /db/_changes?descending=true&filter=_selector", selected).await, "2 | 2 0");
    let selected = r#"{"selector":{"_id":"a"}}"#;
    assert_eq!(feed(&world, "POST /db/_changes?descending=true&filter=_selector", selected).await, "4 | 2 0");
}

/// Regression: live feeds ignored the direction and waited after the first of all changes.
#[tokio::test]
async fn a_live_feed_in_descending_order_ends_at_the_first_change() {
    let world = world().await;
    for (query, expected) in [
        ("feed=continuous", "4 3 2 | 2 0"),
        ("feed=continuous&heartbeat=1000000", "4 3 2 | 2 0"),
        ("feed=continuous&limit=0", "| 4 3"),
        ("feed=continuous&limit=1", "4 | 4 2"),
        ("feed=continuous&limit=3", "4 3 2 | 2 0"),
        ("feed=continuous&limit=9", "4 3 2 | 2 0"),
        ("feed=continuous&include_docs=true&since=now", "4 3 2 | 2 0"),
        ("feed=longpoll", "4 3 2 | 2 0"),
        ("feed=longpoll&limit=2", "4 3 | 3 1"),
        ("feed=eventsource", "4 3 2"),
    ] {
        assert_eq!(feed(&world, &format!("GET /db/_changes?descending=true&{query}"), "").await, expected, "{query}");
    }
}

/// Regression: the feed waited for changes.
#[tokio::test]
async fn a_live_feed_with_a_negative_limit_ends_after_the_existing_changes() {
    let world = world().await;
    for (query, expected) in [
        ("feed=continuous&limit=-2", "2 3 4 | 4 0"),
        ("feed=continuous&limit=-1&heartbeat=1000000", "2 3 4 | 4 0"),
        ("feed=continuous&limit=-99999999999999999999", "2 3 4 | 4 0"),
        ("feed=continuous&limit=-2&since=now", "| 4 0"),
        ("feed=continuous&limit=-2&filter=_design", "3 | 4 2"),
        ("feed=eventsource&limit=-2", "2 3 4"),
    ] {
        assert_eq!(feed(&world, &format!("GET /db/_changes?{query}"), "").await, expected, "{query}");
    }
    let reply = world.ask(Ask::new("GET /db/_changes?feed=continuous&limit=-2&since=now").basic("admin", "pw")).await;
    assert!(reply.body.starts_with("{\"last_seq\""), "{reply:?}");
}

/// The feed has more rows than a batch.
#[tokio::test]
async fn a_live_feed_in_descending_order_goes_on_where_its_batch_ended() {
    let world = World::new();
    world.make_database("db");
    let text = "x".repeat(40_000);
    for id in 0..5 {
        world.admin(&format!("PUT /db/{id}"), &format!(r#"{{"text":"{text}"}}"#)).await;
    }
    let line = "GET /db/_changes?descending=true&feed=continuous&include_docs=true";
    assert_eq!(feed(&world, line, "").await, "5 4 3 2 1 | 1 0");
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_of_a_live_feed_counts_the_changes_since_the_last_wakeup() {
    let server = Live::start(&[]).await;
    for line in ["PUT /db", "PUT /db/a", "PUT /db/_design/c"] {
        assert_eq!(server.request(line, if line == "PUT /db" { "" } else { "{}" }).await.status, 201);
    }
    for (query, id, expected) in [
        ("feed=continuous&filter=_design&timeout=1000", "x", "\"pending\":1}"),
        ("feed=eventsource&filter=_design&limit=2&timeout=60000", "_design/x", "\"id\":\"_design/x\""),
    ] {
        let mut client = server.client().await;
        client.send(&format!("GET /db/_changes?{query}"), &[("Connection", "close")], "").await;
        client.read_until("_design/c").await;
        assert_eq!(server.request(&format!("PUT /db/{id}"), "{}").await.status, 201);
        let rest = String::from_utf8(client.rest().await).unwrap();
        assert!(rest.contains(expected), "{query}: {rest}");
    }
    let mut client = server.client().await;
    let line = "GET /db/_changes?feed=longpoll&filter=_design&since=now&timeout=60000";
    client.send(line, &[("Connection", "close")], "").await;
    client.read_until("results").await;
    assert_eq!(server.request("PUT /db/_design/y", "{}").await.status, 201);
    let rest = String::from_utf8(client.rest().await).unwrap();
    assert!(rest.contains("\"pending\":0}"), "{rest}");
    server.stop().await;
}

/// CouchDB looks up a hundred documents by id, and scans all changes for more.
#[tokio::test]
async fn nothing_is_pending_after_a_feed_of_many_ids() {
    let world = world().await;
    let ids = |count: usize| {
        let ids: Vec<String> = (1..count).map(|id| format!(r#""{id}""#)).chain(["\"a\"".to_owned()]).collect();
        format!(r#"{{"doc_ids":[{}]}}"#, ids.join(","))
    };
    assert_eq!(feed(&world, "POST /db/_changes?filter=_doc_ids", &ids(100)).await, "4 | 4 2");
    assert_eq!(feed(&world, "POST /db/_changes?filter=_doc_ids", &ids(101)).await, "4 | 4 0");
}
