//! [`attempt`]: reads on a thread of an asynchronous runtime, which must not wait for a disk or a network. Engines
//! refuse a read that would wait, and reads beyond a bound.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::tally::Reads;
use crate::{Result, StorageError};

/// Maximum number of entries that an attempt reads, which takes less than a millisecond.
pub const ENTRIES_MAX: u64 = 1024;

/// Number of entries as which a lookup counts, because it searches every level of the store.
pub const LOOKUP_ENTRIES: u64 = 4;

/// Maximum number of their bytes.
pub const BYTES_MAX: u64 = 256 << 10;

#[derive(Clone, Copy)]
struct Attempt {
    entries: u64,
    bytes: u64,
    is_refused: bool,
}

thread_local! {
    static CURRENT: Cell<Option<Attempt>> = const { Cell::new(None) };
}

/// Runs `work` and returns its result, or `None` if a part of it was refused or panicked: then `work` must be repeated
/// on a thread that may block, whatever it returned. `work` must be idempotent.
pub fn attempt<T>(work: impl FnOnce() -> T) -> Option<T> {
    let outer = CURRENT.replace(Some(Attempt { entries: 0, bytes: 0, is_refused: false }));
    let done = catch_unwind(AssertUnwindSafe(work));
    let ended = CURRENT.replace(outer);
    done.ok().filter(|_| ended.is_some_and(|attempt| !attempt.is_refused))
}

/// Returns true during an [`attempt`] on this thread.
#[must_use]
pub fn is_active() -> bool {
    CURRENT.get().is_some()
}

/// Makes the current attempt fail. Returns the error for its caller.
#[must_use]
pub fn refuse() -> StorageError {
    CURRENT.set(CURRENT.get().map(|attempt| Attempt { is_refused: true, ..attempt }));
    StorageError::WouldBlock
}

/// Must be called before anything that may block. Fails during an [`attempt`].
pub fn may_block() -> Result<()> {
    if is_active() { Err(refuse()) } else { Ok(()) }
}

/// Must be called by engines for all reads, before or after them. Fails if the attempt was refused or reads too much.
pub fn spend(reads: Reads) -> Result<()> {
    let Some(mut attempt) = CURRENT.get() else { return Ok(()) };
    attempt.entries += reads.entries.max(1) * if reads.calls > 0 { LOOKUP_ENTRIES } else { 1 };
    attempt.bytes += reads.bytes;
    attempt.is_refused |= attempt.entries > ENTRIES_MAX || attempt.bytes > BYTES_MAX;
    CURRENT.set(Some(attempt));
    if attempt.is_refused { Err(StorageError::WouldBlock) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STEP: Reads = Reads { calls: 0, entries: 1, bytes: 10 };

    #[test]
    fn an_attempt_ends_at_its_bounds() {
        let spent = |reads: Reads, times: u64| attempt(|| (0..times).try_for_each(|_| spend(reads)).is_ok());
        assert_eq!(spent(STEP, ENTRIES_MAX), Some(true));
        assert_eq!(spent(STEP, ENTRIES_MAX + 1), None);
        let lookup = Reads { calls: 1, ..STEP };
        assert_eq!(spent(lookup, ENTRIES_MAX / LOOKUP_ENTRIES), Some(true));
        assert_eq!(spent(lookup, ENTRIES_MAX / LOOKUP_ENTRIES + 1), None);
        assert_eq!(spent(Reads { bytes: BYTES_MAX, ..STEP }, 1), Some(true));
        assert_eq!(spent(Reads { bytes: BYTES_MAX + 1, ..STEP }, 1), None);
        (0..2 * ENTRIES_MAX).for_each(|_| assert!(spend(lookup).is_ok(), "no attempt is active"));
    }

    #[test]
    fn a_refusal_counts_even_if_the_work_ignores_it() {
        assert_eq!(attempt(|| may_block().map_or(1, |()| 2)), None);
        assert_eq!(attempt(|| panic!("on purpose")), None::<()>);
        assert!(may_block().is_ok() && !is_active());
        assert_eq!(attempt(|| (attempt(may_block).is_none(), is_active())), Some((true, true)));
    }
}
