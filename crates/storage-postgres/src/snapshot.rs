//! [`PostgresSnapshot`]: repeatable reads, each in one round trip.

use std::sync::Arc;

use settee_storage::tally::{self, Reads};
use settee_storage::{
    Cursor, Direction, Expect, KeyRange, Keyspace, Page, Reply, Request, Result, Shard, Snapshot, StorageError,
};
use tokio_postgres::Row;

use crate::block::block_on;
use crate::cursor::PageCursor;
use crate::keys::{Bounds, is_long, split_long_value, stored};
use crate::lease::{LastCommit, Lease, Query};
use crate::page::{Range, ScanTarget, bytes, complete_page, fetch_page};
use crate::pool::Pool;

pub(crate) struct PostgresSnapshot {
    lease: Arc<Lease>,
}

impl PostgresSnapshot {
    pub(crate) fn new(pool: Arc<Pool>, shard: Shard) -> Self {
        Self::of(Lease::new(pool, shard))
    }

    pub(crate) fn of(lease: Arc<Lease>) -> Self {
        Self { lease }
    }

    fn last_commit(&self) -> Result<&LastCommit> {
        self.lease.last_commit()?.ok_or_else(|| StorageError::Io("a response has no state of the shard".to_owned()))
    }

    async fn answer(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let queries = queries(requests);
        let is_cached = queries.is_empty() && self.lease.last_commit()?.is_some();
        let answers = if is_cached { Vec::new() } else { self.lease.round_trip(&queries).await? };
        self.replies(requests, answers).await
    }

    /// `answers` are the rows for the [`queries`] of `requests`.
    pub(crate) async fn replies(&self, requests: &[Request<'_>], answers: Vec<Vec<Row>>) -> Result<Vec<Reply>> {
        let mut answers = answers.into_iter();
        let mut replies = Vec::with_capacity(requests.len());
        for request in requests {
            replies.push(match *request {
                Request::State => Reply::State(self.last_commit()?.state),
                Request::Head => Reply::Value(self.last_commit()?.head.clone()),
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
                    let target =
                        ScanTarget { space: page.space, direction: page.direction, range: Range::of(page.range) };
                    Reply::Page(self.page(&target, bounds, page.rows, rows).await?)
                }
            });
        }
        Ok(replies)
    }

    /// Returns the page that starts with the rows of a round trip. Only long keys need more than one round trip.
    async fn page(&self, target: &ScanTarget, bounds: Bounds, wanted: usize, rows: Vec<Row>) -> Result<Page> {
        let mut fetched = complete_page(&self.lease, target, &bounds, wanted.saturating_add(1), rows).await?;
        let mut entries = fetched.entries;
        while let Some(rest) = fetched.rest.filter(|_| entries.len() <= wanted) {
            fetched = fetch_page(&self.lease, target, rest, wanted + 1 - entries.len()).await?;
            entries.append(&mut fetched.entries);
        }
        let is_last = entries.len() <= wanted;
        let row = |entry: &crate::page::Entry| Ok((entry.key()?.to_vec(), entry.value()?.to_vec()));
        Ok(Page { rows: entries.iter().take(wanted).map(row).collect::<Result<_>>()?, is_last })
    }
}

/// Every round trip reads the last commit as well.
pub(crate) fn queries<'a>(requests: &[Request<'a>]) -> Vec<Query<'a>> {
    requests.iter().filter_map(query).collect()
}

fn query<'a>(request: &Request<'a>) -> Option<Query<'a>> {
    match *request {
        Request::State | Request::Head | Request::MultiGet(_, []) => None,
        Request::Token(version) => Some(Query::Token(version)),
        Request::Get(space, key) => Some(Query::Get(space, stored(key))),
        Request::MultiGet(space, keys) => Some(Query::MultiGet(space, keys.iter().map(|key| stored(key)).collect())),
        Request::Page(page) => {
            let bounds = Bounds::of(page.range);
            // One more row detects the last page.
            let rows = i64::try_from(page.rows.saturating_add(1)).unwrap_or(i64::MAX);
            (!bounds.is_empty()).then_some(Query::Page(page.space, page.direction, bounds, rows))
        }
    }
}

fn value(key: &[u8], row: &Row, column: usize) -> Result<Vec<u8>> {
    let value = bytes(row, column)?;
    if is_long(&stored(key)) { split_long_value(value).map(|(_, value)| value.to_vec()) } else { Ok(value.to_vec()) }
}

fn values(keys: &[&[u8]], rows: &[Row]) -> Result<Vec<Option<Vec<u8>>>> {
    let mut values = vec![None; keys.len()];
    for row in rows {
        let ordinal: i64 = row.try_get(0).map_err(|error| StorageError::Corrupt(error.to_string()))?;
        let index = usize::try_from(ordinal - 1).ok().filter(|index| *index < keys.len());
        let index = index.ok_or_else(|| StorageError::Corrupt("a value has no key".to_owned()))?;
        values[index] = Some(value(keys[index], row, 1)?);
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
        let target = ScanTarget { space, direction, range: Range::of(range) };
        let mut cursor = PageCursor::new(Arc::clone(&self.lease), target, expect);
        // The snapshot starts here, unless it has started already, so that the scan of a dropped shard fails at once.
        if self.lease.last_commit()?.is_none() {
            cursor.start()?;
        }
        Ok(Box::new(cursor))
    }
}
