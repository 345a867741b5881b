//! [`Tally`]: the reads of engines on behalf of one caller, such as a request. Reads by other threads are not counted.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Reply;

/// Counters of reads.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
}

/// Numbers of reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Calls of an engine.
    pub calls: u64,
    /// Entries found.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Reads {
    /// Returns the reads of one call with these `replies`, except for pages, because their cursors count them.
    #[must_use]
    pub fn of(replies: &[Reply]) -> Self {
        let found = |reply: &Reply| match reply {
            Reply::State(_) => (1, 0),
            Reply::Value(value) => (u64::from(value.is_some()), value.as_ref().map_or(0, Vec::len)),
            Reply::Values(values) => {
                (values.iter().flatten().count() as u64, values.iter().flatten().map(Vec::len).sum::<usize>())
            }
            Reply::Page(_) => (0, 0),
        };
        let mut reads = Self { calls: u64::from(!matches!(replies, [Reply::Page(_)])), ..Self::default() };
        for (entries, bytes) in replies.iter().map(found) {
            reads.entries += entries;
            reads.bytes += bytes as u64;
        }
        reads
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Arc<Tally>>> = const { RefCell::new(None) };
}

impl Tally {
    /// Runs `work` and counts the reads of this thread during it.
    pub fn during<T>(self: Arc<Self>, work: impl FnOnce() -> T) -> T {
        struct Restored(Option<Arc<Tally>>);
        impl Drop for Restored {
            fn drop(&mut self) {
                CURRENT.set(self.0.take());
            }
        }
        let _restored = Restored(CURRENT.replace(Some(self)));
        work()
    }

    /// Returns the reads so far.
    #[must_use]
    pub fn reads(&self) -> Reads {
        let [calls, entries, bytes] =
            [&self.calls, &self.entries, &self.bytes].map(|counter| counter.load(Ordering::Relaxed));
        Reads { calls, entries, bytes }
    }
}

/// Records reads of an engine for the current work of this thread.
pub fn note(reads: Reads) {
    CURRENT.with_borrow(|tally| {
        if let Some(tally) = tally {
            tally.calls.fetch_add(reads.calls, Ordering::Relaxed);
            tally.entries.fetch_add(reads.entries, Ordering::Relaxed);
            tally.bytes.fetch_add(reads.bytes, Ordering::Relaxed);
        }
    });
}

/// Reads of a cursor, recorded as one call when the cursor is dropped.
#[derive(Debug, Default)]
pub struct Scan {
    entries: u64,
    bytes: u64,
}

impl Scan {
    /// Counts an entry. Returns it as a read.
    pub fn found(&mut self, key: &[u8], value: &[u8]) -> Reads {
        let bytes = (key.len() + value.len()) as u64;
        self.entries += 1;
        self.bytes += bytes;
        Reads { calls: 0, entries: 1, bytes }
    }
}

impl Drop for Scan {
    fn drop(&mut self) {
        note(Reads { calls: 1, entries: self.entries, bytes: self.bytes });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_counted_for_their_request() {
        let one = Reads { calls: 1, entries: 2, bytes: 3 };
        note(one);
        let (outer, inner) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
        Arc::clone(&outer).during(|| {
            note(one);
            Arc::clone(&inner).during(|| {
                let mut scan = Scan::default();
                assert_eq!(scan.found(b"key", b"value"), Reads { calls: 0, entries: 1, bytes: 8 });
                scan.found(b"k", b"");
            });
            note(one);
        });
        note(one);
        assert_eq!(outer.reads(), Reads { calls: 2, entries: 4, bytes: 6 });
        assert_eq!(inner.reads(), Reads { calls: 1, entries: 2, bytes: 9 });
    }
}
