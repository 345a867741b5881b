//! [`Account`]: the memory that one request holds for its client.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::slots::Ending;
use bytes::Bytes;
use settee_threads::Cancellation;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Budget, Share};
use crate::Error;

/// A request waits for memory for this time before it is rejected.
const RESERVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A waiter checks for inactive clients in this interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The same for a writer whose client has to receive something first, of which the writer is notified.
const SPACE_POLL_INTERVAL: Duration = Duration::from_millis(250);

/// With more unsent bytes of a response its writer waits.
const UNSENT_BYTES: usize = 256 << 10;

/// This number of bytes is progress: a client that transfers single bytes holds memory as long as an inactive one.
const PROGRESS_BYTES: usize = 16 << 10;

/// Slices of long responses make the progress of their transfer observable.
pub const SLICE_BYTES: usize = 64 << 10;

pub struct Account {
    budget: Arc<Budget>,
    /// `None` for requests from within this process.
    ending: Option<Arc<Ending>>,
    share: AtomicU8,
    id: OnceLock<u64>,
    /// All bytes of this account, and two parts of them: those held until the request ends, and the unsent ones.
    held: AtomicUsize,
    kept: AtomicUsize,
    unsent: AtomicUsize,
    is_receiving: AtomicBool,
    moved_ms: AtomicU64,
    moved: AtomicUsize,
    taken: Notify,
    cancellation: Cancellation,
}

impl fmt::Debug for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Account").field("share", &self.share()).field("held", &self.held()).finish_non_exhaustive()
    }
}

impl Account {
    pub fn new(budget: &Arc<Budget>, ending: Option<Arc<Ending>>, share: Share) -> Arc<Self> {
        if let Some(ending) = &ending {
            ending.request_begins();
        }
        Arc::new(Self {
            budget: Arc::clone(budget),
            ending,
            share: AtomicU8::new(share as u8),
            id: OnceLock::new(),
            held: AtomicUsize::new(0),
            kept: AtomicUsize::new(0),
            unsent: AtomicUsize::new(0),
            is_receiving: AtomicBool::new(false),
            moved_ms: AtomicU64::new(0),
            moved: AtomicUsize::new(0),
            taken: Notify::new(),
            cancellation: Cancellation::default(),
        })
    }

    pub fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    pub fn set_share(&self, share: Share) {
        self.share.store(share as u8, Ordering::Relaxed);
    }

    pub fn share(&self) -> Share {
        match self.share.load(Ordering::Relaxed) {
            0 => Share::Anonymous,
            1 => Share::User,
            _ => Share::Admin,
        }
    }

    pub fn limit(&self) -> usize {
        self.share().of(self.budget.total)
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Holds `bytes` until the request and its response have ended. Waits briefly if the memory is not available.
    pub async fn keep(self: &Arc<Self>, bytes: usize) -> Result<(), Error> {
        let held = self.hold(bytes).await?;
        self.kept.fetch_add(bytes, Ordering::Relaxed);
        held.stays();
        Ok(())
    }

    /// As `keep`, on a thread that cannot wait.
    pub fn keep_now(self: &Arc<Self>, bytes: usize) -> Result<(), Error> {
        let held = self.hold_now(bytes)?;
        self.kept.fetch_add(bytes, Ordering::Relaxed);
        held.stays();
        Ok(())
    }

    /// Holds `bytes` until the result is dropped. Waits briefly if the memory is not available.
    pub async fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Error> {
        let begun = Instant::now();
        loop {
            let released = self.budget.released.notified();
            match self.hold_now(bytes) {
                Err(error) if self.is_aborted() || bytes > self.limit() || begun.elapsed() >= RESERVE_TIMEOUT => {
                    return Err(error);
                }
                Err(_) => drop(tokio::time::timeout(POLL_INTERVAL, released).await),
                held => {
                    // The remaining memory may be sufficient for another waiter.
                    self.budget.released.notify_one();
                    return held;
                }
            }
        }
    }

    pub fn hold_now(self: &Arc<Self>, bytes: usize) -> Result<Held, Error> {
        let share = self.share();
        let taken = self.budget.take(bytes, share);
        self.budget.disconnect_stalled(share);
        if !taken {
            return Err(if bytes > self.limit() { Error::too_large() } else { Error::short_of_memory() });
        }
        self.register();
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(Held { account: Arc::clone(self), bytes })
    }

    /// Counts a piece of the response until the client has received it.
    pub fn unsent(self: &Arc<Self>, piece: Bytes) -> Bytes {
        let bytes = piece.len();
        self.register();
        self.budget.count(bytes);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        if self.unsent.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.restart();
        }
        self.budget.disconnect_stalled(self.share());
        Bytes::from_owner(Unsent { piece, account: Arc::clone(self) })
    }

    pub fn slice(self: &Arc<Self>, slice: Bytes) -> Bytes {
        Bytes::from_owner(Slice { slice, account: Arc::clone(self) })
    }

    /// Returns true if the next piece may be produced. If the budget is tight, the client must have received all others
    /// first. Requests from within this process never wait, because their caller may collect the whole response.
    pub fn has_room(&self) -> bool {
        if self.ending.is_none() {
            return true;
        }
        let most = if self.budget.is_tight(self.share()) { 0 } else { UNSENT_BYTES };
        self.unsent.load(Ordering::Relaxed) <= most
    }

    pub async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.has_room() {
                return;
            }
            drop(tokio::time::timeout(SPACE_POLL_INTERVAL, taken).await);
            self.budget.disconnect_stalled(self.share());
        }
    }

    pub fn set_receiving(&self, is_receiving: bool) {
        self.restart();
        self.is_receiving.store(is_receiving, Ordering::Relaxed);
    }

    pub fn moved(&self, bytes: usize) {
        if self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes >= PROGRESS_BYTES {
            self.restart();
        }
    }

    /// `None` if the client holds no memory or cannot be disconnected.
    pub(super) fn stalled_ms(&self, now_ms: u64) -> Option<u64> {
        let owes = self.is_receiving.load(Ordering::Relaxed) || self.unsent.load(Ordering::Relaxed) > 0;
        let stalls = owes && self.held() > 0 && self.ending.is_some() && !self.is_aborted();
        stalls.then(|| now_ms.saturating_sub(self.moved_ms.load(Ordering::Relaxed)))
    }

    pub(super) fn is_aborted(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.is_aborted())
    }

    pub(super) fn abort(&self) {
        if let Some(ending) = &self.ending {
            ending.abort();
        }
    }

    fn register(self: &Arc<Self>) {
        self.id.get_or_init(|| self.budget.enter(self));
    }

    fn restart(&self) {
        self.moved.store(0, Ordering::Relaxed);
        self.moved_ms.store(self.budget.now_ms(), Ordering::Relaxed);
    }

    fn give_back(&self, bytes: usize) {
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        self.budget.give_back(bytes);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(id) = self.id.get() {
            self.budget.leave(*id);
        }
        self.give_back(self.kept.load(Ordering::Relaxed));
        if let Some(ending) = &self.ending {
            ending.request_ends();
        }
    }
}

pub struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Held {
    fn stays(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

struct Unsent {
    piece: Bytes,
    account: Arc<Account>,
}

impl AsRef<[u8]> for Unsent {
    fn as_ref(&self) -> &[u8] {
        &self.piece
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        let bytes = self.piece.len();
        self.account.moved(bytes);
        self.account.unsent.fetch_sub(bytes, Ordering::Relaxed);
        self.account.give_back(bytes);
        self.account.taken.notify_waiters();
    }
}

struct Slice {
    slice: Bytes,
    account: Arc<Account>,
}

impl AsRef<[u8]> for Slice {
    fn as_ref(&self) -> &[u8] {
        &self.slice
    }
}

impl Drop for Slice {
    fn drop(&mut self) {
        self.account.moved(self.slice.len());
    }
}
