//! [`Progress`]: what a replication has done so far, readable at any time.

use parking_lot::Mutex;
use settee_model::json::Json;

/// So many refusals are remembered; all are counted.
const REFUSALS_MAX: usize = 100;

/// Shared by a session, its workers and whoever wants to know.
#[derive(Debug, Default)]
pub struct Progress {
    statistics: Mutex<Statistics>,
    refusals: Mutex<Vec<String>>,
}

/// The counters and positions of a replication, under the names that CouchDB shows in `_active_tasks`, `_scheduler/jobs` and
/// `_replicator` documents. Sequences are JSON text; `None` shows as `null` or 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Revisions that the target was asked about.
    pub revisions_checked: u64,
    /// Revisions that the target lacked.
    pub missing_revisions_found: u64,
    /// Revisions read from the source.
    pub docs_read: u64,
    /// Revisions that the target took.
    pub docs_written: u64,
    /// Revisions that the target refused.
    pub doc_write_failures: u64,
    /// Of [`Self::docs_written`], those of sessions before.
    pub docs_written_before: u64,
    /// Of [`Self::doc_write_failures`], those of sessions before.
    pub doc_write_failures_before: u64,
    /// `_bulk_get` requests.
    pub bulk_get_attempts: u64,
    /// Revisions that came by `_bulk_get`.
    pub bulk_get_docs: u64,
    /// Changes of the source that are ahead; unknown before the first answer of `_changes`.
    pub changes_pending: Option<u64>,
    /// The sequence of the last checkpoint.
    pub checkpointed_source_seq: Option<Json>,
    /// The newest sequence of the source that was seen.
    pub source_seq: Option<Json>,
    /// All changes up to here are at the target.
    pub through_seq: Option<Json>,
}

impl Statistics {
    /// Goes on counting where an earlier session ended, unless this counts more already.
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
    /// A copy of the counters.
    pub fn statistics(&self) -> Statistics {
        self.statistics.lock().clone()
    }

    /// The first documents that the target refused, each with its revision and the reason.
    pub fn refusals(&self) -> Vec<String> {
        self.refusals.lock().clone()
    }

    /// Counts a document that the target refused.
    pub(crate) fn refused(&self, text: String) {
        self.update(|statistics| statistics.doc_write_failures += 1);
        let mut refusals = self.refusals.lock();
        if refusals.len() < REFUSALS_MAX {
            refusals.push(text);
        }
    }

    /// Changes the counters.
    pub(crate) fn update(&self, change: impl FnOnce(&mut Statistics)) {
        change(&mut self.statistics.lock());
    }
}
