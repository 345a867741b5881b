//! [`RocksSnapshot`]: repeatable reads of a shard. A cursor lends entries from RocksDB's memory without copying.

use std::sync::{Arc, OnceLock};

use rocksdb::{DBRawIteratorWithThreadMode, ReadOptions, ReadTier, SnapshotWithThreadMode};
use self_cell::self_cell;
use settee_storage::nonblocking::Waiting;
use settee_storage::tally::{self, Reads, Scan};
use settee_storage::{
    Cursor, Direction, Expect, KeyRange, Keyspace, Page, Reply, Request, Result, Shard, Snapshot, StorageError,
};

use crate::epoch::Epoch;
use crate::shards::Stored;
use crate::store::{Lease, Store};
use crate::{Database, column, keys, state_column};

pub(crate) struct RocksSnapshot<'a> {
    view: View,
    shard: Shard,
    is_dropped: OnceLock<bool>,
    waiting: Waiting<'a>,
}

/// Dropped after the snapshot, which borrows from it.
struct Owner {
    _epoch: HeldEpoch,
    lease: Arc<Lease>,
    /// Dropped after the epoch, whose end may write to the store.
    store: Arc<Store>,
}

struct Pinned<'a> {
    snapshot: SnapshotWithThreadMode<'a, Database>,
    reads: ReadOptions,
}

/// The end of an epoch removes files. A snapshot of an attempt leaves that to another thread.
struct HeldEpoch {
    epoch: Option<Arc<Epoch>>,
    may_block: bool,
}

impl Drop for HeldEpoch {
    fn drop(&mut self) {
        if let Some(last) = self.epoch.take().and_then(Arc::into_inner)
            && !self.may_block
            && last.has_ended()
        {
            // Without a thread the files are removed here.
            let _ = std::thread::Builder::new().name("epoch".to_owned()).spawn(move || drop(last));
        }
    }
}

self_cell! {
    struct View {
        owner: Owner,

        #[covariant]
        dependent: Pinned,
    }
}

/// Returns options for reads, which read only memory if they must not wait for the disk.
fn read_options(waiting: Waiting<'_>) -> ReadOptions {
    let mut reads = ReadOptions::default();
    if let Waiting::Refused(_) = waiting {
        reads.set_read_tier(ReadTier::BlockCache);
    }
    reads
}

impl<'a> RocksSnapshot<'a> {
    pub(crate) fn new(store: Arc<Store>, shard: Shard, waiting: Waiting<'a>) -> Self {
        // The epoch is read first: if a shard is dropped concurrently, its files are kept too long, never too short.
        let epoch = Some(Arc::clone(&store.epoch.lock()));
        let epoch = HeldEpoch { epoch, may_block: matches!(waiting, Waiting::Allowed) };
        let view = View::new(Owner { _epoch: epoch, lease: store.lease(), store }, |owner| {
            let snapshot = owner.store.database.snapshot();
            let mut reads = read_options(waiting);
            reads.set_snapshot(&snapshot);
            Pinned { snapshot, reads }
        });
        Self { view, shard, is_dropped: OnceLock::new(), waiting }
    }

    fn database(&self) -> Result<&Database> {
        self.lease().check()?;
        Ok(&self.view.borrow_owner().store.database)
    }

    fn store(&self) -> &Store {
        &self.view.borrow_owner().store
    }

    fn lease(&self) -> &Lease {
        &self.view.borrow_owner().lease
    }

    fn reads(&self) -> &ReadOptions {
        &self.view.borrow_dependent().reads
    }

    fn failed_read(&self, error: rocksdb::Error) -> StorageError {
        self.store().failed_read(error, self.waiting)
    }

    fn stored(&self) -> Result<Stored> {
        let database = self.database()?;
        let key = keys::prefix(self.shard);
        let read = database.get_pinned_cf_opt(state_column(database), key, self.reads());
        let bytes = read.map_err(|error| self.failed_read(error))?;
        let stored = Stored::decode(bytes.as_deref())?;
        if *self.is_dropped.get_or_init(|| stored.is_dropped) { Err(StorageError::Dropped) } else { Ok(stored) }
    }

    /// Checks for a dropped shard after a read without results, because a dropped shard has no entries.
    fn check_if(&self, is_empty: bool) -> Result<()> {
        match (is_empty, self.is_dropped.get()) {
            (false, _) | (true, Some(false)) => Ok(()),
            (true, Some(true)) => Err(StorageError::Dropped),
            (true, None) => self.stored().map(drop),
        }
    }

    fn get(&self, space: Keyspace, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let database = self.database()?;
        let key = keys::stored(self.shard, key);
        let read = database.get_pinned_cf_opt(column(database, space), key, self.reads());
        let value = read.map_err(|error| self.failed_read(error))?;
        self.check_if(value.is_none())?;
        Ok(value.map(|value| value.to_vec()))
    }

    fn multi_get(&self, space: Keyspace, wanted: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let database = self.database()?;
        let prefix = keys::prefix(self.shard);
        let size = wanted.iter().map(|key| prefix.len() + key.len()).sum();
        let mut bytes = Vec::with_capacity(size);
        for key in wanted {
            bytes.extend_from_slice(&prefix);
            bytes.extend_from_slice(key);
        }
        let mut rest = bytes.as_slice();
        let stored = wanted.iter().map(|key| {
            let (stored, others) = rest.split_at(prefix.len() + key.len());
            rest = others;
            stored
        });
        let values = database
            .batched_multi_get_cf_opt(column(database, space), stored, wanted.is_sorted(), self.reads())
            .into_iter()
            .map(|value| Ok(value.map_err(|error| self.failed_read(error))?.map(|value| value.to_vec())))
            .collect::<Result<Vec<_>>>()?;
        self.check_if(values.iter().all(Option::is_none))?;
        Ok(values)
    }
}

impl Snapshot for RocksSnapshot<'_> {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let reply = |request: &Request<'_>| match *request {
            Request::State => Ok(Reply::State(self.stored()?.state)),
            Request::Head => Ok(Reply::Value(self.stored()?.head)),
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
        let reads = Reads::of(&replies);
        self.waiting.spend(reads)?;
        tally::note(reads);
        Ok(replies)
    }

    fn scan<'a>(
        &'a self,
        space: Keyspace,
        range: KeyRange<'_>,
        direction: Direction,
        _expect: Expect,
    ) -> Result<Box<dyn Cursor + 'a>> {
        self.check_if(true)?;
        let shard = self.shard;
        let (start, end) = keys::bounds(shard, range);
        if start >= end {
            return Ok(Box::new(EmptyCursor));
        }
        let mut reads = read_options(self.waiting);
        reads.set_iterate_lower_bound(start);
        reads.set_iterate_upper_bound(end);
        reads.set_total_order_seek(true);
        // Without a fixed readahead RocksDB reads ahead once a scan proves long, up to 256 KB.
        let database = self.database()?;
        let snapshot = &self.view.borrow_dependent().snapshot;
        let entries = snapshot.raw_iterator_cf_opt(column(database, space), reads);
        Ok(Box::new(RocksCursor {
            entries,
            store: self.store(),
            lease: self.lease(),
            shard,
            direction,
            step: Step::First,
            sought: Vec::new(),
            scan: Scan::default(),
            waiting: self.waiting,
        }))
    }
}

struct EmptyCursor;

impl Cursor for EmptyCursor {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        Ok(None)
    }

    fn seek(&mut self, _key: &[u8]) -> Result<()> {
        Ok(())
    }
}

struct RocksCursor<'a> {
    entries: DBRawIteratorWithThreadMode<'a, Database>,
    store: &'a Store,
    lease: &'a Lease,
    shard: Shard,
    direction: Direction,
    step: Step,
    sought: Vec<u8>,
    scan: Scan,
    waiting: Waiting<'a>,
}

/// Action before the next entry is lent: a lent entry must stay valid until then.
#[derive(Clone, Copy)]
enum Step {
    First,
    Stay,
    Advance,
    End,
}

impl Cursor for RocksCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.lease.check()?;
        match (self.step, self.direction) {
            (Step::First, Direction::Forward) => self.entries.seek_to_first(),
            (Step::First, Direction::Backward) => self.entries.seek_to_last(),
            (Step::Advance, Direction::Forward) => self.entries.next(),
            (Step::Advance, Direction::Backward) => self.entries.prev(),
            (Step::Stay, _) => {}
            (Step::End, _) => return Ok(None),
        }
        self.step = Step::End;
        if !self.entries.valid() {
            self.entries.status().map_err(|error| self.store.failed_read(error, self.waiting))?;
            return Ok(None);
        }
        self.step = Step::Advance;
        let Some((key, value)) = self.entries.item() else { return Ok(None) };
        let key = &key[keys::PREFIX..];
        self.waiting.spend(self.scan.found(key, value))?;
        Ok(Some((key, value)))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        keys::write(&mut self.sought, self.shard, key);
        match self.direction {
            Direction::Forward => self.entries.seek(&self.sought),
            Direction::Backward => self.entries.seek_for_prev(&self.sought),
        }
        self.step = Step::Stay;
        Ok(())
    }
}
