//! [`Members`]: the processes that serve one store, and who of them does what only one should do at a time.
//!
//! Nothing here is needed for data to be right: commits are fenced by the versions of shards, whoever makes them. Members steer
//! work, so that it is not done twice. An engine that no other process can write to has one, [`Sole`].

use std::sync::Arc;

use crate::Result;

/// Tells processes apart, also those that were started at the same place one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u128);

/// A process that serves the store, as the others know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Which process.
    pub id: NodeId,
    /// What operators call it: `settee@10.0.0.7`. Nodes that live at the same time have different names.
    pub name: String,
    /// Where other nodes reach it: the root of its HTTP interface, or nothing if they cannot.
    pub address: String,
    /// When it began, in milliseconds of the Unix epoch, by the clock of the store.
    pub started_ms: u64,
}

/// The right to a piece of work, such as the build of an index. It lasts until it is released, or its node is not heard of any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// The piece of work.
    pub key: String,
    /// Greater than those of all earlier claims to `key` by other nodes.
    pub epoch: u64,
}

/// Who serves a store. All methods may be called from any thread; those that answer a `Result` may block.
pub trait Members: Send + Sync {
    /// This process.
    fn this(&self) -> NodeId;

    /// Whether there can be no others, so that nothing has to be asked for what others did. Never changes.
    fn is_sole(&self) -> bool {
        false
    }

    /// Tells the others under which name and address this process serves requests. Before that it is no member.
    ///
    /// # Errors
    /// When the store cannot be written, or another live node has that name.
    fn announce(&self, name: &str, address: &str) -> Result<()>;

    /// Tells the others that this process is about to end: its claims are free at once.
    ///
    /// # Errors
    /// When the store cannot be written. They notice a little later then.
    fn leave(&self) -> Result<()>;

    /// The nodes that were heard of lately, this one included once it is announced, by their names. Costs nothing: it is as new as the last heartbeat.
    fn live(&self) -> Arc<[Node]>;

    /// Whether a process is gone: it has left, or was not heard of for so long that others may take what it had claimed. Asks the store, so
    /// that this is right also of one that has just begun, which [`Self::live`] may not know, and of one without a name.
    ///
    /// # Errors
    /// When the store cannot be asked.
    fn is_gone(&self, node: NodeId) -> Result<bool>;

    /// Claims a piece of work; `None` while another live node has it. A claim that this node has is answered again: that a process does
    /// its work once is up to the process.
    ///
    /// # Errors
    /// When the store cannot be asked.
    fn claim(&self, key: &str) -> Result<Option<Claim>>;

    /// Whether this node still has what it claimed. Costs nothing. A node that could not be heard of for too long has lost its claims.
    fn holds(&self, claim: &Claim) -> bool;

    /// Gives a claim back.
    ///
    /// # Errors
    /// When the store cannot be written. The claim ends with this process then.
    fn release(&self, claim: &Claim) -> Result<()>;

    /// Tells the node that has claimed a piece of work that somebody here waits for it. It may not hear of that, and forgets it after a while: who waits
    /// longer says so again, several times a second.
    ///
    /// # Errors
    /// When the store cannot be asked.
    fn say_awaited(&self, key: &str) -> Result<()>;

    /// Whether another node has said lately that somebody waits for what this one has claimed. With the claim that is over. Costs nothing.
    fn is_awaited(&self, claim: &Claim) -> bool;
}

/// The node that `key` is best given to: all nodes that know the same `live` ones say the same, and the end of one node moves
/// only what it had (rendezvous hashing).
#[must_use]
pub fn preferred<'a>(live: &'a [Node], key: &str) -> Option<&'a Node> {
    live.iter().max_by_key(|node| (weight(node.id, key), node.id))
}

/// A hash that is the same in every version of the program: FNV-1a, with the bits mixed in the end as it leaves short keys alike.
fn weight(id: NodeId, key: &str) -> u64 {
    let bytes = id.0.to_be_bytes();
    let hash = bytes
        .iter()
        .chain(key.as_bytes())
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3));
    let mixed = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    mixed ^ (mixed >> 33)
}

/// The one member of an engine that no other process can write to.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sole;

impl Members for Sole {
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

    fn release(&self, _claim: &Claim) -> Result<()> {
        Ok(())
    }

    fn say_awaited(&self, _key: &str) -> Result<()> {
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
    fn work_is_spread_and_only_what_the_dead_had_moves() {
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
