//! [`Tally`]: the results of the rows of an import, and the row up to which all are done.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::environment;

/// Counters shared by the reader, the senders and the progress display.
pub(super) struct Tally {
    begun_us: u64,
    written: AtomicU64,
    /// Documents that were already stored as in the file.
    present: AtomicU64,
    refused: AtomicU64,
    rows: Mutex<Rows>,
}

struct Rows {
    /// Number of the last row that was read.
    read: u64,
    /// The first rows of batches that are not yet written.
    open: BTreeSet<u64>,
}

impl Tally {
    /// A tally that starts after a row.
    pub(super) fn new(past: u64) -> Self {
        Self {
            begun_us: environment::monotonic_us(),
            written: AtomicU64::new(0),
            present: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            rows: Mutex::new(Rows { read: past, open: BTreeSet::new() }),
        }
    }

    /// Records that a row was read. `begins_batch` is true for the first row of a batch.
    pub(super) fn read(&self, row: u64, begins_batch: bool) {
        let mut rows = self.rows.lock();
        rows.read = row;
        if begins_batch {
            rows.open.insert(row);
        }
    }

    /// Records that the batch with this first row was written.
    pub(super) fn close(&self, first: u64) {
        self.rows.lock().open.remove(&first);
    }

    /// The last row up to which every batch is written.
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

    pub(super) fn in_words(&self) -> String {
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
