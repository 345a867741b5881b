//! Requests to a worker, and the errors of failed ones ([`Failure`]).

use std::sync::Arc;
use std::time::Duration;

use settee_design::{CompileError, Limits, RunError};

use crate::pool::{Answer, Lease, Pool, Worker, WorkerError};
use crate::protocol::{Kind, Progress, Reader, Stop, Writer};

pub(super) fn timeout(limits: Limits) -> Duration {
    Duration::from_millis(limits.timeout_ms)
}

pub(super) fn write_limits(writer: &mut Writer<'_>, limits: Limits) {
    let Limits { timeout_ms, memory_bytes, rows_per_document, bytes_per_document, .. } = limits;
    let Limits { key_bytes, value_bytes, reduction_bytes, bytes_per_part, .. } = limits;
    for limit in [timeout_ms, memory_bytes, rows_per_document.into(), bytes_per_document] {
        writer.u64(limit);
    }
    for limit in [key_bytes, value_bytes, reduction_bytes, bytes_per_part] {
        writer.u64(limit);
    }
}

pub(super) fn compile(
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

/// Upper bound of messages and of the log lines of one request.
const SHORT_ANSWER_BYTES: u64 = 8 << 20;

pub(super) fn send_and_receive(
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
pub(super) fn run_error(failure: Failure<'_>, limits: Limits, location: impl Fn(usize, usize) -> String) -> RunError {
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

pub(super) enum Failure<'a> {
    Stopped(&'a [u8], Progress),
    Worker(WorkerError),
}

pub(super) fn excerpt(source: &str) -> String {
    let line: String = source.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(60) {
        Some((at, _)) => format!("{}…", &line[..at]),
        None => line,
    }
}
