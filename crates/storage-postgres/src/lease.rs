//! [`Lease`]: the transaction of a snapshot. It is started by the first read, in the same round trip, and ends with the
//! snapshot.
//!
//! An idle snapshot may lose its connection, by an error or to another caller that needs one. Its next read then starts
//! a new transaction and continues if the shard still has the same version, because its contents are then the same.
//! Otherwise the read is interrupted.
//!
//! The transaction of a shard lock is started in the same way, with a wait. No later read uses it; the commit takes it
//! over.

use std::borrow::Cow;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use settee_storage::{
    CommitToken, Direction, Keyspace, MAX_HEAD_BYTES, Result, Shard, ShardState, StorageError, Version,
};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Row, Statement};

use crate::connect::{Link, together};
use crate::error::Failure;
use crate::keys::Bounds;
use crate::pool::{Leased, Pool};
use crate::sql::{Limit, Sql};

/// Maximum number of attempts of a read whose connection is lost.
const ATTEMPTS_MAX: u32 = 3;

const BEGIN: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

/// A request within a round trip; each is answered by rows.
pub(crate) enum Ask<'a> {
    Token(Version),
    Get(Keyspace, Cow<'a, [u8]>),
    MultiGet(Keyspace, Vec<Cow<'a, [u8]>>),
    Page(Keyspace, Direction, Bounds, i64),
}

/// The last commit of the shard of a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Last {
    pub(crate) state: ShardState,
    pub(crate) head: Option<Vec<u8>>,
    pub(crate) is_dropped: bool,
}

/// The transaction of a snapshot.
pub(crate) struct Lease {
    pool: Arc<Pool>,
    shard: i64,
    slot: tokio::sync::Mutex<Option<Arc<Leased>>>,
    last: OnceLock<Last>,
    used: Mutex<Instant>,
}

impl Lease {
    pub(crate) fn new(pool: Arc<Pool>, shard: Shard) -> Arc<Self> {
        Arc::new(Self {
            pool,
            shard: number(shard),
            slot: tokio::sync::Mutex::new(None),
            last: OnceLock::new(),
            used: Mutex::new(Instant::now()),
        })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Returns the last commit of the shard, if a round trip has read it already.
    pub(crate) fn last(&self) -> Result<Option<&Last>> {
        match self.last.get() {
            Some(last) if last.is_dropped => Err(StorageError::Dropped),
            last => Ok(last),
        }
    }

    /// Returns the time since the last read, if the lease has a connection.
    pub(crate) fn idle(&self) -> Option<Duration> {
        let slot = self.slot.try_lock().ok()?;
        let is_held = slot.as_ref().is_some_and(|held| Arc::strong_count(held) == 1);
        is_held.then(|| self.used.lock().elapsed())
    }

    /// Releases the connection, unless a read is in progress. Returns true if it was released.
    pub(crate) fn give_up(&self) -> bool {
        let Ok(mut slot) = self.slot.try_lock() else { return false };
        let is_held = slot.as_ref().is_some_and(|held| Arc::strong_count(held) == 1);
        if is_held {
            *slot = None;
        }
        is_held
    }

    /// Sends all requests in one round trip. The first one of a snapshot also reads the last commit of the shard.
    pub(crate) async fn trip(self: &Arc<Self>, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>> {
        let mut tries = 0;
        loop {
            match self.try_trip(asks).await {
                Err(Failure::Lost(_) | Failure::Again(_)) if tries < ATTEMPTS_MAX => tries += 1,
                answer => return answer.map_err(Failure::into_error),
            }
        }
    }

    async fn try_trip(self: &Arc<Self>, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        self.last().map_err(Failure::Refused)?;
        let held = {
            let mut slot = self.slot.lock().await;
            match slot.as_ref().filter(|held| held.is_usable()) {
                Some(held) => Arc::clone(held),
                None => {
                    *slot = None;
                    let held = self.pool.take().await.map_err(Failure::Refused)?;
                    let answers = noted(&held, self.begin(&held, BEGIN, asks).await)?;
                    *slot = Some(Arc::new(held));
                    self.pool.holds(self);
                    *self.used.lock() = Instant::now();
                    return Ok(answers);
                }
            }
        };
        let answers = noted(&held, self.go_on(&held, asks).await);
        *self.used.lock() = Instant::now();
        answers
    }

    async fn go_on(&self, held: &Leased, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        let link = held.link();
        let statements = link.statements(asks.iter().map(Ask::sql)).await?;
        let requests = asks.iter().zip(&statements).map(|(ask, statement)| self.ask(link, statement, ask)).collect();
        Ok(together(requests).await.into_iter().collect::<Result<_, Error>>()?)
    }

    /// Starts the transaction of a shard lock with `statements`, and sends the requests when they have finished.
    pub(crate) async fn wait(
        &self,
        held: Leased,
        statements: &str,
        asks: &[Ask<'_>],
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let answers = noted(&held, self.begin(&held, statements, asks).await)?;
        *self.slot.lock().await = Some(Arc::new(held));
        Ok(answers)
    }

    /// Takes the transaction over, if there is one and no read is in progress.
    pub(crate) fn take_over(&self) -> Option<Leased> {
        let mut slot = self.slot.try_lock().ok()?;
        slot.take().and_then(Arc::into_inner)
    }

    /// Starts the transaction, and checks that it shows the same version as the earlier one.
    async fn begin(&self, held: &Leased, statements: &str, asks: &[Ask<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        let link = held.link();
        let state = link.statement(Sql::State).await?;
        let prepared = link.statements(asks.iter().map(Ask::sql)).await?;
        held.set_in_transaction(true);
        let begun: Request<'_> = Box::pin(async { link.client.batch_execute(statements).await.map(|()| Vec::new()) });
        let last: Request<'_> = Box::pin(async { link.client.query(&state, &[&self.shard]).await });
        let wanted = asks.iter().zip(&prepared).map(|(ask, statement)| self.ask(link, statement, ask));
        let mut answers = together([begun, last].into_iter().chain(wanted).collect()).await.into_iter();
        answers.next().transpose()?;
        let last = answers.next().transpose()?.unwrap_or_default();
        let last = Last::of(last.first()).map_err(Failure::Refused)?;
        let known = self.last.get_or_init(|| last.clone());
        if known.state != last.state || known.is_dropped != last.is_dropped {
            let text = "the connection of a snapshot was needed by others or lost, and its shard has changed since";
            return Err(Failure::Refused(StorageError::Interrupted(text.to_owned())));
        }
        self.last().map_err(Failure::Refused)?;
        Ok(answers.collect::<Result<_, Error>>()?)
    }

    fn ask<'a>(&'a self, link: &'a Link, statement: &'a Statement, ask: &'a Ask<'_>) -> Request<'a> {
        Box::pin(async move {
            let shard: &(dyn ToSql + Sync) = &self.shard;
            match ask {
                Ask::Token(Version(version)) => {
                    let version = i64::try_from(*version).unwrap_or(i64::MAX);
                    link.client.query(statement, &[shard, &version]).await
                }
                Ask::Get(_, key) => link.client.query(statement, &[shard, key]).await,
                Ask::MultiGet(_, keys) => link.client.query(statement, &[shard, keys]).await,
                Ask::Page(_, _, Bounds { start, end: Some(end) }, rows) => {
                    link.client.query(statement, &[shard, start, end, rows]).await
                }
                Ask::Page(_, _, Bounds { start, end: None }, rows) => {
                    link.client.query(statement, &[shard, start, rows]).await
                }
            }
        })
    }
}

/// Marks a lost connection so that it is not reused.
fn noted<T>(held: &Leased, answer: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(Failure::Lost(_)) = &answer {
        held.set_broken();
    }
    answer
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

impl Ask<'_> {
    fn sql(&self) -> Sql {
        match self {
            Self::Token(_) => Sql::Token,
            Self::Get(space, _) => Sql::Get(*space),
            Self::MultiGet(space, _) => Sql::MultiGet(*space),
            Self::Page(space, direction, Bounds { end: Some(_), .. }, _) => Sql::Page(*space, *direction, Limit::End),
            Self::Page(space, direction, _, _) => Sql::Page(*space, *direction, Limit::Open),
        }
    }
}

impl Last {
    /// Decodes the row of [`Sql::State`].
    pub(crate) fn of(row: Option<&Row>) -> Result<Self> {
        let Some(row) = row else { return Ok(Self::default()) };
        let broken = |what: &str| StorageError::Corrupt(format!("the last commit of a shard has no {what}"));
        let version: i64 = row.try_get(0).map_err(|_| broken("version"))?;
        let token: &[u8] = row.try_get(1).map_err(|_| broken("token"))?;
        let head: Option<&[u8]> = row.try_get(2).map_err(|_| broken("head"))?;
        let is_dropped = row.try_get(3).map_err(|_| broken("mark"))?;
        let token = token.try_into().map_or(CommitToken::default(), |token| CommitToken(u128::from_be_bytes(token)));
        let version = Version(u64::try_from(version).map_err(|_| broken("version"))?);
        let head = head.map(|head| head[..head.len().min(MAX_HEAD_BYTES)].to_vec());
        Ok(Self { state: ShardState { version, token }, head, is_dropped })
    }
}

/// Converts shards to the signed integers of PostgreSQL. Only equality matters.
pub(crate) fn number(shard: Shard) -> i64 {
    shard.0.cast_signed()
}
