//! [`Account`]: what one request keeps in memory for its client.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use settee_database::{Memory, ReadClient, Taken};
use settee_design::Cancellation;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Budget, Share};
use crate::Error;
use crate::slots::Ending;

/// The time for which a request waits for memory before it is told to come back.
const WAIT: Duration = Duration::from_secs(1);

/// A waiter looks again this often whether somebody can be cut off.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The same for a writer whose client has to take something first, of which it is told: hundreds of them have a thread each.
const ROOM_LOOK_EVERY: Duration = Duration::from_millis(250);

/// The part of an answer that may be on its way to its client before its writer waits.
const UNSENT_BYTES: usize = 256 << 10;

/// Clients that move less than this at a time count as doing nothing: a byte now and then holds memory as long as none.
const PROGRESS_BYTES: usize = 16 << 10;

/// Long answers go out in pieces of this size, so that one sees whether they do.
pub(crate) const SLICE_BYTES: usize = 64 << 10;

/// The memory of one request.
pub(crate) struct Account {
    budget: Arc<Budget>,
    /// `None` for requests of this process.
    ending: Option<Arc<Ending>>,
    share: AtomicU8,
    id: OnceLock<u64>,
    /// All that is counted here, and the parts of it that stay until the end and that the client has to take.
    held: AtomicUsize,
    kept: AtomicUsize,
    unsent: AtomicUsize,
    /// Whether the client has to send.
    is_receiving: AtomicBool,
    /// When the client last sent or took something, and how much since.
    moved_ms: AtomicU64,
    moved: AtomicUsize,
    taken: Notify,
    /// Cancelled when the client has disconnected or has received all of the answer.
    cancellation: Cancellation,
}

impl fmt::Debug for Account {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Account").field("share", &self.share()).field("held", &self.held()).finish_non_exhaustive()
    }
}

impl Account {
    pub(crate) fn new(budget: &Arc<Budget>, ending: Option<Arc<Ending>>, share: Share) -> Arc<Self> {
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

    /// Reports to the work of the request that the client waits no longer.
    pub(crate) fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// The client that documents are read for.
    pub(crate) fn reader(self: &Arc<Self>) -> ReadClient {
        let memory: Arc<dyn Memory> = Arc::new(Reader(Arc::clone(self)));
        ReadClient { cancellation: self.cancellation.clone(), memory: Some(memory) }
    }

    /// Says whose request it is.
    pub(crate) fn set_share(&self, share: Share) {
        self.share.store(share as u8, Ordering::Relaxed);
    }

    pub(crate) fn share(&self) -> Share {
        match self.share.load(Ordering::Relaxed) {
            0 => Share::Anonymous,
            1 => Share::User,
            _ => Share::Admin,
        }
    }

    /// The most that this client can ever have.
    pub(crate) fn limit(&self) -> usize {
        self.share().of(self.budget.total)
    }

    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Keeps `bytes` until the request and its answer have ended. Waits a moment for them if there are none.
    pub(crate) async fn keep(self: &Arc<Self>, bytes: usize) -> Result<(), Error> {
        let held = self.hold(bytes).await?;
        self.kept.fetch_add(bytes, Ordering::Relaxed);
        held.stays();
        Ok(())
    }

    /// The same on a thread that cannot wait.
    pub(crate) fn keep_now(self: &Arc<Self>, bytes: usize) -> Result<(), Error> {
        let held = self.hold_now(bytes)?;
        self.kept.fetch_add(bytes, Ordering::Relaxed);
        held.stays();
        Ok(())
    }

    /// Takes `bytes` as long as the result lives. Waits a moment for them if there are none.
    pub(crate) async fn hold(self: &Arc<Self>, bytes: usize) -> Result<Held, Error> {
        let begun = Instant::now();
        loop {
            let freed = self.budget.freed.notified();
            match self.hold_now(bytes) {
                Err(error) if self.is_cut() || bytes > self.limit() || begun.elapsed() >= WAIT => return Err(error),
                Err(_) => drop(tokio::time::timeout(LOOK_EVERY, freed).await),
                held => {
                    // There may be room for another one.
                    self.budget.freed.notify_one();
                    return held;
                }
            }
        }
    }

    /// Takes `bytes` if they are there now.
    pub(crate) fn hold_now(self: &Arc<Self>, bytes: usize) -> Result<Held, Error> {
        let share = self.share();
        let taken = self.budget.take(bytes, share);
        self.budget.relieve(share);
        if !taken {
            return Err(if bytes > self.limit() { Error::too_large() } else { Error::short_of_memory() });
        }
        self.register();
        self.held.fetch_add(bytes, Ordering::Relaxed);
        Ok(Held { account: Arc::clone(self), bytes })
    }

    /// A piece of the answer that was made. It is counted until the client has taken it.
    pub(crate) fn unsent(self: &Arc<Self>, piece: Bytes) -> Bytes {
        let bytes = piece.len();
        self.register();
        self.budget.count(bytes);
        self.held.fetch_add(bytes, Ordering::Relaxed);
        if self.unsent.fetch_add(bytes, Ordering::Relaxed) == 0 {
            self.restart();
        }
        self.budget.relieve(self.share());
        Bytes::from_owner(Unsent { piece, account: Arc::clone(self) })
    }

    /// A part of a piece, so that it is noticed when the client has taken it.
    pub(crate) fn slice(self: &Arc<Self>, slice: Bytes) -> Bytes {
        Bytes::from_owner(Slice { slice, account: Arc::clone(self) })
    }

    /// Whether the next piece may be made: with much memory in use only when the client has taken the others. Whoever reads
    /// an answer in this process may want all of it before it drops anything.
    pub(crate) fn has_room(&self) -> bool {
        if self.ending.is_none() {
            return true;
        }
        let most = if self.budget.is_tight(self.share()) { 0 } else { UNSENT_BYTES };
        self.unsent.load(Ordering::Relaxed) <= most
    }

    /// Waits until the next piece may be made.
    pub(crate) async fn room(&self) {
        loop {
            let taken = self.taken.notified();
            if self.has_room() {
                return;
            }
            drop(tokio::time::timeout(ROOM_LOOK_EVERY, taken).await);
            self.budget.relieve(self.share());
        }
    }

    /// Says whether the client has to send something.
    pub(crate) fn set_receiving(&self, is_receiving: bool) {
        self.restart();
        self.is_receiving.store(is_receiving, Ordering::Relaxed);
    }

    /// The client has sent or taken something.
    pub(crate) fn moved(&self, bytes: usize) {
        if self.moved.fetch_add(bytes, Ordering::Relaxed) + bytes >= PROGRESS_BYTES {
            self.restart();
        }
    }

    /// The time for which the client has done nothing although it should, if it keeps memory by that and can be cut
    /// off.
    pub(super) fn stalled_ms(&self, now_ms: u64) -> Option<u64> {
        let owes = self.is_receiving.load(Ordering::Relaxed) || self.unsent.load(Ordering::Relaxed) > 0;
        let stalls = owes && self.held() > 0 && self.ending.is_some() && !self.is_cut();
        stalls.then(|| now_ms.saturating_sub(self.moved_ms.load(Ordering::Relaxed)))
    }

    pub(super) fn is_cut(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.is_cut())
    }

    pub(super) fn cut(&self) {
        if let Some(ending) = &self.ending {
            ending.cut_off();
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

/// Bytes that were taken from the budget, until this is dropped.
pub(crate) struct Held {
    account: Arc<Account>,
    bytes: usize,
}

impl Held {
    /// Leaves the bytes to the account.
    fn stays(mut self) {
        self.bytes = 0;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

/// The account of a client that documents are read for.
struct Reader(Arc<Account>);

impl Memory for Reader {
    fn take(&self, bytes: usize) -> Option<Taken> {
        Some(Box::new(self.0.hold_now(bytes).ok()?))
    }
}

/// A piece of an answer.
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

/// A part of a piece.
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
