//! [`PageCursor`]: a scan that has a page, and fetches the next one while that is read.

use std::sync::Arc;

use settee_storage::tally::Scan;
use settee_storage::{Cursor, Direction, Expect, Keyspace, Result, StorageError};
use tokio::task::JoinHandle;

use crate::block::block_on;
use crate::keys::Bounds;
use crate::lease::Lease;
use crate::page::{Entry, Fetched, Place, Range, fetch};

/// Rows of a first page of which nobody knows how many are wanted, and of the largest one. Long pages are worth a lot where the
/// network is slow.
const FIRST_ROWS: usize = 64;
const MAX_ROWS: usize = 5_000;

/// Where single values are large, a first page has fewer.
const FIRST_LARGE_ROWS: usize = 8;

/// Bytes of a page at which its size is aimed.
const PAGE_BYTES: usize = 1 << 20;

/// A scan.
pub(crate) struct PageCursor {
    lease: Arc<Lease>,
    /// Where it goes on, which is within `whole`.
    place: Place,
    whole: Range,
    page: Vec<Entry>,
    /// The next entry of the page.
    at: usize,
    rest: Rest,
    rows: usize,
    expect: Expect,
    scan: Scan,
}

/// What is behind the page.
enum Rest {
    /// To be fetched.
    Within(Bounds),
    /// On its way.
    Coming(Bounds, JoinHandle<Result<Fetched>>),
    /// Nothing.
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
            // One more, which is the end.
            Expect::Rows(rows) => rows.saturating_add(1).clamp(1, usual.max(1) * 16),
        };
        let (whole, rest) = (place.range.clone(), Self::within(Bounds::of(place.range.borrowed())));
        Self { lease, place, whole, page: Vec::new(), at: 0, rest, rows, expect, scan: Scan::default() }
    }

    fn within(bounds: Bounds) -> Rest {
        if bounds.is_empty() { Rest::End } else { Rest::Within(bounds) }
    }

    /// Makes the first trip.
    pub(crate) fn begin(&mut self) -> Result<()> {
        match self.rest {
            Rest::Within(_) => self.turn(),
            Rest::Coming(..) | Rest::End => {
                let lease = Arc::clone(&self.lease);
                block_on(self.lease.pool().connector().runtime(), lease.trip(&[])).map(drop)
            }
        }
    }

    /// Has the next page in the place of this one.
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
                // Who asks again gets the page, or an error; not the end.
                self.rest = Rest::Within(bounds);
                return Err(error);
            }
        };
        self.page = entries;
        self.at = 0;
        self.grow()?;
        self.rest = match rest {
            None => Rest::End,
            // Who wants some rows rarely comes back.
            Some(bounds) if self.expect != Expect::All && self.rows <= FIRST_ROWS * 4 => Rest::Within(bounds),
            Some(bounds) => {
                let (lease, place, rows) = (Arc::clone(&self.lease), self.place.clone(), self.rows);
                let own = bounds.clone();
                Rest::Coming(own, runtime.spawn(async move { fetch(&lease, &place, bounds, rows).await }))
            }
        };
        Ok(())
    }

    /// The next page is longer, as far as its bytes allow.
    fn grow(&mut self) -> Result<()> {
        let mut bytes = 0;
        for entry in &self.page {
            bytes += entry.key()?.len() + entry.value()?.len();
        }
        let each = (bytes / self.page.len().max(1)).max(1);
        self.rows = (self.rows * 4).min(PAGE_BYTES / each).clamp(FIRST_LARGE_ROWS, MAX_ROWS);
        Ok(())
    }

    /// The place in the page of the first entry at or behind `key`, if it is certain to be in the page.
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
