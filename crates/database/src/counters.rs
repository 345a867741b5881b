//! [`Counters`]: numbers of reads and writes in the databases of a catalog since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

/// A monotonic counter. It occupies a cache line of its own to avoid false sharing.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

impl Counter {
    /// Returns the current value.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}

/// Counters of all databases of a catalog.
#[derive(Debug, Default)]
pub struct Counters {
    /// Number of commits; one commit can contain many updates.
    pub commits: Counter,
    /// Number of bodies of documents that were read.
    pub reads: Counter,
    /// Number of saved document revisions, including tombstones.
    pub written: Counter,
    /// Number of saved revisions of generation 1.
    pub inserted: Counter,
    /// Number of saved local documents.
    pub local_written: Counter,
    /// Number of documents in purge requests.
    pub purges: Counter,
    /// Number of documents with at least one purged revision.
    pub purged: Counter,
}
