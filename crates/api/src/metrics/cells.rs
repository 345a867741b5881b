//! [`Cells`]: counters that many threads increment. The counters have several copies, and each thread uses one
//! of them, which avoids contention for cache lines. Readers add the copies.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const STRIPES: usize = 8;

thread_local! {
    static STRIPE: usize = {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        NEXT.fetch_add(1, Ordering::Relaxed) % STRIPES
    };
}

pub(crate) struct Cells {
    stripes: [Box<[AtomicU64]>; STRIPES],
}

impl Cells {
    pub(crate) fn new(length: usize) -> Self {
        Self { stripes: std::array::from_fn(|_| (0..length).map(|_| AtomicU64::new(0)).collect()) }
    }

    pub(crate) fn add(&self, cell: usize, amount: u64) {
        STRIPE.with(|stripe| self.stripes[*stripe][cell].fetch_add(amount, Ordering::Relaxed));
    }

    pub(crate) fn get(&self, cell: usize) -> u64 {
        self.stripes.iter().map(|stripe| stripe[cell].load(Ordering::Relaxed)).sum()
    }

    pub(crate) fn all(&self) -> Vec<u64> {
        (0..self.stripes[0].len()).map(|cell| self.get(cell)).collect()
    }
}
