//! [`Follower`]: observes commits of other processes and notifies listeners.
//!
//! A poll reads the commits of all transactions that the snapshot of the previous poll did not show: those with later
//! numbers, and those that were running. So each commit is reported once, however long transactions run, and a poll
//! reads nothing else. Polls are made for callers of [`Follower::catch_up`], after a notification of another process,
//! and once a second. Concurrent callers share a poll.
//!
//! Old commits are removed, but never the last one of a shard, which is the relevant one.

use std::collections::HashSet;
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use settee_storage::{CommitListener, ReadSet, Result, Shard, StorageError, Version};
use tokio::sync::Notify;
use tokio_postgres::Row;

use crate::error::Failure;
use crate::nodes_sql::OfNodes;
use crate::notification::{CHANNEL, Said};
use crate::pool::{Leased, Pool};
use crate::sql::Sql;

/// Maximum time between two polls.
const PERIOD: Duration = Duration::from_secs(1);

/// Minimum time between two notifications of one process, because each wakes all others and causes a poll by each.
const QUIET: Duration = Duration::from_millis(50);

/// Timeout of a poll, which normally takes less than a hundredth of it. After the timeout the connection is considered
/// lost. Requests wait for polls; with this value they wait less than two seconds if only this connection has failed.
const LIMIT: Duration = Duration::from_millis(1500);

/// Maximum number of attempts of a poll whose connection is lost.
const ATTEMPTS_MAX: u32 = 3;

/// Age after which a commit that PostgreSQL has acknowledged, synced or not, is safe: it is not lost and its
/// transaction number is not reused after a restart or a failover, because the log is written every fifth of a second.
const SETTLED: Duration = Duration::from_secs(10);

/// Upper bound of the shards that one PostgreSQL commits to in that time.
const RECENT_COMMITS_MAX: usize = 200_000;

/// Observer of commits.
pub(crate) struct Follower {
    /// Pool with one connection, which this keeps.
    pool: Arc<Pool>,
    node: i64,
    listeners: RwLock<Vec<CommitListener>>,
    poll_state: Mutex<PollState>,
    /// Notified at the end of each poll.
    ended: Notify,
    session: tokio::sync::Mutex<Session>,
    /// State that the listeners were notified of.
    notified_state: Mutex<NotifiedState>,
    recent_commits: Mutex<RecentCommits>,
    /// Notified after commits of this process.
    committed: Arc<Notify>,
    polls: AtomicU64,
    heard: AtomicU64,
}

/// State of the polls.
#[derive(Default)]
struct PollState {
    is_running: bool,
    /// Number of polls that have started, and of those that have ended.
    begun: u64,
    ended: u64,
    /// Error of the last poll.
    failure: Option<StorageError>,
}

/// Polls over one connection.
struct Session {
    held: Option<Leased>,
    /// Snapshot of the last poll in the notation of PostgreSQL: `xmin:xmax:running,running`.
    shown: String,
    /// True if no poll was made over this connection.
    is_new: bool,
}

/// Snapshot of a poll, once the listeners were notified.
struct NotifiedState {
    shown: Arc<str>,
    /// Start time of the poll.
    moment: u64,
}

/// Commits that may be lost if PostgreSQL fails now: those of the last [`SETTLED`] and, since they are kept in two
/// parts, of up to twice that time.
struct RecentCommits {
    since: Instant,
    /// Oldest transaction that was running when each part was started.
    floors: [String; 2],
    /// Shards with observed or own commits in each part.
    shards: [HashSet<Shard>; 2],
}

impl RecentCommits {
    fn new(shown: &str) -> Self {
        let floor = oldest(shown).to_owned();
        Self { since: Instant::now(), floors: [floor.clone(), floor], shards: Default::default() }
    }

    fn note(&mut self, shard: Shard) {
        if self.shards[1].len() < RECENT_COMMITS_MAX {
            self.shards[1].insert(shard);
        }
    }

    /// Starts a new part if the current one is old enough; called after each poll.
    fn rotate(&mut self, shown: &str, now: Instant) {
        if now.saturating_duration_since(self.since) < SETTLED {
            return;
        }
        self.since = now;
        self.floors.swap(0, 1);
        oldest(shown).clone_into(&mut self.floors[1]);
        self.shards[0] = take(&mut self.shards[1]);
    }

    /// Returns a snapshot that shows only transactions that cannot be lost.
    fn settled(&self) -> String {
        let floor = &self.floors[0];
        format!("{floor}:{floor}:")
    }
}

/// Returns the oldest running transaction of a snapshot.
fn oldest(shown: &str) -> &str {
    shown.split(':').next().unwrap_or_default()
}

/// Records the end of a poll when dropped, with any result.
struct PollGuard<'a> {
    follower: &'a Follower,
    answer: Result<()>,
}

impl Drop for PollGuard<'_> {
    fn drop(&mut self) {
        let mut poll_state = self.follower.poll_state.lock();
        poll_state.is_running = false;
        poll_state.ended = poll_state.begun;
        poll_state.failure = std::mem::replace(&mut self.answer, Ok(())).err();
        drop(poll_state);
        self.follower.ended.notify_waiters();
    }
}

impl Follower {
    /// Starts the observation; all later commits are reported.
    pub(crate) async fn begin(pool: Arc<Pool>, node: i64) -> Result<Arc<Self>> {
        // The clock of moments is started before any connection that will be used.
        moment(Instant::now());
        let leased = pool.take().await?;
        let begun = Instant::now();
        let row = leased.link().client.query_one("SELECT pg_current_snapshot()::text", &[]).await;
        let shown: String = row.and_then(|row| row.try_get(0)).map_err(|error| Failure::from(error).into_error())?;
        listen(&leased).await;
        let recent_commits = Mutex::new(RecentCommits::new(&shown));
        let notified_state = Mutex::new(NotifiedState { shown: shown.as_str().into(), moment: moment(begun) });
        let session = tokio::sync::Mutex::new(Session { held: Some(leased), shown, is_new: false });
        Ok(Arc::new(Self {
            pool,
            node,
            listeners: RwLock::default(),
            poll_state: Mutex::default(),
            ended: Notify::new(),
            session,
            notified_state,
            recent_commits,
            committed: Arc::new(Notify::new()),
            polls: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }))
    }

    pub(crate) fn subscribe(&self, listener: CommitListener) {
        self.listeners.write().push(listener);
    }

    /// Records a commit of this process.
    pub(crate) fn committed(&self, shard: Shard) {
        self.recent_commits.lock().note(shard);
        self.committed.notify_one();
    }

    /// Returns the numbers of polls and of commits that they reported.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.polls, &self.heard].map(|counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the read set of `shards` as of the state that the listeners were notified of.
    pub(crate) fn read_set(&self, shards: &[Shard]) -> ReadSet {
        let notified_state = self.notified_state.lock();
        ReadSet::new(shards, notified_state.moment, Arc::clone(&notified_state.shown))
    }

    /// Waits for the end of a poll that starts after this call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let mine = self.poll_state.lock().begun + 1;
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // Enabled first, so that no end of a poll is missed.
            ended.as_mut().enable();
            let is_ours = {
                let mut poll_state = self.poll_state.lock();
                if poll_state.ended >= mine {
                    return poll_state.failure.clone().map_or(Ok(()), Err);
                }
                let is_ours = !poll_state.is_running;
                if is_ours {
                    poll_state.is_running = true;
                    poll_state.begun += 1;
                }
                is_ours
            };
            if is_ours {
                let unfinished = Err(StorageError::Io("a poll did not end".to_owned()));
                let mut guard = PollGuard { follower: self, answer: unfinished };
                guard.answer = self.poll().await;
                return guard.answer.clone();
            }
            ended.await;
        }
    }

    async fn poll(&self) -> Result<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        // Only one poll runs at a time.
        let mut session = self.session.lock().await;
        let mut tries = 0;
        loop {
            match self.try_poll(&mut session).await {
                Err(Failure::Lost(_) | Failure::Again(_)) if tries < ATTEMPTS_MAX => tries += 1,
                answer => return answer.map_err(Failure::into_error),
            }
        }
    }

    async fn try_poll(&self, session: &mut Session) -> Result<(), Failure> {
        if session.held.as_ref().is_none_or(|held| !held.is_usable()) {
            session.held = None;
            let held = self.pool.take().await.map_err(Failure::Refused)?;
            let _ = tokio::time::timeout(LIMIT, listen(&held)).await.inspect_err(|_| held.set_broken());
            // A failed server reuses the numbers of transactions that it had not logged.
            session.shown = self.recent_commits.lock().settled();
            session.is_new = true;
            session.held = Some(held);
        }
        let Some(held) = &session.held else { return Ok(()) };
        let (link, begun) = (held.link(), Instant::now());
        let answer = async {
            let statement = link.statement(Sql::Nodes(OfNodes::News)).await?;
            Ok(link.client.query(&statement, &[&session.shown, &self.node]).await?)
        };
        let silent = |_| Err(Failure::Lost("PostgreSQL does not answer".to_owned()));
        let answer = tokio::time::timeout(LIMIT, answer).await.unwrap_or_else(silent);
        let rows: Vec<Row> = answer.inspect_err(|_| held.set_broken())?;
        let (mut shown, mut news) = (None, Vec::with_capacity(rows.len()));
        for row in &rows {
            let commit: (Option<i64>, Option<i64>) = (row.try_get(0)?, row.try_get(1)?);
            match commit {
                (Some(shard), Some(version)) => news.push((shard_of(shard), version_of(version))),
                _ => shown = row.try_get(2)?,
            }
        }
        let shown: String =
            shown.ok_or_else(|| Failure::Refused(StorageError::Corrupt("a poll has no snapshot".to_owned())))?;
        self.tell(&news, &shown, session.is_new);
        *self.notified_state.lock() = NotifiedState { shown: shown.as_str().into(), moment: moment(begun) };
        (session.shown, session.is_new) = (shown, false);
        Ok(())
    }

    fn tell(&self, news: &[(Shard, Version)], shown: &str, is_new: bool) {
        let mut gone = HashSet::new();
        {
            let mut recent_commits = self.recent_commits.lock();
            if is_new {
                // These commits may have been lost.
                gone = recent_commits.shards.iter().flatten().copied().collect();
            }
            news.iter().for_each(|(shard, _)| recent_commits.note(*shard));
            recent_commits.rotate(shown, Instant::now());
        }
        self.heard.fetch_add(news.len() as u64, Ordering::Relaxed);
        for (shard, _) in news {
            gone.remove(shard);
        }
        if news.is_empty() && gone.is_empty() {
            return;
        }
        let listeners = self.listeners.read();
        for (shard, version) in news.iter().copied().chain(gone.into_iter().map(|shard| (shard, Version(0)))) {
            listeners.iter().for_each(|listener| listener(shard, version));
        }
    }
}

/// Makes a connection receive notifications. Without notifications, only the periodic polls remain.
async fn listen(held: &Leased) {
    let _ = held.link().client.batch_execute(&format!("LISTEN {CHANNEL}")).await;
}

/// Returns the microseconds between the first call and `at`, or 0.
pub(crate) fn moment(at: Instant) -> u64 {
    static BEGUN: LazyLock<Instant> = LazyLock::new(Instant::now);
    u64::try_from(at.saturating_duration_since(*BEGUN).as_micros()).unwrap_or(u64::MAX)
}

fn shard_of(number: i64) -> Shard {
    Shard(number.cast_unsigned())
}

fn version_of(number: i64) -> Version {
    Version(u64::try_from(number).unwrap_or_default())
}

/// Polls once a second, and after commits of other processes.
pub(crate) async fn follow(follower: Weak<Follower>, heard: Arc<Notify>) {
    loop {
        let _ = tokio::time::timeout(PERIOD, heard.notified()).await;
        // The engine ends when its last user drops it.
        let Some(follower) = follower.upgrade() else { return };
        // Callers of `catch_up` receive the error; the poll is retried.
        let _ = follower.catch_up().await;
    }
}

/// Notifies the other processes after commits of this process, with a bounded rate.
pub(crate) async fn notify_others(follower: Weak<Follower>, writers: Weak<Pool>) {
    let Some(committed) = follower.upgrade().map(|follower| Arc::clone(&follower.committed)) else { return };
    loop {
        committed.notified().await;
        let Some(writers) = writers.upgrade() else { return };
        if let Ok(leased) = writers.take().await {
            let said = writers.connector().heard().say(leased.link(), Said::Committed).await;
            if let Err(Failure::Lost(_)) = said.map_err(Failure::from) {
                leased.set_broken();
            }
        }
        drop(writers);
        tokio::time::sleep(QUIET).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recent_commits_are_kept_for_a_while() {
        let mut recent_commits = RecentCommits::new("10:12:10,11");
        let at = |seconds| recent_start() + Duration::from_secs(seconds);
        recent_commits.since = at(0);
        // Second, snapshot, shard of a commit, and the settled snapshot.
        for (second, shown, shard, wanted) in [
            (1, "20:20:", 1, "10:10:"),
            (9, "30:35:31", 2, "10:10:"),
            (10, "40:41:", 3, "10:10:"),
            (19, "45:45:", 4, "10:10:"),
            (20, "50:50:", 5, "40:40:"),
            (31, "60:99:70", 6, "50:50:"),
        ] {
            recent_commits.rotate(shown, at(second));
            recent_commits.note(Shard(shard));
            assert_eq!(recent_commits.settled(), wanted, "after {second} s");
        }
        let mut shards: Vec<u64> = recent_commits.shards.iter().flatten().map(|shard| shard.0).collect();
        shards.sort_unstable();
        assert_eq!(shards, [5, 6], "of the last ten seconds and some");
    }

    fn recent_start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}
