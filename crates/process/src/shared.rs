//! [`Shared`]: state of a query server that its programs and reducers share.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_design::{Caller, CompileError, Engine, MapSource, RunError};
use settee_model::json;

use crate::child::{Failure, excerpt};
use crate::pool::{Lease, LeasePurpose, Pool, Server};
use crate::projection::{PROJECTED, Projection, WHOLE};
use crate::python;
use crate::settings::ReduceLimit;

const COMPILED_REDUCES_MAX: usize = 1_000;

pub(crate) struct Shared {
    pub(crate) pool: Arc<Pool>,
    /// Sources of reduce functions that compile.
    compiled_reduces: Mutex<HashSet<Arc<str>>>,
}

impl Shared {
    pub(crate) fn new(pool: Arc<Pool>) -> Self {
        Self { pool, compiled_reduces: Mutex::default() }
    }

    pub(crate) fn projection(&self, source: &MapSource) -> Option<Projection> {
        let is_on = self.pool.settings.project_documents;
        is_on.then(|| Projection::of(&self.pool.language, source)).flatten()
    }

    pub(crate) fn engine(&self, projection: Option<&Projection>) -> Option<Engine> {
        let is_python = &*self.pool.language == python::LANGUAGE;
        is_python.then_some(Engine { name: if projection.is_some() { PROJECTED } else { WHOLE }, reason: None })
    }

    pub(crate) fn check_reduce(&self, source: &Arc<str>) -> Result<(), CompileError> {
        if self.compiled_reduces.lock().contains(source) {
            return Ok(());
        }
        let as_program = Arc::new(MapSource { functions: vec![Arc::clone(source)], library: None });
        let mut lease = self
            .pool
            .lease(LeasePurpose::Call, &Caller::default(), |_| false)
            .map_err(|failure| unavailable(&failure))?;
        self.compile(&mut lease, &as_program)?;
        // The process now has the reduce function among its map functions, so it must be reset before it maps.
        lease.server().map_err(|failure| unavailable(&failure))?.program = None;
        let mut compiled_reduces = self.compiled_reduces.lock();
        if compiled_reduces.len() >= COMPILED_REDUCES_MAX {
            compiled_reduces.clear();
        }
        compiled_reduces.insert(Arc::clone(source));
        Ok(())
    }

    /// A process that died while idle is replaced without limit; a new one once, because it may have been killed from
    /// outside.
    pub(crate) fn compile(&self, lease: &mut Lease, source: &Arc<MapSource>) -> Result<(), CompileError> {
        let mut new_process_exits = 0;
        loop {
            new_process_exits += u32::from(lease.is_fresh());
            let failure = match lease.server().and_then(|server| self.load(server, source)) {
                Ok(Loaded::All) => return Ok(()),
                Ok(Loaded::Rejected { reason }) => return Err(CompileError::Source(reason)),
                Err(failure) => failure,
            };
            lease.discard();
            if new_process_exits > 1 || !matches!(failure, Failure::Exited { .. }) {
                return Err(unavailable(&failure));
            }
        }
    }

    fn load(&self, server: &mut Server, source: &Arc<MapSource>) -> Result<Loaded, Failure> {
        if server.program.as_ref() == Some(source) {
            return Ok(Loaded::All);
        }
        self.reset(server)?;
        let mut log = |line: String| self.pool.log(&line);
        let process = &mut server.process;
        if let Some(library) = &source.library {
            let command = [b"[\"add_lib\",", library.as_bytes(), b"]"].concat();
            let answer = process.request(&command, &mut log)?;
            self.expect_true("add_lib", &answer)?;
        }
        for function in &source.functions {
            let mut command = b"[\"add_fun\",".to_vec();
            json::write_string(&mut command, function);
            command.push(b']');
            match process.request(&command, &mut log) {
                Ok(answer) => self.expect_true("add_fun", &answer)?,
                Err(Failure::Rejected { reason, .. }) => return Ok(Loaded::Rejected { reason }),
                Err(failure) => return Err(failure),
            }
        }
        server.program = Some(Arc::clone(source));
        Ok(Loaded::All)
    }

    pub(crate) fn prepare(&self, server: &mut Server) -> Result<(), Failure> {
        if server.is_prepared { Ok(()) } else { self.reset(server) }
    }

    fn reset(&self, server: &mut Server) -> Result<(), Failure> {
        server.program = None;
        let answer = server.process.request(&self.reset_command(), &mut |line| self.pool.log(&line))?;
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
        Err(Failure::ProtocolViolation { language: Arc::clone(&self.pool.language), label })
    }
}

enum Loaded {
    All,
    Rejected { reason: String },
}

pub(crate) fn unavailable(failure: &Failure) -> CompileError {
    CompileError::Unavailable(failure.to_string())
}

pub(crate) fn run_error(failure: Failure, description: &str) -> RunError {
    let fatal = |name: &str, reason| RunError::Fatal { name: name.to_owned(), reason };
    match failure {
        Failure::Timeout { timeout_ms, .. } => {
            fatal("os_process_error", format!("OS process timed out: {description} took longer than {timeout_ms} ms"))
        }
        Failure::Rejected { name, reason } => RunError::Fatal { name, reason: format!("{reason} ({description})") },
        Failure::Limit(label) => fatal("limit_exceeded", format!("{description} {label}")),
        Failure::Exited { .. } | Failure::ProtocolViolation { .. } => {
            fatal("os_process_error", format!("{failure} ({description})"))
        }
        Failure::Start { .. } | Failure::Busy { .. } | Failure::Cancelled(_) => {
            RunError::Machinery(failure.to_string())
        }
    }
}
