//! The server side of the language: [`JavaScript`] encodes requests to worker processes and validates the responses.
//! After any failure the worker is killed, and the next request uses another one.

mod design;
mod map;
mod native;
mod options;
mod reduce;
mod requests;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use settee_design::{
    CompileError, DesignProgram, DesignSource, Engine, Language, Limits, MapSource, Program, Reducer, SearchKind,
};

use self::design::{DesignCalls, DesignWorkers};
use self::native::{Compiled, Programs};
pub use self::options::{Evaluator, ReduceLimit};
use self::reduce::FunctionReducer;
use crate::pool::{Pool, PoolSettings, WorkerCommand, WorkerError};
use crate::protocol::{Kind, Reader};

/// CouchDB's `"language": "javascript"`. Clones share their workers.
#[derive(Clone)]
pub struct JavaScript {
    pool: Arc<Pool>,
    designs: Arc<DesignWorkers>,
    reduce_limit: ReduceLimit,
    natively: Arc<AtomicBool>,
    compiled: Arc<Compiled>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxReport {
    /// Layers of the sandbox that the kernel rejected, with reasons; empty if all are active.
    pub missing: String,
    /// Forbidden operations, and true for those that were rejected.
    pub attempts: Vec<(String, bool)>,
}

impl JavaScript {
    #[must_use]
    pub fn new(command: WorkerCommand, settings: PoolSettings) -> Self {
        let pool = Pool::new(command, settings);
        let designs = Arc::new(DesignWorkers::new(Arc::clone(&pool), settings));
        let (natively, compiled) = (Arc::new(AtomicBool::new(true)), Arc::default());
        Self { pool, designs, reduce_limit: ReduceLimit::default(), natively, compiled }
    }

    #[must_use]
    pub fn with_reduce_limit(mut self, limit: ReduceLimit) -> Self {
        self.reduce_limit = limit;
        self
    }

    #[must_use]
    pub fn with_evaluator(mut self, evaluator: Evaluator) -> Self {
        self.natively = Arc::default();
        self.set_evaluator(evaluator);
        self
    }

    pub fn set_evaluator(&self, evaluator: Evaluator) {
        self.natively.store(evaluator == Evaluator::Native, Ordering::Relaxed);
    }

    fn evaluator(&self) -> Evaluator {
        if self.natively.load(Ordering::Relaxed) { Evaluator::Native } else { Evaluator::Workers }
    }

    /// CouchDB's `_reload_query_servers`.
    pub fn end_idle_workers(&self) {
        self.designs.end_idle();
        self.pool.end_idle();
    }

    pub fn test_sandbox(&self) -> Result<SandboxReport, CompileError> {
        let unavailable = |error: WorkerError| CompileError::Unavailable(error.to_string());
        let timeout = Duration::from_secs(5);
        let mut lease = self.pool.lease_new_process().map_err(unavailable)?;
        let worker = lease.worker();
        let missing = worker.missing().to_owned();
        let mut report = Vec::new();
        let answer = worker.send(Kind::SelfTest, 0, 0).and_then(|()| worker.receive(timeout, &mut report));
        lease.discard();
        answer.map_err(unavailable)?;
        let mut reader = Reader(&report);
        let mut attempts = Vec::new();
        while let (Some(attempt), Some(error)) = (reader.text(), reader.u32()) {
            attempts.push((attempt.to_owned(), error != 0));
        }
        Ok(SandboxReport { missing, attempts })
    }
}

impl Language for JavaScript {
    fn name(&self) -> &str {
        "javascript"
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(Programs::compile((&self.pool, &self.compiled), source, limits, self.evaluator(), None)?))
    }

    fn index_program(
        &self,
        kind: SearchKind,
        source: &MapSource,
        limits: Limits,
    ) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(Programs::compile((&self.pool, &self.compiled), source, limits, self.evaluator(), Some(kind))?))
    }

    fn engines(&self, source: &MapSource) -> Vec<Engine> {
        let natives = native::compile(&Compiled::default(), source, self.evaluator(), None);
        natives.into_iter().map(|function| native::engine(function.err())).collect()
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Ok(Box::new(FunctionReducer::new(Arc::clone(&self.pool), source, limits, self.reduce_limit)?))
    }

    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(DesignCalls::new(Arc::clone(&self.designs), source.clone(), limits)))
    }
}
