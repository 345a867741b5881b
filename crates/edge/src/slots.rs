//! [`Slots`]: limits the number of connections, and closes idle ones if a client waits and all slots are in use. A few
//! thousand idle connections could lock out all other clients. The connection that has been idle longest is closed
//! first, which loses no request. Connections with a request in progress, which includes live feeds, stay open.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// A client that has just received a response may be about to send the next request.
const IDLE_MIN: Duration = Duration::from_micros(100);

const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// One in this number of connections is closed per check, because a check scans all connections.
const CLOSED_FRACTION: usize = 256;

pub struct Slots {
    free: Arc<Semaphore>,
    most: usize,
    taken: Mutex<HashMap<u64, Weak<Ending>>>,
    next: AtomicU64,
    started: Instant,
}

pub struct Slot {
    ending: Arc<Ending>,
    id: u64,
    slots: Arc<Slots>,
    _permit: OwnedSemaphorePermit,
}

pub struct Ending {
    aborted: Notify,
    is_aborted: AtomicBool,
    close_requested: Notify,
    is_close_requested: AtomicBool,
    open: AtomicUsize,
    started: Instant,
    idle_since_us: AtomicU64,
}

impl Slots {
    pub fn new(most: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(most));
        Arc::new(Self { free, most, taken: Mutex::default(), next: AtomicU64::new(0), started: Instant::now() })
    }

    pub async fn take(self: &Arc<Self>) -> Slot {
        let mut permit = pin!(Arc::clone(&self.free).acquire_owned());
        loop {
            tokio::select! {
                biased;
                permit = &mut permit => return self.enter(permit.expect("it is never closed")),
                () = async {
                    self.make_room();
                    sleep(POLL_INTERVAL).await;
                } => {}
            }
        }
    }

    fn enter(self: &Arc<Self>, permit: OwnedSemaphorePermit) -> Slot {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let ending = Arc::new(Ending::new(self.started));
        self.taken.lock().insert(id, Arc::downgrade(&ending));
        Slot { ending, id, slots: Arc::clone(self), _permit: permit }
    }

    fn make_room(&self) {
        let now_us = micros(self.started.elapsed());
        let endings: Vec<Arc<Ending>> = self.taken.lock().values().filter_map(Weak::upgrade).collect();
        // Connections that are closing already have slots until they are closed.
        let closing = endings.iter().filter(|ending| ending.is_closing()).count();
        let count = (self.most / CLOSED_FRACTION).max(1).saturating_sub(closing);
        let idle = |ending: Arc<Ending>| {
            let idle_us = ending.idle_us(now_us).filter(|idle_us| u128::from(*idle_us) >= IDLE_MIN.as_micros())?;
            Some((idle_us, ending))
        };
        if count == 0 {
            return;
        }
        let mut idle: Vec<(u64, Arc<Ending>)> = endings.into_iter().filter_map(idle).collect();
        if idle.len() > count {
            idle.select_nth_unstable_by_key(count - 1, |(idle_us, _)| std::cmp::Reverse(*idle_us));
            idle.truncate(count);
        }
        for (idle_us, ending) in idle {
            tracing::debug!(idle_us, "an idle connection is closed for another client");
            ending.request_close();
        }
    }
}

impl Slot {
    pub fn ending(&self) -> &Arc<Ending> {
        &self.ending
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.slots.taken.lock().remove(&self.id);
    }
}

impl Ending {
    pub fn new(started: Instant) -> Self {
        Self {
            aborted: Notify::new(),
            is_aborted: AtomicBool::new(false),
            close_requested: Notify::new(),
            is_close_requested: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            started,
            idle_since_us: AtomicU64::new(micros(started.elapsed())),
        }
    }

    /// Aborts the connection, even within a request.
    pub fn abort(&self) {
        self.is_aborted.store(true, Ordering::Relaxed);
        self.aborted.notify_one();
    }

    pub fn is_aborted(&self) -> bool {
        self.is_aborted.load(Ordering::Relaxed)
    }

    /// Completes when the connection must be aborted.
    pub async fn aborted(&self) {
        self.aborted.notified().await;
    }

    /// Completes when the connection is asked to close in order.
    pub async fn close_requested(&self) {
        self.close_requested.notified().await;
    }

    pub fn is_close_requested(&self) -> bool {
        self.is_close_requested.load(Ordering::Relaxed)
    }

    fn request_close(&self) {
        self.is_close_requested.store(true, Ordering::Relaxed);
        self.close_requested.notify_one();
    }

    pub fn request_begins(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub fn request_ends(&self) {
        self.idle_since_us.store(micros(self.started.elapsed()), Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Release);
    }

    pub fn has_requests(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    fn is_closing(&self) -> bool {
        !self.has_requests() && (self.is_close_requested() || self.is_aborted())
    }

    fn idle_us(&self, now_us: u64) -> Option<u64> {
        let stays = self.has_requests() || self.is_close_requested() || self.is_aborted();
        (!stays).then(|| now_us.saturating_sub(self.idle_since_us.load(Ordering::Relaxed)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
