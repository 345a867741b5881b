//! [`BucketEngine`]: the engine on object storage, through SlateDB.
//!
//! Shards are hashed into groups, whose number is fixed when the store is created. Each group is a SlateDB of its own
//! ([`group`]), which one process serves: the holder of the group's writer claim ([`nodes`]). Other processes send it
//! their reads and commits of the group ([`remote`]). So every process can use every shard, as on a database server. A
//! server forwards complete requests to the owner of their database, so that only the catalog and the databases of
//! users are read across processes.
//!
//! The library is asynchronous. The engine has a runtime of its own, and its methods block the calling thread.

#![warn(missing_docs)]

mod backlog;
mod block;
mod clear;
mod clock;
mod coordinator;
mod engine;
mod error;
mod flusher;
mod group;
mod history;
mod identity;
mod keys;
mod lease;
mod location;
mod members;
mod metered;
mod news;
mod nodes;
mod open;
mod options;
mod peers;
mod protocol;
mod remote;
mod served;
mod shards;
mod snapshot;

use std::fmt;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use settee_storage::{
    Batch, CommitListener, CommitToken, Durability, Engine, Members, Outcome, PeerService, Result, Shard, ShardState,
    Snapshot, StorageError, Version,
};
use tokio::runtime::Runtime;

use engine::{Asked, Inner};
pub use identity::ClusterId;
pub use location::{Access, Bucket, Connector, Location};
pub use options::Options;
pub use peers::{PeerCall, PeerError, Peers};
use protocol::{Answer, Message};
use remote::RemoteSnapshot;

/// An engine on a bucket.
pub struct BucketEngine {
    /// `None` while the engine is dropped.
    runtime: Option<Runtime>,
    inner: Arc<Inner>,
    cluster: ClusterId,
    time_s: Option<u64>,
    has_peers: bool,
    /// Lock of a directory.
    _lock: Option<std::fs::File>,
}

impl BucketEngine {
    /// Opens the store, or creates one if the bucket has no objects. Waits until it has found a coordinator, which may be
    /// this process. `peers` sends messages to the other processes; without it, the engine waits until no other process
    /// uses the store. Fails, and writes nothing, if the store cannot be accessed or belongs to another cluster or
    /// version.
    pub fn open(bucket: Bucket, options: &Options, peers: Option<Arc<dyn Peers>>) -> Result<Self> {
        open::open(bucket, options, peers)
    }

    /// Returns the cluster to which the store belongs.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// Returns the time of the state that the engine contains, unless it is the current one. It is the time that the store
    /// has given to its objects, in seconds of the Unix epoch.
    #[must_use]
    pub fn time_s(&self) -> Option<u64> {
        self.time_s
    }

    /// Writes what is in memory and releases all groups, so that other processes can open them at once. All operations
    /// fail afterwards. Idempotent.
    pub fn close(&self) {
        let leaving = self.inner.nodes.begin_leave();
        self.inner.close();
        if let Some(leaving) = leaving {
            self.inner.block_on(self.inner.nodes.end_leave(leaving));
        }
    }
}

impl fmt::Debug for BucketEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BucketEngine").field("shown", &self.inner.context.shown).finish_non_exhaustive()
    }
}

impl PeerService for BucketEngine {
    fn secret(&self) -> &[u8] {
        self.inner.nodes.secret()
    }

    fn answer_at_once(&self, message: &[u8]) -> Option<Vec<u8>> {
        self.inner.answer_at_once(message).map(|answer| Answer::encode(&answer))
    }

    fn answer(&self, message: &[u8]) -> Vec<u8> {
        Answer::encode(&self.inner.answer(message))
    }
}

impl Engine for BucketEngine {
    fn snapshot(&self, shard: Shard) -> Result<Arc<dyn Snapshot>> {
        match self.inner.at_owner(shard, |group| group.snapshot(shard))? {
            Ok(snapshot) => Ok(Arc::new(snapshot)),
            Err(_) => Ok(Arc::new(RemoteSnapshot::new(Arc::clone(&self.inner), shard))),
        }
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
        self.inner.commit(shard, expected, token, batch, durability)
    }

    fn check(&self) -> Result<()> {
        self.inner.nodes.check()?;
        self.inner.open_groups().iter().filter(|group| !group.is_fenced()).try_for_each(|group| group.check())
    }

    fn drop_shard(&self, shard: Shard) -> Result<()> {
        self.inner.drop_shard(shard)
    }

    fn restore(&self, shard: Shard, state: ShardState, batch: Batch) -> Result<()> {
        batch.check()?;
        let message = Message::Restore { shard, state, batch };
        match (self.inner.ask_owner(shard, &message)?, &message) {
            (Asked::Here(group), Message::Restore { batch, .. }) => group.restore(shard, state, batch),
            _ => Ok(()),
        }
    }

    fn reclaim(&self, shard: Shard) -> Result<()> {
        match self.inner.ask_owner(shard, &Message::Reclaim(shard))? {
            Asked::Here(group) => group.reclaim(shard),
            Asked::There(..) => Ok(()),
        }
    }

    /// Bytes that were written to the shard since [`Self::reclaim`] counted them. Compression is not considered.
    fn approximate_size(&self, shard: Shard) -> u64 {
        match self.inner.ask_owner(shard, &Message::Size(shard)) {
            Ok(Asked::Here(group)) => group.snapshot(shard).and_then(|view| view.bytes()).unwrap_or_default(),
            Ok(Asked::There(_, Answer::Number(bytes))) => bytes,
            Ok(Asked::There(..)) | Err(_) => 0,
        }
    }

    fn subscribe(&self, listener: CommitListener) {
        self.inner.nodes.news.subscribe(listener);
    }

    /// Commits to the shards of the coordinator's group were observed before. The shards of other groups that this process
    /// has read are reported as changed, because few requests read them.
    fn catch_up(&self) -> Result<()> {
        let nodes = &self.inner.nodes;
        nodes.news.invalidate(|shard| nodes.groups.of(shard) != 0);
        nodes.catch_up()
    }

    fn members(&self) -> &dyn Members {
        self
    }

    fn group_count(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.inner.nodes.groups.count())
    }

    fn peers(&self) -> Option<&dyn PeerService> {
        self.has_peers.then_some(self)
    }

    fn sync(&self) -> Result<()> {
        self.inner.open_groups().iter().filter(|group| !group.is_fenced()).try_for_each(|group| group.sync())
    }

    fn checkpoint(&self, _directory: &Path) -> Result<()> {
        Err(StorageError::Io(format!(
            "the data is in {}: copy it with `settee storage copy --at newest`",
            self.inner.context.shown
        )))
    }

    fn statistics(&self) -> Vec<(&'static str, u64)> {
        let mut statistics = self.inner.context.meter.statistics();
        let groups = self.inner.open_groups();
        let counts = groups.iter().map(|group| group.counts());
        let [flushes, levels, sorted] = counts.fold([0; 3], |sum, one| std::array::from_fn(|at| sum[at] + one[at]));
        let stalled = groups.iter().filter_map(|group| group.stalled_for()).max();
        let shards: usize = groups.iter().map(|group| group.shards().len()).sum();
        statistics.extend([
            ("first_level_files", levels),
            ("sorted_runs", sorted),
            ("log_flushes", flushes),
            ("log_stalled_ms", stalled.map_or(0, |stalled| u64::try_from(stalled.as_millis()).unwrap_or(u64::MAX))),
            ("commits", self.inner.context.commits.load(Ordering::Relaxed)),
            ("written_bytes", self.inner.context.written.load(Ordering::Relaxed)),
            ("cached_shards", shards as u64),
            ("owned_groups", self.inner.nodes.owned_groups()),
            ("open_groups", groups.len() as u64),
            ("snapshots_of_other_nodes", self.inner.served_snapshots()),
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
