//! Regression tests for responses of CouchDB 3.5.2 that `fuzz/differential.py` sampled.

use settee_database::{DatabaseOptions, Layout};
use settee_model::json::Json;

use super::node::{Ask, World};

fn world(layout: Layout) -> World {
    let world = World::new();
    world.node.catalog.create("db", DatabaseOptions { created_ms: 0, instance: 1, layout, q: 1 }).unwrap();
    world
}

async fn check(world: &World, requests: &[(&str, &str, &str)]) {
    for (line, body, expected) in requests {
        let reply = world.ask(Ask::new(line).basic("admin", "pw").json(body)).await;
        assert_eq!(reply.line(), *expected, "{line} {body}");
    }
}

#[tokio::test]
async fn update_sequences_follow_the_ids_within_a_request() {
    let world = world(Layout::Whole);
    let replicated =
        r#"{"new_edits":false,"docs":[{"_id":"z","_rev":"1-a"},{"_id":"y","_rev":"1-a"},{"_id":"B","_rev":"1-a"}]}"#;
    for body in
        [r#"{"docs":[{"_id":"c"},{"_id":"a"},{"_id":"_design/z"},{"_id":"b"},{"_id":"A"},{"_id":"a"}]}"#, replicated]
    {
        let reply = world.admin("POST /db/_bulk_docs", body).await;
        assert_eq!(reply.status, 201, "{}", reply.body);
        if body != replicated {
            let rows = Json::parse(reply.body.as_bytes()).unwrap();
            let row = |row: settee_model::json::Value<'_>| {
                let id = row.get("id").and_then(|id| id.as_str().map(std::borrow::Cow::into_owned)).unwrap();
                if row.get("error").is_some() { format!("{id} conflict") } else { id }
            };
            let rows: Vec<String> = rows.value().elements().map(row).collect();
            assert_eq!(rows, ["c", "a", "_design/z", "b", "A", "a conflict"], "rows stay in the order of the request");
        }
    }
    let reply = world.ask(Ask::new("GET /db/_changes").basic("admin", "pw")).await;
    let changes = Json::parse(reply.body.as_bytes()).unwrap();
    let rows = changes.value().get("results").unwrap();
    let ids: Vec<String> = rows.elements().map(|row| row.get("id").unwrap().as_str().unwrap().into_owned()).collect();
    assert_eq!(ids, ["A", "_design/z", "a", "b", "c", "B", "y", "z"]);
}

#[tokio::test]
async fn an_empty_parameter_is_shown_as_an_empty_list() {
    let integer = r#"400 {"error":"query_parse_error","reason":"Invalid value for integer: []"}"#;
    let boolean = r#"400 {"error":"query_parse_error","reason":"Invalid boolean parameter: []"}"#;
    check(
        &world(Layout::Whole),
        &[
            ("GET /db/_all_docs?limit=", "", integer),
            ("GET /db/_all_docs?skip=", "", integer),
            ("GET /db/_all_docs?descending=", "", boolean),
            ("GET /_all_dbs?inclusive_end=", "", boolean),
        ],
    )
    .await;
}

#[tokio::test]
async fn replicated_edits_wait_for_no_more_copies() {
    let world = world(Layout::Whole);
    for (line, body, expected) in [
        ("PUT /db/a?w=3", "{}", 202),
        ("PUT /db/b?w=3&new_edits=false", r#"{"_rev":"1-a"}"#, 201),
        ("POST /db/_bulk_docs?w=3", r#"{"docs":[{"_id":"c"}]}"#, 202),
        ("POST /db/_bulk_docs?w=3", r#"{"docs":[{"_id":"d","_rev":"1-a"}],"new_edits":false}"#, 201),
        ("POST /db/_bulk_docs", r#"{"docs":[{"_id":"e","_rev":"1-a"}],"new_edits":false,"w":3}"#, 201),
    ] {
        assert_eq!(world.admin(line, body).await.status, expected, "{line} {body}");
    }
}

#[tokio::test]
async fn a_refused_atomic_request_names_the_revisions_that_it_would_replace() {
    let refused = |rev: &str| {
        format!(
            r#"417 [{{"id":"a","rev":"{rev}","error":"not_implemented","reason":"all_or_nothing is not supported"}}]"#
        )
    };
    let world = world(Layout::Whole);
    let line = "POST /db/_bulk_docs";
    check(&world, &[(line, r#"{"docs":[{"_id":"a"}],"all_or_nothing":true}"#, &refused("0-"))]).await;
    check(&world, &[(line, r#"{"docs":[{"_id":"a","_rev":"1-abc"}],"all_or_nothing":true}"#, &refused("1-abc"))]).await;
    for rev in ["0-7", "1-abc"] {
        let body = format!(r#"{{"docs":[{{"_id":"_local/a","_rev":"{rev}"}}],"all_or_nothing":true}}"#);
        let expected = refused(rev).replace(r#""id":"a""#, r#""id":"_local/a""#);
        check(&world, &[(line, &body, &expected)]).await;
    }
}

#[tokio::test]
async fn the_deletion_of_a_local_document_compares_no_revision() {
    let deleted = r#"200 {"ok":true,"id":"_local/l","rev":"0-0"}"#;
    let world = world(Layout::Whole);
    for line in ["DELETE /db/_local/l?rev=1-abc", "DELETE /db/_local/l?rev=0-7", "DELETE /db/_local/l"] {
        check(&world, &[("PUT /db/_local/l", "{}", r#"201 {"ok":true,"id":"_local/l","rev":"0-1"}"#)]).await;
        check(&world, &[(line, "", deleted)]).await;
    }
    let format = r#"400 {"error":"bad_request","reason":"Invalid rev format"}"#;
    check(&world, &[("PUT /db/_local/l?rev=1-abc", "{}", format)]).await;
}

#[tokio::test]
async fn the_target_of_a_copy_is_checked_before_its_source() {
    let world = world(Layout::Whole);
    let reserved = r#"400 {"error":"illegal_docid","reason":"Only reserved document ids may start with underscore."}"#;
    for (target, expected) in [("_x", reserved), ("b", r#"404 {"error":"not_found","reason":"missing"}"#)] {
        let ask = Ask::new("COPY /db/none").basic("admin", "pw").header("destination", target);
        assert_eq!(world.ask(ask).await.line(), expected, "{target}");
    }
}

#[tokio::test]
async fn ids_of_partitioned_databases() {
    let world = world(Layout::Partitioned);
    let functions = r#"{"shows":{"s":"function(){return 'x'}"},"updates":{"u":"function(){return [null,'x']}"}}"#;
    assert_eq!(world.admin("PUT /db/_design/d", functions).await.status, 201);
    let missing = r#"404 {"error":"not_found","reason":"missing"}"#;
    let unplaced = r#"400 {"error":"illegal_docid","reason":"Doc id must be of form partition:id"}"#;
    check(
        &world,
        &[
            ("GET /db/_x", "", missing),
            ("DELETE /db/_x", "", missing),
            ("GET /db/x", "", unplaced),
            ("GET /db/_all_docs?keys=[%22p:1%22,%22x%22]", "", unplaced),
            ("POST /db/_all_docs", r#"{"keys":["x"]}"#, unplaced),
            ("GET /db/_partition/p/_all_docs?keys=[%22x%22]", "", unplaced),
            ("GET /db/_design/d/_show/s/x", "", unplaced),
            ("POST /db/_design/d/_update/u/x", "{}", unplaced),
        ],
    )
    .await;
    for (line, body) in [
        ("GET /db/_all_docs?keys=[%22p:1%22,%22_x%22]", ""),
        ("GET /db/_all_docs?key=%22x%22", ""),
        ("GET /db/_design_docs?keys=[%22x%22]", ""),
        ("POST /db/_all_docs/queries", r#"{"queries":[{"keys":["x"]}]}"#),
    ] {
        assert_eq!(world.admin(line, body).await.status, 200, "{line}");
    }
}

#[tokio::test]
async fn an_empty_name_of_a_design_document_is_named() {
    let illegal = r#"400 {"error":"illegal_docid","reason":"Illegal document id `_design/`"}"#;
    for layout in [Layout::Whole, Layout::Partitioned] {
        check(&world(layout), &[("PUT /db/_design%2F", "{}", illegal), ("PUT /db/_design%2F/a", "x", illegal)]).await;
    }
}

#[tokio::test]
async fn queries_name_their_faults_in_the_order_of_couchdb() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /db/a", "{}").await.status, 201);
    let partition = r#"400 {"error":"query_parse_error","reason":"`partition` parameter is not supported on this db"}"#;
    let colon = r#"400 {"error":"illegal_partition","reason":"Partition must not contain a colon"}"#;
    let name = r#"400 {"error":"invalid_field_name","reason":"Invalid field name: a."}"#;
    let sort =
        r#"400 {"error":"no_usable_index","reason":"No index exists for this sort, try indexing by the sort fields."}"#;
    check(
        &world,
        &[
            ("POST /db/_find", r#"{"selector":{"a.":1}}"#, name),
            ("POST /db/_find", r#"{"selector":{"a":1},"fields":["a."]}"#, name),
            ("POST /db/_find", r#"{"selector":{"a.":1},"sort":["n"]}"#, sort),
            ("POST /db/_find", r#"{"selector":{"a":1},"partition":"p"}"#, partition),
            ("POST /db/_find", r#"{"selector":{"a":1},"partition":"p","sort":["n"]}"#, sort),
            ("POST /db/_find?partition=p:", r#"{"selector":{"a":1}}"#, colon),
            (
                "POST /db/_find",
                r#"{"selector":{"a.":1,"b":{"$in":1}}}"#,
                r#"400 {"error":"bad_arg","reason":"Bad argument for operator $in: 1"}"#,
            ),
            (
                "POST /db/_find",
                r#"{"selector":{"a.":1},"limit":-1}"#,
                r#"400 {"error":"invalid_non_neg_integer","reason":"-1 is not an integer greater than or equal to zero"}"#,
            ),
            (
                "POST /db/_bulk_get?rev=1-a",
                r#"{"docs":1}"#,
                r#"400 {"error":"bad_request","reason":"\"rev\" query parameter is not acceptable"}"#,
            ),
        ],
    )
    .await;
    for (line, body) in [
        ("POST /db/_explain", r#"{"selector":{"a.":1}}"#),
        ("POST /db/_explain", r#"{"selector":{"a":1},"fields":["a.",""]}"#),
        ("POST /db/_explain", r#"{"selector":{"a":1},"partition":"p"}"#),
        ("POST /db/_find?partition=", r#"{"selector":{"a":1}}"#),
        ("GET /db/_index?skip=99999999999999999999999", ""),
        ("GET /db/_index?limit=99999999999999999999999", ""),
        ("GET /db/_index?skip=-0&limit=%2B1", ""),
    ] {
        assert_eq!(world.admin(line, body).await.status, 200, "{line} {body}");
    }
    for line in ["GET /db/_index?limit=0", "GET /db/_index?skip=-1", "GET /db/_index?skip=", "GET /db/_index?limit=1.0"]
    {
        assert_eq!(world.ask(Ask::new(line).basic("admin", "pw")).await.status, 500, "{line}");
    }
}

#[tokio::test]
async fn a_list_of_databases_has_a_tag() {
    let world = world(Layout::Whole);
    let ask =
        async |tag: &str| world.ask(Ask::new("GET /_all_dbs").basic("admin", "pw").header("if-none-match", tag)).await;
    let reply = ask("\"x\"").await;
    let tag = reply.header("etag").to_owned();
    assert_eq!((reply.status.as_u16(), tag.is_empty()), (200, false));
    assert_eq!((ask(&tag).await.status.as_u16(), ask(&tag).await.header("etag")), (304, &*tag));
    world.make_database("other");
    assert_eq!(ask(&tag).await.status, 200);
}

#[tokio::test]
async fn access_to_a_database_is_checked_before_its_administration() {
    let world = world(Layout::Whole);
    let no_member = r#"401 {"error":"unauthorized","reason":"You are not authorized to access this db."}"#;
    let no_admin = r#"401 {"error":"unauthorized","reason":"You are not a server or db admin."}"#;
    for line in ["POST /db/_compact", "POST /db/_compact/d", "POST /db/_view_cleanup"] {
        assert_eq!(world.ask(Ask::new(line).json("")).await.line(), no_member, "{line}");
    }
    let open = r#"{"admins":{"names":["x"]},"members":{}}"#;
    assert_eq!(world.admin("PUT /db/_security", open).await.status, 200);
    for line in ["POST /db/_compact", "POST /db/_compact/d", "POST /db/_view_cleanup"] {
        assert_eq!(world.ask(Ask::new(line).json("")).await.line(), no_admin, "{line}");
    }
}

#[tokio::test]
async fn feeds_and_queries_end_with_a_line_feed_of_their_own() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /_global_changes", "").await.status, 201);
    for (line, body, end) in [
        ("GET /_db_updates", "", "\"}\n\n"),
        ("GET /_db_updates?feed=continuous&timeout=1", "", "\"}\n\n"),
        ("GET /db/_changes", "", "\"pending\":0}\n\n"),
        ("GET /db/_changes?feed=longpoll&timeout=1", "", "\"pending\":0}\n\n"),
        ("GET /db/_changes?feed=continuous&timeout=1", "", "\"pending\":0}\n\n"),
        ("POST /db/_find", r#"{"selector":{"_id":"x"}}"#, "}\r\n\n"),
        ("GET /db/_all_docs", "", "\r\n]}\n"),
    ] {
        let reply = world.ask(Ask::new(line).basic("admin", "pw").json(body)).await;
        assert_eq!(reply.status, 200, "{line}");
        assert!(reply.body.ends_with(end), "{line}: {:?}", reply.body);
        assert!(!reply.body.ends_with("\n\n\n"), "{line}: {:?}", reply.body);
    }
}

#[tokio::test]
async fn a_request_that_stores_nothing_is_not_short_of_copies() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /db/a", "{}").await.status, 201);
    let conflict = r#"{"id":"a","error":"conflict","reason":"Document update conflict."}"#;
    let docs = r#"{"docs":[{"_id":"a"}]}"#;
    check(&world, &[("POST /db/_bulk_docs?w=2", docs, &format!("201 [{conflict}]"))]).await;
    let reply = world.admin("POST /db/_bulk_docs?w=2", r#"{"docs":[{"_id":"a"},{"_id":"b"}]}"#).await;
    assert_eq!(reply.status, 202, "{}", reply.body);
    assert!(reply.body.starts_with(&format!("[{conflict},")), "{}", reply.body);
}

#[tokio::test]
async fn ids_do_not_bound_the_documents_of_a_partition() {
    let world = world(Layout::Partitioned);
    assert_eq!(world.admin("POST /db/_bulk_docs", r#"{"docs":[{"_id":"p:1"},{"_id":"p:2"}]}"#).await.status, 201);
    let all = world.admin("GET /db/_partition/p/_all_docs", "").await;
    assert!(all.body.contains("p:1") && all.body.contains("p:2"), "{}", all.body);
    for query in ["endkey_docid=a", "startkey_docid=z", "end_key_doc_id=p:1", "start_key_doc_id=p:2"] {
        let reply = world.admin(&format!("GET /db/_partition/p/_all_docs?{query}"), "").await;
        assert_eq!(reply.line(), all.line(), "{query}");
    }
}

#[tokio::test]
async fn the_shard_of_an_id_without_a_partition_is_not_reported() {
    let unplaced = r#"400 {"error":"illegal_docid","reason":"Doc id must be of form partition:id"}"#;
    let partitioned = world(Layout::Partitioned);
    check(&partitioned, &[("GET /db/_shards/b", "", unplaced)]).await;
    assert_eq!(partitioned.admin("GET /db/_shards/p:b", "").await.status, 200);
    assert_eq!(world(Layout::Whole).admin("GET /db/_shards/b", "").await.status, 200);
}

#[tokio::test]
async fn a_missing_body_differs_from_an_empty_one() {
    let world = world(Layout::Whole);
    let missing = r#"400 {"error":"bad_request","reason":"Missing request body"}"#;
    let invalid = r#"400 {"error":"bad_request","reason":"invalid UTF-8 JSON"}"#;
    for line in [
        "PUT /db/a",
        "PUT /db/_local/a",
        "PUT /db/_design/a",
        "PUT /db/_security",
        "PUT /db/_revs_limit",
        "PUT /db/_purged_infos_limit",
        "PUT /_node/_local/_config/section/key",
        "PUT /_reshard/state",
        "POST /_reshard/jobs",
        "POST /db",
        "POST /db/_all_docs",
        "POST /db/_bulk_docs",
        "POST /db/_bulk_get",
        "POST /db/_find",
        "POST /db/_purge",
        "POST /db/_revs_diff",
        "POST /_dbs_info",
    ] {
        let without = Ask::new(line).basic("admin", "pw").header("content-type", "application/json");
        assert_eq!(world.ask(without).await.line(), missing, "{line}");
        assert_eq!(world.ask(Ask::new(line).basic("admin", "pw").json("")).await.line(), invalid, "{line}");
    }
    // Filters need no arguments, so an empty body of a feed is valid.
    let feed = |ask: Ask<'static>| ask.basic("admin", "pw").header("content-type", "application/json");
    assert_eq!(world.ask(feed(Ask::new("POST /db/_changes"))).await.line(), missing);
    assert_eq!(world.ask(feed(Ask::new("POST /db/_changes").body(""))).await.status, 200);
    for (line, expected) in [
        ("POST /_session", invalid),
        ("POST /_cluster_setup", r#"400 {"error":"bad_request","reason":"Missing JSON body'"}"#),
    ] {
        assert_eq!(world.ask(feed(Ask::new(line))).await.line(), expected, "{line}");
    }
}

#[tokio::test]
async fn further_segments_of_paths() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /db/_design/d", r#"{"views":{}}"#).await.status, 201);
    let only = |allowed: &str| format!(r#"405 {{"error":"method_not_allowed","reason":"Only {allowed} allowed"}}"#);
    let (get, post, get_post) = (only("GET"), only("POST"), only("GET,POST"));
    let (get, post, get_post) = (get.as_str(), post.as_str(), get_post.as_str());
    let missing = r#"404 {"error":"not_found","reason":"missing"}"#;
    let accepted = r#"202 {"ok":true}"#;
    let no_attachments = r#"400 {"error":"bad_request","reason":"_local documents do not accept attachments."}"#;
    let invalid_path = r#"400 {"error":"bad_request","reason":"Invalid path"}"#;
    let incomplete = r#"400 {"error":"bad_request","reason":"Incomplete path to _node request"}"#;
    let invalid_action = r#"400 {"error":"bad_request","reason":"Invalid Action'"}"#;
    for (line, expected) in [
        ("GET /db/_sync_shards/x", post),
        ("POST /db/_sync_shards/x/y", post),
        ("GET /db/_compact/d/x", post),
        ("POST /db/_compact/d/x", accepted),
        ("GET /db/_view_cleanup/x", post),
        ("POST /db/_view_cleanup/x", accepted),
        ("GET /db/_nouveau_cleanup/x", post),
        ("GET /db/_search_cleanup/x", post),
        ("POST /db/_design/d/_info/x", get),
        ("GET /db/_design/d/_info/x", missing),
        ("POST /db/_design/none/_info/x", missing),
        ("POST /db/_local/x/y", no_attachments),
        ("COPY /db/_local/x/y", no_attachments),
        ("GET /_cluster_setup/x", r#"200 {"state":"single_node_enabled"}"#),
        ("POST /_cluster_setup/x", invalid_action),
        ("PUT /_cluster_setup/x", get_post),
        ("POST /_db_updates/x", get),
        ("GET /_nouveau_analyze/x", post),
        ("PUT /_search_analyze/x", get_post),
        ("DELETE /_reshard/x", missing),
        ("PUT /_reshard/state/x", missing),
        ("PATCH /_node", incomplete),
        ("PATCH /_node/_local", r#"200 {"name":"node"}"#),
        ("POST /_node/_local/_config/a/b/c", missing),
        ("GET /_scheduler/docs/_replicator/x/y", invalid_path),
        ("GET /_scheduler/docs/a%2F_replicator/x/y", invalid_path),
        ("GET /_scheduler/docs/_replicator/_replicator/x", invalid_path),
    ] {
        let reply = world.ask(Ask::new(line).basic("admin", "pw").json("{}")).await;
        assert_eq!(reply.line(), expected, "{line}");
    }
    let no_admin = r#"401 {"error":"unauthorized","reason":"You are not a server admin."}"#;
    assert_eq!(world.ask(Ask::new("POST /none/_purged_infos_limit").json("1")).await.line(), no_admin);
}

#[tokio::test]
async fn offsets_within_partitions() {
    let world = world(Layout::Partitioned);
    let docs = r#"{"docs":[{"_id":"p:1"},{"_id":"p:2"},{"_id":"_design/d"}]}"#;
    assert_eq!(world.admin("POST /db/_bulk_docs", docs).await.status, 201);
    for (target, total, offset) in [
        ("_partition/none/_all_docs", 3, 1),
        ("_partition/none/_all_docs?skip=3", 3, 1),
        ("_partition/none/_all_docs?skip=3&descending=true", 3, 2),
        ("_partition/zz/_all_docs?skip=1", 3, 3),
        ("_partition/zz/_all_docs?skip=1&descending=true", 3, 0),
        ("_partition/p/_all_docs?skip=10", 3, 3),
        ("_partition/p/_all_docs?skip=10&descending=true", 3, 2),
        ("_design_docs?partition=q", 1, 1),
        ("_design_docs?partition=p&descending=true", 1, 1),
        ("_design_docs?partition=p&key=%22_design/d%22", 1, 1),
    ] {
        let reply = world.admin(&format!("GET /db/{target}"), "").await;
        let expected = format!("200 {{\"total_rows\":{total},\"offset\":{offset},\"rows\":[\r\n\r\n]}}");
        assert_eq!(reply.line(), expected, "{target}");
    }
}

#[tokio::test]
async fn parts_of_many_documents_are_between_line_feeds() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /db/a", "{}").await.status, 201);
    for (docs, is_empty) in [(r#"{"docs":[{"id":"a"},{"id":"none"}]}"#, false), (r#"{"docs":[]}"#, true)] {
        let ask = Ask::new("POST /db/_bulk_get").basic("admin", "pw").header("accept", "multipart/mixed").json(docs);
        let reply = world.ask(ask).await;
        let boundary = reply.header("content-type").split('"').nth(1).unwrap().to_owned();
        assert_eq!(reply.body.is_empty(), is_empty, "{}", reply.body);
        assert_eq!(reply.body.starts_with(&format!("\r\n--{boundary}\r\n")), !is_empty, "{}", reply.body);
        assert_eq!(reply.body.ends_with(&format!("\r\n--{boundary}--\r\n")), !is_empty, "{}", reply.body);
    }
}

#[tokio::test]
async fn the_removal_of_a_missing_attachment_compares_no_revision() {
    let world = world(Layout::Whole);
    let put = async |line: &str| world.ask(Ask::new(line).basic("admin", "pw").text("text/plain", "x")).await;
    let first = put("PUT /db/a/x").await;
    let rev = Json::parse(first.body.as_bytes()).unwrap().value().get("rev").unwrap().to_text();
    assert_eq!(put(&format!("PUT /db/a/y?rev={rev}")).await.status, 201);
    let missing = r#"404 {"error":"not_found","reason":"Document is missing attachment"}"#;
    let conflict = r#"409 {"error":"conflict","reason":"Document update conflict."}"#;
    let missing_rev = r#"409 {"error":"not_found","reason":"missing_rev"}"#;
    for (target, expected) in [
        (format!("none?rev={rev}"), missing),
        (format!("y?rev={rev}"), missing),
        (format!("x?rev={rev}"), conflict),
        ("x?rev=1-a".to_owned(), missing_rev),
    ] {
        let line = format!("DELETE /db/a/{target}");
        assert_eq!(world.ask(Ask::new(&line).basic("admin", "pw")).await.line(), expected, "{line}");
    }
}

#[tokio::test]
async fn a_replicated_edit_of_a_local_document_has_the_tag_of_its_body() {
    let world = world(Layout::Whole);
    let put = async |body: &str| {
        let ask = Ask::new("PUT /db/_local/l?new_edits=false").basic("admin", "pw").json(body);
        world.ask(ask).await.header("etag").to_owned()
    };
    let first = put(r#"{"_rev":"1-a","n":1}"#).await;
    assert_ne!(first, "\"1-a\"");
    assert_ne!(first, put(r#"{"_rev":"1-a","n":2}"#).await);
    assert_eq!(first, put(r#"{"_rev":"1-a","n":1}"#).await);
}

#[tokio::test]
async fn a_feed_without_rows_sends_a_line_feed_before_it_waits() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /db/a", "{}").await.status, 201);
    let none = "filter=_doc_ids&doc_ids=[%22none%22]";
    for (query, start) in [
        ("feed=longpoll&since=now", "{\"results\":[\n\n\n],"),
        ("feed=longpoll&limit=0", "{\"results\":[\n\n\n],"),
        ("feed=longpoll&limit=1", "{\"results\":[\n{\"seq\""),
        ("feed=continuous&since=now", "\n{\"last_seq\""),
        ("feed=continuous&limit=0", "{\"last_seq\""),
        ("feed=continuous&limit=1", "{\"seq\""),
        ("feed=normal&since=now", "{\"results\":[\n\n],"),
    ] {
        let reply = world.admin(&format!("GET /db/_changes?timeout=100&{query}"), "").await;
        assert!(reply.body.starts_with(start), "{query}: {:?}", reply.body);
    }
    for (query, start) in [
        ("feed=longpoll&descending=true", "{\"results\":[\n\n\n],"),
        ("feed=continuous&descending=true", "\n{\"last_seq\""),
        ("feed=normal", "{\"results\":[\n\n],"),
    ] {
        let reply = world.admin(&format!("GET /db/_changes?timeout=100&{query}&{none}"), "").await;
        assert!(reply.body.starts_with(start), "{query}: {:?}", reply.body);
    }
    assert_eq!(world.admin("GET /db/_changes?timeout=100&feed=eventsource&since=now", "").await.body, "\n");
}

#[tokio::test]
async fn purged_revisions_are_listed_once_in_their_order() {
    let world = world(Layout::Whole);
    let body = r#"{"b":["3-c","10-a","1-a","1-a"]}"#;
    assert_eq!(world.admin("POST /db/_purge", body).await.status, 201);
    let expected = r#"200 {"purged_infos":[{"id":"b","revs":["1-a","3-c","10-a"]}]}"#;
    check(&world, &[("GET /db/_purged_infos", "", expected)]).await;
}

#[tokio::test]
async fn the_design_document_of_an_unknown_function_is_opened_first() {
    let world = world(Layout::Whole);
    let missing = r#"404 {"error":"not_found","reason":"missing"}"#;
    let name = r#"400 {"error":"bad_request","reason":"Attachment name '_f' starts with prohibited character '_'"}"#;
    for line in ["PUT /db/_design/d/_f", "DELETE /db/_design/d/_f", "POST /db/_design/d/_f", "GET /db/_design/d/_f/x"] {
        check(&world, &[(line, "x", missing)]).await;
    }
    assert_eq!(world.admin("PUT /db/_design/d", "{}").await.status, 201);
    check(&world, &[("PUT /db/_design/d/_f", "x", name), ("DELETE /db/_design/d/_f", "", name)]).await;
}

#[tokio::test]
async fn an_escaped_slash_alone_names_no_local_document() {
    let world = world(Layout::Whole);
    assert_eq!(world.admin("PUT /db/_local/x", "{}").await.status, 201);
    let refused = r#"400 {"error":"bad_request","reason":"_local documents do not accept attachments."}"#;
    for line in ["PUT /db/_local%2F/x", "GET /db/_local%2F/x", "DELETE /db/_local%2F/x", "PUT /db/_local%2F/x/y"] {
        check(&world, &[(line, "{}", refused)]).await;
    }
    assert_eq!(world.admin("GET /db/_local/x", "").await.status, 200);
}

#[tokio::test]
async fn the_number_of_copies_of_a_database_has_any_size() {
    let world = World::new();
    assert_eq!(world.admin("PUT /db?n=9999999999999999999999999", "").await.status, 201);
    let refused = r#"400 {"error":"bad_request","reason":"The `n` value should be a positive integer."}"#;
    for n in ["0", "-1", "1.5", "99999999999x", ""] {
        check(&world, &[(&format!("PUT /other?n={n}"), "", refused)]).await;
    }
}

#[tokio::test]
async fn a_requested_revision_has_no_update_sequence() {
    let world = world(Layout::Whole);
    let saved = world.admin("PUT /db/a", "{}").await;
    let rev = Json::parse(saved.body.as_bytes()).unwrap().value().get("rev").unwrap().to_text();
    let get = async |query: &str| world.admin(&format!("GET /db/a?local_seq=true{query}"), "").await;
    let named = get(&format!("&rev={rev}")).await;
    assert_eq!((named.body.contains("_local_seq"), named.header("etag")), (false, &*format!("\"{rev}\"")));
    for query in [String::new(), format!("&rev={rev}&latest=true")] {
        let winner = get(&query).await;
        assert_eq!((winner.body.contains("\"_local_seq\":1"), winner.header("etag")), (true, ""), "{query}");
    }
}

#[tokio::test]
async fn an_unsatisfiable_range_of_a_compressed_attachment_is_rejected() {
    let world = world(Layout::Whole);
    let put = Ask::new("PUT /db/a/f").basic("admin", "pw").text("text/plain", &"hello ".repeat(100));
    assert_eq!(world.ask(put).await.status, 201);
    for (range, status) in [("5-2", 416), ("-0", 416), ("9999-", 416), ("0-1", 200), ("0-1,3-4", 200), ("x", 200)] {
        let ask = Ask::new("GET /db/a/f").basic("admin", "pw").header("range", &format!("bytes={range}"));
        assert_eq!(world.ask(ask).await.status, status, "{range}");
    }
}

#[tokio::test]
async fn events_of_databases_are_not_cached_and_have_quoted_ids() {
    let world = world(Layout::Whole);
    world.make_database("_global_changes");
    world.node.catalog.keep_events(&[("one".to_owned(), settee_database::Happened::Created)]).unwrap();
    let reply = world.admin("GET /_db_updates?feed=eventsource&timeout=10", "").await;
    assert_eq!(reply.header("cache-control"), "no-cache");
    assert!(reply.body.contains("\nid: \""), "{reply:?}");
}
