//! [`Entry`] and [`fetch_page`]: pages of entries in order, including long keys.

use std::sync::Arc;

use settee_storage::{Direction, KeyRange, Keyspace, Result, StorageError};
use tokio_postgres::Row;

use crate::keys::{Bounds, PREFIX_BYTES, is_long, split_long_value};
use crate::lease::{Lease, Query};

pub(crate) struct Entry {
    row: Row,
    long_key: Option<LongKey>,
}

struct LongKey {
    key: Vec<u8>,
    at: usize,
}

impl Entry {
    fn new(row: Row) -> Result<Self> {
        let stored = bytes(&row, 0)?;
        if !is_long(stored) {
            return Ok(Self { row, long_key: None });
        }
        let value = bytes(&row, 1)?;
        let (rest, own) = split_long_value(value)?;
        let long_key = LongKey { key: [&stored[..PREFIX_BYTES], rest].concat(), at: value.len() - own.len() };
        Ok(Self { row, long_key: Some(long_key) })
    }

    pub(crate) fn key(&self) -> Result<&[u8]> {
        self.long_key.as_ref().map_or_else(|| bytes(&self.row, 0), |long_key| Ok(&long_key.key))
    }

    pub(crate) fn value(&self) -> Result<&[u8]> {
        let at = self.long_key.as_ref().map_or(0, |long_key| long_key.at);
        bytes(&self.row, 1).map(|value| &value[at..])
    }
}

pub(crate) fn bytes(row: &Row, column: usize) -> Result<&[u8]> {
    row.try_get(column).map_err(|error| StorageError::Corrupt(format!("an entry cannot be read: {error}")))
}

#[derive(Clone, Debug)]
pub(crate) struct Range {
    pub(crate) start: Option<Vec<u8>>,
    pub(crate) end: Option<Vec<u8>>,
}

impl Range {
    pub(crate) fn of(range: KeyRange<'_>) -> Self {
        Self { start: range.start.map(<[u8]>::to_vec), end: range.end.map(<[u8]>::to_vec) }
    }

    pub(crate) fn borrowed(&self) -> KeyRange<'_> {
        KeyRange { start: self.start.as_deref(), end: self.end.as_deref() }
    }

    fn contains(&self, key: &[u8]) -> bool {
        self.start.as_deref().is_none_or(|start| start <= key) && self.end.as_deref().is_none_or(|end| key < end)
    }
}

#[derive(Default)]
pub(crate) struct Fetched {
    pub(crate) entries: Vec<Entry>,
    /// Bounds of the next page; `None` after the last one.
    pub(crate) rest: Option<Bounds>,
}

#[derive(Clone, Debug)]
pub(crate) struct ScanTarget {
    pub(crate) space: Keyspace,
    pub(crate) direction: Direction,
    pub(crate) range: Range,
}

/// Returns about `rows` entries, and at least one unless `bounds` contain none.
pub(crate) async fn fetch_page(
    lease: &Arc<Lease>,
    target: &ScanTarget,
    mut bounds: Bounds,
    rows: usize,
) -> Result<Fetched> {
    loop {
        let limit = i64::try_from(rows).unwrap_or(i64::MAX);
        let mut answers =
            lease.round_trip(&[Query::Page(target.space, target.direction, bounds.clone(), limit)]).await?;
        let fetched = complete_page(lease, target, &bounds, rows, answers.pop().unwrap_or_default()).await?;
        match fetched.rest {
            // All entries were outside the range.
            Some(rest) if fetched.entries.is_empty() => bounds = rest,
            rest => return Ok(Fetched { rest, ..fetched }),
        }
    }
}

/// Builds a page from the rows of a round trip. If it ends within a run of long keys, the rest of the run is fetched.
pub(crate) async fn complete_page(
    lease: &Arc<Lease>,
    target: &ScanTarget,
    bounds: &Bounds,
    limit: usize,
    mut rows: Vec<Row>,
) -> Result<Fetched> {
    let Some(last) = rows.last() else { return Ok(Fetched::default()) };
    let last = bytes(last, 0)?.to_vec();
    let mut rest = (rows.len() >= limit).then(|| remaining(bounds, &last, target.direction));
    if is_long(&last) && rest.is_some() {
        let run = remaining(&bounds.within_run(&last), &last, target.direction);
        let mut answers = lease.round_trip(&[Query::Page(target.space, target.direction, run, i64::MAX)]).await?;
        rows.extend(answers.pop().unwrap_or_default());
        if let Some(last) = rows.last() {
            rest = Some(remaining(bounds, bytes(last, 0)?, target.direction));
        }
    }
    let mut entries = rows.into_iter().map(Entry::new).collect::<Result<Vec<_>>>()?;
    if entries.iter().any(|entry| entry.long_key.is_some()) {
        sort_runs(&mut entries, target.direction);
    }
    if [&target.range.start, &target.range.end].into_iter().flatten().any(|bound| bound.len() > PREFIX_BYTES) {
        entries.retain(|entry| entry.key().is_ok_and(|key| target.range.contains(key)));
    }
    Ok(Fetched { entries, rest })
}

fn remaining(bounds: &Bounds, last: &[u8], direction: Direction) -> Bounds {
    match direction {
        Direction::Forward => bounds.after(last),
        Direction::Backward => bounds.before(last),
    }
}

/// Keys within a run are stored in the order of their hashes.
fn sort_runs(entries: &mut [Entry], direction: Direction) {
    let prefix = |entry: &Entry| entry.long_key.as_ref().map(|long_key| long_key.key[..PREFIX_BYTES].to_vec());
    for run in entries.chunk_by_mut(|one, other| prefix(one).is_some() && prefix(one) == prefix(other)) {
        run.sort_by(|one, other| {
            let keys = |entry: &Entry| entry.long_key.as_ref().map(|long_key| long_key.key.clone());
            match direction {
                Direction::Forward => keys(one).cmp(&keys(other)),
                Direction::Backward => keys(other).cmp(&keys(one)),
            }
        });
    }
}
