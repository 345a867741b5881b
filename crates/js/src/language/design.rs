//! Functions of design documents, server side: [`DesignCalls`] implements [`DesignProgram`].

mod workers;

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_design::{
    CallError, Caller, DesignProgram, DesignSource, DocumentBatch, Limits, ListSession, ListSink, ListState, MoreRows,
    RunError,
};
use settee_model::json::{Json, Kind as JsonKind, Value};

pub(super) use self::workers::DesignWorkers;
use self::workers::{DesignLease, Key, LeasePurpose};
use super::requests::{Failure, run_error, timeout};
use crate::pool::{Answer, WorkerError};
use crate::protocol::{Kind, Reader, Writer};

const REQUEST_BYTES: usize = 1 << 20;

/// Maximum bytes of log lines per call.
const LOG_BYTES: usize = 1 << 20;

/// A worker is leased only during calls, so that idle programs do not occupy workers.
pub(super) struct DesignCalls {
    workers: Arc<DesignWorkers>,
    source: DesignSource,
    key: Key,
    limits: Limits,
    caller: Caller,
    lease: Option<DesignLease>,
    request: Vec<u8>,
    log: Vec<String>,
}

enum Reply {
    Done(Vec<u8>),
    Waiting,
}

impl DesignCalls {
    pub(super) fn new(workers: Arc<DesignWorkers>, source: DesignSource, limits: Limits) -> Self {
        let key = Key { database: source.database, id: Arc::clone(&source.id), rev: Arc::clone(&source.rev), limits };
        Self {
            workers,
            source,
            key,
            limits,
            caller: Caller::default(),
            lease: None,
            request: Vec::new(),
            log: Vec::new(),
        }
    }

    fn write_path(&mut self, path: &[&str]) {
        self.request.clear();
        let mut writer = Writer(&mut self.request);
        writer.u32(u32::try_from(path.len()).expect("paths are short"));
        path.iter().for_each(|name| writer.bytes(name.as_bytes()));
    }

    /// Retries the request with another worker if an idle one has died.
    fn exchange(
        &mut self,
        kind: Kind,
        purpose: LeasePurpose,
        path: &[&str],
        sink: Sink<'_>,
    ) -> Result<Reply, CallError> {
        let mut sink = sink;
        let mut may_repeat = true;
        self.lease = None;
        loop {
            let lease = self
                .workers
                .acquire(&self.key, purpose, &self.caller)
                .map_err(|error| CallError::Run(RunError::Machinery(error.to_string())))?;
            let lease = self.lease.insert(lease);
            let slot = lease.load(&self.key, &self.source, self.limits)?;
            let sent = lease.worker().and_then(|worker| {
                worker.reserve(self.request.len())?;
                worker.limit(timeout(self.limits), self.limits.memory_bytes)?;
                worker.write(0, &self.request);
                worker.send(kind, usize::try_from(slot).unwrap_or_default(), self.request.len())
            });
            let answered = sent.map_err(Problem::from).and_then(|()| self.receive(&mut sink));
            let loaded = self.lease.as_ref().and_then(|lease| lease.loaded.as_ref());
            let was_idle = loaded.is_some_and(|loaded| loaded.was_idle);
            match answered {
                Ok(reply) => return Ok(reply),
                Err(Problem::Worker(WorkerError::Exited(..) | WorkerError::Io(_))) if was_idle && may_repeat => {
                    may_repeat = false;
                    self.discard();
                }
                Err(problem) => return Err(self.error(problem, path)),
            }
        }
    }

    fn protocol_violation(&mut self, label: &'static str) -> CallError {
        self.discard();
        RunError::Machinery(WorkerError::ProtocolViolation(label).to_string()).into()
    }

    fn discard(&mut self) {
        if let Some(mut lease) = self.lease.take() {
            lease.discard();
        }
    }

    fn receive(&mut self, sink: &mut Sink<'_>) -> Result<Reply, Problem> {
        let timeout = timeout(self.limits);
        let mut whole = Vec::new();
        let mut part = Vec::new();
        loop {
            let Some(lease) = self.lease.as_mut() else {
                return Err(WorkerError::ProtocolViolation("a response without a request").into());
            };
            let loaded = lease.loaded()?;
            part.clear();
            let Answer { kind, more } = loaded.lease.worker().receive(timeout, &mut part)?;
            loaded.was_idle = false;
            match kind {
                Kind::Log if more && part.len() <= LOG_BYTES => self.append_log_lines(&part),
                Kind::Chunks => {
                    if sink.take(&part)?.is_break() {
                        return Err(Problem::Aborted);
                    }
                    if !more {
                        return Ok(Reply::Waiting);
                    }
                }
                Kind::Done | Kind::Threw | Kind::Stopped => {
                    whole.extend_from_slice(&part);
                    if whole.len() as u64 > self.limits.bytes_per_document.saturating_add(LOG_BYTES as u64) {
                        return Err(WorkerError::ProtocolViolation("the response is too long").into());
                    }
                    match kind {
                        _ if more => {}
                        Kind::Done => return Ok(Reply::Done(whole)),
                        Kind::Threw => return Err(Problem::Threw(whole)),
                        _ => return Err(Problem::Stopped(whole)),
                    }
                }
                _ => return Err(WorkerError::ProtocolViolation("an unexpected response").into()),
            }
            if more && let Some(lease) = self.lease.as_mut() {
                lease.worker()?.send(Kind::Next, 0, 0)?;
            }
        }
    }

    fn append_log_lines(&mut self, text: &[u8]) {
        let mut reader = Reader(text);
        while let Some(line) = reader.bytes() {
            self.log.push(String::from_utf8_lossy(line).into_owned());
        }
    }

    /// The worker remains usable only after an exception.
    fn error(&mut self, problem: Problem, path: &[&str]) -> CallError {
        if let Problem::Threw(text) = problem {
            return match Json::parse(&text) {
                Ok(thrown) => thrown_error(thrown.value()),
                Err(_) => self.protocol_violation("an exception is not JSON"),
            };
        }
        let progress = match self.lease.as_mut().map(DesignLease::worker) {
            Some(Ok(worker)) => Some(worker.progress()),
            _ => None,
        };
        self.discard();
        let id = &self.source.id;
        let location = |_, _| format!("the function {} of {id}", path.join("."));
        match (problem, progress) {
            (Problem::Stopped(text), Some(progress)) => {
                run_error(Failure::Stopped(&text, progress), self.limits, location).into()
            }
            (Problem::Worker(error), _) => run_error(Failure::Worker(error), self.limits, location).into(),
            (Problem::Aborted, _) => RunError::Machinery("the function was abandoned".to_owned()).into(),
            (Problem::Stopped(_) | Problem::Threw(_), _) => {
                RunError::Machinery(WorkerError::ProtocolViolation("a response to another kind of request").to_string())
                    .into()
            }
        }
    }

    fn filter_batch(
        &mut self,
        path: &[&str],
        documents: &DocumentBatch,
        first: usize,
        request: Option<&[u8]>,
    ) -> Result<Vec<bool>, CallError> {
        self.write_path(path);
        let mut writer = Writer(&mut self.request);
        writer.bytes(request.unwrap_or(b"null"));
        let head = writer.0.len();
        writer.u32(0);
        let mut count = 0u32;
        for index in first..documents.len() {
            let text = documents.get(index).json;
            let mut writer = Writer(&mut self.request);
            if count > 0 && writer.0.len() + text.len() > REQUEST_BYTES {
                break;
            }
            writer.bytes(text);
            count += 1;
        }
        self.request[head..head + 4].copy_from_slice(&count.to_le_bytes());
        let verdicts = match self.exchange(Kind::Filter, LeasePurpose::Call, path, Sink(None)) {
            Ok(Reply::Done(verdicts)) if verdicts.len() == count as usize => {
                Ok(verdicts.into_iter().map(|verdict| verdict != 0).collect())
            }
            Ok(_) => Err(self.protocol_violation("results of the filter are missing")),
            Err(error) => Err(error),
        };
        self.lease = None;
        verdicts
    }
}

impl DesignProgram for DesignCalls {
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        self.write_path(path);
        let mut writer = Writer(&mut self.request);
        writer.u32(u32::try_from(arguments.len()).expect("functions get a handful of arguments"));
        arguments.iter().for_each(|argument| writer.bytes(argument));
        let result = match self.exchange(Kind::Call, LeasePurpose::Call, path, Sink(None)) {
            Ok(Reply::Done(result)) => match Json::parse_envelope(&result) {
                Ok(result) => Ok(result.into_bytes()),
                Err(_) => Err(self.protocol_violation("a result is not JSON")),
            },
            Ok(Reply::Waiting) => Err(self.protocol_violation("rows for a function that is no list function")),
            Err(error) => Err(error),
        };
        self.lease = None;
        result
    }

    fn filter(
        &mut self,
        path: &[&str],
        documents: &DocumentBatch,
        request: Option<&[u8]>,
    ) -> Result<Vec<bool>, CallError> {
        let mut verdicts = Vec::with_capacity(documents.len());
        while verdicts.len() < documents.len() {
            let part = self.filter_batch(path, documents, verdicts.len(), request)?;
            verdicts.extend(part);
        }
        Ok(verdicts)
    }

    fn list<'a>(
        &'a mut self,
        name: &str,
        head: &[u8],
        request: &[u8],
        sink: &mut dyn ListSink,
    ) -> Result<Box<dyn ListSession + 'a>, CallError> {
        let path = ["lists", name];
        self.write_path(&path);
        let mut writer = Writer(&mut self.request);
        writer.bytes(head);
        writer.bytes(request);
        match self.exchange(Kind::List, LeasePurpose::List, &path, Sink(Some(sink)))? {
            Reply::Waiting => {
                Ok(Box::new(RunningList { calls: self, name: name.to_owned(), state: ListState::Waiting }))
            }
            Reply::Done(_) => Err(self.protocol_violation("a list without rows")),
        }
    }

    fn set_caller(&mut self, caller: &Caller) {
        self.caller = caller.clone();
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

struct RunningList<'a> {
    calls: &'a mut DesignCalls,
    name: String,
    state: ListState,
}

impl ListSession for RunningList<'_> {
    fn rows(&mut self, rows: &[&[u8]], more: MoreRows, sink: &mut dyn ListSink) -> Result<ListState, CallError> {
        if self.state == ListState::Ended {
            return Ok(ListState::Ended);
        }
        let calls = &mut *self.calls;
        calls.request.clear();
        let mut writer = Writer(&mut calls.request);
        rows.iter().for_each(|row| writer.bytes(row));
        let sent = match calls.lease.as_mut() {
            Some(lease) => lease.worker().and_then(|worker| {
                worker.reserve(calls.request.len())?;
                worker.write(0, &calls.request);
                worker.send(Kind::Rows, usize::from(more == MoreRows::No), calls.request.len())
            }),
            None => Err(WorkerError::ProtocolViolation("rows without a list function")),
        };
        match sent.map_err(Problem::from).and_then(|()| calls.receive(&mut Sink(Some(sink)))) {
            Ok(Reply::Waiting) => {}
            Ok(Reply::Done(_)) => self.state = ListState::Ended,
            Err(problem) => {
                self.state = ListState::Ended;
                if let Problem::Aborted = problem {
                    calls.discard();
                    return Ok(ListState::Ended);
                }
                return Err(calls.error(problem, &["lists", &self.name]));
            }
        }
        Ok(self.state)
    }
}

impl Drop for RunningList<'_> {
    fn drop(&mut self) {
        if self.state == ListState::Waiting {
            self.calls.discard();
        }
        self.calls.lease = None;
    }
}

enum Problem {
    /// JSON text, not validated.
    Threw(Vec<u8>),
    Stopped(Vec<u8>),
    Worker(WorkerError),
    Aborted,
}

impl From<WorkerError> for Problem {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

struct Sink<'a>(Option<&'a mut dyn ListSink>);

impl Sink<'_> {
    fn take(&mut self, message: &[u8]) -> Result<ControlFlow<()>, WorkerError> {
        let sink = self.0.as_mut().ok_or(WorkerError::ProtocolViolation("chunks without a list function"))?;
        let mut reader = Reader(message);
        let response = reader.bytes().ok_or(WorkerError::ProtocolViolation("a truncated chunk"))?;
        if !response.is_empty() {
            let response =
                Json::parse(response).map_err(|_| WorkerError::ProtocolViolation("a response is not JSON"))?;
            sink.response(response.as_bytes());
        }
        Ok(if reader.0.is_empty() { ControlFlow::Continue(()) } else { sink.chunk(reader.0) })
    }
}

fn thrown_error(thrown: Value<'_>) -> CallError {
    if thrown.kind() != JsonKind::Array {
        return CallError::thrown(thrown);
    }
    let parts: Vec<String> = thrown.elements().skip(1).take(2).map(Value::to_text).collect();
    let [name, reason] = parts.try_into().unwrap_or_else(|_| ["unnamed_error".to_owned(), thrown.to_text()]);
    CallError::named(name, reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thrown_values_become_errors() {
        let failed = |name: &str, reason: &str| CallError::Failed { name: name.to_owned(), reason: reason.to_owned() };
        let table = [
            (r#"["error","not_found","gone"]"#, CallError::NotFound("gone".to_owned())),
            (r#"["error","method_not_allowed","no"]"#, failed("method_not_allowed", "no")),
            (r#"["error","a",{"b":1}]"#, failed("a", r#"{"b":1}"#)),
            (r#"["error"]"#, failed("unnamed_error", r#"["error"]"#)),
            (r#"{"forbidden":"no"}"#, CallError::Forbidden("no".into())),
            (r#"{"forbidden":{"a":1}}"#, CallError::Forbidden(Value::trusted(br#"{"a":1}"#).into())),
            (r#"{"unauthorized":"who"}"#, CallError::Unauthorized("who".into())),
            (r#"{"other":"thing"}"#, failed("unknown_error", "thing")),
            (r#""plain""#, failed("unknown_error", "plain")),
            ("7", failed("unknown_error", "7")),
        ];
        for (thrown, expected) in table {
            assert_eq!(thrown_error(Value::trusted(thrown.as_bytes())), expected, "{thrown}");
        }
    }
}
