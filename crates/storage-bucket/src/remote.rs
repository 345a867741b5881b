//! [`RemoteSnapshot`]: repeatable reads of a shard that another process serves. The owner keeps the snapshot, which the
//! first read opens.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use settee_storage::tally::{self, Reads, Scan};
use settee_storage::{
    Cursor, Direction, Expect, KeyRange, Keyspace, Page, PageRange, Reply, Request, Result, Shard, Snapshot,
    StorageError,
};

use crate::engine::{Asked, Inner, Place};
use crate::nodes::Failure;
use crate::protocol::{Answer, Message, Refusal, SnapshotId};
use crate::snapshot::BucketSnapshot;

/// Rows of the first page of a cursor, unless the caller expects more, and of the largest page. The number doubles.
const FIRST_ROWS: usize = 16;
const ROWS_MAX: usize = 512;

pub(crate) struct RemoteSnapshot {
    engine: Arc<Inner>,
    shard: Shard,
    opened: Mutex<Option<Opened>>,
}

#[derive(Clone)]
enum Opened {
    /// This process has become the owner before the first read.
    Here(Arc<BucketSnapshot>),
    There(Place, SnapshotId),
}

impl RemoteSnapshot {
    pub(crate) fn new(engine: Arc<Inner>, shard: Shard) -> Self {
        Self { engine, shard, opened: Mutex::default() }
    }

    fn read_there(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let message = |snapshot| Message::Read { shard: self.shard, snapshot, requests: requests.to_vec() };
        // Concurrent first reads must use one snapshot.
        let mut opened = self.opened.lock();
        let (place, id) = match opened.clone() {
            Some(Opened::There(place, id)) => (place, id),
            Some(Opened::Here(view)) => {
                drop(opened);
                return view.read(requests);
            }
            None => match self.engine.ask_owner(self.shard, &message(None))? {
                Asked::There(place, Answer::Replies(id, replies)) => {
                    *opened = Some(Opened::There(place, id));
                    return Ok(replies);
                }
                Asked::There(..) => return Err(interrupted()),
                Asked::Here(group) => {
                    let view = Arc::new(group.snapshot(self.shard)?);
                    *opened = Some(Opened::Here(Arc::clone(&view)));
                    drop(opened);
                    return view.read(requests);
                }
            },
        };
        drop(opened);
        match self.engine.ask(&place, &message(Some(id))) {
            Ok(Answer::Replies(_, replies)) => Ok(replies),
            Err(Failure::Refusal(Refusal::Storage(error))) => Err(error),
            _ => Err(interrupted()),
        }
    }

    fn page(&self, page: PageRange<'_>) -> Result<Page> {
        let reply = self.read_there(&[Request::Page(page)])?.pop();
        reply.ok_or_else(interrupted)?.into_page()
    }
}

fn interrupted() -> StorageError {
    StorageError::Interrupted("the node with the data does not continue the read".to_owned())
}

impl Drop for RemoteSnapshot {
    fn drop(&mut self) {
        if let Some(Opened::There(place, id)) = self.opened.get_mut().take() {
            self.engine.notify(place, Message::Close(id));
        }
    }
}

impl Snapshot for RemoteSnapshot {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let replies = self.read_there(requests)?;
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
        let rows = match expect {
            Expect::Few => FIRST_ROWS,
            Expect::Rows(rows) => rows.clamp(1, ROWS_MAX),
            Expect::All => ROWS_MAX,
        };
        let (start, end) = (range.start.map(<[u8]>::to_vec), range.end.map(<[u8]>::to_vec));
        let mut cursor = RemoteCursor {
            snapshot: self,
            space,
            next: (start.clone(), end.clone()),
            range: (start, end),
            direction,
            rows,
            is_at_end: false,
            fetched: VecDeque::new(),
            lent: None,
            scan: Scan::default(),
        };
        cursor.fetch()?;
        Ok(Box::new(cursor))
    }
}

type Bounds = (Option<Vec<u8>>, Option<Vec<u8>>);

struct RemoteCursor<'a> {
    snapshot: &'a RemoteSnapshot,
    space: Keyspace,
    range: Bounds,
    /// Range of the entries that were not fetched.
    next: Bounds,
    direction: Direction,
    /// Rows of the next page.
    rows: usize,
    is_at_end: bool,
    fetched: VecDeque<(Vec<u8>, Vec<u8>)>,
    lent: Option<(Vec<u8>, Vec<u8>)>,
    scan: Scan,
}

fn after(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl RemoteCursor<'_> {
    fn fetch(&mut self) -> Result<()> {
        let range = KeyRange { start: self.next.0.as_deref(), end: self.next.1.as_deref() };
        if let (Some(start), Some(end)) = (range.start, range.end)
            && start >= end
        {
            self.is_at_end = true;
            return Ok(());
        }
        let page = PageRange { space: self.space, range, direction: self.direction, rows: self.rows };
        let Page { rows, is_last } = self.snapshot.page(page)?;
        match (rows.last(), self.direction) {
            (Some((key, _)), Direction::Forward) => self.next.0 = Some(after(key)),
            (Some((key, _)), Direction::Backward) => self.next.1 = Some(key.clone()),
            (None, _) => {}
        }
        self.is_at_end = is_last || rows.is_empty();
        self.fetched = rows.into();
        self.rows = (self.rows * 2).min(ROWS_MAX);
        Ok(())
    }
}

impl Cursor for RemoteCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        if self.fetched.is_empty() && !self.is_at_end {
            self.fetch()?;
        }
        self.lent = self.fetched.pop_front();
        let Some((key, value)) = &self.lent else { return Ok(None) };
        self.scan.found(key, value);
        Ok(Some((key, value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let (start, end) = self.range.clone();
        self.next = match self.direction {
            Direction::Forward => (Some(start.map_or_else(|| key.to_vec(), |start| start.max(key.to_vec()))), end),
            Direction::Backward => (start, Some(end.map_or_else(|| after(key), |end| end.min(after(key))))),
        };
        self.fetched.clear();
        self.is_at_end = false;
        self.rows = FIRST_ROWS;
        Ok(())
    }
}
