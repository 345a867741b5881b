//! The part of a query server that its programs and reducers share: [`Shared`], its processes and what is known of functions.
//!
//! Teaches processes their functions, and says what a failure of theirs means to callers. What functions are called with is the
//! business of the modules above.

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

/// Sources of reduce functions that are remembered as good.
const CHECKED_MAX: usize = 1_000;

/// The part of the server that programs and reducers need.
pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    /// Sources of reduce functions that compile.
    checked: Mutex<HashSet<Arc<str>>>,
}

impl Shared {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, checked: Mutex::default() }
    }

    /// The members of documents that are sent to the functions of `source`; `None` for whole ones.
    pub(crate) fn projection(&self, source: &MapSource) -> Option<Projection> {
        let is_on = self.pool.settings.project_documents;
        is_on.then(|| Projection::of(&self.pool.language, source)).flatten()
    }

    /// The name of a way to run functions, in languages that have two.
    pub(crate) fn engine(&self, projection: Option<&Projection>) -> Option<Engine> {
        let is_python = &*self.pool.language == python::LANGUAGE;
        is_python.then_some(Engine { name: if projection.is_some() { PROJECTED } else { WHOLE }, reason: None })
    }

    /// Has a server compile a reduce function, unless that was done before.
    pub(crate) fn check_reduce(&self, source: &Arc<str>) -> Result<(), CompileError> {
        if self.checked.lock().contains(source) {
            return Ok(());
        }
        let as_program = Arc::new(MapSource { functions: vec![Arc::clone(source)], library: None });
        let mut lease =
            self.pool.lease(Use::Call, &Caller::default(), |_| false).map_err(|failure| unavailable(&failure))?;
        self.compile(&mut lease, &as_program)?;
        // It stands among the map functions now.
        lease.server().map_err(|failure| unavailable(&failure))?.program = None;
        let mut checked = self.checked.lock();
        if checked.len() >= CHECKED_MAX {
            checked.clear();
        }
        checked.insert(Arc::clone(source));
        Ok(())
    }

    /// Has a process compile map functions. One that died while it was idle is replaced, and once a new one: somebody may
    /// have killed it.
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

    /// Adds map functions to a process, unless they are there.
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

    /// Tells a process that is new the settings, for functions that need no reset.
    pub(crate) fn prepare(&self, server: &mut Server) -> Result<(), Failure> {
        if server.is_prepared { Ok(()) } else { self.reset(server) }
    }

    /// Has a process forget its map functions.
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
        let what = format!("its answer to {command} is not true but {}", excerpt(answer));
        Err(Failure::Garbled { language: Arc::clone(&self.pool.language), what })
    }
}

/// The outcome of adding functions.
enum Loaded {
    All,
    Refused { reason: String },
}

/// A server that cannot be had.
pub(crate) fn unavailable(failure: &Failure) -> CompileError {
    CompileError::Unavailable(failure.to_string())
}

/// A failure while functions run, at `place`.
pub(crate) fn run_error(failure: Failure, place: &str) -> RunError {
    let fatal = |name: &str, reason| RunError::Fatal { name: name.to_owned(), reason };
    match failure {
        Failure::Timeout { timeout_ms, .. } => {
            fatal("os_process_error", format!("OS process timed out: {place} took longer than {timeout_ms} ms"))
        }
        Failure::Refused { name, reason } => RunError::Fatal { name, reason: format!("{reason} ({place})") },
        Failure::Limit(what) => fatal("limit_exceeded", format!("{place} {what}")),
        Failure::Died { .. } | Failure::Garbled { .. } => fatal("os_process_error", format!("{failure} ({place})")),
        Failure::Start { .. } | Failure::Busy { .. } | Failure::Cancelled(_) => {
            RunError::Machinery(failure.to_string())
        }
    }
}
