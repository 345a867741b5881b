//! [`Board`]: progress of an import on the standard error.

use std::io::{IsTerminal as _, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::environment;
use crate::migrate::progress::{LINES, PROGRESS_INTERVAL, duration};

/// Progress of a run.
pub(in crate::migrate) struct Board {
    databases: usize,
    done: AtomicU64,
    /// Number of documents in the files that have been opened.
    expected: AtomicU64,
    /// Number of documents that were read.
    passed: AtomicU64,
    started_us: u64,
    is_terminal: bool,
}

impl Board {
    pub(super) fn new(databases: usize) -> Arc<Self> {
        let [done, expected, passed] = [(); 3].map(|()| AtomicU64::new(0));
        let (started_us, is_terminal) = (environment::monotonic_us(), std::io::stderr().is_terminal());
        Arc::new(Self { databases, done, expected, passed, started_us, is_terminal })
    }

    /// Adds the documents of a file.
    pub(in crate::migrate) fn expect(&self, documents: u64) {
        self.expected.fetch_add(documents, Relaxed);
    }

    /// Records that a document was read.
    pub(in crate::migrate) fn pass(&self, documents: u64) {
        self.passed.fetch_add(documents, Relaxed);
    }

    /// Marks a database as complete.
    pub(super) fn done(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    /// Seconds since the start.
    pub(super) fn seconds(&self) -> f64 {
        environment::monotonic_us().saturating_sub(self.started_us) as f64 / 1e6
    }

    /// Prints progress periodically.
    pub(super) async fn tell(self: Arc<Self>) {
        let mut timer = tokio::time::interval(PROGRESS_INTERVAL);
        timer.tick().await;
        for tick in 1.. {
            timer.tick().await;
            if self.is_terminal {
                eprint!("\r{}\x1b[K", self.line());
                let _ = std::io::stderr().flush();
            } else if tick % LINES == 0 {
                eprintln!("{}", self.line());
            }
        }
    }

    /// Replaces the progress line by the last one.
    pub(super) fn end(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
        eprintln!("{}", self.line());
    }

    fn line(&self) -> String {
        let [done, expected, passed] = [&self.done, &self.expected, &self.passed].map(|counter| counter.load(Relaxed));
        let (databases, seconds) = (self.databases, self.seconds().max(0.001));
        let rate = passed as f64 / seconds;
        let eta = match expected.saturating_sub(passed) {
            0 => String::new(),
            left if rate > 0.0 => format!(", about {} left", duration(left as f64 / rate)),
            _ => ", the time left is not known yet".to_owned(),
        };
        format!("{done}/{databases} databases, {passed} of {expected} documents, {rate:.0}/s{eta}")
    }
}
