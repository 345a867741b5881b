//! [`Group`]: the shards of one group, in a SlateDB of their own. Shards and keyspaces are key prefixes, so all commits
//! of the group share one log. A commit is one write batch. Concurrent commits share one object of the log
//! ([`Flusher`]). The library fences the log of an earlier owner, so a process that was suspended cannot write.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::path::Path;
use parking_lot::{Mutex, RwLock};
use settee_storage::{
    Batch, CommitToken, Durability, Operation, Outcome, Result, Shard, ShardState, StorageError, Version,
};
use slatedb::admin::Admin;
use slatedb::config::{FlushOptions, FlushType, GarbageCollectorOptions};
use slatedb::db_cache::DbCache;
use slatedb::{Db, Settings, WriteBatch, WriteHandle};
use slatedb_common::clock::SystemClock;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::backlog::Backlog;
use crate::block::block_on;
use crate::clock::{self, GroupClock};
use crate::error::{self, translate};
use crate::flusher::Flusher;
use crate::metered::Meter;
use crate::shards::{Pending, Slot, Slots, Stored};
use crate::snapshot::{self, BucketSnapshot};
use crate::{clear, history, keys};

/// Maximum duration of the end of a group.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// The same if another process may serve the group: the store may not respond to this one.
const LOST_CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// The common part of the groups of an engine.
pub(crate) struct Context {
    pub(crate) objects: Arc<dyn ObjectStore>,
    pub(crate) runtime: Handle,
    pub(crate) settings: Settings,
    /// `None` for a state of the past, in which nothing is removed.
    pub(crate) garbage: Option<GarbageCollectorOptions>,
    pub(crate) history: Duration,
    pub(crate) cache: Arc<dyn DbCache>,
    /// Location for operators.
    pub(crate) shown: String,
    pub(crate) timeout: Duration,
    pub(crate) commit_interval: Duration,
    pub(crate) idle_time: Duration,
    pub(crate) meter: Arc<Meter>,
    pub(crate) commits: AtomicU64,
    pub(crate) written: AtomicU64,
}

/// An open group. This process is its owner.
pub(crate) struct Group {
    context: Arc<Context>,
    database: Arc<Db>,
    status: watch::Receiver<slatedb::DbStatus>,
    flusher: Arc<Flusher>,
    slots: Slots,
    /// Locked for reading during a commit; true once the group is closed.
    is_closed: RwLock<bool>,
    used: Mutex<Instant>,
    /// True once another process may serve the group.
    is_lost: watch::Sender<bool>,
    backlog: Mutex<Backlog>,
    /// Shared with all snapshots.
    readers: Arc<()>,
    tasks: Mutex<JoinSet<()>>,
}

/// Folder of the objects of a group.
pub(crate) fn path(group: u32) -> Path {
    Path::from(format!("group-{group:03}"))
}

impl Group {
    /// Opens or creates a group, which ends the commits of an earlier owner.
    pub(crate) fn open(context: &Arc<Context>, group: u32) -> Result<Self> {
        Self::open_at(context, group, GroupClock::new(0))
    }

    fn open_at(context: &Arc<Context>, group: u32, clock: GroupClock) -> Result<Self> {
        // The library repeats requests without end.
        let opened = snapshot::limited(context.timeout, open_database(context, group, Arc::new(clock)));
        let database = block_on(&context.runtime, opened)?;
        let database = Arc::new(database);
        let flusher = Arc::new(Flusher::default());
        let mut tasks = JoinSet::new();
        tasks.spawn_on(Arc::clone(&flusher).run(Arc::clone(&database), context.commit_interval), &context.runtime);
        if let Some(garbage) = context.garbage.clone() {
            // Before a group that is used only once is closed again.
            let times = (context.idle_time / 2, context.history);
            let objects = Arc::clone(&context.objects);
            tasks.spawn_on(history::remove_unused(path(group), objects, garbage, times), &context.runtime);
            tasks.spawn_on(clear::resume(Arc::clone(&database)), &context.runtime);
        }
        Ok(Self {
            context: Arc::clone(context),
            status: database.subscribe(),
            database,
            flusher,
            slots: Slots::default(),
            is_closed: RwLock::new(false),
            used: Mutex::new(Instant::now()),
            is_lost: watch::Sender::new(false),
            backlog: Mutex::default(),
            readers: Arc::default(),
            tasks: Mutex::new(tasks),
        })
    }

    /// Ends the waits of commits, whose outcome is unknown, because the store may not respond to this process.
    pub(crate) fn lose(&self) {
        self.is_lost.send_replace(true);
    }

    /// Waits for the commits in progress, and writes what is in memory as files: a group without a log opens faster.
    /// All later operations fail. Idempotent.
    pub(crate) fn close(&self) {
        {
            let mut is_closed = self.is_closed.write();
            if std::mem::replace(&mut *is_closed, true) {
                return;
            }
        }
        self.tasks.lock().abort_all();
        // Without this step the log contains the data.
        let timeout = if *self.is_lost.borrow() { LOST_CLOSE_TIMEOUT } else { CLOSE_TIMEOUT };
        let _ = self.block_on(async { tokio::time::timeout(timeout, self.database.close()).await });
    }

    /// Records the use of the group by an operation that follows.
    pub(crate) fn touch(&self) {
        *self.used.lock() = Instant::now();
    }

    /// Returns true if no operation has used the group for some time: an open group sends requests, a closed one none.
    pub(crate) fn is_idle(&self) -> bool {
        self.used.lock().elapsed() >= self.context.idle_time
            && Arc::strong_count(&self.readers) == 1
            && !self.has_ended()
    }

    /// Returns the shards that commits have used.
    pub(crate) fn shards(&self) -> Vec<Shard> {
        self.slots.shards()
    }

    /// Returns the age of the oldest write that is not durable.
    pub(crate) fn stalled_for(&self) -> Option<Duration> {
        let durable = self.durable_number();
        self.backlog.lock().oldest(durable).map(|since| since.elapsed())
    }

    /// Returns the number of objects of the log, of files of the first level and of sorted runs.
    pub(crate) fn counts(&self) -> [u64; 3] {
        let status = self.status.borrow();
        let manifest = &status.current_manifest;
        [self.flusher.flushes(), manifest.l0().len() as u64, manifest.compacted().len() as u64]
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(&self.context.runtime, future)
    }

    /// Waits for a read, which the library repeats until the store responds.
    fn read<T>(&self, future: impl Future<Output = Result<T, slatedb::Error>>) -> Result<T> {
        self.block_on(snapshot::limited(self.context.timeout, future))
    }

    /// Fails if another process has become the owner, or if the library has ended after an error.
    fn check_open(&self) -> Result<()> {
        match self.status.borrow().close_reason {
            None => Ok(()),
            Some(slatedb::CloseReason::Clean) => Err(StorageError::Deposed),
            Some(slatedb::CloseReason::Fenced) => Err(StorageError::Unreached(error::FENCED.to_owned())),
            Some(reason) => Err(StorageError::Poisoned(format!(
                "{} was closed after an error ({reason:?}); restart the server",
                self.context.shown
            ))),
        }
    }

    /// Returns true if this process does not serve the group any more.
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.status.borrow().close_reason, Some(slatedb::CloseReason::Fenced | slatedb::CloseReason::Clean))
            || *self.is_closed.read()
    }

    /// Returns true if another process has opened the group.
    pub(crate) fn is_fenced(&self) -> bool {
        matches!(self.status.borrow().close_reason, Some(slatedb::CloseReason::Fenced))
    }

    /// Fails if commits would fail.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_open()?;
        let flush_interval = self.context.settings.flush_interval.unwrap_or_default();
        // A buffered write is not sent at once.
        match self.stalled_for().map(|stalled| stalled.saturating_sub(flush_interval)) {
            Some(stalled) if stalled > self.context.timeout => Err(StorageError::Unreached(format!(
                "{} has not accepted a write for {} s",
                self.context.shown,
                stalled.as_secs()
            ))),
            _ => Ok(()),
        }
    }

    fn durable_number(&self) -> u64 {
        self.status.borrow().durable_seq
    }

    /// The caller must hold the lock of the state.
    fn load<'s>(&self, shard: Shard, stored: &'s mut Option<Stored>) -> Result<&'s Stored> {
        if stored.is_none() {
            let bytes = self.read(self.database.get(keys::state(shard)))?;
            *stored = Some(Stored::decode(bytes.as_deref())?);
        }
        Ok(stored.get_or_insert_default())
    }

    /// Applies a batch, which is durable later.
    fn write(
        &self,
        slot: &mut Option<Stored>,
        next: Stored,
        shard: Shard,
        mut writes: WriteBatch,
    ) -> Result<WriteHandle> {
        writes.put(keys::state(shard), next.encode());
        match self.block_on(self.database.write(writes)) {
            Ok(handle) => {
                *slot = Some(next);
                self.backlog.lock().add(handle.seqnum(), Instant::now());
                Ok(handle)
            }
            Err(error) => {
                *slot = None;
                Err(translate(&error).in_doubt())
            }
        }
    }

    fn wait_durable(&self, handle: &WriteHandle) -> Result<()> {
        self.flusher.request();
        let timeout = self.context.timeout;
        let mut is_lost = self.is_lost.subscribe();
        let waited = self.block_on(async {
            tokio::select! {
                durable = tokio::time::timeout(timeout, handle.await_durable()) => Some(durable),
                _ = is_lost.wait_for(|is_lost| *is_lost) => None,
            }
        });
        match waited {
            Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(StorageError::InDoubt(translate(&error).to_string())),
            None => Err(StorageError::InDoubt(error::FENCED.to_owned())),
            Some(Err(_)) => Err(StorageError::InDoubt(format!(
                "{} did not accept the write within {} s; it is repeated",
                self.context.shown,
                timeout.as_secs()
            ))),
        }
    }

    fn commit_synced(&self, slot: &Slot, write: impl FnOnce() -> Result<WriteHandle>) -> Result<()> {
        {
            let mut pending = slot.pending.lock();
            let durable = self.durable_number();
            // If an earlier commit is not durable, readers continue to see the state before it.
            if pending.as_ref().is_none_or(|pending| pending.is_durable(durable)) {
                let before = self.database.snapshot().map_err(|error| translate(&error))?;
                *pending = Some(Pending { before, number: None });
            } else if let Some(pending) = pending.as_mut() {
                pending.number = None;
            }
        }
        let handle = match write() {
            Ok(handle) => handle,
            Err(error) => {
                // The library has closed the store, unless it rejected the batch, which is then not applied.
                *slot.pending.lock() = None;
                return Err(error);
            }
        };
        if let Some(pending) = slot.pending.lock().as_mut() {
            pending.number = Some(handle.seqnum());
        }
        self.wait_durable(&handle)?;
        *slot.pending.lock() = None;
        Ok(())
    }

    /// Returns a snapshot of the last durable commit, or of the last buffered one.
    pub(crate) fn snapshot(&self, shard: Shard) -> Result<BucketSnapshot> {
        self.check_open()?;
        let slot = self.slots.slot(shard);
        let view = {
            // The lock excludes a commit between the check and the snapshot.
            let mut pending = slot.pending.lock();
            let durable = self.durable_number();
            if pending.as_ref().is_some_and(|pending| pending.is_durable(durable)) {
                *pending = None;
            }
            match pending.as_ref() {
                Some(pending) => Arc::clone(&pending.before),
                None => self.database.snapshot().map_err(|error| translate(&error))?,
            }
        };
        let (runtime, readers) = (self.context.runtime.clone(), Arc::clone(&self.readers));
        Ok(BucketSnapshot::new(view, shard, runtime, self.context.timeout, readers))
    }

    /// Returns a snapshot for another process, which must not observe a commit that a crash of this one loses.
    pub(crate) fn durable_snapshot(&self, shard: Shard) -> Result<BucketSnapshot> {
        let buffered = self.slots.slot(shard).buffered.load(Ordering::Acquire);
        if buffered > self.durable_number() {
            self.sync()?;
        }
        self.snapshot(shard)
    }

    fn is_pending(&self, slot: &Slot) -> bool {
        slot.pending.lock().as_ref().is_some_and(|pending| !pending.is_durable(self.durable_number()))
    }

    /// Makes all commits so far durable.
    pub(crate) fn sync(&self) -> Result<()> {
        self.check()?;
        let flush = self.database.flush_with_options(FlushOptions { flush_type: FlushType::Wal });
        self.read(flush)
    }

    pub(crate) fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        let is_closed = self.is_closed.read();
        if *is_closed {
            return Err(StorageError::Deposed);
        }
        self.check()?;
        // As much work as possible is done before the lock is taken.
        let writes = writes(shard, &batch);
        let bytes = batch.size_bytes() as u64;
        let head = batch.head().map(<[u8]>::to_vec);
        drop(batch);

        let slot = self.slots.slot(shard);
        let mut stored = slot.stored.lock();
        let current = self.load(shard, &mut stored)?.clone();
        let Version(version) = current.state.version;
        if Version(version) != expected || current.is_dropped {
            if self.is_pending(&slot) {
                // Readers do not see the conflicting commit yet, so a retry would conflict again.
                return Err(StorageError::Unreached(format!(
                    "{} has not accepted an earlier write",
                    self.context.shown
                )));
            }
            return Ok(Outcome::Conflict(Version(version)));
        }
        let state = ShardState { version: Version(version + 1), token };
        let next = Stored { state, head: head.or(current.head), bytes: current.bytes + bytes, is_dropped: false };
        match durability {
            Durability::Synced => self.commit_synced(&slot, || self.write(&mut stored, next, shard, writes))?,
            Durability::Buffered => {
                let handle = self.write(&mut stored, next, shard, writes)?;
                slot.buffered.store(handle.seqnum(), Ordering::Release);
            }
        }
        self.context.commits.fetch_add(1, Ordering::Relaxed);
        self.context.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(Outcome::Committed(state.version))
    }

    /// Returns the version of the drop; `None` if the shard was dropped before.
    pub(crate) fn drop_shard(&self, shard: Shard) -> Result<Option<Version>> {
        self.check()?;
        let slot = self.slots.slot(shard);
        let mut stored = slot.stored.lock();
        let current = self.load(shard, &mut stored)?;
        if current.is_dropped {
            if self.is_pending(&slot) {
                self.sync()?;
            }
            return Ok(None);
        }
        let dropped = current.dropped();
        let version = dropped.state.version;
        let mut writes = WriteBatch::new();
        writes.put(keys::clearing(shard), b"");
        self.commit_synced(&slot, || self.write(&mut stored, dropped, shard, writes))?;
        self.context.runtime.spawn(clear::clear(Arc::clone(&self.database), shard));
        Ok(Some(version))
    }

    pub(crate) fn restore(&self, shard: Shard, state: ShardState, batch: &Batch) -> Result<()> {
        self.check()?;
        let writes = writes(shard, batch);
        let slot = self.slots.slot(shard);
        let mut stored = slot.stored.lock();
        let current = self.load(shard, &mut stored)?.clone();
        if current.is_dropped {
            return Err(StorageError::Dropped);
        }
        let head = batch.head().map(<[u8]>::to_vec).or(current.head);
        let next = Stored { state, head, bytes: current.bytes + batch.size_bytes() as u64, is_dropped: false };
        self.write(&mut stored, next, shard, writes)?;
        Ok(())
    }

    /// The library compacts by itself. This counts the entries, so that the size of the shard excludes those that were
    /// replaced or removed.
    pub(crate) fn reclaim(&self, shard: Shard) -> Result<()> {
        self.check()?;
        let before = self.snapshot(shard).and_then(|view| view.bytes()).unwrap_or_default();
        let counted = self.block_on(clear::size(&self.database, shard)).map_err(|error| translate(&error))?;
        let slot = self.slots.slot(shard);
        let mut stored = slot.stored.lock();
        let mut next = self.load(shard, &mut stored)?.clone();
        if next.is_dropped || next.state == ShardState::default() {
            return Ok(());
        }
        // Concurrent commits are counted twice at most.
        next.bytes = counted + next.bytes.saturating_sub(before);
        self.write(&mut stored, next, shard, WriteBatch::new())?;
        Ok(())
    }
}

/// Opens a group again if its clock was behind, because what the library has started by then may have failed.
async fn open_database(context: &Context, group: u32, clock: Arc<GroupClock>) -> Result<Db, slatedb::Error> {
    let open = || {
        Db::builder(path(group), Arc::clone(&context.objects))
            .with_settings(context.settings.clone())
            .with_db_cache(Arc::clone(&context.cache), u64::from(group))
            .with_system_clock(Arc::clone(&clock) as Arc<dyn SystemClock>)
            .build()
    };
    let database = open().await?;
    if !clock.advance_to(clock::last_write_ms(&database).await?) {
        return Ok(database);
    }
    let admin = Admin::builder(path(group), Arc::clone(&context.objects)).build();
    clock.advance_to(clock::last_compaction_ms(&admin).await?);
    tracing::warn!(group, ?clock, "the clock of this node is behind that of the earlier owner");
    let _ = database.close().await;
    open().await
}

fn writes(shard: Shard, batch: &Batch) -> WriteBatch {
    let mut writes = WriteBatch::new();
    for operation in batch.operations() {
        match operation {
            Operation::Put(space, key, value) | Operation::Insert(space, key, value) => {
                writes.put_bytes(keys::entry(shard, space, key).into(), bytes::Bytes::copy_from_slice(value));
            }
            Operation::Delete(space, key) => writes.delete(keys::entry(shard, space, key)),
        }
    }
    writes
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;
