//! Metrics: [`Metrics`] contains the counters behind `_stats` and `_prometheus`. All counters are copied every ten
//! seconds of use, for statistics of the last minutes; no background task is needed. [`table`] contains the names of
//! the numbers.

mod cells;
pub(crate) mod histogram;
pub(crate) mod history;
pub(crate) mod table;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use settee_database::Reads;

use cells::Cells;
use histogram::{BUCKETS, Distribution, bucket};

/// Methods with separate counters, as in CouchDB; other methods are counted by the last one.
pub(crate) const METHODS: [&str; 8] = ["COPY", "DELETE", "GET", "HEAD", "OPTIONS", "POST", "PUT", "other"];

const STEP_US: u64 = 10_000_000;

/// Maximum number of copies: 15 minutes, the longest range of CouchDB 1.
const COPIES_MAX: usize = 90;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Count {
    BulkRequests,
    ViewReads,
    TemporaryViewReads,
    PurgeRequests,
    PartitionViews,
    PartitionFinds,
    PartitionExplains,
    PartitionAllDocs,
    Abandoned,
    SlowRequests,
    Forwarded,
    VduRejects,
    /// Users whose accounts were cached, and users whose documents were read.
    AuthCacheHits,
    AuthCacheMisses,
    MangoUnindexed,
    MangoManyScanned,
    MangoKeysExamined,
    MangoDocsExamined,
    MangoResults,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Microseconds from the head of a request to the end of its response, without feeds that wait.
    Request,
    DatabaseInfo,
    Find,
    View,
    Search,
    BulkDocs,
}

const COUNTS: usize = Count::MangoResults as usize + 1;
const MEASURES: usize = Measure::BulkDocs as usize + 1;
const STATUSES: usize = 500;
const FIRST_METHOD: usize = 0;
const FIRST_STATUS: usize = FIRST_METHOD + METHODS.len();
const FIRST_COUNT: usize = FIRST_STATUS + STATUSES;
const FIRST_MEASURE: usize = FIRST_COUNT + COUNTS;
const MEASURE_CELLS: usize = BUCKETS + 1;
const CELLS: usize = FIRST_MEASURE + MEASURES * MEASURE_CELLS;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlowRequest {
    pub request: String,
    pub is_view: bool,
    pub duration_ms: u64,
    pub reads: Reads,
    pub ago_ms: u64,
}

const SLOW_MAX: usize = 50;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Totals(Vec<u64>);

pub(crate) struct Metrics {
    cells: Cells,
    watching: AtomicU64,
    due_us: AtomicU64,
    copies: Mutex<VecDeque<Copied>>,
    /// The last slow requests, with their end in microseconds.
    slow: Mutex<VecDeque<(u64, SlowRequest)>>,
}

struct Copied {
    at_us: u64,
    numbers: Vec<(usize, u64)>,
}

impl Metrics {
    pub(crate) fn new(now_us: u64) -> Self {
        let first = Copied { at_us: now_us, numbers: Vec::new() };
        Self {
            cells: Cells::new(CELLS),
            watching: AtomicU64::new(0),
            due_us: AtomicU64::new(now_us + STEP_US),
            copies: Mutex::new(VecDeque::from([first])),
            slow: Mutex::default(),
        }
    }

    pub(crate) fn count(&self, label: Count) {
        self.add(label, 1);
    }

    pub(crate) fn add(&self, label: Count, amount: u64) {
        self.cells.add(FIRST_COUNT + label as usize, amount);
    }

    pub(crate) fn measure(&self, label: Measure, value: u64) {
        let first = FIRST_MEASURE + label as usize * MEASURE_CELLS;
        self.cells.add(first + bucket(value), 1);
        self.cells.add(first + BUCKETS, value);
    }

    pub(crate) fn answered(&self, method: &Method, status: StatusCode, now_us: u64) {
        let known = METHODS.iter().position(|known| *known == method.as_str());
        self.cells.add(FIRST_METHOD + known.unwrap_or(METHODS.len() - 1), 1);
        let status = usize::from(status.as_u16()).saturating_sub(100).min(STATUSES - 1);
        self.cells.add(FIRST_STATUS + status, 1);
        if now_us >= self.due_us.load(Ordering::Relaxed) {
            self.copy(now_us);
        }
    }

    pub(crate) fn slow(&self, request: SlowRequest, now_us: u64) {
        self.count(Count::SlowRequests);
        let mut slow = self.slow.lock();
        slow.push_back((now_us, request));
        if slow.len() > SLOW_MAX {
            slow.pop_front();
        }
    }

    pub(crate) fn slow_requests(&self, now_us: u64) -> Vec<SlowRequest> {
        let aged = |(at_us, request): &(u64, SlowRequest)| SlowRequest {
            ago_ms: now_us.saturating_sub(*at_us) / 1000,
            ..request.clone()
        };
        self.slow.lock().iter().map(aged).collect()
    }

    pub(crate) fn begin_watching(&self) {
        self.watching.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_watching(&self) {
        self.watching.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn watching(&self) -> u64 {
        self.watching.load(Ordering::Relaxed)
    }

    pub(crate) fn totals(&self) -> Totals {
        Totals(self.cells.all())
    }

    pub(crate) fn recent(&self, now_us: u64, range_us: u64) -> (Totals, u64) {
        let mut totals = self.cells.all();
        let copies = self.copies.lock();
        let begin = now_us.saturating_sub(range_us);
        // Uses the latest copy that is old enough. If the copy after it was late, no request was counted
        // between the two.
        let Some(copy) = copies.iter().rev().find(|copy| copy.at_us <= begin).or_else(|| copies.front()) else {
            return (Totals(totals), range_us);
        };
        for (cell, number) in &copy.numbers {
            totals[*cell] = totals[*cell].saturating_sub(*number);
        }
        (Totals(totals), now_us.saturating_sub(copy.at_us).max(1))
    }

    fn copy(&self, now_us: u64) {
        let mut copies = self.copies.lock();
        if now_us < self.due_us.load(Ordering::Relaxed) {
            return;
        }
        self.due_us.store(now_us + STEP_US, Ordering::Relaxed);
        let numbers = self.cells.all().into_iter().enumerate().filter(|(_, number)| *number > 0).collect();
        copies.push_back(Copied { at_us: now_us, numbers });
        if copies.len() > COPIES_MAX {
            copies.pop_front();
        }
    }
}

impl Totals {
    pub(crate) fn count(&self, label: Count) -> u64 {
        self.0[FIRST_COUNT + label as usize]
    }

    pub(crate) fn method(&self, method: usize) -> u64 {
        self.0[FIRST_METHOD + method]
    }

    pub(crate) fn status(&self, status: u16) -> u64 {
        self.0[FIRST_STATUS + usize::from(status) - 100]
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0[FIRST_METHOD..FIRST_METHOD + METHODS.len()].iter().sum()
    }

    /// Returns a distribution. Times are in milliseconds.
    pub(crate) fn measure(&self, label: Measure) -> Distribution {
        let first = FIRST_MEASURE + label as usize * MEASURE_CELLS;
        let unit = if label == Measure::BulkDocs { 1.0 } else { 1000.0 };
        let counts = self.0[first..first + BUCKETS].iter().copied();
        Distribution::new(counts, self.0[first + BUCKETS], unit)
    }
}
