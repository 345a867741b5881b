//! [`Tally`]: what is read from engines on behalf of one caller, such as a request. Engines note their reads; whoever
//! wants to know what a piece of work reads does it [`Tally::during`]. What other threads read for it is not counted.

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::Reply;

/// The reads so far.
#[derive(Debug, Default)]
pub struct Tally {
    calls: AtomicU64,
    entries: AtomicU64,
    bytes: AtomicU64,
}

/// The reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reads {
    /// Calls of an engine.
    pub calls: u64,
    /// Entries that were found.
    pub entries: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
}

impl Reads {
    /// One call that got `replies`. Pages do not count: their cursors do.
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
    /// Does `work`, and counts what this thread reads meanwhile.
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

    /// The reads so far.
    #[must_use]
    pub fn reads(&self) -> Reads {
        let [calls, entries, bytes] =
            [&self.calls, &self.entries, &self.bytes].map(|counter| counter.load(Ordering::Relaxed));
        Reads { calls, entries, bytes }
    }
}

/// Notes reads of an engine for the work that this thread does.
pub fn note(reads: Reads) {
    CURRENT.with_borrow(|tally| {
        if let Some(tally) = tally {
            tally.calls.fetch_add(reads.calls, Ordering::Relaxed);
            tally.entries.fetch_add(reads.entries, Ordering::Relaxed);
            tally.bytes.fetch_add(reads.bytes, Ordering::Relaxed);
        }
    });
}

/// The reads of a cursor; noted as one call when the cursor is done.
#[derive(Debug, Default)]
pub struct Scan {
    entries: u64,
    bytes: u64,
}

impl Scan {
    /// An entry was found.
    pub fn found(&mut self, key: &[u8], value: &[u8]) {
        self.entries += 1;
        self.bytes += (key.len() + value.len()) as u64;
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
    fn reads_are_counted_for_whom_they_are_done() {
        let one = Reads { calls: 1, entries: 2, bytes: 3 };
        note(one);
        let (outer, inner) = (Arc::new(Tally::default()), Arc::new(Tally::default()));
        Arc::clone(&outer).during(|| {
            note(one);
            Arc::clone(&inner).during(|| {
                let mut scan = Scan::default();
                scan.found(b"key", b"value");
                scan.found(b"k", b"");
            });
            note(one);
        });
        note(one);
        assert_eq!(outer.reads(), Reads { calls: 2, entries: 4, bytes: 6 });
        assert_eq!(inner.reads(), Reads { calls: 1, entries: 2, bytes: 9 });
    }
}
