//! [`ShardLocks`]: shard locks. Processes that write to one shard wait for its lock, so that each commits everything
//! that is queued in it at once. Without the lock they would prepare commits concurrently, of which all but one would
//! conflict.
//!
//! A shard lock is an advisory lock of PostgreSQL, held by the transaction in which the commit is then made: it is
//! released with the transaction, or when the process ends. Each statement of the transaction sees the commits of
//! others at its start. The lock is not a fence: a writer that waits for too long, or finds that the server has no
//! advisory locks, continues without it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_storage::{Request, Shard, ShardLock, StorageError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Failure;
use crate::lease::{Lease, number};
use crate::options::Options;
use crate::pool::{Leased, Pool};
use crate::snapshot::{PostgresSnapshot, queries};

/// Maximum wait for a lock, after which the writer continues without it. A process that is stopped for a second loses
/// its lock.
const WAIT_MS: u32 = 500;

pub(crate) struct ShardLocks {
    transactions: Mutex<HashMap<Shard, LockTransaction>>,
    /// Limits waiting to three of four connections of writers; the others are for writers without a lock.
    permits: Arc<Semaphore>,
    /// Distinguishes these locks from those of other schemas and programs.
    name: String,
    /// True if the server has no advisory locks.
    is_unsupported: AtomicBool,
}

struct LockTransaction {
    lease: Arc<Lease>,
    _permit: OwnedSemaphorePermit,
}

struct LockGuard {
    locks: Arc<ShardLocks>,
    shard: Shard,
}

impl Drop for LockGuard {
    fn drop(&mut self) {
        drop(self.locks.take(self.shard));
    }
}

impl ShardLocks {
    pub(crate) fn new(writers: &Pool, options: &Options) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new((writers.size() * 3 / 4).max(1)));
        let name = format!("settee {}", options.schema);
        Arc::new(Self { transactions: Mutex::default(), permits, name, is_unsupported: AtomicBool::new(false) })
    }

    /// Waits for the lock of a shard, up to a limit, and reads `requests` as soon as it is held.
    pub(crate) async fn acquire(
        locks: &Arc<Self>,
        writers: &Arc<Pool>,
        shard: Shard,
        requests: &[Request<'_>],
    ) -> ShardLock {
        if locks.is_unsupported.load(Ordering::Relaxed) {
            return ShardLock::default();
        }
        let Ok(permit) = Arc::clone(&locks.permits).try_acquire_owned() else { return ShardLock::default() };
        let Ok(leased) = writers.acquire().await else { return ShardLock::default() };
        // Shards with the same truncated number share a lock, which costs only an occasional wait.
        let number = number(shard) as i32;
        let name = &locks.name;
        let statements = format!(
            "BEGIN; SET LOCAL lock_timeout = {WAIT_MS}; SELECT pg_advisory_xact_lock(hashtext('{name}'), {number})"
        );
        let lease = Lease::new(Arc::clone(writers), shard);
        let answers = match lease.acquire_lock(leased, &statements, &queries(requests)).await {
            Ok(answers) => answers,
            Err(failure) => {
                let is_unsupported = matches!(failure, Failure::Permanent(StorageError::Io(_)));
                locks.is_unsupported.fetch_or(is_unsupported, Ordering::Relaxed);
                return ShardLock::default();
            }
        };
        let replies = PostgresSnapshot::of(Arc::clone(&lease)).replies(requests, answers).await;
        locks.transactions.lock().insert(shard, LockTransaction { lease, _permit: permit });
        let guard = LockGuard { locks: Arc::clone(locks), shard };
        // Without replies the caller reads by itself.
        replies.map_or_else(|_| ShardLock::default(), |replies| ShardLock::of(guard, replies))
    }

    /// Takes the transaction that holds the lock, to commit in it.
    pub(crate) fn take(&self, shard: Shard) -> Option<Leased> {
        self.transactions.lock().remove(&shard)?.lease.take_over()
    }
}
