//! The arguments of validation functions, and edits of large, deep and local documents.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_model::json::{MAX_DEPTH, Value};

use super::json;
use super::node::{Ask, TestResponse, World};

fn world() -> World {
    let world = World::new();
    world.make_database("db");
    world
}

async fn ask(world: &World, line: &str, body: &str) -> TestResponse {
    world.ask(Ask::new(line).basic("admin", "pw").json(body)).await
}

fn rev(reply: &TestResponse) -> String {
    json(&reply.body).value().get("rev").and_then(Value::as_str).unwrap().into_owned()
}

fn hash(rev: &str) -> &str {
    rev.split_once('-').unwrap().1
}

/// A database with the documents `a` (two revisions) and `gone` (deleted). All further writes are refused with a reason
/// that contains both documents as the validation function received them.
struct Refusing {
    world: World,
    revs: [String; 2],
    old: String,
    attachment: &'static str,
}

impl Refusing {
    async fn new() -> Self {
        let world = world();
        let first = rev(&world.admin("PUT /db/a", r#"{"n":1}"#).await);
        let with_attachment =
            format!(r#"{{"_rev":"{first}","n":2,"_attachments":{{"x":{{"content_type":"a/b","data":"YWJj"}}}}}}"#);
        let second = rev(&world.admin("PUT /db/a", &with_attachment).await);
        let gone = rev(&world.admin("PUT /db/gone", "{}").await);
        world.admin(&format!("DELETE /db/gone?rev={gone}"), "").await;
        world.admin("PUT /db/_design/d", r#"{"validate_doc_update":"refuse","updates":{"same":"same"}}"#).await;
        let attachment = concat!(
            r#""x":{"content_type":"a/b","revpos":2,"digest":"md5-kAFQmDzST7DWlj99KOF/cg==","#,
            r#""length":3,"stub":true}"#
        );
        let old = format!(
            r#"{{"_id":"a","_rev":"{second}","n":2,"_revisions":{{"start":2,"ids":["{}","{}"]}},"_attachments":{{{attachment}}}}}"#,
            hash(&second),
            hash(&first)
        );
        Self { world, revs: [first, second], old, attachment }
    }

    /// Replaces `R1`, `R2` by the revisions of `a`, `H1`, `H2` by their hashes, and `X` by its attachment.
    fn filled(&self, text: &str) -> String {
        let [first, second] = &self.revs;
        let (h1, h2) = (hash(first), hash(second));
        let names = [("R1", first.as_str()), ("R2", second), ("H1", h1), ("H2", h2), ("#X#", self.attachment)];
        names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value))
    }

    async fn check(&self, line: &str, body: &str, new: &str, old: &str) {
        let filled = self.filled(line);
        let asked = Ask::new(&filled).basic("admin", "pw");
        let asked = match line.split_once("destination=") {
            Some((_, destination)) => asked.header("destination", destination),
            None if line.contains("/a/") => asked.text("a/b", body),
            None => asked.json(&self.filled(body)),
        };
        let reply = self.world.ask(asked).await;
        let (new, old) = (self.filled(new), if old == "old" { self.old.as_str() } else { old });
        let expected = format!(r#""error":"forbidden","reason":[{new},{old}]"#);
        assert!(reply.body.contains(&expected), "{line} {body}: {}\nexpected {expected}", reply.line());
        let status = if line.contains("_bulk_docs") { 201 } else { 403 };
        assert_eq!(reply.status, status, "{line} {body}");
    }
}

/// Regression: functions received the new revision of the edit.
#[tokio::test]
async fn validation_functions_see_an_edit_with_the_revisions_that_the_client_named() {
    let refusing = Refusing::new().await;
    let replaced = r#"{"_id":"a","_rev":"R2","n":3,"_revisions":{"start":2,"ids":["H2"]}}"#;
    let with_history = r#"{"_id":"a","_rev":"R2","n":3,"_revisions":{"start":2,"ids":["H2","H1"]}}"#;
    for (line, body, new, old) in [
        ("PUT /db/b", r#"{"n":1}"#, r#"{"_id":"b","n":1}"#, "null"),
        ("POST /db", r#"{"_id":"b","n":1}"#, r#"{"_id":"b","n":1}"#, "null"),
        ("POST /db", r#"{"n":1}"#, r#"{"_id":"uuid","n":1}"#, "null"),
        ("POST /db/_bulk_docs", r#"{"docs":[{"_id":"b","n":1}]}"#, r#"{"_id":"b","n":1}"#, "null"),
        ("PUT /db/b", r#"{"_deleted":true}"#, r#"{"_id":"b","_deleted":true}"#, "null"),
        // A deleted document that is created again has no old document.
        ("PUT /db/gone", r#"{"n":1}"#, r#"{"_id":"gone","n":1}"#, "null"),
        ("PUT /db/a", r#"{"_rev":"R2","n":3}"#, replaced, "old"),
        ("PUT /db/a?rev=R2", r#"{"n":3}"#, replaced, "old"),
        ("POST /db", r#"{"_id":"a","_rev":"R2","n":3}"#, replaced, "old"),
        ("POST /db/_bulk_docs", r#"{"docs":[{"_id":"a","_rev":"R2","n":3}]}"#, replaced, "old"),
        ("PUT /db/a", r#"{"_revisions":{"start":2,"ids":["H2","H1"]},"n":3}"#, with_history, "old"),
        (
            "DELETE /db/a?rev=R2",
            "",
            r#"{"_id":"a","_rev":"R2","_deleted":true,"_revisions":{"start":2,"ids":["H2"]}}"#,
            "old",
        ),
        (
            "POST /db/_design/d/_update/same/a",
            "",
            r##"{"_id":"a","_rev":"R2","n":2,"_revisions":{"start":2,"ids":["H2","H1"]},"_attachments":{#X#}}"##,
            "old",
        ),
        (
            "PUT /db/a?new_edits=false",
            r#"{"_revisions":{"start":3,"ids":["c","H2","H1"]},"n":3}"#,
            r#"{"_id":"a","_rev":"3-c","n":3,"_revisions":{"start":3,"ids":["c","H2","H1"]}}"#,
            "old",
        ),
    ] {
        refusing.check(line, body, new, old).await;
    }
}

#[tokio::test]
async fn validation_functions_see_attachments_as_they_are_before_the_edit_is_written() {
    let refusing = Refusing::new().await;
    let stub = r##"{"_id":"a","_rev":"R2","_revisions":{"start":2,"ids":["H2"]},"_attachments":{#X#}}"##;
    let pending = r#""y":{"content_type":"a/b","revpos":0,"length":2,"stub":true}"#;
    let new = format!(r#"{{"_id":"b","_attachments":{{{pending}}}}}"#);
    let added = format!(
        r##"{{"_id":"a","_rev":"R2","n":2,"_revisions":{{"start":2,"ids":["H2","H1"]}},"_attachments":{{{pending},#X#}}}}"##
    );
    let removed = r#"{"_id":"a","_rev":"R2","n":2,"_revisions":{"start":2,"ids":["H2","H1"]}}"#;
    for (line, body, new, old) in [
        ("PUT /db/a", r#"{"_rev":"R2","_attachments":{"x":{"stub":true}}}"#, stub, "old"),
        ("PUT /db/b", r#"{"_attachments":{"y":{"content_type":"a/b","data":"aGk="}}}"#, new.as_str(), "null"),
        ("PUT /db/a/y?rev=R2", "hi", &added, "old"),
        ("DELETE /db/a/x?rev=R2", "", removed, "old"),
        ("COPY /db/a?destination=b", "", r##"{"_id":"b","n":2,"_attachments":{#X#}}"##, "null"),
    ] {
        refusing.check(line, body, new, old).await;
    }
}

/// Regression: the limit counted escapes, `_revisions`, and the envelope of `_bulk_docs`.
#[tokio::test]
async fn the_size_of_a_document_is_that_of_its_body() {
    let world = world();
    world.set("couchdb", "max_document_size", "40");
    let fits = format!(r#""t":"{}""#, "\\u00e9".repeat(16));
    let history: Vec<String> = (0..50).map(|n| format!("\"{n:032x}\"")).collect();
    let revisions = format!(r#""_revisions":{{"start":50,"ids":[{}]}}"#, history.join(","));
    let attachment = format!(r#""_attachments":{{"x":{{"data":"{}"}}}}"#, "YWJj".repeat(40));
    for (line, body) in [
        ("PUT /db/a", format!("{{{fits}}}")),
        ("PUT /db/b?new_edits=false", format!("{{{fits},{revisions}}}")),
        ("PUT /db/c", format!("{{{fits},{attachment}}}")),
        ("POST /db", format!(r#"{{"_id":"d",{fits},{attachment}}}"#)),
        ("POST /db/_bulk_docs", format!(r#"{{"docs":[{{"_id":"e",{fits},{attachment}}}]}}"#)),
        ("POST /db/_bulk_docs", format!(r#"{{"new_edits":false,"docs":[{{"_id":"f",{fits},{revisions}}}]}}"#)),
        ("PUT /db/_local/g", format!("{{{fits}}}")),
    ] {
        let reply = ask(&world, line, &body).await;
        assert!(reply.status.is_success() && !reply.body.contains("error"), "{line}: {}", reply.line());
    }
    let large = format!(r#""t":"{}""#, "é".repeat(17));
    let refused = |id: &str| format!(r#"413 {{"error":"document_too_large","reason":"{id}"}}"#);
    for (line, body, id) in [
        ("PUT /db/h", format!("{{{large}}}"), ""),
        ("POST /db", format!(r#"{{"_id":"h",{large}}}"#), "h"),
        ("POST /db/_bulk_docs", format!(r#"{{"docs":[{{"_id":"i"}},{{"_id":"h",{large}}}]}}"#), "h"),
        ("POST /db/_bulk_docs", format!(r#"{{"new_edits":false,"docs":[{{"_id":"h","_rev":"1-h",{large}}}]}}"#), "h"),
    ] {
        assert_eq!(ask(&world, line, &body).await.line(), refused(id), "{line}");
    }
}

/// Regression: the nesting limit of `_bulk_docs` was lower than that of single documents.
#[tokio::test]
async fn documents_are_nested_as_deeply_in_bulk_as_alone() {
    let world = world();
    let nested = |id: &str, levels: usize| {
        format!(r#"{{"_id":"{id}","_rev":"1-a","n":{}{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
    };
    for (levels, fits) in [(MAX_DEPTH, true), (MAX_DEPTH + 1, false)] {
        let alone =
            ask(&world, &format!("PUT /db/a{levels}?new_edits=false"), &nested(&format!("a{levels}"), levels)).await;
        assert_eq!(alone.status.is_success(), fits, "{levels}");
        let bulk = format!(r#"{{"new_edits":false,"docs":[{}]}}"#, nested(&format!("b{levels}"), levels));
        assert_eq!(ask(&world, "POST /db/_bulk_docs", &bulk).await.status.is_success(), fits, "{levels}");
        for id in [format!("a{levels}"), format!("b{levels}")] {
            let found = ask(&world, &format!("GET /db/{id}"), "").await.status;
            assert_eq!(found, if fits { 200 } else { 404 }, "{id}");
        }
    }
}

/// Regression: one such document failed the whole batch.
#[tokio::test]
async fn replicated_local_documents_with_revisions_of_others_are_ignored() {
    let world = world();
    for local_rev in ["1-abc", "2-0", "0-x"] {
        let body = format!(
            r#"{{"new_edits":false,"docs":[{{"_id":"_local/l","_rev":"{local_rev}"}},{{"_id":"a","_rev":"1-a"}}]}}"#
        );
        assert_eq!(ask(&world, "POST /db/_bulk_docs", &body).await.line(), "201 []", "{local_rev}");
        let line = "PUT /db/_local/l?new_edits=false";
        let reply = ask(&world, line, &format!(r#"{{"_rev":"{local_rev}"}}"#)).await;
        assert_eq!(reply.line(), format!(r#"201 {{"ok":true,"id":"_local/l","rev":"{local_rev}"}}"#));
        assert_eq!(ask(&world, "GET /db/_local/l", "").await.status, 404, "{local_rev}");
    }
    assert_eq!(ask(&world, "GET /db/a", "").await.status, 200);
    let edit = ask(&world, "PUT /db/_local/l", r#"{"_rev":"1-abc"}"#).await;
    assert_eq!(edit.line(), r#"400 {"error":"bad_request","reason":"Invalid rev format"}"#);
    let bulk = ask(&world, "POST /db/_bulk_docs", r#"{"docs":[{"_id":"_local/l","_rev":"1-abc"},{"_id":"b"}]}"#).await;
    let refused = r#"201 [{"id":"_local/l","error":"error","reason":"Invalid rev format"},{"ok":true,"id":"b","#;
    assert!(bulk.line().starts_with(refused), "{}", bulk.line());
}

#[tokio::test]
async fn local_documents_without_a_name_are_refused() {
    let world = world();
    let refused = r#"400 {"error":"bad_request","reason":"Invalid _local document id."}"#;
    for path in ["/db/_local", "/db/_local/", "/db/_local%2F", "/db/%5Flocal"] {
        for method in ["GET", "PUT", "DELETE", "POST", "COPY"] {
            let line = format!("{method} {path}");
            assert_eq!(ask(&world, &line, "{}").await.line(), refused, "{line}");
        }
    }
}

#[tokio::test]
async fn functions_see_local_documents() {
    let world = world();
    world.admin("PUT /db/_design/d", r#"{"shows":{"s":"document"},"updates":{"u":"same"}}"#).await;
    let show = || ask(&world, "GET /db/_design/d/_show/s/_local/l", "");
    assert_eq!(show().await.line(), "200 null");
    world.admin("PUT /db/_local/l", r#"{"n":1}"#).await;
    let shown = r#"200 {"_id":"_local/l","_rev":"0-1","n":1,"_revisions":{"start":0,"ids":["1"]}}"#;
    let first = show().await;
    assert_eq!(first.line(), shown);
    let updated = ask(&world, "POST /db/_design/d/_update/u/_local/l", "").await;
    assert_eq!((updated.status.as_u16(), updated.header("x-couch-update-newrev")), (201, "0-2"));
    assert_ne!(first.header("etag"), show().await.header("etag"));
}

#[tokio::test]
async fn a_copy_takes_its_target_as_text_and_no_number_of_copies() {
    let world = world();
    world.admin("PUT /db/a", "{}").await;
    for (destination, id) in [("b", "b"), ("%C3%A9", "é"), ("x y", "x y")] {
        let copy = Ask::new("COPY /db/a?w=3").basic("admin", "pw").header("destination", destination);
        let reply = world.ask(copy).await;
        assert_eq!(reply.status, 201, "{destination}");
        assert!(reply.body.contains(&format!(r#""id":"{id}""#)), "{destination}: {}", reply.body);
    }
    let request = |destination: &[u8]| {
        http::Request::builder()
            .method("COPY")
            .uri("/db/a")
            .header("authorization", "Basic YWRtaW46cHc=")
            .header("destination", http::HeaderValue::from_bytes(destination).unwrap())
            .body(Vec::new())
            .unwrap()
    };
    let reply = world.exchange(request("日本".as_bytes())).await;
    assert!(reply.status == 201 && reply.body.contains(r#""id":"日本""#), "{}", reply.line());
    let refused = world.exchange(request(b"\xff")).await;
    assert_eq!(refused.line(), r#"400 {"error":"illegal_docid","reason":"Document id must be valid UTF-8"}"#);
}

#[tokio::test]
async fn nothing_to_write_is_written_all_or_nothing() {
    let world = world();
    for body in [r#"{"all_or_nothing":true,"docs":[]}"#, r#"{"all_or_nothing":true,"new_edits":false,"docs":[]}"#] {
        assert_eq!(ask(&world, "POST /db/_bulk_docs", body).await.line(), "201 []", "{body}");
    }
    let one = ask(&world, "POST /db/_bulk_docs", r#"{"all_or_nothing":true,"docs":[{"_id":"a"}]}"#).await;
    assert_eq!(one.status, 417);
}

/// Regression: unknown values were treated as an unset value.
#[tokio::test]
async fn passwords_are_refused_while_their_scheme_is_unknown() {
    let known = settee_settings::find("chttpd_auth", "password_scheme").unwrap();
    assert_eq!(known.kind.violation("nosuch"), None, "it can be set");
    let world = World::new();
    world.admin("PUT /_users", "").await;
    let user = r#"{"name":"ann","type":"user","roles":[],"password":"x"}"#;
    let line = "PUT /_users/org.couchdb.user:ann";
    for scheme in ["nosuch", "PBKDF2", "simple+pbkdf2"] {
        world.set("chttpd_auth", "password_scheme", scheme);
        let refused = r#"403 {"error":"forbidden","reason":"Server cannot hash passwords at this time."}"#;
        assert_eq!(ask(&world, line, user).await.line(), refused, "{scheme}");
    }
    world.set("chttpd_auth", "password_scheme", "simple");
    assert_eq!(ask(&world, line, user).await.status, 201);
}
