//! [`DesignProgram`]: validations, updates, filters, shows, lists and rewrites of design documents.
//! Functions are identified by their paths in the design document; arguments and results are JSON text.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;

use settee_model::json::{Json, Value, write_string};

use crate::{Caller, DocumentBatch, RunError};

/// Design document whose functions are called.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DesignSource {
    /// Unique number of the database. It differs from those of earlier databases with the same name.
    pub database: u64,
    /// Id, including `_design/`.
    pub id: Arc<str>,
    /// Revision. Sources with equal database, id and revision are equal, so compiled functions are reused.
    pub rev: Arc<str>,
    /// Whole document as valid JSON text, including `_id` and `_rev`.
    pub json: Arc<[u8]>,
}

/// Cause of a call without result.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The function threw `{forbidden: …}`.
    #[error("{0}")]
    Forbidden(Reason),
    /// The function threw `{unauthorized: …}`.
    #[error("{0}")]
    Unauthorized(Reason),
    /// The function, or an object that it requested, does not exist.
    #[error("{0}")]
    NotFound(String),
    /// The function threw another value, or does not compile.
    #[error("{name}: {reason}")]
    Failed {
        /// `error` for clients.
        name: String,
        /// `reason` for clients.
        reason: String,
    },
    /// The function exceeded a limit, or its process or engine failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

/// Reason of a rejection: a JSON value of any type, which clients get as thrown.
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

impl fmt::Display for Reason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0.value().to_text())
    }
}

impl CallError {
    /// Converts the error `["error", name, reason]` of a query server.
    #[must_use]
    pub fn named(name: String, reason: String) -> Self {
        match name.as_str() {
            "not_found" => Self::NotFound(reason),
            "forbidden" => Self::Forbidden(reason.as_str().into()),
            "unauthorized" => Self::Unauthorized(reason.as_str().into()),
            _ => Self::Failed { name, reason },
        }
    }

    /// Converts a value that a function threw: `{forbidden: …}` and `{unauthorized: …}` are rejections; otherwise the
    /// first member or the whole value is the reason.
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

/// The functions of one design document. Each is compiled at its first call.
pub trait DesignProgram: Send {
    /// Calls the function at `path`. Returns its result as JSON text, in the form of CouchDB's query servers:
    ///
    /// * `["validate_doc_update"]`: `1`;
    /// * `["shows", name]`: `["resp", response]`;
    /// * `["updates", name]`: `["up", document or null, response]`;
    /// * `["rewrites"]`: `["ok", rewrite]` or `["no_dispatch_rule"]`.
    ///
    /// Fails if the function rejects its arguments or fails.
    fn call(&mut self, path: &[&str], arguments: &[&[u8]]) -> Result<Vec<u8>, CallError>;

    /// Returns true for each document that passes the filter at `path`: `["filters", name]`, which also gets `request`,
    /// or `["views", name, "map"]`, which passes documents for which it emits a row.
    fn filter(
        &mut self,
        path: &[&str],
        documents: &DocumentBatch,
        request: Option<&[u8]>,
    ) -> Result<Vec<bool>, CallError>;

    /// Runs the list function `name` until it waits for the first row. `sink` gets its response and output.
    fn list<'a>(
        &'a mut self,
        name: &str,
        head: &[u8],
        request: &[u8],
        sink: &mut dyn ListSink,
    ) -> Result<Box<dyn ListSession + 'a>, CallError>;

    /// Sets the client of later calls, which end when it disconnects. Clients share processes fairly.
    fn set_caller(&mut self, caller: &Caller) {
        let _ = caller;
    }

    /// Returns and removes the lines that functions wrote with `log`.
    fn take_log(&mut self) -> Vec<String>;
}

/// Consumer of the output of a list function.
pub trait ListSink {
    /// Takes an object with the optional members `code` and `headers`. The last call before a chunk applies.
    fn response(&mut self, response: &[u8]);

    /// Takes a chunk of the body. `Break` aborts the function, because the client has disconnected.
    fn chunk(&mut self, chunk: &[u8]) -> ControlFlow<()>;
}

/// Information about the rows that follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MoreRows {
    /// More rows may follow.
    Perhaps,
    /// No rows follow.
    No,
}

/// State of a list function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListState {
    /// The function waits for more rows.
    Waiting,
    /// The function has returned or was aborted; further rows are ignored.
    Ended,
}

/// A running list function.
pub trait ListSession {
    /// Passes `rows`, each a JSON object, to the function. After [`MoreRows::No`] it runs to its end.
    fn rows(&mut self, rows: &[&[u8]], more: MoreRows, sink: &mut dyn ListSink) -> Result<ListState, CallError>;
}
