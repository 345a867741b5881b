//! [`Settings`] of query servers, and the receiver of their log lines ([`Log`]). Callers supply the values.

use std::ffi::OsString;
use std::sync::Arc;

/// Receiver of log lines: the name of the language, and the line.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of busy processes of one language; further callers wait. The same number may run list functions
    /// in addition. CouchDB's `os_process_limit`.
    pub process_limit: usize,
    /// Maximum number of idle processes of one language. CouchDB's `os_process_soft_limit`.
    pub idle_limit: usize,
    /// Timeout of a response. CouchDB's `os_process_timeout`.
    pub timeout_ms: u64,
    /// Minimum timeout of the first response of a process, because the start of a virtual machine on a loaded computer
    /// must not count as time of the function that it compiles.
    pub start_timeout_ms: u64,
    /// Memory limit of a process in bytes, if any. Supported on Linux only.
    pub memory_bytes: Option<u64>,
    /// Setting for servers about reductions that do not shrink. CouchDB's `reduce_limit`.
    pub reduce_limit: ReduceLimit,
    /// True if servers receive only those members of documents that map functions can see, if these can be determined,
    /// that is in Python. CouchDB sends whole documents.
    pub project_documents: bool,
    /// Complete environment of the processes.
    pub environment: Vec<(OsString, OsString)>,
}

/// Treatment of reductions that do not shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceLimit {
    /// They are accepted.
    Off,
    /// They fail.
    On,
    /// They are accepted and logged.
    Log,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            process_limit: 100,
            idle_limit: 100,
            timeout_ms: 5_000,
            start_timeout_ms: 30_000,
            memory_bytes: Some(2 << 30),
            reduce_limit: ReduceLimit::On,
            project_documents: true,
            environment: Vec::new(),
        }
    }
}
