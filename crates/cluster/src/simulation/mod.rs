//! A deterministic simulation of several nodes on one store, with faults. The nodes run the code of [`Lease`] and
//! [`Membership`](crate::membership::Membership). The store, the network, the clocks, the clients, and what surrounds
//! the lease on a node are models. One generator makes all choices, so a seed replays exactly. The invariants are
//! checked after every event; [`Simulation::check`] lists them.

mod faults;
mod node;
mod rng;
mod store;
mod tests;
mod writes;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BinaryHeap};
use std::num::NonZeroU32;
use std::time::Duration;

use settee_storage::Shard;
use settee_storage::members::NodeId;

use crate::groups::Groups;
use crate::lease::State;
use crate::membership::{CLAIM_TIMEOUT, DISCONNECTED_CLAIM_TIMEOUT, HEARTBEAT_EXPIRY};
use node::{Node, Wake};
use rng::Rng;
use store::{Request, Store};

const SHARDS: usize = 4;
const CLIENTS: usize = 4;
const FAULTS_UNTIL: u64 = 20_000;
/// Time after the last fault within which every group has a writer, in addition to the expiry of heartbeats and to the
/// difference between the clocks of two servers.
const ELECTION_BOUND_MS: u64 = 2000;
const SERVER_SKEW_MAX_MS: u64 = 2000;

/// An error of the implementation that the simulation must find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InjectedDefect {
    /// The store does not compare the claim of a commit.
    EpochUnchecked,
    /// A writer ignores the expiry of its lease.
    LeaseKept,
    /// A commit with an unknown outcome is repeated without reading its token.
    TokenIgnored,
    /// The writer reads without a catch-up as long as it believes that its connection exists.
    ConnectionTrusted,
    /// The fence overlooks commits of nodes that have left, and earlier ones of this node.
    FenceOfMembers,
}

/// Result of a run.
#[derive(Clone, Copy, Debug, Default)]
struct RunResult {
    events: u64,
    acknowledged: usize,
    elections: u64,
    /// Longest time without a writer after a crash of the writer without other faults.
    outage: u64,
}

#[derive(Debug)]
enum Event {
    Fault,
    EndFaults,
    CheckElected,
    End,
    Resume(usize, u64),
    Restart(usize),
    Reconnect(usize),
    StoreUp,
    Wake(usize, u64, Wake),
    Arrive {
        node: usize,
        life: u64,
        id: NodeId,
        call: u64,
        connection: Option<u64>,
        request: Request,
    },
    Transaction {
        number: u64,
        node: usize,
        life: u64,
        call: u64,
    },
    /// A connection may not have been used since.
    Idle {
        id: NodeId,
        connection: u64,
        since: u64,
    },
    Disconnect {
        id: NodeId,
        connection: u64,
    },
    Client(usize, u64),
    Answer {
        client: usize,
        document: usize,
        is_written: bool,
    },
}

struct Scheduled {
    at: u64,
    tie: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    /// The earliest event is the greatest, for a heap.
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.tie).cmp(&(self.at, self.tie))
    }
}

#[derive(Debug, Default)]
struct Client {
    document: usize,
    shard: usize,
    attempt: u64,
    finished: usize,
}

struct Simulation {
    now: u64,
    events: BinaryHeap<Scheduled>,
    rng: Rng,
    defect: Option<InjectedDefect>,
    /// True if the run has a single fault: the crash of the writer.
    is_plain: bool,
    store: Store,
    is_up: bool,
    stalled_until: u64,
    slow_until: u64,
    ends_idle: bool,
    last_use: BTreeMap<(NodeId, u64), u64>,
    last_number: u64,
    group_of: Vec<usize>,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    /// Version at which each document was written.
    written: Vec<Option<usize>>,
    acknowledged: Vec<bool>,
    /// Latest version of each shard with an acknowledged write.
    acknowledged_version: Vec<usize>,
    /// Greatest epoch of each group whose fence has ended, or whose commit was applied.
    fenced: Vec<u64>,
    faults_ended: bool,
    crashed_at: Option<u64>,
    summary: RunResult,
    violation: Option<String>,
    trace: bool,
}

/// Runs a seed and returns the violation of an invariant.
fn run(seed: u64, defect: Option<InjectedDefect>, is_plain: bool) -> Result<RunResult, String> {
    let mut world = Simulation::new(seed, defect, is_plain);
    while let Some(Scheduled { at, event, .. }) = world.events.pop() {
        world.now = at;
        world.summary.events += 1;
        if matches!(event, Event::End) {
            break;
        }
        if world.trace {
            eprintln!("{at} {event:?}");
        }
        world.handle(event);
        world.check();
        if let Some(violation) = world.violation {
            return Err(format!("at {at} ms: {violation}"));
        }
    }
    world.summary.acknowledged = world.acknowledged.iter().filter(|is_acknowledged| **is_acknowledged).count();
    if let Some(stuck) = world.clients.iter().position(|client| client.finished == 0) {
        return Err(format!("client {stuck} writes nothing after the last fault"));
    }
    Ok(world.summary)
}

impl Simulation {
    fn new(seed: u64, defect: Option<InjectedDefect>, is_plain: bool) -> Self {
        let mut rng = Rng::new(seed);
        let count = u32::try_from(rng.range(1, 3)).expect("small");
        let groups = Groups::new(NonZeroU32::new(count).expect("positive"));
        let group_of = (0..SHARDS).map(|shard| groups.of(Shard(shard as u64)) as usize).collect();
        let nodes = rng.range(3, 5);
        let mut world = Self {
            now: 0,
            events: BinaryHeap::new(),
            defect,
            is_plain,
            store: Store::new(count as usize, SHARDS, defect),
            is_up: true,
            stalled_until: 0,
            slow_until: 0,
            ends_idle: rng.percent(75),
            last_use: BTreeMap::new(),
            last_number: 0,
            group_of,
            nodes: Vec::new(),
            clients: (0..CLIENTS).map(|_| Client::default()).collect(),
            written: Vec::new(),
            acknowledged: Vec::new(),
            acknowledged_version: vec![0; SHARDS],
            fenced: vec![0; count as usize],
            faults_ended: false,
            crashed_at: None,
            summary: RunResult::default(),
            violation: None,
            trace: std::env::var_os("SETTEE_TRACE").is_some(),
            rng,
        };
        for index in 0..usize::try_from(nodes).expect("small") {
            let node = Node::new(index, 0, &mut world.rng, count as usize);
            world.nodes.push(node);
            world.start(index);
        }
        for client in 0..CLIENTS {
            world.new_document(client);
        }
        let first = world.rng.range(500, 3000);
        world.schedule(if is_plain { 3000 + first } else { first }, Event::Fault);
        let end = if is_plain { FAULTS_UNTIL / 2 } else { FAULTS_UNTIL };
        world.schedule(end, Event::EndFaults);
        world
    }

    fn schedule(&mut self, delay: u64, event: Event) {
        let tie = self.rng.next();
        self.events.push(Scheduled { at: self.now + delay, tie, event });
    }

    fn wake(&mut self, node: usize, delay: u64, wake: Wake) {
        let life = self.nodes[node].life;
        self.schedule(delay, Event::Wake(node, life, wake));
    }

    /// Returns true if the network loses no messages.
    fn is_network_reliable(&self) -> bool {
        self.faults_ended || self.is_plain
    }

    /// Delay of a message.
    fn latency(&mut self) -> u64 {
        if !self.is_plain && self.rng.percent(3) { self.rng.below(200) } else { self.rng.below(4) }
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Fault => self.fault(),
            Event::EndFaults => self.end_faults(),
            Event::CheckElected => self.check_elected(),
            Event::End => {}
            Event::Resume(node, life) => self.resume(node, life),
            Event::Restart(node) => self.restart(node),
            Event::Reconnect(node) => self.nodes[node].is_cut_off = false,
            Event::StoreUp => self.is_up = true,
            Event::Wake(node, life, wake) => {
                let target = &mut self.nodes[node];
                if target.life != life || !target.is_alive {
                    return;
                }
                if target.is_suspended {
                    target.deferred.push(wake);
                } else {
                    self.on_wake(node, wake);
                }
            }
            Event::Arrive { node, life, id, call, connection, request } => {
                self.arrive(node, life, id, call, connection, request);
            }
            Event::Transaction { number, node, life, call } => self.end_transaction(number, node, life, call),
            Event::Idle { id, connection, since } => {
                if self.ends_idle && self.last_use.get(&(id, connection)) == Some(&since) {
                    self.disconnect(id, connection);
                }
            }
            Event::Disconnect { id, connection } => self.disconnect(id, connection),
            Event::Client(client, attempt) => self.on_client(client, attempt),
            Event::Answer { client, document, is_written } => self.on_answer(client, document, is_written),
        }
    }

    /// Processes a request at the store.
    fn arrive(&mut self, node: usize, life: u64, id: NodeId, call: u64, connection: Option<u64>, request: Request) {
        let is_lost = self.nodes[node].life == life && self.nodes[node].is_cut_off;
        if !self.is_up || is_lost {
            return;
        }
        if self.now < self.stalled_until {
            let delay = self.stalled_until - self.now + self.rng.below(20);
            self.schedule(delay, Event::Arrive { node, life, id, call, connection, request });
            return;
        }
        if let Some(connection) = connection {
            if !self.store.connect(id, connection) {
                let delay = self.latency();
                self.schedule(delay, Event::Wake(node, life, Wake::Ended(connection)));
                return;
            }
            self.last_use.insert((id, connection), self.now);
            self.schedule(1400, Event::Idle { id, connection, since: self.now });
        }
        if let Some(response) = self.store.answer(self.now, id, &request) {
            self.respond(node, life, call, response);
        } else if let Request::Commit(commit) = request {
            let number = self.number();
            self.store.begin(self.now, number, id, commit);
            let is_slow = self.now < self.slow_until || (!self.is_plain && self.rng.percent(2));
            let delay = if is_slow { self.rng.below(3000) } else { self.rng.range(1, 15) };
            self.schedule(delay, Event::Transaction { number, node, life, call });
        }
    }

    fn respond(&mut self, node: usize, life: u64, call: u64, response: store::Response) {
        let is_lost = self.nodes[node].is_cut_off || (!self.is_network_reliable() && self.rng.percent(1));
        if !is_lost {
            let delay = self.latency();
            self.schedule(delay, Event::Wake(node, life, Wake::Response(call, response)));
        }
    }

    fn end_transaction(&mut self, number: u64, node: usize, life: u64, call: u64) {
        let Some(transaction) = self.store.transactions.remove(&number) else { return };
        let response =
            if self.apply(transaction.commit) { store::Response::Committed } else { store::Response::Conflict };
        self.respond(node, life, call, response);
    }

    /// Applies a commit and checks that no later writer relies on its absence, and that its document is new.
    fn apply(&mut self, commit: store::Commit) -> bool {
        if !self.store.apply(self.now, commit) {
            return false;
        }
        let fenced = self.fenced[commit.group];
        if commit.epoch < fenced {
            self.report_violation(format!(
                "a commit under epoch {} is applied after the fence of {fenced}",
                commit.epoch
            ));
        }
        self.fenced[commit.group] = fenced.max(commit.epoch);
        let version = self.store.shards[commit.shard].len();
        let document = self.store.shards[commit.shard][version - 1].document;
        if self.written[document].replace(version).is_some() {
            self.report_violation(format!("document {document} is written twice"));
        }
        true
    }

    fn disconnect(&mut self, id: NodeId, connection: u64) {
        if !self.store.disconnect(id, connection) {
            return;
        }
        let Some(node) = self.nodes.iter().position(|node| node.id == id) else { return };
        if self.nodes[node].is_cut_off {
            return;
        }
        let delay = match self.rng.below(100) {
            0..60 => self.latency(),
            60..85 => self.rng.range(100, 3000),
            // The node does not observe that.
            _ => return,
        };
        self.wake(node, delay, Wake::Ended(connection));
    }

    fn report_violation(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }

    /// Checks the invariants of the current state. Further ones are checked where events cause them: a commit is
    /// applied at most once and not after a later fence ([`Self::apply`]), an acknowledged write exists
    /// ([`Self::acknowledge`]), and every group has a writer again after the faults ([`Self::check_elected`]).
    fn check(&mut self) {
        for group in 0..self.fenced.len() {
            let mut exclusive = None;
            for index in 0..self.nodes.len() {
                let node = &self.nodes[index];
                if !node.is_alive || node.is_suspended || !matches!(node.leases[group].state(), State::Writer { .. }) {
                    continue;
                }
                let clock = node.clock(self.now);
                let age = node.oracle_heartbeat.map_or(u64::MAX, |sent| clock - sent);
                let may_commit = self.writer_epoch(index, group).is_some();
                let may_read = self.is_exclusive(index, group);
                if (may_commit && age >= millis(CLAIM_TIMEOUT))
                    || (may_read && age >= millis(DISCONNECTED_CLAIM_TIMEOUT) && self.defect.is_none())
                {
                    self.report_violation(format!("node {index} uses an expired lease of group {group}, {age} ms old"));
                }
                if !may_read {
                    continue;
                }
                if let Some(other) = exclusive.replace(index) {
                    self.report_violation(format!("nodes {other} and {index} are both the writer of group {group}"));
                }
                let shards = (0..SHARDS).filter(|shard| self.group_of[*shard] == group);
                let stale = shards
                    .into_iter()
                    .find(|shard| self.nodes[index].cache[*shard] < self.acknowledged_version[*shard]);
                if let Some(shard) = stale {
                    self.report_violation(format!("node {index} reads shard {shard} without an acknowledged write"));
                }
            }
        }
    }

    fn check_elected(&mut self) {
        for group in 0..self.fenced.len() {
            let mut nodes = 0..self.nodes.len();
            if !nodes.any(|node| self.nodes[node].is_alive && self.writer_epoch(node, group).is_some()) {
                self.report_violation(format!("group {group} has no writer after the faults"));
            }
        }
        self.clients.iter_mut().for_each(|client| client.finished = 0);
        self.schedule(5000, Event::End);
    }

    /// Bound of an election after the faults.
    fn election_bound() -> u64 {
        ELECTION_BOUND_MS + millis(HEARTBEAT_EXPIRY) + 2 * SERVER_SKEW_MAX_MS
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).expect("small")
}
