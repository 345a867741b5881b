//! Source of documents: the changes of a database, in batches ([`ChangeBatch`]).

use settee_design::{DesignOptions, DocumentBatch};

use crate::error::Result;

/// A snapshot of a database.
pub trait ChangeSnapshot: Send + Sync {
    /// Returns the last update sequence.
    fn update_seq(&self) -> Result<u64>;

    /// Returns the number of documents whose last change is after `since`.
    fn count_after(&self, since: u64) -> Result<u64>;

    /// Returns the number of the last purge.
    fn purge_seq(&self) -> Result<u64>;

    /// Returns the number of the newest purge whose record was removed.
    fn purges_forgotten(&self) -> Result<u64>;

    /// Returns the documents that were purged after the purge `purged_since` and do not exist any more, then those
    /// whose last change is after `since`, in the order of these changes: about `expected` of them.
    fn changes(&self, since: u64, purged_since: u64, expected: u64) -> Result<Box<dyn Changes + '_>>;
}

/// Iterator of changes.
pub trait Changes: Send {
    /// Adds the next changes to `batch` until it is full. Design documents are skipped unless requested.
    fn fill(&mut self, batch: &mut ChangeBatch, options: DesignOptions) -> Result<Fill>;
}

/// Progress of an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// More changes may exist.
    Full,
    /// No more changes exist.
    End,
}

/// Changed documents that are mapped together.
#[derive(Debug, Default)]
pub struct ChangeBatch {
    /// Documents to map.
    pub documents: DocumentBatch,
    /// Ids of deleted and purged documents.
    pub removed: Vec<String>,
    /// Update sequence of the last change of any type.
    pub last_seq: u64,
    /// Number of changes of any type.
    pub changes: u64,
    /// True if documents omit the members that name conflicts.
    pub hides_conflicts: bool,
}

/// Maximum number of changes in a batch. It amortizes the call of a language, and limits the memory of a batch and the
/// work between two progress reports. Small in tests, so that few documents cause many steps.
const BATCH_CHANGES: u64 = if cfg!(test) { 100 } else { 1024 };
const BATCH_BYTES: usize = 1 << 20;

impl ChangeBatch {
    /// Removes everything and keeps the memory.
    pub fn clear(&mut self) {
        self.documents.clear();
        self.removed.clear();
        (self.last_seq, self.changes) = (0, 0);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.changes >= BATCH_CHANGES || self.documents.size_bytes() >= BATCH_BYTES
    }

    /// Counts a change, whose document may be added next.
    pub(crate) fn count(&mut self, seq: u64) {
        self.last_seq = seq;
        self.changes += 1;
    }
}

/// Returns true if an index excludes a document because of its id.
pub(crate) fn is_left_out(id: &str, options: DesignOptions) -> bool {
    !options.include_design && id.starts_with("_design/")
}
