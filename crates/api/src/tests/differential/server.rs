//! The server and databases as a whole: lists, sessions, settings, creation and changes of databases.

use super::Reads::First;
use super::{Endpoint, Parameter, check, endpoint, posted, switch};
use crate::tests::node::World;

const SWITCH: &[&str] = &["true", "false"];

const LIST: &[Parameter] = &[
    Parameter::new("keys", &["[\"db\"]"]),
    Parameter::new("startkey", &["\"a\""]).read(1, super::Reads::All),
    Parameter::new("skip", &["1"]).read(1, super::Reads::All),
    Parameter::new("limit", &["1"]).read(1, super::Reads::All),
    Parameter::new("descending", SWITCH).read(1, super::Reads::All),
    Parameter::new("inclusive_end", SWITCH).read(1, super::Reads::All),
    Parameter::new("group", SWITCH).read(1, super::Reads::All),
    Parameter::new("partition", &[]).read(1, super::Reads::All),
];

const CHECKED: &[&str] = &[
    "`keys` must be an array of strings",
    "`keys` is incompatible",
    "Invalid use of grouping on a map view",
    "`partition` parameter is not supported",
];

const ENDPOINTS: &[Endpoint] = &[
    Endpoint { afterwards: CHECKED, ..endpoint("GET /_all_dbs", LIST) },
    Endpoint { afterwards: CHECKED, ..endpoint("GET /_dbs_info", LIST) },
    Endpoint { members: &[("keys", "[\"db\"]")], ..posted("POST /_dbs_info", "{\"keys\":[]}") },
    endpoint("GET /_uuids", &[Parameter::new("count", &["3"]).read(0, First)]),
    Endpoint {
        body: Some(""),
        ..endpoint(
            "PUT /new{n}",
            &[
                Parameter::new("n", &["1", "3"]).read(0, First),
                Parameter::new("q", &["1", "8"]).read(1, First),
                Parameter::new("placement", &["z:1"]).read(2, First),
                Parameter::new("engine", &["couch"]).read(3, First),
                Parameter::new("partitioned", SWITCH).read(4, First),
            ],
        )
    },
    Endpoint {
        members: &[
            ("admins", "{\"names\":[\"a\"],\"roles\":[]}"),
            ("members", "{\"names\":[],\"roles\":[\"a\"]}"),
            ("readers", "{\"names\":[]}"),
            ("couchdb_auth_only", "true"),
            ("nosuch", "1"),
        ],
        ..posted("PUT /db/_security", "{}")
    },
    posted("PUT /db/_revs_limit", "1000"),
    posted("POST /db/_ensure_full_commit", ""),
    posted("POST /db/_compact", ""),
    posted("POST /db/_compact/nosuch", ""),
    posted("POST /db/_view_cleanup", ""),
    Endpoint {
        members: &[("name", "\"admin\""), ("username", "\"admin\""), ("password", "\"pw\""), ("next", "\"/\"")],
        ..posted("POST /_session", "{\"name\":\"admin\",\"password\":\"pw\"}")
    },
    endpoint("GET /_session", &[switch("basic")]),
    Endpoint {
        members: &[("action", "\"finish_cluster\""), ("username", "\"a\""), ("password", "\"p\""), ("port", "1")],
        ..posted("POST /_cluster_setup", "{\"action\":\"finish_cluster\"}")
    },
    posted("PUT /_node/_local/_config/log/level", "\"info\""),
    posted("PUT /_node/_local/_config/chttpd/max_db_number_for_dbs_info_req", "\"100\""),
    posted("PUT /_node/_local/_config/daemons/x", "\"y\""),
    endpoint("DELETE /_node/_local/_config/nosuch/nosuch", &[]),
    endpoint("GET /_node/nosuch/_stats", &[]),
    Endpoint { members: &[("doc", "1")], ..posted("POST /_reshard/jobs", "{}") },
    Endpoint { members: &[("state", "\"stopped\"")], ..posted("PUT /_reshard/state", "{}") },
];

#[tokio::test(start_paused = true)]
async fn requests_to_the_server() {
    let world = World::new();
    world.make_database("db");
    world.admin("PUT /db/a", "{}").await;
    check("server", &world, ENDPOINTS).await;
}
