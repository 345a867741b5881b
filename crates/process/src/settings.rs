//! Settings of query servers.

use std::ffi::OsString;
use std::sync::Arc;

/// Receives the name of the language and a log line.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Maximum number of busy processes; list functions have the same limit in addition. CouchDB's `os_process_limit`.
    pub process_limit: usize,
    /// Maximum number of idle processes of one language. CouchDB's `os_process_soft_limit`.
    pub idle_limit: usize,
    /// Timeout of a response. CouchDB's `os_process_timeout`.
    pub timeout_ms: u64,
    /// Minimum timeout of the first response, because the start of a virtual machine on a loaded computer must not
    /// count as run time of a function.
    pub start_timeout_ms: u64,
    /// Memory limit of a process in bytes. Supported on Linux only.
    pub memory_bytes: Option<u64>,
    /// Treatment of reductions that do not shrink. CouchDB's `reduce_limit`.
    pub reduce_limit: ReduceLimit,
    /// True if functions in Python get only the members that they can see. CouchDB sends whole documents.
    pub project_documents: bool,
    pub environment: Vec<(OsString, OsString)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceLimit {
    Off,
    On,
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
