//! [`Pulses`]: which other nodes give signs of life. They are asked while somebody waits for an answer of theirs that is late, by one for all who wait,
//! and as long as they are away. What they answer does not matter, and costs them nothing.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use settee_database::members::{Node as Member, NodeId};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::nodes::Nodes;

/// Most answers come within this time. Who waits for longer wants to know whether there is anybody.
const PATIENCE: Duration = Duration::from_millis(300);

/// A node without a sign of life for so long is away. A busy one must have the time to give one.
const SIGN_TIME: Duration = Duration::from_millis(800);

/// The time between a sign of life and the next question.
const PAUSE: Duration = Duration::from_millis(200);

// Nobody waits for two seconds for a node that is dead, also if it has just given a sign of life.
const _: () = assert!(PATIENCE.as_millis() + PAUSE.as_millis() + SIGN_TIME.as_millis() < 1500);

/// What is known of the other nodes.
#[derive(Default)]
pub(crate) struct Pulses(Mutex<HashMap<NodeId, Pulse>>);

struct Pulse {
    /// Whether it has given a sign of life, and since then none too late.
    is_there: watch::Sender<bool>,
    /// Whether somebody asks it all the time.
    is_asked: bool,
}

impl Pulses {
    /// Whether a node has given a sign of life, and nobody has waited in vain for one since.
    pub(crate) fn is_there(&self, id: NodeId) -> bool {
        self.0.lock().get(&id).is_some_and(|pulse| *pulse.is_there.borrow())
    }

    /// Notes what a node has or has not answered. `true` if nobody needs to ask it again.
    fn note(&self, id: NodeId, is_member: bool, answers: bool) -> bool {
        // Under the lock nobody begins to wait.
        let mut pulses = self.0.lock();
        // One that leaves finishes what it has begun.
        if !is_member && !answers {
            pulses.remove(&id);
        }
        let Some(pulse) = pulses.get_mut(&id) else { return true };
        let was_there = pulse.is_there.send_replace(answers);
        pulse.is_asked = !answers || (was_there && pulse.is_there.receiver_count() > 0);
        !pulse.is_asked
    }
}

/// What comes of an `exchange` with another node, however long it takes; `None` if that node gives no sign of life.
pub(crate) async fn while_alive<T>(
    nodes: &Arc<Nodes>,
    member: &Member,
    exchange: impl Future<Output = T>,
) -> Option<T> {
    let mut exchange = pin!(exchange);
    if let Ok(done) = timeout(PATIENCE, &mut exchange).await {
        return Some(done);
    }
    let mut is_there = ask(nodes, member);
    tokio::select! {
        done = &mut exchange => Some(done),
        _ = is_there.wait_for(|is_there| !is_there) => None,
    }
}

/// Another node is away, or was not met yet, until it gives a sign of life.
pub(crate) fn look_for(nodes: &Arc<Nodes>, member: &Member) {
    if let Some(pulse) = nodes.pulses.0.lock().get(&member.id) {
        pulse.is_there.send_replace(false);
    }
    drop(ask(nodes, member));
}

/// Has a node be asked, if nobody does so already.
fn ask(nodes: &Arc<Nodes>, member: &Member) -> watch::Receiver<bool> {
    let mut pulses = nodes.pulses.0.lock();
    if !pulses.contains_key(&member.id) {
        // Each start of a node is another one.
        let live = nodes.engine.members().live();
        pulses.retain(|id, pulse| pulse.is_asked || live.iter().any(|node| node.id == *id));
    }
    let unknown = || Pulse { is_there: watch::Sender::new(false), is_asked: false };
    let pulse = pulses.entry(member.id).or_insert_with(unknown);
    if !std::mem::replace(&mut pulse.is_asked, true) {
        tokio::spawn(ask_on(Arc::downgrade(nodes), member.clone()));
    }
    pulse.is_there.subscribe()
}

/// Asks a node where it was last, until nobody wants to know, or it has gone.
async fn ask_on(nodes: Weak<Nodes>, mut member: Member) {
    while let Some(nodes) = nodes.upgrade() {
        let live = nodes.engine.members().live().iter().find(|live| live.id == member.id).cloned();
        let is_member = live.is_some();
        member = live.unwrap_or(member);
        let answers = timeout(SIGN_TIME, nodes.is_alive(&member)).await.unwrap_or_default();
        if nodes.pulses.note(member.id, is_member, answers) {
            return;
        }
        drop(nodes);
        sleep(PAUSE).await;
    }
}
