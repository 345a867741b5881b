//! Membership of a memory engine: its users. The end of a user is visible at once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::MemoryEngine;
use crate::members::{Claim, Members, Node, NodeId, WRITER_PREFIX};
use crate::{Result, StorageError};

#[derive(Debug, Default)]
pub(super) struct Processes {
    announced: BTreeMap<u64, Node>,
    ended: BTreeSet<u64>,
    claims: BTreeMap<String, (Option<u64>, u64)>,
    /// Epochs of the claims for which other users have announced to wait.
    awaited: BTreeMap<String, u64>,
}

impl Processes {
    pub(super) fn end(&mut self, user: u64) {
        self.announced.remove(&user);
        self.ended.insert(user);
        for (holder, _) in self.claims.values_mut().filter(|(holder, _)| *holder == Some(user)) {
            *holder = None;
        }
    }
}

impl Members for MemoryEngine {
    fn this(&self) -> NodeId {
        NodeId(self.user.into())
    }

    /// True while the store has no other user: tests that need several must create them first.
    fn is_sole(&self) -> bool {
        self.store.users.load(Ordering::Relaxed) == 0
    }

    fn announce(&self, name: &str, address: &str) -> Result<()> {
        let mut processes = self.store.processes.lock();
        if processes.announced.iter().any(|(user, node)| *user != self.user && node.name == name) {
            return Err(StorageError::Io(format!("another node is called {name}")));
        }
        let node = Node { id: self.this(), name: name.to_owned(), address: address.to_owned(), started_ms: 0 };
        processes.ended.remove(&self.user);
        processes.announced.insert(self.user, node);
        Ok(())
    }

    fn leave(&self) -> Result<()> {
        self.store.processes.lock().end(self.user);
        Ok(())
    }

    fn live(&self) -> Arc<[Node]> {
        let mut live: Vec<Node> = self.store.processes.lock().announced.values().cloned().collect();
        live.sort_by(|one, other| one.name.cmp(&other.name));
        live.into()
    }

    fn is_gone(&self, node: NodeId) -> Result<bool> {
        let users = self.store.users.load(Ordering::Relaxed);
        let is_there = |user: u64| user <= users && !self.store.processes.lock().ended.contains(&user);
        Ok(!u64::try_from(node.0).is_ok_and(is_there))
    }

    fn claim(&self, key: &str) -> Result<Option<Claim>> {
        let mut processes = self.store.processes.lock();
        let (holder, epoch) = processes.claims.entry(key.to_owned()).or_default();
        if holder.is_some_and(|holder| holder != self.user) {
            return Ok(None);
        }
        *holder = Some(self.user);
        *epoch += 1;
        Ok(Some(Claim { key: key.to_owned(), epoch: *epoch }))
    }

    fn holds(&self, claim: &Claim) -> bool {
        self.store.processes.lock().claims.get(&claim.key) == Some(&(Some(self.user), claim.epoch))
    }

    fn writers(&self) -> Arc<[(Claim, NodeId)]> {
        let processes = self.store.processes.lock();
        let of_writer = processes.claims.iter().filter(|(key, _)| key.starts_with(WRITER_PREFIX));
        let held = of_writer.filter_map(|(key, (holder, epoch))| {
            Some((Claim { key: key.clone(), epoch: *epoch }, NodeId((*holder)?.into())))
        });
        held.collect()
    }

    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    /// Commits are serialized and check their claim, so none is in progress.
    fn fence(&self, _claim: &Claim) -> Result<()> {
        Ok(())
    }

    fn release(&self, claim: &Claim) -> Result<()> {
        let mut processes = self.store.processes.lock();
        if let Some(held) = processes.claims.get_mut(&claim.key)
            && *held == (Some(self.user), claim.epoch)
        {
            held.0 = None;
        }
        Ok(())
    }

    fn announce_wait(&self, key: &str) -> Result<()> {
        let mut processes = self.store.processes.lock();
        if let Some((Some(holder), epoch)) = processes.claims.get(key).copied()
            && holder != self.user
        {
            processes.awaited.insert(key.to_owned(), epoch);
        }
        Ok(())
    }

    fn is_awaited(&self, claim: &Claim) -> bool {
        let is_said = self.store.processes.lock().awaited.get(&claim.key) == Some(&claim.epoch);
        is_said && self.holds(claim)
    }
}
