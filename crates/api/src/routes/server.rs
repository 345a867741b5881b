//! Information about the server.

use data_encoding::HEXLOWER;
use hyper::StatusCode;
use hyper::header::{self, HeaderValue};
use md5::{Digest as _, Md5};
use settee_database::tasks::{TaskKind, TaskState};
use settee_model::calendar::http_date;
use settee_model::json::{write_array, write_string};
use settee_settings::{couchdb, dreyfus, nouveau, uuids, vendor};

use crate::Error;
use crate::request::Request;
use crate::respond::{self, Answer};

/// Names of features that clients check for and that do not depend on the configuration.
const FEATURES: &str = r#""pluggable-storage-engines","quickjs""#;

/// `GET /`
pub(super) async fn welcome(request: Request) -> Answer {
    let identity = &request.node.identity;
    let mut out = br#"{"couchdb":"Welcome","version":"#.to_vec();
    write_string(&mut out, &identity.couchdb_version);
    out.extend_from_slice(br#","git_sha":""#);
    out.extend_from_slice(identity.version.as_bytes());
    out.extend_from_slice(br#"","uuid":"#);
    write_string(&mut out, &identity.uuid);
    let settings = &*request.node.settings;
    let nouveau = if nouveau::ENABLE.of(settings) { r#","nouveau""# } else { "" };
    let search = if dreyfus::ENABLE.of(settings) { r#","search""# } else { "" };
    out.extend_from_slice(format!(r#","features":[{FEATURES}{nouveau}{search}],"vendor":{{"name":"#).as_bytes());
    let vendor = vendor::NAME.literal(settings);
    write_string(&mut out, &vendor);
    out.extend_from_slice(br#","version":"#);
    write_string(&mut out, &identity.version);
    out.extend_from_slice(b"}}");
    Ok(respond::json(StatusCode::OK, out))
}

/// `GET /_up`. A server whose store refuses writes is not up, and reports the reason until writes succeed again.
pub(super) async fn up(request: Request) -> Answer {
    let mode = couchdb::MAINTENANCE_MODE.of(&*request.node.settings);
    if mode == "true" || mode == "nolb" {
        let mut out = br#"{"status":"#.to_vec();
        write_string(&mut out, if mode == "true" { "maintenance_mode" } else { "nolb" });
        out.push(b'}');
        return Ok(respond::json(StatusCode::NOT_FOUND, out));
    }
    let engine = request.node.engine();
    if let Err(error) = engine.health() {
        let mut out = br#"{"status":"error","reason":"#.to_vec();
        write_string(&mut out, &error.to_string());
        out.push(b'}');
        return Ok(respond::json(StatusCode::SERVICE_UNAVAILABLE, out));
    }
    let mut out = br#"{"status":"ok","seeds":{}"#.to_vec();
    let nodes = request.node.nodes.names().len();
    if nodes > 1 {
        // Only the number is public, because unauthenticated clients may request this.
        out.extend_from_slice(format!(r#","nodes":{nodes}"#).as_bytes());
    }
    // Undamaged data is still served, so damage does not make the server unavailable.
    if let Some(damage) = engine.damage() {
        out.extend_from_slice(br#","damage":"#);
        write_string(&mut out, &damage);
    }
    out.push(b'}');
    Ok(respond::json(StatusCode::OK, out))
}

/// `GET /_uuids`
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
    let mut out = br#"{"uuids":"#.to_vec();
    write_array(&mut out, &(request.node.uuids)(usize::try_from(count).unwrap_or_default()), |out, uuid| {
        write_string(out, uuid);
    });
    out.push(b'}');
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

/// `GET /_active_tasks`: the tasks of all nodes.
pub(super) async fn active_tasks(request: Request) -> Answer {
    let elsewhere = request.node.nodes.ask_all("/_active_tasks", &request.user).await;
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
    out.extend_from_slice(br#"{"node":"#);
    write_string(out, node);
    out.extend_from_slice(format!(r#","pid":"<0.{}.0>","type":"#, task.id).as_bytes());
    let database = match &task.kind {
        TaskKind::Indexer { database, design_document } => {
            out.extend_from_slice(br#""indexer","design_document":"#);
            write_string(out, design_document);
            database
        }
        TaskKind::SearchIndexer { database, design_document, index } => {
            out.extend_from_slice(br#""search_indexer","design_document":"#);
            write_string(out, design_document);
            out.extend_from_slice(br#","index":"#);
            write_string(out, index);
            database
        }
        TaskKind::DatabaseCompaction { database } => {
            out.extend_from_slice(br#""database_compaction""#);
            database
        }
    };
    out.extend_from_slice(br#","database":"#);
    write_string(out, database);
    let TaskState { changes_done, total_changes, started_on, updated_on, .. } = task;
    let progress = task.progress();
    let eta_s = task.eta_s().map_or_else(|| "null".to_owned(), |eta_s| eta_s.to_string());
    out.extend_from_slice(
        format!(
            concat!(
                r#","changes_done":{},"total_changes":{},"progress":{},"started_on":{},"updated_on":{},"eta_s":{}}}"#
            ),
            changes_done, total_changes, progress, started_on, updated_on, eta_s
        )
        .as_bytes(),
    );
}

/// `GET /_node/{node}`
pub(super) async fn node(request: Request) -> Answer {
    require_node(&request)?;
    let mut out = br#"{"name":"#.to_vec();
    write_string(&mut out, &request.node.identity.node);
    out.push(b'}');
    Ok(respond::json(StatusCode::OK, out))
}

/// `GET /_node/{node}/_system`: the numbers of CouchDB's virtual machine that have a counterpart, under their
/// names, and those of the storage engine.
pub(super) async fn system(request: Request) -> Answer {
    require_node(&request)?;
    let node = &request.node;
    let uptime_s = (node.clock_ms)().saturating_sub(node.started_ms) / 1000;
    let figures = (node.operation.process)();
    let engine = node.catalog.engine_statistics();
    let held = ["memtable_bytes", "block_cache_bytes", "table_reader_bytes"];
    let (held, other): (Vec<_>, Vec<_>) = engine.into_iter().partition(|(name, _)| held.contains(name));
    let in_engine: u64 = held.iter().map(|(_, bytes)| bytes).sum();
    let members = |numbers: &[(&str, u64)]| -> Vec<String> {
        numbers.iter().map(|(name, value)| format!("\"{name}\":{value}")).collect()
    };
    // Some engines hold no data in this process.
    let held: String = members(&held).iter().map(|member| format!(",{member}")).collect();
    let out = format!(
        concat!(
            r#"{{"uptime":{},"memory":{{"resident":{},"other":{}{}}},"engine":{{{}}},"cpu_time_ms":{},"#,
            r#""process_count":{},"os_proc_count":{},"stale_proc_count":0,"open_os_files":{},"message_queues":{{}},"#,
            r#""internal_replication_jobs":0,"distribution":{{}}}}"#
        ),
        uptime_s,
        figures.resident_bytes,
        figures.resident_bytes.saturating_sub(in_engine),
        held,
        members(&other).join(","),
        figures.cpu_ms,
        figures.threads,
        figures.children,
        figures.open_files,
    );
    Ok(respond::json(StatusCode::OK, out.into_bytes()))
}

/// `GET /_node/{node}/_versions`
pub(super) async fn versions(request: Request) -> Answer {
    require_node(&request)?;
    let mut out = br#"{"javascript_engine":{"name":"quickjs","version":"quickjs-ng"},"#.to_vec();
    out.extend_from_slice(br#""collation_driver":{"name":"icu4x","collator_version":"#);
    write_string(&mut out, settee_model::collate::version());
    out.extend_from_slice(b"}}");
    Ok(respond::json(StatusCode::OK, out))
}

/// `/_node` without a node.
pub(super) async fn incomplete_node(_: Request) -> Answer {
    Err(Error::bad_request("Incomplete path to _node request"))
}

/// Paths below a resource without children.
pub(super) async fn nothing(_: Request) -> Answer {
    Err(Error::not_found("missing"))
}

/// Returns an error if the path names another node. Paths without a node refer to this one.
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
