//! [`attempt`]: reads on a thread of an asynchronous runtime, which must not wait for a disk or a network. Such a read
//! receives [`Waiting::Refused`] and passes it to each snapshot that it opens. A snapshot of an attempt refuses reads
//! that would wait, and reads beyond a bound. It borrows the attempt, so it cannot outlive it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::tally::Reads;
use crate::{Engine, Result, Shard, Snapshot, StorageError};

/// Maximum number of entries that an attempt reads, which takes less than a millisecond.
pub const ENTRIES_MAX: u64 = 1024;

/// Number of entries as which a lookup counts, because it searches every level of the store.
pub const LOOKUP_ENTRIES: u64 = 4;

/// Maximum number of their bytes.
pub const BYTES_MAX: u64 = 256 << 10;

/// The reads of a running [`attempt`].
#[derive(Debug, Default)]
pub struct Attempt {
    entries: AtomicU64,
    bytes: AtomicU64,
    is_refused: AtomicBool,
}

/// States whether a read may wait for a disk, a network or a lock.
#[derive(Clone, Copy, Debug, Default)]
pub enum Waiting<'a> {
    /// The read may wait.
    #[default]
    Allowed,
    /// The read is part of this attempt.
    Refused(&'a Attempt),
}

/// Runs `work` and returns its result, or `None` if a part of it was refused or panicked: then `work` must be repeated
/// on a thread that may block, whatever it returned. `work` must be idempotent.
pub fn attempt<T>(work: impl FnOnce(Waiting<'_>) -> T) -> Option<T> {
    let attempt = Attempt::default();
    let done = catch_unwind(AssertUnwindSafe(|| work(Waiting::Refused(&attempt))));
    done.ok().filter(|_| !attempt.is_refused.load(Ordering::Relaxed))
}

impl Attempt {
    /// Makes the attempt fail. Returns the error for its caller.
    #[must_use]
    pub fn refuse(&self) -> StorageError {
        self.is_refused.store(true, Ordering::Relaxed);
        StorageError::WouldBlock
    }

    fn spend(&self, reads: Reads) -> Result<()> {
        let entries = reads.entries.max(1) * if reads.calls > 0 { LOOKUP_ENTRIES } else { 1 };
        let entries = self.entries.fetch_add(entries, Ordering::Relaxed) + entries;
        let bytes = self.bytes.fetch_add(reads.bytes, Ordering::Relaxed) + reads.bytes;
        if entries > ENTRIES_MAX || bytes > BYTES_MAX || self.is_refused.load(Ordering::Relaxed) {
            return Err(self.refuse());
        }
        Ok(())
    }
}

impl<'a> Waiting<'a> {
    /// Must be called before anything that may block. Fails during an [`attempt`].
    pub fn may_block(self) -> Result<()> {
        match self {
            Self::Allowed => Ok(()),
            Self::Refused(attempt) => Err(attempt.refuse()),
        }
    }

    /// Must be called by engines for all reads, before or after them. Fails if the attempt was refused or reads too
    /// much.
    pub fn spend(self, reads: Reads) -> Result<()> {
        match self {
            Self::Allowed => Ok(()),
            Self::Refused(attempt) => attempt.spend(reads),
        }
    }

    /// Returns a view of the current state of `shard` whose reads wait only if this permits it.
    pub fn snapshot(self, engine: &dyn Engine, shard: Shard) -> Result<Arc<dyn Snapshot + 'a>> {
        match self {
            Self::Allowed => engine.snapshot(shard),
            Self::Refused(attempt) => engine.snapshot_for_attempt(shard, attempt),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Reads = Reads { calls: 0, entries: 1, bytes: 10 };

    #[test]
    fn an_attempt_ends_at_its_bounds() {
        let spent =
            |reads: Reads, times: u64| attempt(|waiting| (0..times).try_for_each(|_| waiting.spend(reads)).is_ok());
        assert_eq!(spent(STEP, ENTRIES_MAX), Some(true));
        assert_eq!(spent(STEP, ENTRIES_MAX + 1), None);
        let lookup = Reads { calls: 1, ..STEP };
        assert_eq!(spent(lookup, ENTRIES_MAX / LOOKUP_ENTRIES), Some(true));
        assert_eq!(spent(lookup, ENTRIES_MAX / LOOKUP_ENTRIES + 1), None);
        assert_eq!(spent(Reads { bytes: BYTES_MAX, ..STEP }, 1), Some(true));
        assert_eq!(spent(Reads { bytes: BYTES_MAX + 1, ..STEP }, 1), None);
        (0..2 * ENTRIES_MAX).for_each(|_| assert!(Waiting::Allowed.spend(lookup).is_ok(), "no attempt has a bound"));
    }

    #[test]
    fn a_refusal_counts_even_if_the_work_ignores_it() {
        assert_eq!(attempt(|waiting| waiting.may_block().map_or(1, |()| 2)), None);
        assert_eq!(attempt(|_| panic!("on purpose")), None::<()>);
        assert!(Waiting::Allowed.may_block().is_ok());
        let nested =
            |outer: Waiting<'_>| (attempt(|inner| inner.may_block().is_err()).is_none(), outer.spend(STEP).is_ok());
        assert_eq!(attempt(nested), Some((true, true)), "an attempt is independent of others");
    }

    #[test]
    fn a_refused_attempt_reads_no_more() {
        let mut reads = Vec::new();
        let done = attempt(|waiting| {
            reads.push(waiting.spend(STEP).is_ok());
            reads.push(waiting.may_block().is_ok());
            reads.push(waiting.spend(STEP).is_ok());
        });
        assert_eq!((done, reads), (None, vec![true, false, false]));
    }
}
