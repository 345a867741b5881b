//! [`Budget`]: the memory limit for all bodies and responses in flight. Memory that the server holds for the client of
//! a request is counted on the request's [`Account`]. A request beyond the budget is rejected and may be retried, and
//! the clients that have been inactive longest are disconnected. The store, indexes and worker processes have limits of
//! their own.

mod account;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use settee_threads::Rank;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use account::{Account, Held, SLICE_BYTES};

/// From the first fill level, inactive clients are disconnected; from the second, after a shorter time.
const TIGHT_PERCENT: usize = 60;
const FULL_PERCENT: usize = 85;

/// A client may hold memory without progress for this time, in which a slow connection transfers a piece.
const STALL_TIGHT: Duration = Duration::from_secs(2);
const STALL_FULL: Duration = Duration::from_millis(200);

/// Minimum interval between two scans of all accounts, because a scan takes time.
const DISCONNECT_INTERVAL_MS: u64 = 20;

/// Classes of clients with different parts of the budget. Both others leave memory for administrators, because these
/// must be able to stop an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    Anonymous,
    User,
    Admin,
}

impl Share {
    pub fn rank(self) -> Rank {
        match self {
            Self::Anonymous => Rank::Anonymous,
            Self::User => Rank::User,
            Self::Admin => Rank::Admin,
        }
    }

    fn of(self, total: usize) -> usize {
        match self {
            Self::Anonymous => total / 2,
            Self::User => total / 4 * 3,
            Self::Admin => total,
        }
    }
}

pub struct Budget {
    total: usize,
    used: AtomicUsize,
    accounts: Mutex<HashMap<u64, Weak<Account>>>,
    next: AtomicU64,
    disconnected_ms: AtomicU64,
    released: Notify,
    begun: Instant,
}

impl Budget {
    pub fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicUsize::new(0),
            accounts: Mutex::default(),
            next: AtomicU64::new(0),
            disconnected_ms: AtomicU64::new(0),
            released: Notify::new(),
            begun: Instant::now(),
        })
    }

    pub fn total(&self) -> usize {
        self.total
    }

    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn take(&self, bytes: usize, share: Share) -> bool {
        let limit = share.of(self.total);
        let room = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    fn count(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            // Each waiter notifies the next one, because not all of hundreds could get the memory.
            self.released.notify_one();
        }
    }

    /// Clients of this share should then hold as little memory as possible.
    fn is_tight(&self, share: Share) -> bool {
        self.fills(self.used(), share, TIGHT_PERCENT)
    }

    fn fills(&self, used: usize, share: Share, percent: usize) -> bool {
        used / 100 >= share.of(self.total) / 100 * percent / 100
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn enter(&self, account: &Arc<Account>) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        self.accounts.lock().insert(id, Arc::downgrade(account));
        id
    }

    fn leave(&self, id: u64) {
        self.accounts.lock().remove(&id);
    }

    /// Disconnects clients that have been inactive longest until the budget is not tight any more for `share`, except
    /// those of a better share.
    fn disconnect_stalled(&self, share: Share) {
        let now_ms = self.now_ms();
        if !self.is_tight(share) || now_ms < self.disconnected_ms.load(Ordering::Relaxed) + DISCONNECT_INTERVAL_MS {
            return;
        }
        self.disconnected_ms.store(now_ms, Ordering::Relaxed);
        // The guard is released first, because an account that ends concurrently needs the lock.
        let accounts: Vec<Arc<Account>> = self.accounts.lock().values().filter_map(Weak::upgrade).collect();
        let leaving: usize = accounts.iter().filter(|account| account.is_aborted()).map(|account| account.held()).sum();
        let mut used = self.used().saturating_sub(leaving);
        let mut idle: Vec<(u64, &Arc<Account>)> = accounts
            .iter()
            .filter(|account| account.share() as u8 <= share as u8)
            .filter_map(|account| Some((account.stalled_ms(now_ms)?, account)))
            .collect();
        idle.sort_unstable_by_key(|(stalled_ms, _)| std::cmp::Reverse(*stalled_ms));
        for (stalled_ms, account) in idle {
            let timeout = if self.fills(used, share, FULL_PERCENT) { STALL_FULL } else { STALL_TIGHT };
            if !self.fills(used, share, TIGHT_PERCENT) || u128::from(stalled_ms) < timeout.as_millis() {
                return;
            }
            used = used.saturating_sub(account.held());
            tracing::info!(
                stalled_ms,
                bytes = account.held(),
                "an inactive client was disconnected because memory is scarce"
            );
            account.abort();
        }
    }
}

#[cfg(test)]
mod tests;
