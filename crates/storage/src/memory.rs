//! [`MemoryEngine`]: an engine for tests. Its contents are lost when it is dropped, unless a checkpoint was written.
//! Snapshots cost one pointer and commits copy only what they modify, see the module `tree`.

mod file;
mod members;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::nonblocking::{Attempt, Waiting};
use crate::tally::{self, Reads, Scan};
use crate::{
    Batch, CommitListener, CommitToken, Cursor, Direction, Durability, Engine, Expect, KeyRange, Keyspace, Members,
    Operation, Outcome, Page, Reply, Request, Result, Shard, ShardState, Snapshot, StorageError, Version,
};
use tree::{Position, Tree};

const RECENT_TOKENS: usize = 16;

/// An engine in memory. It represents one process, which ends when it is dropped; [`Self::user`] creates another.
#[derive(Default)]
pub struct MemoryEngine {
    store: Arc<Store>,
    user: u64,
}

#[derive(Default)]
struct Store {
    shards: Mutex<Arc<Shards>>,
    users: AtomicU64,
    listeners: Mutex<Vec<(u64, CommitListener)>>,
    processes: Mutex<members::Processes>,
}

#[derive(Clone, Debug, Default)]
struct Shards {
    contents: BTreeMap<Shard, Arc<Contents>>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    state: ShardState,
    is_dropped: bool,
    head: Option<Vec<u8>>,
    recent: VecDeque<ShardState>,
    spaces: [Tree; Keyspace::ALL.len()],
}

impl MemoryEngine {
    /// Creates an empty engine.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates an independent engine with the same contents. Costs one pointer.
    #[must_use]
    pub fn fork(&self) -> Self {
        Self::on(self.current())
    }

    /// Opens the same store as another process.
    #[must_use]
    pub fn user(&self) -> Self {
        let user = self.store.users.fetch_add(1, Ordering::Relaxed) + 1;
        Self { store: Arc::clone(&self.store), user }
    }

    fn on(shards: Arc<Shards>) -> Self {
        let shards = Mutex::new(shards);
        Self { store: Arc::new(Store { shards, ..Store::default() }), user: 0 }
    }

    /// The caller must hold the lock of the shards, so that notifications are in the order of commits.
    fn notify_listeners(&self, shard: Shard, version: Version) {
        for (_, listener) in self.store.listeners.lock().iter().filter(|(user, _)| *user != self.user) {
            listener(shard, version);
        }
    }

    /// Loads a checkpoint that [`Engine::checkpoint`] wrote into `directory`.
    pub fn load(directory: &Path) -> Result<Self> {
        Ok(Self::on(Arc::new(file::read(directory)?)))
    }

    fn current(&self) -> Arc<Shards> {
        Arc::clone(&self.store.shards.lock())
    }

    fn view<'a>(&self, shard: Shard, waiting: Waiting<'a>) -> View<'a> {
        let contents = self.store.shards.lock().contents.get(&shard).cloned().unwrap_or_default();
        View { contents, waiting }
    }

    pub(crate) fn apply(&self, shard: Shard, state: ShardState, batch: &Batch) {
        let mut shards = self.store.shards.lock();
        Arc::make_mut(&mut shards).apply(shard, state, batch);
    }

    /// Returns the version of the new commit, or the version that it conflicts with.
    pub(crate) fn check_commit(&self, shard: Shard, expected: Version) -> Result<Version, Version> {
        self.store.shards.lock().check_commit(shard, expected)
    }

    pub(crate) fn remove(&self, shard: Shard) {
        let mut shards = self.store.shards.lock();
        let version = Arc::make_mut(&mut shards).remove(shard);
        self.notify_listeners(shard, version);
    }
}

impl fmt::Debug for MemoryEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryEngine").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Drop for MemoryEngine {
    fn drop(&mut self) {
        self.store.processes.lock().end(self.user);
    }
}

impl Shards {
    fn check_commit(&self, shard: Shard, expected: Version) -> Result<Version, Version> {
        let is_dropped = self.contents.get(&shard).is_some_and(|contents| contents.is_dropped);
        let version = self.state(shard).version;
        if version == expected && !is_dropped { Ok(version) } else { Err(version) }
    }

    fn state(&self, shard: Shard) -> ShardState {
        self.contents.get(&shard).map(|contents| contents.state).unwrap_or_default()
    }

    fn tree(&self, shard: Shard, space: Keyspace) -> Option<&Tree> {
        self.contents.get(&shard).map(|contents| &contents.spaces[space as usize])
    }

    /// Rejects violations of the precondition of [`Batch::insert`], so that wrong callers fail early.
    fn check_inserts(&self, shard: Shard, batch: &Batch) -> Result<()> {
        for operation in batch.operations() {
            if let Operation::Insert(space, key, _) = operation
                && self.tree(shard, space).is_some_and(|tree| tree.get(key).is_some())
            {
                return Err(StorageError::Present(format!("{key:?} of {space:?}")));
            }
        }
        Ok(())
    }

    fn remove(&mut self, shard: Shard) -> Version {
        let version = Version(self.state(shard).version.0 + 1);
        let state = ShardState { version, ..ShardState::default() };
        let contents = Contents { state, is_dropped: true, ..Contents::default() };
        self.contents.insert(shard, Arc::new(contents));
        version
    }

    fn apply(&mut self, shard: Shard, state: ShardState, batch: &Batch) {
        let contents = Arc::make_mut(self.contents.entry(shard).or_default());
        contents.state = state;
        contents.recent.push_back(state);
        if contents.recent.len() > RECENT_TOKENS {
            contents.recent.pop_front();
        }
        if let Some(head) = batch.head() {
            contents.head = Some(head.to_vec());
        }
        for operation in batch.operations() {
            match operation {
                Operation::Put(space, key, value) | Operation::Insert(space, key, value) => {
                    contents.spaces[space as usize].put(key, value);
                }
                Operation::Delete(space, key) => contents.spaces[space as usize].delete(key),
            }
        }
    }
}

impl Engine for MemoryEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        Ok(Arc::new(self.view(shard, Waiting::Allowed)))
    }

    fn snapshot_for_attempt<'a>(&self, shard: Shard, attempt: &'a Attempt) -> Result<Arc<dyn Snapshot + 'a>> {
        Ok(Arc::new(self.view(shard, Waiting::Refused(attempt))))
    }

    fn commit(
        &self,
        shard: Shard,
        expected: Version,
        token: CommitToken,
        batch: Batch,
        _durability: Durability,
    ) -> Result<Outcome> {
        batch.check()?;
        let mut shards = self.store.shards.lock();
        let version = match shards.check_commit(shard, expected) {
            Ok(Version(version)) => Version(version + 1),
            Err(found) => return Ok(Outcome::Conflict(found)),
        };
        if batch.claim().is_some_and(|claim| !self.holds(claim)) {
            return Err(StorageError::Deposed);
        }
        shards.check_inserts(shard, &batch)?;
        Arc::make_mut(&mut shards).apply(shard, ShardState { version, token }, &batch);
        self.notify_listeners(shard, version);
        Ok(Outcome::Committed(version))
    }

    fn refuses_present(&self) -> bool {
        true
    }

    fn check(&self) -> Result<()> {
        Ok(())
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.remove(shard);
        Ok(())
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        batch.check()?;
        let mut shards = self.store.shards.lock();
        shards.contents.get(&shard).map_or(Ok(()), |contents| contents.check())?;
        shards.check_inserts(shard, &batch)?;
        Arc::make_mut(&mut shards).apply(shard, state, &batch);
        Ok(())
    }

    /// Commits notify these listeners before they return, so [`Engine::catch_up`] has nothing to wait for.
    fn subscribe(&self, listener: CommitListener) {
        self.store.listeners.lock().push((self.user, listener));
    }

    fn members(&self) -> &dyn Members {
        self
    }

    fn reclaim(&self, _shard: Shard) -> Result<()> {
        Ok(())
    }

    fn approximate_size(&self, shard: Shard) -> u64 {
        let shards = self.current();
        shards.contents.get(&shard).map_or(0, |contents| contents.spaces.iter().map(|tree| tree.bytes).sum())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn checkpoint(&self, directory: &Path) -> Result<()> {
        file::write(&self.current(), directory)
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let shards = self.current();
        let trees = || shards.contents.values().flat_map(|contents| &contents.spaces);
        vec![
            ("shards", shards.contents.values().filter(|contents| !contents.is_dropped).count() as u64),
            ("entries", trees().map(|tree| tree.entries).sum()),
            ("bytes", trees().map(|tree| tree.bytes).sum()),
        ]
    }
}

impl Contents {
    fn token(&self, version: Version) -> Option<CommitToken> {
        self.recent.iter().find(|state| state.version == version).map(|state| state.token)
    }

    fn check(&self) -> Result<()> {
        if self.is_dropped { Err(StorageError::Dropped) } else { Ok(()) }
    }
}

/// The state of a shard for one reader.
struct View<'a> {
    contents: Arc<Contents>,
    waiting: Waiting<'a>,
}

impl Snapshot for View<'_> {
    fn read(&self, requests: &[Request<'_>]) -> Result<Vec<Reply>> {
        let contents = &*self.contents;
        contents.check()?;
        let value = |space: Keyspace, key: &[u8]| contents.spaces[space as usize].get(key).map(<[u8]>::to_vec);
        let reply = |request: &Request<'_>| match *request {
            Request::State => Ok(Reply::State(contents.state)),
            Request::Head => Ok(Reply::Value(contents.head.clone())),
            Request::Token(version) => {
                Ok(Reply::Value(contents.token(version).map(|token| token.0.to_be_bytes().to_vec())))
            }
            Request::Get(space, key) => Ok(Reply::Value(value(space, key))),
            Request::MultiGet(space, keys) => Ok(Reply::Values(keys.iter().map(|key| value(space, key)).collect())),
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
        self.contents.check()?;
        let tree = &self.contents.spaces[space as usize];
        let low = range.start.map_or((0, 0), |start| tree.before(start));
        let high = range.end.map_or(tree.end(), |end| tree.before(end)).max(low);
        let at = match direction {
            Direction::Forward => low,
            Direction::Backward => high,
        };
        Ok(Box::new(TreeCursor { tree, low, high, at, direction, scan: Scan::default(), waiting: self.waiting }))
    }
}

struct TreeCursor<'a> {
    tree: &'a Tree,
    low: Position,
    high: Position,
    at: Position,
    direction: Direction,
    scan: Scan,
    waiting: Waiting<'a>,
}

impl Cursor for TreeCursor<'_> {
    fn next(&mut self) -> Result<Option<(&[u8], &[u8])>> {
        let (entry, at) = match self.direction {
            Direction::Forward if self.at < self.high => self.tree.following(self.at),
            Direction::Backward if self.at > self.low => self.tree.preceding(self.at),
            Direction::Forward | Direction::Backward => return Ok(None),
        };
        self.at = at;
        self.waiting.spend(self.scan.found(entry.0, entry.1))?;
        Ok(Some(entry))
    }

    fn seek(&mut self, key: &[u8]) -> Result<()> {
        let at = match self.direction {
            Direction::Forward => self.tree.before(key),
            Direction::Backward => self.tree.after(key),
        };
        self.at = at.clamp(self.low, self.high);
        Ok(())
    }
}
