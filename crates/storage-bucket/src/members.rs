//! Membership of an engine on a bucket. The claims of groups decide which process opens them.

use std::sync::Arc;

use settee_storage::Result;
use settee_storage::members::{Claim, Members, Node, NodeId};

use crate::BucketEngine;

impl Members for BucketEngine {
    fn this(&self) -> NodeId {
        self.inner.nodes.id
    }

    fn is_sole(&self) -> bool {
        self.inner.nodes.is_sole()
    }

    fn announce(&self, name: &str, address: &str) -> Result<()> {
        self.inner.block_on(self.inner.nodes.announce(name, address))
    }

    fn leave(&self) -> Result<()> {
        self.close();
        Ok(())
    }

    fn live(&self) -> Arc<[Node]> {
        self.inner.nodes.live()
    }

    fn is_gone(&self, node: NodeId) -> Result<bool> {
        self.inner.nodes.is_gone(node)
    }

    fn claim(&self, key: &str) -> Result<Option<Claim>> {
        self.inner.nodes.claim(key)
    }

    fn holds(&self, claim: &Claim) -> bool {
        self.inner.nodes.holds(claim)
    }

    fn writers(&self) -> Arc<[(Claim, NodeId)]> {
        self.inner.nodes.writers()
    }

    fn refresh(&self) -> Result<()> {
        self.inner.block_on(self.inner.nodes.beat())
    }

    /// The library fences the log of the earlier owner when this process opens the group.
    fn fence(&self, claim: &Claim) -> Result<()> {
        match self.inner.nodes.groups.of_key(&claim.key) {
            Some(group) => self.inner.prepare_group(group),
            None => Ok(()),
        }
    }

    /// The only process keeps its groups until it leaves, because no other one could serve the last requests.
    fn release(&self, claim: &Claim) -> Result<()> {
        let nodes = &self.inner.nodes;
        let Some(group) = nodes.groups.of_key(&claim.key) else { return nodes.release(claim) };
        if !nodes.has_others() {
            return Ok(());
        }
        if nodes.forget(claim) {
            self.inner.close_group(group);
            return nodes.release_forgotten(claim);
        }
        Ok(())
    }

    fn announce_wait(&self, key: &str) -> Result<()> {
        self.inner.nodes.announce_wait(key)
    }

    fn is_awaited(&self, claim: &Claim) -> bool {
        self.inner.nodes.is_awaited(claim)
    }
}
