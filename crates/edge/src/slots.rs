//! [`Slots`]: limits the number of connections, and closes idle ones if a client waits and all slots are in
//! use.
//!
//! A client may keep a connection without a request for minutes, so a few thousand idle connections could lock
//! out all other clients. The connection that has been idle longest is closed first, which loses no request.
//! Connections with a request in progress, which includes live feeds, stay open.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep};

/// Minimum idle time: a client that has just received a response may be about to send the next request.
const IDLE_MIN: Duration = Duration::from_micros(100);

/// Interval in which a waiter checks for idle connections.
const POLL_INTERVAL: Duration = Duration::from_micros(50);

/// One in this number of connections is closed per check, because a check scans all connections.
const LEAVING_SHARE: usize = 256;

pub struct Slots {
    free: Arc<Semaphore>,
    most: usize,
    taken: Mutex<HashMap<u64, Weak<Ending>>>,
    next: AtomicU64,
    begun: Instant,
}

pub struct Slot {
    ending: Arc<Ending>,
    id: u64,
    slots: Arc<Slots>,
    _permit: OwnedSemaphorePermit,
}

pub struct Ending {
    cut: Notify,
    is_cut: AtomicBool,
    leave: Notify,
    is_leaving: AtomicBool,
    open: AtomicUsize,
    begun: Instant,
    /// Time at which the last request ended.
    idle_since_us: AtomicU64,
}

impl Slots {
    pub fn new(most: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(most));
        Arc::new(Self { free, most, taken: Mutex::default(), next: AtomicU64::new(0), begun: Instant::now() })
    }

    /// Waits for a slot. If none is free, idle connections are asked to close.
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
        let ending = Arc::new(Ending::new(self.begun));
        self.taken.lock().insert(id, Arc::downgrade(&ending));
        Slot { ending, id, slots: Arc::clone(self), _permit: permit }
    }

    /// Asks the connections that have been idle longest to close.
    fn make_room(&self) {
        let now_us = micros(self.begun.elapsed());
        let idle = |ending: &Weak<Ending>| {
            let ending = ending.upgrade()?;
            Some((ending.idle_us(now_us).filter(|idle_us| u128::from(*idle_us) >= IDLE_MIN.as_micros())?, ending))
        };
        let mut idle: Vec<(u64, Arc<Ending>)> = self.taken.lock().values().filter_map(idle).collect();
        let count = (self.most / LEAVING_SHARE).max(1);
        if idle.len() > count {
            idle.select_nth_unstable_by_key(count - 1, |(idle_us, _)| std::cmp::Reverse(*idle_us));
            idle.truncate(count);
        }
        for (idle_us, ending) in idle {
            tracing::debug!(idle_us, "an idle connection is closed for another client");
            ending.ask_to_leave();
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
    /// Creates the signals of a new connection. Times are relative to `begun`.
    pub fn new(begun: Instant) -> Self {
        Self {
            cut: Notify::new(),
            is_cut: AtomicBool::new(false),
            leave: Notify::new(),
            is_leaving: AtomicBool::new(false),
            open: AtomicUsize::new(0),
            begun,
            idle_since_us: AtomicU64::new(micros(begun.elapsed())),
        }
    }

    /// Aborts the connection, even within a request.
    pub fn cut_off(&self) {
        self.is_cut.store(true, Ordering::Relaxed);
        self.cut.notify_one();
    }

    pub fn is_cut(&self) -> bool {
        self.is_cut.load(Ordering::Relaxed)
    }

    /// Completes when the connection must be aborted.
    pub async fn cut(&self) {
        self.cut.notified().await;
    }

    /// Completes when the connection is asked to close in order.
    pub async fn leave(&self) {
        self.leave.notified().await;
    }

    pub fn is_leaving(&self) -> bool {
        self.is_leaving.load(Ordering::Relaxed)
    }

    fn ask_to_leave(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leave.notify_one();
    }

    pub fn request_begins(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub fn request_ends(&self) {
        self.idle_since_us.store(micros(self.begun.elapsed()), Ordering::Relaxed);
        self.open.fetch_sub(1, Ordering::Release);
    }

    /// Returns true if a request is in progress.
    pub fn has_requests(&self) -> bool {
        self.open.load(Ordering::Acquire) > 0
    }

    /// Returns the idle time, or `None` if a request is in progress or the connection is ending.
    fn idle_us(&self, now_us: u64) -> Option<u64> {
        let stays = self.has_requests() || self.is_leaving() || self.is_cut();
        (!stays).then(|| now_us.saturating_sub(self.idle_since_us.load(Ordering::Relaxed)))
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
