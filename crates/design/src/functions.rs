//! The other functions of design documents: validations, updates, filters, shows, lists and rewrites
//! ([`DesignProgram`]).
//!
//! A function is named by its path in the design document, its arguments and its result are JSON text. What a
//! result means is left to the caller, except for refusals, which are a [`CallError`].

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::json::{Json, Value, write_string};

use crate::{Caller, DocumentBatch, RunError};

/// A design document whose functions are to be called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignSource {
    /// The number that tells its database from others, also from earlier ones of the same name.
    pub database: u64,
    /// Its id, `_design/` included.
    pub id: Arc<str>,
    /// Its revision. Sources with the same database, id and revision are the same: what was compiled of one is used for
    /// the other.
    pub rev: Arc<str>,
    /// The whole document as valid JSON text, `_id` and `_rev` included.
    pub json: Arc<[u8]>,
}

/// Why a function gave no result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// It threw `{forbidden: …}`.
    #[error("{0}")]
    Forbidden(Reason),
    /// It threw `{unauthorized: …}`.
    #[error("{0}")]
    Unauthorized(Reason),
    /// It, or something that it asked for, is not there.
    #[error("{0}")]
    NotFound(String),
    /// It threw something else, or does not compile.
    #[error("{name}: {reason}")]
    Failed {
        /// The `error` that clients see.
        name: String,
        /// The `reason` that clients see.
        reason: String,
    },
    /// It broke a limit, or the machinery failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// The reason of a refusal: a JSON value of any kind, which clients receive as it was thrown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason(Json);

impl Reason {
    /// Returns the value.
    #[must_use]
    pub fn json(&self) -> &Json {
        &self.0
    }
}

impl From<Value<'_>> for Reason {
    fn from(value: Value<'_>) -> Self {
        Self(Json::trusted(value.raw().to_vec()))
    }
}

impl From<&str> for Reason {
    fn from(text: &str) -> Self {
        let mut json = Vec::new();
        write_string(&mut json, text);
        Self(Json::trusted(json))
    }
}

/// Displays a string without quotation marks, any other value as JSON.
impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.value().to_text())
    }
}

impl CallError {
    /// The error that a function named, as in `["error", name, reason]`.
    #[must_use]
    pub fn named(name: String, reason: String) -> Self {
        match name.as_str() {
            "not_found" => Self::NotFound(reason),
            "forbidden" => Self::Forbidden(reason.as_str().into()),
            "unauthorized" => Self::Unauthorized(reason.as_str().into()),
            _ => Self::Failed { name, reason },
        }
    }

    /// The meaning of a value that a function threw, or that came in the place of its result: `{forbidden: …}` and
    /// `{unauthorized: …}` are refusals, of anything else the first member or the whole is the reason.
    #[must_use]
    pub fn thrown(value: Value<'_>) -> Self {
        match (value.get("forbidden"), value.get("unauthorized")) {
            (Some(reason), _) => Self::Forbidden(reason.into()),
            (None, Some(reason)) => Self::Unauthorized(reason.into()),
            (None, None) => {
                let reason = value.members().next().map_or(value, |(_, first)| first);
                Self::Failed { name: "unknown_error".to_owned(), reason: reason.to_text() }
            }
        }
    }
}

/// The functions of one design document. They are compiled when they are first called.
pub trait DesignProgram: Send {
    /// Calls the function at `path` with `arguments`; returns its result as JSON text, in the form that CouchDB's query
    /// servers give it:
    ///
    /// * `["validate_doc_update"]`: `1`;
    /// * `["shows", name]`: `["resp", response]`;
    /// * `["updates", name]`: `["up", document or null, response]`;
    /// * `["rewrites"]`: `["ok", rewrite]` or `["no_dispatch_rule"]`.
    ///
    /// # Errors
    /// When the function refused or failed.
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError>;

    /// Which of `documents` pass the filter at `path`: `["filters", name]`, which also gets `request`, or
    /// `["views", name, "map"]`, which passes documents for which it emits something.
    ///
    /// # Errors
    /// When the function failed for one of them.
    fn filter(
        &mut self,
        path: &[&str],
        documents: &DocumentBatch,
        request: Option<&[u8]>,
    ) -> Result<Vec<bool>, CallError>;

    /// Calls the list function `name` up to where it waits for the first row. What it starts and sends goes to `sink`.
    ///
    /// # Errors
    /// When the function failed.
    fn list<'a>(
        &'a mut self,
        name: &str,
        head: &[u8],
        request: &[u8],
        sink: &mut dyn ListSink,
    ) -> Result<Box<dyn ListSession + 'a>, CallError>;

    /// Sets the client on whose behalf later calls run. Its disconnect ends them, and processes are shared between clients. A
    /// language whose functions end by themselves ignores it.
    fn set_caller(&mut self, caller: &Caller) {
        let _ = caller;
    }

    /// Takes the lines that functions wrote with `log` since this was last asked.
    fn take_log(&mut self) -> Vec<String>;
}

/// Takes what a list function answers.
pub trait ListSink {
    /// The response that the function starts: a JSON object with `code` and `headers`, as far as they were given. Called
    /// before the first chunk, perhaps several times: the last one counts.
    fn response(&mut self, response: &[u8]);

    /// A piece of the body. `Break` when nobody reads it any more: the function is then given up.
    fn chunk(&mut self, chunk: &[u8]) -> ControlFlow<()>;
}

/// The piece of input after some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreRows {
    /// Perhaps others.
    Perhaps,
    /// Nothing.
    No,
}

/// The output of a list function after some rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListState {
    /// It waits for further rows.
    Waiting,
    /// It has returned, or was given up; further rows are of no interest.
    Ended,
}

/// A running list function.
pub trait ListSession {
    /// Gives the function `rows`, each a JSON object. After [`MoreRows::No`] it runs to its end.
    ///
    /// # Errors
    /// When the function failed.
    fn rows(&mut self, rows: &[&[u8]], more: MoreRows, sink: &mut dyn ListSink) -> Result<ListState, CallError>;
}
