//! Programs whose functions run where they run best ([`Programs`]): those of the subset in this process, the others in a
//! worker. Documents on which a native function gives up are mapped by a worker as well, so that nobody can tell.

use std::sync::Arc;

use settee_design::{CompileError, DocumentBatch, Emissions, Limits, MapFailure, MapSource, Program, RunError};

use super::Evaluator;
use super::map::{LogLine, Mapper, Selection};
use crate::native::{Mapped, NativeFunction, RowSink, Workspace};
use crate::pool::Pool;

pub(super) const NATIVE: &str = "native";
pub(super) const QUICKJS: &str = "quickjs";

/// After so many documents, a function that gave up more than half of them is left to the workers.
const TRIAL_DOCUMENTS: u64 = 512;

/// The native forms of the functions of a source, as far as they are in the subset.
pub(super) fn compile(source: &MapSource, evaluator: Evaluator) -> Vec<Option<NativeFunction>> {
    let compile = |function: &Arc<str>| match evaluator {
        Evaluator::Native => NativeFunction::compile(function).ok(),
        Evaluator::Workers => None,
    };
    source.functions.iter().map(compile).collect()
}

/// The functions of one source.
pub(super) struct Programs {
    pool: Arc<Pool>,
    source: MapSource,
    limits: Limits,
    natives: Vec<Native>,
    workspace: Workspace,
    /// Functions outside the subset.
    others: Option<Part>,
    /// The native functions, for documents on which they give up.
    second: Part,
    log: Vec<LogLine>,
}

struct Native {
    /// Its index in the source.
    index: u32,
    function: NativeFunction,
    tried: u64,
    given_up: u64,
}

impl Native {
    /// Whether trying has been in vain so often that it is not worth it.
    fn is_hopeless(&self) -> bool {
        self.tried >= TRIAL_DOCUMENTS && self.given_up * 2 > self.tried
    }
}

/// Some of the functions, in a worker.
struct Part {
    mapper: Mapper,
    /// The index in the source of each.
    functions: Vec<u32>,
    /// Whether these are all functions of the source.
    is_whole: bool,
    output: Emissions,
}

impl Part {
    fn new(pool: &Arc<Pool>, source: &MapSource, functions: Vec<u32>, limits: Limits) -> Self {
        let is_whole = functions.len() == source.functions.len();
        let sources = functions.iter().map(|index| Arc::clone(&source.functions[*index as usize])).collect();
        let source = MapSource { functions: sources, library: source.library.clone() };
        let mapper = Mapper::new(Arc::clone(pool), source, functions.clone(), limits);
        Self { mapper, functions, is_whole, output: Emissions::new() }
    }

    /// Maps documents, and adds what comes of it.
    fn map(&mut self, batch: Selection<'_>, output: &mut Emissions, log: &mut Vec<LogLine>) -> Result<(), RunError> {
        self.mapper.log.clear();
        if self.is_whole {
            let mapped = self.mapper.map(batch, output);
            log.append(&mut self.mapper.log);
            return mapped;
        }
        self.output.clear();
        let mapped = self.mapper.map(batch, &mut self.output);
        let index = |function: u32| self.functions[function as usize];
        for row in self.output.rows() {
            output.push(row.document, index(row.function), row.key, row.value);
        }
        for mut failure in self.output.failures.drain(..) {
            failure.function = index(failure.function);
            output.failures.push(failure);
        }
        for mut line in self.mapper.log.drain(..) {
            line.function = index(line.function);
            log.push(line);
        }
        mapped
    }
}

impl Programs {
    pub(super) fn compile(
        pool: &Arc<Pool>,
        source: &MapSource,
        limits: Limits,
        evaluator: Evaluator,
    ) -> Result<Self, CompileError> {
        let mut natives = Vec::new();
        let mut others = Vec::new();
        for (index, function) in (0u32..).zip(compile(source, evaluator)) {
            match function {
                Some(function) => natives.push(Native { index, function, tried: 0, given_up: 0 }),
                None => others.push(index),
            }
        }
        let second = Part::new(pool, source, natives.iter().map(|native| native.index).collect(), limits);
        let mut others = (!others.is_empty()).then(|| Part::new(pool, source, others, limits));
        if let Some(others) = &mut others {
            others.mapper.compile()?;
        }
        let (workspace, log) = Default::default();
        let (pool, source) = (Arc::clone(pool), source.clone());
        Ok(Self { pool, source, limits, natives, workspace, others, second, log })
    }

    /// Runs the native functions on a document; false if one of them gave up.
    fn map_natively(&mut self, document: u32, batch: &DocumentBatch, output: &mut Emissions) -> bool {
        let text = batch.json(document as usize);
        let (rows, lines, failures) = (output.len(), self.log.len(), output.failures.len());
        let (mut rows_left, mut bytes_left) = (self.limits.rows_per_document.into(), self.limits.bytes_per_document);
        let mut natives = &mut self.natives[..];
        while !natives.is_empty() {
            let Some(mut opened) = self.workspace.open(text) else { return false };
            while let Some((Native { index, function, tried, given_up }, others)) =
                std::mem::take(&mut natives).split_first_mut()
            {
                natives = others;
                let (function_index, before) = (*index, output.len());
                let log = &mut self.log;
                let mut sink = DocumentSink { document, function: function_index, rows_left, bytes_left, output, log };
                *tried += 1;
                let mapped = function.map(&mut opened, &mut sink);
                (rows_left, bytes_left) = (sink.rows_left, sink.bytes_left);
                match mapped {
                    Mapped::Done => {}
                    Mapped::Threw(message) => {
                        output.truncate(before);
                        let id = batch.get(document as usize).id;
                        let line = format!("function raised exception {message} with doc._id {id}");
                        self.log.push(LogLine { document, function: function_index, line });
                        output.failures.push(MapFailure { document, function: function_index, message });
                    }
                    Mapped::GivenUp => {
                        *given_up += 1;
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

    /// Leaves functions that mostly give up to the workers: others need not be run twice because of them.
    fn give_up_the_hopeless(&mut self) {
        if !self.natives.iter().any(Native::is_hopeless) {
            return;
        }
        self.natives.retain(|native| !native.is_hopeless());
        let is_native = |index: &u32| self.natives.iter().any(|native| native.index == *index);
        let all = (0u32..).take(self.source.functions.len());
        let (natives, others): (Vec<u32>, Vec<u32>) = all.partition(is_native);
        self.second = Part::new(&self.pool, &self.source, natives, self.limits);
        self.others = Some(Part::new(&self.pool, &self.source, others, self.limits));
    }
}

/// Takes what the functions emit for one document.
struct DocumentSink<'a> {
    document: u32,
    function: u32,
    /// What the document may still emit.
    rows_left: u64,
    bytes_left: u64,
    output: &'a mut Emissions,
    log: &'a mut Vec<LogLine>,
}

impl RowSink for DocumentSink<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> bool {
        let bytes = (key.len() + value.len()) as u64;
        let (Some(rows), Some(bytes)) = (self.rows_left.checked_sub(1), self.bytes_left.checked_sub(bytes)) else {
            return false;
        };
        (self.rows_left, self.bytes_left) = (rows, bytes);
        self.output.push(self.document, self.function, key, value);
        true
    }

    fn line(&mut self, line: &[u8]) {
        let line = String::from_utf8_lossy(line).into_owned();
        self.log.push(LogLine { document: self.document, function: self.function, line });
    }
}

impl Program for Programs {
    fn map(&mut self, batch: &DocumentBatch, output: &mut Emissions) -> Result<(), RunError> {
        self.log.clear();
        self.give_up_the_hopeless();
        let mut left = Vec::new();
        if !self.natives.is_empty() {
            for index in (0u32..).take(batch.len()) {
                if !self.map_natively(index, batch, output) {
                    left.push(index);
                }
            }
        }
        let mut mapped = Ok(());
        if !left.is_empty() {
            let selection = Selection { batch, documents: &left };
            mapped = self.second.map(selection, output, &mut self.log);
        }
        if let Some(others) = &mut self.others
            && mapped.is_ok()
        {
            let all: Vec<u32> = (0u32..).take(batch.len()).collect();
            mapped = others.map(Selection { batch, documents: &all }, output, &mut self.log);
        }
        if !self.natives.is_empty() && (self.others.is_some() || !left.is_empty()) {
            output.sort();
            self.log.sort_by_key(|line| (line.document, line.function));
        }
        output.log.extend(self.log.drain(..).map(|line| line.line));
        mapped
    }

    fn engine(&self, function: usize) -> Option<&'static str> {
        let is_native = self.natives.iter().any(|native| native.index as usize == function);
        Some(if is_native { NATIVE } else { QUICKJS })
    }
}
