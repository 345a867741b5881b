//! Who may do what in a database, by its security object.

#![expect(clippy::unwrap_used, reason = "tests")]

use super::*;
use crate::tests::node::{Ask, World};
use crate::tests::{database, json, show};

fn user(name: Option<&str>, roles: &[&str]) -> UserContext {
    UserContext { name: name.map(str::to_owned), roles: roles.iter().map(|role| (*role).to_owned()).collect() }
}

/// What [`judge`] says: `admin`, `member`, or the error for a member's request.
fn verdict(security: &str, user: &UserContext) -> String {
    let security = Security::parse(json(security)).unwrap_or_else(|error| panic!("{security}: {error}"));
    let judge = |permission| judge(permission, user, &security).map_err(|error| show(&error));
    match (judge(Permission::Member), judge(Permission::DatabaseAdmin)) {
        (Ok(()), Ok(())) => "admin".to_owned(),
        (Ok(()), Err(error)) => {
            let expected = match user.name {
                Some(_) => "403 forbidden: You are not a db or server admin.",
                None => "401 unauthorized: You are not a db or server admin.",
            };
            assert_eq!(error, expected);
            "member".to_owned()
        }
        (Err(error), Err(other)) => {
            assert_eq!(error, other, "who may not read may not administer either, for the same reason");
            error
        }
        (Err(error), Ok(())) => panic!("an administrator may not read: {error}"),
    }
}

#[test]
fn security_objects_by_users() {
    const ANONYMOUS: &str = "401 unauthorized: You are not authorized to access this db.";
    const STRANGER: &str = "403 forbidden: You are not allowed to access this db.";
    let users = [
        user(None, &[]),
        user(Some("ann"), &[]),
        user(Some("bob"), &["staff"]),
        user(Some("eve"), &["staffer", "ann"]),
        user(None, &["staff"]),
    ];
    let check = |security: &str, expected: [&str; 5]| {
        for (user, expected) in users.iter().zip(expected) {
            assert_eq!(verdict(security, user), expected, "{security} {user:?}");
        }
    };
    for open in [
        "{}",
        r#"{"members":{}}"#,
        r#"{"members":{"names":[],"roles":[]}}"#,
        r#"{"admins":{"more":1},"members":{"names":[]},"readers":"nobody asks, there are members"}"#,
    ] {
        check(open, ["member"; 5]);
    }
    let closed = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;
    check(closed, [ANONYMOUS, STRANGER, STRANGER, STRANGER, ANONYMOUS]);
    check(r#"{"members":{"names":["ann"]}}"#, [ANONYMOUS, "member", STRANGER, STRANGER, ANONYMOUS]);
    check(r#"{"members":{"roles":["staff"]}}"#, [ANONYMOUS, STRANGER, "member", STRANGER, "member"]);
    check(r#"{"readers":{"names":["ann"]}}"#, [ANONYMOUS, "member", STRANGER, STRANGER, ANONYMOUS]);
    check(r#"{"members":{"names":["ann"],"roles":["staff"]}}"#, [ANONYMOUS, "member", "member", STRANGER, "member"]);
    check(r#"{"admins":{"names":["ann"]}}"#, ["member", "admin", "member", "member", "member"]);
    check(
        r#"{"admins":{"roles":["staff"]},"members":{"names":["ann"]}}"#,
        [ANONYMOUS, "member", "admin", STRANGER, "admin"],
    );
    // A name is no role.
    check(
        r#"{"admins":{"names":["staff"]},"members":{"names":["1","null","x"]}}"#,
        [ANONYMOUS, STRANGER, STRANGER, STRANGER, ANONYMOUS],
    );
    check(r#"{"members":{"names":["\u0061nn"]}}"#, [ANONYMOUS, "member", STRANGER, STRANGER, ANONYMOUS]);
}

/// Objects that are none of security, and what is said of them.
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
        let told = world.ask(Ask::new("PUT /db/_security").basic("admin", "pw").json(text)).await;
        assert_eq!(told.line(), format!(r#"400 {{"error":"bad_request","reason":"{reason}"}}"#), "{text}");
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
        // As an older server, or a hand on the files, may have left it.
        database.update(settee_database::Work::SetSecurity(json(text))).unwrap();
        for line in ["GET /db", "GET /db/_all_docs", "PUT /db/doc", "PUT /db/_security", "PUT /db/_design/d"] {
            let told = world.ask(Ask::new(line).json("{}")).await;
            let expected = r#"401 {"error":"unauthorized","reason":"You are not authorized to access this db."}"#;
            assert_eq!(told.line(), expected, "{text} {line}");
        }
        for name in ["joe", "x"] {
            let somebody = UserContext { name: Some(name.to_owned()), roles: vec!["a".to_owned()] };
            assert!(!administers(&database, &somebody).unwrap(), "{text}");
        }
        let shown = world.admin("GET /db/_security", "").await;
        assert_eq!(shown.line(), format!("200 {text}"), "an administrator sees what is to be mended");
    }
    world.admin("PUT /db/_security", "{}").await;
    assert_eq!(world.ask(Ask::new("GET /db")).await.status.as_u16(), 200);
}

#[test]
fn a_new_database_is_closed() {
    let security = security(&database()).map_err(|error| show(&error));
    let expected = json(r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#);
    assert_eq!(security, Ok(expected));
}
