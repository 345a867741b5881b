//! Documents in `_replicator` databases: life cycle, restarts, and authorization.

use super::*;

fn replication_members(json: &Json) -> Vec<(String, String)> {
    let members = json.value().members().filter_map(|(name, value)| {
        let name = name.as_str()?.into_owned();
        name.starts_with("_replication").then(|| (name, String::from_utf8_lossy(value.raw()).into_owned()))
    });
    members.collect()
}

#[tokio::test(start_paused = true)]
async fn a_document_runs_once_and_says_so() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/x", "{}").await;
    let put = world.put("/_replicator/r", r#"{"source":"a","target":"b"}"#).await;
    let state = world.until_state("r", "completed").await;
    assert_eq!(world.get("/b/x").await.0, 200);
    let info = state.value().get("info").unwrap();
    assert_eq!(info.get("docs_written").and_then(Value::as_u64), Some(1), "{}", show(&state));
    assert_eq!(text(state.value(), "start_time").as_deref(), Some("2026-11-20T14:28:37Z"));
    let (_, document) = world.get("/_replicator/r").await;
    assert_eq!(text(document.value(), "owner").as_deref(), Some("admin"));
    assert!(rev(&put).starts_with("1-") && rev(&document).starts_with("2-"), "one write: {}", show(&document));
    let members = replication_members(&document);
    let names: Vec<_> = members.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["_replication_state", "_replication_stats", "_replication_state_time"]);
    assert_eq!(world.jobs().await, 0);
    world.put("/a/y", "{}").await;
    let again = format!("{{\"_rev\":\"{}\",\"source\":\"a\",\"target\":\"b\"}}", rev(&document));
    world.put("/_replicator/r", &again).await;
    world.until_found("/b/y").await;
    world.until_state("r", "completed").await;
}

#[tokio::test(start_paused = true)]
async fn a_continuous_document_follows_its_changes_and_ends_with_it() {
    let world = World::new().await;
    world.databases(&["a", "b", "c"]).await;
    let put = world.put("/_replicator/r", r#"{"source":"a","target":"b","continuous":true}"#).await;
    world.put("/a/x", "{}").await;
    world.until_found("/b/x").await;
    let state = world.until_state("r", "running").await;
    let first = text(state.value(), "id").unwrap();
    // Changes of irrelevant members do not affect the replication.
    let same = format!("{{\"_rev\":\"{}\",\"source\":\"a\",\"target\":\"b\",\"continuous\":true,\"n\":1}}", rev(&put));
    let put = world.put("/_replicator/r", &same).await;
    let other = format!("{{\"_rev\":\"{}\",\"source\":\"a\",\"target\":\"c\",\"continuous\":true}}", rev(&put));
    let put = world.put("/_replicator/r", &other).await;
    world.until_found("/c/x").await;
    world.until(&format!("/_scheduler/jobs/{first}"), "the old job is gone", |status, _| status == 404).await;
    assert_eq!(world.jobs().await, 1);
    world.done(Method::DELETE, &format!("/_replicator/r?rev={}", rev(&put)), "").await;
    world.until_gone("/_scheduler/docs/_replicator/r").await;
    world.until("/_scheduler/jobs", "no job", |_, json| json.get("total_rows").unwrap().as_u64() == Some(0)).await;
}

#[tokio::test(start_paused = true)]
async fn jobs_go_on_after_a_restart_and_with_their_databases() {
    let world = World::new().await;
    world.databases(&["a", "b", "c", "team%2F_replicator"]).await;
    world.put("/_replicator/r", r#"{"source":"a","target":"b","continuous":true}"#).await;
    world.put("/_replicator/done", r#"{"source":"b","target":"c"}"#).await;
    world.put("/team%2F_replicator/r", r#"{"source":"a","target":"c","continuous":true}"#).await;
    world.put("/a/x", "{}").await;
    world.until_found("/b/x").await;
    world.until_found("/c/x").await;
    world.until_state("done", "completed").await;
    let world = world.restarted().await;
    world.put("/a/y", "{}").await;
    world.until_found("/b/y").await;
    world.until_found("/c/y").await;
    assert_eq!(world.jobs().await, 2, "what is done stays done");
    for path in ["/_scheduler/docs/team%2F_replicator/r", "/_scheduler/docs/team/_replicator/r"] {
        let (_, state) = world.get(path).await;
        assert_eq!(text(state.value(), "database").as_deref(), Some("team/_replicator"), "{}", show(&state));
    }
    let checkpoint = world.get("/_scheduler/docs/_replicator/r").await.1;
    let read = checkpoint.value().get("info").and_then(|info| info.get("docs_read")).and_then(Value::as_u64);
    assert_eq!(read, Some(2), "it continued, with its counts, where it had stopped: {}", show(&checkpoint));
    world.done(Method::DELETE, "/team%2F_replicator", "").await;
    world.until("/_scheduler/jobs", "one job", |_, json| json.get("total_rows").unwrap().as_u64() == Some(1)).await;
}

#[tokio::test(start_paused = true)]
async fn crashed_jobs_are_retried_with_backoff() {
    let world = World::new().await;
    world.databases(&["a"]).await;
    world.put("/_replicator/r", r#"{"source":"a","target":"late"}"#).await;
    let state = world.until_state("r", "crashing").await;
    assert_eq!(state.value().get("error_count").and_then(Value::as_u64), Some(1));
    let error = text(state.value().get("info").unwrap(), "error").unwrap();
    assert!(error.contains("late"), "{error}");
    let twice = |_: u16, json: Value<'_>| json.get("error_count").and_then(Value::as_u64) == Some(2);
    let begun = Instant::now();
    world.until("/_scheduler/docs/_replicator/r", "a second crash", twice).await;
    assert!(begun.elapsed() >= Duration::from_secs(29), "{:?}", begun.elapsed());
    let (_, document) = world.get("/_replicator/r").await;
    assert_eq!(replication_members(&document), [], "states that pass are not written");
    world.databases(&["late"]).await;
    let begun = Instant::now();
    world.until_state("r", "completed").await;
    assert!(begun.elapsed() < Duration::from_secs(70), "{:?}", begun.elapsed());
}

#[tokio::test(start_paused = true)]
async fn states_that_pass_are_written_where_that_is_wanted() {
    let world = World::new().await;
    world.set("update_docs", "true");
    world.databases(&["a", "b"]).await;
    world.put("/_replicator/bad", r#"{"source":"a","target":"none"}"#).await;
    world.put("/_replicator/good", r#"{"source":"a","target":"b","continuous":true}"#).await;
    for (id, state) in [("bad", "error"), ("good", "triggered")] {
        let is = |_: u16, json: Value<'_>| text(json, "_replication_state").as_deref() == Some(state);
        let document = world.until(&format!("/_replicator/{id}"), state, is).await;
        let job = text(document.value(), "_replication_id");
        let (_, shown) = world.get(&format!("/_scheduler/docs/_replicator/{id}")).await;
        assert_eq!(job, text(shown.value(), "id"), "{}", show(&document));
    }
    world.set("update_docs", "false");
    let world = world.restarted().await;
    let is = |_: u16, json: Value<'_>| json.get("_replication_state").is_none();
    world.until("/_replicator/good", "old states are taken out", is).await;
}

#[tokio::test(start_paused = true)]
async fn of_two_documents_that_want_the_same_one_fails() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/_replicator/first", r#"{"source":"a","target":"b","continuous":true}"#).await;
    world.until_state("first", "running").await;
    world.put("/_replicator/second", r#"{"source":"a","target":"b","continuous":true}"#).await;
    let state = world.until_state("second", "failed").await;
    let error = text(state.value().get("info").unwrap(), "error").unwrap();
    assert!(error.ends_with("already started, triggered by document `first` from db `_replicator`"), "{error}");
    assert_eq!(world.jobs().await, 1);
    // A transient replication may end, so the document waits.
    world.post("/_replicate", r#"{"source":"b","target":"a","continuous":true}"#).await;
    world.put("/_replicator/third", r#"{"source":"b","target":"a","continuous":true}"#).await;
    world.until_state("third", "error").await;
    world.post("/_replicate", r#"{"source":"b","target":"a","continuous":true,"cancel":true}"#).await;
    world.until_state("third", "running").await;
}

/// The ids of these jobs have the same base and different extensions.
#[tokio::test(start_paused = true)]
async fn a_one_shot_job_completes_next_to_a_continuous_one() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/x", "{}").await;
    world.put("/_replicator/follows", r#"{"source":"a","target":"b","continuous":true}"#).await;
    world.until_state("follows", "running").await;
    world.put("/_replicator/once", r#"{"source":"a","target":"b"}"#).await;
    world.until_state("once", "completed").await;
    world.put("/_replicator/again", r#"{"source":"a","target":"b"}"#).await;
    world.until_state("again", "completed").await;
    let answer = world.post("/_replicate", r#"{"source":"a","target":"b"}"#).await;
    assert_eq!(answer.value().get("ok").and_then(Value::as_bool), Some(true), "{}", show(&answer));
    world.until_state("follows", "running").await;
    world.put("/a/y", "{}").await;
    world.until_found("/b/y").await;
}

#[tokio::test(start_paused = true)]
async fn documents_that_describe_nothing_are_refused_or_fail() {
    let world = World::new().await;
    let cases = [
        ("{}", "Missing replicator database"),
        (r#"{"source":"a"}"#, "Missing replicator database"),
        (r#"{"source":"a","target":"b","doc_ids":1}"#, "parameter `doc_ids` must be an array"),
        (
            r#"{"source":"a","target":"b","filter":"f/f","doc_ids":[]}"#,
            "`doc_ids`,`filter`,`selector` are mutually exclusive",
        ),
        (r#"{"source":"a","target":"ftp://b"}"#, "endpoint has an invalid url"),
    ];
    for (document, reason) in cases {
        let (status, json) = world.ask(&admin(), Method::PUT, "/_replicator/r", document).await;
        assert_eq!(status, 403, "{document}: {}", show(&json));
        assert_eq!(text(json.value(), "reason").as_deref(), Some(reason), "{document}");
        let bulk = format!("{{\"docs\":[{}]}}", document.replacen('{', "{\"_id\":\"r\",", 1).replace(",}", "}"));
        let json = world.post("/_replicator/_bulk_docs", &bulk).await;
        let row = json.value().elements().next().unwrap();
        assert_eq!(text(row, "reason").as_deref(), Some(reason), "{bulk}");
    }
    // A replicated document is accepted without validation and checked later.
    let bulk = r#"{"new_edits":false,"docs":[{"_id":"r","_rev":"1-a","source":"a"}]}"#;
    world.post("/_replicator/_bulk_docs", bulk).await;
    let state = world.until_state("r", "failed").await;
    let error = text(state.value().get("info").unwrap(), "error");
    assert_eq!(error.as_deref(), Some("Missing replicator database"));
    world.put("/_replicator/_design/d", "{}").await;
    let (_, list) = world.get("/_scheduler/docs").await;
    assert_eq!(list.value().get("total_rows").and_then(Value::as_u64), Some(1), "{}", show(&list));
}

#[tokio::test(start_paused = true)]
async fn the_list_of_documents_takes_parameters() {
    let world = World::new().await;
    world.databases(&["a", "b"]).await;
    for (id, target) in [("r1", "none"), ("r2", "b"), ("r3", "none2"), ("r4", "none3")] {
        world.put(&format!("/_replicator/{id}"), &format!("{{\"source\":\"a\",\"target\":\"{target}\"}}")).await;
    }
    world.until_state("r2", "completed").await;
    for id in ["r1", "r3", "r4"] {
        world.until_state(id, "crashing").await;
    }
    let cases = [
        ("", "r1 r2 r3 r4"),
        ("?limit=2", "r1 r2"),
        ("?skip=1&limit=2", "r2 r3"),
        ("?descending=true", "r4 r3 r2 r1"),
        ("?states=crashing", "r1 r3 r4"),
        ("?states=Completed,failed", "r2"),
        ("?states=crashing&skip=1&limit=1", "r3"),
        ("?startkey=%22r2%22&endkey=%22r3%22", "r2 r3"),
        ("?limit=0", ""),
    ];
    for (query, expected) in cases {
        let ids = |json: Value<'_>| {
            let docs = json.get("docs").into_iter().flat_map(Value::elements);
            docs.filter_map(|row| text(row, "doc_id")).collect::<Vec<_>>().join(" ")
        };
        let path = format!("/_scheduler/docs/_replicator{query}");
        let list = world.until(&path, expected, |_, json| ids(json) == expected).await;
        assert_eq!(list.value().get("total_rows").and_then(Value::as_u64), Some(4), "{query}");
    }
    let refused = [
        ("/_scheduler/docs?states=x", 400),
        ("/_scheduler/docs/a", 400),
        ("/_scheduler/docs/none/_replicator", 404),
        ("/_scheduler/docs/_replicator/none", 404),
        ("/_scheduler/jobs?limit=x", 400),
    ];
    for (path, status) in refused {
        assert_eq!(world.get(path).await.0, status, "{path}");
    }
}

async fn shared() -> World {
    let world = World::new().await;
    world.put("/_replicator/_security", r#"{"members":{"names":["ann","bob"]}}"#).await;
    world
}

#[tokio::test(start_paused = true)]
async fn documents_belong_to_their_writer() {
    let world = shared().await;
    let (ann, bob) = (user("ann"), user("bob"));
    let document = r#"{"source":"a","target":"b"}"#;
    let (status, put) = world.ask(&ann, Method::PUT, "/_replicator/r", document).await;
    assert_eq!(status, 201);
    let revision = rev(&put);
    let with = |members: &str| format!("{{\"_rev\":\"{revision}\",\"source\":\"a\",\"target\":\"b\"{members}}}");
    let refused = [
        (&bob, Method::PUT, "/_replicator/r".to_owned(), with("")),
        (&bob, Method::PUT, "/_replicator/r".to_owned(), with(r#","owner":"bob""#)),
        (&bob, Method::PUT, "/_replicator/r".to_owned(), with(r#","owner":"ann""#)),
        (&bob, Method::DELETE, format!("/_replicator/r?rev={revision}"), String::new()),
        (&ann, Method::PUT, "/_replicator/r".to_owned(), with(r#","owner":"admin""#)),
        (&ann, Method::PUT, "/_replicator/new".to_owned(), document.replace('}', r#","owner":"admin"}"#)),
        (
            &ann,
            Method::PUT,
            "/_replicator/new".to_owned(),
            document.replace('}', r#","user_ctx":{"roles":["_admin"]}}"#),
        ),
        (&ann, Method::PUT, "/_replicator/new".to_owned(), document.replace('}', r#","user_ctx":{"name":"bob"}}"#)),
    ];
    for (user, method, path, body) in refused {
        let (status, json) = world.ask(user, method.clone(), &path, &body).await;
        assert_eq!(status, 403, "{method} {path} {body}: {}", show(&json));
    }
    for members in [r#","owner":"admin""#, r#","owner":"ann","user_ctx":{"roles":["_admin"]}"#] {
        let docs =
            format!(r#"{{"new_edits":false,"docs":[{{"_id":"n","_rev":"1-a","source":"a","target":"b"{members}}}]}}"#);
        let (_, json) = world.ask(&ann, Method::POST, "/_replicator/_bulk_docs", &docs).await;
        let row = json.value().elements().next().expect("a refusal");
        assert_eq!(text(row, "error").as_deref(), Some("forbidden"), "{docs}");
    }
    let put = world.put("/_replicator/r", &with(r#","owner":"ann","n":1"#)).await;
    let (status, _) = world.ask(&ann, Method::DELETE, &format!("/_replicator/r?rev={}", rev(&put)), "").await;
    assert_eq!(status, 200);
    assert_eq!(world.ask(&bob, Method::PUT, "/_replicator/r", document).await.0, 201);
}

#[tokio::test(start_paused = true)]
async fn a_document_has_the_permissions_of_its_owner() {
    let world = shared().await;
    world.databases(&["a", "b"]).await;
    world.put("/a/x", "{}").await;
    let document = r#"{"source":"a","target":"b"}"#;
    assert_eq!(world.ask(&user("ann"), Method::PUT, "/_replicator/r", document).await.0, 201);
    let state = world.until_state("r", "crashing").await;
    let error = text(state.value().get("info").unwrap(), "error").unwrap();
    assert!(error.contains("unauthorized"), "{error}");
    for database in ["a", "b"] {
        world.put(&format!("/{database}/_security"), r#"{"members":{"names":["ann"]}}"#).await;
    }
    world.until_state("r", "completed").await;
    assert_eq!(world.get("/b/x").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn a_document_acts_with_the_roles_of_its_owners_account() {
    let world = shared().await;
    world.databases(&["_users", "a", "b"]).await;
    // This server has no JavaScript for the validation of user documents.
    let rules = "/_users/_design/_auth";
    tokio::time::sleep(settee_service::RULES_DELAY * 2).await;
    let path = format!("{rules}?rev={}", text(world.get(rules).await.1.value(), "_rev").unwrap());
    assert_eq!(world.ask(&admin(), Method::DELETE, &path, "").await.0, 200);
    world.put("/a/x", "{}").await;
    for database in ["a", "b"] {
        world.put(&format!("/{database}/_security"), r#"{"members":{"roles":["pilots"]}}"#).await;
    }
    let account = |roles: &str| format!(r#"{{"name":"ann","type":"user","password":"p","roles":[{roles}]}}"#);
    let put = world.put("/_users/org.couchdb.user:ann", &account(r#""crew""#)).await;
    let document = r#"{"source":"a","target":"b"}"#;
    assert_eq!(world.ask(&user("ann"), Method::PUT, "/_replicator/r", document).await.0, 201);
    let state = world.until_state("r", "crashing").await;
    let error = text(state.value().get("info").unwrap(), "error").unwrap();
    assert!(error.contains("unauthorized"), "{error}");
    let path = format!("/_users/org.couchdb.user:ann?rev={}", rev(&put));
    world.put(&path, &account(r#""crew","pilots""#)).await;
    world.until_state("r", "completed").await;
    assert_eq!(world.get("/b/x").await.0, 200);
}

#[tokio::test(start_paused = true)]
async fn others_see_no_credentials() {
    let world = shared().await;
    let document = r#"{"source":"http://ann:SECRET@h/a","target":{"url":"http://ann:SECRET@h/b","headers":{"Authorization":"Basic SECRET"}}}"#;
    assert_eq!(world.ask(&user("ann"), Method::PUT, "/_replicator/r", document).await.0, 201);
    let reads =
        ["/_replicator/r", "/_replicator/r?revs=true", "/_replicator/r?open_revs=all", "/_replicator/r?conflicts=true"];
    for path in reads {
        for (user, sees) in [(user("ann"), true), (admin(), true), (user("bob"), false)] {
            let (status, json) = world.ask(&user, Method::GET, path, "").await;
            assert_eq!(status, 200, "{path}");
            assert!(show(&json).contains("ann"), "{}", show(&json));
            assert_eq!(show(&json).contains("SECRET"), sees, "{path} as {:?}: {}", user.name, show(&json));
        }
    }
    let lists = [
        (Method::GET, "/_replicator/_all_docs?include_docs=true", ""),
        (Method::GET, "/_replicator/_changes?include_docs=true", ""),
        (Method::POST, "/_replicator/_bulk_get", r#"{"docs":[{"id":"r"}]}"#),
        (Method::POST, "/_replicator/_find", r#"{"selector":{}}"#),
        (Method::GET, "/_replicator/_design/d/_view/v", ""),
        (Method::POST, "/_replicator/_all_docs/queries", "{}"),
        (Method::GET, "/_replicator/_partition/p/_all_docs", ""),
        (Method::POST, "/_replicator/_temp_view", "{}"),
    ];
    for (method, path, body) in lists {
        let (status, json) = world.ask(&user("bob"), method, path, body).await;
        assert!([401, 403].contains(&status), "{path}: {status} {}", show(&json));
    }
    assert_eq!(world.ask(&user("bob"), Method::GET, "/_replicator/none", "").await.0, 404);
}
