//! [`Pool`]: the processes of one query server, limited, reused, and with a record of their loaded functions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use settee_design::{CANCELLATION_INTERVAL, Caller, Cancellation, MapSource, Owner, Shares};

use crate::child::{Failure, Process};
use crate::settings::{Log, Settings};
use crate::spawner::SPAWNER;

const LEASE_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of design documents per process, because the protocol has no command to unload one.
const LOADED_MAX: usize = 100;

pub(crate) struct Pool {
    pub(crate) language: Arc<str>,
    command: String,
    pub(crate) settings: Arc<Settings>,
    log: Log,
    state: Mutex<State>,
    released: Condvar,
}

struct State {
    /// Ordered by last use, the most recent last.
    idle: Vec<(Server, Instant)>,
    /// Busy processes, by client for calls; map and reduce functions have no client.
    calls: Shares,
    lists: Shares,
}

/// Purpose of a lease. List functions have a separate limit: they last as long as their clients read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeasePurpose {
    Call,
    List,
}

pub(crate) struct Server {
    pub(crate) process: Process,
    pub(crate) is_prepared: bool,
    pub(crate) program: Option<Arc<MapSource>>,
    /// Loaded design documents: database, id, revision.
    pub(crate) loaded: Vec<(u64, Arc<str>, Arc<str>)>,
    /// True if the process was idle before this lease, so that it may have died.
    pub(crate) was_idle: bool,
}

pub(crate) struct Lease {
    pool: Arc<Pool>,
    purpose: LeasePurpose,
    owner: Option<Owner>,
    cancellation: Cancellation,
    server: Option<Server>,
}

impl Pool {
    pub(crate) fn new(language: Arc<str>, command: String, settings: Arc<Settings>, log: Log) -> Arc<Self> {
        SPAWNER.ensure_started();
        let shares = || Shares::new(settings.process_limit);
        let state = Mutex::new(State { idle: Vec::new(), calls: shares(), lists: shares() });
        Arc::new(Self { language, command, settings, log, state, released: Condvar::new() })
    }

    /// Leases a process, preferably one for which `has_loaded` is true. Waits at most [`LEASE_TIMEOUT`] for a permit.
    pub(crate) fn lease(
        self: &Arc<Self>,
        purpose: LeasePurpose,
        caller: &Caller,
        has_loaded: impl Fn(&Server) -> bool,
    ) -> Result<Lease, Failure> {
        let mut state = self.state.lock();
        let owner = caller.owner;
        let start = Instant::now();
        while !state.running(purpose).try_take(owner) {
            caller.cancellation.check()?;
            if start.elapsed() >= LEASE_TIMEOUT {
                return Err(Failure::Busy { language: Arc::clone(&self.language) });
            }
            self.released.wait_for(&mut state, CANCELLATION_INTERVAL);
        }
        let position =
            state.idle.iter().rposition(|(server, _)| has_loaded(server)).or(state.idle.len().checked_sub(1));
        let server = position.map(|position| state.idle.remove(position).0);
        drop(state);
        let cancellation = caller.cancellation.clone();
        let mut lease = Lease { pool: Arc::clone(self), purpose, owner, cancellation, server };
        if let Some(server) = &mut lease.server {
            server.was_idle = true;
            server.process.reset_stderr_log();
            if !server.process.has_no_unsolicited_response() {
                lease.discard();
            }
        }
        lease.server()?;
        Ok(lease)
    }

    fn start(&self) -> Result<Server, Failure> {
        let process = Process::start(&self.language, &self.command, &self.settings, &self.log)?;
        Ok(Server { process, is_prepared: false, program: None, loaded: Vec::new(), was_idle: false })
    }

    pub(crate) fn end_idle(&self, idle: Duration) {
        let mut state = self.state.lock();
        let (old, kept) = std::mem::take(&mut state.idle).into_iter().partition(|(_, since)| since.elapsed() >= idle);
        state.idle = kept;
        drop(state);
        // Dropping terminates processes, which must not happen under the lock.
        drop::<Vec<_>>(old);
    }

    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.calls.taken() + state.lists.taken(), state.idle.len())
    }

    pub(crate) fn log(&self, line: &str) {
        (self.log)(&self.language, line);
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

impl Lease {
    pub(crate) fn server(&mut self) -> Result<&mut Server, Failure> {
        if self.server.is_none() {
            self.server = Some(self.pool.start()?);
        }
        let server = self.server.as_mut().expect("it was set before");
        server.process.set_cancellation(&self.cancellation);
        Ok(server)
    }

    pub(crate) fn discard(&mut self) {
        self.server = None;
    }

    /// Returns true if the process cannot have died while idle.
    pub(crate) fn is_fresh(&self) -> bool {
        self.server.as_ref().is_none_or(|server| !server.was_idle)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut server = self.server.take();
        if let Some(server) = &mut server {
            server.process.set_cancellation(&Cancellation::never());
        }
        let mut state = self.pool.state.lock();
        state.running(self.purpose).give_back(self.owner);
        let mut surplus = None;
        if let Some(server) = server.filter(|server| server.loaded.len() < LOADED_MAX) {
            state.idle.push((server, Instant::now()));
            if state.idle.len() > self.pool.settings.idle_limit {
                surplus = Some(state.idle.remove(0));
            }
        }
        drop(state);
        self.pool.released.notify_all();
        drop(surplus);
    }
}
