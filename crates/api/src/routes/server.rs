//! Information about the server.

use data_encoding::HEXLOWER;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use md5::{Digest as _, Md5};
use settee_database::tasks::{TaskKind, TaskState};
use settee_model::calendar::http_date;
use settee_model::json::{self, ObjectWriter, append_object};
use settee_settings::{couchdb, dreyfus, nouveau, uuids, vendor};

use crate::Error;
use crate::request::Request;
use crate::respond::{self, Answer};

/// Names of features that clients check for and that do not depend on the configuration.
const FEATURES: [&str; 2] = ["pluggable-storage-engines", "quickjs"];

pub(super) async fn welcome(request: Request) -> Answer {
    let identity = &request.node.identity;
    let settings = &*request.node.settings;
    let mut features = FEATURES.to_vec();
    features.extend(nouveau::ENABLE.of(settings).then_some("nouveau"));
    features.extend(dreyfus::ENABLE.of(settings).then_some("search"));
    Ok(respond::object(StatusCode::OK, |object| {
        object.string("couchdb", "Welcome").string("version", &identity.couchdb_version);
        object.string("git_sha", &identity.version).string("uuid", &identity.uuid).strings("features", features);
        object.object("vendor", |vendor| {
            vendor.string("name", &vendor::NAME.literal(settings)).string("version", &identity.version);
        });
    }))
}

/// A server whose store refuses writes is not up, and reports the reason until writes succeed again.
pub(super) async fn up(request: Request) -> Answer {
    let mode = couchdb::MAINTENANCE_MODE.of(&*request.node.settings);
    if mode == "true" || mode == "nolb" {
        let status = if mode == "true" { "maintenance_mode" } else { "nolb" };
        return Ok(respond::object(StatusCode::NOT_FOUND, |object| _ = object.string("status", status)));
    }
    let engine = request.node.engine();
    if let Err(error) = engine.health() {
        return Ok(respond::object(StatusCode::SERVICE_UNAVAILABLE, |object| {
            object.string("status", "error").string("reason", &error.to_string());
        }));
    }
    Ok(respond::object(StatusCode::OK, |object| {
        object.string("status", "ok").json("seeds", b"{}");
        let nodes = request.node.nodes.names().len();
        if nodes > 1 {
            // Only the number is public, because unauthenticated clients may request this.
            object.value("nodes", nodes);
        }
        if engine.group_count().is_some() {
            let statistics = engine.statistics();
            let found = |wanted: &str| statistics.iter().find(|(name, _)| *name == wanted);
            let figure = |wanted: &str| found(wanted).map_or(0, |(_, value)| *value);
            object.object("groups", |groups| {
                groups.value("owned", figure("owned_groups")).value("open", figure("open_groups"));
            });
            object.value("log_stalled_ms", figure("log_stalled_ms"));
        }
        // Undamaged data is still served, so damage does not make the server unavailable.
        if let Some(damage) = engine.damage() {
            object.string("damage", &damage);
        }
    }))
}

pub(super) async fn uuids(request: Request) -> Answer {
    let max = uuids::MAX_COUNT.of(&*request.node.settings);
    let refused = || Error::bad_request("count must be a positive integer");
    // A number beyond the range of the type is too large or negative as well.
    let count: i128 = match request.query.get("count") {
        None => 1,
        Some(text) if !is_integer(text) => return Err(refused()),
        Some(text) => text.parse().unwrap_or(if text.starts_with('-') { i128::MIN } else { i128::MAX }),
    };
    let count = u64::try_from(count.min(i128::from(u64::MAX))).map_err(|_| refused())?;
    if count > max {
        return Err(Error::bad_request("count parameter too large"));
    }
    let uuids = (request.node.uuids)(usize::try_from(count).unwrap_or_default());
    let out = json::object(|object| _ = object.strings("uuids", &uuids));
    let tag = HEXLOWER.encode(&Md5::digest(&out));
    let mut response = respond::json(StatusCode::OK, out);
    // No cache may serve these to another client, whatever version of HTTP it uses.
    respond::set_etag(&mut response, &tag);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    headers.insert(header::PRAGMA, HeaderValue::from_static("no-cache"));
    headers.insert(header::EXPIRES, HeaderValue::from_static("Mon, 01 Jan 1990 00:00:00 GMT"));
    respond::set(headers, header::DATE, &http_date((request.node.clock_ms)() / 1000));
    Ok(response)
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Includes the tasks of all nodes.
pub(super) async fn active_tasks(request: Request) -> Answer {
    let elsewhere = request.node.nodes.get_all("/_active_tasks", &request.user).await;
    let mut out = b"[".to_vec();
    for (index, task) in request.node.tasks.list().iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_task(&mut out, task, &request.node.identity.node);
    }
    for task in request.node.replicator.get().map(|replicator| replicator.tasks()).unwrap_or_default() {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(&task.json);
    }
    for tasks in elsewhere.iter().filter_map(|answer| answer.trim_ascii().strip_prefix(b"[")?.strip_suffix(b"]")) {
        if out.len() > 1 && !tasks.is_empty() {
            out.push(b',');
        }
        out.extend_from_slice(tasks);
    }
    out.push(b']');
    Ok(respond::json(StatusCode::OK, out))
}

fn write_task(out: &mut Vec<u8>, task: &TaskState, node: &str) {
    let (kind, database, design_document, index) = match &task.kind {
        TaskKind::Indexer { database, design_document } => ("indexer", database, Some(design_document), None),
        TaskKind::SearchIndexer { database, design_document, index } => {
            ("search_indexer", database, Some(design_document), Some(index))
        }
        TaskKind::DatabaseCompaction { database } => ("database_compaction", database, None, None),
    };
    append_object(out, |object| {
        object.string("node", node).string("pid", &format!("<0.{}.0>", task.id)).string("type", kind);
        if let Some(design_document) = design_document {
            object.string("design_document", design_document);
        }
        if let Some(index) = index {
            object.string("index", index);
        }
        object.string("database", database);
        object.value("changes_done", task.changes_done).value("total_changes", task.total_changes);
        object.value("progress", task.progress());
        object.value("started_on", task.started_on).value("updated_on", task.updated_on);
        object.value_or_null("eta_s", task.eta_s());
    });
}

pub(super) async fn node(request: Request) -> Answer {
    require_node(&request)?;
    Ok(respond::object(StatusCode::OK, |object| _ = object.string("name", &request.node.identity.node)))
}

/// Reports the numbers of CouchDB's virtual machine that have a counterpart, and those of the storage engine.
pub(super) async fn system(request: Request) -> Answer {
    require_node(&request)?;
    let node = &request.node;
    let uptime_s = (node.clock_ms)().saturating_sub(node.started_ms) / 1000;
    let figures = (node.operation.process)();
    let engine = node.catalog.engine_statistics();
    let held = ["memtable_bytes", "block_cache_bytes", "table_reader_bytes"];
    let (held, other): (Vec<_>, Vec<_>) = engine.into_iter().partition(|(name, _)| held.contains(name));
    let in_engine: u64 = held.iter().map(|(_, bytes)| bytes).sum();
    let add = |object: &mut ObjectWriter<'_>, numbers: &[(&str, u64)]| {
        numbers.iter().for_each(|(name, value)| _ = object.value(name, value));
    };
    Ok(respond::object(StatusCode::OK, |object| {
        object.value("uptime", uptime_s);
        object.object("memory", |memory| {
            memory.value("resident", figures.resident_bytes);
            memory.value("other", figures.resident_bytes.saturating_sub(in_engine));
            // Some engines hold no data in this process.
            add(memory, &held);
        });
        object.object("engine", |engine| add(engine, &other));
        object.value("cpu_time_ms", figures.cpu_ms).value("process_count", figures.threads);
        object.value("os_proc_count", figures.children).value("stale_proc_count", 0);
        object.value("open_os_files", figures.open_files).json("message_queues", b"{}");
        object.value("internal_replication_jobs", 0).json("distribution", b"{}");
    }))
}

pub(super) async fn versions(request: Request) -> Answer {
    require_node(&request)?;
    Ok(respond::object(StatusCode::OK, |object| {
        object.object("javascript_engine", |engine| {
            engine.string("name", "quickjs").string("version", "quickjs-ng");
        });
        object.object("collation_driver", |driver| {
            driver.string("name", "icu4x").string("collator_version", settee_model::collate::version());
        });
    }))
}

pub(super) async fn incomplete_node(_: Request) -> Answer {
    Err(Error::bad_request("Incomplete path to _node request"))
}

pub(super) async fn nothing(_: Request) -> Answer {
    Err(Error::not_found("missing"))
}

/// Paths without a node refer to this one.
pub(super) fn require_node(request: &Request) -> Result<(), Error> {
    let name = request.captures.get("node");
    if ["", "_local", "nonode@nohost", &request.node.identity.node].contains(&name) {
        return Ok(());
    }
    Err(Error::not_found(format!("no such node: {name}")))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use settee_storage::StorageError;
    use settee_storage::faulty::{FaultyEngine, SyncFault};

    use crate::tests::node::{Ask, World};

    #[tokio::test]
    async fn a_store_that_refuses_writes_is_not_up() {
        let engine = Arc::new(FaultyEngine::new());
        let world = World::on(Arc::clone(&engine) as Arc<_>);
        world.admin("PUT /db", "").await;
        engine.inject_sync(1, SyncFault::Fail(StorageError::Full("the disk".to_owned())));
        let full = world.ask(Ask::new("PUT /db/a").basic("admin", "pw").json("{}")).await;
        assert_eq!(full.line(), r#"507 {"error":"insufficient_storage","reason":"no space left: the disk"}"#);
        let up = world.ask(Ask::new("GET /_up")).await;
        let reason = "storage refuses writes after a failed sync: no space left: the disk";
        assert_eq!(up.line(), format!(r#"503 {{"status":"error","reason":"{reason}"}}"#));
        assert_eq!(world.admin("GET /db/_all_docs", "").await.status.as_u16(), 200);
    }
}
