//! [`Progress`]: the progress of a replication, readable at any time.

use parking_lot::Mutex;
use settee_model::json::Json;

const REJECTIONS_MAX: usize = 100;

#[derive(Debug, Default)]
pub struct Progress {
    statistics: Mutex<Statistics>,
    refusals: Mutex<Vec<String>>,
}

/// The names are CouchDB's. Sequences are JSON text; `None` is shown as `null` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    pub revisions_checked: u64,
    pub missing_revisions_found: u64,
    pub docs_read: u64,
    pub docs_written: u64,
    pub doc_write_failures: u64,
    pub docs_written_before: u64,
    pub doc_write_failures_before: u64,
    pub bulk_get_attempts: u64,
    pub bulk_get_docs: u64,
    /// `None` before the first response of `_changes`.
    pub changes_pending: Option<u64>,
    pub checkpointed_source_seq: Option<Json>,
    pub source_seq: Option<Json>,
    /// Sequence up to which all changes are at the target.
    pub through_seq: Option<Json>,
}

impl Statistics {
    pub(crate) fn go_on_from(&mut self, earlier: &Self) {
        for (ours, theirs) in [
            (&mut self.revisions_checked, earlier.revisions_checked),
            (&mut self.missing_revisions_found, earlier.missing_revisions_found),
            (&mut self.docs_read, earlier.docs_read),
            (&mut self.docs_written, earlier.docs_written),
            (&mut self.doc_write_failures, earlier.doc_write_failures),
            (&mut self.bulk_get_attempts, earlier.bulk_get_attempts),
            (&mut self.bulk_get_docs, earlier.bulk_get_docs),
        ] {
            *ours = theirs.max(*ours);
        }
        (self.docs_written_before, self.doc_write_failures_before) = (self.docs_written, self.doc_write_failures);
    }
}

impl Progress {
    pub fn statistics(&self) -> Statistics {
        self.statistics.lock().clone()
    }

    pub fn refusals(&self) -> Vec<String> {
        self.refusals.lock().clone()
    }

    pub(crate) fn record_rejection(&self, text: String) {
        self.update(|statistics| statistics.doc_write_failures += 1);
        let mut refusals = self.refusals.lock();
        if refusals.len() < REJECTIONS_MAX {
            refusals.push(text);
        }
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Statistics)) {
        change(&mut self.statistics.lock());
    }
}
