//! Counts the outcomes of a commit.

use super::UpdateOutcome;
use super::work::Work;
use crate::counters::Counters;

impl Counters {
    pub(super) fn committed(&self, works: &[Work], outcomes: &[Vec<UpdateOutcome>]) {
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
                            | UpdateOutcome::Forbidden
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
