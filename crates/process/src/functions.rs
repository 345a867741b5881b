//! [`FunctionCalls`]: functions of design documents other than map and reduce functions.
//! A process gets the whole design document once (`["ddoc","new",…]`) and then calls of its functions by path. Servers
//! that support only views, such as `couchpy`, exit on this command; the error reports it.

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_design::{
    CallError, Caller, DesignProgram, DesignSource, DocumentBatch, Limits, ListSession, ListSink, ListState, MoreRows,
};
use settee_model::json::{self, Value, write_array};

use crate::child::{Failure, excerpt};
use crate::pool::{Lease, LeasePurpose, Server};
use crate::shared::{Shared, run_error};

const FILTER_DOCUMENTS: usize = 100;
const FILTER_BYTES: usize = 1 << 20;

const LOG_LINES: usize = 1_000;

/// Leases a process only during calls.
pub(crate) struct FunctionCalls {
    shared: Arc<Shared>,
    source: DesignSource,
    limits: Limits,
    caller: Caller,
    log: Vec<String>,
}

impl FunctionCalls {
    pub(crate) fn new(shared: Arc<Shared>, source: DesignSource, limits: Limits) -> Self {
        Self { shared, source, limits, caller: Caller::default(), log: Vec::new() }
    }

    fn has_loaded(&self, server: &Server) -> bool {
        server.loaded.iter().any(|(database, id, rev)| {
            (*database, id, rev) == (self.source.database, &self.source.id, &self.source.rev)
        })
    }

    fn description(&self, path: &[&str]) -> String {
        format!("the function {} of {}", path.join("."), self.source.id)
    }

    /// Sends a command to a process that has loaded the design document. A process that died while idle is replaced.
    fn request(&mut self, purpose: LeasePurpose, path: &[&str], command: &[u8]) -> Result<(Lease, Vec<u8>), CallError> {
        let lease = self.shared.pool.lease(purpose, &self.caller, |server| self.has_loaded(server));
        let mut lease = lease.map_err(|failure| self.call_error(failure, path))?;
        loop {
            let was_fresh = lease.is_fresh();
            let failure = match self.try_request(&mut lease, command) {
                Ok(answer) => return Ok((lease, answer)),
                Err(Failure::Rejected { name, reason }) => return Err(CallError::named(name, reason)),
                Err(failure) => failure,
            };
            lease.discard();
            if was_fresh || !matches!(failure, Failure::Exited { .. }) {
                return Err(self.call_error(failure, path));
            }
        }
    }

    fn try_request(&mut self, lease: &mut Lease, command: &[u8]) -> Result<Vec<u8>, Failure> {
        let server = lease.server()?;
        let lines = &mut self.log;
        let mut log = |line| {
            if lines.len() < LOG_LINES {
                lines.push(line);
            }
        };
        let source = &self.source;
        let key = (source.database, Arc::clone(&source.id), Arc::clone(&source.rev));
        if !server.loaded.contains(&key) {
            self.shared.prepare(server)?;
            let mut load_command = b"[\"ddoc\",\"new\",".to_vec();
            json::write_string(&mut load_command, &source.id);
            load_command.push(b',');
            load_command.extend_from_slice(&source.json);
            load_command.push(b']');
            let answer = server.process.request(&load_command, &mut log).map_err(|failure| match failure {
                Failure::Exited { language, how } => {
                    let how = format!("{how}; it may support only views and not the command ddoc");
                    Failure::Exited { language, how }
                }
                other => other,
            })?;
            if answer != b"true" {
                let label = format!("it rejected the design document {}", source.id);
                return Err(Failure::ProtocolViolation { language: Arc::clone(&self.shared.pool.language), label });
            }
            // The server stores only the latest design document per id.
            server.loaded.retain(|(_, id, _)| *id != source.id);
            server.loaded.push(key);
        }
        server.process.request(command, &mut log)
    }

    fn call_error(&self, failure: Failure, path: &[&str]) -> CallError {
        CallError::Run(run_error(failure, &self.description(path)))
    }

    fn protocol_violation(&self, lease: &mut Lease, path: &[&str], answer: &[u8]) -> CallError {
        lease.discard();
        let label = format!("it answered {}", excerpt(answer));
        let language = Arc::clone(&self.shared.pool.language);
        self.call_error(Failure::ProtocolViolation { language, label }, path)
    }

    fn filter_batch(
        &mut self,
        path: &[&str],
        documents: &DocumentBatch,
        first: usize,
        request: Option<&[u8]>,
    ) -> Result<Vec<bool>, CallError> {
        let mut command = call_head(&self.source.id, path);
        command.push(b'[');
        let mut count = 0;
        while first + count < documents.len() && count < FILTER_DOCUMENTS && command.len() < FILTER_BYTES {
            if count > 0 {
                command.push(b',');
            }
            command.extend_from_slice(documents.get(first + count).json);
            count += 1;
        }
        command.push(b']');
        if let Some(request) = request {
            command.push(b',');
            command.extend_from_slice(request);
        }
        command.extend_from_slice(b"]]");
        let (mut lease, answer) = self.request(LeasePurpose::Call, path, &command)?;
        let verdicts = Value::trusted(&answer);
        let verdicts = verdicts.is_array().then(|| verdicts.elements().nth(1)).flatten();
        let verdicts = verdicts.filter(|verdicts| verdicts.is_array()).map(Value::elements);
        let passed: Option<Vec<bool>> = verdicts.and_then(|verdicts| verdicts.map(Value::as_bool).collect());
        match passed.filter(|passed| passed.len() == count) {
            Some(passed) => Ok(passed),
            None => Err(self.protocol_violation(&mut lease, path, &answer)),
        }
    }
}

impl DesignProgram for FunctionCalls {
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError> {
        let mut command = call_head(&self.source.id, path);
        command.extend_from_slice(&arguments.join(&b","[..]));
        command.extend_from_slice(b"]]");
        let (mut lease, answer) = self.request(LeasePurpose::Call, path, &command)?;
        if answer.len() as u64 > self.limits.bytes_per_document {
            let label = format!("answered with more than {} bytes", self.limits.bytes_per_document);
            return Err(self.call_error(Failure::Limit(label), path));
        }
        let value = Value::trusted(&answer);
        if path == ["validate_doc_update"] {
            return verdict(value);
        }
        let head = value.is_array().then(|| value.elements().next()).flatten();
        match (path.first(), head.and_then(Value::as_str).as_deref()) {
            (Some(&"shows"), Some("resp")) | (Some(&"updates"), Some("up")) => Ok(answer),
            (Some(&"rewrites"), Some("ok" | "no_dispatch_rule")) => Ok(answer),
            _ => Err(self.protocol_violation(&mut lease, path, &answer)),
        }
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
        let mut command = call_head(&self.source.id, &path);
        command.extend_from_slice(&[head, request].join(&b","[..]));
        command.extend_from_slice(b"]]");
        let (lease, answer) = self.request(LeasePurpose::List, &path, &command)?;
        let mut rows = RunningList { calls: self, lease, name: name.to_owned(), state: ListState::Waiting };
        rows.take(&answer, sink)?;
        Ok(Box::new(rows))
    }

    fn set_caller(&mut self, caller: &Caller) {
        self.caller = caller.clone();
    }

    fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }
}

/// A running list function. Dropping it before its end discards the process, whose protocol state is then undefined.
struct RunningList<'a> {
    calls: &'a mut FunctionCalls,
    lease: Lease,
    name: String,
    state: ListState,
}

impl RunningList<'_> {
    /// Processes `["start",chunks,response]`, `["chunks",chunks]` with an optional response, or `["end",chunks]`.
    fn take(&mut self, answer: &[u8], sink: &mut dyn ListSink) -> Result<(), CallError> {
        let value = Value::trusted(answer);
        let mut parts = value.is_array().then(|| value.elements()).into_iter().flatten();
        let kind = parts.next().and_then(Value::as_str);
        let (Some(kind @ ("start" | "chunks" | "end")), Some(chunks)) = (kind.as_deref(), parts.next()) else {
            return Err(self.protocol_violation(answer));
        };
        if let Some(response) = parts.next().filter(|response| response.is_object()) {
            sink.response(response.raw());
        }
        if !chunks.is_array() {
            return Err(self.protocol_violation(answer));
        }
        if kind == "end" {
            self.state = ListState::Ended;
        }
        for chunk in chunks.elements() {
            if sink.chunk(chunk.to_text().as_bytes()) == ControlFlow::Break(()) {
                self.give_up();
                break;
            }
        }
        Ok(())
    }

    fn protocol_violation(&mut self, answer: &[u8]) -> CallError {
        self.state = ListState::Ended;
        self.calls.protocol_violation(&mut self.lease, &["lists", &self.name], answer)
    }

    fn give_up(&mut self) {
        if self.state == ListState::Waiting {
            self.lease.discard();
        }
        self.state = ListState::Ended;
    }

    fn request(&mut self, command: &[u8], sink: &mut dyn ListSink) -> Result<(), CallError> {
        let lines = &mut self.calls.log;
        let mut log = |line| {
            if lines.len() < LOG_LINES {
                lines.push(line);
            }
        };
        let answered = self.lease.server().and_then(|server| server.process.request(command, &mut log));
        match answered {
            Ok(answer) => self.take(&answer, sink),
            Err(failure) => {
                self.lease.discard();
                self.state = ListState::Ended;
                match failure {
                    Failure::Rejected { name, reason } => Err(CallError::named(name, reason)),
                    failure => Err(self.calls.call_error(failure, &["lists", &self.name])),
                }
            }
        }
    }
}

impl ListSession for RunningList<'_> {
    fn rows(&mut self, rows: &[&[u8]], more: MoreRows, sink: &mut dyn ListSink) -> Result<ListState, CallError> {
        // A function may end at any row and must get no row after that, so rows cannot be pipelined.
        for row in rows {
            if self.state == ListState::Ended {
                return Ok(ListState::Ended);
            }
            self.request(&[b"[\"list_row\",", *row, b"]"].concat(), sink)?;
        }
        if more == MoreRows::No && self.state == ListState::Waiting {
            self.request(b"[\"list_end\"]", sink)?;
            self.give_up();
        }
        Ok(self.state)
    }
}

impl Drop for RunningList<'_> {
    fn drop(&mut self) {
        self.give_up();
    }
}

fn call_head(id: &str, path: &[&str]) -> Vec<u8> {
    let mut command = b"[\"ddoc\",".to_vec();
    json::write_string(&mut command, id);
    command.push(b',');
    write_array(&mut command, path, |command, name| json::write_string(command, name));
    command.extend_from_slice(b",[");
    command
}

fn verdict(value: Value<'_>) -> Result<Vec<u8>, CallError> {
    if value.as_u64() == Some(1) || value.as_bool() == Some(true) || value.is_string("ok") {
        return Ok(b"1".to_vec());
    }
    Err(CallError::thrown(value))
}
