//! [`Line`]: processes that write to one shard line up, so that each takes along everything that waits in it when its turn comes.
//! Without it they would prepare commits at the same time, of which all but one were in vain.
//!
//! A turn is an advisory lock of PostgreSQL, held by the transaction that the commit then goes on with: it ends with that, or when
//! its process does. What others have committed comes with it: each statement of the transaction shows what there is when it begins.
//! It is no fence: who waits for too long, or finds that the server has no such locks, does without.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_storage::{Request, Shard, StorageError, Turn};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::error::Failure;
use crate::lease::{Lease, number};
use crate::options::Options;
use crate::pool::{Leased, Pool};
use crate::snapshot::{PostgresSnapshot, asks};

/// Who waits for longer goes on without a turn. A process that stands still for a second loses its own.
const WAIT_MS: u32 = 500;

/// The turns of this process.
pub(crate) struct Line {
    turns: Mutex<HashMap<Shard, Place>>,
    /// Three of four connections of writers may wait for turns; the others are for those who need none.
    permits: Arc<Semaphore>,
    /// Tells these locks from those of other schemas and programs.
    name: String,
    /// Whether the server has no such locks.
    is_closed: AtomicBool,
}

/// A transaction that has the lock.
struct Place {
    lease: Arc<Lease>,
    _permit: OwnedSemaphorePermit,
}

/// Ends a turn that nobody has used.
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
        Arc::new(Self { turns: Mutex::default(), permits, name, is_closed: AtomicBool::new(false) })
    }

    /// Waits for a turn, for a while, and reads what is `wanted` as soon as it has come.
    pub(crate) async fn up(line: &Arc<Self>, writers: &Arc<Pool>, shard: Shard, wanted: &[Request<'_>]) -> Turn {
        if line.is_closed.load(Ordering::Relaxed) {
            return Turn::default();
        }
        let Ok(permit) = Arc::clone(&line.permits).try_acquire_owned() else { return Turn::default() };
        let Ok(leased) = writers.take().await else { return Turn::default() };
        // Two shards that share a number wait for each other now and then.
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
                return Turn::default();
            }
        };
        let seen = PostgresSnapshot::of(Arc::clone(&lease)).replies(wanted, answers).await;
        line.turns.lock().insert(shard, Place { lease, _permit: permit });
        let held = Held { line: Arc::clone(line), shard };
        // Who has seen nothing reads by himself.
        seen.map_or_else(|_| Turn::default(), |seen| Turn::of(held, seen))
    }

    /// The transaction of the turn that there is, to commit in.
    pub(crate) fn take(&self, shard: Shard) -> Option<Leased> {
        self.turns.lock().remove(&shard)?.lease.take_over()
    }
}
