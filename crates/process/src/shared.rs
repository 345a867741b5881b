//! [`Shared`]: the part of a query server that its programs and reducers share: its processes and information about
//! functions.
//!
//! It loads functions into processes, and converts failures for callers. The modules above determine the arguments of
//! functions.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_design::{Caller, CompileError, Engine, MapSource, RunError};
use settee_model::json;

use crate::child::{Failure, excerpt};
use crate::pool::{Lease, Pool, Server, Use};
use crate::projection::{PROJECTED, Projection, WHOLE};
use crate::python;
use crate::settings::ReduceLimit;

/// Maximum number of cached sources of valid reduce functions.
const CHECKED_MAX: usize = 1_000;

pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    /// Sources of reduce functions that compile.
    checked: Mutex<HashSet<Arc<str>>>,
}

impl Shared {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, checked: Mutex::default() }
    }

    /// Returns the members of documents that are sent to the functions of `source`; `None` for whole documents.
    pub(crate) fn projection(&self, source: &MapSource) -> Option<Projection> {
        let is_on = self.pool.settings.project_documents;
        is_on.then(|| Projection::of(&self.pool.language, source)).flatten()
    }

    /// Returns the name of the engine, in languages that have two.
    pub(crate) fn engine(&self, projection: Option<&Projection>) -> Option<Engine> {
        let is_python = &*self.pool.language == python::LANGUAGE;
        is_python.then_some(Engine { name: if projection.is_some() { PROJECTED } else { WHOLE }, reason: None })
    }

    /// Compiles a reduce function on a server, unless it was compiled before.
    pub(crate) fn check_reduce(&self, source: &Arc<str>) -> Result<(), CompileError> {
        if self.checked.lock().contains(source) {
            return Ok(());
        }
        let as_program = Arc::new(MapSource { functions: vec![Arc::clone(source)], library: None });
        let mut lease =
            self.pool.lease(Use::Call, &Caller::default(), |_| false).map_err(|failure| unavailable(&failure))?;
        self.compile(&mut lease, &as_program)?;
        // The function was added to the map functions of the server.
        lease.server().map_err(|failure| unavailable(&failure))?.program = None;
        let mut checked = self.checked.lock();
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(Arc::clone(source));
        Ok(())
    }

    /// Compiles map functions in a process. A process that died while idle is replaced, and a new one once, because it
    /// may have been killed from outside.
    pub(crate) fn compile(&self, lease: &mut Lease, source: &Arc<MapSource>) -> Result<(), CompileError> {
        let mut fresh_died = 0;
        loop {
            fresh_died += u32::from(lease.is_fresh());
            let failure = match lease.server().and_then(|server| self.load(server, source)) {
                Ok(Loaded::All) => return Ok(()),
                Ok(Loaded::Refused { reason }) => return Err(CompileError::Source(reason)),
                Err(failure) => failure,
            };
            lease.discard();
            if fresh_died > 1 || !matches!(failure, Failure::Died { .. }) {
                return Err(unavailable(&failure));
            }
        }
    }

    /// Adds map functions to a process, unless they are loaded.
    fn load(&self, server: &mut Server, source: &Arc<MapSource>) -> Result<Loaded, Failure> {
        if server.program.as_ref() == Some(source) {
            return Ok(Loaded::All);
        }
        self.reset(server)?;
        let mut log = |line: String| self.pool.log(&line);
        let process = &mut server.process;
        if let Some(library) = &source.library {
            let command = [b"[\"add_lib\",", library.as_bytes(), b"]"].concat();
            let answer = process.ask(&command, &mut log)?;
            self.expect_true("add_lib", &answer)?;
        }
        for function in &source.functions {
            let mut command = b"[\"add_fun\",".to_vec();
            json::write_string(&mut command, function);
            command.push(b']');
            match process.ask(&command, &mut log) {
                Ok(answer) => self.expect_true("add_fun", &answer)?,
                Err(Failure::Refused { reason, .. }) => return Ok(Loaded::Refused { reason }),
                Err(failure) => return Err(failure),
            }
        }
        server.program = Some(Arc::clone(source));
        Ok(Loaded::All)
    }

    /// Sends the settings to a new process, for functions that need no reset.
    pub(crate) fn prepare(&self, server: &mut Server) -> Result<(), Failure> {
        if server.is_prepared { Ok(()) } else { self.reset(server) }
    }

    fn reset(&self, server: &mut Server) -> Result<(), Failure> {
        server.program = None;
        let answer = server.process.ask(&self.reset_command(), &mut |line| self.pool.log(&line))?;
        server.is_prepared = true;
        self.expect_true("reset", &answer)
    }

    fn reset_command(&self) -> Vec<u8> {
        let settings = &self.pool.settings;
        let reduce_limit = match settings.reduce_limit {
            ReduceLimit::Off => "false",
            ReduceLimit::On => "true",
            ReduceLimit::Log => "\"log\"",
        };
        let timeout = settings.timeout_ms;
        format!("[\"reset\",{{\"reduce_limit\":{reduce_limit},\"timeout\":{timeout}}}]").into_bytes()
    }

    fn expect_true(&self, command: &str, answer: &[u8]) -> Result<(), Failure> {
        if answer == b"true" {
            return Ok(());
        }
        let label = format!("its answer to {command} is not true but {}", excerpt(answer));
        Err(Failure::Garbled { language: Arc::clone(&self.pool.language), label })
    }
}

enum Loaded {
    All,
    Refused { reason: String },
}

pub(crate) fn unavailable(failure: &Failure) -> CompileError {
    CompileError::Unavailable(failure.to_string())
}

pub(crate) fn run_error(failure: Failure, place: &str) -> RunError {
    let fatal = |name: &str, reason| RunError::Fatal { name: name.to_owned(), reason };
    match failure {
        Failure::Timeout { timeout_ms, .. } => {
            fatal("os_process_error", format!("OS process timed out: {place} took longer than {timeout_ms} ms"))
        }
        Failure::Refused { name, reason } => RunError::Fatal { name, reason: format!("{reason} ({place})") },
        Failure::Limit(label) => fatal("limit_exceeded", format!("{place} {label}")),
        Failure::Died { .. } | Failure::Garbled { .. } => fatal("os_process_error", format!("{failure} ({place})")),
        Failure::Start { .. } | Failure::Busy { .. } | Failure::Cancelled(_) => {
            RunError::Machinery(failure.to_string())
        }
    }
}
