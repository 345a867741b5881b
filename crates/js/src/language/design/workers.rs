//! [`DesignWorkers`] assigns design documents to workers, which clients share ([`Shares`]): the owner of a call is the
//! account or the address of its client. A worker has several design documents loaded, each in a separate engine. A
//! call prefers a free worker that has loaded its design document.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use settee_design::{
    CANCELLATION_INTERVAL, CallError, Caller, Cancellation, DesignSource, Limits, Owner, RunError, Shares,
};

use crate::language::requests::{send_and_receive, write_limits};
use crate::pool::{Lease, Pool, PoolSettings, Worker, WorkerError};
use crate::protocol::{Kind, Writer};

const DESIGN_SLOTS: u64 = 16;

const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct DesignWorkers {
    pool: Arc<Pool>,
    settings: PoolSettings,
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    /// Ordered by last use, most recent last.
    idle: Vec<LoadedWorker>,
    calls: Shares,
    lists: Shares,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LeasePurpose {
    Call,
    List,
}

pub(super) struct LoadedWorker {
    pub(super) lease: Lease,
    /// Ordered by last use, most recent last.
    documents: Vec<(Key, u64)>,
    /// True if the worker was idle since its last request, so that it may have died.
    pub(super) was_idle: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) database: u64,
    pub(super) id: Arc<str>,
    pub(super) rev: Arc<str>,
    pub(super) limits: Limits,
}

impl DesignWorkers {
    pub(crate) fn new(pool: Arc<Pool>, settings: PoolSettings) -> Self {
        let shares = || Shares::new(settings.design_calls);
        let state = State { idle: Vec::new(), calls: shares(), lists: shares() };
        Self { pool, settings, state: Mutex::new(state), released: Condvar::new() }
    }

    pub(crate) fn end_idle(&self) {
        let idle = std::mem::take(&mut self.state.lock().idle);
        drop(idle);
    }

    pub(super) fn acquire(
        self: &Arc<Self>,
        key: &Key,
        purpose: LeasePurpose,
        caller: &Caller,
    ) -> Result<DesignLease, WorkerError> {
        let mut state = self.state.lock();
        let owner = caller.owner;
        let start = Instant::now();
        while !state.running(purpose).try_take(owner) {
            caller.cancellation.check()?;
            if start.elapsed() >= ACQUIRE_TIMEOUT {
                return Err(WorkerError::Busy);
            }
            self.released.wait_for(&mut state, CANCELLATION_INTERVAL);
        }
        let slot = state.idle.iter().rposition(|loaded| loaded.has_loaded(key)).or(state.idle.len().checked_sub(1));
        let loaded = slot.map(|slot| state.idle.remove(slot));
        drop(state);
        let mut acquired = DesignLease {
            workers: Arc::clone(self),
            owner,
            purpose,
            cancellation: caller.cancellation.clone(),
            loaded,
        };
        if acquired.loaded.is_none() {
            acquired.loaded = Some(LoadedWorker { lease: self.pool.lease()?, documents: Vec::new(), was_idle: true });
        }
        acquired.worker()?.set_cancellation(&caller.cancellation);
        Ok(acquired)
    }
}

impl State {
    fn running(&mut self, purpose: LeasePurpose) -> &mut Shares {
        match purpose {
            LeasePurpose::Call => &mut self.calls,
            LeasePurpose::List => &mut self.lists,
        }
    }
}

impl LoadedWorker {
    fn has_loaded(&self, key: &Key) -> bool {
        self.documents.iter().any(|(loaded, _)| loaded == key)
    }

    fn slot(&mut self, key: &Key) -> Option<u64> {
        let index = self.documents.iter().position(|(loaded, _)| loaded == key)?;
        let entry = self.documents.remove(index);
        let slot = entry.1;
        self.documents.push(entry);
        Some(slot)
    }

    fn allocate_slot(&mut self) -> u64 {
        if (self.documents.len() as u64) < DESIGN_SLOTS {
            let taken = |slot: &u64| self.documents.iter().any(|(_, used)| used == slot);
            return (0..DESIGN_SLOTS).find(|slot| !taken(slot)).unwrap_or_default();
        }
        self.documents.remove(0).1
    }
}

pub(super) struct DesignLease {
    workers: Arc<DesignWorkers>,
    owner: Option<Owner>,
    pub(super) purpose: LeasePurpose,
    cancellation: Cancellation,
    pub(super) loaded: Option<LoadedWorker>,
}

impl DesignLease {
    pub(super) fn loaded(&mut self) -> Result<&mut LoadedWorker, WorkerError> {
        self.loaded.as_mut().ok_or(WorkerError::ProtocolViolation("a request to a released worker"))
    }

    pub(super) fn worker(&mut self) -> Result<&mut Worker, WorkerError> {
        Ok(self.loaded()?.lease.worker())
    }

    pub(super) fn discard(&mut self) {
        if let Some(loaded) = self.loaded.take() {
            loaded.lease.discard();
        }
    }

    pub(super) fn load(&mut self, key: &Key, source: &DesignSource, limits: Limits) -> Result<u64, CallError> {
        let machinery = |error: WorkerError| CallError::Run(RunError::Machinery(error.to_string()));
        let loaded = self.loaded().map_err(machinery)?;
        if let Some(slot) = loaded.slot(key) {
            return Ok(slot);
        }
        let mut request = Vec::new();
        let mut writer = Writer(&mut request);
        write_limits(&mut writer, limits);
        writer.bytes(source.id.as_bytes());
        writer.bytes(&source.json);
        loop {
            let loaded = self.loaded().map_err(machinery)?;
            let slot = loaded.allocate_slot();
            let number = usize::try_from(slot).unwrap_or_default();
            match send_and_receive(loaded.lease.worker(), Kind::LoadDesign, number, &request, limits) {
                Ok((Kind::Done, _)) => {
                    loaded.documents.push((key.clone(), slot));
                    loaded.was_idle = false;
                    return Ok(slot);
                }
                Ok((Kind::Refused, message)) => {
                    let reason = String::from_utf8_lossy(&message).into_owned();
                    return Err(CallError::Failed { name: "compilation_error".to_owned(), reason });
                }
                Err(WorkerError::Exited(..) | WorkerError::Io(_)) if loaded.was_idle => {
                    self.discard();
                    let mut lease = self.workers.pool.lease_new_process().map_err(machinery)?;
                    lease.worker().set_cancellation(&self.cancellation);
                    self.loaded = Some(LoadedWorker { lease, documents: Vec::new(), was_idle: false });
                }
                Ok(_) => {
                    self.discard();
                    return Err(machinery(WorkerError::ProtocolViolation("an unexpected response")));
                }
                Err(error) => {
                    self.discard();
                    return Err(machinery(error));
                }
            }
        }
    }
}

impl Drop for DesignLease {
    fn drop(&mut self) {
        let loaded = self.loaded.take();
        let mut state = self.workers.state.lock();
        state.running(self.purpose).give_back(self.owner);
        let mut surplus = None;
        if let Some(mut loaded) = loaded {
            loaded.was_idle = true;
            loaded.lease.worker().set_cancellation(&Cancellation::never());
            state.idle.push(loaded);
            if state.idle.len() > self.workers.settings.idle_workers {
                surplus = Some(state.idle.remove(0));
            }
        }
        drop(state);
        self.workers.released.notify_all();
        // The drop may end a process, so it must not happen under the lock.
        drop(surplus);
    }
}
