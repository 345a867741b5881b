//! [`Mapper`]: map functions.

use std::sync::Arc;

use settee_design::{
    Allowance, Caller, CompileError, DocumentBatch, Emissions, Engine, Limits, MapFailure, MapSource, Program,
    RunError, TakeRows,
};
use settee_model::json::{Kind, Value};

use crate::child::{Exchange, Failure, Problem, Process, excerpt};
use crate::pool::LeasePurpose;
use crate::projection::Projection;
use crate::shared::{Shared, run_error, unavailable};

const LOG_BYTES: usize = 1 << 20;

pub(crate) struct Mapper {
    shared: Arc<Shared>,
    source: Arc<MapSource>,
    projection: Option<Projection>,
    limits: Limits,
}

impl Mapper {
    pub(crate) fn new(shared: Arc<Shared>, source: MapSource, limits: Limits) -> Result<Self, CompileError> {
        let projection = shared.projection(&source);
        let mapper = Self { shared, source: Arc::new(source), projection, limits };
        let mut lease = mapper
            .shared
            .pool
            .lease(LeasePurpose::Call, &Caller::default(), |_| false)
            .map_err(|failure| unavailable(&failure))?;
        mapper.shared.compile(&mut lease, &mapper.source)?;
        drop(lease);
        Ok(mapper)
    }

    fn description(&self, batch: &DocumentBatch, index: usize) -> String {
        let functions = match &self.source.functions[..] {
            [function] => format!("map function ({})", excerpt(function.as_bytes())),
            functions => format!("one of {} map functions", functions.len()),
        };
        match index < batch.len() {
            true => format!("{functions} on document \"{}\"", batch.get(index).id),
            false => functions,
        }
    }
}

impl Program for Mapper {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        let source = &self.source;
        let has_loaded = |server: &crate::pool::Server| server.program.as_ref() == Some(source);
        let mut lease = self
            .shared
            .pool
            .lease(LeasePurpose::Call, &Caller::default(), has_loaded)
            .map_err(|failure| run_error(failure, ""))?;
        let mut run = BatchRun::new(self, batch, output, take);
        loop {
            self.shared.compile(&mut lease, &self.source).map_err(|error| match error {
                CompileError::Source(reason) => RunError::Fatal { name: "compilation_error".to_owned(), reason },
                CompileError::Unavailable(reason) => RunError::Machinery(reason),
            })?;
            let Err(failure) = lease.server().and_then(|server| run.resume(&mut server.process)) else {
                return Ok(());
            };
            lease.discard();
            if run.is_sink_closed {
                return Err(RunError::unwanted());
            }
            if !run.should_retry(&failure) {
                return Err(run_error(failure, &self.description(batch, run.completed)));
            }
        }
    }

    fn engine(&self, _: usize) -> Option<Engine> {
        self.shared.engine(self.projection.as_ref())
    }
}

struct BatchRun<'a, 't> {
    batch: &'a DocumentBatch,
    projection: Option<&'a Projection>,
    functions: usize,
    limits: Limits,
    output: &'a mut Emissions,
    take: &'a mut TakeRows<'t>,
    is_sink_closed: bool,
    sent_commands: usize,
    completed: usize,
    end: usize,
    /// Documents before this index are sent one by one, because one of them may have caused a failure.
    isolated_until: usize,
    exited_in_isolation: Option<usize>,
    log_left: usize,
}

impl<'a, 't> BatchRun<'a, 't> {
    fn new(
        mapper: &'a Mapper,
        batch: &'a DocumentBatch,
        output: &'a mut Emissions,
        take: &'a mut TakeRows<'t>,
    ) -> Self {
        Self {
            batch,
            projection: mapper.projection.as_ref(),
            functions: mapper.source.functions.len(),
            limits: mapper.limits,
            output,
            take,
            is_sink_closed: false,
            sent_commands: 0,
            completed: 0,
            end: 0,
            isolated_until: 0,
            exited_in_isolation: None,
            log_left: LOG_BYTES,
        }
    }

    fn resume(&mut self, process: &mut Process) -> Result<(), Failure> {
        while self.completed < self.batch.len() {
            self.end = if self.completed < self.isolated_until { self.completed + 1 } else { self.batch.len() };
            process.exchange(self)?;
        }
        Ok(())
    }

    /// Returns true if another process must map the pending documents. With several, any of them may be the cause,
    /// because a server may buffer its responses: each is retried separately. A single document that exceeds the
    /// timeout is the cause; one whose process was killed is retried once.
    fn should_retry(&mut self, failure: &Failure) -> bool {
        let was_isolated = self.sent_commands - self.completed <= 1;
        let may = match failure {
            Failure::Timeout { .. } => !was_isolated,
            Failure::Exited { .. } => {
                !was_isolated || self.exited_in_isolation.replace(self.completed) != Some(self.completed)
            }
            _ => false,
        };
        self.isolated_until = self.isolated_until.max(self.sent_commands);
        self.sent_commands = self.completed;
        may
    }

    fn take_rows(&mut self, document: u32, function: u32, rows: Value<'_>) -> Result<(), Problem> {
        let invalid_rows =
            || Problem::ProtocolViolation("the rows of a document are not pairs of key and value".to_owned());
        if !rows.is_array() {
            return Err(invalid_rows());
        }
        let before = self.output.len();
        let mut allowance = Allowance::new(self.limits);
        for row in rows.elements() {
            if !row.is_array() {
                return Err(invalid_rows());
            }
            let mut parts = row.elements();
            let (Some(key), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
                return Err(invalid_rows());
            };
            if let Err(excess) = allowance.take(key.raw().len(), value.raw().len()) {
                if excess.ends_build() {
                    return Err(Problem::Limit(excess.reason()));
                }
                self.output.truncate(before);
                self.output.failures.push(MapFailure { document, function, message: excess.to_string() });
                return Ok(());
            }
            self.output.push(document, function, key.raw(), value.raw());
        }
        Ok(())
    }
}

impl Exchange for BatchRun<'_, '_> {
    fn next_command(&mut self, out: &mut Vec<u8>) -> bool {
        if self.sent_commands == self.end {
            return false;
        }
        out.extend_from_slice(b"[\"map_doc\",");
        let document = self.batch.get(self.sent_commands).json;
        match self.projection {
            Some(projection) => projection.write(document, out),
            None => out.extend_from_slice(document),
        }
        out.push(b']');
        self.sent_commands += 1;
        true
    }

    fn answer(&mut self, answer: Value<'_>) -> Result<(), Problem> {
        if answer.kind() != Kind::Array || answer.elements().count() != self.functions {
            let purpose = self.functions;
            return Err(Problem::ProtocolViolation(format!(
                "the response to map_doc is not a list of {purpose} lists of rows"
            )));
        }
        let document = u32::try_from(self.completed).expect("batches are shorter than that");
        for (function, rows) in (0..).zip(answer.elements()) {
            self.take_rows(document, function, rows)?;
            if self.output.hand_on(&self.limits, self.take).is_err() {
                self.is_sink_closed = true;
                return Err(Problem::Limit("has rows that are no longer needed".to_owned()));
            }
        }
        self.completed += 1;
        Ok(())
    }

    fn log(&mut self, line: String) {
        if let Some(left) = self.log_left.checked_sub(line.len()) {
            self.log_left = left;
            self.output.log.push(line);
        }
    }
}
