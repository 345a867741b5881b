//! [`Client`] disconnects, times out or gets no memory as specified by a test.
#![expect(clippy::unwrap_used, reason = "tests")]

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

pub(crate) struct Client {
    pub(crate) checks: AtomicUsize,
    pub(crate) gone_after: usize,
    pub(crate) late_after: usize,
    pub(crate) memory: Arc<AtomicUsize>,
}

struct Returned(Arc<AtomicUsize>, usize);

impl Drop for Returned {
    fn drop(&mut self) {
        self.0.fetch_add(self.1, Ordering::Relaxed);
    }
}

impl Client {
    pub(crate) fn new() -> Self {
        let memory = Arc::new(AtomicUsize::new(usize::MAX));
        Self { checks: AtomicUsize::new(0), gone_after: usize::MAX, late_after: usize::MAX, memory }
    }
}

impl Requester for Client {
    fn has_gone(&self) -> bool {
        self.checks.fetch_add(1, Ordering::Relaxed) >= self.gone_after
    }

    fn is_late(&self) -> bool {
        self.checks.load(Ordering::Relaxed) > self.late_after
    }

    fn take(&self, bytes: usize) -> Result<MemoryGrant, Shortage> {
        let rest = |left: usize| left.checked_sub(bytes);
        match self.memory.fetch_update(Ordering::Relaxed, Ordering::Relaxed, rest) {
            Ok(_) => Ok(Box::new(Returned(Arc::clone(&self.memory), bytes))),
            Err(_) => Err(Shortage::InUse),
        }
    }
}

#[test]
fn the_first_failure_stays() {
    let limits = SearchLimits::of(Arc::new(Client { gone_after: 2, ..Client::new() }));
    assert!(limits.check().is_ok() && limits.check().is_ok());
    assert!(matches!(limits.check(), Err(Error::Disconnected)));
    assert!(matches!(limits.charge(1), Err(Error::Disconnected)));
    assert!(matches!(limits.scope().check(), Err(Error::Disconnected)), "scopes share it");
    let late = SearchLimits::of(Arc::new(Client { late_after: 0, ..Client::new() }));
    assert!(matches!(late.check(), Err(Error::TimedOut)));
}

#[test]
fn memory_is_returned_with_the_scope() {
    let client = Arc::new(Client { memory: Arc::new(AtomicUsize::new(1 << 20)), ..Client::new() });
    let left = || client.memory.load(Ordering::Relaxed);
    let limits = SearchLimits::of(Arc::clone(&client) as Arc<dyn Requester>);
    let scope = limits.scope();
    (0..1_000).for_each(|_| scope.charge(100).unwrap());
    let taken = (1 << 20) - left();
    assert!((100_000..100_000 + PIECE_BYTES).contains(&taken), "{taken}");
    drop(scope);
    assert_eq!(left(), 1 << 20);
    assert!(matches!(limits.charge(1 << 21), Err(Error::OutOfMemory)));
    assert!(matches!(limits.check(), Err(Error::OutOfMemory)), "what follows a failed charge must end");
}

#[test]
fn sorting_is_stable_and_ends_early() {
    let items: Vec<(u32, u32)> =
        (0..1_000).map(|number: u32| (number.wrapping_mul(2_654_435_761) % 10, number)).collect();
    let mut expected = items.clone();
    expected.sort_by_key(|item| item.0);
    let by_first = |one: &(u32, u32), other: &(u32, u32)| one.0.cmp(&other.0);
    assert_eq!(SearchLimits::none().sort(items.clone(), by_first).unwrap(), expected);
    let limits = SearchLimits::of(Arc::new(Client { gone_after: 3, ..Client::new() }));
    assert!(limits.sort(items, by_first).is_err());
}
