//! Interface to the changes of a database, which are read in batches ([`ChangeBatch`]).

use settee_design::{DesignOptions, DocumentBatch};

use crate::error::Result;

/// A snapshot of a database.
pub trait ChangeSnapshot: Send + Sync {
    /// Returns the last update sequence.
    fn update_seq(&self) -> Result<u64>;

    /// Returns the number of documents whose last change is after `since`.
    fn count_after(&self, since: u64) -> Result<u64>;

    /// Returns the purge sequence.
    fn purge_seq(&self) -> Result<u64>;

    /// Returns the purge sequence of the newest purge whose record was removed.
    fn purges_forgotten(&self) -> Result<u64>;

    /// Returns the documents without revisions that were purged after `purged_since`, then those with a last change
    /// after `since`, in this order. `expected` is an estimate of their number.
    fn changes(&self, since: u64, purged_since: u64, expected: u64) -> Result<Box<dyn Changes + '_>>;
}

/// Iterator of the changes of a database.
pub trait Changes: Send {
    /// Adds changes to `batch` until it is full. Skips design documents unless `options` include them.
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
    /// Changed documents to be mapped.
    pub documents: DocumentBatch,
    /// Ids of deleted and purged documents.
    pub removed: Vec<String>,
    /// Update sequence of the last change, mapped or not.
    pub last_seq: u64,
    /// Number of changes, mapped or not.
    pub changes: u64,
    /// True if the documents omit members about conflicts.
    pub hides_conflicts: bool,
}

/// Maximum number of changes per batch, which bounds memory and the interval between progress reports.
const BATCH_CHANGES: u64 = if cfg!(test) { 100 } else { 1024 };
const BATCH_BYTES: usize = 1 << 20;

impl ChangeBatch {
    /// Removes the contents and retains the memory.
    pub fn clear(&mut self) {
        self.documents.clear();
        self.removed.clear();
        (self.last_seq, self.changes) = (0, 0);
    }

    pub(crate) fn is_full(&self) -> bool {
        self.changes >= BATCH_CHANGES || self.documents.size_bytes() >= BATCH_BYTES
    }

    pub(crate) fn count(&mut self, seq: u64) {
        self.last_seq = seq;
        self.changes += 1;
    }
}

pub(crate) fn is_left_out(id: &str, options: DesignOptions) -> bool {
    !options.include_design && id.starts_with("_design/")
}
