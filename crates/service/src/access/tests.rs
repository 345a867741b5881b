//! Permissions of users in a database according to its security object.

use super::*;
use crate::security::security;
use crate::tests::{database, json, show};

fn user(name: Option<&str>, roles: &[&str]) -> UserContext {
    UserContext { name: name.map(str::to_owned), roles: roles.iter().map(|role| (*role).to_owned()).collect() }
}

fn verdict(security: &str, user: &UserContext) -> String {
    let security = Security::parse(json(security)).unwrap_or_else(|error| panic!("{security}: {error}"));
    let check = |permission| super::check(permission, user, &security).map_err(|error| show(&error));
    match (check(Permission::Member), check(Permission::DatabaseAdmin)) {
        (Ok(()), Ok(())) => "admin".to_owned(),
        (Ok(()), Err(error)) => {
            let expected = match user.name {
                Some(_) => "forbidden: You are not a db or server admin.",
                None => "unauthorized: You are not a db or server admin.",
            };
            assert_eq!(error, expected);
            "member".to_owned()
        }
        (Err(error), Err(other)) => {
            assert_eq!(error, other, "a user without read access may not administer, for the same reason");
            error
        }
        (Err(error), Ok(())) => panic!("an administrator may not read: {error}"),
    }
}

#[test]
fn security_objects_by_users() {
    const ANONYMOUS: &str = "unauthorized: You are not authorized to access this db.";
    const NOT_ALLOWED: &str = "forbidden: You are not allowed to access this db.";
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
        r#"{"admins":{"more":1},"members":{"names":[]},"readers":"ignored, because members exist"}"#,
    ] {
        check(open, ["member"; 5]);
    }
    let closed = r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#;
    check(closed, [ANONYMOUS, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED, ANONYMOUS]);
    check(r#"{"members":{"names":["ann"]}}"#, [ANONYMOUS, "member", NOT_ALLOWED, NOT_ALLOWED, ANONYMOUS]);
    check(r#"{"members":{"roles":["staff"]}}"#, [ANONYMOUS, NOT_ALLOWED, "member", NOT_ALLOWED, "member"]);
    check(r#"{"readers":{"names":["ann"]}}"#, [ANONYMOUS, "member", NOT_ALLOWED, NOT_ALLOWED, ANONYMOUS]);
    check(r#"{"members":{"names":["ann"],"roles":["staff"]}}"#, [ANONYMOUS, "member", "member", NOT_ALLOWED, "member"]);
    check(r#"{"admins":{"names":["ann"]}}"#, ["member", "admin", "member", "member", "member"]);
    check(
        r#"{"admins":{"roles":["staff"]},"members":{"names":["ann"]}}"#,
        [ANONYMOUS, "member", "admin", NOT_ALLOWED, "admin"],
    );
    check(
        r#"{"admins":{"names":["staff"]},"members":{"names":["1","null","x"]}}"#,
        [ANONYMOUS, NOT_ALLOWED, NOT_ALLOWED, NOT_ALLOWED, ANONYMOUS],
    );
    check(r#"{"members":{"names":["\u0061nn"]}}"#, [ANONYMOUS, "member", NOT_ALLOWED, NOT_ALLOWED, ANONYMOUS]);
}

#[test]
fn a_new_database_is_closed() {
    let security = security(&database()).map_err(|error| show(&error));
    let expected = json(r#"{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}"#);
    assert_eq!(security, Ok(expected));
}
