//! [`PageCursor`]: a scan that prefetches the next page while the current one is read.

use std::sync::Arc;

use settee_storage::tally::Scan;
use settee_storage::{Cursor, Direction, Expect, Keyspace, Result, StorageError};
use tokio::task::JoinHandle;

use crate::block::block_on;
use crate::keys::Bounds;
use crate::lease::Lease;
use crate::page::{Entry, Fetched, Place, Range, fetch};

/// Rows of a first page of unknown length, and of the largest page. Long pages save much time on slow networks.
const FIRST_ROWS: usize = 64;
const MAX_ROWS: usize = 5_000;

/// Rows of a first page in keyspaces with large values.
const FIRST_LARGE_ROWS: usize = 8;

/// Target size of a page in bytes.
const PAGE_BYTES: usize = 1 << 20;

/// A scan.
pub(crate) struct PageCursor {
    lease: Arc<Lease>,
    /// Position at which the scan continues, within `whole`.
    place: Place,
    whole: Range,
    page: Vec<Entry>,
    /// Index of the next entry in the page.
    at: usize,
    rest: Rest,
    rows: usize,
    expect: Expect,
    scan: Scan,
}

/// State of the entries after the page.
enum Rest {
    /// To be fetched.
    Within(Bounds),
    /// Being fetched.
    Coming(Bounds, JoinHandle<Result<Fetched>>),
    /// No entries are left.
    End,
}

impl PageCursor {
    pub(crate) fn new(lease: Arc<Lease>, place: Place, expect: Expect) -> Self {
        let usual = match place.space {
            Keyspace::Attachments => FIRST_LARGE_ROWS,
            Keyspace::Catalog
            | Keyspace::Documents
            | Keyspace::Sequence
            | Keyspace::Bodies
            | Keyspace::Local
            | Keyspace::IndexNodes
            | Keyspace::IndexEntries => FIRST_ROWS,
        };
        let rows = match expect {
            Expect::Few | Expect::All => usual,
            // One more row, which detects the end.
            Expect::Rows(rows) => rows.saturating_add(1).clamp(1, usual.max(1) * 16),
        };
        let (whole, rest) = (place.range.clone(), Self::within(Bounds::of(place.range.borrowed())));
        Self { lease, place, whole, page: Vec::new(), at: 0, rest, rows, expect, scan: Scan::default() }
    }

    fn within(bounds: Bounds) -> Rest {
        if bounds.is_empty() { Rest::End } else { Rest::Within(bounds) }
    }

    /// Makes the first round trip.
    pub(crate) fn begin(&mut self) -> Result<()> {
        match self.rest {
            Rest::Within(_) => self.turn(),
            Rest::Coming(..) | Rest::End => {
                let lease = Arc::clone(&self.lease);
                block_on(self.lease.pool().connector().runtime(), lease.trip(&[])).map(drop)
            }
        }
    }

    /// Replaces the page by the next one.
    fn turn(&mut self) -> Result<()> {
        let runtime = self.lease.pool().connector().runtime().clone();
        let (bounds, fetched) = match std::mem::replace(&mut self.rest, Rest::End) {
            Rest::End => return Ok(()),
            Rest::Coming(bounds, coming) => {
                let broken = |error| Err(StorageError::Io(format!("a page was not fetched: {error}")));
                (bounds, block_on(&runtime, coming).unwrap_or_else(broken))
            }
            Rest::Within(bounds) => {
                let fetched = block_on(&runtime, fetch(&self.lease, &self.place, bounds.clone(), self.rows));
                (bounds, fetched)
            }
        };
        let Fetched { entries, rest } = match fetched {
            Ok(fetched) => fetched,
            Err(error) => {
                // A later call fetches the page or fails again; it does not return the end.
                self.rest = Rest::Within(bounds);
                return Err(error);
            }
        };
        self.page = entries;
        self.at = 0;
        self.grow()?;
        self.rest = match rest {
            None => Rest::End,
            // A caller that expects few rows rarely reads a second page, so it is not prefetched.
            Some(bounds) if self.expect != Expect::All && self.rows <= FIRST_ROWS * 4 => Rest::Within(bounds),
            Some(bounds) => {
                let (lease, place, rows) = (Arc::clone(&self.lease), self.place.clone(), self.rows);
                let own = bounds.clone();
                Rest::Coming(own, runtime.spawn(async move { fetch(&lease, &place, bounds, rows).await }))
            }
        };
        Ok(())
    }

    /// Increases the size of the next page, limited by its bytes.
    fn grow(&mut self) -> Result<()> {
        let mut bytes = 0;
        for entry in &self.page {
            bytes += entry.key()?.len() + entry.value()?.len();
        }
        let each = (bytes / self.page.len().max(1)).max(1);
        self.rows = (self.rows * 4).min(PAGE_BYTES / each).clamp(FIRST_LARGE_ROWS, MAX_ROWS);
        Ok(())
    }

    /// Returns the index of the first entry at or after `key`, if it is certainly in the page.
    fn place_in_page(&self, key: &[u8]) -> Result<Option<usize>> {
        let direction = self.place.direction;
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
            if matches!(self.rest, Rest::End) {
                return Ok(None);
            }
            self.turn()?;
        }
        let entry = &self.page[self.at];
        self.at += 1;
        let (key, value) = (entry.key()?, entry.value()?);
        self.scan.found(key, value);
        Ok(Some((key, value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        if let Some(at) = self.place_in_page(key)? {
            self.at = at;
            return Ok(());
        }
        let Range { mut start, mut end } = self.whole.clone();
        match self.place.direction {
            Direction::Forward => start = start.max(Some(key.to_vec())),
            Direction::Backward => {
                let behind = [key, &[0]].concat();
                end = Some(end.map_or(behind.clone(), |end| end.min(behind)));
            }
        }
        self.place.range = Range { start, end };
        self.rest = Self::within(Bounds::of(self.place.range.borrowed()));
        self.page.clear();
        self.at = 0;
        Ok(())
    }
}

impl Drop for PageCursor {
    fn drop(&mut self) {
        if let Rest::Coming(_, coming) = &self.rest {
            coming.abort();
        }
    }
}
