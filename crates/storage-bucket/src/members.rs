//! Membership of an engine on a bucket: one process, which releases the store when it leaves.

use std::sync::Arc;

use settee_storage::Result;
use settee_storage::members::{Claim, Members, Node, NodeId, SingleMember};

use crate::BucketEngine;

impl Members for BucketEngine {
    fn this(&self) -> NodeId {
        SingleMember.this()
    }

    fn is_sole(&self) -> bool {
        SingleMember.is_sole()
    }

    fn announce(&self, name: &str, address: &str) -> Result<()> {
        SingleMember.announce(name, address)
    }

    fn leave(&self) -> Result<()> {
        self.close();
        Ok(())
    }

    fn live(&self) -> Arc<[Node]> {
        SingleMember.live()
    }

    fn is_gone(&self, node: NodeId) -> Result<bool> {
        SingleMember.is_gone(node)
    }

    fn claim(&self, key: &str) -> Result<Option<Claim>> {
        SingleMember.claim(key)
    }

    fn holds(&self, claim: &Claim) -> bool {
        SingleMember.holds(claim)
    }

    fn writers(&self) -> Arc<[(Claim, NodeId)]> {
        SingleMember.writers()
    }

    fn refresh(&self) -> Result<()> {
        SingleMember.refresh()
    }

    fn fence(&self, claim: &Claim) -> Result<()> {
        SingleMember.fence(claim)
    }

    fn release(&self, claim: &Claim) -> Result<()> {
        SingleMember.release(claim)
    }

    fn announce_wait(&self, key: &str) -> Result<()> {
        SingleMember.announce_wait(key)
    }

    fn is_awaited(&self, claim: &Claim) -> bool {
        SingleMember.is_awaited(claim)
    }
}
