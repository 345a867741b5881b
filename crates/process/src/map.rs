//! Map functions: [`Mapper`].

use std::sync::Arc;

use settee_design::{
    Allowance, Caller, CompileError, DocumentBatch, Emissions, Engine, Limits, MapFailure, MapSource, Program,
    RunError, TakeRows,
};
use settee_model::json::{Kind, Value};

use crate::child::{Exchange, Failure, Problem, Process, excerpt};
use crate::pool::Use;
use crate::projection::Projection;
use crate::shared::{Shared, run_error, unavailable};

/// Maximum bytes of log lines for one batch.
const LOG_BYTES: usize = 1 << 20;

/// Compiled map functions. A process is leased only while mapping.
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
            .lease(Use::Call, &Caller::default(), |_| false)
            .map_err(|failure| unavailable(&failure))?;
        mapper.shared.compile(&mut lease, &mapper.source)?;
        drop(lease);
        Ok(mapper)
    }

    /// Returns the function and the document, for messages. With several functions the failing one is unknown.
    fn place(&self, batch: &DocumentBatch, index: usize) -> String {
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
        let knows = |server: &crate::pool::Server| server.program.as_ref() == Some(source);
        let mut lease =
            self.shared.pool.lease(Use::Call, &Caller::default(), knows).map_err(|failure| run_error(failure, ""))?;
        let mut run = Run::new(self, batch, output, take);
        loop {
            self.shared.compile(&mut lease, &self.source).map_err(|error| match error {
                CompileError::Source(reason) => RunError::Fatal { name: "compilation_error".to_owned(), reason },
                CompileError::Unavailable(reason) => RunError::Machinery(reason),
            })?;
            let Err(failure) = lease.server().and_then(|server| run.go_on(&mut server.process)) else {
                return Ok(());
            };
            lease.discard();
            if run.is_unwanted {
                return Err(RunError::unwanted());
            }
            if !run.may_try_again(&failure) {
                return Err(run_error(failure, &self.place(batch, run.answered)));
            }
        }
    }

    fn engine(&self, _: usize) -> Option<Engine> {
        self.shared.engine(self.projection.as_ref())
    }
}

struct Run<'a, 't> {
    batch: &'a DocumentBatch,
    projection: Option<&'a Projection>,
    functions: usize,
    limits: Limits,
    output: &'a mut Emissions,
    take: &'a mut TakeRows<'t>,
    /// True if the rows are no longer needed.
    is_unwanted: bool,
    asked: usize,
    answered: usize,
    /// End of the next part (exclusive).
    end: usize,
    /// Documents before this one are sent one by one, because one of them may have caused a failure.
    alone_until: usize,
    /// The document that was the only pending one when a process died.
    died_alone: Option<usize>,
    log_left: usize,
}

impl<'a, 't> Run<'a, 't> {
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
            is_unwanted: false,
            asked: 0,
            answered: 0,
            end: 0,
            alone_until: 0,
            died_alone: None,
            log_left: LOG_BYTES,
        }
    }

    fn go_on(&mut self, process: &mut Process) -> Result<(), Failure> {
        while self.answered < self.batch.len() {
            self.end = if self.answered < self.alone_until { self.answered + 1 } else { self.batch.len() };
            process.exchange(self)?;
        }
        Ok(())
    }

    /// Returns true if another process shall map the pending documents.
    ///
    /// With several pending documents, any of them may be the cause, because a server may buffer its responses: each is
    /// retried separately. A single document that exceeds the timeout is the cause. A process that died may have been
    /// killed from outside, so its document is retried once.
    fn may_try_again(&mut self, failure: &Failure) -> bool {
        let was_alone = self.asked - self.answered <= 1;
        let may = match failure {
            Failure::Timeout { .. } => !was_alone,
            Failure::Died { .. } => !was_alone || self.died_alone.replace(self.answered) != Some(self.answered),
            _ => false,
        };
        self.alone_until = self.alone_until.max(self.asked);
        self.asked = self.answered;
        may
    }

    fn take_rows(&mut self, document: u32, function: u32, rows: Value<'_>) -> Result<(), Problem> {
        let strange = || Problem::Garbled("the rows of a document are no pairs of key and value".to_owned());
        if !rows.is_array() {
            return Err(strange());
        }
        let before = self.output.len();
        let mut allowance = Allowance::new(self.limits);
        for row in rows.elements() {
            if !row.is_array() {
                return Err(strange());
            }
            let mut parts = row.elements();
            let (Some(key), Some(value), None) = (parts.next(), parts.next(), parts.next()) else {
                return Err(strange());
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

impl Exchange for Run<'_, '_> {
    fn next_command(&mut self, out: &mut Vec<u8>) -> bool {
        if self.asked == self.end {
            return false;
        }
        out.extend_from_slice(b"[\"map_doc\",");
        let document = self.batch.get(self.asked).json;
        match self.projection {
            Some(projection) => projection.write(document, out),
            None => out.extend_from_slice(document),
        }
        out.push(b']');
        self.asked += 1;
        true
    }

    fn answer(&mut self, answer: Value<'_>) -> Result<(), Problem> {
        if answer.kind() != Kind::Array || answer.elements().count() != self.functions {
            let wanted = self.functions;
            return Err(Problem::Garbled(format!("the answer to map_doc is no list with {wanted} lists of rows")));
        }
        let document = u32::try_from(self.answered).expect("batches are shorter than that");
        for (function, rows) in (0..).zip(answer.elements()) {
            self.take_rows(document, function, rows)?;
            if self.output.hand_on(&self.limits, self.take).is_err() {
                self.is_unwanted = true;
                return Err(Problem::Limit("has rows that are no longer needed".to_owned()));
            }
        }
        self.answered += 1;
        Ok(())
    }

    fn log(&mut self, line: String) {
        if let Some(left) = self.log_left.checked_sub(line.len()) {
            self.log_left = left;
            self.output.log.push(line);
        }
    }
}
