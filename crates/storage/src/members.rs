//! [`Members`]: the processes that serve one store, and the assignment of work that only one of them should do.
//! Correctness of data does not depend on membership: commits are fenced by the versions of shards.

use std::sync::Arc;

use crate::Result;

/// Identifier of a process, unique also among processes that were started on the same host one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u128);

/// A process that serves the store, as the others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Identifier of the process.
    pub id: NodeId,
    /// Name for operators: `settee@10.0.0.7`. Names of live nodes are unique.
    pub name: String,
    /// Root of the HTTP interface for other nodes; empty if they cannot reach it.
    pub address: String,
    /// Start time in milliseconds of the Unix epoch, by the clock of the store.
    pub started_ms: u64,
}

/// Prefix of the keys of writer leases: claims whose holder makes commits under them, see
/// [`Batch::set_claim`](crate::Batch::set_claim).
pub const WRITER_PREFIX: &str = "writer/";

/// A lease on a piece of work, such as the build of an index. It lasts until it is released or its node has failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The piece of work.
    pub key: String,
    /// Epoch, greater than those of all earlier claims to `key` by other nodes.
    pub epoch: u64,
}

/// Membership of a store. All methods may be called from any thread; those that return a `Result` may block.
pub trait Members: Send + Sync {
    /// Returns the id of this process.
    fn this(&self) -> NodeId;

    /// Returns true if there can be no other process, so that no query for the work of others is needed. Never changes.
    fn is_sole(&self) -> bool {
        false
    }

    /// Announces the name and address under which this process serves requests. Before that it is not a member. Fails
    /// if another live node has that name.
    fn announce(&self, name: &str, address: &str) -> Result<()>;

    /// Announces that this process is about to end, and releases its claims. After an error, other nodes detect the end
    /// after a timeout.
    fn leave(&self) -> Result<()>;

    /// Returns the live nodes, including this one once it is announced, ordered by name. Cached: as recent as the last
    /// heartbeat.
    fn live(&self) -> Arc<[Node]>;

    /// Returns true if a process has left, or its heartbeat has expired and others may take over its claims. Reads the
    /// store, so it is correct also for a process that has just started, which [`Self::live`] may not contain, and for
    /// one without a name.
    fn is_gone(&self, node: NodeId) -> Result<bool>;

    /// Claims a piece of work; `None` while another live node holds the claim. An earlier claim of this node is
    /// replaced by one with a new epoch, because what was done under it may have been lost.
    fn claim(&self, key: &str) -> Result<Option<Claim>>;

    /// Returns true if this node still holds the claim. Cached. A node whose heartbeat failed for too long has lost its
    /// claims.
    fn holds(&self, claim: &Claim) -> bool;

    /// As [`Self::holds`], and no other node can have taken the claim over, even if this node has not observed the end
    /// of its connection. Cached.
    fn is_exclusive(&self, claim: &Claim) -> bool {
        self.holds(claim)
    }

    /// Returns the claims with [`WRITER_PREFIX`] and their holders. Cached: as recent as the last heartbeat. A holder
    /// may have failed since.
    fn writers(&self) -> Arc<[(Claim, NodeId)]>;

    /// Sends a heartbeat, so that [`Self::live`] and [`Self::writers`] are current.
    fn refresh(&self) -> Result<()>;

    /// Waits until no commit under an earlier claim to the same key can be applied any more. The holder of a new claim
    /// must call it before it relies on the state of the store: commits that were in progress when the claim changed
    /// hands have then ended, and later ones are rejected.
    fn fence(&self, claim: &Claim) -> Result<()>;

    /// Releases a claim. If it fails, the claim ends with this process.
    fn release(&self, claim: &Claim) -> Result<()>;

    /// Notifies the holder of a claim that this node waits for it. Delivery is not guaranteed, and the notification
    /// expires: a waiting caller must repeat it several times a second.
    fn announce_wait(&self, key: &str) -> Result<()>;

    /// Returns true if another node has recently announced that it waits for this claim. The announcement ends with the
    /// claim. Cached.
    fn is_awaited(&self, claim: &Claim) -> bool;
}

/// Returns the preferred node for `key`. All nodes with the same `live` set compute the same, and when a node ends,
/// only its keys move (rendezvous hashing).
#[must_use]
pub fn preferred<'a>(live: &'a [Node], key: &str) -> Option<&'a Node> {
    live.iter().max_by_key(|node| (weight(node.id, key), node.id))
}

/// The hash must be the same in every version of the program. FNV-1a alone gives similar hashes for short keys, hence
/// the final mix.
fn weight(id: NodeId, key: &str) -> u64 {
    let bytes = id.0.to_be_bytes();
    let hash = bytes
        .iter()
        .chain(key.as_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// Membership of an engine that no other process can write to.
#[derive(Clone, Copy, Debug, Default)]
pub struct SingleMember;

impl Members for SingleMember {
    fn this(&self) -> NodeId {
        NodeId(0)
    }

    fn is_sole(&self) -> bool {
        true
    }

    fn announce(&self, _name: &str, _address: &str) -> Result<()> {
        Ok(())
    }

    fn leave(&self) -> Result<()> {
        Ok(())
    }

    fn live(&self) -> Arc<[Node]> {
        Arc::default()
    }

    fn is_gone(&self, node: NodeId) -> Result<bool> {
        Ok(node != self.this())
    }

    fn claim(&self, key: &str) -> Result<Option<Claim>> {
        Ok(Some(Claim { key: key.to_owned(), epoch: 1 }))
    }

    fn holds(&self, _claim: &Claim) -> bool {
        true
    }

    fn writers(&self) -> Arc<[(Claim, NodeId)]> {
        Arc::default()
    }

    fn refresh(&self) -> Result<()> {
        Ok(())
    }

    fn fence(&self, _claim: &Claim) -> Result<()> {
        Ok(())
    }

    fn release(&self, _claim: &Claim) -> Result<()> {
        Ok(())
    }

    fn announce_wait(&self, _key: &str) -> Result<()> {
        Ok(())
    }

    fn is_awaited(&self, _claim: &Claim) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u128) -> Vec<Node> {
        let node = |id| Node { id: NodeId(id), name: id.to_string(), address: String::new(), started_ms: 0 };
        (1..=count).map(node).collect()
    }

    #[test]
    fn work_is_distributed_and_only_that_of_failed_nodes_moves() {
        let four = nodes(4);
        let three = &four[..3];
        let mut counts = [0; 4];
        for number in 0..4000 {
            let key = format!("index {number}");
            let before = preferred(&four, &key).expect("a node").id;
            counts[usize::try_from(before.0).expect("small") - 1] += 1;
            let after = preferred(three, &key).expect("a node").id;
            assert!(before == after || before == NodeId(4), "{key} moved from {before:?} to {after:?}");
        }
        assert!(counts.iter().all(|count| (850..1150).contains(count)), "{counts:?}");
        assert_eq!(preferred(&[], "index"), None);
    }
}
