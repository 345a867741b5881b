//! [`PostgresSnapshot`]: repeatable reads, each in one round trip.

use std::sync::Arc;

use settee_storage::tally::{self, Reads};
use settee_storage::{
    Cursor, Direction, Expect, KeyRange, Keyspace, Page, Reply, Request, Result, Shard, Snapshot, StorageError,
};
use tokio_postgres::Row;

use crate::block::block_on;
use crate::cursor::PageCursor;
use crate::keys::{Bounds, is_long, rest_and_value, stored};
use crate::lease::{Ask, Last, Lease};
use crate::page::{Place, Range, bytes, complete, fetch};
use crate::pool::Pool;

/// A view of a shard as of its first read.
pub(crate) struct PostgresSnapshot {
    lease: Arc<Lease>,
}

impl PostgresSnapshot {
    pub(crate) fn new(pool: Arc<Pool>, shard: Shard) -> Self {
        Self::of(Lease::new(pool, shard))
    }

    /// Creates a snapshot of the transaction of a lease.
    pub(crate) fn of(lease: Arc<Lease>) -> Self {
        Self { lease }
    }

    /// Returns the last commit, after a round trip.
    fn last(&self) -> Result<&Last> {
        self.lease.last()?.ok_or_else(|| StorageError::Io("a trip brought no state".to_owned()))
    }

    async fn answer(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let asks = asks(requests);
        // The state is cached after the first round trip.
        let is_known = asks.is_empty() && self.lease.last()?.is_some();
        let answers = if is_known { Vec::new() } else { self.lease.trip(&asks).await? };
        self.replies(requests, answers).await
    }

    /// Converts the answers to the [`asks`] of some requests to replies.
    pub(crate) async fn replies(&self, requests: &[Request<'_>], answers: Vec<Vec<Row>>) -> Result<Vec<Reply>> {
        let mut answers = answers.into_iter();
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            replies.push(match *request {
                Request::State => Reply::State(self.last()?.state),
                Request::Head => Reply::Value(self.last()?.head.clone()),
                Request::Token(_) => Reply::Value(match answers.next().unwrap_or_default().first() {
                    Some(row) => Some(bytes(row, 0)?.to_vec()),
                    None => None,
                }),
                Request::Get(_, key) => Reply::Value(match answers.next().unwrap_or_default().first() {
                    Some(row) => Some(value(key, row, 0)?),
                    None => None,
                }),
                Request::MultiGet(_, []) => Reply::Values(Vec::new()),
                Request::MultiGet(_, keys) => Reply::Values(values(keys, &answers.next().unwrap_or_default())?),
                Request::Page(page) => {
                    let bounds = Bounds::of(page.range);
                    let rows = if bounds.is_empty() { Vec::new() } else { answers.next().unwrap_or_default() };
                    let place = Place { space: page.space, direction: page.direction, range: Range::of(page.range) };
                    Reply::Page(self.page(&place, bounds, page.rows, rows).await?)
                }
            });
        }
        Ok(replies)
    }

    /// Returns the page that starts with the rows of a round trip. More round trips are needed only for long keys.
    async fn page(&self, place: &Place, bounds: Bounds, wanted: usize, rows: Vec<Row>) -> Result<Page> {
        let mut fetched = complete(&self.lease, place, &bounds, wanted.saturating_add(1), rows).await?;
        let mut entries = fetched.entries;
        while let Some(rest) = fetched.rest.filter(|_| entries.len() <= wanted) {
            fetched = fetch(&self.lease, place, rest, wanted + 1 - entries.len()).await?;
            entries.append(&mut fetched.entries);
        }
        let is_last = entries.len() <= wanted;
        let row = |entry: &crate::page::Entry| Ok((entry.key()?.to_vec(), entry.value()?.to_vec()));
        Ok(Page { rows: entries.iter().take(wanted).map(row).collect::<Result<_>>()?, is_last })
    }
}

/// Returns the requests of a round trip, in addition to the last commit.
pub(crate) fn asks<'a>(requests: &[Request<'a>]) -> Vec<Ask<'a>> {
    requests.iter().filter_map(ask).collect()
}

fn ask<'a>(request: &Request<'a>) -> Option<Ask<'a>> {
    match *request {
        Request::State | Request::Head | Request::MultiGet(_, []) => None,
        Request::Token(version) => Some(Ask::Token(version)),
        Request::Get(space, key) => Some(Ask::Get(space, stored(key))),
        Request::MultiGet(space, keys) => Some(Ask::MultiGet(space, keys.iter().map(|key| stored(key)).collect())),
        Request::Page(page) => {
            let bounds = Bounds::of(page.range);
            // One more row detects the last page.
            let rows = i64::try_from(page.rows.saturating_add(1)).unwrap_or(i64::MAX);
            (!bounds.is_empty()).then_some(Ask::Page(page.space, page.direction, bounds, rows))
        }
    }
}

/// Returns the value of `key` in a column.
fn value(key: &[u8], row: &Row, column: usize) -> Result<Vec<u8>> {
    let value = bytes(row, column)?;
    if is_long(&stored(key)) { rest_and_value(value).map(|(_, value)| value.to_vec()) } else { Ok(value.to_vec()) }
}

fn values(keys: &[&[u8]], rows: &[Row]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    for row in rows {
        let place: i64 = row.try_get(0).map_err(|error| StorageError::Corrupt(error.to_string()))?;
        let place = usize::try_from(place - 1).ok().filter(|place| *place < keys.len());
        let place = place.ok_or_else(|| StorageError::Corrupt("a value without a key".to_owned()))?;
        values[place] = Some(value(keys[place], row, 1)?);
    }
    Ok(values)
}

impl Snapshot for PostgresSnapshot {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        if requests.is_empty() {
            return Ok(Vec::new());
        }
        let runtime = self.lease.pool().connector().runtime();
        let replies = block_on(runtime, self.answer(requests))?;
        tally::note(Reads::of(&replies));
        Ok(replies)
    }

    fn scan<'a>(
        &'a self,
        space: Keyspace,
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Box<dyn Cursor + 'a>> {
        let place = Place { space, direction, range: Range::of(range) };
        let mut cursor = PageCursor::new(Arc::clone(&self.lease), place, expect);
        // The snapshot starts here, unless it has started already, so that the scan of a dropped shard fails at once.
        if self.lease.last()?.is_none() {
            cursor.begin()?;
        }
        Ok(Box::new(cursor))
    }
}
