//! The handlers, by area, and the table of all resources.

mod all_docs;
mod bulk;
mod changes;
mod cluster;
mod config;
mod databases;
mod design;
mod documents;
mod local_docs;
mod revs;
mod server;
mod views;
mod write;

use hyper::Method;

use crate::access::Permission::{Anyone, DatabaseAdmin, ListDatabases, Member, Metrics, ServerAdmin};
use crate::router::{Resource, Router};
use crate::server::{Shutdown, copy};

/// The methods that documents serve, as CouchDB lists them.
const DOCUMENT_METHODS: &str = "DELETE,GET,HEAD,POST,PUT,COPY";

/// All resources of a server that stops with `shutdown`.
pub(crate) fn router(shutdown: &Shutdown) -> Router {
    let mut resources = server_resources();
    resources.extend(database_resources(shutdown));
    resources.extend(design_resources());
    resources.extend(absent_resources());
    resources.extend(document_resources());
    Router::new(resources)
}

fn server_resources() -> Vec<Resource> {
    let mut resources = vec![
        Resource::new("/", "GET,HEAD").get(Anyone, server::welcome),
        Resource::new("/_up", "GET,HEAD").get(Anyone, server::up),
        Resource::new("/_all_dbs", "GET,HEAD").get(ListDatabases, databases::all),
        Resource::new("/_dbs_info", "GET,HEAD,POST")
            .get(ListDatabases, databases::info_of_range)
            .post(ListDatabases, databases::info_of_keys),
        Resource::new("/_active_tasks", "GET,HEAD").get(ServerAdmin, server::active_tasks),
        Resource::new("/_uuids", "GET,HEAD").get(Anyone, server::uuids),
        Resource::new("/_membership", "GET,HEAD").get(ServerAdmin, cluster::membership),
        Resource::new("/_cluster_setup", "GET,POST").get(ServerAdmin, cluster::setup_state),
        Resource::new("/_node/{node}", "GET").get(ServerAdmin, server::node),
        Resource::new("/_node/{node}/_system", "GET").get(Metrics, server::system),
        Resource::new("/_node/{node}/_versions", "GET").get(ServerAdmin, server::versions),
    ];
    for base in ["/_node/{node}/_config", "/_config"] {
        resources.extend(config_resources(base));
    }
    resources
}

/// The configuration, under its path of today and under that of version 1.
fn config_resources(base: &'static str) -> Vec<Resource> {
    let [reload, section, key] = match base {
        "/_config" => ["/_config/_reload", "/_config/{section}", "/_config/{section}/{key}"],
        _ => [
            "/_node/{node}/_config/_reload",
            "/_node/{node}/_config/{section}",
            "/_node/{node}/_config/{section}/{key}",
        ],
    };
    vec![
        Resource::new(base, "GET").get(ServerAdmin, config::all),
        Resource::new(reload, "POST").post(ServerAdmin, config::reload),
        Resource::new(section, "GET").get(ServerAdmin, config::section),
        Resource::new(key, "GET,PUT,DELETE")
            .get(ServerAdmin, config::get)
            .put(ServerAdmin, config::set)
            .delete(ServerAdmin, config::delete),
    ]
}

fn database_resources(shutdown: &Shutdown) -> Vec<Resource> {
    let feed = |shutdown: &Shutdown| {
        let shutdown = shutdown.clone();
        move |request| changes::feed(request, shutdown.watch())
    };
    vec![
        Resource::new("/{db}", "DELETE,GET,HEAD,POST")
            .get(Member, databases::info)
            .put(ServerAdmin, databases::create)
            .delete(ServerAdmin, databases::delete)
            .post(Member, write::post),
        Resource::new("/{db}/_all_docs", "GET,HEAD,POST").get(Member, all_docs::get).post(Member, all_docs::post),
        Resource::new("/{db}/_all_docs/queries", "POST").post(Member, all_docs::queries),
        Resource::new("/{db}/_design_docs", "GET,HEAD,POST")
            .get(Member, all_docs::get_design)
            .post(Member, all_docs::post_design),
        Resource::new("/{db}/_design_docs/queries", "POST").post(Member, all_docs::queries_design),
        Resource::new("/{db}/_local_docs", "GET,HEAD,POST").get(Member, local_docs::get).post(Member, local_docs::post),
        Resource::new("/{db}/_local_docs/queries", "POST").post(Member, local_docs::queries),
        Resource::new("/{db}/_bulk_docs", "POST").post(Member, bulk::docs),
        Resource::new("/{db}/_bulk_get", "POST").post(Member, bulk::get),
        Resource::new("/{db}/_changes", "GET,POST,HEAD").get(Member, feed(shutdown)).post(Member, feed(shutdown)),
        Resource::new("/{db}/_revs_diff", "POST").post(Member, revs::diff),
        Resource::new("/{db}/_missing_revs", "POST").post(Member, revs::missing),
        Resource::new("/{db}/_security", "PUT,GET")
            .get(Member, databases::security)
            .put(DatabaseAdmin, databases::set_security),
        Resource::new("/{db}/_revs_limit", "PUT,GET")
            .get(Member, databases::revs_limit)
            .put(DatabaseAdmin, databases::set_revs_limit),
        Resource::new("/{db}/_ensure_full_commit", "POST").post(Member, databases::ensure_full_commit),
        Resource::new("/{db}/_shards", "GET").get(Member, cluster::shards),
        Resource::new("/{db}/_shards/{doc}", "GET").get(Member, cluster::shard_of),
        Resource::new("/{db}/_sync_shards", "POST").post(ServerAdmin, cluster::sync_shards),
        Resource::new("/{db}/_temp_view", "POST").post(DatabaseAdmin, views::temp_view),
        Resource::new("/{db}/_view_cleanup", "POST").post(DatabaseAdmin, views::cleanup),
    ]
}

fn design_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_design/{ddoc}/_view/{view}", "GET,POST,HEAD")
            .get(Member, views::get)
            .post(Member, views::post),
        Resource::new("/{db}/_design/{ddoc}/_view/{view}/queries", "POST").post(Member, views::queries),
        Resource::new("/{db}/_design/{ddoc}/_info", "GET").get(Member, views::info),
        Resource::new("/{db}/_design/{ddoc}", DOCUMENT_METHODS)
            .get(Member, documents::get)
            .put(DatabaseAdmin, write::put)
            .delete(DatabaseAdmin, write::delete)
            .on(copy(), Member, write::copy)
            .post(Member, documents::post),
        Resource::new("/{db}/_design/{ddoc}/{*attachment}", "GET,HEAD,PUT,DELETE")
            .get(Member, documents::attachment)
            .put(DatabaseAdmin, documents::refuse_attachment)
            .delete(DatabaseAdmin, documents::refuse_attachment),
    ]
}

/// What CouchDB serves and this server does not yet: it says so, instead of taking the path for a document.
fn absent_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_compact", "POST").post(DatabaseAdmin, databases::absent),
        Resource::new("/{db}/_compact/{ddoc}", "POST").post(DatabaseAdmin, databases::absent),
        Resource::new("/{db}/_purge", "POST").post(ServerAdmin, databases::absent),
        Resource::new("/{db}/_find", "POST").post(Member, databases::absent),
        Resource::new("/{db}/_explain", "POST").post(Member, databases::absent),
        Resource::new("/{db}/_index", "GET,POST").get(Member, databases::absent).post(DatabaseAdmin, databases::absent),
    ]
}

fn document_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_local/{local}", DOCUMENT_METHODS)
            .get(Member, documents::get_local)
            .put(Member, write::put_local)
            .delete(Member, write::delete_local)
            .on(copy(), Member, write::copy_local)
            .on(Method::POST, Member, documents::post),
        Resource::new("/{db}/{doc}", DOCUMENT_METHODS)
            .get(Member, documents::get)
            .put(Member, write::put)
            .delete(Member, write::delete)
            .on(copy(), Member, write::copy)
            .post(Member, documents::post),
        Resource::new("/{db}/{doc}/{*attachment}", "GET,HEAD,PUT,DELETE")
            .get(Member, documents::attachment)
            .put(Member, documents::refuse_attachment)
            .delete(Member, documents::refuse_attachment),
    ]
}
