//! The model of the store: the statements of membership, claims, and commits that take effect later.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use settee_storage::members::NodeId;

use super::InjectedDefect;
use super::rng::Rng;
use crate::membership::{CLAIM_TIMEOUT, DISCONNECTED_EXPIRY, HEARTBEAT_EXPIRY};

/// Age of a commit after which its token is deleted.
const TOKEN_AGE_MAX_MS: u64 = 3000;
const LIVE_AGE_MAX_MS: i64 = 2000;
/// Time of a fence after which earlier transactions are ended.
pub(super) const FENCE_DELAY_MAX_MS: u64 = 500;

#[derive(Clone, Debug)]
pub(super) enum Request {
    Heartbeat,
    /// Releases all claims of the node and enters it again.
    Rejoin,
    Leave,
    Claim {
        group: usize,
        take_over_on: Option<u64>,
    },
    Release {
        group: usize,
        epoch: u64,
    },
    /// Counts the transactions that started before `since`, or before now.
    Fence {
        since: Option<u64>,
    },
    /// Reads the versions of all shards.
    Versions,
    Commit(Commit),
    Token {
        shard: usize,
        version: usize,
    },
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Commit {
    pub(super) shard: usize,
    pub(super) group: usize,
    pub(super) epoch: u64,
    pub(super) expected: usize,
    pub(super) token: u64,
    pub(super) document: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Response {
    Heartbeat { gap: Option<Duration>, server: u64, live: Vec<NodeId>, writers: Vec<Option<(NodeId, u64)>> },
    Done,
    Claimed(Option<u64>),
    Fence { since: u64, count: usize },
    Versions(Vec<usize>),
    Committed,
    Conflict,
    Deposed,
    Token(Found),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Open,
    Is(u64),
    Forgotten,
}

#[derive(Debug)]
pub(super) struct Transaction {
    pub(super) node: NodeId,
    started: u64,
    pub(super) commit: Commit,
}

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) document: usize,
    token: u64,
    at: u64,
}

#[derive(Debug)]
pub(super) struct Store {
    /// Difference of its clock from the true time.
    pub(super) offset: i64,
    pub(super) server: u64,
    /// Time of the last heartbeat of each node, by the clock of the store.
    rows: BTreeMap<NodeId, i64>,
    /// Live connections for heartbeats. Numbers of connections increase.
    connections: BTreeSet<(NodeId, u64)>,
    last_connection: BTreeMap<NodeId, u64>,
    claims: Vec<(Option<NodeId>, u64)>,
    last_epoch: u64,
    pub(super) shards: Vec<Vec<Entry>>,
    pub(super) transactions: BTreeMap<u64, Transaction>,
    defect: Option<InjectedDefect>,
}

impl Store {
    pub(super) fn new(groups: usize, shards: usize, defect: Option<InjectedDefect>) -> Self {
        Self {
            offset: 0,
            server: 1,
            rows: BTreeMap::new(),
            connections: BTreeSet::new(),
            last_connection: BTreeMap::new(),
            claims: vec![(None, 0); groups],
            last_epoch: 0,
            shards: (0..shards).map(|_| Vec::new()).collect(),
            transactions: BTreeMap::new(),
            defect,
        }
    }

    fn clock(&self, now: u64) -> i64 {
        i64::try_from(now).expect("small") + self.offset
    }

    fn is_alive(&self, node: NodeId, now: u64) -> bool {
        let Some(row) = self.rows.get(&node) else { return false };
        let age = self.clock(now) - row;
        let is_connected = self.connections.range((node, 0)..=(node, u64::MAX)).next().is_some();
        age < millis(HEARTBEAT_EXPIRY) && (age < millis(DISCONNECTED_EXPIRY) || is_connected)
    }

    /// Registers the use of a connection for heartbeats. Returns false if the store has ended it.
    pub(super) fn connect(&mut self, node: NodeId, connection: u64) -> bool {
        let last = self.last_connection.entry(node).or_default();
        if connection > *last {
            *last = connection;
            self.connections.insert((node, connection));
        }
        self.connections.contains(&(node, connection))
    }

    pub(super) fn disconnect(&mut self, node: NodeId, connection: u64) -> bool {
        self.connections.remove(&(node, connection))
    }

    pub(super) fn connections(&self, node: NodeId) -> Vec<u64> {
        self.connections.range((node, 0)..=(node, u64::MAX)).map(|(_, connection)| *connection).collect()
    }

    /// Replaces the server. The recent heartbeats are lost, and transactions in progress are or are not.
    pub(super) fn fail_over(&mut self, now: u64, rng: &mut Rng) {
        let lost = i64::try_from(rng.range(0, 1500)).expect("small");
        let limit = self.clock(now) - lost;
        for row in self.rows.values_mut() {
            *row = (*row).min(limit - i64::try_from(rng.below(500)).expect("small"));
        }
        self.server += 1;
        self.offset += i64::try_from(rng.below(4000)).expect("small") - 2000;
        self.connections.clear();
    }

    /// Answers a request, except for commits that start a transaction.
    pub(super) fn answer(&mut self, now: u64, node: NodeId, request: &Request) -> Option<Response> {
        Some(match *request {
            Request::Heartbeat => {
                let clock = self.clock(now);
                let before = self.rows.get_mut(&node).map(|row| std::mem::replace(row, clock));
                let gap = before.map(|before| Duration::from_millis(u64::try_from(clock - before).unwrap_or(0)));
                self.heartbeat(now, node, gap)
            }
            Request::Rejoin => {
                self.release_all(node);
                self.rows.insert(node, self.clock(now));
                self.heartbeat(now, node, Some(Duration::ZERO))
            }
            Request::Leave => {
                self.release_all(node);
                self.rows.remove(&node);
                Response::Done
            }
            Request::Claim { group, take_over_on } => {
                let may_take_over = take_over_on == Some(self.server);
                Response::Claimed(self.claim(now, node, group, may_take_over))
            }
            Request::Release { group, epoch } => {
                if self.claims[group] == (Some(node), epoch) {
                    self.claims[group].0 = None;
                }
                Response::Done
            }
            Request::Fence { since } => {
                let begun = since.unwrap_or(now);
                let earlier = self.earlier(node, begun);
                if begun + FENCE_DELAY_MAX_MS < now {
                    self.transactions.retain(|number, _| !earlier.contains(number));
                }
                Response::Fence { since: begun, count: earlier.len() }
            }
            Request::Versions => Response::Versions(self.shards.iter().map(Vec::len).collect()),
            Request::Token { shard, version } => Response::Token(match self.shards[shard].get(version - 1) {
                None => Found::Open,
                Some(entry) if entry.at + TOKEN_AGE_MAX_MS < now && version < self.shards[shard].len() => {
                    Found::Forgotten
                }
                Some(entry) => Found::Is(entry.token),
            }),
            Request::Commit(commit) => {
                let is_current = self.claims[commit.group] == (Some(node), commit.epoch);
                if is_current || self.defect == Some(InjectedDefect::EpochUnchecked) {
                    return None;
                }
                Response::Deposed
            }
        })
    }

    fn heartbeat(&self, now: u64, node: NodeId, gap: Option<Duration>) -> Response {
        let is_live = |(id, row): &(&NodeId, &i64)| **id == node || self.clock(now) - **row < LIVE_AGE_MAX_MS;
        Response::Heartbeat {
            gap,
            server: self.server,
            live: self.rows.iter().filter(is_live).map(|(id, _)| *id).collect(),
            writers: self.claims.iter().map(|(node, epoch)| node.map(|node| (node, *epoch))).collect(),
        }
    }

    fn release_all(&mut self, node: NodeId) {
        self.claims.iter_mut().filter(|claim| claim.0 == Some(node)).for_each(|claim| claim.0 = None);
    }

    fn claim(&mut self, now: u64, node: NodeId, group: usize, may_take_over: bool) -> Option<u64> {
        let is_recent = self.rows.get(&node).is_some_and(|row| self.clock(now) - row < millis(CLAIM_TIMEOUT));
        let (holder, _) = self.claims[group];
        let is_available = match holder {
            None => true,
            Some(holder) => holder == node || (may_take_over && !self.is_alive(holder, now)),
        };
        if !is_recent || !is_available {
            return None;
        }
        self.last_epoch += 1;
        self.claims[group] = (Some(node), self.last_epoch);
        Some(self.last_epoch)
    }

    /// Returns the transactions for which a fence waits.
    fn earlier(&self, node: NodeId, begun: u64) -> Vec<u64> {
        let is_awaited = |transaction: &Transaction| match self.defect {
            // Transactions of nodes that have left, and of this node itself, are overlooked.
            Some(InjectedDefect::FenceOfMembers) => {
                transaction.node != node && self.rows.contains_key(&transaction.node)
            }
            _ => true,
        };
        let earlier = self.transactions.iter().filter(|(_, transaction)| transaction.started <= begun);
        earlier.filter(|(_, transaction)| is_awaited(transaction)).map(|(number, _)| *number).collect()
    }

    pub(super) fn begin(&mut self, now: u64, number: u64, node: NodeId, commit: Commit) {
        self.transactions.insert(number, Transaction { node, started: now, commit });
    }

    /// Applies a commit, unless the version of its shard has changed.
    pub(super) fn apply(&mut self, now: u64, commit: Commit) -> bool {
        let shard = &mut self.shards[commit.shard];
        let is_next = shard.len() == commit.expected;
        if is_next {
            shard.push(Entry { document: commit.document, token: commit.token, at: now });
        }
        is_next
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("small")
}
