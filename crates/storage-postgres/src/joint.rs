//! [`Joint`]: the smallest commits to different shards share a statement, with one message, one sync and one response.
//!
//! Commits that arrive while a statement is running form the next one. A second statement is started concurrently when
//! as many commits wait as the last statement had, so that a node with a high latency to PostgreSQL does not wait for
//! two full round trips. Where commits do share statements, a statement is preceded by a [`GATHERING_TIME`], unless enough
//! commits wait to fill it.
//!
//! If one commit of a statement fails, all fail, and each is retried separately.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use parking_lot::Mutex;
use settee_storage::{Durability, StorageError};
use tokio::sync::oneshot;

use crate::block::block_on;
use crate::commit::{Commit, at_once};
use crate::error::Failure;
use crate::pieces::{PIECE_BYTES, PIECE_ROWS};
use crate::pool::{Leased, Pool};

/// Maximum number of commits of a statement, because all of them fail with one.
const COMMITS_MAX: usize = 32;

/// Commits with more rows get a statement of their own.
const ROWS_MAX: usize = 150;
const BYTES_MAX: usize = 16 << 10;

/// Delay before a statement that follows one with several commits: the clients that were just answered are about to
/// write again, and adding their commits costs little. It is a small part of the duration of a statement, and shorter
/// than the resolution of the timers of the runtime.
const GATHERING_TIME: Duration = Duration::from_micros(150);

// A statement writes to each table once.
const _: () = assert!(COMMITS_MAX * ROWS_MAX <= PIECE_ROWS && COMMITS_MAX * BYTES_MAX <= PIECE_BYTES);

/// Makes joint commits.
pub(crate) struct Joint {
    pool: Arc<Pool>,
    queue: Mutex<Queue>,
    /// Number of commits that shared a statement.
    shared: AtomicU64,
    /// Number of commits that wait or are in progress.
    unfinished: AtomicU64,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// True if a statement was scheduled that has not taken its commits yet.
    is_called: bool,
    /// Number of statements that were scheduled and have not ended.
    under_way: usize,
    /// Number of commits of the statement that was started last.
    last: usize,
}

struct Waiting {
    commit: Arc<Commit>,
    done: oneshot::Sender<Joined>,
}

/// Result of a commit.
#[derive(Clone)]
pub(crate) enum Joined {
    /// It was applied.
    Committed,
    /// It was not applied, and a retry would fail as well.
    Refused(StorageError),
    /// It must be retried separately. `is_unknown` is true if it may have been applied.
    Failed { is_unknown: bool },
}

/// Start time of a scheduled statement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Now,
    AfterPause,
}

/// A scheduled statement; its end is recorded when this is dropped.
struct UnderWay(Arc<Joint>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let call = {
            let mut queue = self.0.queue.lock();
            queue.under_way -= 1;
            queue.call()
        };
        self.0.follow(call);
    }
}

impl UnderWay {
    /// Makes the waiting commits when a connection is available.
    async fn serve(self) {
        let joint = &self.0;
        let taken = joint.pool.take().await;
        let (group, call) = joint.queue.lock().take();
        joint.follow(call);
        match taken {
            Ok(leased) => joint.make_all(leased, group).await,
            Err(error) => group.into_iter().for_each(|waiting| waiting.end(Joined::Refused(error.clone()))),
        }
    }
}

impl Joint {
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

    /// Returns true if a commit can share a statement.
    pub(crate) fn takes(commit: &Commit) -> bool {
        let Commit { batch, durability, .. } = commit;
        *durability == Durability::Synced && batch.size_bytes() <= BYTES_MAX && batch.len() <= ROWS_MAX
    }

    /// Makes a commit that this [`takes`](Self::takes). A process must make one commit at a time to a shard.
    pub(crate) async fn make(self: &Arc<Self>, commit: &Arc<Commit>) -> Joined {
        let (done, end) = oneshot::channel();
        self.unfinished.fetch_add(1, Ordering::Relaxed);
        let call = {
            let mut queue = self.queue.lock();
            queue.waiting.push_back(Waiting { commit: Arc::clone(commit), done });
            queue.call()
        };
        match call {
            // Runs on the thread of the caller, so that no other thread is woken.
            Some(Call::Now) => UnderWay(Arc::clone(self)).serve().await,
            call => self.follow(call),
        }
        // A sender that was dropped ended with its threads, and the commit may have been sent.
        let joined = end.await.unwrap_or(Joined::Failed { is_unknown: true });
        self.unfinished.fetch_sub(1, Ordering::Relaxed);
        joined
    }

    /// Starts the statement that [`Queue::call`] scheduled. Must be called without the lock of the queue: if the
    /// runtime has ended, the statement ends here.
    fn follow(self: &Arc<Self>, call: Option<Call>) {
        let Some(call) = call else { return };
        let (runtime, statement) = (self.pool.connector().runtime(), UnderWay(Arc::clone(self)));
        if call == Call::Now {
            runtime.spawn(statement.serve());
            return;
        }
        let own = runtime.clone();
        runtime.spawn_blocking(move || {
            thread::sleep(GATHERING_TIME);
            block_on(&own, statement.serve());
        });
    }

    async fn make_all(&self, leased: Leased, mut group: Vec<Waiting>) {
        // A common order of locks prevents deadlocks.
        group.sort_unstable_by_key(|waiting| waiting.commit.shard);
        let commits: Vec<&Commit> = group.iter().map(|waiting| &*waiting.commit).collect();
        let made = at_once(&leased, &commits).await;
        if let Some(Err(Failure::Lost(_))) = &made {
            leased.set_broken();
        }
        // Released first, because the answered clients may need it.
        drop(leased);
        let is_alone = group.len() == 1;
        let joined = match made {
            Some(Ok(())) => Joined::Committed,
            Some(Err(Failure::Refused(error))) if is_alone => Joined::Refused(error),
            Some(Err(Failure::Outdated)) if is_alone => Joined::Refused(StorageError::Outdated),
            Some(Err(failure)) => Joined::Failed { is_unknown: matches!(failure, Failure::Lost(_)) },
            None => Joined::Failed { is_unknown: false },
        };
        if !is_alone && matches!(joined, Joined::Committed) {
            self.shared.fetch_add(group.len() as u64, Ordering::Relaxed);
        }
        group.into_iter().for_each(|waiting| waiting.end(joined.clone()));
    }
}

impl Queue {
    /// Returns the start time of another statement if one is needed, and counts it as running.
    fn call(&mut self) -> Option<Call> {
        let enough = match self.under_way {
            0 => 1,
            1 => self.last.clamp(1, COMMITS_MAX),
            _ => COMMITS_MAX,
        };
        if self.is_called || self.waiting.len() < enough {
            return None;
        }
        self.is_called = true;
        self.under_way += 1;
        Some(if self.last > 1 && self.waiting.len() < COMMITS_MAX { Call::AfterPause } else { Call::Now })
    }

    /// Takes the commits of the scheduled statement; also returns the start time of another statement if one is needed.
    fn take(&mut self) -> (Vec<Waiting>, Option<Call>) {
        self.is_called = false;
        let group: Vec<Waiting> = self.waiting.drain(..self.waiting.len().min(COMMITS_MAX)).collect();
        self.last = group.len();
        (group, self.call())
    }
}

impl Waiting {
    fn end(self, joined: Joined) {
        // The receiver exists unless its thread has ended.
        let _ = self.done.send(joined);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use settee_storage::{Batch, CommitToken, Shard, Version};

    fn commit(shard: u64) -> Arc<Commit> {
        let (expected, token, batch) = (Version(0), CommitToken::default(), Batch::new());
        Arc::new(Commit { shard: Shard(shard), expected, token, batch, node: 1, durability: Durability::Synced })
    }

    const NOW: Option<Call> = Some(Call::Now);
    const LATER: Option<Call> = Some(Call::AfterPause);

    /// Adds commits, and returns the scheduled statement for each.
    fn put(queue: &mut Queue, count: usize) -> Vec<Option<Call>> {
        let put = |shard| {
            let (done, _) = oneshot::channel();
            queue.waiting.push_back(Waiting { commit: commit(shard as u64), done });
            queue.call()
        };
        (0..count).map(put).collect()
    }

    fn take(queue: &mut Queue) -> (usize, Option<Call>) {
        let (group, call) = queue.take();
        (group.len(), call)
    }

    #[test]
    fn a_second_statement_begins_when_as_many_wait() {
        let queue = &mut Queue::default();
        // The first statement starts at once, and takes all commits that arrive until it has a connection.
        assert_eq!(put(queue, 3), [NOW, None, None]);
        assert_eq!(take(queue), (3, None));
        assert_eq!(put(queue, 3), [None, None, LATER]);
        assert_eq!(put(queue, 1), [None]);
        assert_eq!(take(queue), (4, None));
        // Two statements are running: the other commits wait for the end of one.
        assert_eq!(put(queue, COMMITS_MAX - 1), [None; COMMITS_MAX - 1]);
        queue.under_way -= 1;
        assert_eq!([queue.call(), queue.call()], [LATER, None]);
        assert_eq!(take(queue), (COMMITS_MAX - 1, None));
        queue.under_way -= 2;
        assert_eq!(queue.call(), None, "nothing waits");
        assert_eq!(put(queue, 1), [LATER]);
    }

    #[test]
    fn a_single_writer_has_no_delay() {
        let queue = &mut Queue::default();
        for _ in 0..3 {
            assert_eq!(put(queue, 1), [NOW]);
            assert_eq!(take(queue), (1, None));
            queue.under_way -= 1;
        }
        // After a joint statement the next one has a pause, once.
        put(queue, 2);
        assert_eq!(take(queue), (2, None));
        queue.under_way -= 1;
        for call in [LATER, NOW] {
            assert_eq!(put(queue, 1), [call]);
            assert_eq!(take(queue), (1, None));
            queue.under_way -= 1;
        }
    }

    #[test]
    fn a_full_statement_does_not_wait() {
        let queue = &mut Queue::default();
        put(queue, 3 * COMMITS_MAX + 5);
        for call in [NOW, NOW, None] {
            assert_eq!(take(queue), (COMMITS_MAX, call));
        }
        assert_eq!((queue.waiting.len(), queue.under_way), (5, 3));
    }

    #[test]
    fn only_the_smallest_are_taken() {
        let taken = |change: &dyn Fn(&mut Commit)| {
            let mut commit = Arc::into_inner(commit(1)).expect("it is not shared");
            change(&mut commit);
            Joint::takes(&commit)
        };
        let key = |number: usize| number.to_be_bytes();
        assert!(taken(&|_| {}));
        assert!(!taken(&|commit| commit.durability = Durability::Buffered));
        for (bytes, is_small) in [(BYTES_MAX - 8, true), (BYTES_MAX - 7, false)] {
            let put =
                |commit: &mut Commit| commit.batch.put(settee_storage::Keyspace::Bodies, &key(0), &vec![0; bytes]);
            assert_eq!(taken(&put), is_small, "{bytes}");
        }
        for (rows, is_small) in [(ROWS_MAX, true), (ROWS_MAX + 1, false)] {
            let fill = |commit: &mut Commit| {
                (0..rows).for_each(|row| commit.batch.delete(settee_storage::Keyspace::Bodies, &key(row)));
            };
            assert_eq!(taken(&fill), is_small, "{rows}");
        }
    }
}
