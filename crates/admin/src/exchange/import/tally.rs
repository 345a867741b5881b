//! [`Tally`]: the results of the rows of an import, and the row up to which all are done.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::environment;

pub(super) struct Tally {
    begun_us: u64,
    written: AtomicU64,
    present: AtomicU64,
    refused: AtomicU64,
    rows: Mutex<Rows>,
}

struct Rows {
    read: u64,
    open: BTreeSet<u64>,
}

impl Tally {
    pub(super) fn new(past: u64) -> Self {
        Self {
            begun_us: environment::monotonic_us(),
            written: AtomicU64::new(0),
            present: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            rows: Mutex::new(Rows { read: past, open: BTreeSet::new() }),
        }
    }

    pub(super) fn read(&self, row: u64, begins_batch: bool) {
        let mut rows = self.rows.lock();
        rows.read = row;
        if begins_batch {
            rows.open.insert(row);
        }
    }

    /// `first` is the first row of a written batch.
    pub(super) fn close(&self, first: u64) {
        self.rows.lock().open.remove(&first);
    }

    pub(super) fn done_through(&self) -> u64 {
        let rows = self.rows.lock();
        rows.open.first().map_or(rows.read, |first| first - 1)
    }

    pub(super) fn add(&self, written: u64, present: u64) {
        self.written.fetch_add(written, Ordering::Relaxed);
        self.present.fetch_add(present, Ordering::Relaxed);
    }

    pub(super) fn refuse(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn written(&self) -> u64 {
        self.written.load(Ordering::Relaxed)
    }

    pub(super) fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    pub(super) fn seconds(&self) -> f64 {
        (environment::monotonic_us().saturating_sub(self.begun_us) as f64 / 1e6).max(0.001)
    }

    pub(super) fn summary(&self) -> String {
        let (written, seconds) = (self.written(), self.seconds());
        let present = match self.present.load(Ordering::Relaxed) {
            0 => String::new(),
            present => format!(", {present} already existed"),
        };
        let refused = self.refused();
        format!(
            "{written} documents written{present}, {refused} rows refused, in {seconds:.1} s ({:.0}/s)\n",
            written as f64 / seconds
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_progress_ends_before_the_first_open_batch() {
        let tally = Tally::new(10);
        assert_eq!(tally.done_through(), 10);
        tally.read(11, true);
        tally.read(12, false);
        tally.read(13, true);
        assert_eq!(tally.done_through(), 10);
        tally.close(13);
        assert_eq!(tally.done_through(), 10);
        tally.close(11);
        assert_eq!(tally.done_through(), 13);
        tally.read(14, false);
        assert_eq!(tally.done_through(), 14);
    }
}
