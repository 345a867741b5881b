//! Regression tests of sampled edits and lists.

use settee_database::{DatabaseOptions, Layout};

use super::node::{Ask, TestResponse, World};

fn world(layout: Layout) -> World {
    let world = World::new();
    world.node.catalog.create("db", DatabaseOptions { created_ms: 0, instance: 1, layout, q: 1 }).unwrap();
    world
}

async fn admin(world: &World, line: &str, body: &str) -> TestResponse {
    world.ask(Ask::new(line).basic("admin", "pw").json(body)).await
}

const NEW: &str = "5-abcdabcdabcdabcdabcdabcdabcdabcd";

const INVALID: [(&str, &str); 4] = [
    (
        r#""views":{"v":{"map":null}}"#,
        r#""error":"invalid_design_doc","reason":"`views.v.map` field must have string type""#,
    ),
    (r#""views":{"v":{"map":""}}"#, r#""error":"not_found","reason":"missing function""#),
    (
        r#""options":{"partitioned":true}"#,
        r#""error":"invalid_design_doc","reason":"partitioned option cannot be true in a non-partitioned database.""#,
    ),
    (r#""filters":1"#, r#""error":"invalid_design_doc","reason":"`filters` field must have object type""#),
];

#[tokio::test]
async fn rows_of_refused_design_documents_name_a_replicated_revision() {
    let world = world(Layout::Whole);
    world.admin("PUT /db/_security", r#"{"members":{"names":[],"roles":[]}}"#).await;
    for (members, error) in INVALID {
        for (options, rev) in [(r#""new_edits":false,"#, format!(r#""rev":"{NEW}","#)), ("", String::new())] {
            let body = format!(r#"{{{options}"docs":[{{"_id":"_design/k","_rev":"{NEW}",{members}}}]}}"#);
            let expected = format!(r#"201 [{{"id":"_design/k",{rev}{error}}}]"#);
            assert_eq!(admin(&world, "POST /db/_bulk_docs", &body).await.line(), expected, "{body}");
        }
    }
    let body = format!(r#"{{"new_edits":false,"docs":[{{"_id":"_design/k","_rev":"{NEW}"}}]}}"#);
    let row = format!(
        r#"201 [{{"id":"_design/k","rev":"{NEW}","error":"unauthorized","reason":"You are not a db or server admin."}}]"#
    );
    assert_eq!(world.ask(Ask::new("POST /db/_bulk_docs").json(&body)).await.line(), row);
}

#[tokio::test]
async fn a_stored_revision_of_a_design_document_is_not_validated_again() {
    let world = world(Layout::Whole);
    world.admin("PUT /db/_security", r#"{"members":{"names":[],"roles":[]}}"#).await;
    let history = r#"{"_id":"_design/d","_revisions":{"start":2,"ids":["b","a"]}}"#;
    let stored = format!(r#"{{"new_edits":false,"docs":[{history}]}}"#);
    assert_eq!(admin(&world, "POST /db/_bulk_docs", &stored).await.line(), "201 []");
    for (members, _) in INVALID {
        let document = format!(r#"{{"_id":"_design/d","_rev":"2-b",{members}}}"#);
        let bulk = format!(r#"{{"new_edits":false,"docs":[{document},{{"_id":"a","_rev":"1-a"}}]}}"#);
        assert_eq!(admin(&world, "POST /db/_bulk_docs", &bulk).await.line(), "201 []", "{bulk}");
        let by_member = world.ask(Ask::new("POST /db/_bulk_docs").json(&bulk)).await;
        assert_eq!(by_member.line(), "201 []", "{bulk}");
        let put = admin(&world, "PUT /db/_design/d?new_edits=false", &document).await;
        assert_eq!(put.line(), r#"201 {"ok":true,"id":"_design/d","rev":"2-b"}"#, "{document}");
    }
    let ancestor = r#"{"new_edits":false,"docs":[{"_id":"_design/d","_rev":"1-a","x":1}]}"#;
    let refused = world.ask(Ask::new("POST /db/_bulk_docs").json(ancestor)).await;
    assert!(refused.body.contains(r#""error":"unauthorized""#), "{}", refused.line());
    assert_eq!(admin(&world, "GET /db/_design/d?rev=1-a", "").await.status, 404);
    let winner = admin(&world, "GET /db/_design/d", "").await;
    assert_eq!(winner.line(), r#"200 {"_id":"_design/d","_rev":"2-b"}"#);
    for (members, error) in INVALID {
        let document = format!(r#"{{"_id":"_design/d","_revisions":{{"start":3,"ids":["c","b"]}},{members}}}"#);
        let put = admin(&world, "PUT /db/_design/d?new_edits=false", &document).await;
        assert!(put.line().ends_with(&format!(" {{{error}}}")), "{}", put.line());
    }
}

#[tokio::test]
async fn the_stubs_of_a_design_document_are_resolved_before_it_is_validated() {
    let world = world(Layout::Whole);
    let document = format!(r#"{{"_rev":"{NEW}","views":1,"_attachments":{{"f":{{"stub":true}}}}}}"#);
    for line in ["PUT /db/_design/k", "PUT /db/_design/k?new_edits=false"] {
        let expected = r#"412 {"error":"missing_stub","reason":"Invalid attachment stub in _design/k for f"}"#;
        assert_eq!(admin(&world, line, &document).await.line(), expected, "{line}");
    }
}

#[tokio::test]
async fn attachments_of_local_documents_are_checked_whatever_the_revision() {
    let world = world(Layout::Whole);
    let fault = r#"400 {"error":"bad_request","reason":"Invalid attachment data for f"}"#;
    for rev in ["0-1", "1-abc"] {
        let document = format!(r#"{{"_id":"_local/l","_rev":"{rev}","_attachments":{{"f":{{"data":1}}}}}}"#);
        for options in ["", r#""new_edits":false,"#] {
            let body = format!(r#"{{{options}"docs":[{document}]}}"#);
            assert_eq!(admin(&world, "POST /db/_bulk_docs", &body).await.line(), fault, "{body}");
        }
        let put = admin(&world, "PUT /db/_local/l?new_edits=false", &document).await;
        assert_eq!(put.line(), fault, "{rev}");
    }
}

#[tokio::test]
async fn the_id_in_a_body_is_valid_for_the_database_where_the_path_names_another_one() {
    let unplaced = r#"{"error":"illegal_docid","reason":"Doc id must be of form partition:id"}"#;
    let empty = r#"{"error":"illegal_partition","reason":"Partition must not be empty"}"#;
    let no_name = r#"{"error":"illegal_docid","reason":"Document id must not be empty"}"#;
    let reserved = r#"{"error":"illegal_docid","reason":"Only reserved document ids may start with underscore."}"#;
    let no_text = r#"{"error":"illegal_docid","reason":"Document id must be a string"}"#;
    for (layout, faults) in [
        (
            Layout::Partitioned,
            &[("\"new\"", unplaced), ("\":x\"", empty), ("\"p:\"", no_name), ("\"_x\"", reserved), ("1", no_text)][..],
        ),
        (Layout::Whole, &[("\"\"", no_name), ("\"_x\"", reserved), ("null", no_text)][..]),
    ] {
        let world = world(layout);
        for (id, fault) in faults {
            for line in [
                "PUT /db/p:1",
                "PUT /db/p:1?batch=ok",
                "PUT /db/p:1?new_edits=false",
                "PUT /db/_design/d",
                "PUT /db/_local/l",
                "POST /db",
            ] {
                let reply = admin(&world, line, &format!(r#"{{"_id":{id},"_rev":"1-a"}}"#)).await;
                assert_eq!(reply.line(), format!("400 {fault}"), "{line} {id}");
            }
            let bulk = format!(r#"{{"docs":[{{"_id":"p:2"}},{{"_id":{id}}}]}}"#);
            assert_eq!(admin(&world, "POST /db/_bulk_docs", &bulk).await.line(), format!("400 {fault}"), "{id}");
        }
        let put = admin(&world, "PUT /db/p:1", r#"{"_id":"q:2"}"#).await;
        assert!(put.status == 201 && put.body.contains(r#""id":"p:1""#), "{}", put.line());
        assert_eq!(admin(&world, "GET /db/q:2", "").await.status, 404);
    }
}

#[tokio::test]
async fn only_a_document_in_parts_has_no_cache_control() {
    let world = world(Layout::Whole);
    let attached = r#"{"_attachments":{"f":{"data":"YWJj"}}}"#;
    assert_eq!(world.admin("PUT /db/a", attached).await.status, 201);
    assert_eq!(world.admin("PUT /db/b", "{}").await.status, 201);
    for (line, accept, parts) in [
        ("GET /db/a?attachments=true", "multipart/related", true),
        ("GET /db/a?attachments=true", "multipart/*", true),
        ("GET /db/a?atts_since=[%229-abc%22]", "*/*", true),
        ("HEAD /db/a?attachments=true", "multipart/related", true),
        ("GET /db/a?attachments=true", "application/json", false),
        ("GET /db/a", "multipart/related", false),
        ("GET /db/b?attachments=true", "multipart/related", false),
    ] {
        let reply = world.ask(Ask::new(line).basic("admin", "pw").header("accept", accept)).await;
        assert_eq!(reply.status, 200, "{line}");
        assert_eq!(reply.header("content-type").starts_with("multipart/related"), parts, "{line} {accept}");
        assert_eq!(reply.header("cache-control"), if parts { "" } else { "must-revalidate" }, "{line} {accept}");
    }
}

#[tokio::test]
async fn ids_and_partitions_in_a_body_are_converted_to_text() {
    let whole = world(Layout::Whole);
    let documents = r#"{"docs":[{"_id":"_design/a"},{"_id":"a"},{"_id":"b"},{"_id":"c"}]}"#;
    assert_eq!(whole.admin("POST /db/_bulk_docs", documents).await.status, 201);
    for (value, rows) in [
        (r#""b""#, 2),
        (r#"["b"]"#, 2),
        ("[98]", 2),
        (r#"[[],["b",[]]]"#, 2),
        (r#"["","b","a"]"#, 1),
        ("[]", 4),
        ("null", 0),
    ] {
        let query = |name: &str| format!(r#"{{"{name}":{value}}}"#);
        let reply = admin(&whole, "POST /db/_all_docs", &query("startkey_docid")).await;
        assert_eq!(reply.body.matches(r#""id":"#).count(), rows, "{value}: {}", reply.body);
        let reply = admin(&whole, "POST /db/_all_docs", &query("start_key_doc_id")).await;
        assert_eq!(reply.body.matches(r#""id":"#).count(), rows, "{value}: {}", reply.body);
    }
    let reply = admin(&whole, "POST /db/_design_docs", r#"{"endkey_docid":["_design/","A"]}"#).await;
    assert_eq!(reply.line(), "200 {\"total_rows\":1,\"offset\":0,\"rows\":[\r\n\r\n]}");
    let refused = r#"400 {"error":"query_parse_error","reason":"`partition` parameter is not supported on this db"}"#;
    for value in [r#"{"x":1}"#, r#"["p"]"#, "1", "[1.5,{\"x\":[null]}]"] {
        let reply = admin(&whole, "POST /db/_all_docs", &format!(r#"{{"partition":{value}}}"#)).await;
        assert_eq!(reply.line(), refused, "{value}");
    }
    let colon = r#"400 {"error":"illegal_partition","reason":"Partition must not contain a colon"}"#;
    let empty = r#"400 {"error":"illegal_partition","reason":"Partition must not be empty"}"#;
    for (value, expected) in [(r#"{"x:":1}"#, colon), (r#"["a",":"]"#, colon), ("[]", empty), (r#"["",[]]"#, empty)] {
        let reply = admin(&whole, "POST /db/_all_docs", &format!(r#"{{"partition":{value}}}"#)).await;
        assert_eq!(reply.line(), expected, "{value}");
    }
}

#[tokio::test]
async fn a_partition_bounds_the_offset_of_design_documents_and_no_keys() {
    let world = world(Layout::Partitioned);
    let documents = r#"{"docs":[{"_id":"_design/a"},{"_id":"_design/b"},{"_id":"p:1"},{"_id":"q:1"}]}"#;
    assert_eq!(world.admin("POST /db/_bulk_docs", documents).await.status, 201);
    for (query, offset) in [
        ("partition=A", 0),
        ("partition=[]", 0),
        ("partition=p", 2),
        ("partition=[]&endkey=true", 0),
        ("partition=p&endkey=true", 2),
        ("partition=A&skip=1", 0),
        ("partition=A&descending=true", 2),
        ("partition=p&descending=true", 2),
        ("partition=A&startkey=%22p:1%22", 2),
    ] {
        let reply = world.admin(&format!("GET /db/_design_docs?{query}"), "").await;
        let expected = format!("200 {{\"total_rows\":2,\"offset\":{offset},\"rows\":[\r\n\r\n]}}");
        assert_eq!(reply.line(), expected, "{query}");
    }
    let keys = r#"{"keys":["_design/a","p:1","q:1","p:2"]}"#;
    for line in ["POST /db/_partition/p/_all_docs", "POST /db/_all_docs?partition=p", "POST /db/_all_docs"] {
        let body = admin(&world, line, keys).await.body;
        let found = body.matches(r#""id":"#).count();
        assert!(found == 3 && body.contains(r#"{"key":"p:2","error":"not_found"}"#), "{line}: {body}");
    }
}
