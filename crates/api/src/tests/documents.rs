//! Documents through the whole server: regression tests for differences from CouchDB.
#![expect(clippy::unwrap_used, reason = "tests")]

use settee_database::{DatabaseOptions, Layout};
use settee_model::json::Value;

use super::json;
use super::node::{Ask, TestResponse, World};

fn world() -> World {
    let world = World::new();
    world.make_database("db");
    world
}

fn partitioned() -> World {
    let world = World::new();
    let options = DatabaseOptions { created_ms: 0, instance: 8, layout: Layout::Partitioned, q: 1 };
    world.node.catalog.create("db", options).unwrap();
    world
}

async fn get(world: &World, target: &str) -> TestResponse {
    world.ask(Ask::new(&format!("GET {target}")).basic("admin", "pw").header("accept", "application/json")).await
}

async fn ask(world: &World, line: &str, body: &str) -> TestResponse {
    world.ask(Ask::new(line).basic("admin", "pw").json(body)).await
}

fn text(reply: &TestResponse, name: &str) -> String {
    json(&reply.body).value().get(name).and_then(Value::as_str).unwrap().into_owned()
}

const CONFLICT: &str = r#"{"error":"conflict","reason":"Document update conflict."}"#;

#[tokio::test]
async fn an_edit_of_a_missing_document_is_a_conflict_on_every_path() {
    let world = world();
    world.admin("PUT /db/other", "{}").await;
    let rev = "1-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    for members in ["", r#","_deleted":true"#] {
        let document = format!(r#"{{"_id":"a","_rev":"{rev}"{members}}}"#);
        assert_eq!(ask(&world, "PUT /db/a", &document).await.line(), format!("409 {CONFLICT}"));
        assert_eq!(ask(&world, "POST /db", &document).await.line(), format!("409 {CONFLICT}"));
        let bulk = ask(&world, "POST /db/_bulk_docs", &format!(r#"{{"docs":[{{"_id":"b"}},{document}]}}"#)).await;
        let row = r#"{"id":"a","error":"conflict","reason":"Document update conflict."}"#;
        assert!(bulk.body.contains(row), "{}", bulk.body);
    }
    for path in [r#"{"start":3,"ids":["c","b","a"]}"#, r#"{"start":0,"ids":["a"]}"#] {
        let document = format!(r#"{{"_id":"a","_revisions":{path}}}"#);
        assert_eq!(ask(&world, "PUT /db/a", &document).await.line(), format!("409 {CONFLICT}"), "{path}");
    }
    let copy = Ask::new("COPY /db/other").basic("admin", "pw").header("destination", &format!("a?rev={rev}"));
    assert_eq!(world.ask(copy).await.line(), format!("409 {CONFLICT}"));
    let missing_rev = r#"409 {"error":"not_found","reason":"missing_rev"}"#;
    assert_eq!(ask(&world, &format!("PUT /db/a/x?rev={rev}"), "abc").await.line(), missing_rev);
    let related = format!(
        "--s\r\nContent-Type: application/json\r\n\r\n{{\"_rev\":\"{rev}\",\"_attachments\":{{\"x\":{{\"follows\":true}}}}}}\r\n--s\r\n\r\nabc\r\n--s--"
    );
    let put = Ask::new("PUT /db/a").basic("admin", "pw").text("multipart/related; boundary=s", &related);
    assert_eq!(world.ask(put).await.line(), format!("409 {CONFLICT}"));
    assert_eq!(get(&world, "/db/a").await.line(), r#"404 {"error":"not_found","reason":"missing"}"#);
}

/// Regression: each leaf had a sequence of its own.
#[tokio::test]
async fn leaves_of_one_batch_are_one_change() {
    let world = world();
    let leaf = |hash: &str| format!(r#"{{"_id":"a","_revisions":{{"start":2,"ids":["{hash}","f"]}},"of":"{hash}"}}"#);
    let batch = |docs: &[String]| format!(r#"{{"new_edits":false,"docs":[{}]}}"#, docs.join(","));
    let other = r#"{"_id":"b","_rev":"1-a"}"#.to_owned();
    ask(&world, "POST /db/_bulk_docs", &batch(&[leaf("b"), leaf("c"), other, leaf("a")])).await;
    assert!(text(&get(&world, "/db").await, "update_seq").starts_with("2-"));
    let changes = get(&world, "/db/_changes?style=all_docs&include_docs=true&limit=1").await.body;
    assert!(changes.contains(r#"{"seq":"1-"#) && changes.contains(r#""of":"c""#), "{changes}");
    assert!(changes.contains(r#""changes":[{"rev":"2-c"},{"rev":"2-b"},{"rev":"2-a"}]"#), "{changes}");
    assert!(changes.contains(r#""pending":1"#), "{changes}");
    let all = get(&world, "/db/a?open_revs=all").await.body;
    assert!(["a", "b", "c"].iter().all(|of| all.contains(&format!(r#""of":"{of}""#))), "{all}");
}

#[tokio::test]
async fn an_attachment_needs_an_encoding_that_the_client_takes() {
    let world = world();
    world.ask(Ask::new("PUT /db/a/t").basic("admin", "pw").header("content-type", "text/plain").body("hello")).await;
    for (encodings, status) in
        [("gzip, *;q=0", 200), ("deflate, gzip;q=0", 200), ("deflate, *;q=0", 406), ("identity;q=0", 406)]
    {
        let asked = |path: &'static str| Ask::new(path).basic("admin", "pw").header("accept-encoding", encodings);
        let reply = world.ask(asked("GET /db/a/t")).await;
        assert_eq!(reply.status, status, "{encodings}");
        if status == 406 {
            assert_eq!(reply.body.trim(), r#"{"error":"not_acceptable","reason":"unsupported encoding"}"#);
        }
        assert_eq!(world.ask(asked("GET /db/a/none")).await.status, 404, "{encodings}");
    }
}

/// Regression: with `new_edits=false` a deletion without a leaf was accepted.
#[tokio::test]
async fn only_put_knows_new_edits() {
    let world = world();
    let first = text(&world.admin("PUT /db/a", r#"{"n":1}"#).await, "rev");
    world.admin("PUT /db/a", &format!(r#"{{"n":2,"_rev":"{first}"}}"#)).await;
    assert_eq!(ask(&world, "DELETE /db/a?new_edits=false", "").await.line(), format!("409 {CONFLICT}"));
    let stale = format!("DELETE /db/a?new_edits=false&rev={first}");
    assert_eq!(ask(&world, &stale, "").await.line(), format!("409 {CONFLICT}"));
    let posted = ask(&world, "POST /db?new_edits=false", r#"{"_id":"b"}"#).await;
    assert_eq!(posted.status, 201);
    assert!(text(&posted, "rev").starts_with("1-"));
    assert_eq!(
        ask(&world, "PUT /db/c?new_edits=false", r#"{"_rev":"7-x"}"#).await.line(),
        r#"201 {"ok":true,"id":"c","rev":"7-x"}"#
    );
}

#[tokio::test]
async fn batches_are_of_put_and_post() {
    let world = world();
    let accepted = ask(&world, "PUT /db/a?batch=ok", "{}").await;
    assert_eq!(accepted.line(), r#"202 {"ok":true,"id":"a"}"#);
    assert_eq!((accepted.header("location"), accepted.header("etag")), ("", ""));
    assert_eq!(ask(&world, "POST /db?batch=ok", r#"{"_id":"b"}"#).await.status, 202);
    let rev = text(&world.admin("PUT /db/c", "{}").await, "rev");
    assert_eq!(ask(&world, &format!("DELETE /db/c?batch=ok&rev={rev}"), "").await.status, 200);
    assert_eq!(ask(&world, "PUT /db/d/x?batch=ok", "abc").await.status, 201);
    let copy = Ask::new("COPY /db/d?batch=ok").basic("admin", "pw").header("destination", "e");
    assert_eq!(world.ask(copy).await.status, 201);
    assert_eq!(ask(&world, "PUT /db/f?batch=no&batch=ok", "{}").await.status, 201, "the first value counts");
}

#[tokio::test]
async fn more_copies_than_there_are_make_an_edit_accepted_only() {
    let world = world();
    assert_eq!(ask(&world, "PUT /db/a?w=1", "{}").await.status, 201);
    assert_eq!(ask(&world, "PUT /db/b?w=2", "{}").await.status, 202);
    assert_eq!(ask(&world, "POST /db?w=5", r#"{"_id":"c"}"#).await.status, 202);
    let bulk = ask(&world, "POST /db/_bulk_docs", r#"{"w":3,"docs":[{"_id":"d"}]}"#).await;
    assert_eq!(bulk.status, 202);
    assert!(bulk.body.contains(r#""accepted":true}"#), "{}", bulk.body);
}

#[tokio::test]
async fn a_copy_of_a_deletion_is_a_deletion() {
    let world = world();
    let rev = text(&world.admin("PUT /db/a", r#"{"n":1}"#).await, "rev");
    let gone =
        text(&world.admin("PUT /db/a", &format!(r#"{{"_rev":"{rev}","_deleted":true,"why":"x"}}"#)).await, "rev");
    let copy = async |from: &str| {
        let line = format!("COPY /db/a?rev={from}");
        world.ask(Ask::new(&line).basic("admin", "pw").header("destination", "b")).await
    };
    assert_eq!(copy(&gone).await.status, 201);
    assert_eq!(get(&world, "/db/b").await.line(), r#"404 {"error":"not_found","reason":"deleted"}"#);
    assert_eq!(copy(&rev).await.status, 201, "a deleted document can be made again");
}

#[tokio::test]
async fn metadata_stand_behind_the_members_of_a_document() {
    let world = world();
    let docs = r#"{"new_edits":false,"docs":[{"_id":"a","_revisions":{"start":2,"ids":["b","a"]},"n":1},
        {"_id":"a","_revisions":{"start":2,"ids":["e","a"]},"n":2},
        {"_id":"a","_revisions":{"start":3,"ids":["d","c","a"]},"_deleted":true,"n":3}]}"#;
    world.admin("POST /db/_bulk_docs", docs).await;
    let shown = get(&world, "/db/a?meta=true&revs=true&local_seq=true").await;
    let names: Vec<String> =
        json(&shown.body).value().members().map(|(name, _)| name.as_str().unwrap().into_owned()).collect();
    let order = ["_id", "_rev", "n", "_revisions", "_revs_info", "_conflicts", "_deleted_conflicts", "_local_seq"];
    assert_eq!(names, order);
    assert_eq!(get(&world, "/db/a?rev=3-d").await.body.trim_end(), r#"{"_id":"a","_rev":"3-d","n":3,"_deleted":true}"#);
    let leaves = get(&world, "/db/a?open_revs=all").await.body;
    let place = |rev: &str| leaves.find(rev).unwrap();
    assert!(place("2-b") < place("2-e") && place("2-e") < place("3-d"), "{leaves}");
}

#[tokio::test]
async fn leaves_come_in_parts_unless_json_alone_is_wanted() {
    let world = world();
    world.admin("PUT /db/a", "{}").await;
    for (accept, parts) in [
        (None, true),
        (Some("*/*"), true),
        (Some("multipart/*"), true),
        (Some("application/json, multipart/mixed"), true),
        (Some("application/json"), false),
        (Some("text/html"), false),
    ] {
        let asked = Ask::new("GET /db/a?open_revs=all").basic("admin", "pw");
        let asked = accept
            .map(|accept| Ask::new("GET /db/a?open_revs=all").basic("admin", "pw").header("accept", accept))
            .unwrap_or(asked);
        let reply = world.ask(asked).await;
        assert_eq!(reply.header("content-type").starts_with("multipart/mixed"), parts, "{accept:?}");
    }
}

#[tokio::test]
async fn a_smaller_limit_of_revisions_shows_at_the_next_read() {
    let world = world();
    world.admin("PUT /db/a?new_edits=false", r#"{"_revisions":{"start":4,"ids":["d","c","b","a"]}}"#).await;
    assert!(get(&world, "/db/a?revs=true").await.body.contains(r#""ids":["d","c","b","a"]"#));
    world.admin("PUT /db/_revs_limit", "2").await;
    assert!(get(&world, "/db/a?revs=true").await.body.contains(r#""ids":["d","c"]"#));
    assert!(!get(&world, "/db/a?revs_info=true").await.body.contains("2-b"));
}

#[tokio::test]
async fn local_documents_have_tags_and_no_attachments() {
    let world = world();
    let put = world.admin("PUT /db/_local/a", r#"{"n":1,"_attachments":{"x":{"data":"AAEC"}}}"#).await;
    let tag = put.header("etag").to_owned();
    assert!(tag.len() > 4, "{tag}");
    let shown = get(&world, "/db/_local/a").await;
    assert_eq!(
        (shown.body.trim_end(), shown.header("etag")),
        (r#"{"_id":"_local/a","_rev":"0-1","n":1}"#, tag.as_str())
    );
    let known = Ask::new("GET /db/_local/a").basic("admin", "pw").header("if-none-match", &tag);
    assert_eq!(world.ask(known).await.status, 304);
    world.admin("PUT /db/_local/a", r#"{"n":2}"#).await;
    assert_ne!(get(&world, "/db/_local/a").await.header("etag"), tag, "the revision is the same, the document is not");
    let bulk = world
        .admin("POST /db/_bulk_docs", r#"{"docs":[{"_id":"_local/b","_attachments":{"x":{"data":"AAEC"}}}]}"#)
        .await;
    assert!(bulk.body.contains(r#""ok":true"#), "{}", bulk.body);
    assert!(get(&world, "/db/_local/a?revs=true").await.body.contains(r#""_revisions":{"start":0,"ids":["1"]}"#));
    for rev in ["1-1", "0-x", "0-"] {
        let refused = ask(&world, "PUT /db/_local/a", &format!(r#"{{"_rev":"{rev}"}}"#)).await;
        assert_eq!(refused.line(), r#"400 {"error":"bad_request","reason":"Invalid rev format"}"#, "{rev}");
    }
    let replicated = ask(&world, "PUT /db/_local/c?new_edits=false", r#"{"_rev":"0-5"}"#).await;
    assert_eq!(replicated.line(), r#"201 {"ok":true,"id":"_local/c","rev":"0-5"}"#);
    assert_eq!(get(&world, "/db/_local/c").await.line(), r#"200 {"_id":"_local/c","_rev":"0-6"}"#);
    assert_eq!(ask(&world, "PUT /db/_local/d?new_edits=false", "{}").await.status, 400);
    for query in ["rev=0-1", "open_revs=all"] {
        assert_eq!(get(&world, &format!("/db/_local/a?{query}")).await.status, 404, "{query}");
    }
}

fn form(parts: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (disposition, data) in parts {
        body.push_str(&format!("--sep\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{data}\r\n"));
    }
    body + "--sep--\r\n"
}

#[tokio::test]
async fn forms_upload_documents_and_files() {
    let world = world();
    let rev = text(&world.admin("PUT /db/a", r#"{"n":1}"#).await, "rev");
    let send = async |target: &str, referer: Option<&str>, body: &str| {
        let line = format!("POST {target}");
        let ask = Ask::new(&line).basic("admin", "pw").header("host", "here:5984");
        let ask = ask.text("multipart/form-data; boundary=sep", body);
        world
            .ask(match referer {
                Some(referer) => ask.header("referer", referer),
                None => ask,
            })
            .await
    };
    let own = Some("http://here:5984/db/a");
    let upload =
        form(&[("name=\"_rev\"", &rev), ("name=\"_attachments\"; filename=\"f.bin\"", "abc"), ("name=\"other\"", "x")]);
    let saved = send("/db/a", own, &upload).await;
    assert_eq!(saved.status, 201, "{saved:?}");
    assert_eq!(saved.header("etag"), format!("\"{}\"", text(&saved, "rev")));
    assert_eq!(get(&world, "/db/a/f.bin").await.body, "abc");
    assert!(get(&world, "/db/a").await.body.contains("\"n\":1"));
    let document = form(&[("name=\"_doc\"", r#"{"n":5}"#)]);
    assert_eq!(send("/db/b", own, &document).await.status, 201);
    assert_eq!(send("/db/b", own, &document).await.line(), format!("409 {CONFLICT}"));
    let bad = |reason: &str| format!(r#"400 {{"error":"bad_request","reason":"{reason}"}}"#);
    assert_eq!(send("/db/c", None, &document).await.line(), bad("Referer header required."));
    assert_eq!(send("/db/c", Some("http://other/"), &document).await.line(), bad("Referer header must match host."));
    assert_eq!(send("/db/c", own, &form(&[("name=\"_doc\"", "x")])).await.line(), bad("invalid UTF-8 JSON"));
    assert_eq!(send("/db/a", own, &form(&[])).await.line(), bad("Invalid rev format"));
    assert_eq!(send("/db/nosuch", own, &upload).await.status, 409);
    assert_eq!(send("/db/c", own, "no parts").await.status, 400);
}

#[tokio::test]
async fn ids_without_a_partition_are_refused_by_reads_and_purges_as_well() {
    let world = partitioned();
    let refused = r#"400 {"error":"illegal_docid","reason":"Doc id must be of form partition:id"}"#;
    for line in ["GET /db/x", "DELETE /db/x?rev=1-a", "GET /db/x/y", "DELETE /db/x/y?rev=1-a", "PUT /db/x/y"] {
        assert_eq!(ask(&world, line, "").await.line(), refused, "{line}");
    }
    for line in ["POST /db/_purge", "POST /db/_revs_diff", "POST /db/_missing_revs"] {
        assert_eq!(ask(&world, line, r#"{"x":["1-a"]}"#).await.line(), refused, "{line}");
    }
    let read = ask(&world, "POST /db/_bulk_get", r#"{"docs":[{"id":"x"},{"id":"a:1"}]}"#).await;
    let row = r#"{"id":"x","docs":[{"error":{"rev":null,"reason":"Doc id must be of form partition:id","id":"x","error":"illegal_docid"}}]}"#;
    assert!(read.body.contains(row) && read.body.contains("missing"), "{}", read.body);
    assert_eq!(ask(&world, "GET /db/_design/x", "").await.status, 404);
}

#[tokio::test]
async fn a_purge_is_limited_as_the_configuration_says() {
    let world = world();
    world.set("purge", "max_document_id_number", "2");
    world.set("purge", "max_revisions_number", "3");
    for (body, expected) in [
        (r#"{"a":["1-a"],"b":["1-a","2-b"]}"#, r#"201 {"purge_seq":null,"purged":{"a":[],"b":[]}}"#),
        (
            r#"{"a":[],"b":[],"c":[]}"#,
            r#"400 {"error":"bad_request","reason":"Exceeded maximum number of documents."}"#,
        ),
        (
            r#"{"a":["1-a","1-b","1-c","1-d"]}"#,
            r#"400 {"error":"bad_request","reason":"Exceeded maximum number of revisions."}"#,
        ),
    ] {
        assert_eq!(ask(&world, "POST /db/_purge", body).await.line(), expected, "{body}");
    }
}

#[tokio::test]
async fn a_filter_that_fails_at_once_is_answered_with_its_error_by_all_feeds() {
    let world = world();
    world.admin("PUT /db/_design/d", r#"{"filters":{"f":"function() {}"}}"#).await;
    for feed in ["normal", "longpoll", "continuous", "eventsource"] {
        let reply = get(&world, &format!("/db/_changes?feed={feed}&filter=d/f&timeout=100")).await;
        assert!(reply.status.as_u16() >= 400, "{feed}: {reply:?}");
        assert!(reply.body.contains("no filters"), "{feed}: {reply:?}");
    }
}

#[tokio::test]
async fn documents_that_are_looked_up_leave_the_others_pending() {
    let world = world();
    for id in ["a", "b", "c"] {
        world.admin(&format!("PUT /db/{id}"), "{}").await;
    }
    for feed in ["normal", "longpoll"] {
        let pending = async |ids: &str| {
            let target = format!("/db/_changes?feed={feed}&timeout=10&filter=_doc_ids&doc_ids={ids}");
            let reply = get(&world, &target).await;
            json(&reply.body).value().get("pending").and_then(Value::as_u64)
        };
        assert_eq!(pending("%5B%22a%22%5D").await, Some(2), "{feed}");
        assert_eq!(pending("%5B%22nosuch%22,%22a%22%5D").await, Some(2), "{feed}");
        assert_eq!(pending("%5B%5D").await, Some(3), "{feed}");
    }
}

#[tokio::test]
async fn names_of_attachments_that_are_no_text() {
    let world = world();
    world.admin("PUT /db/a/x", "abc").await;
    let no_text = r#"400 {"error":"bad_request","reason":"Attachment name is not UTF-8 encoded"}"#;
    for line in ["PUT /db/a/%FF", "DELETE /db/a/%FF", "PUT /db/_design/d/y/%C3"] {
        assert_eq!(ask(&world, line, "").await.line(), no_text, "{line}");
    }
    let missing = r#"404 {"error":"not_found","reason":"Document is missing attachment"}"#;
    assert_eq!(get(&world, "/db/a/%FF").await.line(), missing);
    assert_eq!(get(&world, "/db/nosuch/%FF").await.line(), r#"404 {"error":"not_found","reason":"missing"}"#);
    assert_eq!(get(&world, "/db/%FF").await.status, 400);
    assert_eq!(get(&world, "/db/_design/%FF/x").await.status, 400);
}

#[tokio::test]
async fn readers_of_a_design_document_with_an_escaped_slash_are_sent_on() {
    let world = world();
    world.admin("PUT /db/_design%2Fd", "{}").await;
    for (target, location) in [
        ("/db/_design%2Fd", "http://here/db/_design/d"),
        ("/db/_design%2fd?revs=true", "http://here/db/_design/d?revs=true"),
        ("//db//_design%2Fd/_view/v", "http://here//db//_design/d/_view/v"),
    ] {
        let reply = world.ask(Ask::new(&format!("GET {target}")).basic("admin", "pw").header("host", "here")).await;
        assert_eq!((reply.status.as_u16(), reply.header("location")), (301, location), "{target}");
    }
    assert_eq!(ask(&world, "DELETE /db/_design%2Fnosuch", "").await.status, 404);
    assert_eq!(get(&world, "/db/_Design%2Fd").await.status, 404);
    assert_eq!(get(&world, "/db/a%2F_design%2Fd").await.status, 404);
}

#[tokio::test]
async fn a_full_partition_is_answered_in_the_words_of_couchdb() {
    let world = partitioned();
    world.set("couchdb", "max_partition_size", "10");
    world.admin("PUT /db/a:1", r#"{"n":1234567}"#).await;
    let reason = "Partition limit exceeded due to update on 'a:2'";
    let refused = format!(r#"403 {{"error":"partition_overflow","reason":"{reason}"}}"#);
    assert_eq!(ask(&world, "PUT /db/a:2", "{}").await.line(), refused);
    assert_eq!(ask(&world, "POST /db", r#"{"_id":"a:2"}"#).await.line(), refused);
    let bulk = ask(&world, "POST /db/_bulk_docs", r#"{"docs":[{"_id":"a:2"},{"_id":"b:1"}]}"#).await;
    assert_eq!(bulk.status, 201);
    let row = format!(r#"{{"id":"a:2","error":"partition_overflow","reason":"{reason}"}},{{"ok":true"#);
    assert!(bulk.body.contains(&row), "{}", bulk.body);
    let replicated = ask(&world, "PUT /db/a:2?new_edits=false", r#"{"_rev":"1-x"}"#).await;
    assert_eq!(replicated.status, 201);
    for unlimited in ["0", "infinity", "1000"] {
        world.set("couchdb", "max_partition_size", unlimited);
        assert_eq!(ask(&world, &format!("PUT /db/a:x{unlimited}"), "{}").await.status, 201);
    }
}

#[tokio::test]
async fn databases_of_the_system_are_not_partitioned() {
    let world = world();
    let refused = r#"400 {"error":"bad_request","reason":"Cannot partition a system database"}"#;
    for name in ["_users", "_replicator", "_global_changes", "a%2F_users", "a%2Fb%2F_replicator"] {
        assert_eq!(ask(&world, &format!("PUT /{name}?partitioned=true"), "").await.line(), refused, "{name}");
        assert_eq!(ask(&world, &format!("PUT /{name}?partitioned=false"), "").await.status, 201, "{name}");
        assert_eq!(ask(&world, &format!("PUT /{name}?partitioned=true"), "").await.line(), refused, "{name} is there");
    }
    assert_eq!(ask(&world, "PUT /a%2Fb_users?partitioned=true", "").await.status, 201);
}

/// Some clients log in even without credentials.
#[tokio::test]
async fn a_login_without_a_name_is_a_bad_request() {
    let world = world();
    let missing_name = r#"400 {"error":"bad_request","reason":"request body must contain a username"}"#;
    for body in ["{}", r#"{"password":"pw"}"#, r#"{"name":null}"#, r#"{"name":null,"username":null,"password":"pw"}"#] {
        assert_eq!(ask(&world, "POST /_session", body).await.line(), missing_name, "{body}");
    }
    for body in ["", "password=pw", "=x", "name"] {
        let form = Ask::new("POST /_session").text("application/x-www-form-urlencoded", body);
        let reply = world.ask(form).await;
        let expected = if body == "name" { 401 } else { 400 };
        assert_eq!(reply.status.as_u16(), expected, "{body}: {}", reply.body);
    }
    assert_eq!(ask(&world, "POST /_session", r#"{"username":"admin","password":"pw"}"#).await.status, 200);
}

#[tokio::test]
async fn a_document_that_is_too_large_is_named_by_the_id_that_its_client_gave_it() {
    let world = world();
    world.set("couchdb", "max_document_size", "50");
    let large = "x".repeat(50);
    for (line, body, reason) in [
        ("PUT /db/a", format!(r#"{{"x":"{large}"}}"#), ""),
        ("POST /db", format!(r#"{{"_id":"a","x":"{large}"}}"#), "a"),
        ("POST /db", format!(r#"{{"x":"{large}"}}"#), ""),
        ("POST /db/_bulk_docs", format!(r#"{{"docs":[{{"n":1}},{{"_id":"a","x":"{large}"}}]}}"#), "a"),
        ("POST /db/_bulk_docs", format!(r#"{{"docs":[{{"n":1}},{{"x":"{large}"}}]}}"#), ""),
    ] {
        let expected = format!(r#"413 {{"error":"document_too_large","reason":"{reason}"}}"#);
        assert_eq!(ask(&world, line, &body).await.line(), expected, "{line} {body}");
    }
}

/// CouchDB accepts both characters as separators.
#[tokio::test]
async fn a_semicolon_separates_parameters_as_an_ampersand_does() {
    let world = world();
    for id in ["a", "b", "c"] {
        world.admin(&format!("PUT /db/{id}"), "{}").await;
    }
    let first = get(&world, "/db/_all_docs?limit=1;descending=true").await;
    assert!(first.body.contains(r#""id":"c""#) && !first.body.contains(r#""id":"b""#), "{}", first.body);
    assert_eq!(first.body, get(&world, "/db/_all_docs?limit=1&descending=true").await.body);
}

/// Regression: these requests created documents with the id `_design/`.
#[tokio::test]
async fn indexes_have_names_and_design_documents_that_are_not_empty() {
    let world = world();
    for member in [r#""ddoc":"""#, r#""ddoc":"_design/""#, r#""name":"""#] {
        let index = format!(r#"{{"index":{{"fields":["a"]}},{member}}}"#);
        let reply = ask(&world, "POST /db/_index", &index).await;
        assert!(reply.line().starts_with("400 "), "{member}: {}", reply.line());
    }
    let all = get(&world, "/db/_all_docs").await.body;
    assert!(all.contains(r#""total_rows":0"#), "{all}");
}
