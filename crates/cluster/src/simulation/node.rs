//! A node: heartbeats, the driver of the leases, and calls of the store.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use settee_storage::members::{NodeId, WRITER_PREFIX, preferred};

use super::rng::Rng;
use super::store::{Commit, Request, Response};
use super::{Bug, Event, World};
use crate::lease::{Action, Holder, Input, Lease, State};
use crate::membership::{Attempt, Membership};

const POLL_MS: u64 = 100;
const HEARTBEAT_MS: u64 = 500;
const HEARTBEAT_DELAY_MAX_MS: u64 = 400;
const FENCE_TIMEOUT_MS: u64 = 5000;

/// An event of a node, which is deferred while the node is frozen.
#[derive(Debug)]
pub(super) enum Wake {
    Poll,
    Heartbeat,
    /// The response to a heartbeat is late.
    Slow(u64),
    /// The search for the server has ended.
    Searched(u64),
    /// The connection with this number has ended.
    Ended(u64),
    Response(u64, Response),
    Timeout(u64),
    Fence {
        epoch: u64,
        since: u64,
        begun: u64,
    },
    /// A write, from a client or forwarded.
    Put {
        client: usize,
        document: usize,
        shard: usize,
        forwarded_by: Option<usize>,
    },
    /// The holder of a lease is unreachable or denied that it is the writer.
    Suspect,
    /// The node stops when its commits have finished.
    Stop,
    Leave,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Call {
    Heartbeat {
        sent: u64,
        connection: u64,
    },
    Rejoin {
        sent: u64,
        connection: u64,
    },
    /// The current action of the driver.
    Driver {
        begun: u64,
    },
    Commit(Commit),
    Token(Commit),
    Reload {
        shard: usize,
    },
    Leave,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Busy {
    Idle,
    Refresh,
    Action(usize, Action),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refresh {
    None,
    Waiting,
    Running,
}

#[derive(Debug)]
pub(super) struct Node {
    pub(super) id: NodeId,
    index: usize,
    /// Incremented by a restart.
    pub(super) life: u64,
    pub(super) is_alive: bool,
    pub(super) is_frozen: bool,
    pub(super) is_stopping: bool,
    /// True while messages between the node and the store are lost.
    pub(super) is_cut_off: bool,
    /// Nodes that this one cannot reach.
    pub(super) unreachable: Vec<usize>,
    pub(super) deferred: Vec<Wake>,
    base: u64,
    /// Rate of the clock per thousand.
    rate: u64,
    pub(super) jumps: u64,
    membership: Membership,
    connection: u64,
    is_connected: bool,
    is_searching: bool,
    heartbeat: Option<u64>,
    refresh: Refresh,
    /// Time of this node's clock at which it sent the last heartbeat that was answered, for the invariants.
    pub(super) oracle_heartbeat: Option<u64>,
    pub(super) leases: Vec<Lease>,
    live: Vec<settee_storage::members::Node>,
    pub(super) writers: Vec<Option<(NodeId, u64)>>,
    actions: VecDeque<(usize, Action)>,
    unobserved: VecDeque<usize>,
    must_refresh: bool,
    busy: Busy,
    pub(super) calls: BTreeMap<u64, Call>,
    /// Version of each shard that this node has observed.
    pub(super) cache: Vec<usize>,
    /// Documents to write to each shard, the first of which is being written, and their clients.
    pub(super) queues: Vec<VecDeque<(usize, usize)>>,
    pub(super) is_writing: Vec<bool>,
}

impl Node {
    pub(super) fn new(index: usize, life: u64, rng: &mut Rng, groups: usize) -> Self {
        Self {
            id: NodeId(u128::try_from(index).expect("small") * 1000 + u128::from(life) + 1),
            index,
            life,
            is_alive: true,
            is_frozen: false,
            is_stopping: false,
            is_cut_off: false,
            unreachable: Vec::new(),
            deferred: Vec::new(),
            base: rng.below(1_000_000),
            rate: rng.range(930, 1070),
            jumps: 0,
            membership: Membership::default(),
            connection: 0,
            is_connected: false,
            is_searching: false,
            heartbeat: None,
            refresh: Refresh::None,
            oracle_heartbeat: None,
            leases: vec![Lease::default(); groups],
            live: Vec::new(),
            writers: vec![None; groups],
            actions: VecDeque::new(),
            unobserved: VecDeque::new(),
            must_refresh: false,
            busy: Busy::Idle,
            calls: BTreeMap::new(),
            cache: vec![0; super::SHARDS],
            queues: vec![VecDeque::new(); super::SHARDS],
            is_writing: vec![false; super::SHARDS],
        }
    }

    /// Returns the time of the monotonic clock of the node.
    pub(super) fn clock(&self, now: u64) -> u64 {
        self.base + now * self.rate / 1000 + self.jumps
    }

    fn time(&self, now: u64) -> Duration {
        Duration::from_millis(self.clock(now))
    }

    fn believes_connected(&self) -> bool {
        self.is_connected && !self.is_searching
    }

    fn holds(&self, now: u64, group: usize, epoch: u64) -> bool {
        self.membership.holds(self.time(now), self.believes_connected(), &claim(group, epoch))
    }
}

fn claim(group: usize, epoch: u64) -> settee_storage::members::Claim {
    settee_storage::members::Claim { key: key(group), epoch }
}

fn key(group: usize) -> String {
    format!("{WRITER_PREFIX}{group}")
}

impl World {
    /// Returns the epoch under which the node may commit: [`Writers::claim`](crate::Writers::claim).
    pub(super) fn writer_epoch(&self, node: usize, group: usize) -> Option<u64> {
        let State::Writer { epoch } = self.nodes[node].leases[group].state() else { return None };
        let holds = self.nodes[node].holds(self.now, group, epoch) || self.bug == Some(Bug::LeaseKept);
        holds.then_some(epoch)
    }

    /// Returns true if the node reads without a catch-up: [`Writers::holds_all`](crate::Writers::holds_all).
    pub(super) fn is_exclusive(&self, node: usize, group: usize) -> bool {
        let Some(epoch) = self.writer_epoch(node, group) else { return false };
        let node = &self.nodes[node];
        match self.bug {
            Some(Bug::LeaseKept | Bug::ConnectionTrusted) => true,
            _ => node.membership.is_exclusive(node.time(self.now), &claim(group, epoch)),
        }
    }

    pub(super) fn start(&mut self, node: usize) {
        self.wake(node, 0, Wake::Heartbeat);
        let delay = self.rng.range(1, POLL_MS);
        self.wake(node, delay, Wake::Poll);
    }

    pub(super) fn on_wake(&mut self, node: usize, wake: Wake) {
        match wake {
            Wake::Poll => {
                self.wake(node, POLL_MS, Wake::Poll);
                let target = &mut self.nodes[node];
                if target.busy == Busy::Idle && target.unobserved.is_empty() {
                    target.unobserved = (0..target.leases.len()).collect();
                }
                self.drive(node);
            }
            Wake::Heartbeat => {
                self.wake(node, HEARTBEAT_MS, Wake::Heartbeat);
                self.send_heartbeat(node);
            }
            Wake::Slow(call) => self.search(node, call),
            Wake::Searched(call) => self.on_searched(node, call),
            Wake::Ended(connection) => {
                let target = &mut self.nodes[node];
                if target.connection == connection && target.is_connected {
                    target.is_connected = false;
                    if let Some(call) = target.heartbeat {
                        self.on_timeout(node, call);
                    }
                }
            }
            Wake::Response(call, response) => {
                if let Some(made) = self.nodes[node].calls.remove(&call) {
                    self.on_response(node, made, response);
                }
            }
            Wake::Timeout(call) => self.on_timeout(node, call),
            Wake::Fence { epoch, since, begun } => {
                let is_current =
                    matches!(self.nodes[node].busy, Busy::Action(_, Action::Fence { epoch: of }) if of == epoch);
                if is_current {
                    self.call(node, Call::Driver { begun }, Request::Fence { since: Some(since) });
                }
            }
            Wake::Put { client, document, shard, forwarded_by } => {
                self.on_put(node, client, document, shard, forwarded_by);
            }
            Wake::Suspect => {
                let target = &mut self.nodes[node];
                let clock = target.clock(self.now);
                for lease in &mut target.leases {
                    let _: Option<Action> = lease.step(clock, Input::Suspected);
                }
                target.must_refresh = true;
                self.drive(node);
            }
            Wake::Stop => self.stop(node),
            Wake::Leave => {
                self.nodes[node].membership.lose_claims();
                self.call(node, Call::Leave, Request::Leave);
            }
        }
    }

    /// Sends a request to the store.
    pub(super) fn call(&mut self, node: usize, call: Call, request: Request) {
        let number = self.number();
        let connection = match call {
            Call::Heartbeat { connection, .. } | Call::Rejoin { connection, .. } => Some(connection),
            _ => None,
        };
        let timeout = match call {
            Call::Heartbeat { .. } | Call::Rejoin { .. } => 3000,
            _ => self.rng.range(200, 3000),
        };
        let target = &mut self.nodes[node];
        let (life, id) = (target.life, target.id);
        target.calls.insert(number, call);
        if matches!(call, Call::Heartbeat { .. } | Call::Rejoin { .. }) {
            target.heartbeat = Some(number);
            // A process that gets little processor time is late.
            let late = if self.rng.percent(10) { self.rng.below(3000) } else { 0 };
            self.wake(node, HEARTBEAT_DELAY_MAX_MS + late, Wake::Slow(number));
        }
        self.wake(node, timeout, Wake::Timeout(number));
        let may_repeat = !matches!(request, Request::Commit(_) | Request::Heartbeat | Request::Rejoin);
        if may_repeat && !self.is_calm() && self.rng.percent(2) {
            let delay = self.rng.below(2000);
            let request = request.clone();
            self.schedule(delay, Event::Arrive { node, life, id, call: number, connection, request });
        }
        if self.nodes[node].is_cut_off || (!self.is_calm() && self.rng.percent(1)) {
            return;
        }
        let delay = self.latency();
        self.schedule(delay, Event::Arrive { node, life, id, call: number, connection, request });
    }

    fn send_heartbeat(&mut self, node: usize) {
        let number = self.number();
        let target = &mut self.nodes[node];
        if target.heartbeat.is_some() {
            return;
        }
        if !target.is_connected {
            (target.connection, target.is_connected) = (number, true);
        }
        let call = Call::Heartbeat { sent: target.clock(self.now), connection: target.connection };
        self.call(node, call, Request::Heartbeat);
    }

    /// The server is searched for because a response is late.
    fn search(&mut self, node: usize, call: u64) {
        if self.nodes[node].heartbeat == Some(call) {
            self.nodes[node].is_searching = true;
            let delay = self.rng.range(5, 700);
            self.wake(node, delay, Wake::Searched(call));
        }
    }

    fn on_searched(&mut self, node: usize, call: u64) {
        let target = &mut self.nodes[node];
        target.is_searching = false;
        if target.heartbeat != Some(call) {
            return;
        }
        let is_intact = self.store.connections(target.id).contains(&target.connection);
        if target.is_cut_off || !self.is_up || !is_intact {
            target.is_connected = false;
            self.on_timeout(node, call);
        }
    }

    fn end_heartbeat(&mut self, node: usize, is_sent: bool) {
        let target = &mut self.nodes[node];
        (target.heartbeat, target.is_searching) = (None, false);
        match target.refresh {
            Refresh::None => {}
            Refresh::Waiting => {
                target.refresh = Refresh::Running;
                self.send_heartbeat(node);
            }
            Refresh::Running => {
                target.refresh = Refresh::None;
                self.on_refreshed(node, is_sent);
            }
        }
    }

    fn refresh(&mut self, node: usize) {
        let is_waiting = self.nodes[node].heartbeat.is_some();
        self.nodes[node].refresh = if is_waiting { Refresh::Waiting } else { Refresh::Running };
        if !is_waiting {
            self.send_heartbeat(node);
        }
    }

    fn on_refreshed(&mut self, node: usize, is_sent: bool) {
        match self.nodes[node].busy {
            Busy::Action(group, Action::Fence { epoch }) if !is_sent => {
                self.finish(node, group, Input::Fenced { epoch, is_done: false });
            }
            Busy::Action(_, Action::Fence { .. }) => {
                let begun = self.now;
                self.call(node, Call::Driver { begun }, Request::Fence { since: None });
            }
            _ => {
                self.nodes[node].busy = Busy::Idle;
                self.drive(node);
            }
        }
    }

    /// Continues the work of the driver, as [`Writers`](crate::Writers) does on its thread.
    pub(super) fn drive(&mut self, node: usize) {
        while self.nodes[node].busy == Busy::Idle {
            let now = self.now;
            let target = &mut self.nodes[node];
            if let Some((group, action)) = target.actions.pop_front() {
                self.perform(node, group, action);
            } else if std::mem::take(&mut target.must_refresh) {
                target.busy = Busy::Refresh;
                self.refresh(node);
            } else if let Some(group) = target.unobserved.pop_front() {
                let holder = self.holder(node, group);
                let target = &mut self.nodes[node];
                let clock = target.clock(now);
                let action = target.leases[group].step(clock, Input::Observed(holder));
                target.actions.extend(action.map(|action| (group, action)));
            } else {
                return;
            }
        }
    }

    fn holder(&self, node: usize, group: usize) -> Holder {
        let target = &self.nodes[node];
        let Some((holder, epoch)) = target.writers[group] else {
            let preferred = preferred(&target.live, &key(group)).is_none_or(|node| node.id == target.id);
            return Holder::Free { is_preferred: preferred || target.leases.len() == 1 };
        };
        if holder != target.id {
            let is_live = target.live.iter().any(|node| node.id == holder);
            return if is_live { Holder::Live } else { Holder::Expired };
        }
        match target.leases[group].epoch() {
            Some(held) if held != epoch => Holder::Live,
            _ => Holder::This { is_valid: self.bug == Some(Bug::LeaseKept) || target.holds(self.now, group, epoch) },
        }
    }

    fn perform(&mut self, node: usize, group: usize, action: Action) {
        let now = self.now;
        let target = &mut self.nodes[node];
        target.busy = Busy::Action(group, action);
        let call = Call::Driver { begun: now };
        match action {
            Action::Claim => {
                let (time, is_connected) = (target.time(now), target.believes_connected());
                let Some(Attempt { take_over_on, generation }) = target.membership.claim(time, is_connected) else {
                    return self.finish(node, group, Input::Claimed(None));
                };
                let take_over_on = take_over_on.map(|server| server.parse().expect("a number"));
                // The generation is passed as the time, because the driver makes one call.
                self.call(node, Call::Driver { begun: generation }, Request::Claim { group, take_over_on });
            }
            Action::Fence { .. } => self.refresh(node),
            Action::CatchUp { .. } => self.call(node, call, Request::Versions),
            Action::Release { epoch } => {
                if target.membership.release(&claim(group, epoch)) {
                    self.call(node, call, Request::Release { group, epoch });
                } else {
                    target.busy = Busy::Idle;
                }
            }
        }
    }

    /// Passes the result of the current action to the lease.
    fn finish(&mut self, node: usize, group: usize, input: Input) {
        let target = &mut self.nodes[node];
        target.busy = Busy::Idle;
        let clock = target.clock(self.now);
        let action = target.leases[group].step(clock, input);
        if let Some(action) = action {
            target.actions.push_front((group, action));
        }
        let state = target.leases[group].state();
        if let (Input::CaughtUp { .. }, State::Writer { .. }) = (input, state) {
            self.summary.elections += 1;
            if let Some(crashed) = self.crashed_at.take() {
                self.summary.outage = self.now - crashed;
            }
        }
        self.drive(node);
    }

    fn on_response(&mut self, node: usize, call: Call, response: Response) {
        match (call, response) {
            (Call::Heartbeat { sent, connection }, Response::Heartbeat { gap, server, live, writers }) => {
                let time = Duration::from_millis(sent);
                if self.nodes[node].membership.is_late(time, connection, gap) {
                    self.nodes[node].membership.lose_claims();
                    self.call(node, Call::Rejoin { sent, connection }, Request::Rejoin);
                } else {
                    self.record_heartbeat(node, sent, connection, server, &live, writers);
                }
            }
            (Call::Rejoin { sent, connection }, Response::Heartbeat { server, live, writers, .. }) => {
                self.record_heartbeat(node, sent, connection, server, &live, writers);
            }
            (Call::Driver { begun }, response) => self.on_driver_response(node, begun, response),
            (Call::Leave, _) => self.crash(node),
            (call, response) => self.on_write_response(node, call, response),
        }
    }

    fn record_heartbeat(
        &mut self,
        node: usize,
        sent: u64,
        connection: u64,
        server: u64,
        live: &[NodeId],
        writers: Vec<Option<(NodeId, u64)>>,
    ) {
        let target = &mut self.nodes[node];
        target.membership.record_heartbeat(Duration::from_millis(sent), connection, server.to_string());
        target.oracle_heartbeat = Some(target.oracle_heartbeat.map_or(sent, |last| last.max(sent)));
        let described = |id: &NodeId| settee_storage::members::Node {
            id: *id,
            name: String::new(),
            address: String::new(),
            started_ms: 0,
        };
        target.live = live.iter().map(described).collect();
        target.writers = writers;
        self.end_heartbeat(node, true);
    }

    fn on_driver_response(&mut self, node: usize, begun: u64, response: Response) {
        let Busy::Action(group, action) = self.nodes[node].busy else { return };
        let now = self.now;
        match (action, response) {
            (Action::Claim, Response::Claimed(epoch)) => {
                let Some(epoch) = epoch else { return self.finish(node, group, Input::Claimed(None)) };
                let target = &mut self.nodes[node];
                let (time, is_connected) = (target.time(now), target.believes_connected());
                let is_held = target.membership.claimed(time, is_connected, &claim(group, epoch), begun);
                if !is_held {
                    // The result of the release is ignored.
                    self.call(node, Call::Reload { shard: 0 }, Request::Release { group, epoch });
                }
                self.finish(node, group, Input::Claimed(is_held.then_some(epoch)));
            }
            (Action::Fence { epoch }, Response::Fence { count: 0, .. }) => {
                self.fenced[group] = self.fenced[group].max(epoch);
                self.finish(node, group, Input::Fenced { epoch, is_done: true });
            }
            (Action::Fence { epoch }, Response::Fence { .. }) if now > begun + FENCE_TIMEOUT_MS => {
                self.finish(node, group, Input::Fenced { epoch, is_done: false });
            }
            (Action::Fence { epoch }, Response::Fence { since, .. }) => {
                self.wake(node, 5, Wake::Fence { epoch, since, begun });
            }
            (Action::CatchUp { epoch }, Response::Versions(versions)) => {
                self.observe_versions(node, &versions);
                self.finish(node, group, Input::CaughtUp { epoch, is_done: true });
            }
            _ => {
                self.nodes[node].busy = Busy::Idle;
                self.drive(node);
            }
        }
    }

    pub(super) fn on_timeout(&mut self, node: usize, call: u64) {
        let Some(made) = self.nodes[node].calls.remove(&call) else { return };
        match made {
            Call::Heartbeat { .. } | Call::Rejoin { .. } => {
                self.nodes[node].is_connected = false;
                self.end_heartbeat(node, false);
            }
            Call::Driver { .. } => {
                let Busy::Action(group, action) = self.nodes[node].busy else { return };
                match action {
                    Action::Claim => self.finish(node, group, Input::Claimed(None)),
                    Action::Fence { epoch } => self.finish(node, group, Input::Fenced { epoch, is_done: false }),
                    Action::CatchUp { epoch } => self.finish(node, group, Input::CaughtUp { epoch, is_done: false }),
                    Action::Release { .. } => {
                        self.nodes[node].busy = Busy::Idle;
                        self.drive(node);
                    }
                }
            }
            Call::Leave => self.crash(node),
            Call::Commit(_) | Call::Token(_) | Call::Reload { .. } => self.on_write_timeout(node, made),
        }
    }

    /// Reports that a commit was rejected.
    pub(super) fn depose(&mut self, node: usize, group: usize, epoch: u64) {
        let target = &mut self.nodes[node];
        let clock = target.clock(self.now);
        let action = target.leases[group].step(clock, Input::Rejected { epoch });
        if let Some(action) = action {
            target.actions.push_back((group, action));
            target.must_refresh = true;
        }
        self.drive(node);
    }

    /// Stops a node in an orderly manner: its commits finish, its leases are released, and it leaves.
    fn stop(&mut self, node: usize) {
        let target = &mut self.nodes[node];
        target.is_stopping = true;
        if target.is_writing.iter().any(|is_writing| *is_writing) {
            return self.wake(node, 10, Wake::Stop);
        }
        let clock = target.clock(self.now);
        for group in 0..target.leases.len() {
            let action = target.leases[group].step(clock, Input::Stop);
            target.actions.extend(action.map(|action| (group, action)));
        }
        debug_assert_eq!(target.index, node);
        self.drive(node);
        self.wake(node, 50, Wake::Leave);
    }
}
