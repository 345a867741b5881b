//! Tests of users: the rules of their documents, and that secrets stay secret.

use std::fs;

use crate::Client;
use crate::server::{Directory, Server};

/// `ann:planted-admin`
const ADMIN: &str = "Basic YW5uOnBsYW50ZWQtYWRtaW4=";
/// `bob:planted-user`
const BOB: &str = "Basic Ym9iOnBsYW50ZWQtdXNlcg==";
/// `bob:planted-wrong`
const WRONG: &str = "Basic Ym9iOnBsYW50ZWQtd3Jvbmc=";
/// `planted-key-of-tokens` in base64, as it is configured.
const TOKEN_KEY: &str = "cGxhbnRlZC1rZXktb2YtdG9rZW5z";

fn start(directory: &Directory) -> Server {
    directory.configure(&format!(
        "secret = planted-secret-of-cookies\n\n[log]\nlevel = debug\n\n[admins]\nann = planted-admin\n\n\
         [jwt_keys]\nhmac:k = {TOKEN_KEY}\n\n[couchdb]\nusers_db_security_editable = true\n"
    ));
    Server::start(directory)
}

#[test]
fn the_rules_of_user_documents() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut admin = server.client().with(ADMIN);
    admin.put("/_users/_security", r#"{"admins":{"names":["boss"]},"members":{}}"#).expect(200);
    admin
        .put("/_users/org.couchdb.user:bob", r#"{"name":"bob","type":"user","roles":[],"password":"planted-user"}"#)
        .expect(201);
    let (mut bob, mut anonymous) = (server.client().with(BOB), server.client());
    let refused = |client: &mut Client, id: &str, body: &str, reason: &str| {
        let reply = client.put(&format!("/_users/{id}"), body).expect(403);
        let expected = format!("{{\"error\":\"forbidden\",\"reason\":\"{reason}\"}}\n");
        assert_eq!(String::from_utf8(reply.body).unwrap(), expected, "{id} {body}");
    };
    const EVE: &str = "org.couchdb.user:eve";
    for (body, reason) in [
        (r#"{}"#, "doc.type must be user"),
        (r#"{"type":"user"}"#, "doc.name is required"),
        (r#"{"type":"user","name":"eve"}"#, "doc.roles must exist"),
        (r#"{"type":"user","name":"eve","roles":{}}"#, "doc.roles must be an array"),
        (r#"{"type":"user","name":"eve","roles":[null]}"#, "doc.roles can only contain strings"),
        (r#"{"type":"user","name":"eva","roles":[]}"#, "Doc ID must be of the form org.couchdb.user:name"),
        (
            r#"{"type":"user","name":"eve","roles":[],"password_sha":"x"}"#,
            "Users with password_sha must have a salt.See /_utils/script/couch.js for example code.",
        ),
        (r#"{"type":"user","name":"eve","roles":[],"password_scheme":"pbkdf2"}"#, "iterations must be a number."),
        (
            r#"{"type":"user","name":"eve","roles":[],"password_scheme":"pbkdf2","iterations":1}"#,
            "derived_key must be a string.",
        ),
        (
            r#"{"type":"user","name":"eve","roles":[],"password_scheme":"other"}"#,
            "Password scheme `other` not supported.",
        ),
        (r#"{"type":"user","name":"eve","roles":["_x"]}"#, "No system roles (starting with underscore) in users db."),
    ] {
        refused(&mut admin, EVE, body, reason);
    }
    refused(
        &mut admin,
        "org.couchdb.user:_x",
        r#"{"type":"user","name":"_x","roles":[]}"#,
        "Username may not start with underscore.",
    );
    refused(
        &mut admin,
        "org.couchdb.user:a:b",
        r#"{"type":"user","name":"a:b","roles":[]}"#,
        "Character `:` is not allowed in usernames.",
    );
    refused(&mut anonymous, EVE, r#"{"type":"user","name":"eve","roles":["r"]}"#, "Only _admin may set roles");
    let bulk = r#"{"new_edits":false,"docs":[{"_id":"org.couchdb.user:eve","_rev":"1-x","type":"user","name":"eve","roles":["r"]}]}"#;
    let reply = anonymous.post("/_users/_bulk_docs", bulk).expect(201);
    assert!(String::from_utf8_lossy(&reply.body).contains("Only _admin may set roles"), "{reply:?}");
    let bulk = bulk.replace(r#"["r"]"#, r#"[],"password":"planted-eve""#);
    anonymous.post("/_users/_bulk_docs", &bulk).expect(201);
    let eve = String::from_utf8(admin.get(&format!("/_users/{EVE}")).expect(200).body).unwrap();
    assert!(eve.contains("derived_key") && !eve.contains("planted"), "{eve}");
    for reply in [
        bob.get(&format!("/_users/{EVE}")),
        bob.get(&format!("/_users/{EVE}?open_revs=all")),
        bob.get(&format!("/_users/{EVE}?rev=1-x&attachments=true")),
        bob.put(&format!("/_users/{EVE}?rev=1-x"), r#"{"type":"user","name":"eve","roles":[]}"#),
        bob.delete(&format!("/_users/{EVE}?rev=1-x")),
        bob.request("COPY", &format!("/_users/{EVE}"), &[("Destination", "org.couchdb.user:bob")], b"").unwrap(),
    ] {
        assert_eq!((reply.status, String::from_utf8_lossy(&reply.body).contains("derived")), (404, false), "{reply:?}");
    }
    let reply =
        bob.post("/_users/_bulk_get", r#"{"docs":[{"id":"org.couchdb.user:eve"},{"id":"org.couchdb.user:bob"}]}"#);
    let text = String::from_utf8(reply.expect(200).body).unwrap();
    assert!(text.matches("derived_key").count() == 1 && text.contains("\"reason\":\"missing\""), "{text}");
    for path in ["_all_docs", "_changes", "_design_docs", "_local_docs", "_find", "_explain", "_revs_diff"] {
        let reply = match path.starts_with("_all") || path.starts_with("_c") || path.ends_with("docs") {
            true => bob.get(&format!("/_users/{path}?include_docs=true")),
            false => bob.post(&format!("/_users/{path}"), r#"{"selector":{}}"#),
        };
        assert_eq!(reply.status, 401, "{path}");
    }
    admin.put("/_node/_local/_config/chttpd_auth/public_fields", "\"name, nick\"").expect(200);
    let text = String::from_utf8(bob.get(&format!("/_users/{EVE}")).expect(200).body).unwrap();
    assert_eq!(text, "{\"_id\":\"org.couchdb.user:eve\",\"_rev\":\"1-x\",\"name\":\"eve\"}\n");
}

#[test]
fn secrets_stay_secret() {
    let directory = Directory::new();
    let server = start(&directory);
    let mut admin = server.client().with(ADMIN);
    let user = r#"{"name":"bob","type":"user","roles":[],"password":"planted-user"}"#;
    admin.put("/_users/org.couchdb.user:bob", user).expect(201);
    admin.put("/_node/_local/_config/admins/eve", "\"planted-eve\"").expect(200);
    let (mut bob, mut wrong, mut anonymous) = (server.client().with(BOB), server.client().with(WRONG), server.client());
    let mut printed_text = Vec::new();
    let mut check_response = |reply: crate::Reply| {
        printed_text.push(format!("{:?} {}", reply.headers, String::from_utf8_lossy(&reply.body)));
    };
    let login = bob.post("/_session", r#"{"name":"bob","password":"planted-user"}"#).expect(200);
    let cookie = login.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    check_response(bob.request("GET", "/_session", &[("Cookie", &cookie)], b"").unwrap());
    for _ in 0..7 {
        check_response(wrong.get("/_session"));
        check_response(anonymous.post("/_session", r#"{"name":"bob","password":"planted-wrong"}"#));
    }
    for body in [r#"{"name":"bob","password":"planted-user""#, r#"{"name":1,"password":"planted-user"}"#] {
        check_response(anonymous.post("/_session", body));
        check_response(anonymous.put("/_users/org.couchdb.user:bob", body));
        check_response(admin.put("/_users/org.couchdb.user:bob", body));
    }
    check_response(
        anonymous.request("GET", "/_session", &[("Authorization", "Bearer planted.planted.planted")], b"").unwrap(),
    );
    check_response(anonymous.request("GET", "/_session", &[("Cookie", "AuthSession=planted")], b"").unwrap());
    check_response(admin.put("/_node/_local/_config/admins/", "\"planted-nobody\""));
    check_response(admin.put("/_node/_local/_config/chttpd_auth/iterations", "\"planted-number\""));
    for client in [&mut bob, &mut anonymous] {
        for path in [
            "/_node/_local/_config",
            "/_node/_local/_config/admins",
            "/_node/_local/_config/jwt_keys/hmac:k",
            "/_node/_local/_config/chttpd_auth/secret",
            "/_config/chttpd_auth",
            "/_active_tasks",
            "/_scheduler/jobs",
            "/_scheduler/docs",
            "/_users/_all_docs?include_docs=true",
            "/_users/_changes?include_docs=true",
            "/_users/org.couchdb.user:bob",
        ] {
            check_response(client.get(path));
        }
    }
    check_response(admin.get("/_active_tasks"));
    let hashes = String::from_utf8(admin.get("/_node/_local/_config/admins").expect(200).body).unwrap();
    assert!(!hashes.contains("planted") && hashes.contains("-pbkdf2:"), "{hashes}");
    let document = admin.get("/_users/org.couchdb.user:bob").expect(200).json();
    let key = crate::text(document.value(), "derived_key");
    assert!(!String::from_utf8_lossy(document.as_bytes()).contains("planted"));
    drop(server);
    let log = fs::read_to_string(directory.path().join("log")).unwrap();
    assert!(log.contains("authentication failed"), "the log is the one of the server:\n{log}");
    let cookie = cookie.split_once('=').unwrap().1.to_owned();
    for (place, text) in [("the log", log), ("answers", printed_text.join("\n"))] {
        for secret in [
            "planted-user",
            "planted-wrong",
            "planted-eve",
            "planted-admin",
            "planted-secret",
            TOKEN_KEY,
            &key,
            &cookie,
        ] {
            let found = text.lines().find(|line| line.contains(secret));
            assert_eq!(found, None, "{secret} in {place}");
        }
    }
    let configuration = directory.configuration();
    assert!(!configuration.contains("planted-admin") && !configuration.contains("planted-eve"), "{configuration}");
}
