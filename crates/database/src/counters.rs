//! [`Counters`]: how much was read from and written to the databases of a catalog since it was opened, for operators.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::{UpdateOutcome, Work};

/// A number that only grows. It has a line of memory to itself, so that counting one thing does not slow another.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Counter(AtomicU64);

impl Counter {
    /// The number.
    #[must_use]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}

/// The events of all databases.
#[derive(Debug, Default)]
pub struct Counters {
    /// Commits; many updates share one.
    pub commits: Counter,
    /// Bodies of documents that were read.
    pub reads: Counter,
    /// Revisions of documents that were saved, tombstones included.
    pub written: Counter,
    /// Those among them that were first ones.
    pub inserted: Counter,
    /// Local documents that were saved.
    pub local_written: Counter,
    /// Documents that were to be purged.
    pub purges: Counter,
    /// Documents of which something was purged.
    pub purged: Counter,
}

impl Counters {
    /// Counts what one commit did.
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
