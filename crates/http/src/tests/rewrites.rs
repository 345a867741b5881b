//! Rewrites through the whole server.

use super::node::{Ask, World};

/// A hundred of them on one stack once ended the process.
#[tokio::test]
async fn rewrites_that_lead_to_each_other_end_at_the_limit_however_large_it_is() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/_design/d", r#"{"rewrites":[{"from":"loop","to":"_rewrite/loop"}]}"#).await;
    for limit in ["1", "100", "5000"] {
        world.set("chttpd", "rewrite_limit", limit);
        let told = world.ask(Ask::new("GET /db/_design/d/_rewrite/loop").basic("admin", "pw")).await;
        let expected = r#"400 {"error":"bad_request","reason":"Exceeded rewrite recursion limit"}"#;
        assert_eq!(told.line(), expected, "{limit}");
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

/// CouchDB parses these before it looks for a rule.
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
