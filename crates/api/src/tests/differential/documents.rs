//! Documents, local documents, attachments, bulk requests, revisions, changes and purges.

use super::Reads::{First, Last};
use super::{Endpoint, Parameter, check, endpoint, posted, switch};
use crate::tests::node::World;

const REV: &str = "1-967a00dff5e02add41819138abb3284d";

const DOC: &[Parameter] = &[
    Parameter::new("rev", &[REV]),
    Parameter::new("open_revs", &["all"]),
    Parameter::new("atts_since", &["[\"1-x\"]"]),
    switch("attachments"),
    switch("att_encoding_info"),
    switch("conflicts"),
    switch("deleted"),
    switch("latest"),
    switch("local_seq"),
    switch("meta"),
    switch("revs"),
    switch("revs_info"),
];

const PUT: &[Parameter] = &[
    Parameter::new("rev", &[]),
    Parameter::new("open_revs", &["all"]),
    Parameter::new("atts_since", &["[\"1-x\"]"]),
    Parameter::new("batch", &["ok"]).read(0, First),
    switch("w").read(0, First),
];

const CHANGES: &[Parameter] = &[
    Parameter::new("limit", &["2"]),
    Parameter::new("timeout", &["10"]),
    Parameter::new("heartbeat", &[]),
    Parameter::new("seq_interval", &["2"]),
    Parameter::new("style", &["all_docs", "main_only"]),
    switch("descending"),
    switch("include_docs"),
    switch("conflicts"),
    switch("attachments"),
    Parameter::new("filter", &["_design", "d/f", "d", "_nosuch"]).read(1, Last),
    Parameter::new("feed", &["normal", "longpoll"]).read(2, Last),
    Parameter::new("since", &["0", "now"]).read(3, Last),
];

const BULK_GET: &[Parameter] = &[
    switch("rev"),
    switch("open_revs"),
    switch("atts_since"),
    switch("new_edits"),
    switch("w"),
    switch("r"),
    switch("revs"),
    switch("latest"),
    switch("attachments"),
];

const ENDPOINTS: &[Endpoint] = &[
    endpoint("GET /db/a", DOC),
    endpoint("GET /db/nosuch", DOC),
    endpoint("GET /db/_local/l", DOC),
    endpoint(
        "GET /db/a/x",
        &[Parameter::new("rev", &[]), Parameter::new("open_revs", &["all"]), switch("attachments")],
    ),
    Endpoint {
        members: &[
            ("_id", "\"y\""),
            ("_rev", "\"1-x\""),
            ("_deleted", "false"),
            ("_attachments", "{\"x\":{\"data\":\"AAEC\"}}"),
            ("_revisions", "{\"start\":1,\"ids\":[\"a\"]}"),
            ("_revs_info", "[]"),
            ("_conflicts", "[]"),
            ("_local_seq", "1"),
            ("_access", "[]"),
            ("_replication_state", "\"x\""),
            ("_nosuch", "1"),
        ],
        body: Some("{\"n\":1}"),
        ..endpoint("PUT /db/new{n}", PUT)
    },
    Endpoint { body: Some("{\"n\":1}"), ..endpoint("PUT /db/_local/new{n}", PUT) },
    Endpoint { members: &[("_id", "\"new{n}\""), ("_rev", "\"1-x\"")], ..posted("POST /db", "{\"n\":1}") },
    Endpoint { body: Some("abc"), ..endpoint("PUT /db/new{n}/x", &[Parameter::new("rev", &[])]) },
    endpoint("DELETE /db/a", &[Parameter::new("rev", &["1-x"]).read(0, First)]),
    endpoint("DELETE /db/a/x", &[Parameter::new("rev", &["1-x"]).read(0, First)]),
    Endpoint {
        members: &[("docs", "[{}]"), ("new_edits", "true"), ("all_or_nothing", "false"), ("w", "1")],
        ..posted("POST /db/_bulk_docs", "{\"docs\":[]}")
    },
    Endpoint {
        members: &[("docs", "[{}]")],
        body: Some("{\"docs\":[{\"id\":\"a\"}]}"),
        ..endpoint("POST /db/_bulk_get", BULK_GET)
    },
    Endpoint { members: &[("a", "[\"1-x\"]")], ..posted("POST /db/_revs_diff", "{}") },
    Endpoint { members: &[("a", "[\"1-x\"]")], ..posted("POST /db/_missing_revs", "{}") },
    Endpoint { members: &[("a", "[\"1-x\"]")], ..posted("POST /db/_purge", "{}") },
    posted("PUT /db/_purged_infos_limit", "1000"),
    endpoint("GET /db/_changes", CHANGES),
    Endpoint { members: &[("doc_ids", "[\"a\"]")], ..posted("POST /db/_changes?filter=_doc_ids", "{}") },
    Endpoint { members: &[("selector", "{}"), ("fields", "[]")], ..posted("POST /db/_changes?filter=_selector", "{}") },
];

#[tokio::test(start_paused = true)]
async fn responses_to_document_requests() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/a", "{}").await;
    world.admin("PUT /db/_local/l", "{}").await;
    world.admin("PUT /db/_design/d", "{\"filters\":{\"f\":\"function() {}\"}}").await;
    check("documents", &world, ENDPOINTS).await;
}
