//! The server side of the language: [`JavaScript`] encodes requests to worker processes and validates the responses.
//! After any failure the worker is killed, and the next request uses another one.

mod design;
mod map;
mod native;
mod reduce;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use settee_design::{
    CompileError, DesignProgram, DesignSource, Engine, Language, Limits, MapSource, Program, Reducer, RunError,
    SearchKind,
};

use self::design::{DesignCalls, DesignWorkers};
use self::native::Programs;
use self::reduce::FunctionReducer;
use crate::pool::{Answer, Lease, Pool, PoolSettings, Worker, WorkerCommand, WorkerError};
use crate::protocol::{Kind, Reader, Stop, Writer};

/// CouchDB's `"language": "javascript"`. Clones share their workers.
#[derive(Clone)]
pub struct JavaScript {
    pool: Arc<Pool>,
    designs: Arc<DesignWorkers>,
    reduce_limit: ReduceLimit,
    natively: Arc<AtomicBool>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Evaluator {
    #[default]
    Native,
    Workers,
}

/// Limit on reductions that grow too fast: CouchDB's `reduce_limit`, `reduce_limit_threshold` and `reduce_limit_ratio`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ReduceLimit {
    Off,
    /// Rejects a reduction longer than `threshold_bytes` whose length times `ratio` exceeds the length of its input.
    On {
        threshold_bytes: u64,
        ratio: f64,
    },
}

impl Default for ReduceLimit {
    fn default() -> Self {
        Self::On { threshold_bytes: 5000, ratio: 2.0 }
    }
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
        Self { pool, designs, reduce_limit: ReduceLimit::default(), natively: Arc::new(AtomicBool::new(true)) }
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
        Ok(Box::new(Programs::compile(&self.pool, source, limits, self.evaluator(), None)?))
    }

    fn index_program(
        &self,
        kind: SearchKind,
        source: &MapSource,
        limits: Limits,
    ) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(Programs::compile(&self.pool, source, limits, self.evaluator(), Some(kind))?))
    }

    fn engines(&self, source: &MapSource) -> Vec<Engine> {
        let natives = native::compile(source, self.evaluator(), None);
        natives.into_iter().map(|function| native::engine(function.err())).collect()
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Ok(Box::new(FunctionReducer::new(Arc::clone(&self.pool), source, limits, self.reduce_limit)?))
    }

    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(DesignCalls::new(Arc::clone(&self.designs), source.clone(), limits)))
    }
}

fn timeout(limits: Limits) -> Duration {
    Duration::from_millis(limits.timeout_ms)
}

fn write_limits(writer: &mut Writer<'_>, limits: Limits) {
    let Limits { timeout_ms, memory_bytes, rows_per_document, bytes_per_document, .. } = limits;
    let Limits { key_bytes, value_bytes, reduction_bytes, bytes_per_part, .. } = limits;
    for limit in [timeout_ms, memory_bytes, rows_per_document.into(), bytes_per_document] {
        writer.u64(limit);
    }
    for limit in [key_bytes, value_bytes, reduction_bytes, bytes_per_part] {
        writer.u64(limit);
    }
}

fn compile(
    pool: &Arc<Pool>,
    kind: Kind,
    functions: usize,
    program: &[u8],
    limits: Limits,
) -> Result<(Lease, Vec<u8>), CompileError> {
    let unavailable = |error: WorkerError| CompileError::Unavailable(error.to_string());
    let mut lease = pool.lease().map_err(unavailable)?;
    let mut answer = send_and_receive(lease.worker(), kind, functions, program, limits);
    if matches!(answer, Err(WorkerError::Exited(..) | WorkerError::Io(_))) {
        lease.discard();
        lease = pool.lease_new_process().map_err(unavailable)?;
        answer = send_and_receive(lease.worker(), kind, functions, program, limits);
    }
    match answer {
        Ok((Kind::Done, note)) => Ok((lease, note)),
        Ok((Kind::Refused, message)) => Err(CompileError::Source(String::from_utf8_lossy(&message).into_owned())),
        Ok(_) => {
            lease.discard();
            Err(unavailable(WorkerError::ProtocolViolation("an unexpected response")))
        }
        Err(WorkerError::CallTimeout(_)) => {
            lease.discard();
            Err(CompileError::Source(format!("compiling took longer than {} ms", limits.timeout_ms)))
        }
        Err(error) => {
            lease.discard();
            Err(unavailable(error))
        }
    }
}

const SHORT_ANSWER_BYTES: u64 = 8 << 20;

fn send_and_receive(
    worker: &mut Worker,
    kind: Kind,
    count: usize,
    bytes: &[u8],
    limits: Limits,
) -> Result<(Kind, Vec<u8>), WorkerError> {
    let timeout = timeout(limits);
    worker.reserve(bytes.len())?;
    worker.limit(timeout, limits.memory_bytes)?;
    worker.write(0, bytes);
    worker.send(kind, count, bytes.len())?;
    let mut out = Vec::new();
    // The last part of a response may be a reduction or log lines.
    let longest = limits.bytes_per_part.saturating_add(limits.reduction_bytes).saturating_add(SHORT_ANSWER_BYTES);
    loop {
        let Answer { kind, more } = worker.receive(timeout, &mut out)?;
        if out.len() as u64 > longest {
            return Err(WorkerError::ProtocolViolation("the response is too long"));
        }
        if !more {
            return Ok((kind, out));
        }
        worker.send(Kind::Next, 0, 0)?;
    }
}

/// `location` returns the names of a function and a document for their indexes.
fn run_error(failure: Failure<'_>, limits: Limits, location: impl Fn(usize, usize) -> String) -> RunError {
    let fatal = |name: &str, reason: String| RunError::Fatal { name: name.to_owned(), reason };
    match failure {
        Failure::Stopped(bytes, progress) => {
            let at = || location(progress.document as usize, progress.function.into());
            let mut reader = Reader(bytes);
            let parts = (reader.u32().and_then(Stop::from_number), reader.text(), reader.text());
            let (Some(stop), Some(name), Some(reason)) = parts else {
                return RunError::Machinery(WorkerError::ProtocolViolation("an unknown reason to stop").to_string());
            };
            match stop {
                Stop::Requested => fatal(name, reason.to_owned()),
                Stop::Timeout => timed_out(&at(), limits),
                Stop::Engine => fatal("InternalError", format!("{reason} in {}", at())),
                Stop::Limit => fatal("limit_exceeded", format!("{} {reason}", at())),
            }
        }
        Failure::Worker(WorkerError::CallTimeout(progress)) => {
            let at = location(progress.document as usize, progress.function.into());
            timed_out(&at, limits)
        }
        Failure::Worker(WorkerError::Exited(progress, status)) => {
            let at = location(progress.document as usize, progress.function.into());
            fatal("os_process_error", format!("{at} ended the JavaScript worker: {status}"))
        }
        Failure::Worker(WorkerError::Cancelled(_)) => RunError::cancelled(),
        Failure::Worker(error) => RunError::Machinery(error.to_string()),
    }
}

/// The name and the first words are CouchDB's.
fn timed_out(at: &str, limits: Limits) -> RunError {
    let reason = format!("OS process timed out: {at} took longer than {} ms", limits.timeout_ms);
    RunError::Fatal { name: "os_process_error".to_owned(), reason }
}

enum Failure<'a> {
    Stopped(&'a [u8], crate::protocol::Progress),
    Worker(WorkerError),
}

fn excerpt(source: &str) -> String {
    let line: String = source.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
