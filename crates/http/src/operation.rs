//! What a node is given for the sake of its operators: [`Operation`]. The server fills it in; nothing here reads a
//! clock, a file or the system.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// The figures of the system about the process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessFigures {
    /// Open files and sockets.
    pub open_files: u64,
    /// Memory that is in use, in bytes.
    pub resident_bytes: u64,
    /// Threads.
    pub threads: u64,
    /// Worker processes.
    pub children: u64,
    /// Processor time, in milliseconds.
    pub cpu_ms: u64,
}

/// Where a trace comes from: the header `traceparent` of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The trace.
    pub trace: u128,
    /// The span of the client.
    pub span: u64,
    /// Whether the client keeps the trace.
    pub is_sampled: bool,
}

/// The attributes of a span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text.
    Text(String),
    /// A number.
    Number(u64),
}

/// A request that was served, for a tracer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// The trace it belongs to.
    pub trace: u128,
    /// Its own id.
    pub id: u64,
    /// The span of the client.
    pub parent: Option<u64>,
    /// Method and route.
    pub name: String,
    /// The time that it took, in microseconds. It has ended now.
    pub duration_us: u64,
    /// Whether it ended with a status of 500 or above.
    pub is_failed: bool,
    /// By OpenTelemetry's names.
    pub attributes: Vec<(&'static str, Attribute)>,
}

/// Takes spans.
pub trait Tracer: Send + Sync {
    /// The ids of trace and span of a request that begins, if it is worth keeping.
    fn begin(&self, parent: Option<Parent>) -> Option<(u128, u64)>;
    /// The span has ended. Must not block.
    fn end(&self, span: Span);
}

/// A number of lines of the log by CouchDB's names of levels.
pub type LogLines = Vec<(&'static str, u64)>;

/// The ways to the world outside.
pub struct Operation {
    /// Microseconds of a clock that only goes forward.
    pub monotonic_us: Box<dyn Fn() -> u64 + Send + Sync>,
    /// The figures of the system about the process.
    pub process: Box<dyn Fn() -> ProcessFigures + Send + Sync>,
    /// The newest lines of the log, as much as is kept.
    pub log_tail: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    /// The number of lines that the log got, by level.
    pub log_lines: Box<dyn Fn() -> LogLines + Send + Sync>,
    /// Begins to stop the server, and to start it again.
    pub restart: Box<dyn Fn() + Send + Sync>,
    /// Requests that take longer are logged, in microseconds; `u64::MAX`: none is.
    pub slow_request_us: Arc<AtomicU64>,
    /// Where traces go.
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Operation {
    /// For a node that nobody operates: time stands still.
    #[must_use]
    pub fn none() -> Self {
        Self {
            monotonic_us: Box::new(|| 0),
            process: Box::new(ProcessFigures::default),
            log_tail: Box::new(Vec::new),
            log_lines: Box::new(Vec::new),
            restart: Box::new(|| {}),
            slow_request_us: Arc::new(AtomicU64::new(u64::MAX)),
            tracer: None,
        }
    }
}
