//! Per-document access over HTTP: every route for every kind of user, and answers that must not depend on documents
//! that the user does not see.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hyper::Method;

use super::check_file;
use super::node::{Ask, TestResponse, World};
use crate::router::{Resource, Served};
use crate::routes::router;
use settee_edge::shutdown::Shutdown;

/// ann owns the documents; bob has their role `staff`; eve has access to none of them; dba is an administrator of the
/// database.
const CALLERS: [&str; 6] = ["anonymous", "eve", "bob", "ann", "dba", "admin"];

/// Occurs in each document that eve and anonymous clients do not see, and in its attachment.
pub(super) const MARK: &str = "confidential";

pub(super) async fn world() -> World {
    let world = World::new();
    world.node.make_users_database().await.unwrap();
    for (name, roles) in [("eve", ""), ("bob", r#""staff""#), ("ann", ""), ("dba", "")] {
        let document = format!(r#"{{"name":"{name}","type":"user","roles":[{roles}],"password":"pw"}}"#);
        world.admin(&format!("PUT /_users/org.couchdb.user:{name}"), &document).await;
    }
    world.admin("PUT /db?access=true", "").await;
    world.admin("PUT /db/_security", &format!(r#"{{"admins":{{"names":["dba"],"roles":["{MARK}"]}}}}"#)).await;
    let design = r#"{"views":{"v":{"map":"m"}},"shows":{"f":"document","both":"both"},"lists":{"rows":"l"},
        "updates":{"f":"same"},"indexes":{"i":{"index":"i"}},"nouveau":{"i":{"index":"i"}},"x":"MARK"}"#;
    world.admin("PUT /db/_design/d", &design.replace("MARK", MARK)).await;
    let body = |list: &str| {
        let attachment = r#"{"f":{"content_type":"text/confidential","data":"Y29uZmlkZW50aWFs"}}"#;
        format!(r#"{{"_access":[{list}],"text":"{MARK}","_attachments":{attachment}}}"#)
    };
    for (id, list) in [("secret", r#""ann","staff""#), ("hidden-confidential", r#""ann""#), ("none-confidential", "")] {
        world.admin(&format!("PUT /db/{id}"), &body(list)).await;
    }
    world.admin("PUT /db/mine", r#"{"_access":["eve"],"text":"own"}"#).await;
    world.admin("PUT /db/_local/secret", &format!(r#"{{"text":"{MARK}"}}"#)).await;
    world
}

pub(super) async fn ask(world: &World, caller: &str, line: &str, body: &str) -> TestResponse {
    let ask = Ask::new(line).header("destination", "copied");
    let ask = if body.is_empty() { ask } else { ask.json(body) };
    let ask = if caller == "anonymous" { ask } else { ask.basic(caller, "pw") };
    world.ask(ask).await
}

fn path_of(resource: &Resource) -> String {
    let parts = resource.path.split('/').map(|part| match part {
        "{db}" => "db",
        "{doc}" | "{*doc}" | "{local}" => "secret",
        "{*attachment}" => "f",
        "{ddoc}" | "{other}" => "d",
        "{view}" => "v",
        "{index}" => "i",
        // A single segment is the name of an index.
        "{*path}" if resource.path.ends_with("/_search/{*path}") => "i/more",
        "{function}" => {
            if resource.path.contains("_list") {
                "rows"
            } else {
                "f"
            }
        }
        part => part.trim_matches(['{', '}', '*']),
    });
    parts.collect::<Vec<_>>().join("/")
}

fn body_of(path: &str, method: &Method) -> &'static str {
    match path {
        _ if *method == Method::GET || *method == Method::DELETE => "",
        "/db/_bulk_docs" => {
            r#"{"docs":[{"_id":"secret","_access":["eve","bob","ann"]},{"_id":"hidden-confidential"}]}"#
        }
        "/db/_bulk_get" => r#"{"docs":[{"id":"secret"},{"id":"hidden-confidential"}]}"#,
        "/db/_revs_diff" | "/db/_missing_revs" => r#"{"secret":["1-x"],"hidden-confidential":["1-x"]}"#,
        path if path.ends_with("/queries") => r#"{"queries":[{},{"keys":["secret"]}]}"#,
        "/db/_design/d/_search/i" | "/db/_design/d/_nouveau/i" => r#"{"q":"*:*"}"#,
        "/db/_find" | "/db/_explain" => r#"{"selector":{}}"#,
        "/db/secret" => r#"{"_access":["eve","bob","ann"]}"#,
        _ => "{}",
    }
}

fn summary(reply: &TestResponse) -> String {
    let mut text = reply.status.as_u16().to_string();
    if let Some(reason) = reply.body.split(r#""error":""#).nth(1).filter(|_| !reply.status.is_success()) {
        text.push(' ');
        text.push_str(reason.split('"').next().unwrap());
    }
    text
}

#[tokio::test]
async fn every_route_for_every_user() {
    let mut table: BTreeMap<String, String> = BTreeMap::new();
    let router = router(&Shutdown::new());
    for resource in router.resources() {
        let Resource { path, methods, other_methods, others_are_per_reader, .. } = resource;
        let mut served: Vec<(&Method, bool)> =
            methods.iter().map(|Served { method, is_per_reader, .. }| (method, *is_per_reader)).collect();
        if other_methods.is_some() && served.iter().all(|(method, _)| *method != Method::POST) {
            served.push((&Method::POST, *others_are_per_reader));
        }
        for (method, is_per_reader) in served {
            if !path.starts_with("/{db}") || (*path == "/{db}" && [Method::PUT, Method::DELETE].contains(method)) {
                assert!(!is_per_reader, "{path}");
                continue;
            }
            let target = path_of(resource);
            let query = match *path {
                path if path.contains("_changes") => "?timeout=1",
                path if path.ends_with("{index}") && *method == Method::GET => "?q=*:*",
                _ => "",
            };
            let body = body_of(&target, method);
            let mut verdicts = String::new();
            let mut last = (String::new(), Vec::new());
            for caller in CALLERS {
                let world = world().await;
                let reply = ask(&world, caller, &format!("{method} {target}{query}"), body).await;
                let shown = format!("{:?} {}", reply.headers, reply.body.replace("\"hidden-confidential\"", ""));
                if ["anonymous", "eve"].contains(&caller) {
                    assert!(!shown.contains(MARK), "{method} {target} for {caller}: {shown}");
                    let kept = world.admin("GET /db/secret", "").await.body;
                    assert!(kept.contains(MARK), "{method} {target} by {caller} changes a document: {kept}");
                }
                if !["dba", "admin"].contains(&caller) && !is_per_reader {
                    assert!(
                        [401, 403, 405].contains(&reply.status.as_u16()),
                        "{method} {target} for {caller}: {reply:?}"
                    );
                }
                let verdict = summary(&reply);
                if last.0 != verdict && !last.1.is_empty() {
                    writeln!(verdicts, "    {}: {}", last.1.join(", "), last.0).unwrap();
                    last.1.clear();
                }
                last = (verdict, [last.1, vec![caller]].concat());
            }
            writeln!(verdicts, "    {}: {}", last.1.join(", "), last.0).unwrap();
            table.insert(format!("{path} {method}"), verdicts);
        }
    }
    let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    table.iter().for_each(|(route, verdicts)| groups.entry(verdicts).or_default().push(route));
    let mut text = String::new();
    for (verdicts, routes) in groups {
        writeln!(text, "{}\n{verdicts}", routes.join("\n")).unwrap();
    }
    check_file("document_access.txt", &text);
}

/// Requests about the document ID with the revision REV.
const PROBES: &[(&str, &str)] = &[
    ("GET /db/ID", ""),
    ("HEAD /db/ID", ""),
    ("GET /db/ID?rev=REV", ""),
    ("GET /db/ID?revs=true&revs_info=true&conflicts=true", ""),
    ("GET /db/ID?attachments=true", ""),
    ("GET /db/ID?open_revs=all", ""),
    ("GET /db/ID?open_revs=[\"REV\"]", ""),
    ("GET /db/ID?open_revs=[\"REV\",\"9-a\"]&latest=true&revs=true", ""),
    ("GET /db/ID?rev=REV&latest=true", ""),
    ("GET /db/ID?atts_since=[\"REV\"]", ""),
    ("GET /db/ID?meta=true&deleted_conflicts=true&local_seq=true", ""),
    ("GET /db/ID/f", ""),
    ("GET /db/ID/f?rev=REV", ""),
    ("GET /db/_all_docs?key=\"ID\"", ""),
    ("GET /db/_all_docs?key=\"ID\"&include_docs=true", ""),
    ("GET /db/_all_docs?startkey=\"ID\"&limit=1", ""),
    ("POST /db/_all_docs", r#"{"keys":["ID"]}"#),
    ("POST /db/_all_docs/queries", r#"{"queries":[{"keys":["ID"]},{"key":"ID"}]}"#),
    ("GET /db/_all_docs?keys=[\"ID\",\"ID\"]&include_docs=true&update_seq=true", ""),
    ("POST /db/_all_docs?include_docs=true&conflicts=true", r#"{"keys":["ID"]}"#),
    ("POST /db/_bulk_get", r#"{"docs":[{"id":"ID"},{"id":"ID","rev":"REV"}]}"#),
    ("POST /db/_bulk_get?latest=true&revs=true", r#"{"docs":[{"id":"ID","rev":"REV","atts_since":["REV"]}]}"#),
    ("POST /db/_revs_diff", r#"{"ID":["REV","2-abc"]}"#),
    ("POST /db/_missing_revs", r#"{"ID":["REV"]}"#),
    ("POST /db/_changes?filter=_doc_ids", r#"{"doc_ids":["ID"]}"#),
    ("POST /db/_changes?filter=_doc_ids&include_docs=true&style=all_docs", r#"{"doc_ids":["ID"]}"#),
    ("GET /db/_local/ID", ""),
    ("PUT /db/ID", r#"{"_access":["eve"],"_rev":"REV"}"#),
    ("PUT /db/ID", r#"{"_rev":"REV"}"#),
    ("PUT /db/ID", r#"{"_access":["eve"],"_rev":"REV","_attachments":{"f":{"stub":true}}}"#),
    ("DELETE /db/ID?rev=REV", ""),
    ("DELETE /db/ID", ""),
    ("DELETE /db/ID/f?rev=REV", ""),
    ("GET /db/_design/by/_view/id?keys=[[\"ID\"]]&reduce=false&conflicts=true&include_docs=true", ""),
    ("GET /db/_changes?feed=eventsource&timeout=1&filter=_doc_ids&doc_ids=[\"ID\"]", ""),
    ("GET /db/_changes?feed=continuous&timeout=1&filter=_doc_ids&doc_ids=[\"ID\"]&conflicts=true", ""),
    ("POST /db/_changes?filter=_selector&include_docs=true", r#"{"selector":{"_id":"ID"}}"#),
    ("PUT /db/ID/g?rev=REV", r#""x""#),
    ("COPY /db/ID", ""),
    ("COPY /db/ID?rev=REV", ""),
    (
        "POST /db/_bulk_docs",
        r#"{"docs":[{"_id":"ID","_rev":"REV","_access":["eve"]},{"_id":"ID","_rev":"REV","_deleted":true}]}"#,
    ),
    ("POST /db/_bulk_docs", r#"{"docs":[{"_id":"ID","_access":["ann"]}]}"#),
    ("POST /db/_find", r#"{"selector":{"_id":"ID"}}"#),
    ("POST /db/_find", r#"{"selector":{"_id":{"$gte":"ID"}},"sort":[{"_id":"desc"}]}"#),
    ("POST /db/_find", r#"{"selector":{"_id":"ID"},"use_index":"by","fields":["_id"]}"#),
    ("POST /db/_find", r#"{"selector":{"$or":[{"_id":"ID"},{"_id":"mine"}]},"conflicts":true}"#),
    ("POST /db/_explain", r#"{"selector":{"_id":"ID"},"use_index":"by"}"#),
    ("GET /db/_design/d/_view/v?key=\"ID\"", ""),
    ("GET /db/_design/by/_view/id?key=[\"ID\"]&reduce=false&include_docs=true", ""),
    ("GET /db/_design/by/_view/id?key=[\"ID\"]&group=true", ""),
    ("GET /db/_design/by/_view/id?startkey=[\"ID\"]&limit=1&reduce=false", ""),
    ("GET /db/_design/by/_view/id?startkey=[\"ID\"]&skip=1&reduce=false&descending=true", ""),
    ("GET /db/_design/by/_view/id?update=false", ""),
    ("POST /db/_design/by/_view/id", r#"{"keys":[["ID"],["mine"]],"reduce":false}"#),
    ("POST /db/_design/by/_view/id/queries", r#"{"queries":[{"keys":[["ID"]],"group":true},{"reduce":true}]}"#),
    ("GET /db/_design/d/_show/f/ID", ""),
    ("POST /db/_design/d/_show/f/ID", "{}"),
    ("HEAD /db/_design/d/_show/f/ID", ""),
    ("POST /db/_design/d/_update/f/ID", "{}"),
    ("PUT /db/_design/d/_update/f/ID", "{}"),
    ("GET /db/_design/d/_list/rows/_all_docs?key=\"ID\"&include_docs=true", ""),
    ("GET /db/_design/d/_list/rows/_all_docs?startkey=\"ID\"&limit=1", ""),
    ("POST /db/_design/d/_list/rows/_all_docs", r#"{"keys":["ID"]}"#),
    ("GET /db/_design/d/_list/rows/by/id?key=[\"ID\"]&reduce=false&include_docs=true", ""),
    ("GET /db/_design/d/_list/rows/by/id?key=[\"ID\"]&group=true", ""),
    ("POST /db/_design/d/_list/rows/by/id", r#"{"keys":[["ID"],["mine"]],"reduce":false}"#),
    ("GET /db/_design/text/_search/i?q=_id:ID&include_docs=true", ""),
    ("GET /db/_design/text/_search/i?q=-_id:ID+*:*", ""),
    ("GET /db/_design/text/_search/i?q=*:*&sort=[\"-_id%3Cstring%3E\"]&bookmark=W10&limit=1", ""),
    ("POST /db/_design/text/_search/i", r#"{"q":"_id:[\"ID\" TO \"ID\"]","group_field":"_id"}"#),
    ("GET /db/_design/text/_nouveau/n?q=_id:ID&include_docs=true", ""),
    ("POST /db/_design/text/_nouveau/n", r#"{"q":"_id:ID*","sort":["_id"],"counts":["_id"]}"#),
];

/// Text indexes of the member `text` of all documents.
pub(super) const TEXT: [&str; 2] = [
    r#"{"type":"text","index":{"fields":[{"name":"text","type":"string"}]},"ddoc":"text","name":"i"}"#,
    r#"{"type":"nouveau","index":{"fields":[{"name":"text","type":"string"}]},"ddoc":"text","name":"n"}"#,
];

/// An index of all documents by id, whose rows are counted.
pub(super) const BY_ID: &str = r#"{"index":{"fields":["_id"]},"ddoc":"by","name":"id"}"#;

#[tokio::test]
async fn foreign_and_missing_documents_have_equal_answers() {
    let world = world().await;
    for index in [BY_ID, TEXT[0], TEXT[1]] {
        assert_eq!(world.admin("POST /db/_index", index).await.status.as_u16(), 200, "{index}");
    }
    let deleted = r#"{"_access":["ann"],"_deleted":true}"#;
    let made = world.admin("PUT /db/needless", r#"{"_access":["ann"]}"#).await.body;
    let gone = world.admin(&format!("PUT /db/needless?rev={}", rev_in(&made)), deleted).await.body;
    let secret = world.admin("GET /db/secret", "").await;
    let secret = secret.header("etag").trim_matches('"').to_owned();
    for caller in ["eve", "anonymous"] {
        for (line, body) in PROBES {
            let mut answers = Vec::new();
            for (id, rev) in [("nothing", secret.as_str()), ("secret", &secret), ("needless", &rev_in(&gone))] {
                let fill = |text: &str| text.replace("ID", id).replace("REV", rev).replace('"', "%22");
                let mut reply = ask(&world, caller, &fill(line), &body.replace("ID", id).replace("REV", rev)).await;
                if line.contains("_changes") {
                    // It depends on the parameters.
                    reply.headers.remove("etag");
                }
                // A duration follows.
                let body = reply.body.split(r#","update_latency""#).next().unwrap();
                // They depend on the time.
                let body = body.replace("event: heartbeat\ndata: \n\n", "");
                let shown = format!("{} {:?} {body}", reply.status, reply.headers);
                answers.push(shown.replace(id, "ID").replace(rev, "REV"));
            }
            assert_eq!(answers[0], answers[1], "{line} {body} for {caller}");
            assert_eq!(answers[0], answers[2], "{line} {body} for {caller}");
        }
    }
}

#[tokio::test]
async fn views_contain_only_rows_of_visible_documents() {
    let world = world().await;
    world.admin("POST /db/_index", BY_ID).await;
    let more = r#"{"docs":[{"_id":"a","_access":["eve","staff"]},{"_id":"z","_access":["_users"]}]}"#;
    world.admin("POST /db/_bulk_docs", more).await;
    for (caller, ids) in [
        ("anonymous", vec![]),
        ("eve", vec!["a", "mine", "z"]),
        ("bob", vec!["a", "secret", "z"]),
        ("ann", vec!["hidden-confidential", "secret", "z"]),
        ("dba", vec!["a", "hidden-confidential", "mine", "none-confidential", "secret", "z"]),
    ] {
        let get = async |query: &str| ask(&world, caller, &format!("GET /db/_design/by/_view/id?{query}"), "").await;
        let total = ids.len();
        let body = get("reduce=false").await.body;
        assert!(body.starts_with(&format!(r#"{{"total_rows":{total},"offset":0,"#)), "{caller}: {body}");
        let rows = |body: &str| {
            let ids = body.split(r#"{"id":""#).skip(1).map(|rest| rest.split('"').next().unwrap().to_owned());
            ids.collect::<Vec<_>>()
        };
        assert_eq!(rows(&body), ids, "{caller}: {body}");
        let body = get("reduce=false&skip=1&limit=1&include_docs=true").await.body;
        assert!(body.starts_with(&format!(r#"{{"total_rows":{total},"offset":{},"#, total.min(1))), "{caller}: {body}");
        assert_eq!(rows(&body), ids.iter().skip(1).take(1).copied().collect::<Vec<_>>(), "{caller}: {body}");
        assert_eq!(body.contains(r#""doc":{"_id":"#), total > 1, "{caller}: {body}");
        let body = get("").await.body;
        let count = format!(r#"{{"key":null,"value":{total}}}"#);
        assert_eq!(body.contains(&count), total > 0, "{caller}: {body}");
        let body = get("startkey=[%22s%22]&reduce=false&descending=true").await.body;
        let before: Vec<&str> = ids.iter().rev().copied().filter(|id| *id < "s").collect();
        assert_eq!(rows(&body), before, "{caller}: {body}");
        assert!(body.contains(&format!(r#""offset":{},"#, total - before.len())), "{caller}: {body}");
    }
}

#[tokio::test]
async fn errors_of_functions_do_not_depend_on_documents() {
    let world = world().await;
    world.admin("PUT /db/_design/bad", r#"{"language":"nonsense","views":{"v":{"map":"m"}}}"#).await;
    for (line, status) in [
        ("GET /db/_design/missing/_view/v", 404),
        ("GET /db/_design/d/_view/missing", 404),
        ("GET /db/_design/bad/_view/v", 500),
        ("GET /db/_design/d/_list/missing/v", 404),
        ("GET /db/_design/d/_list/rows/missing", 404),
        ("GET /db/_design/d/_show/missing/secret", 404),
        ("POST /db/_design/d/_update/missing/secret", 404),
        ("GET /db/_design/d/_search/missing?q=*:*", 404),
        ("GET /db/_design/d/_rewrite/x", 403),
        ("GET /db/_design/d/_info", 403),
    ] {
        assert_eq!(ask(&world, "eve", line, "").await.status.as_u16(), status, "{line}");
    }
}

#[tokio::test]
async fn writes_are_checked_against_both_lists() {
    let world = world().await;
    let put = async |caller: &str, id: &str, body: &str| ask(&world, caller, &format!("PUT /db/{id}"), body).await;
    let reply = put("anonymous", "x", r#"{"_access":["ann"]}"#).await;
    assert_eq!(reply.status.as_u16(), 401);
    let denied = r#"403 {"error":"forbidden","reason":"access"}"#;
    for body in ["{}", r#"{"_access":[]}"#, r#"{"_access":["ann"]}"#, r#"{"_access":["staff"]}"#] {
        assert_eq!(put("eve", "x", body).await.line(), denied, "{body}");
        assert_eq!(put("eve", "secret", body).await.line(), denied, "{body}");
    }
    assert_eq!(put("eve", "secret", r#"{"_access":["eve"]}"#).await.line(), denied);
    for body in [r#"{"_access":"eve"}"#, r#"{"_access":[""]}"#, r#"{"_access":[["eve"]]}"#, r#"{"_access":null}"#] {
        for caller in ["eve", "admin"] {
            let reply = put(caller, "x", body).await;
            assert_eq!((reply.status.as_u16(), reply.body.contains("doc_validation")), (400, true), "{reply:?}");
        }
    }
    assert_eq!(put("eve", "x", r#"{"_access":["eve"]}"#).await.status.as_u16(), 201);
    assert_eq!(put("bob", "y", r#"{"_access":["staff"]}"#).await.status.as_u16(), 201);
    let reply = put("admin", "_design/e", r#"{"_access":["ann"]}"#).await;
    assert_eq!(reply.status.as_u16(), 403);
    let docs = r#"{"new_edits":false,"docs":[
        {"_id":"secret","_rev":"9-x","_access":["eve"]},{"_id":"z","_rev":"1-x","_access":["eve"]}]}"#;
    let reply = ask(&world, "eve", "POST /db/_bulk_docs", docs).await;
    assert_eq!(reply.line(), r#"201 [{"id":"secret","rev":"9-x","error":"forbidden","reason":"access"}]"#);
}

#[tokio::test]
async fn every_user_has_a_common_role_in_these_databases_only() {
    let world = world().await;
    world.admin("PUT /plain", "").await;
    for database in ["db", "plain"] {
        world.admin(&format!("PUT /{database}/_security"), r#"{"members":{"roles":["_users"]}}"#).await;
    }
    for (line, caller, status) in [
        ("GET /db", "eve", 200),
        ("GET /db", "anonymous", 401),
        ("GET /plain", "eve", 403),
        ("GET /plain", "anonymous", 401),
    ] {
        assert_eq!(ask(&world, caller, line, "").await.status.as_u16(), status, "{line} {caller}");
    }
    world.admin("PUT /db/all", r#"{"_access":["_users"]}"#).await;
    assert_eq!(ask(&world, "eve", "GET /db/all", "").await.status.as_u16(), 200);
}

#[tokio::test]
async fn a_setting_reveals_invisible_documents() {
    let world = world().await;
    let status = async |line: &str| ask(&world, "eve", line, "").await.status.as_u16();
    let lines = [
        ("GET /db/secret", 403),
        ("HEAD /db/secret", 403),
        ("GET /db/secret?attachments=true", 403),
        ("GET /db/secret/f", 403),
        ("COPY /db/secret", 403),
        ("GET /db/absent", 404),
        ("GET /db/absent/f", 404),
        ("GET /db/mine/absent", 404),
        ("GET /db/mine", 200),
        ("GET /db/_local/absent", 404),
    ];
    for (line, revealed) in lines {
        assert_eq!(status(line).await, if revealed == 403 { 404 } else { revealed }, "{line}");
    }
    world.set("per_doc_access", "reveal", "true");
    for (line, revealed) in lines {
        assert_eq!(status(line).await, revealed, "{line}");
    }
    let reply = ask(&world, "eve", "GET /db/secret", "").await;
    assert_eq!(reply.line(), r#"403 {"error":"forbidden","reason":"access"}"#);
    assert_eq!(ask(&world, "anonymous", "GET /db/secret", "").await.status.as_u16(), 403);
}

#[tokio::test]
async fn creation() {
    let world = World::new();
    for (line, expected) in [
        ("PUT /a?access=true", 201),
        ("PUT /b?access=false", 201),
        ("PUT /c?access=1", 400),
        ("PUT /_users?access=true", 400),
        ("PUT /x%2F_replicator?access=true", 400),
    ] {
        assert_eq!(ask(&world, "admin", line, "").await.status.as_u16(), expected, "{line}");
    }
    assert!(!ask(&world, "admin", "GET /b", "").await.body.contains("access"));
    world.set("per_doc_access", "enable", "false");
    let reply = ask(&world, "admin", "PUT /d?access=true", "").await;
    let reason = "The `access` option is not available on this CouchDB installation.";
    assert_eq!(reply.line(), format!(r#"400 {{"error":"bad_request","reason":"{reason}"}}"#));
}

pub(super) fn rev_in(body: &str) -> String {
    body.split(r#""rev":""#).nth(1).unwrap().split('"').next().unwrap().to_owned()
}

#[tokio::test]
async fn queries_find_visible_documents() {
    let world = world().await;
    world.admin("POST /db/_index", r#"{"index":{"fields":["text"]}}"#).await;
    let find = async |caller: &str, body: &str| ask(&world, caller, "POST /db/_find", body).await.body;
    for (caller, expected) in [("anonymous", vec![]), ("eve", vec!["mine"]), ("bob", vec!["secret"])] {
        for selector in [
            r#"{"text":{"$gt":null}}"#,
            r#"{"_id":{"$in":["secret","mine","hidden-confidential"]}}"#,
            r#"{"$or":[{"_id":"secret"},{"_id":"mine"},{"text":"confidential"}]}"#,
            "{}",
        ] {
            let body =
                find(caller, &format!(r#"{{"selector":{selector},"fields":["_id"],"execution_stats":true}}"#)).await;
            let ids: Vec<&str> = body.split(r#""_id":""#).skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
            assert_eq!(ids, expected, "{selector} for {caller}: {body}");
            // The index contains all fields of the first query.
            let examined = if selector.contains("$gt") { 0 } else { expected.len() };
            assert!(body.contains(&format!(r#""total_docs_examined":{examined}"#)), "{body}");
        }
        let query = r#"{"selector":{"text":{"$gt":null}},"sort":["text"]"#;
        let sorted = find(caller, &format!(r#"{query},"fields":["_id"]}}"#)).await;
        assert_eq!(sorted.matches(r#""_id""#).count(), expected.len(), "{sorted}");
        // A definition is a part of a design document.
        let plan = ask(&world, caller, "POST /db/_explain", &format!("{query}}}")).await.body;
        assert!(plan.contains(r#""type":"json","partitioned":false},"#), "{plan}");
        assert!(plan.contains(r#""index_candidates":[],"#) && !plan.contains(r#""def""#), "{plan}");
    }
    let found = ask(&world, "eve", "POST /db/_find", r#"{"selector":{"own":1},"sort":["own"]}"#).await;
    assert!(found.body.contains("no_usable_index"), "{found:?}");
}
