//! Times of update sequences through the whole server, with a clock that the tests set.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::json::Value;

use super::json;
use super::node::{Ask, TestResponse, World};

/// 2025-11-28T00:00:00Z, the start of an interval.
const START_S: u64 = 1_764_288_000;

/// Creates changes at 00:00 (a, b), 03:01 (c) and 09:00 (d), the last of which is followed by four hours.
async fn world() -> World {
    let world = World::new();
    world.make_database("db");
    for (id, minutes) in [("a", 0), ("b", 179), ("c", 181), ("d", 540)] {
        world.back_to_s(START_S + minutes * 60);
        world.admin(&format!("PUT /db/{id}"), "{}").await;
    }
    world.back_to_s(START_S + 13 * 3600);
    world
}

async fn ask(world: &World, line: &str) -> TestResponse {
    world.ask(Ask::new(line).basic("admin", "pw")).await
}

async fn ids(world: &World, line: &str) -> String {
    let reply = ask(world, line).await;
    assert_eq!(reply.status, 200, "{line}: {reply:?}");
    let text = reply.body.replace(",\r\n", ",");
    let rows = text.split("\"id\":\"").skip(1).map(|rest| rest.split('"').next().unwrap());
    rows.collect::<Vec<_>>().join(" ")
}

const TIMES: &str = r#"["2025-11-28T00:00:00Z",2],["2025-11-28T03:00:00Z",1],["2025-11-28T09:00:00Z",1]"#;

fn answer(intervals: &str) -> String {
    format!(r#"200 {{"time_seq":{{"00000000-ffffffff":{{"node":[{intervals}]}}}}}}"#)
}

#[tokio::test]
async fn intervals_are_listed_and_discarded() {
    let world = world().await;
    assert_eq!(ask(&world, "GET /db/_time_seq").await.line(), answer(TIMES));
    assert_eq!(ask(&world, "HEAD /db/_time_seq").await.status, 200);
    assert_eq!(ask(&world, "GET /none/_time_seq").await.status, 404);
    for method in ["PUT", "POST", "COPY", "OPTIONS"] {
        let refused = world.ask(Ask::new(&format!("{method} /db/_time_seq")).basic("admin", "pw").json("{}")).await;
        assert_eq!(refused.line(), r#"405 {"error":"method_not_allowed","reason":"Only GET,DELETE allowed"}"#);
        assert_eq!(refused.header("allow"), "GET,DELETE");
    }
    assert_eq!(ask(&world, "DELETE /db/_time_seq").await.line(), r#"200 {"ok":true}"#);
    assert_eq!(ask(&world, "GET /db/_time_seq").await.line(), answer(""));
    world.admin("PUT /db/e", "{}").await;
    // The discarded changes may belong to the current interval, so the next one is recorded.
    let times = r#"["1970-01-01T00:00:00Z",4],["2025-11-28T15:00:00Z",1]"#;
    assert_eq!(ask(&world, "GET /db/_time_seq").await.line(), answer(times));
    world.admin("PUT /wide?q=8", "").await;
    world.admin("PUT /wide/a", "{}").await;
    assert_eq!(ask(&world, "GET /wide/_time_seq").await.line(), answer(r#"["2025-11-28T12:00:00Z",1]"#));
}

#[tokio::test]
async fn members_read_times_and_administrators_discard_them() {
    let world = world().await;
    world.node.make_users_database().await.unwrap();
    for name in ["member", "chief", "outsider"] {
        let document = format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"pw"}}"#);
        world.admin(&format!("PUT /_users/org.couchdb.user:{name}"), &document).await;
    }
    let security = r#"{"members":{"names":["member"]},"admins":{"names":["chief"]}}"#;
    world.admin("PUT /db/_security", security).await;
    let status = async |name: &str, line: &str| world.ask(Ask::new(line).basic(name, "pw")).await.status.as_u16();
    assert_eq!(world.ask(Ask::new("GET /db/_time_seq")).await.status, 401);
    for (name, reads, discards) in [("outsider", 403, 403), ("member", 200, 403), ("chief", 200, 200)] {
        assert_eq!(status(name, "GET /db/_time_seq").await, reads, "{name}");
        assert_eq!(status(name, "DELETE /db/_time_seq").await, discards, "{name}");
    }
}

#[tokio::test]
async fn a_feed_starts_at_a_date() {
    let world = world().await;
    for (date, expected) in [
        ("1000-01-01T01:01:01Z", "a b c d"),
        ("2025-11-27T23:59:59Z", "a b c d"),
        ("2025-11-28T00:00:00Z", "a b c d"),
        ("2025-11-28T02:59:59Z", "a b c d"),
        ("2025-11-28T03:00:00Z", "c d"),
        ("2025-11-28T08:59:59Z", "c d"),
        ("2025-11-28T09:00:00Z", "d"),
        ("2025-11-28T12:00:00Z", "d"),
        ("2025-11-28T12:00:01Z", ""),
        ("3000-02-03T04:05:00Z", ""),
    ] {
        for parameters in ["", "&feed=longpoll&timeout=0", "&feed=continuous&timeout=0", "&feed=eventsource&timeout=0"]
        {
            assert_eq!(ids(&world, &format!("GET /db/_changes?since={date}{parameters}")).await, expected, "{date}");
        }
        let line = format!("GET /db/_changes?since={date}&filter=_doc_ids&doc_ids=%5B%22b%22,%22c%22%5D");
        let filtered = expected.split(' ').filter(|id| ["b", "c"].contains(id)).collect::<Vec<_>>().join(" ");
        assert_eq!(ids(&world, &line).await, filtered, "{date}");
        assert_eq!(ids(&world, &format!("GET /db/_changes?since={date}&descending=true")).await, "d c b a");
    }
    let end = json(&ask(&world, "GET /db/_changes?since=3000-02-03T04:05:00Z").await.body);
    assert!(end.value().get("last_seq").and_then(Value::as_str).unwrap().starts_with("4-"));
    assert_eq!(end.value().get("pending").and_then(Value::as_u64), Some(0));
    let limited = json(&ask(&world, "GET /db/_changes?since=2025-11-28T03:00:00Z&limit=1").await.body);
    assert_eq!(limited.value().get("pending").and_then(Value::as_u64), Some(1));
    let invalid = ask(&world, "GET /db/_changes?since=2025-01-01Txx:yy:00Z").await;
    assert_eq!(invalid.line(), r#"400 {"error":"bad_request","reason":"invalid_time_format"}"#);
}

/// The entity tag depends on the start, which changes with the recorded times.
#[tokio::test]
async fn discarded_times_start_at_the_first_change() {
    let world = world().await;
    let line = "GET /db/_changes?since=2025-11-28T09:00:00Z";
    let tag = ask(&world, line).await.header("etag").to_owned();
    let again = async || world.ask(Ask::new(line).basic("admin", "pw").header("if-none-match", &tag)).await;
    assert_eq!(again().await.status, 304);
    ask(&world, "DELETE /db/_time_seq").await;
    assert_eq!(again().await.status, 200);
    assert_eq!(ids(&world, line).await, "a b c d");
}

#[tokio::test]
async fn times_before_the_earliest_one_are_not_recorded() {
    let world = World::new();
    world.make_database("db");
    world.back_to_s(1_754_006_399);
    world.admin("PUT /db/a", "{}").await;
    assert_eq!(ask(&world, "GET /db/_time_seq").await.line(), answer(""));
    world.set("couchdb", "time_seq_min_time", "1754006399");
    world.admin("PUT /db/b", "{}").await;
    let times = r#"["1970-01-01T00:00:00Z",1],["2025-08-01T00:00:00Z",1]"#;
    assert_eq!(ask(&world, "GET /db/_time_seq").await.line(), answer(times));
}

#[tokio::test]
async fn updates_of_databases_start_at_a_date() {
    let world = World::new();
    world.make_database("_global_changes");
    for (hours, name) in [(0, "one"), (3, "two")] {
        world.back_to_s(START_S + hours * 3600);
        let events = [(name.to_owned(), settee_database::DatabaseEventKind::Created)];
        world.node.catalog.keep_events(&events).unwrap();
    }
    for (date, expected) in [("2025-11-28T02:59:59Z", vec!["one", "two"]), ("2025-11-28T03:00:00Z", vec!["two"])] {
        let reply = json(&ask(&world, &format!("GET /_db_updates?since={date}")).await.body);
        let rows = reply.value().get("results").unwrap().elements();
        let names: Vec<String> = rows.map(|row| row.get("db_name").unwrap().as_str().unwrap().into_owned()).collect();
        assert_eq!(names, expected, "{date}");
    }
    let invalid = ask(&world, "GET /_db_updates?since=2025-02-30T00:00:00Z").await;
    assert_eq!(invalid.line(), r#"400 {"error":"bad_request","reason":"invalid_time_format"}"#);
}
