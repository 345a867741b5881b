//! Design documents and the interface that every view language implements.
//!
//! A [`Language`] compiles the map functions of an index into a [`Program`], which maps whole
//! batches of documents, and reduce functions into a [`Reducer`]; the other functions of a design document are
//! called through a [`DesignProgram`]. This crate runs no code itself and knows no particular language.

mod batch;
pub mod conformance;
mod design_document;
mod functions;
mod modules;

use std::sync::Arc;

use settee_model::json::Value;

pub use batch::{Document, DocumentBatch, Emission, Emissions, MapFailure};
pub use design_document::{DesignDocument, DesignOptions, InvalidMember, Swap, ViewDefinition, validate_members};
pub use functions::{CallError, DesignProgram, DesignSource, ListSession, ListSink, ListState, MoreRows};

/// What a language needs to know to compile the map functions of one pass over a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MapSource {
    /// The source text of each map function.
    pub functions: Vec<Arc<str>>,
    /// The `views.lib` member of the design document as JSON text, if there is one.
    pub library: Option<Arc<str>>,
}

/// What a running function may use.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest time one document, or one reduction, may take.
    pub timeout_ms: u64,
    /// The most memory the functions may hold.
    pub memory_bytes: u64,
    /// The most rows that one document may emit.
    pub rows_per_document: u32,
    /// The most bytes that the keys and values of one document may have.
    pub bytes_per_document: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { timeout_ms: 5_000, memory_bytes: 256 << 20, rows_per_document: 1 << 20, bytes_per_document: 64 << 20 }
    }
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

/// A language that views can be written in. Cheap to share between threads.
pub trait Language: Send + Sync {
    /// The value of `language` in a design document.
    fn name(&self) -> &str;

    /// Compiles map functions. Each index build asks for several programs, one a thread.
    ///
    /// # Errors
    /// When a function does not compile or the language is not available.
    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError>;

    /// Compiles a reduce function.
    ///
    /// # Errors
    /// When it does not compile or the language is not available.
    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError>;

    /// What would run each map function of `source`, as [`Program::engine`] names it. A language with one engine names
    /// none.
    fn engines(&self, source: &MapSource) -> Vec<&'static str> {
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

/// Compiled map functions.
pub trait Program: Send {
    /// Runs every function on every document of `batch`, in order, and adds what they emit to
    /// `output`, which the caller has cleared.
    ///
    /// # Errors
    /// When the build of the index cannot go on.
    fn map(&mut self, batch: &DocumentBatch, output: &mut Emissions) -> Result<(), RunError>;

    /// The name of what runs the map function at index `function`, for example `native` or `quickjs`; `None` where a
    /// language has one engine only.
    fn engine(&self, function: usize) -> Option<&'static str> {
        let _ = function;
        None
    }
}

/// Rows that are reduced together. Keys and values are JSON text.
#[derive(Clone, Debug, Default)]
pub struct ReduceRows<'a> {
    /// Key, document id (plain text) and value of each row.
    pub rows: Vec<(&'a [u8], &'a str, &'a [u8])>,
}

/// A compiled reduce function. Both methods answer one JSON text for each group, in order; an
/// exception in the function makes `null` of its group, a reduction that grows too large makes
/// `{"error":"reduce_overflow_error","reason":"…"}`-like values the way CouchDB stores them.
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
