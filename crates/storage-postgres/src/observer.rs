//! [`CommitObserver`]: observes commits of other processes and notifies listeners.
//!
//! A poll reads the commits of all transactions that the snapshot of the previous poll did not show: those with later
//! numbers, and those that were running. Therefore each commit is reported once, regardless of the duration of
//! transactions, and a poll reads nothing else. Polls are made for callers of [`CommitObserver::catch_up`], after a
//! notification of another process, and once a second. Concurrent callers share a poll.
//!
//! Old commits are removed, but never the last one of a shard.

use std::collections::HashSet;
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use settee_storage::{CommitListener, Result, Shard, StorageError, Version};
use tokio::sync::Notify;
use tokio_postgres::Row;

use crate::error::Failure;
use crate::nodes_sql::NodesSql;
use crate::notification::{CHANNEL, Notification};
use crate::pool::{Leased, Pool};
use crate::sql::Sql;

const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum time between two notifications of one process, because each wakes all others and causes a poll by each.
const NOTIFY_INTERVAL: Duration = Duration::from_millis(50);

/// After the timeout the connection is considered lost.
/// Requests wait for polls; with this value they wait less than two seconds if only this connection has failed.
const POLL_TIMEOUT: Duration = Duration::from_millis(1500);

const ATTEMPTS_MAX: u32 = 3;

/// Age after which a commit that PostgreSQL has acknowledged, synced or not, is safe: it is not lost and its
/// transaction number is not reused after a restart or a failover, because the log is written every fifth of a second.
const SAFE_AGE: Duration = Duration::from_secs(10);

/// Upper bound of the shards to which one PostgreSQL commits in that time.
const RECENT_COMMITS_MAX: usize = 200_000;

pub(crate) struct CommitObserver {
    pool: Arc<Pool>,
    node: i64,
    listeners: RwLock<Vec<CommitListener>>,
    poll_state: Mutex<PollState>,
    ended: Notify,
    session: tokio::sync::Mutex<Session>,
    recent_commits: Mutex<RecentCommits>,
    committed: Arc<Notify>,
    polls: AtomicU64,
    observed: AtomicU64,
}

#[derive(Default)]
struct PollState {
    is_running: bool,
    started: u64,
    ended: u64,
    failure: Option<StorageError>,
}

struct Session {
    leased: Option<Leased>,
    /// Notation of PostgreSQL: `xmin:xmax:running,running`.
    snapshot: String,
    is_new: bool,
}

/// Commits that may be lost if PostgreSQL fails now: those of the last [`SAFE_AGE`] and, because they are kept in two
/// parts, of up to twice that time.
struct RecentCommits {
    since: Instant,
    floors: [String; 2],
    shards: [HashSet<Shard>; 2],
}

impl RecentCommits {
    fn new(snapshot: &str) -> Self {
        let floor = oldest(snapshot).to_owned();
        Self { since: Instant::now(), floors: [floor.clone(), floor], shards: Default::default() }
    }

    fn add(&mut self, shard: Shard) {
        if self.shards[1].len() < RECENT_COMMITS_MAX {
            self.shards[1].insert(shard);
        }
    }

    /// Starts a new part if the current one is old enough. Must be called after each poll.
    fn rotate(&mut self, snapshot: &str, now: Instant) {
        if now.saturating_duration_since(self.since) < SAFE_AGE {
            return;
        }
        self.since = now;
        self.floors.swap(0, 1);
        oldest(snapshot).clone_into(&mut self.floors[1]);
        self.shards[0] = take(&mut self.shards[1]);
    }

    /// The snapshot shows only transactions that cannot be lost.
    fn safe_snapshot(&self) -> String {
        let floor = &self.floors[0];
        format!("{floor}:{floor}:")
    }
}

fn oldest(snapshot: &str) -> &str {
    snapshot.split(':').next().unwrap_or_default()
}

struct PollGuard<'a> {
    observer: &'a CommitObserver,
    result: Result<()>,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        let mut poll_state = self.observer.poll_state.lock();
        poll_state.is_running = false;
        poll_state.ended = poll_state.started;
        poll_state.failure = std::mem::replace(&mut self.result, Ok(())).err();
        drop(poll_state);
        self.observer.ended.notify_waiters();
    }
}

impl CommitObserver {
    /// All later commits are reported.
    pub(crate) async fn start(pool: Arc<Pool>, node: i64) -> Result<Arc<Self>> {
        let leased = pool.acquire().await?;
        let row = leased.link().client.query_one("SELECT pg_current_snapshot()::text", &[]).await;
        let snapshot: String = row.and_then(|row| row.try_get(0)).map_err(|error| Failure::from(error).into_error())?;
        listen(&leased).await;
        let recent_commits = Mutex::new(RecentCommits::new(&snapshot));
        let session = tokio::sync::Mutex::new(Session { leased: Some(leased), snapshot, is_new: false });
        Ok(Arc::new(Self {
            pool,
            node,
            listeners: RwLock::default(),
            poll_state: Mutex::default(),
            ended: Notify::new(),
            session,
            recent_commits,
            committed: Arc::new(Notify::new()),
            polls: AtomicU64::new(0),
            observed: AtomicU64::new(0),
        }))
    }

    pub(crate) fn subscribe(&self, listener: CommitListener) {
        self.listeners.write().push(listener);
    }

    pub(crate) fn committed(&self, shard: Shard) {
        self.recent_commits.lock().add(shard);
        self.committed.notify_one();
    }

    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.polls, &self.observed].map(|counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Waits for the end of a poll that starts after this call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let wanted = self.poll_state.lock().started + 1;
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Enabled first, so that no end of a poll is missed.
            ended.as_mut().enable();
            let must_poll = {
                let mut poll_state = self.poll_state.lock();
                if poll_state.ended >= wanted {
                    return poll_state.failure.clone().map_or(Ok(()), Err);
                }
                let must_poll = !poll_state.is_running;
                if must_poll {
                    poll_state.is_running = true;
                    poll_state.started += 1;
                }
                must_poll
            };
            if must_poll {
                let unfinished = Err(StorageError::Io("the poll was aborted".to_owned()));
                let mut guard = PollGuard { observer: self, result: unfinished };
                guard.result = self.poll().await;
                return guard.result.clone();
            }
            ended.await;
        }
    }

    async fn poll(&self) -> Result<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        // Polls do not run concurrently.
        let mut session = self.session.lock().await;
        let mut attempts = 0;
        loop {
            match self.try_poll(&mut session).await {
                Err(Failure::Lost(_) | Failure::Retry(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
                result => return result.map_err(Failure::into_error),
            }
        }
    }

    async fn try_poll(&self, session: &mut Session) -> Result<(), Failure> {
        if session.leased.as_ref().is_none_or(|leased| !leased.is_usable()) {
            session.leased = None;
            let leased = self.pool.acquire().await.map_err(Failure::Permanent)?;
            let _ = tokio::time::timeout(POLL_TIMEOUT, listen(&leased)).await.inspect_err(|_| leased.set_broken());
            // A failed server reuses the numbers of transactions that it had not logged.
            session.snapshot = self.recent_commits.lock().safe_snapshot();
            session.is_new = true;
            session.leased = Some(leased);
        }
        let Some(leased) = &session.leased else { return Ok(()) };
        let link = leased.link();
        let result = async {
            let statement = link.statement(Sql::Nodes(NodesSql::CommitsSince)).await?;
            Ok(link.client.query(&statement, &[&session.snapshot, &self.node]).await?)
        };
        let silent = |_| Err(Failure::Lost("PostgreSQL does not respond".to_owned()));
        let result = tokio::time::timeout(POLL_TIMEOUT, result).await.unwrap_or_else(silent);
        let rows: Vec<Row> = result.inspect_err(|_| leased.set_broken())?;
        let (mut snapshot, mut commits) = (None, Vec::with_capacity(rows.len()));
        for row in &rows {
            let commit: (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            match commit {
                (Some(shard), Some(version)) => commits.push((shard_of(shard), version_of(version))),
                _ => snapshot = row.try_get(2)?,
            }
        }
        let snapshot: String = snapshot.ok_or_else(|| {
            Failure::Permanent(StorageError::Corrupt("the response to a poll has no snapshot".to_owned()))
        })?;
        self.notify_listeners(&commits, &snapshot, session.is_new);
        (session.snapshot, session.is_new) = (snapshot, false);
        Ok(())
    }

    fn notify_listeners(&self, commits: &[(Shard, Version)], snapshot: &str, is_new: bool) {
        let mut possibly_lost = HashSet::new();
        {
            let mut recent_commits = self.recent_commits.lock();
            if is_new {
                possibly_lost = recent_commits.shards.iter().flatten().copied().collect();
            }
            commits.iter().for_each(|(shard, _)| recent_commits.add(*shard));
            recent_commits.rotate(snapshot, Instant::now());
        }
        self.observed.fetch_add(commits.len() as u64, Ordering::Relaxed);
        if commits.is_empty() && possibly_lost.is_empty() {
            return;
        }
        let listeners = self.listeners.read();
        // A shard with an existing commit may have lost a later one, whose version another commit has now.
        let possibly_lost = possibly_lost.into_iter().map(|shard| (shard, Version(0)));
        for (shard, version) in possibly_lost.chain(commits.iter().copied()) {
            listeners.iter().for_each(|listener| listener(shard, version));
        }
    }
}

/// Without notifications, only the periodic polls remain.
async fn listen(leased: &Leased) {
    let _ = leased.link().client.batch_execute(&format!("LISTEN {CHANNEL}")).await;
}

fn shard_of(number: i64) -> Shard {
    Shard(number.cast_unsigned())
}

fn version_of(number: i64) -> Version {
    Version(u64::try_from(number).unwrap_or_default())
}

pub(crate) async fn poll_periodically(observer: Weak<CommitObserver>, committed: Arc<Notify>) {
    loop {
        let _ = tokio::time::timeout(POLL_INTERVAL, committed.notified()).await;
        let Some(observer) = observer.upgrade() else { return };
        // Callers of `catch_up` receive the error. The poll is retried.
        let _ = observer.catch_up().await;
    }
}

/// Notifies the other processes after commits of this process, with a bounded rate.
pub(crate) async fn notify_others(observer: Weak<CommitObserver>, writers: Weak<Pool>) {
    let Some(committed) = observer.upgrade().map(|observer| Arc::clone(&observer.committed)) else { return };
    loop {
        committed.notified().await;
        let Some(writers) = writers.upgrade() else { return };
        if let Ok(leased) = writers.acquire().await {
            let sent = writers.connector().notifications().send(leased.link(), Notification::Committed).await;
            if let Err(Failure::Lost(_)) = sent.map_err(Failure::from) {
                leased.set_broken();
            }
        }
        drop(writers);
        tokio::time::sleep(NOTIFY_INTERVAL).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_commits_are_kept_for_the_safe_age() {
        let mut recent_commits = RecentCommits::new("10:12:10,11");
        let at = |seconds| recent_start() + Duration::from_secs(seconds);
        recent_commits.since = at(0);
        // Second, snapshot, shard of a commit, and the settled snapshot.
        for (second, snapshot, shard, wanted) in [
            (1, "20:20:", 1, "10:10:"),
            (9, "30:35:31", 2, "10:10:"),
            (10, "40:41:", 3, "10:10:"),
            (19, "45:45:", 4, "10:10:"),
            (20, "50:50:", 5, "40:40:"),
            (31, "60:99:70", 6, "50:50:"),
        ] {
            recent_commits.rotate(snapshot, at(second));
            recent_commits.add(Shard(shard));
            assert_eq!(recent_commits.safe_snapshot(), wanted, "after {second} s");
        }
        let mut shards: Vec<u64> = recent_commits.shards.iter().flatten().map(|shard| shard.0).collect();
        shards.sort_unstable();
        assert_eq!(shards, [5, 6], "the commits of at least the last ten seconds");
    }

    fn recent_start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}
