//! `_replicate`: responses, errors, and authorization of cancellations.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_replication_runs_to_its_end_and_has_nothing_to_do_the_second_time() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    for id in ["x", "y"] {
        world.put(&format!("/a/{id}"), "{}").await;
    }
    let first = world.post("/_replicate", r#"{"source":"a","target":"b"}"#).await;
    let history = first.value().get("history").unwrap().elements().next().unwrap();
    for (member, expected) in [("docs_read", 2), ("docs_written", 2), ("missing_found", 2), ("doc_write_failures", 0)] {
        assert_eq!(history.get(member).and_then(Value::as_u64), Some(expected), "{member}: {}", show(&first));
    }
    assert_eq!(world.get("/b/y").await.0, 200);
    let second = world.post("/_replicate", r#"{"source":"a","target":"b"}"#).await;
    assert_eq!(second.value().get("no_changes").and_then(Value::as_bool), Some(true), "{}", show(&second));
    assert_eq!(world.jobs().await, 0);
}

/// A source with recorded times accepts a date wherever it accepts a sequence.
#[tokio::test(start_paused = true)]
async fn a_replication_starts_at_a_date() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/x", "{}").await;
    tokio::time::advance(Duration::from_secs(4 * 3600)).await;
    world.put("/a/y", "{}").await;
    world.post("/_replicate", r#"{"source":"a","target":"b","since_seq":"2026-11-20T18:00:00Z"}"#).await;
    assert_eq!([world.get("/b/x").await.0, world.get("/b/y").await.0], [404, 200]);
}

#[tokio::test(start_paused = true)]
async fn refusals() {
    let world = World::new().await;
    world.databases(&["a"]).await;
    let anonymous = UserContext::anonymous();
    let cases = [
        (admin(), "[]", 400, "bad_request"),
        (admin(), "{}", 400, "bad_request"),
        (admin(), r#"{"source":"a"}"#, 400, "bad_request"),
        (admin(), r#"{"source":"ftp://a","target":"a"}"#, 400, "invalid_replication"),
        (admin(), r#"{"source":"a","target":"a","continuous":1}"#, 400, "bad_request"),
        (admin(), r#"{"source":"a","target":"a","query_params":1}"#, 400, "bad_request"),
        // The code of the filter is part of the id.
        (admin(), r#"{"source":"a","target":"a","filter":"no/such"}"#, 404, "not_found"),
        (admin(), r#"{"source":"none","target":"a","filter":"no/such"}"#, 404, "not_found"),
        (admin(), r#"{"source":"a","target":"none"}"#, 404, "db_not_found"),
        (admin(), r#"{"source":"none","target":"a"}"#, 404, "db_not_found"),
        (admin(), r#"{"replication_id":"none","cancel":true}"#, 404, "not_found"),
        (admin(), r#"{"source":"a","target":"a","cancel":true}"#, 404, "not_found"),
        (anonymous, r#"{"source":"a","target":"a"}"#, 401, "unauthorized"),
        (user("ann"), r#"{"source":"a","target":"a"}"#, 401, "unauthorized"),
    ];
    for (user, body, status, error) in cases {
        let (answered, json) = world.ask(&user, Method::POST, "/_replicate", body).await;
        assert_eq!(answered, status, "{body}: {}", show(&json));
        assert_eq!(text(json.value(), "error").as_deref(), Some(error), "{body}");
    }
    assert_eq!(world.jobs().await, 0, "what failed is gone");
}

/// Only CouchDB's legacy handler requires strings.
#[tokio::test(start_paused = true)]
async fn parameters_of_filters_may_be_any_json() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/_design/d", "{}").await;
    for value in ["1", "1.5", "-0", "true", "false", "null", "\"x\"", "[1]", "{\"a\":1}"] {
        let body = format!(r#"{{"source":"a","target":"b","filter":"_design","query_params":{{"n":{value}}}}}"#);
        world.post("/_replicate", &body).await;
    }
    assert_eq!(world.get("/b/_design/d").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn owners_and_admins_may_cancel_a_replication() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    for database in ["a", "b"] {
        world.put(&format!("/{database}/_security"), r#"{"members":{"names":["ann"]}}"#).await;
    }
    let begin = r#"{"source":"a","target":"b","continuous":true}"#;
    let cancel = r#"{"source":"a","target":"b","continuous":true,"cancel":true}"#;
    let (status, json) = world.ask(&user("ann"), Method::POST, "/_replicate", begin).await;
    assert_eq!(status, 202);
    let id = text(json.value(), "_local_id").unwrap();
    assert!(id.ends_with("+continuous"), "{id}");
    world.put("/a/x", "{}").await;
    world.until_found("/b/x").await;
    assert_eq!(world.ask(&user("ann"), Method::POST, "/_replicate", begin).await.0, 202);
    assert_eq!(world.jobs().await, 1);
    let by_id = format!("{{\"replication_id\":\"{id}\",\"cancel\":true}}");
    for body in [cancel, begin, by_id.as_str()] {
        assert_eq!(world.ask(&user("bob"), Method::POST, "/_replicate", body).await.0, 401, "{body}");
    }
    assert_eq!(world.jobs().await, 1);
    assert_eq!(world.ask(&user("ann"), Method::POST, "/_replicate", cancel).await.0, 200);
    assert_eq!(world.jobs().await, 0);
    assert_eq!(world.ask(&user("ann"), Method::POST, "/_replicate", begin).await.0, 202);
    let base = id.trim_end_matches("+continuous");
    let by_base = format!("{{\"_local_id\":\"{base}\",\"cancel\":true}}");
    assert_eq!(world.ask(&admin(), Method::POST, "/_replicate", &by_base).await.0, 200);
    assert_eq!(world.jobs().await, 0);
}

#[tokio::test(start_paused = true)]
async fn waiters_for_a_cancelled_replication_are_notified() {
    let (here, there) = World::pair().await;
    here.databases(&["a"]).await;
    there.databases(&["b"]).await;
    here.put("/a/x", "{}").await;
    *here.network.fault.lock() = Some(Fault::Status(500));
    let admin = admin();
    let body = r#"{"source":"a","target":"http://u:p@peer/b"}"#;
    let asking = here.ask(&admin, Method::POST, "/_replicate", body);
    let cancelling = async {
        let one = |_: u16, json: Value<'_>| json.get("total_rows").and_then(Value::as_u64) == Some(1);
        here.until("/_scheduler/jobs", "a job", one).await;
        here.post("/_replicate", &body.replace('}', r#","cancel":true}"#)).await
    };
    let ((status, json), _) = tokio::join!(asking, cancelling);
    assert_eq!((status, text(json.value(), "error").as_deref()), (500, Some("cancelled")), "{}", show(&json));
}

#[tokio::test(start_paused = true)]
async fn running_tasks_are_listed() {
    let (here, there) = World::pair().await;
    here.databases(&["a"]).await;
    there.databases(&["b"]).await;
    here.put("/a/x", "{}").await;
    let json =
        here.post("/_replicate", r#"{"source":"a","target":"http://user:SECRET@peer:81/b","continuous":true}"#).await;
    let id = text(json.value(), "_local_id").unwrap();
    there.until_found("/b/x").await;
    let written = |json: Value<'_>| json.get("docs_written").and_then(Value::as_u64) == Some(1);
    let path = format!("/_scheduler/jobs/{id}");
    let job = here.until(&path, "a written document", |_, json| json.get("info").is_some_and(written)).await;
    let expected = [
        ("database", None),
        ("doc_id", None),
        ("id", Some(id.as_str())),
        ("node", Some("node")),
        ("source", Some("a")),
        ("target", Some("http://peer:81/b/")),
        ("user", Some("admin")),
        ("start_time", Some("2026-11-20T14:28:37Z")),
    ];
    for (member, value) in expected {
        assert_eq!(text(job.value(), member).as_deref(), value, "{member}: {}", show(&job));
    }
    let history: Vec<_> =
        job.value().get("history").unwrap().elements().map(|event| text(event, "type").unwrap()).collect();
    assert_eq!(history, ["started", "added"]);
    let (_, tasks) = here.get("/_active_tasks").await;
    let task = tasks.value().elements().next().unwrap();
    assert_eq!(text(task, "type").as_deref(), Some("replication"));
    assert_eq!(text(task, "replication_id"), Some(id));
    assert_eq!(text(task, "target").as_deref(), Some("http://peer:81/b/"));
    assert_eq!(task.get("continuous").and_then(Value::as_bool), Some(true));
    assert!(written(task) && task.get("checkpoint_interval").is_some(), "{}", show(&tasks));
    assert_eq!(here.get("/_scheduler/jobs/none").await.0, 404);
    for path in ["/_scheduler/jobs", "/_scheduler/docs", "/_active_tasks"] {
        assert_eq!(here.ask(&user("ann"), Method::GET, path, "").await.0, 401, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn numbers_for_operators() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/x", "{}").await;
    let (status, _) = world.ask(&admin(), Method::POST, "/_replicate", r#"{"source":"a","target":"b"}"#).await;
    assert_eq!(status, 200);
    let goes = r#"{"source":"b","target":"a","continuous":true}"#;
    assert_eq!(world.ask(&admin(), Method::POST, "/_replicate", goes).await.0, 202);
    let lacking = r#"{"source":"nosuch","target":"a"}"#;
    assert!(world.ask(&admin(), Method::POST, "/_replicate", lacking).await.0 >= 400);
    let (_, stats) = world.get("/_node/_local/_stats/couch_replicator").await;
    let number = |path: &[&str]| {
        let found = path.iter().try_fold(stats.value(), |value, name| value.get(name));
        found.and_then(|value| value.get("value")?.as_u64()).unwrap_or_else(|| panic!("{path:?}: {}", show(&stats)))
    };
    let cases: [(&[&str], u64); 9] = [
        (&["jobs", "adds"], 3),
        (&["jobs", "starts"], 3),
        (&["jobs", "removes"], 2),
        (&["jobs", "crashes"], 1),
        (&["jobs", "total"], 1),
        (&["jobs", "running"], 1),
        (&["jobs", "pending"], 0),
        (&["checkpoints", "success"], 1),
        (&["failed_starts"], 1),
    ];
    for (path, expected) in cases {
        assert_eq!(number(path), expected, "{path:?}");
    }
    let kind = |name| text(stats.value().get("jobs").unwrap().get(name).unwrap(), "type").unwrap();
    assert_eq!((kind("adds"), kind("running")), ("counter".to_owned(), "gauge".to_owned()));
    assert_eq!(number(&["checkpoints", "failure"]) + number(&["responses", "failure"]), 0);
    assert!(number(&["requests"]) >= number(&["responses", "success"]) && number(&["responses", "success"]) > 5);
    assert_eq!(world.jobs().await, 1);
}
