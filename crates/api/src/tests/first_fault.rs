//! Order of validation, authorization and existing paths of the server: CouchDB's recorded responses.

use super::live::Live;
use super::node::{Ask, World};

const CLOSED: &str = r#"401 {"error":"unauthorized","reason":"You are not a server admin."}"#;
const NO_MEMBER: &str = r#"401 {"error":"unauthorized","reason":"You are not authorized to access this db."}"#;
const NO_DATABASE: &str = r#"404 {"error":"not_found","reason":"Database does not exist."}"#;
const MISSING: &str = r#"404 {"error":"not_found","reason":"missing"}"#;

fn only(allowed: &str) -> String {
    format!(r#"405 {{"error":"method_not_allowed","reason":"Only {allowed} allowed"}}"#)
}

async fn check(world: &World, is_admin: bool, line: &str, expected: &str) {
    let ask = if is_admin { Ask::new(line).basic("admin", "pw") } else { Ask::new(line) };
    let reply = world.ask(ask).await;
    assert_eq!(reply.line(), expected, "{line}, {}", if is_admin { "admin" } else { "anonymous" });
    if let Some((_, allowed)) = reply.body.split_once("Only ") {
        assert_eq!(reply.header("allow"), allowed.split(' ').next().unwrap_or_default(), "{line}");
    }
}

#[tokio::test]
async fn unauthorized_clients_cannot_observe_served_indexes() {
    let world = World::new();
    world.make_database("db");
    for (line, expected) in [
        ("POST /_all_dbs", CLOSED),
        ("PATCH /_dbs_info", CLOSED),
        ("DELETE /_membership", CLOSED),
        ("PUT /_cluster_setup", CLOSED),
        ("GET /_up/x", CLOSED),
        ("GET /_nosuch", CLOSED),
        ("PUT /_nosuch", CLOSED),
        ("GET /_node/_local/_nosuch", CLOSED),
        ("GET /_reshard", CLOSED),
        ("PATCH /_reshard", CLOSED),
        ("DELETE /_scheduler/jobs", CLOSED),
        ("PATCH /db/_all_docs", NO_MEMBER),
        ("PATCH /db/_nosuch", NO_MEMBER),
        ("PATCH /db", NO_MEMBER),
        ("PATCH /nosuch/a", NO_DATABASE),
        ("PATCH /_users/_all_docs", CLOSED),
    ] {
        check(&world, false, line, expected).await;
    }
    check(&world, false, "PATCH /_up", &only("GET,HEAD")).await;
    check(&world, false, "PATCH /_active_tasks", &only("GET,HEAD")).await;
    check(&world, false, "COPY /_session", &only("GET,HEAD,POST,DELETE")).await;
    check(&world, false, "GET /db/_compact", NO_MEMBER).await;
}

#[tokio::test]
async fn a_database_that_is_not_there_is_the_first_fault() {
    let world = World::new();
    for line in [
        "GET /db",
        "DELETE /db",
        "POST /db",
        "PUT /db/a",
        "PATCH /db/a",
        "DELETE /db/_all_docs",
        "POST /db/_find",
        "POST /db/_bulk_docs",
        "POST /db/_compact",
        "GET /db/_nosuch",
        "GET /db/_design/x/_view/y",
        "POST /_nosuch",
        "POST /_nosuch/x",
        "GET /_nosuch/x/y",
        "GET /_",
        "GET /_membership/x",
    ] {
        check(&world, true, line, NO_DATABASE).await;
    }
}

#[tokio::test]
async fn paths_of_the_server_go_on_or_end() {
    let world = World::new();
    for line in ["GET /_up/x", "GET /_uuids/x/y", "GET /_active_tasks/x", "DELETE /_session/x", "GET /_reshard"] {
        let reply = world.ask(Ask::new(line).basic("admin", "pw")).await;
        assert_eq!(reply.status.as_u16(), 200, "{line}: {reply:?}");
    }
    for line in [
        "GET /_all_dbs/x",
        "GET /_dbs_info/x",
        "GET /_reshard/nosuch",
        "GET /_reshard/jobs/nosuch",
        "DELETE /_reshard/jobs/nosuch",
        "GET /_reshard/jobs/nosuch/state",
        "GET /_node/_local/_config/a/b/c",
        "PUT /_node/_local/_config/a/b/c",
        "GET /_config/a/b/c/d",
    ] {
        check(&world, true, line, MISSING).await;
    }
    for (line, allowed) in [
        ("PUT /_up/x", "GET,HEAD"),
        ("POST /_uuids", "GET"),
        ("POST /_uuids/x", "GET"),
        ("PUT /_membership", "GET"),
        ("PATCH /_reshard", "GET,HEAD"),
        ("DELETE /_reshard/state", "GET,HEAD,PUT"),
        ("PUT /_reshard/jobs/nosuch", "GET,HEAD,DELETE"),
        ("GET /_replicate/x", "POST"),
    ] {
        check(&world, true, line, &only(allowed)).await;
    }
    for line in ["GET /_node", "GET /_node/"] {
        let expected = r#"400 {"error":"bad_request","reason":"Incomplete path to _node request"}"#;
        check(&world, true, line, expected).await;
    }
    for line in ["GET /_scheduler", "GET /_scheduler/nosuch"] {
        check(&world, true, line, r#"404 {"error":"not found"}"#).await;
    }
}

#[tokio::test]
async fn the_body_of_a_replication_is_looked_at_before_its_sender() {
    let world = World::new();
    let missing = r#"400 {"error":"bad_request","reason":"Missing request body"}"#;
    for line in ["POST /_replicate", "PATCH /_replicate", "DELETE /_replicate", "GET /_replicate"] {
        check(&world, false, line, missing).await;
        check(&world, true, line, missing).await;
    }
    let ask = |body: &'static str, content_type| Ask::new("POST /_replicate").text(content_type, body);
    let error = |reason: &str| format!(r#"400 {{"error":"bad_request","reason":"{reason}"}}"#);
    let empty = ask("", "text/plain").header("content-length", "0");
    assert_eq!(world.ask(empty).await.line(), error("invalid UTF-8 JSON"));
    assert_eq!(world.ask(ask("[]", "text/plain")).await.line(), error("Request body must be a JSON object"));
    let unauthenticated = r#"401 {"error":"unauthorized","reason":"You are not an authenticated user"}"#;
    for content_type in ["application/json", "text/plain"] {
        assert_eq!(world.ask(ask("{}", content_type)).await.line(), unauthenticated);
    }
    assert_eq!(world.ask(Ask::new("PUT /_replicate").json("{}")).await.line(), unauthenticated);
    let put = Ask::new("PUT /_replicate").basic("admin", "pw").json("{}");
    assert_eq!(world.ask(put).await.line(), only("POST"));
    let unlike = r#"415 {"error":"bad_content_type","reason":"Content-Type must be application/json"}"#;
    assert_eq!(world.ask(ask("{}", "text/plain").basic("admin", "pw")).await.line(), unlike);
}

#[tokio::test]
async fn the_parameters_of_a_new_database_are_looked_at_in_order() {
    let world = World::new();
    for (query, reason) in [
        ("q=0", "The `q` value should be a positive integer."),
        ("q=1.5", "The `q` value should be a positive integer."),
        ("n=", "The `n` value should be a positive integer."),
        ("q=x&n=x", "The `n` value should be a positive integer."),
        ("placement=x&q=x", "The `q` value should be a positive integer."),
        ("placement=x", "The `placement` value should be in a format `zone:n`."),
        ("placement=", "The `placement` value should be in a format `zone:n`."),
        ("placement=a:1,b:0", "The `placement` value should be in a format `zone:n`."),
        ("placement=a:1,b:x&engine=x", "The `placement` value should be in a format `zone:n`."),
        ("engine=x&partitioned=x", "invalid_engine_extension"),
        ("partitioned=", "Invalid `partitioned` parameter"),
        ("partitioned=1", "Invalid `partitioned` parameter"),
    ] {
        let line = format!("PUT /A?{query}");
        check(&world, true, &line, &format!(r#"400 {{"error":"bad_request","reason":"{reason}"}}"#)).await;
    }
    check(&world, true, "PUT /db?q=2&n=3&placement=a:1,b:2&engine=couch&foo=1", r#"201 {"ok":true}"#).await;
}

#[tokio::test]
async fn numbers_of_identifiers_that_make_no_sense() {
    let world = World::new();
    for text in ["-1", "x", "", "1.5", "%221%22", "null", "0x2", "-99999999999999999999999999999999999999999999"] {
        let expected = r#"400 {"error":"bad_request","reason":"count must be a positive integer"}"#;
        check(&world, false, &format!("GET /_uuids?count={text}"), expected).await;
    }
    for text in ["1001", "99999999999999999999", "99999999999999999999999999999999999999999999"] {
        let expected = r#"400 {"error":"bad_request","reason":"count parameter too large"}"#;
        check(&world, false, &format!("GET /_uuids?count={text}"), expected).await;
    }
    let reply = world.ask(Ask::new("GET /_uuids?count=2")).await;
    assert_eq!(reply.status.as_u16(), 200);
    for (name, expected) in [
        ("cache-control", "no-cache"),
        ("pragma", "no-cache"),
        ("expires", "Mon, 01 Jan 1990 00:00:00 GMT"),
        ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
    ] {
        assert_eq!(reply.header(name), expected);
    }
    assert!(reply.header("etag").starts_with('"'), "{reply:?}");
}

#[tokio::test]
async fn new_databases_are_as_open_as_the_configuration_says() {
    let world = World::new();
    world.set("couchdb", "default_security", "everyone");
    world.node.make_users_database().await.unwrap();
    for (name, security) in
        [("everyone", "{}"), ("admin_local", "{}"), ("nonsense", "closed"), ("admin_only", "closed")]
    {
        world.set("couchdb", "default_security", name);
        world.admin(&format!("PUT /{name}"), "").await;
        let shown = world.admin(&format!("GET /{name}/_security"), "").await;
        let closed = r#"200 {"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;
        let expected = if security == "closed" { closed.to_owned() } else { format!("200 {security}") };
        assert_eq!(shown.line(), expected, "{name}");
    }
    assert_eq!(world.admin("GET /_users/_security", "").await.line(), "200 {}", "the first one as well");
}

#[tokio::test(start_paused = true)]
async fn databases_of_users_get_their_rules_after_a_delay() {
    let world = World::new();
    world.make_database("people");
    world.set("couchdb", "default_security", "everyone");
    let name_setting = "PUT /_node/_local/_config/chttpd_auth/authentication_db";
    for (name, request, body) in [("people", name_setting, r#""people""#), ("x/_users", "PUT /x%2F_users", "")] {
        world.admin(request, body).await;
        let path = format!("/{}/_design/_auth", name.replace('/', "%2F"));
        let missing = world.ask(Ask::new(&format!("GET {path}")).basic("admin", "pw")).await;
        assert_eq!(missing.status, 404, "{name}");
        tokio::time::sleep(settee_service::RULES_DELAY * 2).await;
        let rules = world.admin(&format!("GET {path}"), "").await;
        assert!(rules.body.contains(r#""_rev":"1-625dc565328e800ce8dfe08fff750098""#), "{rules:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn only_administrators_write_to_a_database_of_users_before_it_has_rules() {
    let world = World::new();
    world.set("couchdb", "default_security", "everyone");
    world.admin("PUT /_users", "").await;
    let rules = "GET /_users/_design/_auth";
    assert_eq!(world.admin("PUT /_users/org.couchdb.user:ann", r#"{"name":"ann","roles":[]}"#).await.status, 201);
    assert_eq!(world.ask(Ask::new(rules).basic("admin", "pw")).await.status, 404);
    world.ask(Ask::new("PUT /_users/org.couchdb.user:eve").json(r#"{"name":"eve","roles":["boss"]}"#)).await;
    assert_eq!(world.admin(rules, "").await.status, 200);
}

#[tokio::test]
async fn an_index_is_validated_before_its_author_is_authorized() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/_security", r#"{"members":{"names":[],"roles":[]}}"#).await;
    let error = |name: &str, reason: &str| format!(r#"400 {{"error":"{name}","reason":"{reason}"}}"#);
    let no_name = error("invalid_empty_string", "Index name or ddoc cannot be empty string");
    let no_admin = r#"401 {"error":"unauthorized","reason":"You are not a db or server admin."}"#.to_owned();
    for (body, expected) in [
        (r#"{"index":{"fields":["a"]},"name":""}"#, no_name.clone()),
        (r#"{"index":{"fields":["a"]},"ddoc":""}"#, no_name),
        (r#"{"index":{"fields":["a"]},"name":1}"#, error("invalid_string", "Invalid string: 1")),
        ("{}", error("missing_required_key", "Missing required key: index")),
        ("[]", error("bad_request", "Request body must be a JSON object")),
        (r#"{"index":{"fields":["a"]}}"#, no_admin),
    ] {
        assert_eq!(world.ask(Ask::new("POST /db/_index").json(body)).await.line(), expected, "{body}");
    }
    let indexes = world.admin("GET /db/_index", "").await;
    assert!(indexes.body.contains(r#""total_rows":1"#), "{}", indexes.body);
}

#[tokio::test]
async fn temporary_views_are_gone_for_all_methods_except_post() {
    let world = World::new();
    world.make_database("db");
    let gone = r#"410 {"error":"gone","reason":"Temporary views are not supported in CouchDB"}"#;
    for line in ["GET /db/_temp_view", "PUT /db/_temp_view", "COPY /db/_temp_view", "POST /db/_temp_view/x"] {
        check(&world, true, line, gone).await;
        check(&world, false, line, NO_MEMBER).await;
    }
    check(&world, true, "GET /nosuch/_temp_view", NO_DATABASE).await;
}

#[tokio::test]
async fn the_icon_is_no_database() {
    let world = World::new();
    for line in ["GET /favicon.ico", "GET /favicon.ico/x"] {
        let reply = world.ask(Ask::new(line)).await;
        assert_eq!((reply.status.as_u16(), reply.body.as_str()), (404, "Not found."), "{line}");
        assert_eq!(reply.header("content-type"), "text/plain");
        assert_eq!(reply.header("cache-control"), "public, max-age=31536000");
    }
    check(&world, false, "POST /favicon.ico", &only("GET,HEAD")).await;
}

#[tokio::test]
async fn encodings_of_cluster_setups() {
    let live = Live::start(&[]).await;
    let mut client = live.client().await;
    let mut reason = async |encoding| {
        let headers = [("content-encoding", encoding)];
        client.request("POST /_cluster_setup", &headers, "{}").await.body
    };
    for encoding in ["gzip", "deflate", "x"] {
        let body = reason(encoding).await;
        assert!(body.contains("Missing JSON body'"), "{encoding}: {body}");
    }
    assert!(reason("identity").await.contains("Invalid Action'"));
    live.stop().await;
}

#[tokio::test]
async fn content_types_of_logins_are_compared_with_case() {
    let world = World::new();
    let ask = |content_type| Ask::new("POST /_session").text(content_type, r#"{"name":"admin","password":"pw"}"#);
    assert_eq!(world.ask(ask("application/json; charset=utf-8")).await.status, 200);
    for content_type in ["APPLICATION/JSON", "Application/x-www-form-urlencoded", ""] {
        assert_eq!(world.ask(ask(content_type)).await.status, 415, "{content_type}");
    }
}
