//! [`ProgressDisplay`]: progress of an import on the standard error.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::migrate::progress::{Printer, duration};

pub(crate) struct ProgressDisplay {
    databases: usize,
    done: AtomicU64,
    expected: AtomicU64,
    passed: AtomicU64,
    printer: Printer,
}

impl ProgressDisplay {
    pub(super) fn new(databases: usize) -> Arc<Self> {
        let [done, expected, passed] = [(); 3].map(|()| AtomicU64::new(0));
        Arc::new(Self { databases, done, expected, passed, printer: Printer::start() })
    }

    pub(super) fn expect(&self, documents: u64) {
        self.expected.fetch_add(documents, Relaxed);
    }

    pub(super) fn skip(&self, documents: u64) {
        let _ = self.expected.fetch_update(Relaxed, Relaxed, |expected| Some(expected.saturating_sub(documents)));
    }

    pub(crate) fn pass(&self, documents: u64) {
        self.passed.fetch_add(documents, Relaxed);
    }

    pub(super) fn done(&self) {
        self.done.fetch_add(1, Relaxed);
    }

    pub(super) fn seconds(&self) -> f64 {
        self.printer.seconds()
    }

    pub(super) async fn print(self: Arc<Self>) {
        self.printer.print(|| format!("{}{}", self.counts(), self.time_left())).await;
    }

    /// Documents that are not copied, such as those of damaged parts, may be left.
    pub(super) fn end(&self) {
        self.printer.end(&self.counts());
    }

    fn rate(&self) -> f64 {
        self.passed.load(Relaxed) as f64 / self.seconds().max(0.001)
    }

    fn counts(&self) -> String {
        let [done, expected, passed] = [&self.done, &self.expected, &self.passed].map(|counter| counter.load(Relaxed));
        let (databases, rate) = (self.databases, self.rate());
        format!("{done}/{databases} databases, {passed} of {expected} documents, {rate:.0}/s")
    }

    fn time_left(&self) -> String {
        let rate = self.rate();
        match self.expected.load(Relaxed).saturating_sub(self.passed.load(Relaxed)) {
            0 => String::new(),
            left if rate > 0.0 => format!(", about {} left", duration(left as f64 / rate)),
            _ => ", the time left is not known yet".to_owned(),
        }
    }
}
