//! Documents as texts: their users, the visible members, and their states.
#![expect(clippy::unwrap_used, reason = "tests")]

mod shown;

use settee_model::json::Json;

use super::*;

fn json(text: &str) -> Json {
    Json::parse(text.as_bytes()).unwrap()
}

#[test]
fn databases_are_known_by_their_names() {
    let cases = [
        ("_replicator", true),
        ("a/_replicator", true),
        ("a/b/_replicator", true),
        ("a_replicator", false),
        ("_replicator/a", false),
        ("replicator", false),
    ];
    for (name, expected) in cases {
        assert_eq!(is_replicator_database(name), expected, "{name}");
    }
}

#[test]
fn a_document_acts_for_its_owner_unless_it_names_a_user() {
    let owner = |name: Option<&str>| User { name: name.map(str::to_owned), roles: Roles::OfAccount };
    let user = |name: Option<&str>, roles: &[&str]| User {
        name: name.map(str::to_owned),
        roles: Roles::Given(roles.iter().map(|role| (*role).to_owned()).collect()),
    };
    let cases = [
        ("{}", owner(None)),
        (r#"{"owner":"ann"}"#, owner(Some("ann"))),
        (r#"{"owner":null}"#, owner(None)),
        (r#"{"owner":"ann","user_ctx":{"name":"bob","roles":["x"]}}"#, user(Some("bob"), &["x"])),
        (r#"{"owner":"ann","user_ctx":{"roles":["_admin"]}}"#, user(None, &["_admin"])),
    ];
    for (document, expected) in cases {
        assert_eq!(super::user(json(document).value()), expected, "{document}");
    }
}

#[test]
fn credentials_are_taken_out() {
    let cases = [
        ("https://foo:bar@host/db", "https://host/db"),
        ("http://foo:bar@host:5984/db/", "http://host:5984/db/"),
        ("http://foo:b%40r@host", "http://host"),
        ("http://foo:b@r@host/db", "http://host/db"),
        ("http://foo:b/r@host/db", "http://host/db"),
        ("http://foo@host/db", "http://host/db"),
        ("http://host/db?x=a@b", "http://host/db?x=a@b"),
        ("http://host/db", "http://host/db"),
        ("db", "db"),
    ];
    for (url, expected) in cases {
        assert_eq!(strip_credentials(url), expected, "{url}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let document = r#"{"_id":"r","source":"http://a:SECRET@h/x","target":{"url":"http://a:SECRET@h/y","headers":{"Authorization":"SECRET"},"auth":{"basic":{"password":"SECRET"}},"more":1},"source_proxy":"http://p:SECRET@q:3128","n":[1],"owner":"ann"}"#;
    let mut out = Vec::new();
    write_without_credentials(&mut out, json(document).value());
    let shown = String::from_utf8(out).unwrap();
    let expected = r#"{"_id":"r","source":"http://h/x","target":{"url":"http://h/y","more":1},"source_proxy":"http://q:3128","n":[1],"owner":"ann"}"#;
    assert_eq!(shown, expected);
}

#[test]
fn states_are_read_from_documents_at_rest() {
    let cases = [
        (
            r#"{"source":"http://a:SECRET@h/x","target":{"url":"http://a:SECRET@h/y"},"_replication_state":"completed","_replication_state_time":"T2","_replication_stats":{"start_time":"T1","docs_read":3}}"#,
            r#"{"database":"_replicator","doc_id":"r","id":null,"source":"http://h/x","target":"http://h/y","state":"completed","info":{"docs_read":3},"error_count":0,"last_updated":"T2","start_time":"T1","source_proxy":null,"target_proxy":null}"#,
        ),
        (
            r#"{"source":"x","_replication_state":"failed","_replication_state_time":"T2","_replication_state_reason":"no"}"#,
            r#"{"database":"_replicator","doc_id":"r","id":null,"source":"x","target":null,"state":"failed","info":{"error":"no"},"error_count":1,"last_updated":"T2","start_time":"T2","source_proxy":null,"target_proxy":null}"#,
        ),
        (
            r#"{"source":1}"#,
            r#"{"database":"_replicator","doc_id":"r","id":null,"source":null,"target":null,"state":"initializing","info":null,"error_count":0,"last_updated":null,"start_time":null,"source_proxy":null,"target_proxy":null}"#,
        ),
    ];
    for (document, expected) in cases {
        let state = resting("_replicator", "r", json(document).value());
        assert_eq!(String::from_utf8(state.json).unwrap(), expected, "{document}");
        assert!(STATES.contains(&state.state));
    }
}
