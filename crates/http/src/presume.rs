//! Small writes of a cluster are judged by what this node knows, and their commit finds out whether there is news ([`premise`]). So they are one trip to the
//! store, where everything else asks for news first ([`CatchUp`](crate::catch_up::CatchUp)).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use hyper::body::Body as _;
use hyper::{HeaderMap, Method, Uri, header};
use settee_database::{Database, Premise};
use settee_service::threads;

use crate::body::inbound::Inbound;
use crate::limits::SMALL_BODY_BYTES_MAX;
use crate::node::Node;
use crate::router::Router;

/// The time between two tries to have the database of users at hand.
const PAUSE_MS: u64 = 1000;

/// The resource and the database, if that is open, of a small request that writes documents.
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

/// What a small write to `database` may be judged by; `None` if the store is to be asked for news first.
pub(crate) fn premise(node: &Arc<Node>, database: &Arc<Database>, uri: &Uri, headers: &HeaderMap) -> Option<Premise> {
    // Databases of the system have rules of their own; who waits to be asked for a body is judged before that; what is written later has nobody who would
    // find out; and who is counted is not to be counted twice.
    let is_written_later = uri.query().is_some_and(|query| query.contains("batch"));
    if database.name().starts_with('_') || is_written_later || headers.contains_key(header::EXPECT) {
        return None;
    }
    let policy = node.users.policy();
    let Some(users) = node.catalog.at_last(&policy.users_db) else {
        open_users(node, policy.users_db.clone());
        return None;
    };
    let premise = Premise::of(database, vec![users])?;
    let counts = node.policy().rate_limit.is_some();
    (!counts && !node.settings.is_behind()).then_some(premise)
}

/// Has the database of users opened, if there is one: nothing is heard of one that is not.
fn open_users(node: &Arc<Node>, name: String) {
    let now_ms = (node.clock_ms)();
    let is_time = |last: u64| (now_ms.abs_diff(last) >= PAUSE_MS).then_some(now_ms);
    if node.users_opened_ms.fetch_update(Ordering::AcqRel, Ordering::Acquire, is_time).is_ok() {
        let node = Arc::clone(node);
        threads::begin(move || drop(node.database(&name)));
    }
}
