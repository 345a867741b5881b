//! [`Line`]: shard locks. Processes that write to one shard wait for its lock, so that each commits everything that is
//! queued in it at once. Without the lock they would prepare commits concurrently, of which all but one would conflict.
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
use crate::snapshot::{PostgresSnapshot, asks};

/// Maximum wait for a lock, after which the writer continues without it. A process that is stopped for a second loses
/// its lock.
const WAIT_MS: u32 = 500;

/// The locks of this process.
pub(crate) struct Line {
    locks: Mutex<HashMap<Shard, Place>>,
    /// Limits waiting to three of four connections of writers; the others are for writers without a lock.
    permits: Arc<Semaphore>,
    /// Distinguishes these locks from those of other schemas and programs.
    name: String,
    /// True if the server has no advisory locks.
    is_closed: AtomicBool,
}

/// A transaction that holds a lock.
struct Place {
    lease: Arc<Lease>,
    _permit: OwnedSemaphorePermit,
}

/// Releases an unused lock.
struct Held {
    line: Arc<Line>,
    shard: Shard,
}

impl Drop for Held {
    fn drop(&mut self) {
        drop(self.line.take(self.shard));
    }
}

impl Line {
    pub(crate) fn new(writers: &Pool, options: &Options) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new((writers.size() * 3 / 4).max(1)));
        let name = format!("settee {}", options.schema);
        Arc::new(Self { locks: Mutex::default(), permits, name, is_closed: AtomicBool::new(false) })
    }

    /// Waits for the lock of a shard, up to a limit, and reads `wanted` as soon as it is held.
    pub(crate) async fn up(line: &Arc<Self>, writers: &Arc<Pool>, shard: Shard, wanted: &[Request<'_>]) -> ShardLock {
        if line.is_closed.load(Ordering::Relaxed) {
            return ShardLock::default();
        }
        let Ok(permit) = Arc::clone(&line.permits).try_acquire_owned() else { return ShardLock::default() };
        let Ok(leased) = writers.take().await else { return ShardLock::default() };
        // Shards with the same truncated number share a lock, which costs only an occasional wait.
        let number = number(shard) as i32;
        let name = &line.name;
        let statements = format!(
            "BEGIN; SET LOCAL lock_timeout = {WAIT_MS}; SELECT pg_advisory_xact_lock(hashtext('{name}'), {number})"
        );
        let lease = Lease::new(Arc::clone(writers), shard);
        let answers = match lease.wait(leased, &statements, &asks(wanted)).await {
            Ok(answers) => answers,
            Err(failure) => {
                let has_no_locks = matches!(failure, Failure::Refused(StorageError::Io(_)));
                line.is_closed.fetch_or(has_no_locks, Ordering::Relaxed);
                return ShardLock::default();
            }
        };
        let seen = PostgresSnapshot::of(Arc::clone(&lease)).replies(wanted, answers).await;
        line.locks.lock().insert(shard, Place { lease, _permit: permit });
        let held = Held { line: Arc::clone(line), shard };
        // Without replies the caller reads by itself.
        seen.map_or_else(|_| ShardLock::default(), |seen| ShardLock::of(held, seen))
    }

    /// Takes the transaction that holds the lock, to commit in it.
    pub(crate) fn take(&self, shard: Shard) -> Option<Leased> {
        self.locks.lock().remove(&shard)?.lease.take_over()
    }
}
