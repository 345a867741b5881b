//! [`BucketEngine`]: the engine on object storage, through SlateDB.
//!
//! All shards are in one SlateDB: shards and keyspaces are key prefixes, so all commits share one log. A commit is one
//! write batch. Concurrent commits share one object of the log ([`flusher`]). One process uses a bucket: others wait for
//! its [`lease`]. The library fences the log of an earlier writer, so a process that was suspended cannot write.
//!
//! The library is asynchronous. The engine has a runtime of its own, and its methods block the calling thread.

#![warn(missing_docs)]

mod block;
mod clear;
mod error;
mod flusher;
mod identity;
mod keys;
mod lease;
mod location;
mod members;
mod metered;
mod open;
mod options;
mod shards;
mod snapshot;

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use settee_storage::{
    Batch, CommitToken, Durability, Engine, Members, Operation, Outcome, Result, Shard, ShardState, Snapshot,
    StorageError, Version,
};
use slatedb::config::{FlushOptions, FlushType};
use slatedb::{Db, WriteBatch, WriteHandle};
use tokio::runtime::Runtime;
use tokio::sync::watch;

use block::block_on;
use error::translate;
use flusher::Flusher;
pub use identity::ClusterId;
use lease::Lease;
pub use lease::Standby;
pub use location::{Access, Bucket, Connector, Location};
use metered::Meter;
pub use options::Options;
use shards::{Pending, Slot, Slots, Stored};
use snapshot::BucketSnapshot;

/// Maximum duration of each step of the end of an engine.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(20);

/// An engine on a bucket.
pub struct BucketEngine {
    /// `None` while the engine is dropped.
    runtime: Option<Runtime>,
    database: Arc<Db>,
    status: watch::Receiver<slatedb::DbStatus>,
    flusher: Arc<Flusher>,
    /// `None` for a directory, which is locked by [`Self::_lock`].
    lease: Option<Arc<Lease>>,
    _lock: Option<std::fs::File>,
    slots: Slots,
    meter: Arc<Meter>,
    cluster: ClusterId,
    shown: String,
    timeout: Duration,
    commits: AtomicU64,
    written: AtomicU64,
    is_closed: AtomicBool,
}

impl BucketEngine {
    /// Opens the store, or creates one if the bucket has no objects. Waits while another process uses the store, or
    /// fails, according to [`Options::standby`]. Fails, and writes nothing, if the store cannot be accessed or belongs
    /// to another cluster or a newer version.
    pub fn open(bucket: Bucket, options: &Options) -> Result<Self> {
        open::open(bucket, options)
    }

    /// Returns the cluster to which the store belongs.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Writes what is in memory and releases the store, so that another process can open it immediately. All operations
    /// fail afterwards. Idempotent.
    pub fn close(&self) {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        self.flusher.end();
        self.block_on(async {
            // A store whose data is in files opens faster. Without this step the log contains them.
            let _ = tokio::time::timeout(CLOSE_TIMEOUT, self.database.close()).await;
            if let Some(lease) = &self.lease {
                let _ = tokio::time::timeout(CLOSE_TIMEOUT, lease.release()).await;
            }
        });
    }

    fn handle(&self) -> &tokio::runtime::Handle {
        self.runtime.as_ref().expect("it ends with the engine").handle()
    }

    fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        block_on(self.handle(), future)
    }

    /// Waits for a read, which the library repeats until the store responds.
    fn read<T>(&self, future: impl Future<Output = Result<T, slatedb::Error>>) -> Result<T> {
        self.block_on(snapshot::limited(self.timeout, future))
    }

    /// Fails if this process is not the owner of the data, or if the library has ended after an error.
    fn check_owner(&self) -> Result<()> {
        self.lease.as_ref().map_or(Ok(()), |lease| lease.check())?;
        match self.status.borrow().close_reason {
            None => Ok(()),
            Some(slatedb::CloseReason::Clean) => Err(StorageError::Unreached("the server is about to end".to_owned())),
            Some(slatedb::CloseReason::Fenced) => Err(StorageError::Unreached(error::FENCED.to_owned())),
            Some(reason) => Err(StorageError::Poisoned(format!(
                "{} was closed after an error ({reason:?}); restart the server",
                self.shown
            ))),
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
        let waited = self.block_on(async { tokio::time::timeout(self.timeout, handle.await_durable()).await });
        match waited {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(StorageError::InDoubt(translate(&error).to_string())),
            Err(_) => Err(StorageError::InDoubt(format!(
                "{} did not accept the write within {} s; it is repeated",
                self.shown,
                self.timeout.as_secs()
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
    fn view(&self, shard: Shard) -> Result<BucketSnapshot> {
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
        Ok(BucketSnapshot::new(view, shard, self.handle().clone(), self.timeout))
    }

    fn is_pending(&self, slot: &Slot) -> bool {
        slot.pending.lock().as_ref().is_some_and(|pending| !pending.is_durable(self.durable_number()))
    }

    fn flush_log(&self) -> Result<()> {
        let flush = self.database.flush_with_options(FlushOptions { flush_type: FlushType::Wal });
        self.read(flush)
    }
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

impl fmt::Debug for BucketEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketEngine").field("shown", &self.shown).finish_non_exhaustive()
    }
}

impl Engine for BucketEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        self.check_owner()?;
        Ok(Arc::new(self.view(shard)?))
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        durability: Durability,
    ) -> Result<Outcome> {
        batch.check()?;
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
                return Err(StorageError::Unreached(format!("{} has not accepted an earlier write", self.shown)));
            }
            return Ok(Outcome::Conflict(Version(version)));
        }
        let state = ShardState { version: Version(version + 1), token };
        let next = Stored { state, head: head.or(current.head), bytes: current.bytes + bytes, is_dropped: false };
        match durability {
            Durability::Synced => self.commit_synced(&slot, || self.write(&mut stored, next, shard, writes))?,
            Durability::Buffered => {
                self.write(&mut stored, next, shard, writes)?;
            }
        }
        self.commits.fetch_add(1, Ordering::Relaxed);
        self.written.fetch_add(bytes, Ordering::Relaxed);
        Ok(Outcome::Committed(state.version))
    }

    fn check(&self) -> Result<()> {
        self.check_owner()?;
        match self.flusher.stalled_for() {
            Some(stalled) if stalled > self.timeout => Err(StorageError::Unreached(format!(
                "{} has not accepted a write for {} s",
                self.shown,
                stalled.as_secs()
            ))),
            _ => Ok(()),
        }
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.check()?;
        let slot = self.slots.slot(shard);
        let mut stored = slot.stored.lock();
        let current = self.load(shard, &mut stored)?;
        if current.is_dropped {
            return if self.is_pending(&slot) { self.flush_log() } else { Ok(()) };
        }
        let dropped = current.dropped();
        let mut writes = WriteBatch::new();
        writes.put(keys::clearing(shard), b"");
        self.commit_synced(&slot, || self.write(&mut stored, dropped, shard, writes))?;
        self.handle().spawn(clear::clear(Arc::clone(&self.database), shard));
        Ok(())
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        batch.check()?;
        self.check()?;
        let writes = writes(shard, &batch);
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

    /// The library compacts by itself. This counts the entries, so that [`Self::approximate_size`] excludes those that
    /// were replaced or removed.
    fn reclaim(&self, shard: Shard) -> Result<()> {
        self.check()?;
        let before = self.approximate_size(shard);
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

    /// Bytes that were written to the shard since [`Self::reclaim`] counted them. Compression is not considered.
    fn approximate_size(&self, shard: Shard) -> u64 {
        self.view(shard).and_then(|view| view.bytes()).unwrap_or_default()
    }

    fn members(&self) -> &dyn Members {
        self
    }

    fn sync(&self) -> Result<()> {
        self.check()?;
        self.flush_log()
    }

    fn checkpoint(&self, _directory: &Path) -> Result<()> {
        Err(StorageError::Io(format!(
            "the data is in {}: copy it with `settee storage copy`, or let the bucket keep earlier versions of its \
             objects",
            self.shown
        )))
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut statistics = self.meter.statistics();
        let (levels, sorted) = {
            let status = self.status.borrow();
            let manifest = &status.current_manifest;
            (manifest.l0().len() as u64, manifest.compacted().len() as u64)
        };
        statistics.extend([
            ("first_level_files", levels),
            ("sorted_runs", sorted),
            ("log_flushes", self.flusher.flushes()),
            ("log_stalled_seconds", self.flusher.stalled_for().map_or(0, |stalled| stalled.as_secs())),
            ("commits", self.commits.load(Ordering::Relaxed)),
            ("written_bytes", self.written.load(Ordering::Relaxed)),
            ("cached_shards", self.slots.len() as u64),
        ]);
        statistics
    }
}

impl Drop for BucketEngine {
    fn drop(&mut self) {
        self.close();
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
