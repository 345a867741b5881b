//! [`Pool`]: a bounded number of connections. An idle snapshot loses its connection to a caller that needs one.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::{Result, StorageError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::block::begin;
use crate::connect::{Connector, Link};
use crate::error::{Failure, Unreached};
use crate::lease::Lease;

/// Time for which connecting is retried, if the server was reachable a moment ago.
const CONNECT_RETRY_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum number of attempts of an idempotent operation.
const ATTEMPTS_MAX: u32 = 3;

/// Maximum wait for a connection.
const QUEUE: Duration = Duration::from_secs(20);
const QUEUE_STEP: Duration = Duration::from_millis(10);
const QUEUE_STEP_MAX: Duration = Duration::from_millis(200);

/// Time without reads after which a snapshot loses its connection to a new waiter.
const IDLE_HELD: Duration = Duration::from_secs(1);

/// Minimum of that time, which applies to callers that have waited for long: a read is not interrupted for a caller
/// that would get a connection soon anyway.
const IDLE_HELD_MIN: Duration = Duration::from_millis(250);

/// Time after which a snapshot loses its connection without a waiter, because the server cannot remove deleted rows
/// during its transaction.
const IDLE_HELD_MAX: Duration = Duration::from_secs(60);

/// Time after which unused connections are closed.
const IDLE: Duration = Duration::from_secs(60);

/// A pool of connections.
pub(crate) struct Pool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<(Link, Instant)>>,
    permits: Arc<Semaphore>,
    size: usize,
    /// Statements at the start of each connection.
    settings: String,
    holders: Mutex<Vec<Weak<Lease>>>,
    /// Reason why connecting failed.
    fault: Mutex<Option<StorageError>>,
    made: AtomicU64,
    taken_away: AtomicU64,
}

/// A connection that is leased to one caller.
pub(crate) struct Leased {
    link: Option<Link>,
    is_in_transaction: AtomicBool,
    is_broken: AtomicBool,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl Leased {
    pub(crate) fn link(&self) -> &Link {
        self.link.as_ref().expect("it goes when this goes")
    }

    /// Marks the connection so that it is not reused.
    pub(crate) fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && !self.link().client.is_closed()
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.is_in_transaction.load(Ordering::Relaxed)
    }

    /// Records that a transaction was started or has ended. Returns the previous state.
    pub(crate) fn set_in_transaction(&self, is_it: bool) -> bool {
        self.is_in_transaction.swap(is_it, Ordering::Relaxed)
    }
}

impl Drop for Leased {
    fn drop(&mut self) {
        let is_usable = self.is_usable();
        if !is_usable {
            // The cause of the failure may have affected the other connections.
            self.pool.idle.lock().clear();
        }
        let Some(link) = self.link.take().filter(|_| is_usable) else { return };
        if self.is_in_transaction() {
            // Sent before any request of the next user.
            begin(link.client.batch_execute("ROLLBACK"));
        }
        self.pool.idle.lock().push((link, Instant::now()));
    }
}

impl Pool {
    pub(crate) fn new(connector: Arc<Connector>, size: usize, settings: String) -> Arc<Self> {
        Arc::new(Self {
            connector,
            idle: Mutex::default(),
            permits: Arc::new(Semaphore::new(size)),
            size,
            settings,
            holders: Mutex::default(),
            fault: Mutex::default(),
            made: AtomicU64::new(0),
            taken_away: AtomicU64::new(0),
        })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    /// Returns the maximum number of connections.
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Returns the error of the last attempt to connect, if it failed.
    pub(crate) fn fault(&self) -> Option<StorageError> {
        self.fault.lock().clone()
    }

    /// Returns the numbers of open connections, leased ones, those created so far, and snapshots that lost theirs.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let used = self.size - self.permits.available_permits();
        let open = used + self.idle.lock().len();
        let [made, taken_away] = [&self.made, &self.taken_away].map(|counter| counter.load(Ordering::Relaxed));
        [open as u64, used as u64, made, taken_away]
    }

    /// Leases a connection.
    pub(crate) async fn take(self: &Arc<Self>) -> Result<Leased> {
        let permit = self.permit().await?;
        let unused = || std::iter::from_fn(|| self.idle.lock().pop()).find(|(link, _)| !link.client.is_closed());
        let link = match unused() {
            Some((link, _)) => link,
            None => self.connect().await?,
        };
        let [is_in_transaction, is_broken] = [AtomicBool::new(false), AtomicBool::new(false)];
        Ok(Leased { link: Some(link), is_in_transaction, is_broken, pool: Arc::clone(self), _permit: permit })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let begun = Instant::now();
        // Keeps its position in the queue.
        let mut permit = pin!(Arc::clone(&self.permits).acquire_owned());
        let mut step = QUEUE_STEP;
        loop {
            self.take_away(IDLE_HELD.saturating_sub(begun.elapsed()).max(IDLE_HELD_MIN));
            if let Ok(Ok(permit)) = tokio::time::timeout(step, &mut permit).await {
                return Ok(permit);
            }
            step = (step * 2).min(QUEUE_STEP_MAX);
            if begun.elapsed() > QUEUE {
                return Err(StorageError::Unreached(format!(
                    "all {} connections to PostgreSQL were busy for {} s",
                    self.size,
                    QUEUE.as_secs()
                )));
            }
        }
    }

    /// Executes an idempotent operation, with retries if its connection is lost.
    pub(crate) async fn repeatedly<T>(self: &Arc<Self>, act: impl AsyncFn(&Link) -> Result<T, Failure>) -> Result<T> {
        let mut tries = 0;
        loop {
            let leased = self.take().await?;
            match act(leased.link()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    // A transaction that it had started must be rolled back.
                    leased.set_in_transaction(true);
                    if matches!(failure, Failure::Lost(_)) {
                        leased.set_broken();
                    }
                    let is_final = !matches!(failure, Failure::Lost(_) | Failure::Again(_));
                    if is_final || tries == ATTEMPTS_MAX {
                        return Err(failure.into_error());
                    }
                    tries += 1;
                }
            }
        }
    }

    /// Creates a connection. Retries during a short outage; fails at once during a long one.
    async fn connect(&self) -> Result<Link> {
        let begun = Instant::now();
        loop {
            match self.connector.connect(&self.settings).await {
                Ok(link) => {
                    self.made.fetch_add(1, Ordering::Relaxed);
                    *self.fault.lock() = None;
                    return Ok(link);
                }
                Err(error) => self.note(&error, begun)?,
            }
            tokio::time::sleep(CONNECT_RETRY_INTERVAL).await;
        }
    }

    fn note(&self, error: &Unreached, begun: Instant) -> Result<()> {
        let mut fault = self.fault.lock();
        let is_final = matches!(error, Unreached::Swallowed) || fault.is_some();
        if begun.elapsed() < CONNECT_RETRY_TIMEOUT && !is_final {
            return Ok(());
        }
        let error = StorageError::Unreached(format!("PostgreSQL: {error}"));
        *fault = Some(error.clone());
        Err(error)
    }

    /// Registers a lease that has a connection.
    pub(crate) fn holds(&self, lease: &Arc<Lease>) {
        let mut holders = self.holders.lock();
        if holders.len() > 4 * self.size {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(Arc::downgrade(lease));
    }

    /// Takes the connection of the snapshot that was idle for the longest time, if that is at least `idle`.
    fn take_away(&self, idle: Duration) -> bool {
        let holders: Vec<Arc<Lease>> = self.holders.lock().iter().filter_map(Weak::upgrade).collect();
        let longest = holders.iter().filter_map(|lease| Some((lease.idle()?, lease))).max_by_key(|(time, _)| *time);
        let Some((time, lease)) = longest else { return false };
        let is_taken = time >= idle && lease.give_up();
        self.taken_away.fetch_add(u64::from(is_taken), Ordering::Relaxed);
        is_taken
    }

    /// Closes unused connections, and ends the transactions of old snapshots. Must be called periodically.
    pub(crate) fn maintain(&self) {
        while self.take_away(IDLE_HELD_MAX) {}
        self.holders.lock().retain(|holder| holder.strong_count() > 0);
        self.idle.lock().retain(|(link, since)| !link.client.is_closed() && since.elapsed() < IDLE);
    }

    /// Retries connecting after a failure.
    pub(crate) async fn try_again(self: &Arc<Self>) -> Result<()> {
        if self.fault().is_none() {
            return Ok(());
        }
        let leased = self.take().await?;
        let answer = leased.link().client.batch_execute("").await;
        answer.map_err(|error| Failure::from(error).into_error())
    }
}
