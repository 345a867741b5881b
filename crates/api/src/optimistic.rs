//! Optimistic validation of small writes in a cluster: they are handled with the cached state of this node,
//! and their commit validates it ([`read_set`]). They need a single round trip to the store, whereas all other
//! requests catch up first ([`CatchUp`](crate::catch_up::CatchUp)).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::Body as _;
use hyper::{HeaderMap, Method, Uri, header};
use settee_database::{Database, ReadSet};
use settee_edge::body::inbound::Inbound;

use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::node::Node;
use crate::router::Router;

/// Minimum interval between two attempts to open the users database.
const OPEN_INTERVAL_MS: u64 = 1000;

/// Returns the resource and the database of a small request that writes documents, if the database is open.
pub(crate) fn small_write(
    node: &Node,
    router: &Router,
    (method, uri, headers): (&Method, &Uri, &HeaderMap),
    body: &Inbound,
) -> Option<(&'static str, Arc<Database>)> {
    let is_small = body.size_hint().upper().is_some_and(|bytes| bytes <= SMALL_BODY_BYTES_MAX as u64);
    if !node.nodes.is_cluster() || !is_small || headers.contains_key(header::CONTENT_ENCODING) {
        return None;
    }
    let (path, database) = router.written(method, uri.path(), node.policy().plus)?;
    Some((path, node.catalog.at_last(&database)?))
}

/// Returns the read set of a small write to `database`, or `None` if the node must catch up first.
pub(crate) fn read_set(node: &Arc<Node>, database: &Arc<Database>, uri: &Uri, headers: &HeaderMap) -> Option<ReadSet> {
    // Excluded are system databases, which have special rules; requests that wait for "100 Continue", which
    // are authorized before their body; deferred writes, whose commit could not report a failed validation;
    // and rate-limited clients, which a retry would count twice.
    let is_written_later = uri.query().is_some_and(|query| query.contains("batch"));
    if database.name().starts_with('_') || is_written_later || headers.contains_key(header::EXPECT) {
        return None;
    }
    let policy = node.users.policy();
    let Some(users) = node.catalog.at_last(&policy.users_db) else {
        open_users(node, policy.users_db.clone());
        return None;
    };
    let read_set = ReadSet::of(database, vec![users])?;
    let counts = node.policy().rate_limit.is_some();
    (!counts && !node.settings.is_behind()).then_some(read_set)
}

/// Opens the users database in the background, if it exists, because commit notifications are received for
/// open databases only.
fn open_users(node: &Arc<Node>, name: String) {
    let now_ms = (node.clock_ms)();
    let is_time = |last: u64| (now_ms.abs_diff(last) >= OPEN_INTERVAL_MS).then_some(now_ms);
    if node.users_opened_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_time).is_ok() {
        let node = Arc::clone(node);
        settee_threads::begin(move || drop(node.database(&name)));
    }
}
