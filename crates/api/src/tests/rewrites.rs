//! Rewrites through the whole server.

use super::node::{Ask, World};

/// Regression: a hundred rewrites overflowed the stack.
#[tokio::test]
async fn rewrites_that_lead_to_each_other_end_at_the_limit_however_large_it_is() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/_design/d", r#"{"rewrites":[{"from":"loop","to":"_rewrite/loop"}]}"#).await;
    for limit in ["1", "100", "5000"] {
        world.set("chttpd", "rewrite_limit", limit);
        let reply = world.ask(Ask::new("GET /db/_design/d/_rewrite/loop").basic("admin", "pw")).await;
        let expected = r#"400 {"error":"bad_request","reason":"Exceeded rewrite recursion limit"}"#;
        assert_eq!(reply.line(), expected, "{limit}");
    }
}

#[tokio::test]
async fn rewrites_leave_their_database_only_where_that_is_allowed() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/_design/d", r#"{"rewrites":[{"from":"out","to":"../../../_all_dbs"}]}"#).await;
    let ask = || world.ask(Ask::new("GET /db/_design/d/_rewrite/out").basic("admin", "pw"));
    let refused = ask().await;
    assert_eq!(refused.line(), r#"500 {"error":"insecure_rewrite_rule","reason":"too many ../.. segments"}"#);
    world.set("chttpd", "secure_rewrites", "false");
    let allowed = ask().await;
    assert!(allowed.line().starts_with("200 [") && allowed.body.contains("\"db\""), "{}", allowed.line());
}

/// CouchDB parses these before it searches for a rule.
#[tokio::test]
async fn keys_that_are_no_json_are_refused_before_a_rule_is_found() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/_design/d", r#"{"rewrites":[{"from":"all","to":"../../_all_docs"}]}"#).await;
    let ask = async |query: &str| {
        world.ask(Ask::new(&format!("GET /db/_design/d/_rewrite/{query}")).basic("admin", "pw")).await.line()
    };
    let refused = r#"400 {"error":"bad_request","reason":"invalid UTF-8 JSON"}"#;
    for name in ["key", "startkey", "start_key", "endkey", "end_key", "keys"] {
        assert_eq!(ask(&format!("all?{name}=x")).await, refused, "{name}");
        assert_eq!(ask(&format!("nosuch?{name}=x")).await, refused, "{name}");
    }
    assert!(ask("all?key=%22x%22").await.starts_with("200 "));
    assert_eq!(ask("nosuch?other=x").await, r#"404 {"error":"not_found","reason":"missing"}"#);
}

fn function(rewrite: &str) -> String {
    let mut out = br#"{"rewrites":"#.to_vec();
    settee_model::json::write_string(&mut out, &format!("[\"ok\",{rewrite}]"));
    out.push(b'}');
    String::from_utf8(out).expect("text")
}

async fn two_databases() -> World {
    let world = World::new();
    for name in ["db", "other"] {
        world.make_database(name);
        world.admin(&format!("PUT /{name}/doc"), "{}").await;
    }
    world
}

async fn follow(world: &World, method: &str, rewrite: &str) -> (u16, String) {
    let id = format!("{method}{:x}", number_of(rewrite));
    world.admin(&format!("PUT /db/_design/{id}"), &function(rewrite)).await;
    let line = format!("{method} /db/_design/{id}/_rewrite/x");
    let reply = world.ask(Ask::new(&line).basic("admin", "pw").json("")).await;
    (reply.status.as_u16(), reply.line())
}

fn number_of(text: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[tokio::test]
async fn functions_stay_in_their_database() {
    let world = two_databases().await;
    for inside in ["../../doc", "../../../db/doc", "../../../../../db/doc", "/../../doc", "../..//doc", "../.././doc"] {
        let (status, line) = follow(&world, "GET", &format!(r#"{{"path":"{inside}"}}"#)).await;
        assert!(status == 200 && line.contains("\"_id\":\"doc\""), "{inside}: {line}");
    }
    let refused = r#"500 {"error":"insecure_rewrite_rule","reason":"too many ../.. segments"}"#;
    for outside in [
        "../../../other/doc",
        "../../../_all_dbs",
        "../../../_node/_local/_config/admins/x",
        "../../..",
        "../../../db%2F..%2Fother/doc",
        "../../../d%62x/doc",
        "x/../../../../other/doc",
        "../../../%2e%2e/other",
        "../../..//other/doc",
        "/../../../other/doc",
        "../../../other/doc?x=1",
        "x?y=/../../../../other/doc",
        "../../doc?x=/../../../other",
    ] {
        assert_eq!(follow(&world, "GET", &format!(r#"{{"path":"{outside}"}}"#)).await.1, refused, "{outside}");
    }
    for name in [
        "../../%2e%2e",
        "../../%2e%2e/other",
        "../../..%2F..%2Fother",
        "../../%252e%252e",
        "%2e%2e/%2e%2e/%2e%2e/other/doc",
    ] {
        let (status, line) = follow(&world, "GET", &format!(r#"{{"path":"{name}"}}"#)).await;
        assert_eq!(status, 404, "{name}: {line}");
    }
    assert_eq!(follow(&world, "GET", r#"{"path":"../../../d%62/doc"}"#).await.0, 200);
    world.set("chttpd", "secure_rewrites", "false");
    assert_eq!(follow(&world, "GET", r#"{"path":"../../../other/doc","query":{}}"#).await.0, 200);
}

#[tokio::test]
async fn a_read_never_becomes_a_write() {
    let world = two_databases().await;
    for (method, path) in [
        ("PUT", "../../new"),
        ("DELETE", "../../doc"),
        ("POST", "../.."),
        ("POST", "../../_bulk_docs"),
        ("PUT", "../../_security"),
        ("PUT", "../../_revs_limit"),
        ("COPY", "../../doc"),
        ("POST", "../../_compact"),
        ("POST", "../../_index"),
        ("POST", "../../_view_cleanup"),
        ("PUT", "_update/u"),
        ("POST", "_update/u"),
        ("PUT", "../other"),
        ("POST", "_rewrite/y"),
        ("PUT", "../../doc/attachment"),
    ] {
        for from in ["GET", "HEAD", "OPTIONS"] {
            let rewrite =
                format!(r#"{{"path":"{path}","method":"{method}","body":"{{}}","headers":{{"Destination":"new"}}}}"#);
            let (status, line) = follow(&world, from, &rewrite).await;
            assert!(status == 403 && line.contains("a rewrite may not make"), "{from} {method} {path}: {line}");
        }
    }
    // Requests that require a server administrator are refused, whatever the original request was.
    for (method, path) in
        [("DELETE", "../.."), ("PUT", "../.."), ("POST", "../../_purge"), ("POST", "../../_sync_shards")]
    {
        for from in ["GET", "POST", "DELETE"] {
            let (status, line) =
                follow(&world, from, &format!(r#"{{"path":"{path}","method":"{method}","body":"{{}}"}}"#)).await;
            assert!(status == 403 && line.contains("a rewrite may not lead to"), "{from} {method} {path}: {line}");
        }
    }
    for (name, expected) in [("new", 404), ("doc", 200)] {
        let reply = world.ask(Ask::new(&format!("GET /db/{name}")).basic("admin", "pw")).await;
        assert_eq!(reply.status.as_u16(), expected, "{name}");
    }
    for (from, method, path, body) in [
        ("GET", "POST", "../../_all_docs", r#"{\"keys\":[\"doc\"]}"#),
        ("GET", "POST", "../../_find", r#"{\"selector\":{}}"#),
        ("GET", "HEAD", "../../doc", ""),
        ("POST", "GET", "../../doc", ""),
        ("POST", "PUT", "../../new", "{}"),
    ] {
        let (status, line) =
            follow(&world, from, &format!(r#"{{"path":"{path}","method":"{method}","body":"{body}"}}"#)).await;
        assert!((200..300).contains(&status), "{from} {method} {path}: {line}");
    }
    world.set("chttpd", "secure_rewrites", "false");
    let open = follow(&world, "GET", r#"{"path":"../../another","method":"PUT","body":"{}"}"#).await;
    assert_eq!(open.0, 201, "{}", open.1);
}

#[tokio::test]
async fn functions_that_lead_to_each_other_end_at_the_limit() {
    let world = two_databases().await;
    world.set("chttpd", "rewrite_limit", "20");
    let (_, line) = follow(&world, "GET", r#"{"path":"_rewrite/x"}"#).await;
    assert_eq!(line, r#"400 {"error":"bad_request","reason":"Exceeded rewrite recursion limit"}"#);
}

/// CouchDB sends both policies for shows, and none for responses of rewrite functions.
#[tokio::test]
async fn a_function_only_restricts_the_policy_of_the_server() {
    let world = two_databases().await;
    let design = |response: &str| {
        let quoted = |text: String| {
            let mut out = Vec::new();
            settee_model::json::write_string(&mut out, &text);
            String::from_utf8(out).expect("text")
        };
        let (show, rewrite) = (format!("[\"resp\",{response}]"), format!("[\"ok\",{response}]"));
        format!(r#"{{"shows":{{"s":{}}},"rewrites":{}}}"#, quoted(show), quoted(rewrite))
    };
    let own =
        r#""Content-Security-Policy":"default-src *","Access-Control-Allow-Origin":"*","Set-Cookie":"AuthSession=x""#;
    for (number, (response, expected)) in [
        (format!(r#"{{"code":200,"headers":{{{own}}},"body":"<b>"}}"#), &["sandbox", "default-src *"][..]),
        (r#"{"code":200,"body":"<b>"}"#.to_owned(), &["sandbox"]),
    ]
    .into_iter()
    .enumerate()
    {
        world.admin(&format!("PUT /db/_design/p{number}"), &design(&response)).await;
        for path in ["_show/s", "_rewrite/x"] {
            let line = format!("GET /db/_design/p{number}/{path}");
            let reply = world.ask(Ask::new(&line).basic("admin", "pw")).await;
            let policies: Vec<_> = reply.headers.get_all("content-security-policy").iter().collect();
            assert_eq!(policies, expected, "{line} {}", reply.line());
            assert_eq!((reply.header("access-control-allow-origin"), reply.header("set-cookie")), ("", ""), "{line}");
        }
    }
    // JSON with another content type is not JSON to a browser.
    let page = r#"["resp",{"json":"<script>","headers":{"Content-Type":"text/html"}}]"#;
    let plain = r#"["resp",{"json":{"a":1}}]"#;
    for (name, result, expected) in [("html", page, 1), ("json", plain, 0)] {
        let mut out = Vec::new();
        settee_model::json::write_string(&mut out, result);
        let text = String::from_utf8(out).expect("text");
        world.admin(&format!("PUT /db/_design/{name}"), &format!(r#"{{"shows":{{"s":{text}}}}}"#)).await;
        let line = format!("GET /db/_design/{name}/_show/s");
        let reply = world.ask(Ask::new(&line).basic("admin", "pw")).await;
        assert_eq!(reply.headers.get_all("content-security-policy").iter().count(), expected, "{name}");
    }
}

#[tokio::test]
async fn an_escaped_slash_is_a_part_of_its_segment() {
    let world = World::new();
    world.make_database("db");
    let rules = r#"{"rewrites":[{"from":"x/y","to":"../../a"},{"from":"id/:id","to":"../../:id"}]}"#;
    world.admin("PUT /db/_design/d", rules).await;
    for id in ["a", "y%2F"] {
        assert_eq!(world.admin(&format!("PUT /db/{id}"), "{}").await.status, 201);
    }
    for (path, id) in
        [("x/y", Some("a")), ("x/y/", Some("a")), ("x/y%2F", None), ("x%2Fy", None), ("id/y%2F", Some("y/"))]
    {
        let reply = world.ask(Ask::new(&format!("GET /db/_design/d/_rewrite/{path}")).basic("admin", "pw")).await;
        let found = (reply.status == 200).then_some(reply.body);
        assert_eq!(found.is_some(), id.is_some(), "{path}: {found:?}");
        assert!(found.is_none_or(|body| body.contains(&format!(r#""_id":"{}""#, id.unwrap_or_default()))), "{path}");
    }
}
