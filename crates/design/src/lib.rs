//! Design documents and the interface that every view language implements.
//!
//! A [`Language`] compiles the map functions of an index into a [`Program`], which maps whole
//! batches of documents, and reduce functions into a [`Reducer`]; the other functions of a design document are
//! called through a [`DesignProgram`]. This crate runs no code itself and knows no particular language.

mod batch;
mod cancellation;
pub mod conformance;
mod design_document;
mod functions;
mod limits;
mod modules;
pub mod scripted;
mod search;
mod shares;

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::json::Value;

pub use batch::{Document, DocumentBatch, Emission, Emissions, MapFailure};
pub use cancellation::{CANCELLATION_INTERVAL, Caller, CancelOnDrop, Cancellation, Cancelled};
pub use design_document::{
    DesignDocument, DesignOptions, InvalidMember, Swap, Types, ViewDefinition, validate_members,
};
pub use functions::{CallError, DesignProgram, DesignSource, ListSession, ListSink, ListState, MoreRows, Reason};
pub use limits::{Allowance, Excess, Growth, Limits, overflow_text};
pub use search::{SearchDefinition, SearchKind, with_lucene_version};
pub use shares::{Owner, Rank, Shares};

/// The input for compiling the map functions of one pass over a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSource {
    /// The source text of each map function.
    pub functions: Vec<Arc<str>>,
    /// The `views.lib` member of the design document as JSON text, if there is one.
    pub library: Option<Arc<str>>,
}

/// Why a function could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The source is wrong; the text is the language's own message.
    #[error("{0}")]
    Source(String),
    /// The language's machinery is missing or broken.
    #[error("{0}")]
    Unavailable(String),
}

/// Why a program stopped. An exception in a map function is not among these: the document then
/// simply emits nothing, and the exception is in [`Emissions::failures`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A function asked for the end of the indexing, or broke a limit. `name` and `reason` are what
    /// clients see as `error` and `reason`.
    #[error("{name}: {reason}")]
    Fatal {
        /// For example `map_runtime_error` or `timeout`.
        name: String,
        /// A sentence; names the function and the document where they are known.
        reason: String,
    },
    /// The machinery that runs the functions failed; another try may succeed.
    #[error("{0}")]
    Machinery(String),
}

impl RunError {
    /// Nobody takes the rows any more.
    #[must_use]
    pub fn unwanted() -> Self {
        Self::Machinery("nobody takes the rows".to_owned())
    }

    /// The client on whose behalf the function ran has disconnected.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::Machinery(Cancelled.to_string())
    }
}

/// A language that views can be written in. Cheap to share between threads.
pub trait Language: Send + Sync {
    /// The value of `language` in a design document.
    fn name(&self) -> &str;

    /// Compiles map functions. Each index build asks for several programs, one a thread. A language may have none: then this
    /// is not there.
    ///
    /// # Errors
    /// When a function does not compile or the language is not available, or has no such functions.
    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        let (_, _) = (source, limits);
        Err(CompileError::Unavailable(format!("the language {} has no map functions", self.name())))
    }

    /// Compiles the functions of search indexes, which call `index` where map functions call `emit`. A language may have
    /// none: then this is not there.
    ///
    /// Each field that a function makes of a document is a row. Its key is, of Nouveau's `index(type, name, value, options)`,
    /// `[type,name]` or `[type,name,options]`, and of Clouseau's `index(name, value, options)`, `[name]` or
    /// `[name,options]`, options being left out if they are not given; its value is the value.
    ///
    /// # Errors
    /// When a function does not compile or the language is not available, or has no such functions.
    fn index_program(
        &self,
        kind: SearchKind,
        source: &MapSource,
        limits: Limits,
    ) -> Result<Box<dyn Program>, CompileError> {
        let (_, _, _) = (kind, source, limits);
        Err(CompileError::Unavailable(format!("the language {} has no index functions", self.name())))
    }

    /// Compiles a reduce function.
    ///
    /// # Errors
    /// When it does not compile or the language is not available, or has no such functions.
    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        let (_, _) = (source, limits);
        Err(CompileError::Unavailable(format!("the language {} has no reduce functions", self.name())))
    }

    /// The engine that would run each map function of `source`, as [`Program::engine`] names it. A language with one
    /// engine names none.
    fn engines(&self, source: &MapSource) -> Vec<Engine> {
        let _ = source;
        Vec::new()
    }

    /// Prepares the other functions of a design document for calls. A language may have views only: then this is
    /// not there.
    ///
    /// # Errors
    /// When the language is not available, or has no such functions.
    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        let (_, _) = (source, limits);
        Err(CompileError::Unavailable(format!("the language {} has only views", self.name())))
    }

    /// Checks a `validate_doc_update` before its design document is saved. A language may leave that to the first
    /// call, as CouchDB does for JavaScript: then this is not there.
    ///
    /// # Errors
    /// When the function does not compile.
    fn check_validation(&self, function: Value<'_>) -> Result<(), CompileError> {
        let _ = function;
        Ok(())
    }
}

/// The engine of a map function, where a language has several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its name, for example `native` or `quickjs`.
    pub name: &'static str,
    /// Why it is not a faster one.
    pub reason: Option<&'static str>,
}

/// Documents that the fastest engine left to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BailOuts {
    /// The index of the function.
    pub function: u32,
    /// Why.
    pub reason: &'static str,
    /// How many there were.
    pub documents: u64,
}

/// Takes rows and what was thrown and logged out of [`Emissions`] before more is added. `Break` ends the program.
pub type TakeRows<'a> = dyn FnMut(&mut Emissions) -> ControlFlow<()> + 'a;

/// Compiled map functions.
pub trait Program: Send {
    /// Runs every function on every document of `batch` and adds what they emit to `output`, which the caller has cleared.
    ///
    /// Whenever `output` is full ([`Emissions::is_full`]) after a function has seen a document, `take` is called, which
    /// empties it. Rows of one document and function always come together, and for each function mostly in the order of the
    /// documents.
    ///
    /// # Errors
    /// When the build of the index cannot go on, or `take` breaks off.
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError>;

    /// The same for callers that take all rows at once: those of few documents.
    ///
    /// # Errors
    /// When the build of the index cannot go on.
    fn map(&mut self, batch: &DocumentBatch, output: &mut Emissions) -> Result<(), RunError> {
        self.map_in_parts(batch, output, &mut |_| ControlFlow::Continue(()))
    }

    /// The engine of the map function at index `function`; `None` where a language has one engine only.
    fn engine(&self, function: usize) -> Option<Engine> {
        let _ = function;
        None
    }

    /// Takes how often the fastest engine of a function left documents to another one, since this was last asked.
    fn take_bail_outs(&mut self) -> Vec<BailOuts> {
        Vec::new()
    }
}

/// Rows that are reduced together. Keys and values are JSON text.
#[derive(Clone, Debug, Default)]
pub struct ReduceRows<'a> {
    /// Key, document id (plain text) and value of each row.
    pub rows: Vec<(&'a [u8], &'a str, &'a [u8])>,
}

/// A compiled reduce function. Both methods answer one JSON text for each group, in order; an
/// exception in the function makes `null` of its group, a reduction that grows too large or has more than
/// [`Limits::reduction_bytes`] makes an [`overflow_text`].
pub trait Reducer: Send {
    /// Reduces groups of rows.
    ///
    /// # Errors
    /// When the machinery failed or a limit was broken.
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError>;

    /// Reduces groups of earlier reductions.
    ///
    /// # Errors
    /// When the machinery failed or a limit was broken.
    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError>;

    /// Takes the lines that the function wrote with `log` since this was last asked, if it can.
    fn take_log(&mut self) -> Vec<String> {
        Vec::new()
    }
}
