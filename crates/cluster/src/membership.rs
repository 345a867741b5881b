//! [`Membership`]: the heartbeats and claims of one process, without I/O. The caller passes the time of a
//! monotonic clock as the duration since an arbitrary start.
//!
//! The clock of the store determines the age of heartbeats. The store regards a node as failed when its last heartbeat
//! is [`HEARTBEAT_EXPIRY`] old, or [`DISCONNECTED_EXPIRY`] without a connection for heartbeats. The node itself
//! measures from the time at which it *sent* the last heartbeat that arrived, and considers its claims lost after
//! [`CLAIM_TIMEOUT`] or [`DISCONNECTED_CLAIM_TIMEOUT`].
//!
//! Hence no claim is taken over while its holder considers it valid, unless the store loses heartbeats, its clock
//! jumps, as after a promotion, or it ends a connection without the node observing that. When the server is another
//! one, or was restarted, every node has [`HEARTBEAT_EXPIRY`] to send a heartbeat before its claims are taken over, and
//! it detects the gap. A node that has not run for a while may have an ended connection: [`Membership::is_exclusive`]
//! does not rely on it.

use std::collections::HashMap;
use std::time::Duration;

use settee_storage::members::Claim;

/// Time after which a node whose heartbeats do not arrive considers its claims lost.
pub const CLAIM_TIMEOUT: Duration = Duration::from_secs(4);

/// Age of a heartbeat after which the store considers the node failed.
pub const HEARTBEAT_EXPIRY: Duration = Duration::from_secs(5);

/// As [`CLAIM_TIMEOUT`], while the node has no connection for heartbeats.
pub const DISCONNECTED_CLAIM_TIMEOUT: Duration = Duration::from_millis(1200);

/// As [`HEARTBEAT_EXPIRY`], while the store observes no connection for heartbeats.
pub const DISCONNECTED_EXPIRY: Duration = Duration::from_millis(1500);

/// The heartbeats and claims of one process.
#[derive(Debug, Default)]
pub struct Membership {
    /// Time at which the last heartbeat that arrived was sent, unless claims were lost since.
    last_heartbeat: Option<Duration>,
    /// Time from which on claims of others may be taken over.
    takeover_from: Option<Duration>,
    /// Start time of the server of the last heartbeat, in its notation. It identifies a server process.
    server: String,
    /// Number of the connection of the last heartbeat; 0 before the first one.
    connection: u64,
    /// Incremented whenever claims are lost.
    generation: u64,
    claims: HashMap<String, u64>,
}

/// Permission of [`Membership::claim`] to ask the store for a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// Argument of [`Membership::claimed`].
    pub generation: u64,
    /// The server on which the claim of a failed node may be taken over. Otherwise, and on another server, which may
    /// have lost its heartbeats, only a claim without a holder is available.
    pub take_over_on: Option<String>,
}

impl Membership {
    /// Returns true if the store considers this node live.
    #[must_use]
    pub fn is_live(&self, now: Duration, is_connected: bool) -> bool {
        self.is_unexpired(now, timeout(is_connected))
    }

    fn is_unexpired(&self, now: Duration, limit: Duration) -> bool {
        self.last_heartbeat.is_some_and(|sent| now.saturating_sub(sent) < limit)
    }

    /// Returns true if this node holds the claim.
    #[must_use]
    pub fn holds(&self, now: Duration, is_connected: bool, claim: &Claim) -> bool {
        self.is_live(now, is_connected) && self.claims.get(&claim.key) == Some(&claim.epoch)
    }

    /// As [`Self::holds`], and no other node can have taken the claim over, even if the connection has ended without
    /// this node observing that.
    #[must_use]
    pub fn is_exclusive(&self, now: Duration, claim: &Claim) -> bool {
        self.holds(now, false, claim)
    }

    /// Returns true if the heartbeat that was sent at `sent` on this connection was too late for the store: the node
    /// must release its claims and enter again. `gap` is the time since the previous one, by the clock of the store.
    #[must_use]
    pub fn is_late(&self, sent: Duration, connection: u64, gap: Option<Duration>) -> bool {
        let limit = timeout(self.connection == connection);
        !self.is_unexpired(sent, limit) || gap.is_none_or(|gap| gap >= limit)
    }

    /// Forgets all claims.
    pub fn drop_claims(&mut self) {
        self.claims.clear();
        self.generation += 1;
        self.last_heartbeat = None;
    }

    /// Records the response to the heartbeat that was sent at `sent`. Returns true if the connection is another one
    /// than before.
    pub fn record_heartbeat(&mut self, sent: Duration, connection: u64, server: String) -> bool {
        // Another server may have older heartbeats, of this node and of others.
        if self.server != server {
            // A node that has just started cannot detect another server. Its delay covers exclusive leases only.
            let delay = if self.connection == 0 { DISCONNECTED_EXPIRY } else { HEARTBEAT_EXPIRY };
            (self.takeover_from, self.server) = (Some(sent + delay), server);
        }
        self.last_heartbeat = Some(sent);
        std::mem::replace(&mut self.connection, connection) != connection
    }

    /// Returns how to ask for a claim; `None` if this node must send a heartbeat first.
    #[must_use]
    pub fn claim(&self, now: Duration, is_connected: bool) -> Option<Attempt> {
        self.is_live(now, is_connected).then(|| Attempt {
            generation: self.generation,
            take_over_on: self.takeover_from.filter(|from| *from <= now).map(|_| self.server.clone()),
        })
    }

    /// Records a claim that the store has granted. Returns false if claims were lost concurrently: the caller must
    /// release it.
    #[must_use]
    pub fn claimed(&mut self, now: Duration, is_connected: bool, claim: &Claim, generation: u64) -> bool {
        let is_held = self.generation == generation && self.is_live(now, is_connected);
        if is_held {
            let epoch = self.claims.entry(claim.key.clone()).or_default();
            // A later claim of this node may have been recorded first.
            *epoch = claim.epoch.max(*epoch);
        }
        is_held
    }

    /// Forgets a claim. Returns true if this node held it, so that the caller must release it in the store.
    #[must_use]
    pub fn release(&mut self, claim: &Claim) -> bool {
        let is_held = self.claims.get(&claim.key) == Some(&claim.epoch);
        if is_held {
            self.claims.remove(&claim.key);
        }
        is_held
    }
}

fn timeout(is_connected: bool) -> Duration {
    if is_connected { CLAIM_TIMEOUT } else { DISCONNECTED_CLAIM_TIMEOUT }
}
