//! [`Progress`]: the progress of a replication, readable at any time.

use parking_lot::Mutex;
use settee_model::json::Json;

/// Maximum number of rejections that are kept; all are counted.
const REFUSALS_MAX: usize = 100;

/// Progress that a session, its workers and readers share.
#[derive(Debug, Default)]
pub struct Progress {
    statistics: Mutex<Statistics>,
    refusals: Mutex<Vec<String>>,
}

/// Counters and positions of a replication, under the names that CouchDB shows in `_active_tasks`, `_scheduler/jobs`
/// and `_replicator` documents. Sequences are JSON text; `None` is shown as `null` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Revisions that the target was asked about.
    pub revisions_checked: u64,
    /// Revisions that the target lacked.
    pub missing_revisions_found: u64,
    /// Revisions read from the source.
    pub docs_read: u64,
    /// Revisions that the target accepted.
    pub docs_written: u64,
    /// Revisions that the target rejected.
    pub doc_write_failures: u64,
    /// Part of [`Self::docs_written`] of previous sessions.
    pub docs_written_before: u64,
    /// Part of [`Self::doc_write_failures`] of previous sessions.
    pub doc_write_failures_before: u64,
    /// `_bulk_get` requests.
    pub bulk_get_attempts: u64,
    /// Revisions received by `_bulk_get`.
    pub bulk_get_docs: u64,
    /// Pending changes of the source; `None` before the first answer of `_changes`.
    pub changes_pending: Option<u64>,
    pub checkpointed_source_seq: Option<Json>,
    /// Newest sequence of the source that was read.
    pub source_seq: Option<Json>,
    /// Sequence up to which all changes are at the target.
    pub through_seq: Option<Json>,
}

impl Statistics {
    /// Continues to count from the end of an earlier session, unless this counter is already higher.
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

    /// Returns the first documents that the target rejected, each with its revision and the reason.
    pub fn refusals(&self) -> Vec<String> {
        self.refusals.lock().clone()
    }

    pub(crate) fn refused(&self, text: String) {
        self.update(|statistics| statistics.doc_write_failures += 1);
        let mut refusals = self.refusals.lock();
        if refusals.len() < REFUSALS_MAX {
            refusals.push(text);
        }
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Statistics)) {
        change(&mut self.statistics.lock());
    }
}
