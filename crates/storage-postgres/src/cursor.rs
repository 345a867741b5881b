//! [`PageCursor`]: a scan that prefetches the next page while the current one is read.

use std::sync::Arc;

use settee_storage::tally::Scan;
use settee_storage::{Cursor, Direction, Expect, Keyspace, Result, StorageError};
use tokio::task::JoinHandle;

use crate::block::block_on;
use crate::keys::Bounds;
use crate::lease::Lease;
use crate::page::{Entry, Fetched, Range, ScanTarget, fetch_page};

/// Long pages save much time on slow networks.
const FIRST_PAGE_ROWS: usize = 64;
const PAGE_ROWS_MAX: usize = 5_000;

const FIRST_PAGE_LARGE_ROWS: usize = 8;

const PAGE_BYTES: usize = 1 << 20;

pub(crate) struct PageCursor {
    lease: Arc<Lease>,
    target: ScanTarget,
    full_range: Range,
    page: Vec<Entry>,
    at: usize,
    next_page: NextPage,
    rows: usize,
    expect: Expect,
    scan: Scan,
}

enum NextPage {
    Unfetched(Bounds),
    Fetching(Bounds, JoinHandle<Result<Fetched>>),
    End,
}

impl PageCursor {
    pub(crate) fn new(lease: Arc<Lease>, target: ScanTarget, expect: Expect) -> Self {
        let default_rows = match target.space {
            Keyspace::Attachments => FIRST_PAGE_LARGE_ROWS,
            Keyspace::Catalog
            | Keyspace::Documents
            | Keyspace::Sequence
            | Keyspace::Bodies
            | Keyspace::Local
            | Keyspace::IndexNodes
            | Keyspace::IndexEntries => FIRST_PAGE_ROWS,
        };
        let rows = match expect {
            Expect::Few | Expect::All => default_rows,
            Expect::Rows(rows) => rows.saturating_add(1).clamp(1, default_rows.max(1) * 16),
        };
        let (full_range, next_page) = (target.range.clone(), Self::unfetched(Bounds::of(target.range.borrowed())));
        Self { lease, target, full_range, page: Vec::new(), at: 0, next_page, rows, expect, scan: Scan::default() }
    }

    fn unfetched(bounds: Bounds) -> NextPage {
        if bounds.is_empty() { NextPage::End } else { NextPage::Unfetched(bounds) }
    }

    pub(crate) fn start(&mut self) -> Result<()> {
        match self.next_page {
            NextPage::Unfetched(_) => self.fetch_next(),
            NextPage::Fetching(..) | NextPage::End => {
                let lease = Arc::clone(&self.lease);
                block_on(self.lease.pool().connector().runtime(), lease.round_trip(&[])).map(drop)
            }
        }
    }

    fn fetch_next(&mut self) -> Result<()> {
        let runtime = self.lease.pool().connector().runtime().clone();
        let (bounds, fetched) = match std::mem::replace(&mut self.next_page, NextPage::End) {
            NextPage::End => return Ok(()),
            NextPage::Fetching(bounds, task) => {
                let broken = |error| Err(StorageError::Io(format!("a page was not fetched: {error}")));
                (bounds, block_on(&runtime, task).unwrap_or_else(broken))
            }
            NextPage::Unfetched(bounds) => {
                let fetched = block_on(&runtime, fetch_page(&self.lease, &self.target, bounds.clone(), self.rows));
                (bounds, fetched)
            }
        };
        let Fetched { entries, rest: remaining } = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                // A later call fetches the page or fails again. It does not return the end.
                self.next_page = NextPage::Unfetched(bounds);
                return Err(error);
            }
        };
        self.page = entries;
        self.at = 0;
        self.set_next_rows()?;
        self.next_page = match remaining {
            None => NextPage::End,
            // A caller that expects few rows rarely reads a second page, so it is not prefetched.
            Some(bounds) if self.expect != Expect::All && self.rows <= FIRST_PAGE_ROWS * 4 => {
                NextPage::Unfetched(bounds)
            }
            Some(bounds) => {
                let (lease, target, rows) = (Arc::clone(&self.lease), self.target.clone(), self.rows);
                let bounds_of_task = bounds.clone();
                NextPage::Fetching(
                    bounds_of_task,
                    runtime.spawn(async move { fetch_page(&lease, &target, bounds, rows).await }),
                )
            }
        };
        Ok(())
    }

    fn set_next_rows(&mut self) -> Result<()> {
        let mut bytes = 0;
        for entry in &self.page {
            bytes += entry.key()?.len() + entry.value()?.len();
        }
        let each = (bytes / self.page.len().max(1)).max(1);
        self.rows = (self.rows * 4).min(PAGE_BYTES / each).clamp(FIRST_PAGE_LARGE_ROWS, PAGE_ROWS_MAX);
        Ok(())
    }

    fn position_in_page(&self, key: &[u8]) -> Result<Option<usize>> {
        let direction = self.target.direction;
        let is_before = |entry: &Entry| {
            entry.key().is_ok_and(|found| match direction {
                Direction::Forward => found < key,
                Direction::Backward => found > key,
            })
        };
        let (Some(first), Some(last)) = (self.page.first(), self.page.last()) else { return Ok(None) };
        let is_exact = first.key()? == key;
        if (is_before(first) || is_exact) && !is_before(last) {
            return Ok(Some(self.page.partition_point(is_before)));
        }
        Ok(None)
    }
}

impl Cursor for PageCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        while self.at >= self.page.len() {
            if matches!(self.next_page, NextPage::End) {
                return Ok(None);
            }
            self.fetch_next()?;
        }
        let entry = &self.page[self.at];
        self.at += 1;
        let (key, value) = (entry.key()?, entry.value()?);
        self.scan.found(key, value);
        Ok(Some((key, value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some(at) = self.position_in_page(key)? {
            self.at = at;
            return Ok(());
        }
        let Range { mut start, mut end } = self.full_range.clone();
        match self.target.direction {
            Direction::Forward => start = start.max(Some(key.to_vec())),
            Direction::Backward => {
                let successor = [key, &[0]].concat();
                end = Some(end.map_or(successor.clone(), |end| end.min(successor)));
            }
        }
        self.target.range = Range { start, end };
        self.next_page = Self::unfetched(Bounds::of(self.target.range.borrowed()));
        self.page.clear();
        self.at = 0;
        Ok(())
    }
}

impl Drop for PageCursor {
    fn drop(&mut self) {
        if let NextPage::Fetching(_, task) = &self.next_page {
            task.abort();
        }
    }
}
