//! Map functions: [`Mapper`].

use std::sync::Arc;

use settee_design::{
    CompileError, DocumentBatch, Emissions, Limits, MapFailure, MapSource, Program, RunError, TakeRows,
};

use crate::engine::Machine;
use crate::host::{Failure, Guest};
use crate::source::Source;

const EXPORT: &str = "map";

pub(crate) struct Mapper {
    machine: Arc<Machine>,
    limits: Limits,
    functions: Vec<(Arc<str>, Guest)>,
}

impl Mapper {
    pub(crate) fn new(machine: &Arc<Machine>, source: &MapSource, limits: Limits) -> Result<Self, CompileError> {
        let functions = source
            .functions
            .iter()
            .map(|text| Ok((Arc::clone(text), Guest::new(machine, &Source::parse(text, EXPORT), limits)?)));
        let functions = functions.collect::<Result<_, CompileError>>()?;
        Ok(Self { machine: Arc::clone(machine), limits, functions })
    }

    fn renew(&mut self, function: usize) -> Result<(), RunError> {
        let (text, guest) = &mut self.functions[function];
        *guest = Guest::new(&self.machine, &Source::parse(text, EXPORT), self.limits)
            .map_err(|error| RunError::Machinery(error.to_string()))?;
        Ok(())
    }
}

impl Program for Mapper {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        let machine = Arc::clone(&self.machine);
        let _running = machine.run();
        for (index, document) in (0_u32..).zip(batch.iter()) {
            for function in 0..self.functions.len() {
                let number = function as u32;
                let message = match self.functions[function].1.call(document.json) {
                    Ok(host) => {
                        let mut rest = host.text.as_slice();
                        for (key, value) in &host.rows {
                            let (key, others) = rest.split_at(*key as usize);
                            let (value, others) = others.split_at(*value as usize);
                            output.push(index, number, key, value);
                            rest = others;
                        }
                        output.log.append(&mut host.log);
                        output.hand_on(&self.limits, take)?;
                        continue;
                    }
                    Err(Failure::Failed(message)) => message,
                    Err(Failure::Stopped(name, reason)) => {
                        let export = Source::parse(&self.functions[function].0, EXPORT).export;
                        let place = format!("map function {} ({export}) on document \"{}\"", number + 1, document.id);
                        self.renew(function)?;
                        return Err(Failure::fatal(name, &place, &reason));
                    }
                };
                output.failures.push(MapFailure { document: index, function: number, message });
                self.renew(function)?;
            }
        }
        Ok(())
    }
}
