//! Reduce functions: [`FunctionReducer`].

use std::collections::VecDeque;
use std::sync::Arc;

use settee_design::{Caller, Limits, ReduceRows, Reducer, RunError, overflow_text};
use settee_model::json::{self, Value};

use crate::child::{Exchange, Failure, Problem, excerpt};
use crate::pool::{Lease, Use};
use crate::shared::{Shared, run_error};

/// A reduce function. It is sent with each command, so any process can run it.
pub(crate) struct FunctionReducer {
    shared: Arc<Shared>,
    source: Arc<str>,
    limits: Limits,
}

impl FunctionReducer {
    pub(crate) fn new(shared: Arc<Shared>, source: Arc<str>, limits: Limits) -> Self {
        Self { shared, source, limits }
    }

    /// Sends one command, written by `write`, for each group, and returns the responses.
    fn run(&self, groups: usize, write: &dyn Fn(usize, &mut Vec<u8>)) -> Result<Vec<Vec<u8>>, RunError> {
        let failed = |failure| run_error(failure, &format!("reduce function ({})", excerpt(self.source.as_bytes())));
        let mut lease: Lease =
            self.shared.pool.lease(Use::Call, &Caller::default(), |server| server.program.is_none()).map_err(failed)?;
        let (shared, results, longest) = (&self.shared, Vec::with_capacity(groups), self.limits.reduction_bytes);
        let mut run = Run { shared, groups, asked: 0, sent: VecDeque::new(), results, longest, write };
        let mut died_at = None;
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
            if matches!(failure, Failure::Died { .. }) && died_at != Some(at) {
                died_at = Some(at);
                run.asked = at;
                run.sent.clear();
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

struct Run<'a> {
    shared: &'a Shared,
    groups: usize,
    asked: usize,
    sent: VecDeque<usize>,
    results: Vec<Vec<u8>>,
    longest: u64,
    write: &'a dyn Fn(usize, &mut Vec<u8>),
}

impl Exchange for Run<'_> {
    fn next_command(&mut self, out: &mut Vec<u8>) -> bool {
        if self.asked == self.groups {
            return false;
        }
        let before = out.len();
        (self.write)(self.asked, out);
        self.sent.push_back(out.len() - before);
        self.asked += 1;
        true
    }

    fn answer(&mut self, answer: Value<'_>) -> Result<(), Problem> {
        let strange = || Problem::Garbled("a reduction is not [true,[value]]".to_owned());
        let mut parts = answer.is_array().then(|| answer.elements()).into_iter().flatten();
        let (Some(good), Some(values)) = (parts.next().and_then(Value::as_bool), parts.next()) else {
            return Err(strange());
        };
        let mut values = values.is_array().then(|| values.elements()).into_iter().flatten();
        match (good, values.next(), values.next()) {
            (true, Some(value), None) => {
                let (input, output) = (self.sent.pop_front().unwrap_or_default(), value.raw().len() as u64);
                let is_too_long = output > self.longest;
                let text = if is_too_long { overflow_text(input as u64, output) } else { value.raw().to_vec() };
                self.results.push(text);
            }
            _ => return Err(strange()),
        }
        Ok(())
    }

    fn log(&mut self, line: String) {
        self.shared.pool.log(&line);
    }
}
