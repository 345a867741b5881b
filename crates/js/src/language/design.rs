//! Functions of design documents, server side: [`Calls`] implements [`DesignProgram`].

mod workers;

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_design::{
    CallError, Caller, DesignProgram, DesignSource, DocumentBatch, Limits, ListSession, ListSink, ListState, MoreRows,
    RunError,
};
use settee_model::json::{Json, Kind as JsonKind, Value};

pub(super) use self::workers::DesignWorkers;
use self::workers::{Borrowed, Key, Use};
use super::{Failure, run_error, timeout};
use crate::pool::{Answer, WorkerError};
use crate::protocol::{Kind, Reader, Writer};

/// Approximate length of a request.
const REQUEST_BYTES: usize = 1 << 20;

/// Upper bound of the bytes that functions may log in one call.
const LOG_BYTES: usize = 1 << 20;

/// The functions of one design document. A worker is leased only during calls, so that idle programs do not occupy
/// workers.
pub(super) struct Calls {
    workers: Arc<DesignWorkers>,
    source: DesignSource,
    key: Key,
    limits: Limits,
    caller: Caller,
    borrowed: Option<Borrowed>,
    request: Vec<u8>,
    log: Vec<String>,
}

enum Reply {
    Done(Vec<u8>),
    Waiting,
}

impl Calls {
    pub(super) fn new(workers: Arc<DesignWorkers>, source: DesignSource, limits: Limits) -> Self {
        let key = Key { database: source.database, id: Arc::clone(&source.id), rev: Arc::clone(&source.rev), limits };
        Self {
            workers,
            source,
            key,
            limits,
            caller: Caller::default(),
            borrowed: None,
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

    /// Sends the encoded request to a worker that has loaded the design document. If the worker turns out to have died
    /// while idle, the request is retried with another one.
    fn ask(&mut self, kind: Kind, wanted: Use, path: &[&str], sink: Sink<'_>) -> Result<Reply, CallError> {
        let mut sink = sink;
        let mut may_repeat = true;
        self.borrowed = None;
        loop {
            let borrowed = self
                .workers
                .borrow(&self.key, wanted, &self.caller)
                .map_err(|error| CallError::Run(RunError::Machinery(error.to_string())))?;
            let borrowed = self.borrowed.insert(borrowed);
            let place = borrowed.teach(&self.key, &self.source, self.limits)?;
            let sent = borrowed.worker().and_then(|worker| {
                worker.reserve(self.request.len())?;
                worker.limit(timeout(self.limits), self.limits.memory_bytes)?;
                worker.write(0, &self.request);
                worker.send(kind, usize::try_from(place).unwrap_or_default(), self.request.len())
            });
            let answered = sent.map_err(Problem::from).and_then(|()| self.receive(&mut sink));
            let taught = self.borrowed.as_ref().and_then(|borrowed| borrowed.taught.as_ref());
            let rested = taught.is_some_and(|taught| taught.rested);
            match answered {
                Ok(reply) => return Ok(reply),
                Err(Problem::Worker(WorkerError::Died(..) | WorkerError::Talk(_))) if rested && may_repeat => {
                    may_repeat = false;
                    self.discard();
                }
                Err(problem) => return Err(self.error(problem, path)),
            }
        }
    }

    /// Discards a worker after an invalid response.
    fn garbled(&mut self, label: &'static str) -> CallError {
        self.discard();
        RunError::Machinery(WorkerError::Garbled(label).to_string()).into()
    }

    fn discard(&mut self) {
        if let Some(mut borrowed) = self.borrowed.take() {
            borrowed.discard();
        }
    }

    /// Waits for the response to a request; chunks of list functions are passed to `sink`.
    fn receive(&mut self, sink: &mut Sink<'_>) -> Result<Reply, Problem> {
        let timeout = timeout(self.limits);
        let mut whole = Vec::new();
        let mut part = Vec::new();
        loop {
            let Some(borrowed) = self.borrowed.as_mut() else {
                return Err(WorkerError::Garbled("an answer without a request").into());
            };
            let taught = borrowed.taught()?;
            part.clear();
            let Answer { kind, more } = taught.lease.worker().receive(timeout, &mut part)?;
            taught.rested = false;
            match kind {
                Kind::Log if more && part.len() <= LOG_BYTES => self.take_lines(&part),
                Kind::Chunks => {
                    if sink.take(&part)?.is_break() {
                        return Err(Problem::GivenUp);
                    }
                    if !more {
                        return Ok(Reply::Waiting);
                    }
                }
                Kind::Done | Kind::Threw | Kind::Stopped => {
                    whole.extend_from_slice(&part);
                    if whole.len() as u64 > self.limits.bytes_per_document.saturating_add(LOG_BYTES as u64) {
                        return Err(WorkerError::Garbled("an answer too long").into());
                    }
                    match kind {
                        _ if more => {}
                        Kind::Done => return Ok(Reply::Done(whole)),
                        Kind::Threw => return Err(Problem::Threw(whole)),
                        _ => return Err(Problem::Stopped(whole)),
                    }
                }
                _ => return Err(WorkerError::Garbled("a strange answer").into()),
            }
            if more && let Some(borrowed) = self.borrowed.as_mut() {
                borrowed.worker()?.send(Kind::Next, 0, 0)?;
            }
        }
    }

    fn take_lines(&mut self, text: &[u8]) {
        let mut reader = Reader(text);
        while let Some(line) = reader.bytes() {
            self.log.push(String::from_utf8_lossy(line).into_owned());
        }
    }

    /// Converts the failure of a call. The worker remains usable only after an exception.
    fn error(&mut self, problem: Problem, path: &[&str]) -> CallError {
        if let Problem::Threw(text) = problem {
            return match Json::parse(&text) {
                Ok(thrown) => thrown_error(thrown.value()),
                Err(_) => self.garbled("an exception is no JSON"),
            };
        }
        let progress = match self.borrowed.as_mut().map(Borrowed::worker) {
            Some(Ok(worker)) => Some(worker.progress()),
            _ => None,
        };
        self.discard();
        let id = &self.source.id;
        let place = |_, _| format!("the function {} of {id}", path.join("."));
        match (problem, progress) {
            (Problem::Stopped(text), Some(progress)) => {
                run_error(Failure::Stopped(&text, progress), self.limits, place).into()
            }
            (Problem::Worker(error), _) => run_error(Failure::Worker(error), self.limits, place).into(),
            (Problem::GivenUp, _) => RunError::Machinery("the function was abandoned".to_owned()).into(),
            (Problem::Stopped(_) | Problem::Threw(_), _) => {
                RunError::Machinery(WorkerError::Garbled("an answer to another kind of request").to_string()).into()
            }
        }
    }

    /// Filters documents from `first` on, about as many as fit into a request.
    fn filter_part(
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
        let verdicts = match self.ask(Kind::Filter, Use::Call, path, Sink(None)) {
            Ok(Reply::Done(verdicts)) if verdicts.len() == count as usize => {
                Ok(verdicts.into_iter().map(|verdict| verdict != 0).collect())
            }
            Ok(_) => Err(self.garbled("verdicts are missing")),
            Err(error) => Err(error),
        };
        self.borrowed = None;
        verdicts
    }
}

impl DesignProgram for Calls {
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        self.write_path(path);
        let mut writer = Writer(&mut self.request);
        writer.u32(u32::try_from(arguments.len()).expect("functions get a handful of arguments"));
        arguments.iter().for_each(|argument| writer.bytes(argument));
        let result = match self.ask(Kind::Call, Use::Call, path, Sink(None)) {
            Ok(Reply::Done(result)) => match Json::parse_envelope(&result) {
                Ok(result) => Ok(result.into_bytes()),
                Err(_) => Err(self.garbled("a result is no JSON")),
            },
            Ok(Reply::Waiting) => Err(self.garbled("rows for a call")),
            Err(error) => Err(error),
        };
        self.borrowed = None;
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
            let part = self.filter_part(path, documents, verdicts.len(), request)?;
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
        match self.ask(Kind::List, Use::List, &path, Sink(Some(sink)))? {
            Reply::Waiting => Ok(Box::new(Rows { calls: self, name: name.to_owned(), state: ListState::Waiting })),
            Reply::Done(_) => Err(self.garbled("a list without rows")),
        }
    }

    fn set_caller(&mut self, caller: &Caller) {
        self.caller = caller.clone();
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

/// A running list function. If it is dropped before its end, its worker is discarded.
struct Rows<'a> {
    calls: &'a mut Calls,
    name: String,
    state: ListState,
}

impl ListSession for Rows<'_> {
    fn rows(&mut self, rows: &[&[u8]], more: MoreRows, sink: &mut dyn ListSink) -> Result<ListState, CallError> {
        if self.state == ListState::Ended {
            return Ok(ListState::Ended);
        }
        let calls = &mut *self.calls;
        calls.request.clear();
        let mut writer = Writer(&mut calls.request);
        rows.iter().for_each(|row| writer.bytes(row));
        let sent = match calls.borrowed.as_mut() {
            Some(borrowed) => borrowed.worker().and_then(|worker| {
                worker.reserve(calls.request.len())?;
                worker.write(0, &calls.request);
                worker.send(Kind::Rows, usize::from(more == MoreRows::No), calls.request.len())
            }),
            None => Err(WorkerError::Garbled("rows without a list function")),
        };
        match sent.map_err(Problem::from).and_then(|()| calls.receive(&mut Sink(Some(sink)))) {
            Ok(Reply::Waiting) => {}
            Ok(Reply::Done(_)) => self.state = ListState::Ended,
            Err(problem) => {
                self.state = ListState::Ended;
                if let Problem::GivenUp = problem {
                    calls.discard();
                    return Ok(ListState::Ended);
                }
                return Err(calls.error(problem, &["lists", &self.name]));
            }
        }
        Ok(self.state)
    }
}

impl Drop for Rows<'_> {
    fn drop(&mut self) {
        if self.state == ListState::Waiting {
            self.calls.discard();
        }
        self.calls.borrowed = None;
    }
}

enum Problem {
    /// The function threw this JSON text, not validated.
    Threw(Vec<u8>),
    Stopped(Vec<u8>),
    Worker(WorkerError),
    GivenUp,
}

impl From<WorkerError> for Problem {
    fn from(error: WorkerError) -> Self {
        Self::Worker(error)
    }
}

/// Receiver of chunks, if there may be any.
struct Sink<'a>(Option<&'a mut dyn ListSink>);

impl Sink<'_> {
    fn take(&mut self, message: &[u8]) -> Result<ControlFlow<()>, WorkerError> {
        let sink = self.0.as_mut().ok_or(WorkerError::Garbled("chunks of no list"))?;
        let mut reader = Reader(message);
        let response = reader.bytes().ok_or(WorkerError::Garbled("half a chunk"))?;
        if !response.is_empty() {
            let response = Json::parse(response).map_err(|_| WorkerError::Garbled("a response is no JSON"))?;
            sink.response(response.as_bytes());
        }
        Ok(if reader.0.is_empty() { ControlFlow::Continue(()) } else { sink.chunk(reader.0) })
    }
}

/// Converts thrown errors in the forms of CouchDB's query server.
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
