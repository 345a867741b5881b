//! The handlers, by area, and the table of all resources.

mod all_docs;
mod attachments;
mod backups;
mod builds;
mod bulk;
mod bulk_get;
mod changes;
mod cluster;
mod compaction;
mod config;
mod console;
mod copy;
pub(crate) mod databases;
mod db_updates;
pub(crate) mod design;
mod documents;
mod form;
mod invisible;
mod lists;
mod live;
mod local_docs;
mod mango;
mod operate;
pub(crate) mod partition;
mod playground;
mod purge;
mod queries;
mod rendered;
mod replication;
mod request_object;
mod reshard;
mod revs;
mod rewrites;
mod search;
mod server;
mod session;
mod setup;
mod shows;
mod stats;
mod time_seq;
mod updates;
mod views;
pub(crate) mod write;

use std::future::Future;
use std::pin::Pin;

use hyper::Method;

use crate::head::copy;
use crate::respond::Answer;
use crate::router::BodyKind::{Documents, Lists};
use crate::router::{Resource, Router};
use settee_edge::shutdown::Shutdown;
use settee_service::Permission::{
    Anyone, DatabaseAdmin, Document, ListDatabases, Maintenance, Member, Metrics, ServerAdmin,
};

/// The methods of documents, in CouchDB's order.
const DOCUMENT_METHODS: &str = "DELETE,GET,HEAD,POST,PUT,COPY";

pub(crate) fn router(shutdown: &Shutdown) -> Router {
    let mut resources = server_resources();
    // Must precede the databases, because `/_db_updates` would match a database name.
    resources.extend(replication_resources());
    resources.extend(maintenance_resources(shutdown));
    resources.extend(database_resources(shutdown));
    resources.extend(partition_resources());
    resources.extend(mango_resources());
    resources.extend(function_resources());
    resources.extend(search_resources());
    resources.extend(design_resources());
    resources.extend(document_resources());
    Router::new(resources)
}

fn server_resources() -> Vec<Resource> {
    let setup = |path| Resource::new(path, "GET,POST").get(ServerAdmin, setup::state).post(ServerAdmin, setup::run);
    let nouveau_analyze =
        |path| Resource::new(path, "POST").post(ServerAdmin, search::nouveau::analyze).takes(Lists).reads();
    let search_analyze = |path| {
        Resource::new(path, "GET,POST")
            .get(ServerAdmin, search::clouseau::get_analysis)
            .post(ServerAdmin, search::clouseau::post_analysis)
            .takes(Lists)
            .reads()
    };
    // CouchDB ignores the further segments of many of these paths.
    let mut resources = vec![
        Resource::new("/", "GET,HEAD").get(Anyone, server::welcome),
        Resource::new("/_up", "GET,HEAD").get(Anyone, server::up),
        Resource::new("/_up/{*rest}", "GET,HEAD").get(ServerAdmin, server::up),
        Resource::new("/_utils", "GET,HEAD").get(Anyone, console::index),
        Resource::new("/_utils/{*path}", "GET,HEAD").get(Anyone, console::file),
        Resource::new("/favicon.ico", "GET,HEAD").get(Anyone, console::icon),
        Resource::new("/favicon.ico/{*rest}", "GET,HEAD").get(Anyone, console::icon),
        Resource::new("/_all_dbs", "GET,HEAD").get(ListDatabases, databases::all),
        Resource::new("/_all_dbs/{*rest}", "GET,HEAD").get(ListDatabases, server::nothing),
        Resource::new("/_dbs_info/{*rest}", "GET,HEAD,POST")
            .get(ListDatabases, server::nothing)
            .post(ListDatabases, server::nothing)
            .reads(),
        Resource::new("/_dbs_info", "GET,HEAD,POST")
            .get(ListDatabases, databases::info_of_range)
            .post(ListDatabases, databases::info_of_keys)
            .takes(Lists)
            .reads(),
        Resource::new("/_session", "GET,HEAD,POST,DELETE")
            .get(Anyone, session::get)
            .post(Anyone, session::post)
            .delete(Anyone, session::delete),
        Resource::new("/_session/{*rest}", "GET,HEAD,POST,DELETE")
            .get(ServerAdmin, session::get)
            .post(ServerAdmin, session::post)
            .delete(ServerAdmin, session::delete),
        nouveau_analyze("/_nouveau_analyze"),
        nouveau_analyze("/_nouveau_analyze/{*rest}"),
        search_analyze("/_search_analyze"),
        search_analyze("/_search_analyze/{*rest}"),
        Resource::new("/_active_tasks", "GET,HEAD").get(ServerAdmin, server::active_tasks),
        Resource::new("/_active_tasks/{*rest}", "GET,HEAD").get(ServerAdmin, server::active_tasks),
        Resource::new("/_uuids", "GET").get(Anyone, server::uuids),
        Resource::new("/_uuids/{*rest}", "GET").get(ServerAdmin, server::uuids),
        Resource::new("/_membership", "GET").get(ServerAdmin, cluster::membership),
        setup("/_cluster_setup"),
        setup("/_cluster_setup/{*rest}"),
        Resource::new("/_node", "GET").any(ServerAdmin, server::incomplete_node),
        Resource::new("/_node/{node}", "GET").any(ServerAdmin, server::node),
        Resource::new("/_node/{node}/_system", "GET").get(Metrics, server::system),
        Resource::new("/_node/{node}/_versions", "GET").get(ServerAdmin, server::versions),
        Resource::new("/_node/{node}/_settings", "GET").get(ServerAdmin, config::known),
        Resource::new("/_node/{node}/_failed_logins", "POST").post(ServerAdmin, cluster::failed_logins),
    ];
    resources.extend(operation_resources());
    resources.extend(reshard_resources());
    for base in ["/_node/{node}/_config", "/_config"] {
        resources.extend(config_resources(base));
    }
    resources
}

fn operation_resources() -> Vec<Resource> {
    vec![
        Resource::new("/_node/{node}/_stats", "GET").get(Metrics, stats::stats_of_node),
        Resource::new("/_node/{node}/_stats/{*path}", "GET").get(Metrics, stats::stats_of_node),
        Resource::new("/_stats", "GET").get(Metrics, stats::stats_of_version_1),
        Resource::new("/_stats/{*path}", "GET").get(Metrics, stats::stats_of_version_1),
        Resource::new("/_node/{node}/_prometheus", "GET").get(Metrics, stats::prometheus),
        Resource::new("/_node/{node}/_history", "GET").get(Metrics, stats::history),
        Resource::new("/_node/{node}/_log", "GET").get(ServerAdmin, operate::log),
        Resource::new("/_node/{node}/_backup", "GET,POST")
            .get(ServerAdmin, backups::state)
            .post(ServerAdmin, backups::start),
        Resource::new("/_log", "GET").get(ServerAdmin, operate::log),
        Resource::new("/_node/{node}/_restart", "POST").post(ServerAdmin, operate::restart),
        Resource::new("/_restart", "POST").post(ServerAdmin, operate::restart_as_version_1),
    ]
}

fn reshard_resources() -> Vec<Resource> {
    let job = |path, allow| Resource::new(path, allow).get(ServerAdmin, server::nothing);
    vec![
        Resource::new("/_reshard", "GET,HEAD").get(ServerAdmin, reshard::summary),
        Resource::new("/_reshard/state", "GET,HEAD,PUT")
            .get(ServerAdmin, reshard::state)
            .put(ServerAdmin, reshard::set_state),
        Resource::new("/_reshard/jobs", "GET,HEAD,POST")
            .get(ServerAdmin, reshard::jobs)
            .post(ServerAdmin, reshard::begin),
        job("/_reshard/jobs/{job}", "GET,HEAD,DELETE").delete(ServerAdmin, server::nothing),
        job("/_reshard/jobs/{job}/state", "GET,HEAD,PUT").put(ServerAdmin, server::nothing),
        Resource::new("/_reshard/{*rest}", "GET,HEAD").any(ServerAdmin, server::nothing),
    ]
}

fn config_resources(base: &'static str) -> Vec<Resource> {
    let [reload, section, key, below] = match base {
        "/_config" => {
            ["/_config/_reload", "/_config/{section}", "/_config/{section}/{key}", "/_config/{section}/{key}/{*rest}"]
        }
        _ => [
            "/_node/{node}/_config/_reload",
            "/_node/{node}/_config/{section}",
            "/_node/{node}/_config/{section}/{key}",
            "/_node/{node}/_config/{section}/{key}/{*rest}",
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
        Resource::new(below, "GET,PUT,DELETE").any(ServerAdmin, server::nothing),
    ]
}

fn database_resources(shutdown: &Shutdown) -> Vec<Resource> {
    let feed = |shutdown: &Shutdown| {
        let shutdown = shutdown.clone();
        move |request| changes::feed(request, shutdown.watch())
    };
    vec![
        Resource::new("/{db}", "DELETE,GET,HEAD,POST")
            .get(Document, databases::info)
            .post(Document, write::post)
            .per_reader()
            .put(ServerAdmin, databases::create)
            .delete(ServerAdmin, databases::delete)
            .takes(Documents),
        Resource::new("/{db}/_all_docs", "GET,HEAD,POST")
            .get(Member, all_docs::get)
            .post(Member, all_docs::post)
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_all_docs/queries", "POST")
            .post(Member, all_docs::queries)
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_design_docs", "GET,HEAD,POST")
            .get(Member, all_docs::get_design)
            .post(Member, all_docs::post_design)
            .takes(Lists)
            .reads(),
        Resource::new("/{db}/_design_docs/queries", "POST").post(Member, all_docs::queries_design).takes(Lists).reads(),
        Resource::new("/{db}/_local_docs", "GET,HEAD,POST")
            .get(Member, local_docs::get)
            .post(Member, local_docs::post)
            .takes(Lists)
            .reads(),
        Resource::new("/{db}/_local_docs/queries", "POST").post(Member, local_docs::queries).takes(Lists).reads(),
        Resource::new("/{db}/_bulk_docs", "POST").post(Document, bulk::docs).takes(Documents).per_reader(),
        Resource::new("/{db}/_bulk_get", "POST").post(Document, bulk_get::get).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_changes", "GET,POST,HEAD")
            .get(Member, feed(shutdown))
            .post(Member, feed(shutdown))
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_changes/{*rest}", "GET,POST,HEAD")
            .get(Member, feed(shutdown))
            .post(Member, feed(shutdown))
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_revs_diff", "POST").post(Member, revs::diff).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_missing_revs", "POST").post(Member, revs::missing).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_security", "PUT,GET")
            .get(Document, databases::security)
            .put(DatabaseAdmin, databases::set_security),
        Resource::new("/{db}/_revs_limit", "PUT,GET")
            .get(Document, databases::revs_limit)
            .put(DatabaseAdmin, databases::set_revs_limit),
        Resource::new("/{db}/_ensure_full_commit", "POST")
            .post(Document, databases::ensure_full_commit)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_shards", "GET").get(Member, cluster::shards),
        Resource::new("/{db}/_shards/{doc}", "GET").get(Member, cluster::shard_of),
        Resource::new("/{db}/_sync_shards", "POST").post(ServerAdmin, cluster::sync_shards).reads(),
        Resource::new("/{db}/_sync_shards/{*rest}", "POST"),
        Resource::new("/{db}/_temp_view", "POST")
            .post(DatabaseAdmin, views::temp_view)
            .any(Member, views::temp_view_gone)
            .takes(Lists)
            .reads(),
        Resource::new("/{db}/_temp_view/{*rest}", "POST").any(Member, views::temp_view_gone).reads(),
        Resource::new("/{db}/_view_test", "POST").post(DatabaseAdmin, playground::view_test).takes(Lists).reads(),
        Resource::new("/{db}/_view_cleanup", "POST").post(Maintenance, views::cleanup),
        Resource::new("/{db}/_view_cleanup/{*rest}", "POST").post(Maintenance, views::cleanup),
    ]
}

fn maintenance_resources(shutdown: &Shutdown) -> Vec<Resource> {
    let compacting = shutdown.clone();
    let updates = |path| {
        let feeding = shutdown.clone();
        Resource::new(path, "GET").get(ServerAdmin, move |request| db_updates::feed(request, feeding.watch()))
    };
    vec![
        updates("/_db_updates"),
        updates("/_db_updates/{*rest}"),
        Resource::new("/{db}/_compact", "POST")
            .post(Maintenance, move |request| compaction::database(request, compacting.watch())),
        Resource::new("/{db}/_compact/{ddoc}", "POST").post(Maintenance, compaction::view),
        Resource::new("/{db}/_compact/{ddoc}/{*rest}", "POST").post(Maintenance, compaction::view),
        Resource::new("/{db}/_design/{ddoc}/_compact", "POST").post(Maintenance, compaction::view),
        Resource::new("/{db}/_purge", "POST").post(ServerAdmin, purge::purge).takes(Lists),
        Resource::new("/{db}/_purged_infos", "GET").get(Member, purge::infos),
        Resource::new("/{db}/_purged_infos_limit", "GET,PUT")
            .get(ServerAdmin, purge::limit)
            .put(ServerAdmin, purge::set_limit),
        Resource::new("/{db}/_time_seq", "GET,DELETE")
            .get(Member, time_seq::intervals)
            .delete(DatabaseAdmin, time_seq::discard),
    ]
}

fn replication_resources() -> Vec<Resource> {
    vec![
        Resource::new("/_replicate", "POST").any(Anyone, replication::replicate).takes(Lists),
        Resource::new("/_replicate/{*rest}", "POST").post(ServerAdmin, replication::replicate).takes(Lists),
        Resource::new("/_scheduler", "GET,HEAD").get(ServerAdmin, replication::unknown),
        Resource::new("/_scheduler/jobs", "GET,HEAD").get(ServerAdmin, replication::jobs),
        Resource::new("/_scheduler/jobs/{job}", "GET,HEAD").get(ServerAdmin, replication::job),
        Resource::new("/_scheduler/docs", "GET,HEAD").get(ServerAdmin, replication::docs),
        Resource::new("/_scheduler/docs/{*path}", "GET,HEAD").get(ServerAdmin, replication::docs_of),
        Resource::new("/_scheduler/{*rest}", "GET,HEAD").get(ServerAdmin, replication::unknown),
    ]
}

/// The router resolves the paths within partitions.
fn partition_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_partition", "GET").any(Member, partition::incomplete),
        Resource::new("/{db}/_partition/{partition}", "GET").get(Member, partition::info).on(
            Method::POST,
            Member,
            partition::refuse_post,
        ),
    ]
}

fn mango_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_find", "POST").post(Member, mango::find).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_find/{*rest}", "POST").post(Member, mango::find).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_explain", "POST").post(Member, mango::explain).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_explain/{*rest}", "POST").post(Member, mango::explain).takes(Lists).reads().per_reader(),
        Resource::new("/{db}/_index", "GET,POST").get(Member, mango::list).post(Member, mango::create),
        Resource::new("/{db}/_index/_bulk_delete", "POST").post(DatabaseAdmin, mango::bulk_delete).takes(Lists),
        Resource::new("/{db}/_index/_design/{ddoc}/{type}/{name}", "DELETE").delete(DatabaseAdmin, mango::delete),
        Resource::new("/{db}/_index/{ddoc}/{type}/{name}", "DELETE").delete(DatabaseAdmin, mango::delete),
        Resource::new("/{db}/_index/{*path}", "DELETE").any(DatabaseAdmin, mango::no_index),
    ]
}

fn function_resources() -> Vec<Resource> {
    let show =
        |path| Resource::new(path, "GET,HEAD,POST").any(Document, shows::show).takes(Documents).reads().per_reader();
    let update = |path| {
        Resource::new(path, "POST,PUT")
            .get(Member, updates::refuse_get)
            .any(Member, updates::update)
            .takes(Documents)
            .per_reader()
    };
    let list = |path| {
        Resource::new(path, "GET,POST,HEAD")
            .get(Member, lists::get)
            .on(Method::OPTIONS, Member, lists::get)
            .post(Member, lists::post)
            .takes(Documents)
            .reads()
            .per_reader()
    };
    let rewrite = |path| {
        Resource::new(path, "DELETE,GET,HEAD,POST,PUT,COPY").any(Member, rewrites::rewrite).takes(Documents).rewrites()
    };
    let nothing = |path, handler: fn(crate::request::Request) -> InvalidPath| {
        Resource::new(path, "GET,HEAD,POST").any(Member, handler).reads()
    };
    let no_list = |path| {
        Resource::new(path, "GET,POST,HEAD")
            .get(Member, lists::invalid_path)
            .on(Method::OPTIONS, Member, lists::invalid_path)
            .post(Member, lists::invalid_path)
            .reads()
    };
    vec![
        show("/{db}/_design/{ddoc}/_show/{function}"),
        show("/{db}/_design/{ddoc}/_show/{function}/{*doc}"),
        nothing("/{db}/_design/{ddoc}/_show", |request| Box::pin(shows::invalid_path(request))),
        update("/{db}/_design/{ddoc}/_update/{function}"),
        update("/{db}/_design/{ddoc}/_update/{function}/{*doc}"),
        nothing("/{db}/_design/{ddoc}/_update", |request| Box::pin(updates::invalid_path(request))),
        list("/{db}/_design/{ddoc}/_list/{function}/{view}"),
        list("/{db}/_design/{ddoc}/_list/{function}/{other}/{view}"),
        no_list("/{db}/_design/{ddoc}/_list"),
        no_list("/{db}/_design/{ddoc}/_list/{*path}"),
        rewrite("/{db}/_design/{ddoc}/_rewrite"),
        rewrite("/{db}/_design/{ddoc}/_rewrite/{*path}"),
    ]
}

type InvalidPath = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The handlers report disabled features.
fn search_resources() -> Vec<Resource> {
    let nouveau = |path| Resource::new(path, "GET, POST").reads();
    let info = |path| Resource::new(path, "GET");
    vec![
        nouveau("/{db}/_design/{ddoc}/_nouveau/{index}")
            .get(Member, search::nouveau::get)
            .post(Member, search::nouveau::post)
            .takes(Lists)
            .per_reader(),
        nouveau("/{db}/_design/{ddoc}/_nouveau"),
        nouveau("/{db}/_design/{ddoc}/_nouveau/{*path}"),
        info("/{db}/_design/{ddoc}/_nouveau_info/{index}").get(Member, search::nouveau::info),
        info("/{db}/_design/{ddoc}/_nouveau_info").any(Member, search::nouveau::incomplete_info),
        info("/{db}/_design/{ddoc}/_nouveau_info/{*path}").any(Member, search::nouveau::incomplete_info),
        Resource::new("/{db}/_nouveau_cleanup", "POST").post(Member, search::nouveau::cleanup),
        Resource::new("/{db}/_nouveau_cleanup/{*rest}", "POST").post(Member, search::nouveau::cleanup),
        Resource::new("/{db}/_design/{ddoc}/_search/{index}", "GET,POST")
            .get(Member, search::clouseau::get)
            .post(Member, search::clouseau::post)
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_design/{ddoc}/_search", "GET,POST").any(Member, search::clouseau::incomplete),
        Resource::new("/{db}/_design/{ddoc}/_search/{*path}", "GET,POST").any(Member, search::clouseau::incomplete),
        info("/{db}/_design/{ddoc}/_search_info/{index}").get(Member, search::clouseau::info),
        info("/{db}/_design/{ddoc}/_search_info").any(Member, search::clouseau::incomplete),
        info("/{db}/_design/{ddoc}/_search_info/{*path}").any(Member, search::clouseau::incomplete),
        info("/{db}/_design/{ddoc}/_search_disk_size/{index}").get(Member, search::clouseau::disk_size),
        info("/{db}/_design/{ddoc}/_search_disk_size").any(Member, search::clouseau::incomplete),
        info("/{db}/_design/{ddoc}/_search_disk_size/{*path}").any(Member, search::clouseau::incomplete),
        Resource::new("/{db}/_search_cleanup", "POST").post(Member, search::clouseau::cleanup),
        Resource::new("/{db}/_search_cleanup/{*rest}", "POST").post(Member, search::clouseau::cleanup),
    ]
}

fn design_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_design/{ddoc}/_view/{view}", "GET,POST,HEAD")
            .get(Member, views::get)
            .post(Member, views::post)
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_design/{ddoc}/_view/{view}/queries", "POST")
            .post(Member, views::queries)
            .takes(Lists)
            .reads()
            .per_reader(),
        Resource::new("/{db}/_design/{ddoc}/_view", "GET,POST,HEAD"),
        Resource::new("/{db}/_design/{ddoc}/_view/{*path}", "GET,POST,HEAD"),
        Resource::new("/{db}/_design/{ddoc}/_info", "GET").get(Member, views::info),
        Resource::new("/{db}/_design/{ddoc}/_info/{*rest}", "GET").get(Member, server::nothing),
        Resource::new("/{db}/_design/{ddoc}/_build", "GET,POST")
            .get(Maintenance, builds::state)
            .post(Maintenance, builds::action)
            .reads(),
        Resource::new("/{db}/_design/{ddoc}", DOCUMENT_METHODS)
            .get(Member, documents::get)
            .put(DatabaseAdmin, write::put)
            .delete(DatabaseAdmin, write::delete)
            .on(copy(), Member, copy::copy)
            .post(DatabaseAdmin, form::post)
            .takes(Documents),
        Resource::new("/{db}/_design/{ddoc}/{*attachment}", "DELETE,GET,HEAD,PUT")
            .get(Member, attachments::get)
            .put(DatabaseAdmin, attachments::put)
            .delete(DatabaseAdmin, attachments::delete)
            .takes(Documents),
    ]
}

fn document_resources() -> Vec<Resource> {
    vec![
        Resource::new("/{db}/_local", DOCUMENT_METHODS).any(Member, local_docs::no_id),
        Resource::new("/{db}/_local/{local}", DOCUMENT_METHODS)
            .get(Member, documents::get)
            .put(Member, write::put)
            .delete(Member, write::delete)
            .per_reader()
            .on(copy(), Member, copy::copy)
            .post(Member, form::post)
            .takes(Documents),
        Resource::new("/{db}/_local/{local}/{*attachment}", "DELETE,GET,HEAD,PUT")
            .any(Member, attachments::refuse_local),
        Resource::new("/{db}/{doc}", DOCUMENT_METHODS)
            .get(Document, invisible::document)
            .put(Document, write::put)
            .delete(Document, write::delete)
            .on(copy(), Document, invisible::source)
            .per_reader()
            .post(Document, form::post)
            .takes(Documents),
        Resource::new("/{db}/{doc}/{*attachment}", "DELETE,GET,HEAD,PUT")
            .get(Document, invisible::attachment)
            .put(Document, attachments::put)
            .delete(Document, attachments::delete)
            .takes(Documents)
            .per_reader(),
    ]
}
