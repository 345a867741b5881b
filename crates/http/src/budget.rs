//! [`Budget`]: the one limit of memory for all bodies and answers in flight.
//!
//! What a request makes the server keep for its client is counted on the request's [`Account`]: its body, as long as
//! somebody works on it, and what was produced of the answer and not taken yet. Who would go beyond the budget is told to
//! come back, and who has kept memory longest while doing nothing is cut off. What the store, indexes and worker processes
//! need is not counted here; they have limits of their own.

mod account;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use settee_auth::UserContext;
use settee_design::Rank;
use tokio::sync::Notify;
use tokio::time::Instant;

pub(crate) use account::{Account, Held, SLICE_BYTES};

/// How full the budget is for a client before those who do nothing are looked for, and when they get no more time.
const TIGHT_PERCENT: usize = 60;
const FULL_PERCENT: usize = 85;

/// The time for which a client may keep memory without taking or sending anything once the budget is tight, and once it
/// is full. A slow line moves a piece in less than the first.
const STALL_TIGHT: Duration = Duration::from_secs(2);
const STALL_FULL: Duration = Duration::from_millis(200);

/// Looking through all requests takes a moment; more often than this it would bring nothing.
const RELIEVE_EVERY_MS: u64 = 20;

/// Whose requests may fill how much of the budget. Strangers leave room for those who have an account, and all leave
/// room for admins, who have to end an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Share {
    Anonymous,
    User,
    Admin,
}

impl Share {
    pub(crate) fn of_user(user: &UserContext) -> Self {
        match &user.name {
            _ if user.is_admin() => Self::Admin,
            Some(_) => Self::User,
            None => Self::Anonymous,
        }
    }

    /// The rank of its clients among the owners of processes.
    pub(crate) fn rank(self) -> Rank {
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

/// The memory for bodies and answers, and who keeps some of it.
pub(crate) struct Budget {
    total: usize,
    used: AtomicUsize,
    /// Those who have kept something.
    accounts: Mutex<HashMap<u64, Weak<Account>>>,
    next: AtomicU64,
    /// When it was last looked for clients who do nothing.
    relieved_ms: AtomicU64,
    freed: Notify,
    begun: Instant,
}

impl Budget {
    pub(crate) fn new(total: usize) -> Arc<Self> {
        Arc::new(Self {
            total,
            used: AtomicUsize::new(0),
            accounts: Mutex::default(),
            next: AtomicU64::new(0),
            relieved_ms: AtomicU64::new(0),
            freed: Notify::new(),
            begun: Instant::now(),
        })
    }

    pub(crate) fn total(&self) -> usize {
        self.total
    }

    /// How much of the budget is in use, in bytes.
    pub(crate) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Takes `bytes` if there is room for them below `share`.
    fn take(&self, bytes: usize, share: Share) -> bool {
        let limit = share.of(self.total);
        let room = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    /// Takes `bytes` that are there already.
    fn count(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            // One at a time, who wakes the next: of hundreds that wait only some could have it, and all would look.
            self.freed.notify_one();
        }
    }

    /// Whether clients of this share should keep as little as they can.
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

    /// Cuts off clients that do nothing, those first who have done so longest, until the budget is not tight any more for
    /// `share`. Who has a better share is left alone.
    fn relieve(&self, share: Share) {
        let now_ms = self.now_ms();
        if !self.is_tight(share) || now_ms < self.relieved_ms.load(Ordering::Relaxed) + RELIEVE_EVERY_MS {
            return;
        }
        self.relieved_ms.store(now_ms, Ordering::Relaxed);
        // Whoever of them ends meanwhile needs the lock.
        let accounts: Vec<Arc<Account>> = self.accounts.lock().values().filter_map(Weak::upgrade).collect();
        let leaving: usize = accounts.iter().filter(|account| account.is_cut()).map(|account| account.held()).sum();
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
                "a client that did nothing was cut off: memory is short"
            );
            account.cut();
        }
    }
}

#[cfg(test)]
mod tests;
