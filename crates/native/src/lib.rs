//! The native evaluator: map functions in a strict subset of JavaScript, interpreted in the server's own process.
//!
//! The subset cannot keep state between documents and can read only its document. All operations that the evaluator
//! cannot perform exactly are left to the engine ([`Mapped::BailedOut`]), so results equal those of the workers.
//!
//! 1. [`compile`] parses the source and builds the [`tree`].
//! 2. [`run`] evaluates it for one document, in an arena that is reset before the next; [`value`] represents the text
//!    of the document.
//! 3. [`mod@write`] converts emitted values to JSON text.

#![forbid(unsafe_code)]

mod arrays;
mod calls;
mod code_units;
mod compile;
mod convert;
mod date;
mod date_methods;
mod inherited;
mod numbers;
mod pattern;
mod pattern_methods;
mod reason;
mod run;
mod strings;
pub mod text;
mod tree;
mod uri;
mod value;
mod write;

use bumpalo::Bump;

use self::reason::{Steps, Stop};
use self::run::{Run, Sink};
use self::tree::Program;
use self::value::Lazy;

pub use self::compile::{Refused, members_of_environment};
pub use self::reason::Reason;

/// Longer documents are left to the engine, because their values would use the memory of the server.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// Limits of one call, after which the engine takes over; its own limits are wider. A step is roughly a node of the
/// tree or an element of an array.
const STEPS: Steps = Steps { steps: 500_000, bytes: 16 << 20 };

/// A larger arena is freed, and not shared by further functions.
const KEPT_ARENA_BYTES: usize = 4 << 20;

pub struct NativeFunction {
    program: Program,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    Done,
    /// The rows of the call are invalid, its log lines are valid.
    Threw(String),
    /// The engine must run the function on this document. Rows and log lines in the sink are invalid.
    BailedOut(Reason),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Environment {
    /// `emit(key, value)`.
    #[default]
    View,
    /// `index(type, name, value, options)`, a row with the key `[type,name,options]`.
    Nouveau,
    /// `index(name, value, options)`, a row with the key `[name,options]`.
    Clouseau,
}

#[derive(Default)]
pub struct Workspace {
    arena: Bump,
    row: Vec<u8>,
}

/// Functions that are applied to a document one after another share the results of searches in its text.
pub struct Document<'a> {
    arena: &'a Bump,
    row: &'a mut Vec<u8>,
    root: &'a Lazy<'a>,
}

pub trait RowSink {
    /// Receives key and value as JSON text; returns false if the rows exceed a limit.
    fn row(&mut self, key: &[u8], value: &[u8]) -> bool;
    fn line(&mut self, line: &[u8]);
}

impl NativeFunction {
    pub fn compile(source: &str, environment: Environment) -> Result<Self, Refused> {
        compile::compile(source, environment).map(|program| Self { program })
    }

    pub fn map<'a>(&'a self, document: &mut Document<'a>, sink: &mut dyn RowSink) -> Mapped {
        let mut sink = Guarded(sink);
        let Document { arena, row, root } = document;
        match Run::call_program(&self.program, arena, STEPS, root, row, &mut sink) {
            Ok(None) => Mapped::Done,
            Ok(Some(message)) => Mapped::Threw(message),
            Err(Stop::BailOut(reason)) => Mapped::BailedOut(reason),
        }
    }
}

impl Workspace {
    /// Opens a document and drops the previous one. Returns `None` if it must be left to the engine.
    pub fn open<'a>(&'a mut self, text: &'a [u8]) -> Option<Document<'a>> {
        if text.len() > MAX_DOCUMENT_BYTES || text.first() != Some(&b'{') {
            return None;
        }
        if self.arena.allocated_bytes() > KEPT_ARENA_BYTES {
            self.arena = Bump::new();
        } else {
            self.arena.reset();
        }
        let Self { arena, row } = self;
        let arena = &*arena;
        Some(Document { arena, row, root: Lazy::new(arena, text) })
    }
}

impl Document<'_> {
    /// True if the next function should start with an empty arena.
    pub fn is_full(&self) -> bool {
        self.arena.allocated_bytes() > KEPT_ARENA_BYTES
    }
}

struct Guarded<'s>(&'s mut dyn RowSink);

impl Sink for Guarded<'_> {
    fn row(&mut self, key: &[u8], value: &[u8]) -> Result<(), Stop> {
        if self.0.row(key, value) { Ok(()) } else { Err(Stop::BailOut(Reason::Rows)) }
    }

    fn line(&mut self, line: &[u8]) {
        self.0.line(line);
    }
}
