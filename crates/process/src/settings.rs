//! The settings of query servers ([`Settings`]), and where their lines go ([`Log`]). Where values come from is the caller's
//! business.

use std::ffi::OsString;
use std::sync::Arc;

/// Takes lines for the log: the name of the language, and what its server said.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// The limits and settings of query servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Processes of one language that work at a time; further ones wait. As many may run list functions besides.
    /// CouchDB's `os_process_limit`.
    pub process_limit: usize,
    /// Idle processes of one language that are kept. CouchDB's `os_process_soft_limit`.
    pub idle_limit: usize,
    /// The longest time that one answer may take. CouchDB's `os_process_timeout`.
    pub timeout_ms: u64,
    /// The least time for the first answer of a process: a virtual machine may need some to start on a busy computer, which
    /// is no fault of the function that it is asked to compile.
    pub start_timeout_ms: u64,
    /// The bytes that a process may allocate, if that is limited. Only Linux can.
    pub memory_bytes: Option<u64>,
    /// The setting that servers get for reductions that do not shrink. CouchDB's `reduce_limit`.
    pub reduce_limit: ReduceLimit,
    /// Whether servers are sent only those members of documents that map functions can see, where that is known: in
    /// Python. CouchDB sends whole documents.
    pub project_documents: bool,
    /// The whole environment of the processes.
    pub environment: Vec<(OsString, OsString)>,
}

/// Whether reductions must shrink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReduceLimit {
    /// They need not.
    Off,
    /// Those that do not fail.
    On,
    /// Those that do not are logged.
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
