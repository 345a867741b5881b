//! Assignment of design documents to workers: [`DesignWorkers`].
//!
//! Workers are shared between clients ([`Shares`]): the owner of a call is the account or the address of its client.
//!
//! A worker has several design documents loaded, each in an engine of its own. A call gets a worker that has its design
//! document loaded, if one is free, so that repeated calls need no compilation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use settee_design::{
    CANCELLATION_INTERVAL, CallError, Caller, Cancellation, DesignSource, Limits, Owner, RunError, Shares,
};

use crate::language::{ask, write_limits};
use crate::pool::{Lease, Pool, PoolSettings, Worker, WorkerError};
use crate::protocol::{Kind, Writer};

/// Maximum number of design documents loaded in one worker.
const PLACES: u64 = 16;

/// Maximum wait of a call for the end of others.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub(in crate::language) struct DesignWorkers {
    pool: Arc<Pool>,
    settings: PoolSettings,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// Ordered by last use, the most recent last.
    idle: Vec<Taught>,
    calls: Shares,
    lists: Shares,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Call,
    List,
}

/// A worker and its loaded design documents.
pub(super) struct Taught {
    pub(super) lease: Lease,
    /// Ordered by last use, the most recent last.
    known: Vec<(Key, u64)>,
    /// True if it was idle since its last request, so that it may have died.
    pub(super) rested: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) database: u64,
    pub(super) id: Arc<str>,
    pub(super) rev: Arc<str>,
    pub(super) limits: Limits,
}

impl DesignWorkers {
    pub(in crate::language) fn new(pool: Arc<Pool>, settings: PoolSettings) -> Self {
        let shares = || Shares::new(settings.design_calls);
        let state = State { idle: Vec::new(), calls: shares(), lists: shares() };
        Self { pool, settings, state: Mutex::new(state), freed: Condvar::new() }
    }

    pub(in crate::language) fn end_idle(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        drop(idle);
    }

    /// Waits until the caller may run another function, and leases a worker, preferably one that has loaded `key`.
    pub(super) fn borrow(self: &Arc<Self>, key: &Key, wanted: Use, caller: &Caller) -> Result<Borrowed, WorkerError> {
        let mut state = self.state.lock();
        let owner = caller.owner;
        let start = Instant::now();
        while !state.running(wanted).try_take(owner) {
            caller.cancellation.check()?;
            if start.elapsed() >= WAIT_MAX {
                return Err(WorkerError::Busy);
            }
            self.freed.wait_for(&mut state, CANCELLATION_INTERVAL);
        }
        let place = state.idle.iter().rposition(|taught| taught.knows(key)).or(state.idle.len().checked_sub(1));
        let taught = place.map(|place| state.idle.remove(place));
        drop(state);
        let mut borrowed =
            Borrowed { workers: Arc::clone(self), owner, wanted, cancellation: caller.cancellation.clone(), taught };
        if borrowed.taught.is_none() {
            borrowed.taught = Some(Taught { lease: self.pool.lease()?, known: Vec::new(), rested: true });
        }
        borrowed.worker()?.work_for(&caller.cancellation);
        Ok(borrowed)
    }
}

impl State {
    fn running(&mut self, wanted: Use) -> &mut Shares {
        match wanted {
            Use::Call => &mut self.calls,
            Use::List => &mut self.lists,
        }
    }
}

impl Taught {
    fn knows(&self, key: &Key) -> bool {
        self.known.iter().any(|(known, _)| known == key)
    }

    fn place(&mut self, key: &Key) -> Option<u64> {
        let index = self.known.iter().position(|(known, _)| known == key)?;
        let entry = self.known.remove(index);
        let place = entry.1;
        self.known.push(entry);
        Some(place)
    }

    /// Returns a slot for another design document; the least recently used one is evicted if necessary.
    fn free_place(&mut self) -> u64 {
        if (self.known.len() as u64) < PLACES {
            let taken = |place: &u64| self.known.iter().any(|(_, known)| known == place);
            return (0..PLACES).find(|place| !taken(place)).unwrap_or_default();
        }
        self.known.remove(0).1
    }
}

/// A worker leased for calls; returned to the pool when dropped.
pub(super) struct Borrowed {
    workers: Arc<DesignWorkers>,
    owner: Option<Owner>,
    pub(super) wanted: Use,
    cancellation: Cancellation,
    /// `None` only after it was discarded.
    pub(super) taught: Option<Taught>,
}

impl Borrowed {
    pub(super) fn taught(&mut self) -> Result<&mut Taught, WorkerError> {
        self.taught.as_mut().ok_or(WorkerError::Garbled("a request after the end"))
    }

    pub(super) fn worker(&mut self) -> Result<&mut Worker, WorkerError> {
        Ok(self.taught()?.lease.worker())
    }

    pub(super) fn discard(&mut self) {
        if let Some(taught) = self.taught.take() {
            taught.lease.discard();
        }
    }

    /// Loads a design document into the worker; returns its slot.
    pub(super) fn teach(&mut self, key: &Key, source: &DesignSource, limits: Limits) -> Result<u64, CallError> {
        let machinery = |error: WorkerError| CallError::Run(RunError::Machinery(error.to_string()));
        let taught = self.taught().map_err(machinery)?;
        if let Some(place) = taught.place(key) {
            return Ok(place);
        }
        let mut request = Vec::new();
        let mut writer = Writer(&mut request);
        write_limits(&mut writer, limits);
        writer.bytes(source.id.as_bytes());
        writer.bytes(&source.json);
        loop {
            let taught = self.taught().map_err(machinery)?;
            let place = taught.free_place();
            let number = usize::try_from(place).unwrap_or_default();
            match ask(taught.lease.worker(), Kind::Teach, number, &request, limits) {
                Ok((Kind::Done, _)) => {
                    taught.known.push((key.clone(), place));
                    taught.rested = false;
                    return Ok(place);
                }
                Ok((Kind::Refused, message)) => {
                    let reason = String::from_utf8_lossy(&message).into_owned();
                    return Err(CallError::Failed { name: "compilation_error".to_owned(), reason });
                }
                // The worker may have been killed by the kernel or an operator while it was idle.
                Err(WorkerError::Died(..) | WorkerError::Talk(_)) if taught.rested => {
                    self.discard();
                    let mut lease = self.workers.pool.fresh_lease().map_err(machinery)?;
                    lease.worker().work_for(&self.cancellation);
                    self.taught = Some(Taught { lease, known: Vec::new(), rested: false });
                }
                Ok(_) => {
                    self.discard();
                    return Err(machinery(WorkerError::Garbled("a strange answer")));
                }
                Err(error) => {
                    self.discard();
                    return Err(machinery(error));
                }
            }
        }
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        let taught = self.taught.take();
        let mut state = self.workers.state.lock();
        state.running(self.wanted).give_back(self.owner);
        let mut surplus = None;
        if let Some(mut taught) = taught {
            taught.rested = true;
            taught.lease.worker().work_for(&Cancellation::never());
            state.idle.push(taught);
            if state.idle.len() > self.workers.settings.idle_workers {
                surplus = Some(state.idle.remove(0));
            }
        }
        drop(state);
        self.workers.freed.notify_all();
        // Dropping it may end a process, which must not happen under the lock.
        drop(surplus);
    }
}
