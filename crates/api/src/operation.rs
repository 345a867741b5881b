//! [`Operation`]: functions of a node for operators. The server implements them; this crate accesses no clock,
//! file or operating system.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessFigures {
    pub open_files: u64,
    pub resident_bytes: u64,
    pub threads: u64,
    pub children: u64,
    pub cpu_ms: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parent {
    pub trace: u128,
    pub span: u64,
    pub is_sampled: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    Text(String),
    Number(u64),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    pub trace: u128,
    pub id: u64,
    pub parent: Option<u64>,
    pub name: String,
    /// Duration in microseconds. The span ends at the time of the report.
    pub duration_us: u64,
    pub is_failed: bool,
    /// Attributes by OpenTelemetry's names.
    pub attributes: Vec<(&'static str, Attribute)>,
}

pub trait Tracer: Send + Sync {
    fn begin(&self, parent: Option<Parent>) -> Option<(u128, u64)>;
    /// Records a span that has ended. Implementations must not block.
    fn end(&self, span: Span);
}

pub trait Backups: Send + Sync {
    fn state(&self) -> BackupState;
    /// Requests a backup. The request is ignored while a backup is written.
    fn start(&self);
}

/// State of the backups. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BackupState {
    /// URL of the bucket and the prefix.
    pub location: String,
    pub interval_ms: u64,
    /// Time of the next backup. `None` if it is not determined yet, or while a backup is written.
    pub next_ms: Option<u64>,
    pub running: Option<BackupProgress>,
    /// Completed and failed attempts since the start of the server, the oldest first. Their number is limited.
    pub attempts: Vec<BackupAttempt>,
    /// Names of the newest backups in the bucket, the oldest first. Their number is limited.
    pub stored: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BackupProgress {
    pub started_ms: u64,
    /// Number of files of the backup; 0 until the files are determined.
    pub total_files: u64,
    pub files: u64,
    pub sent_bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupAttempt {
    pub started_ms: u64,
    pub ended_ms: u64,
    pub outcome: Result<BackupSize, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BackupSize {
    pub bytes: u64,
    /// Number of bytes that were sent; earlier backups contain the others.
    pub sent_bytes: u64,
}

/// Numbers of log lines by CouchDB's names of levels.
pub type LogLines = Vec<(&'static str, u64)>;

pub struct Operation {
    pub monotonic_us: Box<dyn Fn() -> u64 + Send + Sync>,
    pub process: Box<dyn Fn() -> ProcessFigures + Send + Sync>,
    pub log_tail: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    pub log_lines: Box<dyn Fn() -> LogLines + Send + Sync>,
    pub restart: Box<dyn Fn() + Send + Sync>,
    pub backups: Option<Arc<dyn Backups>>,
    /// Duration in microseconds beyond which requests are logged as slow; `u64::MAX` disables this.
    pub slow_request_us: Arc<AtomicU64>,
    pub tracer: Option<Arc<dyn Tracer>>,
}

impl Operation {
    #[must_use]
    pub fn none() -> Self {
        Self {
            monotonic_us: Box::new(|| 0),
            process: Box::new(ProcessFigures::default),
            log_tail: Box::new(Vec::new),
            log_lines: Box::new(Vec::new),
            restart: Box::new(|| {}),
            backups: None,
            slow_request_us: Arc::new(AtomicU64::new(u64::MAX)),
            tracer: None,
        }
    }
}
