//! The native evaluator: map functions of a strict subset of JavaScript, run in the server's own process.
//!
//! [`NativeFunction`] is a compiled function. No code of users runs natively: a function is a tree that is walked. The
//! subset has no way to keep anything from one document to the next and none to see anything but its document; and what
//! it cannot do exactly as the engine it leaves to the engine, if need be in the middle of a document
//! ([`NativeFunction::map`] then answers [`Mapped::BailedOut`]). So results are the workers', only sooner.
//!
//! 1. [`compile`] reads the source and makes the [`tree`].
//! 2. [`run`] walks it for one document, in an arena that is emptied before the next; [`value`] knows the document's text.
//! 3. [`mod@write`] makes JSON text of what was emitted.

#![forbid(unsafe_code)]

mod arrays;
mod calls;
mod code_units;
mod compile;
mod convert;
mod date;
mod inherited;
mod numbers;
mod pattern;
mod pattern_methods;
mod reason;
mod run;
mod strings;
pub mod text;
mod tree;
mod value;
mod write;

use bumpalo::Bump;

use self::reason::{Steps, Stop};
use self::run::{Run, Sink};
use self::tree::Program;
use self::value::Lazy;

pub use self::compile::Refused;
pub use self::reason::Reason;

/// Longer documents are left to the engine: their values would fill the memory of the server.
const MAX_DOCUMENT_BYTES: usize = 1 << 20;

/// The limits of one call before the engine takes over, whose own limits are wider. A step is about a node of the tree
/// or an element of an array.
const STEPS: Steps = Steps { steps: 500_000, bytes: 16 << 20 };

/// An arena that has grown beyond this is not kept, and not shared by further functions.
const KEPT_ARENA_BYTES: usize = 4 << 20;

/// A map function of the subset.
pub struct NativeFunction {
    program: Program,
}

/// The end of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mapped {
    /// Its rows and lines were given to the sink.
    Done,
    /// With an exception of this text: its rows do not count, its lines do.
    Threw(String),
    /// The engine shall run the function on this document. What the sink was given does not count.
    BailedOut(Reason),
}

/// The place that a function is for: what it calls to hand over what it makes of a document.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Environment {
    /// A view: `emit(key, value)`.
    #[default]
    View,
    /// A search index of Nouveau: `index(type, name, value, options)`, a row with the key `[type,name,options]`.
    Nouveau,
    /// An older one: `index(name, value, options)`, a row with the key `[name,options]`.
    Clouseau,
}

/// Memory that documents use one after another.
#[derive(Default)]
pub struct Workspace {
    arena: Bump,
    row: Vec<u8>,
}

/// A document on which functions are called one after another: what one of them has found in its text, the next need not
/// look for.
pub struct Document<'a> {
    arena: &'a Bump,
    row: &'a mut Vec<u8>,
    root: &'a Lazy<'a>,
}

/// Takes the rows and lines of a call.
pub trait RowSink {
    /// Takes a row, key and value as JSON text; false if there are too many.
    fn row(&mut self, key: &[u8], value: &[u8]) -> bool;
    /// Takes a line that was logged.
    fn line(&mut self, line: &[u8]);
}

impl NativeFunction {
    /// Compiles a function, if it is in the subset.
    ///
    /// # Errors
    /// When it is not; the text says why.
    pub fn compile(source: &str, environment: Environment) -> Result<Self, Refused> {
        compile::compile(source, environment).map(|program| Self { program })
    }

    /// Runs the function on a document.
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
    /// Begins with a document and forgets the one before. `None`: it is for the engine.
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
    /// Whether the functions so far have left so much behind that the next one should begin with an empty arena.
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
