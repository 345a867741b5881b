//! [`Pool`]: the processes of one query server. Idle processes are kept for reuse, and their number is limited. The
//! pool records which functions each process has loaded, so that they need not be sent again.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use settee_design::{CANCELLATION_INTERVAL, Caller, Cancellation, MapSource, Owner, Shares};

use crate::child::{Failure, Process};
use crate::settings::{Log, Settings};
use crate::starter;

const WAIT_MAX: Duration = Duration::from_secs(60);

/// Number of design documents loaded in one process before it is replaced: the protocol has no command to unload one.
const TAUGHT_MAX: usize = 100;

pub(crate) struct Pool {
    pub(crate) language: Arc<str>,
    command: String,
    pub(crate) settings: Arc<Settings>,
    log: Log,
    state: Mutex<State>,
    freed: Condvar,
}

struct State {
    /// Ordered by last use, the most recent last.
    idle: Vec<(Server, Instant)>,
    /// Busy processes, by client if there is one: not for map and reduce functions.
    calls: Shares,
    lists: Shares,
}

/// Purpose of a process. List functions are counted separately: they last as long as their clients read, and computing
/// the rows that they wait for may need processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Call,
    List,
}

pub(crate) struct Server {
    pub(crate) process: Process,
    /// True if the settings were sent.
    pub(crate) is_prepared: bool,
    /// Map functions added since its last reset.
    pub(crate) program: Option<Arc<MapSource>>,
    /// Loaded design documents: database, id and revision.
    pub(crate) taught: Vec<(u64, Arc<str>, Arc<str>)>,
    /// True if it was idle before this use, so that it may have died.
    pub(crate) rested: bool,
}

/// A leased process; returned to the pool when dropped, unless it was discarded.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    wanted: Use,
    owner: Option<Owner>,
    cancellation: Cancellation,
    server: Option<Server>,
}

impl Pool {
    pub(crate) fn new(language: Arc<str>, command: String, settings: Arc<Settings>, log: Log) -> Arc<Self> {
        starter::get_ready();
        let shares = || Shares::new(settings.process_limit);
        let state = Mutex::new(State { idle: Vec::new(), calls: shares(), lists: shares() });
        Arc::new(Self { language, command, settings, log, state, freed: Condvar::new() })
    }

    /// Waits until another process may work for the caller, and leases one, preferably one for which `knows` is true.
    pub(crate) fn lease(
        self: &Arc<Self>,
        wanted: Use,
        caller: &Caller,
        knows: impl Fn(&Server) -> bool,
    ) -> Result<Lease, Failure> {
        let mut state = self.state.lock();
        let owner = caller.owner;
        let start = Instant::now();
        while !state.running(wanted).try_take(owner) {
            caller.cancellation.check()?;
            if start.elapsed() >= WAIT_MAX {
                return Err(Failure::Busy { language: Arc::clone(&self.language) });
            }
            self.freed.wait_for(&mut state, CANCELLATION_INTERVAL);
        }
        let place = state.idle.iter().rposition(|(server, _)| knows(server)).or(state.idle.len().checked_sub(1));
        let server = place.map(|place| state.idle.remove(place).0);
        drop(state);
        let cancellation = caller.cancellation.clone();
        let mut lease = Lease { pool: Arc::clone(self), wanted, owner, cancellation, server };
        if let Some(server) = &mut lease.server {
            server.rested = true;
            server.process.begin_use();
            if !server.process.is_quiet() {
                lease.discard();
            }
        }
        lease.server()?;
        Ok(lease)
    }

    fn start(&self) -> Result<Server, Failure> {
        let process = Process::start(&self.language, &self.command, &self.settings, &self.log)?;
        Ok(Server { process, is_prepared: false, program: None, taught: Vec::new(), rested: false })
    }

    pub(crate) fn end_idle(&self, idle: Duration) {
        let mut state = self.state.lock();
        let (old, kept) = std::mem::take(&mut state.idle).into_iter().partition(|(_, since)| since.elapsed() >= idle);
        state.idle = kept;
        drop(state);
        // Dropping ends processes, which must not happen under the lock.
        drop::<Vec<_>>(old);
    }

    /// Returns the number of busy processes, and of idle ones.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock();
        (state.calls.taken() + state.lists.taken(), state.idle.len())
    }

    pub(crate) fn log(&self, line: &str) {
        (self.log)(&self.language, line);
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

impl Lease {
    /// Returns the process. A discarded one is replaced by a new one.
    pub(crate) fn server(&mut self) -> Result<&mut Server, Failure> {
        if self.server.is_none() {
            self.server = Some(self.pool.start()?);
        }
        let server = self.server.as_mut().expect("it was set before");
        server.process.work_for(&self.cancellation);
        Ok(server)
    }

    pub(crate) fn discard(&mut self) {
        self.server = None;
    }

    /// Returns true if the process was not idle before this use, or is not started yet.
    pub(crate) fn is_fresh(&self) -> bool {
        self.server.as_ref().is_none_or(|server| !server.rested)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut server = self.server.take();
        if let Some(server) = &mut server {
            server.process.work_for(&Cancellation::never());
        }
        let mut state = self.pool.state.lock();
        state.running(self.wanted).give_back(self.owner);
        let mut surplus = None;
        if let Some(server) = server.filter(|server| server.taught.len() < TAUGHT_MAX) {
            state.idle.push((server, Instant::now()));
            if state.idle.len() > self.pool.settings.idle_limit {
                surplus = Some(state.idle.remove(0));
            }
        }
        drop(state);
        self.pool.freed.notify_all();
        drop(surplus);
    }
}
