//! [`Counters`]: numbers of reads and writes in the databases of a catalog since it was opened.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{UpdateOutcome, Work};

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

impl Counters {
    pub(crate) fn committed(&self, works: &[Work], outcomes: &[Vec<UpdateOutcome>]) {
        let (mut written, mut inserted, mut local) = (0, 0, 0);
        for (work, outcomes) in works.iter().zip(outcomes) {
            match work {
                Work::Documents(_) => {
                    for outcome in outcomes {
                        match outcome {
                            UpdateOutcome::Saved(rev) if rev.generation == 0 => local += 1,
                            UpdateOutcome::Saved(rev) => {
                                written += 1;
                                inserted += u64::from(rev.generation == 1);
                            }
                            UpdateOutcome::Conflict
                            | UpdateOutcome::PartitionOverflow(_)
                            | UpdateOutcome::Purged(_)
                            | UpdateOutcome::Stale(_) => {}
                        }
                    }
                }
                Work::Purge(purges) => {
                    let did =
                        |outcome: &&UpdateOutcome| matches!(outcome, UpdateOutcome::Purged(revs) if !revs.is_empty());
                    self.purges.add(purges.len() as u64);
                    self.purged.add(outcomes.iter().filter(did).count() as u64);
                }
                Work::Compact(_)
                | Work::ForgetPurges { .. }
                | Work::ForgetTimes
                | Work::SetPurgedInfosLimit(_)
                | Work::Stage(_)
                | Work::SetRevsLimit(_)
                | Work::SetSecurity(_)
                | Work::Attach { .. }
                | Work::Replace { .. } => {}
            }
        }
        let wrote = written + local > 0 || works.iter().any(|work| !matches!(work, Work::Documents(_)));
        self.commits.add(u64::from(wrote));
        self.written.add(written);
        self.inserted.add(inserted);
        self.local_written.add(local);
    }
}
