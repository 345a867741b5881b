//! [`Lease`]: the transaction of a snapshot. The first read starts it, in the same round trip, and it ends with the
//! snapshot. An idle snapshot may lose its connection, by an error or to another caller that needs one. Its next read
//! then starts a new transaction and continues if the shard still has the same version, because its contents are then
//! the same. Otherwise the read is interrupted.

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

use crate::connect::{PostgresConnection, pipelined};
use crate::error::Failure;
use crate::keys::Bounds;
use crate::pool::{Pool, PooledConnection};
use crate::sql::{PageEnd, Sql};

const ATTEMPTS_MAX: u32 = 3;

const BEGIN_SNAPSHOT: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY";

pub(crate) enum Query<'a> {
    Token(Version),
    Get(Keyspace, Cow<'a, [u8]>),
    MultiGet(Keyspace, Vec<Cow<'a, [u8]>>),
    Page(Keyspace, Direction, Bounds, i64),
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LastCommit {
    pub(crate) state: ShardState,
    pub(crate) head: Option<Vec<u8>>,
    pub(crate) is_dropped: bool,
}

pub(crate) struct Lease {
    pool: Arc<Pool>,
    shard: i64,
    slot: tokio::sync::Mutex<Option<Arc<PooledConnection>>>,
    last_commit: OnceLock<LastCommit>,
    last_used: Mutex<Instant>,
}

impl Lease {
    pub(crate) fn new(pool: Arc<Pool>, shard: Shard) -> Arc<Self> {
        Arc::new(Self {
            pool,
            shard: number(shard),
            slot: tokio::sync::Mutex::new(None),
            last_commit: OnceLock::new(),
            last_used: Mutex::new(Instant::now()),
        })
    }

    pub(crate) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// `None` before the first round trip.
    pub(crate) fn last_commit(&self) -> Result<Option<&LastCommit>> {
        match self.last_commit.get() {
            Some(last_commit) if last_commit.is_dropped => Err(StorageError::Dropped),
            last_commit => Ok(last_commit),
        }
    }

    pub(crate) fn idle(&self) -> Option<Duration> {
        let slot = self.slot.try_lock().ok()?;
        let is_held = slot.as_ref().is_some_and(|leased| Arc::strong_count(leased) == 1);
        is_held.then(|| self.last_used.lock().elapsed())
    }

    /// Releases the connection, unless a read is in progress. Returns true if it was released.
    pub(crate) fn release(&self) -> bool {
        let Ok(mut slot) = self.slot.try_lock() else { return false };
        let is_held = slot.as_ref().is_some_and(|leased| Arc::strong_count(leased) == 1);
        if is_held {
            *slot = None;
        }
        is_held
    }

    /// Sends all requests in one round trip. The first one of a snapshot also reads the last commit of the shard.
    pub(crate) async fn round_trip(self: &Arc<Self>, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>> {
        let mut attempts = 0;
        loop {
            match self.try_round_trip(queries).await {
                Err(Failure::Lost(_) | Failure::Retry(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
                answer => return answer.map_err(Failure::into_error),
            }
        }
    }

    async fn try_round_trip(self: &Arc<Self>, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        self.last_commit().map_err(Failure::Permanent)?;
        let leased = {
            let mut slot = self.slot.lock().await;
            match slot.as_ref().filter(|leased| leased.is_usable()) {
                Some(leased) => Arc::clone(leased),
                None => {
                    *slot = None;
                    let leased = self.pool.acquire().await.map_err(Failure::Permanent)?;
                    let answers = mark_lost(&leased, self.start_transaction(&leased, queries).await)?;
                    *slot = Some(Arc::new(leased));
                    self.pool.register(self);
                    *self.last_used.lock() = Instant::now();
                    return Ok(answers);
                }
            }
        };
        let answers = mark_lost(&leased, self.execute(&leased, queries).await);
        *self.last_used.lock() = Instant::now();
        answers
    }

    async fn execute(&self, leased: &PooledConnection, queries: &[Query<'_>]) -> Result<Vec<Vec<Row>>, Failure> {
        let link = leased.link();
        let statements = link.statements(queries.iter().map(Query::sql)).await?;
        let requests =
            queries.iter().zip(&statements).map(|(query, statement)| self.send(link, statement, query)).collect();
        Ok(pipelined(requests).await.into_iter().collect::<Result<_, Error>>()?)
    }

    async fn start_transaction(
        &self,
        leased: &PooledConnection,
        queries: &[Query<'_>],
    ) -> Result<Vec<Vec<Row>>, Failure> {
        let link = leased.link();
        let state = link.statement(Sql::State).await?;
        let prepared = link.statements(queries.iter().map(Query::sql)).await?;
        leased.set_in_transaction(true);
        let started: Request<'_> =
            Box::pin(async { link.client.batch_execute(BEGIN_SNAPSHOT).await.map(|()| Vec::new()) });
        let last_commit: Request<'_> = Box::pin(async { link.client.query(&state, &[&self.shard]).await });
        let wanted = queries.iter().zip(&prepared).map(|(query, statement)| self.send(link, statement, query));
        let mut answers = pipelined([started, last_commit].into_iter().chain(wanted).collect()).await.into_iter();
        answers.next().transpose()?;
        let rows = answers.next().transpose()?.unwrap_or_default();
        let found = LastCommit::of(rows.first()).map_err(Failure::Permanent)?;
        let first = self.last_commit.get_or_init(|| found.clone());
        if first.state != found.state || first.is_dropped != found.is_dropped {
            let text = "the snapshot lost its connection, and its shard has changed since";
            return Err(Failure::Permanent(StorageError::Interrupted(text.to_owned())));
        }
        self.last_commit().map_err(Failure::Permanent)?;
        Ok(answers.collect::<Result<_, Error>>()?)
    }

    fn send<'a>(&'a self, link: &'a PostgresConnection, statement: &'a Statement, query: &'a Query<'_>) -> Request<'a> {
        Box::pin(async move {
            let shard: &(dyn ToSql + Sync) = &self.shard;
            match query {
                Query::Token(Version(version)) => {
                    let version = i64::try_from(*version).unwrap_or(i64::MAX);
                    link.client.query(statement, &[shard, &version]).await
                }
                Query::Get(_, key) => link.client.query(statement, &[shard, key]).await,
                Query::MultiGet(_, keys) => link.client.query(statement, &[shard, keys]).await,
                Query::Page(_, _, Bounds { start, end: Some(end) }, rows) => {
                    link.client.query(statement, &[shard, start, end, rows]).await
                }
                Query::Page(_, _, Bounds { start, end: None }, rows) => {
                    link.client.query(statement, &[shard, start, rows]).await
                }
            }
        })
    }
}

fn mark_lost<T>(leased: &PooledConnection, answer: Result<T, Failure>) -> Result<T, Failure> {
    if let Err(Failure::Lost(_)) = &answer {
        leased.set_broken();
    }
    answer
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<Vec<Row>, Error>> + Send + 'a>>;

impl Query<'_> {
    fn sql(&self) -> Sql {
        match self {
            Self::Token(_) => Sql::Token,
            Self::Get(space, _) => Sql::Get(*space),
            Self::MultiGet(space, _) => Sql::MultiGet(*space),
            Self::Page(space, direction, Bounds { end: Some(_), .. }, _) => Sql::Page(*space, *direction, PageEnd::Key),
            Self::Page(space, direction, _, _) => Sql::Page(*space, *direction, PageEnd::Open),
        }
    }
}

impl LastCommit {
    pub(crate) fn of(row: Option<&Row>) -> Result<Self> {
        let Some(row) = row else { return Ok(Self::default()) };
        let broken = |column: &str| StorageError::Corrupt(format!("the last commit of a shard has no {column}"));
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

/// PostgreSQL has only signed integers. Only the equality of shards matters.
pub(crate) fn number(shard: Shard) -> i64 {
    shard.0.cast_signed()
}
