//! [`CountingEngine`]: counts the round trips of a hypothetical remote engine and their sizes, and can report each. Like
//! a remote engine it refuses snapshots for attempts. Cursors are counted as those of an engine whose pages grow during
//! a scan.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{
    Batch, CommitListener, CommitToken, Cursor, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Members,
    Outcome, Reply, Request, Result, Shard, ShardState, Snapshot, Version,
};

/// Rows of a first page, unless the caller expects more.
pub const FIRST_PAGE_ROWS: usize = 64;

/// Rows of the largest page.
pub const LAST_PAGE_ROWS: usize = 5_000;

pub struct CountingEngine {
    engine: Arc<dyn Engine>,
    meter: Arc<Meter>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    pub reads: u64,
    /// Pages that cursors fetched.
    pub pages: u64,
    pub commits: u64,
    /// Drops of shards, syncs and sizes.
    pub others: u64,
}

/// Maxima over all commits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Largest {
    /// Longest value.
    pub value_bytes: usize,
    /// Keys and values of one commit.
    pub commit_bytes: usize,
    /// Most writes in one commit.
    pub writes: usize,
}

#[derive(Default)]
struct Meter {
    reads: AtomicU64,
    pages: AtomicU64,
    commits: AtomicU64,
    others: AtomicU64,
    rows: AtomicU64,
    largest: Mutex<Largest>,
    before: Option<Box<dyn Fn() + Send + Sync>>,
}

impl CountingEngine {
    #[must_use]
    pub fn new(engine: Arc<dyn Engine>) -> Self {
        Self { engine, meter: Arc::default() }
    }

    /// As [`Self::new`]; `before` runs before each call, on its thread.
    #[must_use]
    pub fn observed(engine: Arc<dyn Engine>, before: impl Fn() + Send + Sync + 'static) -> Self {
        Self { engine, meter: Arc::new(Meter { before: Some(Box::new(before)), ..Meter::default() }) }
    }

    /// Returns the maxima since the last call of this function.
    #[must_use]
    pub fn take_largest(&self) -> Largest {
        std::mem::take(&mut *self.meter.largest.lock())
    }

    /// Number of keys that reads named, and of rows that pages and cursors returned.
    #[must_use]
    pub fn rows(&self) -> u64 {
        self.meter.rows.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn calls(&self) -> Calls {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let Meter { reads, pages, commits, others, .. } = &*self.meter;
        Calls { reads: count(reads), pages: count(pages), commits: count(commits), others: count(others) }
    }
}

impl Calls {
    #[must_use]
    pub fn total(self) -> u64 {
        self.reads + self.pages + self.commits + self.others
    }

    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            reads: self.reads - earlier.reads,
            pages: self.pages - earlier.pages,
            commits: self.commits - earlier.commits,
            others: self.others - earlier.others,
        }
    }
}

impl fmt::Debug for CountingEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CountingEngine").field("calls", &self.calls()).finish_non_exhaustive()
    }
}

impl Meter {
    fn call(&self, counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
        if let Some(before) = &self.before {
            before();
        }
    }

    fn measure(&self, batch: &Batch) {
        let mut largest = self.largest.lock();
        let Largest { value_bytes, commit_bytes, writes } = &mut *largest;
        *value_bytes = batch.longest_value().max(*value_bytes);
        *commit_bytes = batch.size_bytes().max(*commit_bytes);
        *writes = batch.len().max(*writes);
    }
}

impl Engine for CountingEngine {
    /// Not counted, because a remote engine starts a snapshot with its first read.
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        let snapshot = self.engine.snapshot(shard)?;
        Ok(Arc::new(CountingSnapshot { snapshot, meter: Arc::clone(&self.meter) }))
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        self.meter.call(&self.meter.commits);
        self.meter.measure(&batch);
        self.engine.commit(shard, expected, token, batch, durability)
    }

    fn refuses_present(&self) -> bool {
        self.engine.refuses_present()
    }

    fn check(&self) -> Result<()> {
        self.engine.check()
    }

    fn maintain(&self) -> Result<()> {
        self.engine.maintain()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.meter.call(&self.meter.others);
        self.engine.drop_shard(shard)
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        self.meter.call(&self.meter.others);
        self.engine.restore(shard, state, batch)
    }

    fn reclaim(&self, shard: Shard) -> Result<()> {
        self.meter.call(&self.meter.others);
        self.engine.reclaim(shard)
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        self.meter.call(&self.meter.others);
        self.engine.approximate_size(shard)
    }

    fn subscribe(&self, listener: CommitListener) {
        self.engine.subscribe(listener);
    }

    fn catch_up(&self) -> Result<()> {
        self.engine.catch_up()
    }

    fn members(&self) -> &dyn Members {
        self.engine.members()
    }

    fn sync(&self) -> Result<()> {
        self.meter.call(&self.meter.others);
        self.engine.sync()
    }

    fn checkpoint(&self, directory: &Path) -> Result<()> {
        self.engine.checkpoint(directory)
    }

    fn damage(&self) -> Option<String> {
        self.engine.damage()
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.engine.statistics()
    }
}

struct CountingSnapshot {
    snapshot: Arc<dyn Snapshot>,
    meter: Arc<Meter>,
}

impl Snapshot for CountingSnapshot {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        self.meter.call(&self.meter.reads);
        let replies = self.snapshot.read(requests)?;
        let rows = replies.iter().map(|reply| match reply {
            Reply::State(_) => 0,
            Reply::Value(_) => 1,
            Reply::Values(values) => values.len() as u64,
            Reply::Page(page) => page.rows.len() as u64,
        });
        self.meter.rows.fetch_add(rows.sum::<u64>(), Ordering::Relaxed);
        Ok(replies)
    }

    fn scan<'a>(
        &'a self,
        space: Keyspace,
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Box<dyn Cursor + 'a>> {
        let cursor = self.snapshot.scan(space, range, direction, expect)?;
        let wanted = match expect {
            Expect::Few => FIRST_PAGE_ROWS,
            Expect::Rows(rows) => rows,
            Expect::All => LAST_PAGE_ROWS,
        };
        let page_rows = wanted.clamp(FIRST_PAGE_ROWS, LAST_PAGE_ROWS);
        Ok(Box::new(CountingCursor { cursor, meter: &self.meter, page_rows, left: 0 }))
    }
}

struct CountingCursor<'a> {
    cursor: Box<dyn Cursor + 'a>,
    meter: &'a Meter,
    page_rows: usize,
    left: usize,
}

impl Cursor for CountingCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.left == 0 {
            self.meter.call(&self.meter.pages);
            self.left = self.page_rows;
            self.page_rows = (self.page_rows * 4).min(LAST_PAGE_ROWS);
        }
        let next = self.cursor.next()?;
        self.meter.rows.fetch_add(u64::from(next.is_some()), Ordering::Relaxed);
        self.left = if next.is_some() { self.left - 1 } else { usize::MAX };
        Ok(next)
    }

    /// The rows at the new position may be on another page.
    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.left = 0;
        self.cursor.seek(key)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;
    use crate::memory::MemoryEngine;

    fn filled(rows: u16) -> CountingEngine {
        let engine = CountingEngine::new(Arc::new(MemoryEngine::new()));
        let mut batch = Batch::new();
        (0..rows).for_each(|row| batch.insert(Keyspace::Local, &row.to_be_bytes(), b""));
        let _ = engine.commit(Shard(1), Version(0), CommitToken(1), batch, Durability::Synced).unwrap();
        engine
    }

    #[test]
    fn a_counting_engine_is_an_engine() {
        crate::conformance::run_all(&|| Arc::new(CountingEngine::new(Arc::new(MemoryEngine::new()))));
    }

    #[test]
    fn combined_reads_are_one_call() {
        let engine = filled(10);
        let before = engine.calls();
        let snapshot = engine.snapshot(Shard(1)).unwrap();
        let requests =
            [Request::State, Request::Get(Keyspace::Local, b"a"), Request::MultiGet(Keyspace::Local, &[b"a", b"b"])];
        assert_eq!(snapshot.read(&requests).unwrap().len(), 3);
        assert_eq!(engine.calls().since(before), Calls { reads: 1, ..Calls::default() });
    }

    #[test]
    fn pages_grow_with_the_number_of_entries_taken() {
        for (rows, expect, pages) in [(0, 1, 1), (63, 1, 1), (65, 1, 2), (65, 100, 1), (321, 1, 3), (2_000, 2_001, 1)] {
            let engine = filled(rows);
            let snapshot = engine.snapshot(Shard(1)).unwrap();
            let range = KeyRange::default();
            let mut cursor = snapshot.scan(Keyspace::Local, range, Direction::Forward, Expect::Rows(expect)).unwrap();
            while cursor.next().unwrap().is_some() {}
            assert!(cursor.next().unwrap().is_none());
            assert_eq!(engine.calls().pages, pages, "{rows} rows of {expect}");
        }
    }
}
