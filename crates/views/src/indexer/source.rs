//! Where documents come from: the changes of a database, in batches ([`ChangeBatch`]).

use settee_design::{DesignOptions, DocumentBatch};

use crate::error::Result;

/// A database at one moment.
pub trait ChangeSnapshot: Send + Sync {
    /// The last update sequence.
    ///
    /// # Errors
    /// When storage failed.
    fn update_seq(&self) -> Result<u64>;

    /// The number of documents that last changed after `since`.
    ///
    /// # Errors
    /// When storage failed.
    fn count_after(&self, since: u64) -> Result<u64>;

    /// The number of the last purge.
    ///
    /// # Errors
    /// When storage failed.
    fn purge_seq(&self) -> Result<u64>;

    /// The number of the newest purge that is no longer remembered.
    ///
    /// # Errors
    /// When storage failed.
    fn purges_forgotten(&self) -> Result<u64>;

    /// The documents that were purged after the purge `purged_since` and are not there any more, then those that last
    /// changed after `since`, in the order of these changes: about `expected` of them.
    ///
    /// # Errors
    /// When storage failed.
    fn changes(&self, since: u64, purged_since: u64, expected: u64) -> Result<Box<dyn Changes + '_>>;
}

/// A walk through changes.
pub trait Changes: Send {
    /// Adds the next changes to `batch` until it is full. Design documents are left out unless asked for.
    ///
    /// # Errors
    /// When storage failed.
    fn fill(&mut self, batch: &mut ChangeBatch, options: DesignOptions) -> Result<Fill>;
}

/// The progress of a walk through changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// There may be more.
    Full,
    /// There is no more.
    End,
}

/// Changed documents that are mapped in one go.
#[derive(Debug, Default)]
pub struct ChangeBatch {
    /// Documents to be mapped.
    pub documents: DocumentBatch,
    /// The ids of deleted and purged documents.
    pub removed: Vec<String>,
    /// The update sequence of the last change, also if it is neither of these.
    pub last_seq: u64,
    /// The number of changes, also those that are neither of these.
    pub changes: u64,
    /// Documents are filled in without the members that name conflicts.
    pub hides_conflicts: bool,
}

/// Enough that the way into a language costs nothing per document, and little enough for progress and memory. Small in
/// tests, so that few documents make many steps.
const BATCH_CHANGES: u64 = if cfg!(test) { 100 } else { 1024 };
const BATCH_BYTES: usize = 1 << 20;

impl ChangeBatch {
    /// Forgets everything and keeps the memory.
    pub fn clear(&mut self) {
        self.documents.clear();
        self.removed.clear();
        (self.last_seq, self.changes) = (0, 0);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.changes >= BATCH_CHANGES || self.documents.size_bytes() >= BATCH_BYTES
    }

    /// Counts a change; its document may be added then.
    pub(crate) fn count(&mut self, seq: u64) {
        self.last_seq = seq;
        self.changes += 1;
    }
}

/// Whether an index does not see a document because of its id.
pub(crate) fn is_left_out(id: &str, options: DesignOptions) -> bool {
    !options.include_design && id.starts_with("_design/")
}
