//! [`Follower`]: hears of what other processes commit, and tells it to listeners.
//!
//! A poll asks for the commits of all transactions that the snapshot of the poll before did not show: those that are numbered behind
//! it, and those that were running in it. So each commit is told once, however long transactions run, and a poll looks at nothing else.
//! Polls are made for who waits in [`Follower::catch_up`], after a notification of another process, and once a second. All who wait at
//! the same time share one.
//!
//! Old commits are removed, but never the last one of a shard, and that is the one that matters.

use std::collections::HashSet;
use std::mem::take;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, RwLock};
use settee_storage::{CommitListener, Premise, Result, Shard, StorageError, Version};
use tokio::sync::Notify;
use tokio_postgres::Row;

use crate::error::Failure;
use crate::nodes_sql::OfNodes;
use crate::notification::{CHANNEL, Said};
use crate::pool::{Leased, Pool};
use crate::sql::Sql;

/// The longest time between two polls.
const PERIOD: Duration = Duration::from_secs(1);

/// Between two notifications of one process: each wakes all others, and has each of them poll.
const QUIET: Duration = Duration::from_millis(50);

/// A poll takes less than a hundredth of that. After it the connection is taken for lost: requests wait for polls, and less than two seconds if
/// nothing but this connection is gone.
const LIMIT: Duration = Duration::from_millis(1500);

/// A poll whose connection is lost is made again so often.
const TRIES: u32 = 3;

/// What PostgreSQL has acknowledged for so long, be it synced or not, is neither lost nor its number given out again when it starts anew or a
/// standby takes over: the log is written every fifth of a second.
const SETTLED: Duration = Duration::from_secs(10);

/// No PostgreSQL commits to more shards in that time.
const RECENT_MAX: usize = 200_000;

/// Hears of commits.
pub(crate) struct Follower {
    /// Of one connection, which this keeps.
    pool: Arc<Pool>,
    node: i64,
    listeners: RwLock<Vec<CommitListener>>,
    turns: Mutex<Turns>,
    /// A poll has ended.
    ended: Notify,
    session: tokio::sync::Mutex<Session>,
    /// What the listeners have heard of.
    told: Mutex<Told>,
    recent: Mutex<Recent>,
    /// Something was committed here.
    committed: Arc<Notify>,
    polls: AtomicU64,
    heard: AtomicU64,
}

/// Who polls, and for whom.
#[derive(Default)]
struct Turns {
    is_running: bool,
    /// The number of polls that have begun, and of those that have ended.
    begun: u64,
    ended: u64,
    /// Why the last one failed.
    failure: Option<StorageError>,
}

/// The polls of one connection.
struct Session {
    held: Option<Leased>,
    /// What the last poll has shown, in PostgreSQL's words: `xmin:xmax:running,running`.
    shown: String,
    /// Whether no poll was made over this connection.
    is_new: bool,
}

/// What a poll has shown, when the listeners have heard of it.
struct Told {
    shown: Arc<str>,
    /// When the poll began.
    moment: u64,
}

/// What may not last, if PostgreSQL fails now: of the last [`SETTLED`] and, as it is kept in two parts, up to twice that.
struct Recent {
    since: Instant,
    /// The oldest transaction that ran when these parts began.
    floors: [String; 2],
    /// What was heard of and committed in them.
    shards: [HashSet<Shard>; 2],
}

impl Recent {
    fn new(shown: &str) -> Self {
        let floor = oldest(shown).to_owned();
        Self { since: Instant::now(), floors: [floor.clone(), floor], shards: Default::default() }
    }

    fn note(&mut self, shard: Shard) {
        if self.shards[1].len() < RECENT_MAX {
            self.shards[1].insert(shard);
        }
    }

    /// A poll was made.
    fn turn(&mut self, shown: &str, now: Instant) {
        if now.saturating_duration_since(self.since) < SETTLED {
            return;
        }
        self.since = now;
        self.floors.swap(0, 1);
        oldest(shown).clone_into(&mut self.floors[1]);
        self.shards[0] = take(&mut self.shards[1]);
    }

    /// A snapshot that shows nothing which may be gone.
    fn settled(&self) -> String {
        let floor = &self.floors[0];
        format!("{floor}:{floor}:")
    }
}

/// The oldest transaction that runs in a snapshot.
fn oldest(shown: &str) -> &str {
    shown.split(':').next().unwrap_or_default()
}

/// A poll has ended, however that was.
struct Turn<'a> {
    follower: &'a Follower,
    answer: Result<()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut turns = self.follower.turns.lock();
        turns.is_running = false;
        turns.ended = turns.begun;
        turns.failure = std::mem::replace(&mut self.answer, Ok(())).err();
        drop(turns);
        self.follower.ended.notify_waiters();
    }
}

impl Follower {
    /// Hears of everything from now on.
    pub(crate) async fn begin(pool: Arc<Pool>, node: i64) -> Result<Arc<Self>> {
        // Moments begin before anything is connected that will be used.
        moment(Instant::now());
        let leased = pool.take().await?;
        let begun = Instant::now();
        let row = leased.link().client.query_one("SELECT pg_current_snapshot()::text", &[]).await;
        let shown: String = row.and_then(|row| row.try_get(0)).map_err(|error| Failure::from(error).into_error())?;
        listen(&leased).await;
        let recent = Mutex::new(Recent::new(&shown));
        let told = Mutex::new(Told { shown: shown.as_str().into(), moment: moment(begun) });
        let session = tokio::sync::Mutex::new(Session { held: Some(leased), shown, is_new: false });
        Ok(Arc::new(Self {
            pool,
            node,
            listeners: RwLock::default(),
            turns: Mutex::default(),
            ended: Notify::new(),
            session,
            told,
            recent,
            committed: Arc::new(Notify::new()),
            polls: AtomicU64::new(0),
            heard: AtomicU64::new(0),
        }))
    }

    pub(crate) fn subscribe(&self, listener: CommitListener) {
        self.listeners.write().push(listener);
    }

    /// This process has committed.
    pub(crate) fn committed(&self, shard: Shard) {
        self.recent.lock().note(shard);
        self.committed.notify_one();
    }

    /// Polls so far, and commits that they told of.
    pub(crate) fn counts(&self) -> [u64; 2] {
        [&self.polls, &self.heard].map(|counter| counter.load(Ordering::Relaxed))
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// What the listeners have heard of, as far as it concerns `shards`.
    pub(crate) fn premise(&self, shards: &[Shard]) -> Premise {
        let told = self.told.lock();
        Premise::new(shards, told.moment, Arc::clone(&told.shown))
    }

    /// Waits for the end of a poll that begins after this call.
    pub(crate) async fn catch_up(&self) -> Result<()> {
        let mine = self.turns.lock().begun + 1;
        loop {
            let mut ended = std::pin::pin!(self.ended.notified());
            // From here on it hears of an end.
            ended.as_mut().enable();
            let is_ours = {
                let mut turns = self.turns.lock();
                if turns.ended >= mine {
                    return turns.failure.clone().map_or(Ok(()), Err);
                }
                let is_ours = !turns.is_running;
                if is_ours {
                    turns.is_running = true;
                    turns.begun += 1;
                }
                is_ours
            };
            if is_ours {
                let unfinished = Err(StorageError::Io("a poll did not end".to_owned()));
                let mut turn = Turn { follower: self, answer: unfinished };
                turn.answer = self.poll().await;
                return turn.answer.clone();
            }
            ended.await;
        }
    }

    async fn poll(&self) -> Result<()> {
        self.polls.fetch_add(1, Ordering::Relaxed);
        // Only one polls at a time.
        let mut session = self.session.lock().await;
        let mut tries = 0;
        loop {
            match self.try_poll(&mut session).await {
                Err(Failure::Lost(_) | Failure::Again(_)) if tries < TRIES => tries += 1,
                answer => return answer.map_err(Failure::into_error),
            }
        }
    }

    async fn try_poll(&self, session: &mut Session) -> Result<(), Failure> {
        if session.held.as_ref().is_none_or(|held| !held.is_usable()) {
            session.held = None;
            let held = self.pool.take().await.map_err(Failure::Refused)?;
            let _ = tokio::time::timeout(LIMIT, listen(&held)).await.inspect_err(|_| held.set_broken());
            // Numbers of transactions that a server had not written down when it failed are given out again.
            session.shown = self.recent.lock().settled();
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
        *self.told.lock() = Told { shown: shown.as_str().into(), moment: moment(begun) };
        (session.shown, session.is_new) = (shown, false);
        Ok(())
    }

    fn tell(&self, news: &[(Shard, Version)], shown: &str, is_new: bool) {
        let mut gone = HashSet::new();
        {
            let mut recent = self.recent.lock();
            if is_new {
                // These may not be what they were.
                gone = recent.shards.iter().flatten().copied().collect();
            }
            news.iter().for_each(|(shard, _)| recent.note(*shard));
            recent.turn(shown, Instant::now());
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

/// Has a connection bring notifications. Where there are none, the time between polls is all there is.
async fn listen(held: &Leased) {
    let _ = held.link().client.batch_execute(&format!("LISTEN {CHANNEL}")).await;
}

/// Microseconds since this was asked first; 0 before.
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

/// Polls once a second, and whenever another process has committed.
pub(crate) async fn follow(follower: Weak<Follower>, heard: Arc<Notify>) {
    loop {
        let _ = tokio::time::timeout(PERIOD, heard.notified()).await;
        // The engine ends when nobody else has it.
        let Some(follower) = follower.upgrade() else { return };
        // An error is for who asks, and it is tried again.
        let _ = follower.catch_up().await;
    }
}

/// Tells the others after commits of this process, not too often.
pub(crate) async fn herald(follower: Weak<Follower>, writers: Weak<Pool>) {
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
    fn what_may_be_lost_is_kept_for_a_while() {
        let mut recent = Recent::new("10:12:10,11");
        let at = |seconds| recent_start() + Duration::from_secs(seconds);
        recent.since = at(0);
        // Seconds, what is shown, a shard that is committed to, and what is settled.
        for (second, shown, shard, wanted) in [
            (1, "20:20:", 1, "10:10:"),
            (9, "30:35:31", 2, "10:10:"),
            (10, "40:41:", 3, "10:10:"),
            (19, "45:45:", 4, "10:10:"),
            (20, "50:50:", 5, "40:40:"),
            (31, "60:99:70", 6, "50:50:"),
        ] {
            recent.turn(shown, at(second));
            recent.note(Shard(shard));
            assert_eq!(recent.settled(), wanted, "after {second} s");
        }
        let mut shards: Vec<u64> = recent.shards.iter().flatten().map(|shard| shard.0).collect();
        shards.sort_unstable();
        assert_eq!(shards, [5, 6], "of the last ten seconds and some");
    }

    fn recent_start() -> Instant {
        static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();
        *START.get_or_init(Instant::now)
    }
}
