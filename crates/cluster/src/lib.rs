//! The one node that commits the writes of a group of shards.
//!
//! Several processes serve one store. Every commit is fenced by the version of its shard, so two concurrent writers
//! can cause conflicts but no lost write. One writer per group makes conflicts rare, and makes its memory current: it
//! neither polls for commits of others nor validates what it has read.
//!
//! **Lease.** Shards are hashed into groups ([`Groups`]). The claim `writer/<groups>/<group>` in the store names the
//! writer of a group. It has an epoch, which increases with every change of the holder. Every node sends heartbeats to
//! the store twice a second. The store, by its own clock, grants the claim to another node when the holder has left or
//! its heartbeats have expired. The holder, by its own monotonic clock, considers its lease expired earlier
//! ([`membership`]). So two nodes never consider themselves the writer at the same time, as long as the rates of their
//! clocks differ by less than a fifth.
//!
//! **Fence.** A new holder is not the writer yet: a commit of its predecessor can still be in progress. The store
//! rejects commits with a claim that is no longer current ([`Batch::set_claim`](settee_storage::Batch::set_claim)).
//! The new holder waits for those that have started before
//! ([`Members::fence`](settee_storage::Members::fence)). Then it observes all commits so far
//! ([`Engine::catch_up`](settee_storage::Engine::catch_up)), and only then it commits. The steps are a state machine
//! without I/O ([`Lease`]); [`Writers`] performs them.
//!
//! **Forwarding.** All other nodes pass writes to the writer ([`Writers::location`]). If it is unreachable or denies that
//! it is the writer, they report that ([`Writers::refresh`]) and wait for the next one ([`Writers::on_change`]).
//! Requests are preceded by a catch-up, except for writes at the writer while its lease excludes other writers
//! ([`Writers::holds_all`]).
//!
//! **Unknown outcomes.** If the acknowledgement of a commit is lost, the writer looks its token up
//! ([`commit_once`](settee_storage::commit_once)). If the store has no record of it, the client must be answered that
//! the outcome is unknown.
//!
//! | failure | consequence |
//! |---|---|
//! | the writer ends | its connection ends; 1.5 s after its last heartbeat another node claims the group |
//! | the writer is suspended | the same; when it continues, its lease is expired by its own clock, and the store
//! rejects its commits | | the writer loses the store | it stops committing after
//! [`membership::DISCONNECTED_CLAIM_TIMEOUT`] | | a node loses the writer, not the store | its writes fail until the
//! connection is restored; the writer remains | | a node stops in an orderly manner | it finishes its commits and
//! releases its leases; another node claims them within the next heartbeat | | the store is restarted or replaced |
//! heartbeats may be lost: no claim is taken over for [`membership::HEARTBEAT_EXPIRY`] |
//!
//! What the lease relies on: a monotonic clock that counts the time for which the process does not run, and a store
//! whose clock does not jump while the server remains the same. If one fails, acknowledged writes remain, because the
//! store checks versions and claims; a deposed writer can answer reads with earlier data until its next heartbeat.

mod groups;
pub mod lease;
pub mod membership;
#[cfg(test)]
mod simulation;
mod writers;

pub use groups::Groups;
pub use lease::Lease;
pub use writers::{Listener, WriterLocation, Writers};
