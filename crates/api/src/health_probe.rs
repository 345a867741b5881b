//! [`HealthProbes`]: health probes of other nodes. A node is probed while requests wait for a late response of it,
//! by one task for all of them, and as long as it does not respond. Any response counts, and probes cost the
//! node almost nothing.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use settee_database::members::{Node as Member, NodeId};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::nodes::Nodes;

/// Most responses arrive within this time. After it, a waiting request starts a health probe.
const PROBE_DELAY: Duration = Duration::from_millis(300);

/// Timeout of a health probe. It must be long enough for a busy node.
const PROBE_TIMEOUT: Duration = Duration::from_millis(800);

/// Interval between a response and the next probe.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);

// A failed node delays no request by two seconds, even if it has just answered a probe.
const _: () = assert!(PROBE_DELAY.as_millis() + PROBE_INTERVAL.as_millis() + PROBE_TIMEOUT.as_millis() < 1500);

#[derive(Default)]
pub(crate) struct HealthProbes(Mutex<HashMap<NodeId, HealthProbe>>);

struct HealthProbe {
    /// True if the last probe was answered in time.
    is_there: watch::Sender<bool>,
    /// True while a task probes the node.
    is_probing: bool,
}

impl HealthProbes {
    /// Returns true if the last probe of a node was answered in time.
    pub(crate) fn is_there(&self, id: NodeId) -> bool {
        self.0.lock().get(&id).is_some_and(|probe| *probe.is_there.borrow())
    }

    /// Records the result of a probe. Returns true if the node does not need to be probed again.
    fn note(&self, id: NodeId, is_member: bool, answers: bool) -> bool {
        // The lock prevents that a request starts to wait in between.
        let mut health_probes = self.0.lock();
        // A node that leaves the cluster still finishes its requests.
        if !is_member && !answers {
            health_probes.remove(&id);
        }
        let Some(probe) = health_probes.get_mut(&id) else { return true };
        let was_there = probe.is_there.send_replace(answers);
        probe.is_probing = !answers || (was_there && probe.is_there.receiver_count() > 0);
        !probe.is_probing
    }
}

/// Returns the result of an `exchange` with another node, without a timeout, or `None` if the node stops
/// answering health probes.
pub(crate) async fn while_alive<T>(
    nodes: &Arc<Nodes>,
    member: &Member,
    exchange: impl Future<Output = T>,
) -> Option<T> {
    let mut exchange = pin!(exchange);
    if let Ok(done) = timeout(PROBE_DELAY, &mut exchange).await {
        return Some(done);
    }
    let mut is_there = start_probing(nodes, member);
    tokio::select! {
        done = &mut exchange => Some(done),
        _ = is_there.wait_for(|is_there| !is_there) => None,
    }
}

/// Marks a node as unresponsive, or as new, until it answers a health probe.
pub(crate) fn mark_unresponsive(nodes: &Arc<Nodes>, member: &Member) {
    if let Some(probe) = nodes.health_probes.0.lock().get(&member.id) {
        probe.is_there.send_replace(false);
    }
    drop(start_probing(nodes, member));
}

/// Starts a task that probes the node, unless one is running.
fn start_probing(nodes: &Arc<Nodes>, member: &Member) -> watch::Receiver<bool> {
    let mut health_probes = nodes.health_probes.0.lock();
    if !health_probes.contains_key(&member.id) {
        // A restarted node has a new id, so entries of nodes that are gone are removed.
        let live = nodes.engine.members().live();
        health_probes.retain(|id, probe| probe.is_probing || live.iter().any(|node| node.id == *id));
    }
    let unknown = || HealthProbe { is_there: watch::Sender::new(false), is_probing: false };
    let probe = health_probes.entry(member.id).or_insert_with(unknown);
    if !std::mem::replace(&mut probe.is_probing, true) {
        tokio::spawn(probe_until_done(Arc::downgrade(nodes), member.clone()));
    }
    probe.is_there.subscribe()
}

/// Probes a node at its last known address until no request waits for it, or until it has left the cluster.
async fn probe_until_done(nodes: Weak<Nodes>, mut member: Member) {
    while let Some(nodes) = nodes.upgrade() {
        let live = nodes.engine.members().live().iter().find(|live| live.id == member.id).cloned();
        let is_member = live.is_some();
        member = live.unwrap_or(member);
        let answers = timeout(PROBE_TIMEOUT, nodes.is_alive(&member)).await.unwrap_or_default();
        if nodes.health_probes.note(member.id, is_member, answers) {
            return;
        }
        drop(nodes);
        sleep(PROBE_INTERVAL).await;
    }
}
