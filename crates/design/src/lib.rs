//! Design documents and the interface that every view language implements.
//!
//! A [`Language`] compiles map functions into a [`Program`] and reduce functions into a [`Reducer`]; a
//! [`DesignProgram`] calls the other functions of a design document. This crate contains no particular language.

#![warn(missing_docs)]

mod batch;
#[cfg(any(test, feature = "conformance"))]
#[expect(missing_docs, reason = "support of tests: the names state the properties")]
pub mod conformance;
mod design_document;
mod functions;
mod limits;
mod modules;
pub mod rewrites;
pub mod scripted;
mod search;

use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::json::Value;

pub use batch::{Document, DocumentBatch, Emission, Emissions, MapFailure};
pub use design_document::{
    DesignDocument, DesignOptions, InvalidMember, Swap, Types, ViewDefinition, validate_members,
};
pub use functions::{CallError, DesignProgram, DesignSource, ListSession, ListSink, ListState, MoreRows, Reason};
pub use limits::{Allowance, Excess, Growth, Limits, LimitsSource, overflow_text};
pub use search::{SearchDefinition, SearchKind, with_lucene_version};
pub use settee_threads::{CANCELLATION_INTERVAL, CancelOnDrop, Cancellation, Cancelled, Owner, Rank, Shares, Threads};

/// The client for which functions are called.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// Share of processes for its calls; without one they use any free process.
    pub owner: Option<Owner>,
    /// Cancelled when the client disconnects.
    pub cancellation: Cancellation,
    /// Threads for the blocking work of its request.
    pub threads: Threads,
}

/// Source of the map functions of one index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSource {
    /// Source text of each map function.
    pub functions: Vec<Arc<str>>,
    /// Member `views.lib` of the design document as JSON text, if present.
    pub library: Option<Arc<str>>,
}

/// Cause of a failed compilation.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileError {
    /// The source is invalid; the text is the message of the language.
    #[error("{0}")]
    Source(String),
    /// The process or engine of the language is missing or broken.
    #[error("{0}")]
    Unavailable(String),
}

/// Cause of the end of a program. Exceptions of map functions are in [`Emissions::failures`] instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RunError {
    /// A function requested the end of the build or exceeded a limit. Clients get `name` as `error`, and `reason`.
    #[error("{name}: {reason}")]
    Fatal {
        /// For example `map_runtime_error` or `timeout`.
        name: String,
        /// A sentence that names the function and, if possible, the document.
        reason: String,
    },
    /// The process or engine failed; a retry may succeed.
    #[error("{0}")]
    Machinery(String),
}

impl RunError {
    /// Returns the error for rows that are no longer needed.
    #[must_use]
    pub fn unwanted() -> Self {
        Self::Machinery("the rows are no longer needed".to_owned())
    }

    /// Returns the error for a client that has disconnected.
    #[must_use]
    pub fn cancelled() -> Self {
        Self::Machinery(Cancelled.to_string())
    }
}

/// A language of design documents.
pub trait Language: Send + Sync {
    /// Value of `language` in a design document.
    fn name(&self) -> &str;

    /// Compiles map functions, for each thread of a build. Fails if a source is invalid or the language unavailable.
    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        let (_, _) = (source, limits);
        Err(CompileError::Unavailable(format!("the language {} has no map functions", self.name())))
    }

    /// Compiles functions of search indexes, which call `index` instead of `emit`. Fails as [`Language::program`]. Each
    /// field that a function creates for a document is a row. For Nouveau's `index(type, name, value, options)` its key
    /// is `[type,name]` or `[type,name,options]`, and for Clouseau's `index(name, value, options)` it is `[name]` or
    /// `[name,options]`. The value of the row is that of the field.
    fn index_program(
        &self,
        kind: SearchKind,
        source: &MapSource,
        limits: Limits,
    ) -> Result<Box<dyn Program>, CompileError> {
        let (_, _, _) = (kind, source, limits);
        Err(CompileError::Unavailable(format!("the language {} has no index functions", self.name())))
    }

    /// Compiles a reduce function. Fails as [`Language::program`].
    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        let (_, _) = (source, limits);
        Err(CompileError::Unavailable(format!("the language {} has no reduce functions", self.name())))
    }

    /// Returns the engine of each map function; empty for a language with one engine.
    fn engines(&self, source: &MapSource) -> Vec<Engine> {
        let _ = source;
        Vec::new()
    }

    /// Prepares the other functions of a design document. Fails as [`Language::program`].
    fn design_program(&self, source: &DesignSource, limits: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        let (_, _) = (source, limits);
        Err(CompileError::Unavailable(format!("the language {} has only views", self.name())))
    }

    /// Compiles a `validate_doc_update` before its design document is saved. Not implemented by languages that report
    /// errors at the first call, as CouchDB does for JavaScript.
    fn check_validation(&self, function: Value<'_>) -> Result<(), CompileError> {
        let _ = function;
        Ok(())
    }
}

/// Engine of a map function, for languages with several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Name, for example `native` or `quickjs`.
    pub name: &'static str,
    /// Reason for which the fastest engine does not run the function.
    pub reason: Option<&'static str>,
}

/// Documents that the fastest engine passed to another one (bail-outs).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BailOuts {
    /// Index of the function.
    pub function: u32,
    /// Reason of the bail-out.
    pub reason: &'static str,
    /// Number of documents.
    pub documents: u64,
}

/// Takes all rows, exceptions and log lines out of [`Emissions`]. `Break` ends the program.
pub type TakeRows<'a> = dyn FnMut(&mut Emissions) -> ControlFlow<()> + 'a;

/// Compiled map functions.
pub trait Program: Send {
    /// Runs every function on every document of `batch` and adds their rows to `output`, which must be empty. Fails if
    /// the build of the index must stop, or `take` returns `Break`. Whenever `output` is full ([`Emissions::is_full`])
    /// after a function has processed a document, `take` is called and must empty it. Rows of one document and function
    /// are always passed together, and those of a function mostly in the order of the documents.
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError>;

    /// As [`Self::map_in_parts`], for small batches, whose rows are all in `output` at the end.
    fn map(&mut self, batch: &DocumentBatch, output: &mut Emissions) -> Result<(), RunError> {
        self.map_in_parts(batch, output, &mut |_| ControlFlow::Continue(()))
    }

    /// Returns the engine of a map function; `None` for a language with one engine.
    fn engine(&self, function: usize) -> Option<Engine> {
        let _ = function;
        None
    }

    /// Returns and resets the counts of bail-outs.
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

/// Both methods return one JSON text for each group, in order. An exception makes the group `null`; a reduction that
/// does not shrink or exceeds [`Limits::reduction_bytes`] becomes an [`overflow_text`].
pub trait Reducer: Send {
    /// Reduces groups of rows. Fails if a limit was exceeded, or the process or engine failed.
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError>;

    /// Reduces groups of earlier reductions. Fails as [`Self::reduce`].
    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError>;

    /// Returns and removes the lines that the function wrote with `log`, if supported.
    fn take_log(&mut self) -> Vec<String> {
        Vec::new()
    }
}
