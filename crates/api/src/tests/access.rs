//! Tests of security objects.

use settee_auth::UserContext;
use settee_service::administers;

use super::json;
use super::node::{Ask, World};

const MALFORMED: [(&str, &str); 17] = [
    ("[]", "Request body must be a JSON object"),
    ("null", "Request body must be a JSON object"),
    (r#""x""#, "Request body must be a JSON object"),
    (r#"{"members":{"names":"joe"}}"#, "names must be a JSON list of strings"),
    (r#"{"members":{"roles":"a"}}"#, "roles must be a JSON list of strings"),
    (r#"{"members":["joe"]}"#, "members must be a JSON object"),
    (r#"{"members":[]}"#, "members must be a JSON object"),
    (r#"{"members":null}"#, "members must be a JSON object"),
    (r#"{"members":"x"}"#, "members must be a JSON object"),
    (r#"{"readers":null}"#, "members must be a JSON object"),
    (r#"{"readers":{"names":[["a"]]}}"#, "names must be a JSON list of strings"),
    (r#"{"members":{"names":null}}"#, "names must be a JSON list of strings"),
    (r#"{"members":{"names":{},"roles":7}}"#, "names must be a JSON list of strings"),
    (r#"{"members":{"names":[1,null,"x"]}}"#, "names must be a JSON list of strings"),
    (r#"{"admins":null}"#, "admins must be a JSON object"),
    (r#"{"admins":{"names":"a"},"members":{}}"#, "names must be a JSON list of strings"),
    (r#"{"admins":{"roles":[1]},"members":{}}"#, "roles must be a JSON list of strings"),
];

#[tokio::test]
async fn a_malformed_security_object_is_refused_and_changes_nothing() {
    let world = World::new();
    world.make_database("db");
    for (text, reason) in MALFORMED {
        let reply = world.ask(Ask::new("PUT /db/_security").basic("admin", "pw").json(text)).await;
        let error =
            if reason.starts_with("Request") { r#"400 {"error":"bad_request""# } else { r#"500 {"error":"error""# };
        assert_eq!(reply.line(), format!(r#"{error},"reason":"{reason}"}}"#), "{text}");
    }
    let kept = world.admin("GET /db/_security", "").await;
    assert_eq!(kept.line(), r#"200 {"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#);
    assert_eq!(world.ask(Ask::new("GET /db")).await.status.as_u16(), 401);
}

#[tokio::test]
async fn a_malformed_security_object_that_is_stored_opens_nothing() {
    let world = World::new();
    world.make_database("db");
    let database = world.node.database("db").unwrap();
    for (text, _) in MALFORMED {
        // Such an object may be left by an older version or by manual changes.
        database.update(settee_database::Work::SetSecurity(json(text))).unwrap();
        for line in ["GET /db", "GET /db/_all_docs", "PUT /db/doc", "PUT /db/_security", "PUT /db/_design/d"] {
            let reply = world.ask(Ask::new(line).json("{}")).await;
            let expected = r#"401 {"error":"unauthorized","reason":"You are not authorized to access this db."}"#;
            assert_eq!(reply.line(), expected, "{text} {line}");
        }
        for name in ["joe", "x"] {
            let member = UserContext { name: Some(name.to_owned()), roles: vec!["a".to_owned()] };
            assert!(!administers(&database, &member).unwrap(), "{text}");
        }
        let shown = world.admin("GET /db/_security", "").await;
        assert_eq!(shown.line(), format!("200 {text}"), "an administrator sees the invalid object");
    }
    world.admin("PUT /db/_security", "{}").await;
    assert_eq!(world.ask(Ask::new("GET /db")).await.status.as_u16(), 200);
}

#[tokio::test]
async fn show_functions_of_users_show_them_their_own_documents() {
    let world = World::new();
    world.node.make_users_database().await.unwrap();
    world.set("couchdb", "users_db_security_editable", "true");
    world.admin("PUT /_users/_security", "{}").await;
    for name in ["tom", "jerry"] {
        let document = format!(r#"{{"name":"{name}","type":"user","roles":[],"password":"pw"}}"#);
        world.admin(&format!("PUT /_users/org.couchdb.user:{name}"), &document).await;
    }
    let design = r#"{"views":{"v":{"map":"f"}},"lists":{"l":"f"},"shows":{"s":"f"},"updates":{"u":"f"}}"#;
    world.admin("PUT /_users/_design/d", design).await;
    let missing = r#"404 {"error":"not_found","reason":"missing"}"#;
    let closed =
        r#"403 {"error":"forbidden","reason":"Only administrators can view design docs in the users database."}"#;
    for (line, expected) in [
        ("GET /_users/_design/d/_show/s", "200 shown"),
        ("GET /_users/_design/d/_show/s/org.couchdb.user:tom", "200 shown"),
        ("GET /_users/_design/d/_show/s/org.couchdb.user:jerry", missing),
        ("GET /_users/_design/d/_show/s/org.couchdb.user:unknown", missing),
        ("GET /_users/_design/d/_show/s/_design/d", closed),
        ("GET /_users/_design/d", closed),
        ("GET /_users/_design/d/_view/v", closed),
        ("GET /_users/_design/d/_list/l/v", closed),
        ("POST /_users/_design/d/_update/u/org.couchdb.user:tom", closed),
    ] {
        let reply = world.ask(Ask::new(line).basic("tom", "pw").json("")).await;
        assert_eq!(reply.line(), expected, "{line}");
    }
    let reply = world.ask(Ask::new("GET /_users/_design/d/_show/s/org.couchdb.user:jerry").basic("admin", "pw")).await;
    assert_eq!(reply.line(), "200 shown");
}
