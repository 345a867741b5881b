//! [`FaultyEngine`]: a memory engine with injected faults that can compute all states a crash may leave. It models an
//! engine with one log for all shards, according to the contract of [`Durability`]: a sync covers every commit before
//! it, and a crash removes a suffix of the unsynced commits.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::memory::MemoryEngine;
use crate::nonblocking::Attempt;
use crate::{
    Batch, CommitListener, CommitToken, Cursor, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Members,
    Outcome, Reply, Request, Result, Shard, ShardState, Snapshot, StorageError, Version,
};

/// Fault of a commit without a conflict, or of the removal of a shard.
#[derive(Clone, Debug)]
pub enum WriteFault {
    /// Nothing is written, and the caller receives the error.
    Fail(StorageError),
    /// Nothing is written, and the result is [`Outcome::Unknown`], or an error for a removal.
    LoseRequest,
    /// The write is applied, and the result is [`Outcome::Unknown`], or an error for a removal.
    LoseAnswer,
}

/// Fault of a sync: of a commit, of the removal of a shard, or an explicit one.
#[derive(Clone, Debug)]
pub enum SyncFault {
    /// The sync fails and the engine is poisoned. The write that requested it is not visible, but may survive.
    Fail(StorageError),
    /// The sync reports success but does nothing, as defective disks do. No engine can compensate for that; it proves
    /// that a test detects lost commits.
    Skip,
}

#[derive(Default)]
pub struct FaultyEngine {
    visible: MemoryEngine,
    reads: Arc<Reads>,
    log: Mutex<Log>,
    watcher: OnceLock<Watcher>,
}

type Watcher = Box<dyn Fn(&FaultyEngine) + Send + Sync>;

#[derive(Debug, Default)]
struct Log {
    durable: MemoryEngine,
    unsynced: Vec<Arc<Change>>,
    writes: u64,
    syncs: u64,
    write_faults: BTreeMap<u64, WriteFault>,
    sync_faults: BTreeMap<u64, SyncFault>,
    poisoned: Option<String>,
}

/// Calls of [`Snapshot::read`] and steps of cursors, of all snapshots.
#[derive(Debug, Default)]
struct Reads {
    made: AtomicU64,
    faults: Mutex<ReadFaults>,
}

#[derive(Debug, Default)]
struct ReadFaults {
    at: BTreeMap<u64, StorageError>,
    /// Every read with at least this number fails.
    from: Option<(u64, StorageError)>,
}

impl Reads {
    fn next(&self) -> Result<()> {
        let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
        let mut faults = self.faults.lock();
        if let Some(error) = faults.at.remove(&number) {
            return Err(error);
        }
        match &faults.from {
            Some((from, error)) if number >= *from => Err(error.clone()),
            Some(_) | None => Ok(()),
        }
    }
}

#[derive(Debug)]
enum Change {
    Commit(Shard, ShardState, Batch),
    Removal(Shard),
}

impl FaultyEngine {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an engine with durable contents, for instance one of [`Self::crash_images`].
    #[must_use]
    pub fn over(contents: MemoryEngine) -> Self {
        let log = Log { durable: contents.fork(), ..Log::default() };
        Self { visible: contents, reads: Arc::default(), log: Mutex::new(log), watcher: OnceLock::new() }
    }

    /// Calls `watcher` after each write, also a lost one, and each explicit sync, before callers are notified, so that
    /// a test can inspect the possible states after a crash, or act as another process. Panics if the engine has a
    /// watcher already.
    pub fn watch(&self, watcher: impl Fn(&Self) + Send + Sync + 'static) {
        assert!(self.watcher.set(Box::new(watcher)).is_ok(), "an engine has one watcher");
    }

    fn notify_watcher(&self) {
        if let Some(watcher) = self.watcher.get() {
            watcher(self);
        }
    }

    /// Injects `fault` into the `nth` write from now on; 1 is the next.
    pub fn inject_write(&self, nth: u64, fault: WriteFault) {
        let mut log = self.log.lock();
        let at = log.writes + nth;
        log.write_faults.insert(at, fault);
    }

    /// Injects `fault` into the `nth` sync from now on; 1 is the next.
    pub fn inject_sync(&self, nth: u64, fault: SyncFault) {
        let mut log = self.log.lock();
        let at = log.syncs + nth;
        log.sync_faults.insert(at, fault);
    }

    /// Makes the `nth` read from now on fail; 1 is the next.
    pub fn inject_read(&self, nth: u64, error: StorageError) {
        let at = self.reads() + nth;
        self.reads.faults.lock().at.insert(at, error);
    }

    /// Makes all reads from the `nth` on fail, until [`Self::clear_read_faults`]; 1 is the next.
    pub fn fail_reads(&self, nth: u64, error: StorageError) {
        let from = self.reads() + nth;
        self.reads.faults.lock().from = Some((from, error));
    }

    pub fn clear_read_faults(&self) {
        *self.reads.faults.lock() = ReadFaults::default();
    }

    #[must_use]
    pub fn reads(&self) -> u64 {
        self.reads.made.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn writes(&self) -> u64 {
        self.log.lock().writes
    }

    #[must_use]
    pub fn syncs(&self) -> u64 {
        self.log.lock().syncs
    }

    /// Number of changes that a crash could lose.
    #[must_use]
    pub fn unsynced(&self) -> usize {
        self.log.lock().unsynced.len()
    }

    /// Returns all states in which a crash at this moment could leave the engine: first the synced state, then each
    /// with one later change more.
    pub fn crash_images(&self) -> impl Iterator<Item = MemoryEngine> + use<> {
        let log = self.log.lock();
        let image = log.durable.fork();
        let first = image.fork();
        let unsynced = log.unsynced.clone();
        std::iter::once(first).chain(unsynced.into_iter().map(move |change| {
            change.apply(&image);
            image.fork()
        }))
    }
}

impl Change {
    fn apply(&self, engine: &MemoryEngine) {
        match self {
            Self::Commit(shard, state, batch) => engine.apply(*shard, *state, batch),
            Self::Removal(shard) => {
                engine.remove(*shard);
            }
        }
    }
}

impl Log {
    fn check_poison(&self) -> Result<()> {
        match &self.poisoned {
            Some(reason) => Err(StorageError::Poisoned(reason.clone())),
            None => Ok(()),
        }
    }

    fn next_write(&mut self) -> Option<WriteFault> {
        self.writes += 1;
        self.write_faults.remove(&self.writes)
    }

    fn sync(&mut self) -> Result<()> {
        self.syncs += 1;
        match self.sync_faults.remove(&self.syncs) {
            Some(SyncFault::Fail(error)) => {
                self.poisoned = Some(error.to_string());
                return Err(error);
            }
            Some(SyncFault::Skip) => return Ok(()),
            None => {}
        }
        for change in self.unsynced.drain(..) {
            change.apply(&self.durable);
        }
        Ok(())
    }

    fn write(&mut self, visible: &MemoryEngine, change: Change, durability: Durability) -> Result<()> {
        let change = Arc::new(change);
        self.unsynced.push(Arc::clone(&change));
        if durability == Durability::Synced {
            self.sync()?;
        }
        change.apply(visible);
        Ok(())
    }
}

struct FaultySnapshot<'a> {
    snapshot: Arc<dyn Snapshot + 'a>,
    reads: Arc<Reads>,
}

impl Snapshot for FaultySnapshot<'_> {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        self.reads.next()?;
        self.snapshot.read(requests)
    }

    fn scan<'a>(
        &'a self,
        space: Keyspace,
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Box<dyn Cursor + 'a>> {
        let cursor = self.snapshot.scan(space, range, direction, expect)?;
        Ok(Box::new(FaultyCursor { cursor, reads: &self.reads }))
    }
}

struct FaultyCursor<'a> {
    cursor: Box<dyn Cursor + 'a>,
    reads: &'a Reads,
}

impl Cursor for FaultyCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        self.reads.next()?;
        self.cursor.next()
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        self.cursor.seek(key)
    }
}

fn lost() -> Result<()> {
    Err(StorageError::InDoubt("the answer was lost".to_owned()))
}

impl Engine for FaultyEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        let snapshot = self.visible.snapshot(shard)?;
        Ok(Arc::new(FaultySnapshot { snapshot, reads: Arc::clone(&self.reads) }))
    }

    fn snapshot_for_attempt<'a>(&self, shard: Shard, attempt: &'a Attempt) -> Result<Arc<dyn Snapshot + 'a>> {
        let snapshot = self.visible.snapshot_for_attempt(shard, attempt)?;
        Ok(Arc::new(FaultySnapshot { snapshot, reads: Arc::clone(&self.reads) }))
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
        let mut log = self.log.lock();
        log.check_poison()?;
        let current = match self.visible.check_commit(shard, expected) {
            Ok(current) => current,
            Err(found) => return Ok(Outcome::Conflict(found)),
        };
        let version = Version(current.0 + 1);
        let fault = log.next_write();
        let answer = match &fault {
            Some(WriteFault::Fail(error)) => return Err(error.clone()),
            Some(WriteFault::LoseRequest | WriteFault::LoseAnswer) => Outcome::Unknown,
            None => Outcome::Committed(version),
        };
        if !matches!(fault, Some(WriteFault::LoseRequest)) {
            log.write(&self.visible, Change::Commit(shard, ShardState { version, token }, batch), durability)?;
        }
        drop(log);
        self.notify_watcher();
        Ok(answer)
    }

    fn check(&self) -> Result<()> {
        self.log.lock().check_poison()
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        let mut log = self.log.lock();
        log.check_poison()?;
        let fault = log.next_write();
        let answer = match &fault {
            Some(WriteFault::Fail(error)) => return Err(error.clone()),
            Some(WriteFault::LoseRequest | WriteFault::LoseAnswer) => lost(),
            None => Ok(()),
        };
        if !matches!(fault, Some(WriteFault::LoseRequest)) {
            log.write(&self.visible, Change::Removal(shard), Durability::Synced)?;
        }
        drop(log);
        self.notify_watcher();
        answer
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        let mut log = self.log.lock();
        log.check_poison()?;
        self.visible.fork().restore(shard, state, batch.clone())?;
        let answer = match log.next_write() {
            Some(WriteFault::Fail(error)) => return Err(error),
            Some(WriteFault::LoseRequest) => return lost(),
            Some(WriteFault::LoseAnswer) => lost(),
            None => Ok(()),
        };
        log.write(&self.visible, Change::Commit(shard, state, batch), Durability::Buffered)?;
        answer
    }

    fn reclaim(&self, shard: Shard) -> Result<()> {
        self.visible.reclaim(shard)
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        self.visible.approximate_size(shard)
    }

    fn subscribe(&self, listener: CommitListener) {
        self.visible.subscribe(listener);
    }

    fn catch_up(&self) -> Result<()> {
        self.visible.catch_up()
    }

    fn members(&self) -> &dyn Members {
        self.visible.members()
    }

    fn sync(&self) -> Result<()> {
        let mut log = self.log.lock();
        log.check_poison()?;
        log.sync()?;
        drop(log);
        self.notify_watcher();
        Ok(())
    }

    fn checkpoint(&self, directory: &Path) -> Result<()> {
        self.visible.checkpoint(directory)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut statistics = self.visible.statistics();
        let log = self.log.lock();
        statistics.push(("writes", log.writes));
        statistics.push(("syncs", log.syncs));
        statistics.push(("unsynced", log.unsynced.len() as u64));
        statistics
    }
}
