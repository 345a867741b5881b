//! Revisions in lists, multipart bodies and feeds.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::json::Value;

use super::json;
use super::node::{Ask, TestResponse, World};

fn world() -> World {
    let world = World::new();
    world.make_database("db");
    world
}

async fn ask(world: &World, line: &str, accept: &str, body: &str) -> TestResponse {
    world.ask(Ask::new(line).basic("admin", "pw").header("accept", accept).json(body)).await
}

fn rev(reply: &TestResponse) -> String {
    json(&reply.body).value().get("rev").and_then(Value::as_str).unwrap().into_owned()
}

/// Creates three revisions of `a`: the first adds the attachment `x`, the second adds `y`, the third has both.
async fn attached(world: &World) -> [String; 3] {
    let first = rev(&world.admin("PUT /db/a", r#"{"_attachments":{"x":{"data":"eHh4"}}}"#).await);
    let both = r#""_attachments":{"x":{"stub":true},"y":{"data":"eXl5"}}"#;
    let second = rev(&world.admin("PUT /db/a", &format!(r#"{{"_rev":"{first}",{both}}}"#)).await);
    let stubs = r#""_attachments":{"x":{"stub":true},"y":{"stub":true}}"#;
    let third = rev(&world.admin("PUT /db/a", &format!(r#"{{"_rev":"{second}",{stubs}}}"#)).await);
    [first, second, third]
}

/// Regression: `open_revs` ignored `atts_since`, so that every replicated edit transferred all attachments.
#[tokio::test]
async fn lists_of_revisions_have_the_attachments_that_came_since() {
    let world = world();
    let [first, second, third] = attached(&world).await;
    let other = "1-0000000000000000000000000000000b";
    let since = |revs: &[&str]| {
        let revs: Vec<String> = revs.iter().map(|rev| format!("%22{rev}%22")).collect();
        format!("&atts_since=%5B{}%5D", revs.join(","))
    };
    let named = format!("%5B%22{third}%22%5D");
    let earlier = format!("%5B%22{first}%22%5D&latest=true");
    for (parameter, with_data) in [
        (since(&[]), "xy"),
        (since(&[other]), "xy"),
        (since(&[&first]), "y"),
        (since(&[other, &first]), "y"),
        (since(&[&second]), ""),
        (since(&[&second, &first]), ""),
        (since(&[&third]), ""),
    ] {
        for open in [named.as_str(), "all", &earlier] {
            let line = format!("GET /db/a?open_revs={open}{parameter}");
            let list = ask(&world, &line, "application/json", "").await;
            assert_eq!(list.status, 200, "{line}");
            let list = json(&list.body);
            let document = list.value().elements().next().unwrap().get("ok").unwrap();
            let attachments = document.get("_attachments").unwrap();
            let parts = ask(&world, &line, "multipart/mixed", "").await.body;
            for (name, data) in [("x", "eHh4"), ("y", "eXl5")] {
                let attachment = attachments.get(name).unwrap();
                let is_wanted = with_data.contains(name);
                let found = attachment.get("data").map(|data| data.as_str().unwrap().into_owned());
                assert_eq!(found.as_deref(), is_wanted.then_some(data), "{line}");
                assert_eq!(attachment.get("stub").is_some(), !is_wanted, "{line}");
                assert_eq!(parts.contains(&name.repeat(3)), is_wanted, "{line}: {parts}");
            }
            assert_eq!(parts.matches(r#""follows":true"#).count(), with_data.len(), "{line}");
            assert_eq!(parts.matches(r#""stub":true"#).count(), 2 - with_data.len(), "{line}");
            assert_eq!(parts.contains("multipart/related"), !with_data.is_empty(), "{line}");
        }
    }
    let plain = ask(&world, &format!("GET /db/a?open_revs={named}"), "application/json", "").await.body;
    assert_eq!(plain.matches(r#""stub":true"#).count(), 2, "{plain}");
    let malformed = ask(&world, "GET /db/a?open_revs=all&atts_since=%22x%22", "application/json", "").await;
    assert_eq!(malformed.line(), r#"400 {"error":"bad_request","reason":"Invalid list of revisions"}"#);
}

#[tokio::test]
async fn a_part_for_a_missing_revision_names_the_revision_only() {
    let world = world();
    world.admin("PUT /db/a", "{}").await;
    let docs =
        r#"{"docs":[{"id":"a","rev":"1-b"},{"id":"nosuch","rev":"2-c"},{"id":"nosuch"},{"id":"_x","rev":"1-b"}]}"#;
    let parts = ask(&world, "POST /db/_bulk_get", "multipart/mixed", docs).await.body;
    for part in [
        r#"{"rev":"1-b","error":"not_found","reason":"missing"}"#,
        r#"{"rev":"2-c","error":"not_found","reason":"missing"}"#,
        r#"{"rev":"undefined","reason":"missing","id":"nosuch","error":"not_found"}"#,
    ] {
        assert!(parts.contains(part), "{part}: {parts}");
    }
    assert!(parts.contains(r#""id":"_x","error":"illegal_docid"}"#), "{parts}");
    let list = ask(&world, "POST /db/_bulk_get", "application/json", docs).await.body;
    assert!(list.contains(r#"{"error":{"rev":"1-b","reason":"missing","id":"a","error":"not_found"}}"#), "{list}");
}

async fn leaves(world: &World) {
    let docs = [
        r#"{"_id":"a","_revisions":{"start":3,"ids":["c","x","y"]},"_deleted":true}"#,
        r#"{"_id":"a","_revisions":{"start":2,"ids":["b","y"]},"n":2}"#,
        r#"{"_id":"a","_revisions":{"start":2,"ids":["d","y"]},"n":3}"#,
        r#"{"_id":"a","_rev":"1-a","n":1}"#,
        r#"{"_id":"b","_rev":"1-b","n":3}"#,
    ];
    world.admin("POST /db/_bulk_docs", &format!(r#"{{"new_edits":false,"docs":[{}]}}"#, docs.join(","))).await;
}

#[tokio::test]
async fn possible_ancestors_are_in_the_order_of_their_rank() {
    let world = world();
    leaves(&world).await;
    for (missing, ancestors) in [
        (r#"["9-z"]"#, r#","possible_ancestors":["2-d","2-b","1-a","3-c"]"#),
        (r#"["3-z","2-z"]"#, r#","possible_ancestors":["2-d","2-b","1-a"]"#),
        (r#"["1-z"]"#, ""),
    ] {
        let reply = ask(&world, "POST /db/_revs_diff", "application/json", &format!(r#"{{"a":{missing}}}"#)).await.body;
        assert!(reply.contains(&format!("]{ancestors}}}}}")), "{missing}: {reply}");
    }
}

/// Regression: selectors never received `_conflicts`.
#[tokio::test]
async fn selectors_of_feeds_see_conflicts_where_the_client_asks_for_them() {
    let world = world();
    leaves(&world).await;
    let conflicted = r#"{"selector":{"_conflicts":{"$exists":true}}}"#;
    let ids = async |query: &str, body: &str| -> String {
        let line = format!("POST /db/_changes?filter=_selector{query}");
        let reply = ask(&world, &line, "application/json", body).await;
        assert_eq!(reply.status, 200, "{line}: {}", reply.line());
        let body = json(&reply.body);
        let rows = body.value().get("results").unwrap();
        rows.elements().map(|row| row.get("id").unwrap().as_str().unwrap().into_owned()).collect()
    };
    for (query, expected) in [
        ("", ""),
        ("&conflicts=false", ""),
        ("&include_docs=true", ""),
        ("&conflicts=true", "a"),
        ("&conflicts=true&include_docs=true", "a"),
        ("&conflicts=true&descending=true", "a"),
        // Each leaf is passed as if it were the only one.
        ("&conflicts=true&style=all_docs", ""),
        ("&conflicts=true&include_docs=true&style=all_docs", ""),
    ] {
        assert_eq!(ids(query, conflicted).await, expected, "{query}");
    }
    assert_eq!(ids("&conflicts=true", r#"{"selector":{"_conflicts":{"$size":2}}}"#).await, "a");
    assert_eq!(ids("&conflicts=true", r#"{"selector":{"_revisions":{"$exists":true}}}"#).await, "");
    let all = r#"{"selector":{},"fields":["_id","_conflicts"]}"#;
    for style in ["main_only", "all_docs"] {
        let line = format!("POST /db/_changes?filter=_selector&conflicts=true&include_docs=true&style={style}");
        let shown = ask(&world, &line, "application/json", all).await.body;
        assert!(shown.contains(r#""doc":{"_id":"a","_conflicts":["2-b","1-a"]}"#), "{style}: {shown}");
        assert!(shown.contains(r#""doc":{"_id":"b"}"#), "{style}: {shown}");
    }
}

/// Regression: filter functions always received `_conflicts` and the whole history.
#[tokio::test]
async fn filter_functions_receive_the_request_of_the_client() {
    let world = world();
    leaves(&world).await;
    world.admin("PUT /db/_design/d", r#"{"filters":{"conflicted":"x","single":"x"}}"#).await;
    for (query, rows) in [
        ("conflicted", ""),
        ("conflicted&include_docs=true", ""),
        ("conflicted&conflicts=true", "a:2-d"),
        ("conflicted&conflicts=true&include_docs=true", "a:2-d"),
        ("conflicted&conflicts=true&style=all_docs", ""),
        ("single", "a:2-d b:1-b _design/d:"),
        ("single&style=all_docs", "a:2-d,2-b,1-a,3-c b:1-b _design/d:"),
    ] {
        let reply = ask(&world, &format!("GET /db/_changes?filter=d/{query}"), "application/json", "").await;
        assert_eq!(reply.status, 200, "{query}: {}", reply.line());
        let body = json(&reply.body);
        let text = |value: Value<'_>, name: &str| value.get(name).unwrap().as_str().unwrap().into_owned();
        let row = |row: Value<'_>| {
            let revs: Vec<String> = row.get("changes").unwrap().elements().map(|change| text(change, "rev")).collect();
            let id = text(row, "id");
            let revs = if id.starts_with('_') { String::new() } else { revs.join(",") };
            format!("{id}:{revs}")
        };
        let found: Vec<String> = body.value().get("results").unwrap().elements().map(row).collect();
        assert_eq!(found.join(" "), rows, "{query}");
    }
}

/// Row separators and line ends are those of CouchDB.
#[tokio::test]
async fn answers_have_couchdbs_line_ends() {
    let world = world();
    for id in ["a", "b"] {
        world.admin(&format!("PUT /db/{id}"), "{}").await;
    }
    let changes = ask(&world, "GET /db/_changes", "application/json", "").await.body;
    let ends: Vec<&str> =
        changes.split_inclusive('\n').map(|line| if line.ends_with("\r\n") { "crlf" } else { "lf" }).collect();
    assert_eq!(ends, ["lf", "crlf", "lf", "lf", "lf", "lf"], "{changes:?}");
    assert!(changes.starts_with("{\"results\":[\n{") && changes.contains("}\n],\n\"last_seq\":"), "{changes:?}");
    let found = ask(&world, "POST /db/_find", "application/json", r#"{"selector":{"_id":{"$gt":null}}}"#).await.body;
    let shape = found.split_once("\r\n],\r\n\"bookmark\": \"").unwrap();
    assert!(shape.0.starts_with("{\"docs\":[\r\n{") && shape.0.contains("},\r\n{"), "{found:?}");
    assert!(shape.1.ends_with("\"}\r\n\n"), "{found:?}");
}

#[tokio::test]
async fn limits_of_purges_are_for_administrators() {
    let world = world();
    world.admin("PUT /db/_security", r#"{"members":{"roles":[]},"admins":{"roles":[]}}"#).await;
    let closed = r#"401 {"error":"unauthorized","reason":"You are not a server admin."}"#;
    for line in ["GET /db/_purged_infos_limit", "PUT /db/_purged_infos_limit", "HEAD /db/_purged_infos_limit"] {
        let reply = world.ask(Ask::new(line).json("5")).await;
        assert_eq!(reply.status, 401, "{line}");
        assert!(line.starts_with("HEAD") || reply.line() == closed, "{line}: {}", reply.line());
    }
    assert_eq!(world.ask(Ask::new("GET /db/_purged_infos")).await.status, 200);
    let limit = ask(&world, "GET /db/_purged_infos_limit", "application/json", "").await;
    assert_eq!(limit.line(), "200 1000");
}

#[tokio::test]
async fn the_state_of_resharding_has_a_reason() {
    let world = World::new();
    let state = ask(&world, "GET /_reshard/state", "application/json", "").await;
    assert_eq!(state.line(), r#"200 {"state":"running","reason":null}"#);
    let summary = ask(&world, "GET /_reshard", "application/json", "").await;
    assert!(summary.body.starts_with(r#"{"state":"running","state_reason":null,"completed":0"#), "{}", summary.body);
}
