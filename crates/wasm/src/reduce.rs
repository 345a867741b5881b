//! Reduce functions: [`FunctionReducer`].

use std::sync::Arc;

use settee_design::{CompileError, Limits, ReduceRows, Reducer, RunError, overflow_text};
use settee_model::json::{write_array, write_string};

use crate::engine::Machine;
use crate::host::{Failure, Guest};
use crate::source::Source;

const EXPORT: &str = "reduce";

pub(crate) struct FunctionReducer {
    machine: Arc<Machine>,
    limits: Limits,
    source: Arc<str>,
    guest: Guest,
    input: Vec<u8>,
}

impl FunctionReducer {
    pub(crate) fn new(machine: &Arc<Machine>, source: &str, limits: Limits) -> Result<Self, CompileError> {
        let guest = Guest::new(machine, &Source::parse(source, EXPORT), limits)?;
        Ok(Self { machine: Arc::clone(machine), limits, source: source.into(), guest, input: Vec::new() })
    }

    /// Reduces the contents of [`FunctionReducer::input`]. The result of a failed function is null.
    fn call(&mut self) -> Result<Vec<u8>, RunError> {
        let failure = match self.guest.call(&self.input) {
            Ok(host) if host.is_too_long => {
                return Ok(overflow_text(self.input.len() as u64, self.limits.reduction_bytes + 1));
            }
            Ok(host) if host.rows.is_empty() => return Ok(b"null".to_vec()),
            Ok(host) => return Ok(host.text.clone()),
            Err(failure) => failure,
        };
        let source = Source::parse(&self.source, EXPORT);
        self.guest =
            Guest::new(&self.machine, &source, self.limits).map_err(|error| RunError::Machinery(error.to_string()))?;
        match failure {
            Failure::Failed(_) => Ok(b"null".to_vec()),
            Failure::Stopped(name, reason) => {
                Err(Failure::fatal(name, &format!("reduce function ({})", source.export), &reason))
            }
        }
    }
}

impl Reducer for FunctionReducer {
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError> {
        let machine = Arc::clone(&self.machine);
        let _running = machine.run();
        let mut id_text = Vec::new();
        let reduce = |group: &ReduceRows<'_>| {
            let input = &mut self.input;
            input.clear();
            input.extend_from_slice(br#"{"rereduce":false,"keys":"#);
            write_array(input, &group.rows, |input, (key, id, _)| {
                id_text.clear();
                write_string(&mut id_text, id);
                input.push(b'[');
                input.extend_from_slice(key);
                input.push(b',');
                input.extend_from_slice(&id_text);
                input.push(b']');
            });
            input.extend_from_slice(br#","values":"#);
            write_array(input, &group.rows, |input, (_, _, value)| input.extend_from_slice(value));
            input.push(b'}');
            self.call()
        };
        groups.iter().map(reduce).collect()
    }

    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError> {
        let machine = Arc::clone(&self.machine);
        let _running = machine.run();
        let rereduce = |group: &Vec<&[u8]>| {
            let input = &mut self.input;
            input.clear();
            input.extend_from_slice(br#"{"rereduce":true,"keys":null,"values":"#);
            write_array(input, group, |input, value| input.extend_from_slice(value));
            input.push(b'}');
            self.call()
        };
        groups.iter().map(rereduce).collect()
    }
}
