//! [`FunctionReducer`]: reduce functions.

use std::collections::VecDeque;
use std::sync::Arc;

use settee_design::{Caller, Limits, ReduceRows, Reducer, RunError, overflow_text};
use settee_model::json::{self, Value};

use crate::child::{Exchange, Failure, Problem, excerpt};
use crate::pool::{Lease, LeasePurpose};
use crate::shared::{Shared, run_error};

/// Each command contains the source, so any process can run it.
pub(crate) struct FunctionReducer {
    shared: Arc<Shared>,
    source: Arc<str>,
    limits: Limits,
}

impl FunctionReducer {
    pub(crate) fn new(shared: Arc<Shared>, source: Arc<str>, limits: Limits) -> Self {
        Self { shared, source, limits }
    }

    /// `write` writes the command of one group; the result has one response per group.
    fn run(&self, groups: usize, write: &dyn Fn(usize, &mut Vec<u8>)) -> Result<Vec<Vec<u8>>, RunError> {
        let failed = |failure| run_error(failure, &format!("reduce function ({})", excerpt(self.source.as_bytes())));
        let mut lease: Lease = self
            .shared
            .pool
            .lease(LeasePurpose::Call, &Caller::default(), |server| server.program.is_none())
            .map_err(failed)?;
        let (shared, results, reduction_bytes_max) =
            (&self.shared, Vec::with_capacity(groups), self.limits.reduction_bytes);
        let mut run = ReduceRun {
            shared,
            groups,
            sent_commands: 0,
            input_lengths: VecDeque::new(),
            results,
            reduction_bytes_max,
            write,
        };
        let mut exited_at = None;
        loop {
            let reduced = lease.server().and_then(|server| {
                self.shared.prepare(server)?;
                server.process.exchange(&mut run)
            });
            let Err(failure) = reduced else {
                return Ok(run.results);
            };
            lease.discard();
            let at = run.results.len();
            if matches!(failure, Failure::Exited { .. }) && exited_at != Some(at) {
                exited_at = Some(at);
                run.sent_commands = at;
                run.input_lengths.clear();
                continue;
            }
            return Err(failed(failure));
        }
    }

    fn write_function(&self, command: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(command.as_bytes());
        json::write_string(out, &self.source);
        out.extend_from_slice(b"],[");
    }
}

impl Reducer for FunctionReducer {
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError> {
        self.run(groups.len(), &|index, out| {
            self.write_function("[\"reduce\",[", out);
            for (number, (key, id, value)) in groups[index].rows.iter().enumerate() {
                out.extend_from_slice(if number == 0 { b"[[" } else { b",[[" });
                out.extend_from_slice(key);
                out.push(b',');
                json::write_string(out, id);
                out.extend_from_slice(b"],");
                out.extend_from_slice(value);
                out.push(b']');
            }
            out.extend_from_slice(b"]]");
        })
    }

    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError> {
        self.run(groups.len(), &|index, out| {
            self.write_function("[\"rereduce\",[", out);
            for (number, value) in groups[index].iter().enumerate() {
                if number > 0 {
                    out.push(b',');
                }
                out.extend_from_slice(value);
            }
            out.extend_from_slice(b"]]");
        })
    }
}

struct ReduceRun<'a> {
    shared: &'a Shared,
    groups: usize,
    sent_commands: usize,
    input_lengths: VecDeque<usize>,
    results: Vec<Vec<u8>>,
    reduction_bytes_max: u64,
    write: &'a dyn Fn(usize, &mut Vec<u8>),
}

impl Exchange for ReduceRun<'_> {
    fn next_command(&mut self, out: &mut Vec<u8>) -> bool {
        if self.sent_commands == self.groups {
            return false;
        }
        let before = out.len();
        (self.write)(self.sent_commands, out);
        self.input_lengths.push_back(out.len() - before);
        self.sent_commands += 1;
        true
    }

    fn answer(&mut self, answer: Value<'_>) -> Result<(), Problem> {
        let invalid_reduction = || Problem::ProtocolViolation("a reduction is not [true,[value]]".to_owned());
        let mut parts = answer.is_array().then(|| answer.elements()).into_iter().flatten();
        let (Some(good), Some(values)) = (parts.next().and_then(Value::as_bool), parts.next()) else {
            return Err(invalid_reduction());
        };
        let mut values = values.is_array().then(|| values.elements()).into_iter().flatten();
        match (good, values.next(), values.next()) {
            (true, Some(value), None) => {
                let (input, output) = (self.input_lengths.pop_front().unwrap_or_default(), value.raw().len() as u64);
                let is_too_long = output > self.reduction_bytes_max;
                let text = if is_too_long { overflow_text(input as u64, output) } else { value.raw().to_vec() };
                self.results.push(text);
            }
            _ => return Err(invalid_reduction()),
        }
        Ok(())
    }

    fn log(&mut self, line: String) {
        self.shared.pool.log(&line);
    }
}
