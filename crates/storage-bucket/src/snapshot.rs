//! [`BucketSnapshot`]: repeatable reads of a shard. A cursor fetches several entries at once, because each wait for the
//! library has a cost.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use settee_storage::tally::{self, Reads, Scan};
use settee_storage::{
    Cursor, Direction, Expect, KeyRange, Keyspace, Page, Reply, Request, Result, Shard, Snapshot, StorageError,
};
use slatedb::config::{ReadOptions, ScanOptions};
use slatedb::{DbIterator, DbSnapshot, IterationOrder, KeyValue};
use tokio::runtime::Handle;

use crate::block::block_on;
use crate::error::translate;
use crate::keys;
use crate::shards::Stored;

/// Values of a multi-get that are fetched concurrently.
const CONCURRENT_GETS: usize = 16;

/// Entries that a cursor fetches first, unless the caller expects more, and at most. The number doubles.
const FIRST_ENTRIES: usize = 8;
const ENTRIES_MAX: usize = 512;

/// Bytes that a scan requests at once: of few entries, and of many.
const SHORT_READ_AHEAD_BYTES: usize = 16 << 10;
const LONG_READ_AHEAD_BYTES: usize = 512 << 10;

/// Rows beyond which a scan is long.
const LONG_ROWS: usize = 200;

/// Concurrent requests of a long scan.
const FETCHES: usize = 4;

pub(crate) struct BucketSnapshot {
    view: Arc<DbSnapshot>,
    shard: Shard,
    runtime: Handle,
    timeout: Duration,
    stored: OnceLock<Stored>,
    /// Keeps the group open.
    _reader: Arc<()>,
}

/// Waits for an operation, which the library repeats until the store responds.
pub(crate) async fn limited<T>(
    timeout: Duration,
    operation: impl Future<Output = Result<T, slatedb::Error>>,
) -> Result<T> {
    match tokio::time::timeout(timeout, operation).await {
        Ok(result) => result.map_err(|error| translate(&error)),
        Err(_) => {
            Err(StorageError::Unreached(format!("the bucket did not respond within {} s", timeout.as_secs_f32())))
        }
    }
}

impl BucketSnapshot {
    pub(crate) fn new(
        view: Arc<DbSnapshot>,
        shard: Shard,
        runtime: Handle,
        timeout: Duration,
        reader: Arc<()>,
    ) -> Self {
        Self { view, shard, runtime, timeout, stored: OnceLock::new(), _reader: reader }
    }

    fn wait<T>(&self, operation: impl Future<Output = Result<T, slatedb::Error>>) -> Result<T> {
        block_on(&self.runtime, limited(self.timeout, operation))
    }

    fn value(&self, key: &[u8]) -> impl Future<Output = Result<Option<Bytes>, slatedb::Error>> + use<> {
        let view = Arc::clone(&self.view);
        let key = Bytes::copy_from_slice(key);
        async move { view.get_with_options(key, &ReadOptions::new().with_cache_blocks(true)).await }
    }

    /// Fails if the shard is dropped. Every read must call it, because entries are removed later.
    fn stored(&self) -> Result<&Stored> {
        let stored = match self.stored.get() {
            Some(stored) => stored,
            None => {
                let bytes = self.wait(self.value(&keys::state(self.shard)))?;
                let stored = Stored::decode(bytes.as_deref())?;
                self.stored.get_or_init(|| stored)
            }
        };
        if stored.is_dropped { Err(StorageError::Dropped) } else { Ok(stored) }
    }

    /// Returns the bytes of the shard, as the engine counts them.
    pub(crate) fn bytes(&self) -> Result<u64> {
        self.stored().map(|stored| stored.bytes)
    }

    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.stored()?;
        let value = self.wait(self.value(&keys::entry(self.shard, space, key)))?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn multi_get(&self, space: Keyspace, wanted: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        self.stored()?;
        let gets: Vec<_> = wanted.iter().map(|key| self.value(&keys::entry(self.shard, space, key))).collect();
        let gets = futures_util::stream::iter(gets).buffered(CONCURRENT_GETS);
        let values: Vec<Option<Bytes>> = self.wait(gets.try_collect())?;
        Ok(values.into_iter().map(|value| value.map(|value| value.to_vec())).collect())
    }
}

impl Snapshot for BucketSnapshot {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let reply = |request: &Request<'_>| match *request {
            Request::State => Ok(Reply::State(self.stored()?.state)),
            Request::Head => Ok(Reply::Value(self.stored()?.head.clone())),
            // This process is the only writer, so no other token is ever requested.
            Request::Token(version) => {
                let state = self.stored()?.state;
                Ok(Reply::Value((state.version == version).then(|| state.token.0.to_be_bytes().to_vec())))
            }
            Request::Get(space, key) => self.get(space, key).map(Reply::Value),
            Request::MultiGet(space, keys) => self.multi_get(space, keys).map(Reply::Values),
            Request::Page(page) => Page::scan(self, page).map(Reply::Page),
        };
        let replies: Vec<Reply> = requests.iter().map(reply).collect::<Result<_>>()?;
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
        self.stored()?;
        let (start, end) = keys::bounds(self.shard, space, range);
        let entries = match expect {
            Expect::Few => FIRST_ENTRIES,
            Expect::Rows(rows) => rows.clamp(1, ENTRIES_MAX),
            Expect::All => ENTRIES_MAX,
        };
        let is_long = match expect {
            Expect::Few => false,
            Expect::Rows(rows) => rows > LONG_ROWS,
            Expect::All => true,
        };
        Ok(Box::new(BucketCursor {
            snapshot: self,
            space,
            start,
            end,
            direction,
            entries: None,
            is_at_end: false,
            position: None,
            fetched: VecDeque::new(),
            lent: None,
            next_entries: entries,
            is_long,
            scan: Scan::default(),
        }))
    }
}

struct BucketCursor<'a> {
    snapshot: &'a BucketSnapshot,
    space: Keyspace,
    start: Vec<u8>,
    end: Vec<u8>,
    direction: Direction,
    /// `None` before the first entry and after a seek.
    entries: Option<DbIterator>,
    is_at_end: bool,
    /// Stored key from which the next iterator starts.
    position: Option<Vec<u8>>,
    fetched: VecDeque<KeyValue>,
    lent: Option<KeyValue>,
    /// Entries of the next fetch.
    next_entries: usize,
    is_long: bool,
    scan: Scan,
}

impl BucketCursor<'_> {
    /// Range of a new iterator. A backward scan includes the key that was sought.
    fn range(&self) -> (Vec<u8>, Vec<u8>) {
        let Some(position) = &self.position else { return (self.start.clone(), self.end.clone()) };
        match self.direction {
            Direction::Forward => (position.clone().max(self.start.clone()), self.end.clone()),
            Direction::Backward => {
                let mut after = position.clone();
                after.push(0);
                (self.start.clone(), after.min(self.end.clone()))
            }
        }
    }

    fn options(&self) -> ScanOptions {
        let order = match self.direction {
            Direction::Forward => IterationOrder::Ascending,
            Direction::Backward => IterationOrder::Descending,
        };
        let (bytes, fetches) =
            if self.is_long { (LONG_READ_AHEAD_BYTES, FETCHES) } else { (SHORT_READ_AHEAD_BYTES, 1) };
        let options = ScanOptions::new().with_order(order).with_cache_blocks(true);
        options.with_read_ahead_bytes(bytes).with_max_fetch_tasks(fetches)
    }

    fn fetch(&mut self) -> Result<()> {
        if self.entries.is_none() {
            let (start, end) = self.range();
            if start >= end {
                self.is_at_end = true;
                return Ok(());
            }
            let view = Arc::clone(&self.snapshot.view);
            let options = self.options();
            let opened = self.snapshot.wait(async move { view.scan_with_options(start..end, &options).await })?;
            self.entries = Some(opened);
        }
        let Some(entries) = self.entries.as_mut() else { return Ok(()) };
        let (count, fetched) = (self.next_entries, &mut self.fetched);
        let is_at_end = self.snapshot.wait(async {
            while fetched.len() < count {
                match entries.next().await? {
                    Some(entry) => fetched.push_back(entry),
                    None => return Ok(true),
                }
            }
            Ok(false)
        })?;
        self.is_at_end = is_at_end;
        self.next_entries = (count * 2).min(ENTRIES_MAX);
        Ok(())
    }

    fn is_before(&self, stored: &[u8], sought: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => stored < sought,
            Direction::Backward => stored > sought,
        }
    }
}

impl Cursor for BucketCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.fetched.is_empty() && !self.is_at_end {
            self.fetch()?;
        }
        self.lent = self.fetched.pop_front();
        let Some(entry) = &self.lent else { return Ok(None) };
        let key = &entry.key[keys::PREFIX..];
        self.scan.found(key, &entry.value);
        Ok(Some((key, &entry.value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let sought = keys::entry(self.snapshot.shard, self.space, key);
        // The fetched entries contain the position if one is before it and one is not.
        let is_ahead = self.fetched.front().is_some_and(|entry| self.is_before(&entry.key, &sought));
        let is_fetched = is_ahead && self.fetched.back().is_some_and(|entry| !self.is_before(&entry.key, &sought));
        if is_fetched {
            let skipped = self.fetched.iter().take_while(|entry| self.is_before(&entry.key, &sought)).count();
            self.fetched.drain(..skipped);
            return Ok(());
        }
        self.fetched.clear();
        self.entries = None;
        self.is_at_end = false;
        self.next_entries = FIRST_ENTRIES;
        self.position = Some(sought);
        Ok(())
    }
}
