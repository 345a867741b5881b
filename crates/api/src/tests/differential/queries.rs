//! Views, lists of documents and Mango.

use super::{Endpoint, Parameter, check, endpoint, posted, switch};
use crate::tests::node::World;

const SWITCH: &[&str] = &["true", "false"];

const fn read(name: &'static str, right: &'static [&'static str]) -> Parameter {
    Parameter::new(name, right)
}

/// CouchDB parses `keys` before the other parameters.
const KEYS: Parameter = read("keys", &["[\"a\",\"b\"]", "[\"a\"]", "[]"]);

const fn then(name: &'static str, right: &'static [&'static str]) -> Parameter {
    read(name, right).read(1, super::Reads::All)
}

const VIEW: &[Parameter] = &[
    KEYS,
    then("key", &["\"a\""]),
    then("startkey", &["\"a\"", "\"b\""]),
    then("endkey", &["\"a\"", "\"b\""]),
    then("startkey_docid", &["x"]),
    then("endkey_docid", &["x"]),
    then("inclusive_end", SWITCH),
    then("descending", SWITCH),
    then("skip", &["0", "1"]),
    then("limit", &["0", "1"]),
    then("reduce", SWITCH),
    then("group", SWITCH),
    then("group_level", &["0", "1"]),
    then("include_docs", SWITCH),
    then("conflicts", SWITCH),
    then("attachments", SWITCH),
    then("att_encoding_info", SWITCH),
    then("update_seq", SWITCH),
    then("sorted", SWITCH),
    then("stable", SWITCH),
    then("stale", &["ok", "update_after"]),
    then("update", &["true", "false", "lazy"]),
    then("partition", &["p"]),
];

const LOCAL: &[Parameter] = &[switch("include_system"), KEYS, then("limit", &["1"]), then("descending", SWITCH)];

const CHECKED: &[&str] = &[
    "No rows can match your key range",
    "`keys` must be an array of strings",
    "`keys` is incompatible",
    "Reduce is invalid for map-only views",
    "Invalid use of grouping on a map view",
    "Multi-key fetches for reduce views",
    "`include_docs` is invalid for reduce",
    "`conflicts` is invalid for reduce",
    "`conflicts` is invalid unless",
    "`conflicts` parameter",
    "`partition` parameter is not supported",
];

const fn queried(line: &'static str, parameters: &'static [Parameter]) -> Endpoint {
    Endpoint { afterwards: CHECKED, ..endpoint(line, parameters) }
}

const MEMBERS: &[(&str, &str)] = &[
    ("keys", "[\"a\"]"),
    ("key", "\"a\""),
    ("startkey", "\"a\""),
    ("startkey_docid", "\"x\""),
    ("inclusive_end", "true"),
    ("descending", "true"),
    ("skip", "1"),
    ("limit", "1"),
    ("reduce", "true"),
    ("group", "true"),
    ("group_level", "1"),
    ("include_docs", "false"),
    ("update_seq", "true"),
    ("sorted", "true"),
    ("stable", "true"),
    ("stale", "\"ok\""),
    ("update", "\"lazy\""),
    ("queries", "[{}]"),
    ("nosuch", "1"),
];

const FIND: &[(&str, &str)] = &[
    ("selector", "{\"a\":{\"$gt\":1}}"),
    ("fields", "[\"a\"]"),
    ("limit", "1"),
    ("skip", "1"),
    ("sort", "[{\"a\":\"asc\"}]"),
    ("use_index", "\"i\""),
    ("bookmark", "\"nil\""),
    ("conflicts", "true"),
    ("r", "1"),
    ("update", "true"),
    ("stable", "true"),
    ("stale", "\"ok\""),
    ("execution_stats", "true"),
    ("partition", "\"p\""),
    ("allow_fallback", "true"),
    ("nosuch", "1"),
];

const ENDPOINTS: &[Endpoint] = &[
    queried("GET /db/_design/d/_view/map", VIEW),
    queried("GET /db/_design/d/_view/reduced", VIEW),
    Endpoint { members: MEMBERS, ..posted("POST /db/_design/d/_view/reduced", "{}") },
    Endpoint {
        members: &[("queries", "[{\"limit\":1}]")],
        ..posted("POST /db/_design/d/_view/map/queries", "{\"queries\":[]}")
    },
    queried("GET /db/_all_docs", VIEW),
    Endpoint { members: MEMBERS, ..posted("POST /db/_all_docs", "{}") },
    Endpoint { members: &[("queries", "[{\"limit\":1}]")], ..posted("POST /db/_all_docs/queries", "{\"queries\":[]}") },
    queried("GET /db/_design_docs", VIEW),
    queried("GET /db/_local_docs", LOCAL),
    Endpoint { members: FIND, ..posted("POST /db/_find", "{\"selector\":{}}") },
    Endpoint { members: FIND, ..posted("POST /db/_explain", "{\"selector\":{}}") },
    Endpoint {
        members: &[
            ("index", "{\"fields\":[\"a\",{\"b\":\"desc\"}]}"),
            ("name", "\"i\""),
            ("ddoc", "\"i\""),
            ("type", "\"json\""),
            ("partitioned", "false"),
            ("nosuch", "1"),
        ],
        ..posted("POST /db/_index", "{\"index\":{\"fields\":[\"a\"]}}")
    },
    Endpoint {
        members: &[("docids", "[\"_design/nosuch\"]")],
        ..posted("POST /db/_index/_bulk_delete", "{\"docids\":[]}")
    },
    endpoint("DELETE /db/_index/nosuch/json/nosuch", &[]),
    endpoint("GET /db/_design/d/_info", &[]),
    endpoint("GET /db/_design/d/_view/nosuch", &[then("limit", &["1"])]),
];

#[tokio::test(start_paused = true)]
async fn responses_to_queries() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/a", "{}").await;
    let views = "{\"views\":{\"map\":{\"map\":\"f\"},\"reduced\":{\"map\":\"f\",\"reduce\":\"_count\"}}}";
    world.admin("PUT /db/_design/d", views).await;
    check("queries", &world, ENDPOINTS).await;
}
