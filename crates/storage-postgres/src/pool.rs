//! [`Pool`]: a bounded number of connections. An idle snapshot loses its connection to a caller that needs one.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::{Result, StorageError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::block::poll_once;
use crate::connect::{Connector, PostgresConnection};
use crate::error::{ConnectError, Failure};
use crate::lease::Lease;

/// Time for which connecting is retried, if the server was reachable a moment ago.
const CONNECT_RETRY_TIMEOUT: Duration = Duration::from_secs(2);
const CONNECT_RETRY_INTERVAL: Duration = Duration::from_millis(50);

const ATTEMPTS_MAX: u32 = 3;

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(20);
const RECLAIM_INTERVAL: Duration = Duration::from_millis(10);
const RECLAIM_INTERVAL_MAX: Duration = Duration::from_millis(200);

/// A snapshot without reads for this time loses its connection to a new waiter.
const IDLE_SNAPSHOT: Duration = Duration::from_secs(1);

/// Minimum of that time, which applies to callers that have waited for long: a read is not interrupted for a caller
/// that would get a connection soon anyway.
const IDLE_SNAPSHOT_MIN: Duration = Duration::from_millis(250);

/// A snapshot without reads for this time loses its connection without a waiter, because the server cannot remove
/// deleted rows during its transaction.
const IDLE_SNAPSHOT_MAX: Duration = Duration::from_secs(60);

const IDLE_CONNECTION: Duration = Duration::from_secs(60);

pub(crate) struct Pool {
    connector: Arc<Connector>,
    idle: Mutex<Vec<(PostgresConnection, Instant)>>,
    permits: Arc<Semaphore>,
    size: usize,
    settings: String,
    leases: Mutex<Vec<Weak<Lease>>>,
    fault: Mutex<Option<StorageError>>,
    created: AtomicU64,
    reclaimed: AtomicU64,
}

pub(crate) struct PooledConnection {
    link: Option<PostgresConnection>,
    is_in_transaction: AtomicBool,
    is_broken: AtomicBool,
    pool: Arc<Pool>,
    _permit: OwnedSemaphorePermit,
}

impl PooledConnection {
    pub(crate) fn link(&self) -> &PostgresConnection {
        self.link.as_ref().expect("the connection is present until this is dropped")
    }

    pub(crate) fn set_broken(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_usable(&self) -> bool {
        !self.is_broken.load(Ordering::Relaxed) && !self.link().client.is_closed()
    }

    pub(crate) fn is_in_transaction(&self) -> bool {
        self.is_in_transaction.load(Ordering::Relaxed)
    }

    pub(crate) fn set_in_transaction(&self, value: bool) -> bool {
        self.is_in_transaction.swap(value, Ordering::Relaxed)
    }
}

impl Drop for PooledConnection {
    fn drop(&mut self) {
        let is_usable = self.is_usable();
        if !is_usable {
            // The cause of the failure may have affected the other connections.
            self.pool.idle.lock().clear();
        }
        let Some(link) = self.link.take().filter(|_| is_usable) else { return };
        if self.is_in_transaction() {
            // Sent before any request of the next user.
            poll_once(link.client.batch_execute("ROLLBACK"));
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
            leases: Mutex::default(),
            fault: Mutex::default(),
            created: AtomicU64::new(0),
            reclaimed: AtomicU64::new(0),
        })
    }

    pub(crate) fn connector(&self) -> &Connector {
        &self.connector
    }

    pub(crate) fn fault(&self) -> Option<StorageError> {
        self.fault.lock().clone()
    }

    /// Returns the numbers of open connections, leased ones, those created so far, and snapshots that lost theirs.
    pub(crate) fn counts(&self) -> [u64; 4] {
        let used = self.size - self.permits.available_permits();
        let open = used + self.idle.lock().len();
        let [created, reclaimed] = [&self.created, &self.reclaimed].map(|counter| counter.load(Ordering::Relaxed));
        [open as u64, used as u64, created, reclaimed]
    }

    pub(crate) async fn acquire(self: &Arc<Self>) -> Result<PooledConnection> {
        let permit = self.permit().await?;
        let next_idle = || std::iter::from_fn(|| self.idle.lock().pop()).find(|(link, _)| !link.client.is_closed());
        let link = match next_idle() {
            Some((link, _)) => link,
            None => self.connect().await?,
        };
        let [is_in_transaction, is_broken] = [AtomicBool::new(false), AtomicBool::new(false)];
        Ok(PooledConnection { link: Some(link), is_in_transaction, is_broken, pool: Arc::clone(self), _permit: permit })
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit> {
        if let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() {
            return Ok(permit);
        }
        let started = Instant::now();
        // Keeps its position in the queue.
        let mut permit = pin!(Arc::clone(&self.permits).acquire_owned());
        let mut interval = RECLAIM_INTERVAL;
        loop {
            self.reclaim_idle(IDLE_SNAPSHOT.saturating_sub(started.elapsed()).max(IDLE_SNAPSHOT_MIN));
            if let Ok(Ok(permit)) = tokio::time::timeout(interval, &mut permit).await {
                return Ok(permit);
            }
            interval = (interval * 2).min(RECLAIM_INTERVAL_MAX);
            if started.elapsed() > ACQUIRE_TIMEOUT {
                return Err(StorageError::Unreached(format!(
                    "all {} connections to PostgreSQL were busy for {} s",
                    self.size,
                    ACQUIRE_TIMEOUT.as_secs()
                )));
            }
        }
    }

    /// Retries an idempotent operation if its connection is lost.
    pub(crate) async fn with_retries<T>(
        self: &Arc<Self>,
        operation: impl AsyncFn(&PostgresConnection) -> Result<T, Failure>,
    ) -> Result<T> {
        let mut attempts = 0;
        loop {
            let leased = self.acquire().await?;
            match operation(leased.link()).await {
                Ok(answer) => return Ok(answer),
                Err(failure) => {
                    // A transaction that the operation had started must be rolled back.
                    leased.set_in_transaction(true);
                    if matches!(failure, Failure::Lost(_)) {
                        leased.set_broken();
                    }
                    let is_final = !matches!(failure, Failure::Lost(_) | Failure::Retry(_));
                    if is_final || attempts == ATTEMPTS_MAX {
                        return Err(failure.into_error());
                    }
                    attempts += 1;
                }
            }
        }
    }

    /// Retries during a short outage, and fails at once during a long one.
    async fn connect(&self) -> Result<PostgresConnection> {
        let started = Instant::now();
        loop {
            match self.connector.connect(&self.settings).await {
                Ok(link) => {
                    self.created.fetch_add(1, Ordering::Relaxed);
                    *self.fault.lock() = None;
                    return Ok(link);
                }
                Err(error) => self.record_failure(&error, started)?,
            }
            tokio::time::sleep(CONNECT_RETRY_INTERVAL).await;
        }
    }

    fn record_failure(&self, error: &ConnectError, started: Instant) -> Result<()> {
        let mut fault = self.fault.lock();
        let is_final = matches!(error, ConnectError::Unresponsive) || fault.is_some();
        if started.elapsed() < CONNECT_RETRY_TIMEOUT && !is_final {
            return Ok(());
        }
        let error = StorageError::Unreached(format!("PostgreSQL: {error}"));
        *fault = Some(error.clone());
        Err(error)
    }

    pub(crate) fn register(&self, lease: &Arc<Lease>) {
        let mut leases = self.leases.lock();
        if leases.len() > 4 * self.size {
            leases.retain(|lease| lease.strong_count() > 0);
        }
        leases.push(Arc::downgrade(lease));
    }

    /// Takes the connection of the snapshot that was idle for the longest time, if that is at least `idle`.
    fn reclaim_idle(&self, idle: Duration) -> bool {
        let leases: Vec<Arc<Lease>> = self.leases.lock().iter().filter_map(Weak::upgrade).collect();
        let longest = leases.iter().filter_map(|lease| Some((lease.idle()?, lease))).max_by_key(|(time, _)| *time);
        let Some((time, lease)) = longest else { return false };
        let is_released = time >= idle && lease.release();
        self.reclaimed.fetch_add(u64::from(is_released), Ordering::Relaxed);
        is_released
    }

    /// Closes unused connections, and ends the transactions of old snapshots. Must be called periodically.
    pub(crate) fn maintain(&self) {
        while self.reclaim_idle(IDLE_SNAPSHOT_MAX) {}
        self.leases.lock().retain(|lease| lease.strong_count() > 0);
        self.idle.lock().retain(|(link, since)| !link.client.is_closed() && since.elapsed() < IDLE_CONNECTION);
    }

    pub(crate) async fn reconnect(self: &Arc<Self>) -> Result<()> {
        if self.fault().is_none() {
            return Ok(());
        }
        let leased = self.acquire().await?;
        let answer = leased.link().client.batch_execute("").await;
        answer.map_err(|error| Failure::from(error).into_error())
    }
}
