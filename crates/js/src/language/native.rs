//! [`Programs`] combine both evaluators: functions of the subset run in this process, the others in a worker, which
//! also maps the documents on which a native function bails out.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use settee_design::{
    Allowance, BailOuts, CompileError, DocumentBatch, Emissions, Engine, Limits, MapFailure, MapSource, Program,
    RunError, SearchKind, TakeRows,
};

use super::map::{Log, MapOutput, Mapper, Selection};
use super::options::Evaluator;
use crate::pool::Pool;
use settee_native::{Environment, Mapped, NativeFunction, Reason, Refused, RowSink, Workspace};

pub(super) const NATIVE: &str = "native";
pub(super) const QUICKJS: &str = "quickjs";

/// Number of documents after which a function that bailed out on more than half of them is left to the workers.
const TRIAL_DOCUMENTS: u64 = 512;

/// Maximum size of the sources of [`Compiled`] functions.
const COMPILED_BYTES: usize = 1 << 20;

/// Functions of earlier programs. Without them every update of an index starts a thread to compile each function.
#[derive(Default)]
pub(super) struct Compiled(Mutex<Unused>);

#[derive(Default)]
struct Unused {
    functions: HashMap<(Environment, Arc<str>), Vec<NativeFunction>>,
    bytes: usize,
}

impl Compiled {
    fn compile(&self, environment: Environment, source: &Arc<str>) -> Result<NativeFunction, Refused> {
        let mut unused = self.0.lock();
        let key = (environment, Arc::clone(source));
        if let Some(function) = unused.functions.get_mut(&key).and_then(Vec::pop) {
            unused.bytes -= source.len();
            return Ok(function);
        }
        drop(unused);
        NativeFunction::compile(source, environment)
    }

    fn keep(&self, environment: Environment, source: Arc<str>, function: NativeFunction) {
        let mut unused = self.0.lock();
        if unused.bytes + source.len() > COMPILED_BYTES {
            *unused = Unused::default();
        }
        unused.bytes += source.len();
        unused.functions.entry((environment, source)).or_default().push(function);
    }
}

fn environment(search: Option<SearchKind>) -> Environment {
    match search {
        None => Environment::View,
        Some(SearchKind::Nouveau) => Environment::Nouveau,
        Some(SearchKind::Clouseau) => Environment::Clouseau,
    }
}

pub(super) fn compile(
    compiled: &Compiled,
    source: &MapSource,
    evaluator: Evaluator,
    search: Option<SearchKind>,
) -> Vec<Result<NativeFunction, &'static str>> {
    let compile = |function: &Arc<str>| match evaluator {
        Evaluator::Native => compiled.compile(environment(search), function).map_err(|Refused(reason)| reason),
        Evaluator::Workers => Err("the native evaluator is switched off"),
    };
    source.functions.iter().map(compile).collect()
}

pub(super) fn engine(refused: Option<&'static str>) -> Engine {
    Engine { name: if refused.is_some() { QUICKJS } else { NATIVE }, reason: refused }
}

pub(super) struct Programs {
    pool: Arc<Pool>,
    compiled: Arc<Compiled>,
    source: MapSource,
    search: Option<SearchKind>,
    limits: Limits,
    natives: Vec<Native>,
    workspace: Workspace,
    refused: Vec<(u32, &'static str)>,
    bail_outs: Vec<BailOuts>,
    /// Functions outside the subset.
    others: Option<Mapper>,
    /// The native functions in a worker, for documents on which they bail out.
    fallback: Mapper,
    log: Log,
}

struct Native {
    index: u32,
    function: NativeFunction,
    attempts: u64,
    bail_outs: u64,
}

impl Native {
    fn bails_out_mostly(&self) -> bool {
        self.attempts >= TRIAL_DOCUMENTS && self.bail_outs * 2 > self.attempts
    }
}

impl Programs {
    pub(super) fn compile(
        (pool, compiled): (&Arc<Pool>, &Arc<Compiled>),
        source: &MapSource,
        limits: Limits,
        evaluator: Evaluator,
        search: Option<SearchKind>,
    ) -> Result<Self, CompileError> {
        let mut natives = Vec::new();
        let (mut others, mut refused) = (Vec::new(), Vec::new());
        for (index, function) in (0u32..).zip(compile(compiled, source, evaluator, search)) {
            match function {
                Ok(function) => natives.push(Native { index, function, attempts: 0, bail_outs: 0 }),
                Err(reason) => {
                    others.push(index);
                    refused.push((index, reason));
                }
            }
        }
        let mapper = |numbers| Mapper::of(pool, source, search, numbers, limits);
        let fallback = mapper(natives.iter().map(|native| native.index).collect());
        let mut others = (!others.is_empty()).then(|| mapper(others));
        if let Some(others) = &mut others {
            others.compile()?;
        }
        let (workspace, log) = Default::default();
        let (pool, compiled, source) = (Arc::clone(pool), Arc::clone(compiled), source.clone());
        let bail_outs = Vec::new();
        Ok(Self {
            pool,
            compiled,
            source,
            search,
            limits,
            natives,
            workspace,
            refused,
            bail_outs,
            others,
            fallback,
            log,
        })
    }

    fn map_natively(&mut self, document: u32, batch: &DocumentBatch, output: &mut Emissions) -> bool {
        let text = batch.json(document as usize);
        let (rows, lines, failures) = (output.len(), self.log.len(), output.failures.len());
        // Large output is left to the workers: only they can pass on the rows of a function before the next one runs.
        let bytes_max = output.size_bytes() as u64 + self.limits.bytes_per_part;
        let mut natives = &mut self.natives[..];
        while !natives.is_empty() {
            let Some(mut opened) = self.workspace.open(text) else {
                count(&mut self.bail_outs, natives[0].index, Reason::Document);
                return false;
            };
            while let Some((Native { index, function, attempts, bail_outs }, others)) =
                std::mem::take(&mut natives).split_first_mut()
            {
                natives = others;
                let (function_index, before) = (*index, output.len());
                let log = &mut self.log;
                let allowance = Allowance::new(self.limits);
                let mut sink = DocumentSink { document, function: function_index, allowance, bytes_max, output, log };
                *attempts += 1;
                let mapped = function.map(&mut opened, &mut sink);
                match mapped {
                    Mapped::Done => {}
                    Mapped::Threw(message) => {
                        output.truncate(before);
                        let id = batch.get(document as usize).id;
                        let line = format!("function raised exception {message} with doc._id {id}");
                        self.log.push(document, function_index, line);
                        output.failures.push(MapFailure { document, function: function_index, message });
                    }
                    Mapped::BailedOut(reason) => {
                        *bail_outs += 1;
                        count(&mut self.bail_outs, function_index, reason);
                        output.truncate(rows);
                        output.failures.truncate(failures);
                        self.log.truncate(lines);
                        return false;
                    }
                }
                if opened.is_full() {
                    break;
                }
            }
        }
        true
    }

    fn map_all(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        let mut left = Vec::new();
        if !self.natives.is_empty() {
            for index in (0u32..).take(batch.len()) {
                if !self.map_natively(index, batch, output) {
                    left.push(index);
                }
                output.hand_on(&self.limits, take)?;
            }
        }
        let mut output_sink = MapOutput { output: &mut *output, log: &mut self.log, take };
        if !left.is_empty() {
            self.fallback.map(Selection { batch, documents: &left }, &mut output_sink)?;
        }
        if let Some(others) = &mut self.others {
            let all: Vec<u32> = (0u32..).take(batch.len()).collect();
            others.map(Selection { batch, documents: &all }, &mut output_sink)?;
        }
        if !self.natives.is_empty() && (self.others.is_some() || !left.is_empty()) {
            output.sort();
        }
        Ok(())
    }

    fn move_bailing_functions(&mut self) {
        if !self.natives.iter().any(Native::bails_out_mostly) {
            return;
        }
        let bailing = self.natives.iter().filter(|native| native.bails_out_mostly());
        self.refused.extend(bailing.map(|native| (native.index, "it bailed out on most documents")));
        self.natives.retain(|native| !native.bails_out_mostly());
        let is_native = |index: &u32| self.natives.iter().any(|native| native.index == *index);
        let all = (0u32..).take(self.source.functions.len());
        let (natives, others): (Vec<u32>, Vec<u32>) = all.partition(is_native);
        let mapper = |numbers| Mapper::of(&self.pool, &self.source, self.search, numbers, self.limits);
        (self.fallback, self.others) = (mapper(natives), Some(mapper(others)));
    }
}

impl Drop for Programs {
    fn drop(&mut self) {
        for native in self.natives.drain(..) {
            let source = Arc::clone(&self.source.functions[native.index as usize]);
            self.compiled.keep(environment(self.search), source, native.function);
        }
    }
}

fn count(counted: &mut Vec<BailOuts>, function: u32, reason: Reason) {
    let reason = reason.text();
    match counted.iter_mut().find(|counted| (counted.function, counted.reason) == (function, reason)) {
        Some(counted) => counted.documents += 1,
        None => counted.push(BailOuts { function, reason, documents: 1 }),
    }
}

struct DocumentSink<'a> {
    document: u32,
    function: u32,
    allowance: Allowance,
    bytes_max: u64,
    output: &'a mut Emissions,
    log: &'a mut Log,
}

impl RowSink for DocumentSink<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> bool {
        // A worker reports exceeded limits, in the engine's order of events.
        if self.allowance.take(key.len(), value.len()).is_err() || self.output.size_bytes() as u64 > self.bytes_max {
            return false;
        }
        self.output.push(self.document, self.function, key, value);
        true
    }

    fn line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        self.log.push(self.document, self.function, line);
    }
}

impl Program for Programs {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        self.log.truncate(0);
        self.move_bailing_functions();
        let mapped = self.map_all(batch, output, take);
        output.log.extend(self.log.take());
        mapped
    }

    fn engine(&self, function: usize) -> Option<Engine> {
        let refused = self.refused.iter().find(|(index, _)| *index as usize == function);
        Some(engine(refused.map(|(_, reason)| *reason)))
    }

    fn take_bail_outs(&mut self) -> Vec<BailOuts> {
        std::mem::take(&mut self.bail_outs)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn compiled_functions_are_used_again() {
        let compiled = Compiled::default();
        let source: Arc<str> = "function (doc) { emit(doc._id, null); }".into();
        let unused = || {
            let unused = compiled.0.lock();
            (unused.functions.values().map(Vec::len).sum::<usize>(), unused.bytes)
        };
        let function = compiled.compile(Environment::View, &source).ok().unwrap();
        assert_eq!(unused(), (0, 0));
        compiled.keep(Environment::View, Arc::clone(&source), function);
        assert_eq!(unused(), (1, source.len()));
        assert!(compiled.compile(Environment::Nouveau, &source).is_err(), "it has another environment");
        assert!(compiled.compile(Environment::View, &source).is_ok());
        assert_eq!(unused(), (0, 0));
    }
}
