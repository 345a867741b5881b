//! Functions and text indexes of design documents for members of a database with per-document access.

use super::document_access::{BY_ID, MARK, TEXT, ask, world};
use super::node::World;

#[tokio::test]
async fn functions_receive_only_what_their_caller_may_read() {
    let world = world().await;
    for (caller, sees, counts, admins) in [
        ("anonymous", false, 0, "{}"),
        ("eve", false, 1, "{}"),
        ("bob", true, 1, "{}"),
        ("dba", true, 5, r#"{"admins":{"names":["dba"],"roles":["confidential"]}}"#),
    ] {
        let body = ask(&world, caller, "GET /db/_design/d/_show/both/secret", "").await.body;
        assert_eq!(body.contains(r#""text":"confidential""#), sees, "{caller}: {body}");
        assert_eq!(body.starts_with("[null,"), !sees, "{caller}: {body}");
        assert!(body.contains(&format!(r#""doc_count":{counts},"#)), "{caller}: {body}");
        assert!(body.contains(&format!(r#""secObj":{admins}"#)), "{caller}: {body}");
    }
}

#[tokio::test]
async fn lists_contain_the_rows_of_their_caller() {
    let world = world().await;
    world.admin("POST /db/_index", BY_ID).await;
    for (caller, ids) in [
        ("anonymous", vec![]),
        ("eve", vec!["mine"]),
        ("bob", vec!["secret"]),
        ("ann", vec!["hidden-confidential", "secret"]),
    ] {
        let total = ids.len();
        for path in ["_all_docs?include_docs=true", "by/id?reduce=false&include_docs=true"] {
            let body = ask(&world, caller, &format!("GET /db/_design/d/_list/rows/{path}"), "").await.body;
            let (head, rows) = body.split_once('\n').unwrap_or((body.as_str(), ""));
            assert_eq!(head, format!(r#"{{"total_rows":{total},"offset":0}}"#), "{caller}: {body}");
            let found: Vec<&str> = rows.lines().map(|row| row.split('"').nth(3).unwrap()).collect();
            assert_eq!(found, ids, "{caller}: {body}");
            assert_eq!(rows.matches(r#""doc":{"_id":"#).count(), total, "{caller}: {body}");
        }
        let body = ask(&world, caller, "GET /db/_design/d/_list/rows/by/id?group=true", "").await.body;
        assert_eq!(body.matches(r#""value":1"#).count(), total, "{caller}: {body}");
    }
}

#[tokio::test]
async fn updates_are_checked_as_writes() {
    let world = world().await;
    let design = r#"{"updates":{"same":"same",
        "steal":"[\"up\",{\"_id\":\"secret\",\"_access\":[\"eve\"]},{\"body\":\"x\"}]",
        "own":"[\"up\",{\"_id\":\"new\",\"_access\":[\"eve\"]},{\"body\":\"x\"}]",
        "foreign":"[\"up\",{\"_id\":\"other\",\"_access\":[\"ann\"]},{\"body\":\"x\"}]",
        "design":"[\"up\",{\"_id\":\"_design/x\"},{\"body\":\"x\"}]",
        "local":"[\"up\",{\"_id\":\"_local/secret\",\"own\":true},{\"body\":\"x\"}]"}}"#;
    world.admin("PUT /db/_design/u", design).await;
    for (caller, function, status) in [
        ("anonymous", "own", 401),
        ("anonymous", "same/secret", 200),
        ("eve", "steal", 403),
        ("eve", "steal/secret", 403),
        ("eve", "foreign", 403),
        ("eve", "design", 403),
        ("eve", "same/secret", 200),
        ("eve", "same/_local/secret", 200),
        ("eve", "local", 201),
        ("eve", "own", 201),
        ("eve", "same/mine", 201),
        ("ann", "foreign", 201),
        ("bob", "steal", 403),
        ("bob", "same/secret", 201),
    ] {
        let reply = ask(&world, caller, &format!("POST /db/_design/u/_update/{function}"), "{}").await;
        assert_eq!(reply.status.as_u16(), status, "{function} by {caller}: {reply:?}");
        assert!(!reply.body.contains(MARK), "{reply:?}");
    }
    let secret = world.admin("GET /db/secret", "").await.body;
    assert!(secret.contains(r#""_rev":"2-"#) && secret.contains(MARK), "{secret}");
    assert!(world.admin("GET /db/_local/secret", "").await.body.contains(MARK));
}

/// Ids and the total number of hits of both APIs, which must agree.
async fn hits(world: &World, caller: &str, query: &str) -> (Vec<String>, String) {
    let mut answers = Vec::new();
    for (path, sort, stale, total) in [
        ("_search/i", "%22_id%3Cstring%3E%22", "stale=ok", "total_rows"),
        ("_nouveau/n", "%22_id%22", "update=false", "total_hits"),
    ] {
        let query = query.replace("STALE", stale);
        let line = format!("GET /db/_design/text/{path}?include_docs=true&sort={sort}&{query}");
        let body = ask(world, caller, &line, "").await.body;
        let after = |rest: &str, end: char| rest.split(end).next().unwrap().to_owned();
        let ids = body.split(r#""id":""#).skip(1).map(|rest| after(rest, '"')).collect::<Vec<_>>();
        assert_eq!(body.matches(r#""doc":{"_id":"#).count(), ids.len(), "{body}");
        let total = body.split(&format!(r#""{total}":"#)).nth(1).unwrap_or_else(|| panic!("{body}"));
        answers.push((ids, after(total, ',')));
    }
    let first = answers.remove(0);
    assert_eq!(first, answers[0], "{query} for {caller}");
    first
}

#[tokio::test]
async fn searches_find_only_visible_documents() {
    let world = world().await;
    for index in TEXT {
        assert_eq!(world.admin("POST /db/_index", index).await.status.as_u16(), 200, "{index}");
    }
    for (caller, ids) in [
        ("anonymous", vec![]),
        ("eve", vec!["mine"]),
        ("bob", vec!["secret"]),
        ("ann", vec!["hidden-confidential", "secret"]),
        ("dba", vec!["hidden-confidential", "mine", "none-confidential", "secret"]),
    ] {
        let found = hits(&world, caller, "q=*:*&limit=9").await;
        assert_eq!(found, (ids.iter().map(|id| (*id).to_owned()).collect(), ids.len().to_string()), "{caller}");
        let (few, total) = hits(&world, caller, "q=*:*&limit=1").await;
        assert_eq!((few.len(), total), (ids.len().min(1), ids.len().to_string()), "{caller}");
    }
    // A stale index shows neither documents that its reader has lost, nor those of which it contains a foreign revision.
    let rev_of = async |id: &str| {
        let etag = world.admin(&format!("GET /db/{id}"), "").await.header("etag").to_owned();
        etag.trim_matches('"').to_owned()
    };
    let (mine, secret) = (rev_of("mine").await, rev_of("secret").await);
    world.admin(&format!("PUT /db/mine?rev={mine}"), r#"{"_access":["ann"],"text":"lost"}"#).await;
    world.admin(&format!("PUT /db/secret?rev={secret}"), r#"{"_access":["eve"],"text":"gained"}"#).await;
    assert_eq!(hits(&world, "eve", "q=*:*&STALE").await, (vec![], "0".to_owned()));
    assert_eq!(hits(&world, "eve", "q=*:*").await, (vec!["secret".to_owned()], "1".to_owned()));
}

#[tokio::test]
async fn information_about_search_indexes_is_for_administrators() {
    let world = world().await;
    for name in ["_search_info/i", "_search_disk_size/i", "_nouveau_info/i"] {
        let reply = ask(&world, "eve", &format!("GET /db/_design/d/{name}"), "").await;
        assert_eq!(reply.status.as_u16(), 403, "{name}");
    }
}
