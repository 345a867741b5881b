//! The language that a query server runs: [`QueryServer`].

use std::collections::HashSet;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use settee_design::{
    CompileError, DesignProgram, DesignSource, Engine, Language, Limits, MapSource, Program, Reducer, RunError,
};
use settee_model::json;

use crate::child::Failure;
use crate::functions::Calls;
use crate::map::{Mapper, PROJECTED, WHOLE};
use crate::pool::{Lease, Pool, Server, Use};
use crate::projection::Projection;
use crate::python;
use crate::reduce::FunctionReducer;

/// Takes lines for the log: the name of the language, and what its server said.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Sources of reduce functions that are remembered as good.
const CHECKED_MAX: usize = 1_000;

/// The limits and settings of query servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Processes of one language that work at a time; further ones wait. As many may run list functions besides.
    /// CouchDB's `os_process_limit`.
    pub process_limit: usize,
    /// Idle processes of one language that are kept. CouchDB's `os_process_soft_limit`.
    pub idle_limit: usize,
    /// The longest time that one answer may take. CouchDB's `os_process_timeout`.
    pub timeout_ms: u64,
    /// The least time for the first answer of a process: a virtual machine may need some to start on a busy computer, which
    /// is no fault of the function that it is asked to compile.
    pub start_timeout_ms: u64,
    /// The bytes that a process may allocate, if that is limited. Only Linux can.
    pub memory_bytes: Option<u64>,
    /// The setting that servers get for reductions that do not shrink. CouchDB's `reduce_limit`.
    pub reduce_limit: ReduceLimit,
    /// Whether servers are sent only those members of documents that map functions can see, where that is known: in
    /// Python. CouchDB sends whole documents.
    pub project_documents: bool,
    /// The whole environment of the processes.
    pub environment: Vec<(OsString, OsString)>,
}

/// Whether reductions must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceLimit {
    /// They need not.
    Off,
    /// Those that do not fail.
    On,
    /// Those that do not are logged.
    Log,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            process_limit: 100,
            idle_limit: 100,
            timeout_ms: 5_000,
            start_timeout_ms: 30_000,
            memory_bytes: Some(2 << 30),
            reduce_limit: ReduceLimit::On,
            project_documents: true,
            environment: Vec::new(),
        }
    }
}

/// A language whose functions run in processes of one command. Clones share their processes.
///
/// No process is started before a function is to be compiled. The limits that callers give with functions hold for rows and
/// bytes; time and memory are those of [`Settings`], because a process serves many functions.
#[derive(Clone)]
pub struct QueryServer(Arc<Shared>);

/// The part of the server that programs and reducers need.
pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    /// Sources of reduce functions that compile.
    checked: Mutex<HashSet<Arc<str>>>,
}

impl QueryServer {
    /// The language `name`, run by `command`, which is a command line for the shell.
    #[must_use]
    pub fn new(name: &str, command: &str, settings: Settings, log: Log) -> Self {
        let pool = Pool::new(name.into(), command.to_owned(), Arc::new(settings), log);
        Self(Arc::new(Shared { pool, checked: Mutex::default() }))
    }

    /// Ends processes that nobody has used for `idle`; with zero all that are idle.
    pub fn end_idle(&self, idle: Duration) {
        self.0.pool.end_idle(idle);
    }

    /// The number of processes that are at work, and how many are idle.
    #[must_use]
    pub fn processes(&self) -> (usize, usize) {
        self.0.pool.count()
    }
}

impl Language for QueryServer {
    fn name(&self) -> &str {
        &self.0.pool.language
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(Mapper::new(Arc::clone(&self.0), source.clone(), limits)?))
    }

    fn engines(&self, source: &MapSource) -> Vec<Engine> {
        let engine = self.0.engine(self.0.projection(source).as_ref());
        source.functions.iter().filter_map(|_| engine).collect()
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        let source: Arc<str> = source.into();
        self.0.check_reduce(&source)?;
        Ok(Box::new(FunctionReducer::new(Arc::clone(&self.0), source, limits)))
    }

    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(Calls::new(Arc::clone(&self.0), source.clone(), limits)))
    }
}

impl Shared {
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
    fn check_reduce(&self, source: &Arc<str>) -> Result<(), CompileError> {
        if self.checked.lock().contains(source) {
            return Ok(());
        }
        let as_program = Arc::new(MapSource { functions: vec![Arc::clone(source)], library: None });
        let mut lease = self.pool.lease(Use::Call, None, |_| false).map_err(|failure| unavailable(&failure))?;
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
        let what = format!("its answer to {command} is not true but {}", crate::child::excerpt(answer));
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
        Failure::Start { .. } | Failure::Busy { .. } => RunError::Machinery(failure.to_string()),
    }
}
