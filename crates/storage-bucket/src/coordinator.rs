//! [`Coordinator`]: the processes of a store and their claims, in the memory of the process that holds the lease. It has
//! no clock and no I/O: the caller passes the time since an arbitrary start.
//!
//! The claims are not stored. A process repeats its claims with its first heartbeat to a coordinator. A new coordinator
//! starts with the claims that the last answer of the earlier one contained ([`Handover`]). It grants a claim that is
//! not among them only after every process of that answer has sent a heartbeat, or could not have kept a claim.
//!
//! A process considers its claims lost [`CLAIM_TIMEOUT`] after it has sent the last answered heartbeat; the coordinator
//! grants them to others [`EXPIRY`] after it received that heartbeat, or at once if the process has certainly ended.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::time::Duration;

use settee_storage::members::{Claim, Node, NodeId, WRITER_PREFIX};

use crate::protocol::{Beat, BeatAnswer};

/// Time since the last answered heartbeat after which a process considers its claims lost.
pub(crate) const CLAIM_TIMEOUT: Duration = Duration::from_secs(3);

/// Age of a heartbeat after which the coordinator considers the process failed. The difference to [`CLAIM_TIMEOUT`]
/// covers clocks with different rates.
pub(crate) const EXPIRY: Duration = Duration::from_secs(4);

/// Age of a heartbeat after which a process is not listed as live. A successor of the coordinator waits for all
/// processes that may rely on a claim, so it must know them.
const LIVE_AGE_MAX: Duration = CLAIM_TIMEOUT;

/// Time for which an announcement of a waiting process is valid.
const WAIT_AGE_MAX: Duration = Duration::from_secs(1);

/// Time after a grant within which its process has received it or never will. Later heartbeats without the claim show
/// that the process does not have it.
const GRANT_TIME: Duration = Duration::from_secs(2);

/// State of an earlier coordinator, as its last answer has shown it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Handover {
    pub(crate) live: Vec<NodeId>,
    pub(crate) writers: Vec<(Claim, NodeId)>,
    /// Claims that no process can have any more.
    pub(crate) freed: HashSet<String>,
    /// True if there may be processes that are not in [`Self::live`].
    pub(crate) is_incomplete: bool,
}

#[derive(Debug)]
pub(crate) struct Coordinator {
    /// Epochs that may be granted. Those before were granted, or were reserved by an earlier coordinator.
    epochs: Range<u64>,
    nodes: HashMap<NodeId, Heard>,
    claims: BTreeMap<String, Granted>,
    waits: HashMap<String, Duration>,
    /// Processes of the handover that have not sent a heartbeat yet.
    missing: HashSet<NodeId>,
    freed: HashSet<String>,
    /// Time before which no claim is granted to which an unknown process may have a right.
    grants_from: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Granted {
    node: NodeId,
    epoch: u64,
    at: Duration,
}

#[derive(Debug)]
struct Heard {
    announced: Option<(String, String)>,
    started_ms: u64,
    at: Duration,
}

impl Coordinator {
    /// `epochs` must be reserved by this process.
    pub(crate) fn new(now: Duration, epochs: Range<u64>, handover: Handover) -> Self {
        let Handover { live, writers, freed, is_incomplete } = handover;
        let held = writers.into_iter().filter(|(claim, _)| !freed.contains(&claim.key));
        let claims: BTreeMap<String, Granted> =
            held.map(|(claim, node)| (claim.key, Granted { node, epoch: claim.epoch, at: now })).collect();
        let missing: HashSet<NodeId> = live.into_iter().chain(claims.values().map(|granted| granted.node)).collect();
        let heard = |_: &NodeId| Heard { announced: None, started_ms: 0, at: now };
        Self {
            epochs,
            nodes: missing.iter().map(|node| (*node, heard(node))).collect(),
            claims,
            waits: HashMap::new(),
            missing,
            freed,
            grants_from: if is_incomplete { now + EXPIRY } else { now },
        }
    }

    /// Records a heartbeat. A process that this coordinator does not know, or considers failed, keeps those of its
    /// claims that no other one has, or can have if it does not rely on them any more.
    pub(crate) fn heartbeat(&mut self, now: Duration, node: NodeId, beat: &Beat) -> BeatAnswer {
        let is_known = self.nodes.contains_key(&node) && !self.missing.remove(&node);
        let heard = Heard { announced: beat.announced.clone(), started_ms: beat.started_ms, at: now };
        self.nodes.insert(node, heard);
        if !is_known {
            let kept = |claim: &&Claim| beat.is_fresh || self.is_free(now, &claim.key);
            for claim in beat.claims.iter().filter(kept).collect::<Vec<_>>() {
                let granted = Granted { node, epoch: claim.epoch, at: now };
                self.claims.entry(claim.key.clone()).or_insert(granted);
            }
        }
        // A release, or the answer to a claim, was lost.
        let has = |key: &String, epoch| beat.claims.iter().any(|claim| claim.key == *key && claim.epoch == epoch);
        self.claims.retain(|key, granted| {
            granted.node != node || now.saturating_sub(granted.at) < GRANT_TIME || has(key, granted.epoch)
        });
        self.expire(now);
        let of = |(key, granted): (&String, &Granted)| Claim { key: key.clone(), epoch: granted.epoch };
        let is_awaited = |key: &&String| self.waits.get(*key).is_some_and(|at| now.saturating_sub(*at) < WAIT_AGE_MAX);
        let own = || self.claims.iter().filter(|(_, granted)| granted.node == node);
        let writers =
            self.claims.range(WRITER_PREFIX.to_owned()..).take_while(|(key, _)| key.starts_with(WRITER_PREFIX));
        BeatAnswer {
            live: self.live(now, node),
            writers: writers.map(|(key, granted)| (of((key, granted)), granted.node)).collect(),
            held: own().map(of).collect(),
            awaited: own().map(|(key, _)| key).filter(is_awaited).cloned().collect(),
            ..BeatAnswer::default()
        }
    }

    fn live(&self, now: Duration, asking: NodeId) -> Vec<Node> {
        let is_live = |(id, heard): &(&NodeId, &Heard)| **id == asking || now.saturating_sub(heard.at) < LIVE_AGE_MAX;
        let node = |(id, heard): (&NodeId, &Heard)| {
            let (name, address) = heard.announced.clone()?;
            Some(Node { id: *id, name, address, started_ms: heard.started_ms })
        };
        let mut live: Vec<Node> = self.nodes.iter().filter(is_live).filter_map(node).collect();
        live.sort_by(|one, other| one.name.cmp(&other.name));
        live
    }

    /// Forgets processes whose heartbeats have expired.
    fn expire(&mut self, now: Duration) {
        let failed: Vec<NodeId> = self
            .nodes
            .iter()
            .filter(|(_, heard)| now.saturating_sub(heard.at) >= EXPIRY)
            .map(|(node, _)| *node)
            .collect();
        failed.into_iter().for_each(|node| self.end(node));
    }

    /// Forgets a process that has left or ended.
    pub(crate) fn end(&mut self, node: NodeId) {
        self.nodes.remove(&node);
        self.missing.remove(&node);
        self.claims.retain(|_, granted| granted.node != node);
    }

    /// Returns the processes that should be probed, because their heartbeats are late.
    pub(crate) fn late(&self, now: Duration, after: Duration) -> Vec<(NodeId, String)> {
        let is_late = |heard: &Heard| now.saturating_sub(heard.at) >= after;
        let late = self.nodes.iter().filter(|(_, heard)| is_late(heard));
        late.filter_map(|(node, heard)| Some((*node, heard.announced.as_ref()?.1.clone()))).collect()
    }

    /// Ends the processes that had the address of another one: one process listens at an address.
    pub(crate) fn end_earlier(&mut self, node: NodeId, address: &str) {
        let had_it = |heard: &Heard| heard.announced.as_ref().is_some_and(|(_, other)| other == address);
        let earlier = self.nodes.iter().filter(|(other, heard)| **other != node && had_it(heard));
        let earlier: Vec<NodeId> = earlier.map(|(other, _)| *other).collect();
        earlier.into_iter().filter(|_| !address.is_empty()).for_each(|other| self.end(other));
    }

    /// Returns true if another live process has this name.
    pub(crate) fn is_name_taken(&self, node: NodeId, name: &str) -> bool {
        let has_it = |heard: &Heard| heard.announced.as_ref().is_some_and(|(taken, _)| taken == name);
        self.nodes.iter().any(|(other, heard)| *other != node && has_it(heard))
    }

    /// Returns the epochs that may be granted.
    pub(crate) fn epochs(&self) -> Range<u64> {
        self.epochs.clone()
    }

    /// Adds epochs up to `end`, which this process has reserved.
    pub(crate) fn extend(&mut self, end: u64) {
        self.epochs.end = self.epochs.end.max(end);
    }

    /// Returns the other processes with their addresses, and true if some may exist that have not sent a heartbeat yet.
    /// Processes without an address are not included.
    pub(crate) fn followers(&self, this: NodeId) -> (Vec<(NodeId, String)>, bool) {
        let others = self.nodes.iter().filter(|(node, _)| **node != this);
        let followers = others.filter_map(|(node, heard)| Some((*node, heard.announced.as_ref()?.1.clone()))).collect();
        (followers, !self.missing.is_empty())
    }

    /// Returns the number of other processes than `this`.
    pub(crate) fn others(&self, this: NodeId) -> usize {
        self.nodes.keys().filter(|node| **node != this).count()
    }

    /// Returns true if no unknown process can have this claim, which is not assigned.
    fn is_free(&self, now: Duration, key: &str) -> bool {
        self.freed.contains(key) || self.missing.is_empty() && self.grants_from <= now
    }

    /// Grants a claim with a new epoch, unless another process may hold it.
    pub(crate) fn claim(&mut self, now: Duration, node: NodeId, key: &str) -> Option<u64> {
        self.expire(now);
        let is_live = self.nodes.get(&node).is_some_and(|heard| now.saturating_sub(heard.at) < CLAIM_TIMEOUT);
        let is_available = match self.claims.get(key) {
            Some(granted) => granted.node == node,
            None => self.is_free(now, key),
        };
        if !is_live || !is_available {
            return None;
        }
        let epoch = self.epochs.next()?;
        self.claims.insert(key.to_owned(), Granted { node, epoch, at: now });
        self.waits.remove(key);
        Some(epoch)
    }

    pub(crate) fn release(&mut self, node: NodeId, claim: &Claim) {
        let is_held = |granted: &Granted| granted.node == node && granted.epoch == claim.epoch;
        if self.claims.get(&claim.key).is_some_and(is_held) {
            self.claims.remove(&claim.key);
            self.waits.remove(&claim.key);
        }
    }

    pub(crate) fn announce_wait(&mut self, now: Duration, node: NodeId, key: &str) {
        if self.claims.get(key).is_some_and(|granted| granted.node != node) {
            self.waits.insert(key.to_owned(), now);
        }
    }

    pub(crate) fn is_gone(&mut self, now: Duration, node: NodeId) -> bool {
        self.expire(now);
        !self.nodes.contains_key(&node)
    }
}

#[cfg(test)]
mod tests;
