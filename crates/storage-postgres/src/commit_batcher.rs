//! [`CommitBatcher`]: the smallest commits to different shards share a statement, with one message, one sync and one
//! response. Commits that arrive while a statement is running form the next one. A second statement is started
//! concurrently when as many commits wait as the last statement had, because otherwise, with a high latency to
//! PostgreSQL, a commit takes up to twice the round trip. After a statement with several commits the next one is
//! preceded by a [`GATHERING_TIME`], unless enough commits wait to fill it. If one commit of a statement fails, all
//! fail, and each is retried separately.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use settee_storage::StorageError;
use tokio::sync::oneshot;

use crate::block::block_on;
use crate::commit::{Commit, in_one_statement};
use crate::error::Failure;
use crate::pieces::{PIECE_BYTES, PIECE_ROWS};
use crate::pool::{Pool, PooledConnection};

/// All commits of a statement fail with one.
const COMMITS_MAX: usize = 32;

const ROWS_MAX: usize = 150;
const BYTES_MAX: usize = 16 << 10;

/// Delay before a statement that follows one with several commits: the clients that were just answered are about to
/// write again, and adding their commits costs little. It is a small part of the duration of a statement, and shorter
/// than the resolution of the timers of the runtime.
const GATHERING_TIME: Duration = Duration::from_micros(150);

// A statement writes to each table once.
const _: () = assert!(COMMITS_MAX * ROWS_MAX <= PIECE_ROWS && COMMITS_MAX * BYTES_MAX <= PIECE_BYTES);

pub(crate) struct CommitBatcher {
    pool: Arc<Pool>,
    queue: Mutex<Queue>,
    shared: AtomicU64,
    unfinished: AtomicU64,
}

#[derive(Default)]
struct Queue {
    queued: VecDeque<QueuedCommit>,
    /// True if a statement was scheduled that has not taken its commits yet.
    is_scheduled: bool,
    running: usize,
    last: usize,
}

struct QueuedCommit {
    commit: Arc<Commit>,
    done: oneshot::Sender<BatchedOutcome>,
}

#[derive(Clone)]
pub(crate) enum BatchedOutcome {
    Committed,
    /// A retry would fail as well.
    Rejected(StorageError),
    /// The commit must be retried separately. `is_unknown` is true if it may have been applied.
    Failed {
        is_unknown: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Now,
    AfterDelay,
}

struct RunningStatement(Arc<CommitBatcher>);

impl Drop for RunningStatement {
    fn drop(&mut self) {
        let start = {
            let mut queue = self.0.queue.lock();
            queue.running -= 1;
            queue.schedule()
        };
        self.0.start_statement(start);
    }
}

impl RunningStatement {
    async fn run(self) {
        let batcher = &self.0;
        let acquired = batcher.pool.acquire().await;
        let (group, start) = batcher.queue.lock().take();
        batcher.start_statement(start);
        match acquired {
            Ok(leased) => batcher.commit_group(leased, group).await,
            Err(error) => group.into_iter().for_each(|queued| queued.finish(BatchedOutcome::Rejected(error.clone()))),
        }
    }
}

impl CommitBatcher {
    pub(crate) fn new(pool: &Arc<Pool>) -> Arc<Self> {
        Arc::new(Self {
            pool: Arc::clone(pool),
            queue: Mutex::default(),
            shared: AtomicU64::new(0),
            unfinished: AtomicU64::new(0),
        })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the number of commits that shared a statement, and of unfinished ones.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.shared, &self.unfinished].map(|counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn accepts(commit: &Commit) -> bool {
        commit.batch.size_bytes() <= BYTES_MAX && commit.batch.len() <= ROWS_MAX
    }

    /// Makes a commit that this [`accepts`](Self::accepts). The caller must not make two commits to one shard
    /// concurrently.
    pub(crate) async fn commit(self: &Arc<Self>, commit: &Arc<Commit>) -> BatchedOutcome {
        let (done, joined) = oneshot::channel();
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let start = {
            let mut queue = self.queue.lock();
            queue.queued.push_back(QueuedCommit { commit: Arc::clone(commit), done });
            queue.schedule()
        };
        match start {
            // Runs on the thread of the caller, so that no other thread is woken.
            Some(Start::Now) => RunningStatement(Arc::clone(self)).run().await,
            start => self.start_statement(start),
        }
        // The sender is dropped if its threads have ended. The commit may have been sent.
        let joined = joined.await.unwrap_or(BatchedOutcome::Failed { is_unknown: true });
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
        joined
    }

    /// Starts the statement that [`Queue::schedule`] scheduled. Must be called without the lock of the queue: if the
    /// runtime has ended, the statement ends here.
    fn start_statement(self: &Arc<Self>, start: Option<Start>) {
        let Some(start) = start else { return };
        let (runtime, statement) = (self.pool.connector().runtime(), RunningStatement(Arc::clone(self)));
        if start == Start::Now {
            runtime.spawn(statement.run());
            return;
        }
        let handle = runtime.clone();
        runtime.spawn_blocking(move || {
            thread::sleep(GATHERING_TIME);
            block_on(&handle, statement.run());
        });
    }

    async fn commit_group(&self, leased: PooledConnection, mut group: Vec<QueuedCommit>) {
        // A common order of locks prevents deadlocks.
        group.sort_unstable_by_key(|queued| queued.commit.shard);
        let commits: Vec<&Commit> = group.iter().map(|queued| &*queued.commit).collect();
        let result = in_one_statement(&leased, &commits).await;
        if let Some(Err(Failure::Lost(_))) = &result {
            leased.set_broken();
        }
        // Released first, because the answered clients may need it.
        drop(leased);
        let is_single = group.len() == 1;
        let joined = match result {
            Some(Ok(())) => BatchedOutcome::Committed,
            Some(Err(Failure::Permanent(error))) if is_single => BatchedOutcome::Rejected(error),
            Some(Err(failure)) => BatchedOutcome::Failed { is_unknown: matches!(failure, Failure::Lost(_)) },
            None => BatchedOutcome::Failed { is_unknown: false },
        };
        if !is_single && matches!(joined, BatchedOutcome::Committed) {
            self.shared.fetch_add(group.len() as u64, Ordering::Relaxed);
        }
        group.into_iter().for_each(|queued| queued.finish(joined.clone()));
    }
}

impl Queue {
    /// Returns the start time of another statement if one is needed, and counts it as running.
    fn schedule(&mut self) -> Option<Start> {
        let threshold = match self.running {
            0 => 1,
            1 => self.last.clamp(1, COMMITS_MAX),
            _ => COMMITS_MAX,
        };
        if self.is_scheduled || self.queued.len() < threshold {
            return None;
        }
        self.is_scheduled = true;
        self.running += 1;
        Some(if self.last > 1 && self.queued.len() < COMMITS_MAX { Start::AfterDelay } else { Start::Now })
    }

    /// Takes the commits of the scheduled statement. Also returns the start time of another statement if one is needed.
    fn take(&mut self) -> (Vec<QueuedCommit>, Option<Start>) {
        self.is_scheduled = false;
        let group: Vec<QueuedCommit> = self.queued.drain(..self.queued.len().min(COMMITS_MAX)).collect();
        self.last = group.len();
        (group, self.schedule())
    }
}

impl QueuedCommit {
    fn finish(self, joined: BatchedOutcome) {
        let _ = self.done.send(joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settee_storage::{Batch, CommitToken, Shard, Version};

    fn commit(shard: u64) -> Arc<Commit> {
        let (expected, token, batch) = (Version(0), CommitToken::default(), Batch::new());
        Arc::new(Commit { shard: Shard(shard), expected, token, batch, node: 1 })
    }

    const NOW: Option<Start> = Some(Start::Now);
    const LATER: Option<Start> = Some(Start::AfterDelay);

    fn put(queue: &mut Queue, count: usize) -> Vec<Option<Start>> {
        let put = |shard| {
            let (done, _) = oneshot::channel();
            queue.queued.push_back(QueuedCommit { commit: commit(shard as u64), done });
            queue.schedule()
        };
        (0..count).map(put).collect()
    }

    fn take(queue: &mut Queue) -> (usize, Option<Start>) {
        let (group, start) = queue.take();
        (group.len(), start)
    }

    #[test]
    fn a_second_statement_starts_when_as_many_commits_wait() {
        let queue = &mut Queue::default();
        assert_eq!(put(queue, 3), [NOW, None, None]);
        assert_eq!(take(queue), (3, None));
        assert_eq!(put(queue, 3), [None, None, LATER]);
        assert_eq!(put(queue, 1), [None]);
        assert_eq!(take(queue), (4, None));
        assert_eq!(put(queue, COMMITS_MAX - 1), [None; COMMITS_MAX - 1]);
        queue.running -= 1;
        assert_eq!([queue.schedule(), queue.schedule()], [LATER, None]);
        assert_eq!(take(queue), (COMMITS_MAX - 1, None));
        queue.running -= 2;
        assert_eq!(queue.schedule(), None, "no commit waits");
        assert_eq!(put(queue, 1), [LATER]);
    }

    #[test]
    fn a_single_writer_has_no_delay() {
        let queue = &mut Queue::default();
        for _ in 0..3 {
            assert_eq!(put(queue, 1), [NOW]);
            assert_eq!(take(queue), (1, None));
            queue.running -= 1;
        }
        put(queue, 2);
        assert_eq!(take(queue), (2, None));
        queue.running -= 1;
        for start in [LATER, NOW] {
            assert_eq!(put(queue, 1), [start]);
            assert_eq!(take(queue), (1, None));
            queue.running -= 1;
        }
    }

    #[test]
    fn a_full_statement_does_not_wait() {
        let queue = &mut Queue::default();
        put(queue, 3 * COMMITS_MAX + 5);
        for start in [NOW, NOW, None] {
            assert_eq!(take(queue), (COMMITS_MAX, start));
        }
        assert_eq!((queue.queued.len(), queue.running), (5, 3));
    }

    #[test]
    fn only_small_commits_are_accepted() {
        let accepts = |change: &dyn Fn(&mut Commit)| {
            let mut commit = Arc::into_inner(commit(1)).expect("it is not shared");
            change(&mut commit);
            CommitBatcher::accepts(&commit)
        };
        let key = |number: usize| number.to_be_bytes();
        assert!(accepts(&|_| {}));
        for (bytes, is_small) in [(BYTES_MAX - 8, true), (BYTES_MAX - 7, false)] {
            let put =
                |commit: &mut Commit| commit.batch.put(settee_storage::Keyspace::Bodies, &key(0), &vec![0; bytes]);
            assert_eq!(accepts(&put), is_small, "{bytes}");
        }
        for (rows, is_small) in [(ROWS_MAX, true), (ROWS_MAX + 1, false)] {
            let fill = |commit: &mut Commit| {
                (0..rows).for_each(|row| commit.batch.delete(settee_storage::Keyspace::Bodies, &key(row)));
            };
            assert_eq!(accepts(&fill), is_small, "{rows}");
        }
    }
}
