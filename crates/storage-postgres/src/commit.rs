//! Commits: one transaction, sent in one round trip, that starts with the fence of its shard.
//!
//! Small commits may share a transaction with commits to other shards (the module `joint`); those that fail together
//! are retried separately. A commit whose connection is lost is retried with the same token. If the first attempt was
//! applied, or is applied during the retry, the fence rejects the retry, and the token identifies the commit that was
//! applied.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use settee_storage::members::Claim;
use settee_storage::{Batch, CommitToken, Outcome, Result, Shard, StorageError, Version};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use crate::connect::{Link, pipelined};
use crate::error::Failure;
use crate::fence::{self, FENCE_PARAMETERS, SWEEP_PARAMETERS};
use crate::joint::{Joint, JointOutcome};
use crate::lease::{LastCommit, number};
use crate::nodes_sql::NodesSql;
use crate::pieces::{PIECE_ROWS, Parameter, Piece, pieces};
use crate::pool::{Leased, Pool};
use crate::shape::Shape;
use crate::sql::Sql;

/// Commits of fewer bytes are one statement.
const STATEMENT_BYTES_MAX: usize = 256 << 10;

/// Commits of more bytes are sent in pieces, so that they are not in memory twice.
const ROUND_TRIP_BYTES_MAX: usize = 64 << 20;

/// A commit with unknown outcome is resolved within this time, unless the server is unresponsive.
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(30);
const RESOLVE_INTERVAL: Duration = Duration::from_millis(50);

const ATTEMPTS_MAX: u32 = 20;

/// A commit that makes all preceding commits of the server durable.
pub(crate) const SYNC: &str = "UPDATE settee_schema SET synced = synced + 1";

#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) shard: Shard,
    pub(crate) expected: Version,
    pub(crate) token: CommitToken,
    pub(crate) batch: Batch,
    pub(crate) node: i64,
}

impl Commit {
    fn is_small(&self) -> bool {
        self.batch.size_bytes() <= STATEMENT_BYTES_MAX && self.batch.len() <= PIECE_ROWS
    }

    fn outcome(&self) -> Outcome {
        Outcome::Committed(Version(self.expected.0 + 1))
    }
}

/// Joins concurrent commits if this one is small. After an error other than a conflict, the commit was not applied.
pub(crate) async fn commit(joint: &Arc<Joint>, commit: Commit) -> Result<Outcome> {
    let (started, commit) = (Instant::now(), Arc::new(commit));
    if !Joint::accepts(&commit) {
        return commit_single(joint.pool(), &commit, started, false).await;
    }
    match joint.commit(&commit).await {
        JointOutcome::Committed => Ok(commit.outcome()),
        JointOutcome::Rejected(error) => Err(error),
        JointOutcome::Failed { is_unknown } => commit_single(joint.pool(), &commit, started, is_unknown).await,
    }
}

/// `is_unknown` is true if the commit may have been applied already.
async fn commit_single(pool: &Arc<Pool>, commit: &Commit, started: Instant, mut is_unknown: bool) -> Result<Outcome> {
    let mut attempts = 0;
    loop {
        let leased = match pool.acquire().await {
            Ok(leased) => leased,
            Err(_) if is_unknown && started.elapsed() < RESOLVE_TIMEOUT && !pool.connector().is_unresponsive() => {
                tokio::time::sleep(RESOLVE_INTERVAL).await;
                continue;
            }
            Err(_) if is_unknown => return Ok(Outcome::Unknown),
            Err(error) => return Err(error),
        };
        let result = if commit.is_small() { in_one_statement(&leased, &[commit]).await } else { None };
        let result = match result {
            Some(result) => result,
            None => in_several_statements(&leased, commit).await,
        };
        let failure = match result {
            Ok(()) => return Ok(commit.outcome()),
            Err(Failure::Conflict) => match resolve_conflict(&leased, commit).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        match failure {
            Failure::Lost(_) => {
                leased.set_broken();
                is_unknown = true;
                if started.elapsed() > RESOLVE_TIMEOUT {
                    return Ok(Outcome::Unknown);
                }
            }
            Failure::Retry(_) | Failure::Conflict if attempts < ATTEMPTS_MAX && started.elapsed() < RESOLVE_TIMEOUT => {
                attempts += 1;
            }
            // An earlier attempt may still be in progress, whatever the result of this one.
            _ if is_unknown => return Ok(Outcome::Unknown),
            Failure::Retry(_) | Failure::Conflict | Failure::Permanent(_) => {
                return Err(failure.into_error());
            }
        }
    }
}

/// The commits must be small and ordered by shard. They are applied atomically. `None` if the connection has no
/// capacity for the statement.
pub(crate) async fn in_one_statement(leased: &Leased, commits: &[&Commit]) -> Option<Result<(), Failure>> {
    let batches: Vec<(i64, &Batch)> = commits.iter().map(|commit| (number(commit.shard), &commit.batch)).collect();
    let (pieces, fences) = (pieces(&batches), Fences::of(commits));
    let shape = Shape::of(pieces.iter().map(|piece| piece.sql))?;
    let sql = Sql::Commit(if fences.is_sweeping() { shape.sweeping() } else { shape });
    if !leased.link().can_prepare(sql) {
        return None;
    }
    Some(execute_statement(leased.link(), sql, &fences, &pieces).await)
}

async fn execute_statement(link: &Link, sql: Sql, fences: &Fences<'_>, pieces: &[Piece<'_>]) -> Result<(), Failure> {
    let statement = link.statement(sql).await?;
    let mut parameters = fences.parameters().to_vec();
    pieces.iter().for_each(|piece| parameters.extend(piece.parameters()));
    Ok(execute(link, &statement, &parameters).await?)
}

async fn in_several_statements(leased: &Leased, commit: &Commit) -> Result<(), Failure> {
    let link = leased.link();
    let (pieces, fences) = (pieces(&[(number(commit.shard), &commit.batch)]), Fences::of(&[commit]));
    let sweep = fences.is_sweeping().then(|| (Sql::Sweep, fences.sweep_parameters().to_vec()));
    let writes = pieces.iter().map(|piece| (piece.sql, piece.parameters().collect()));
    let parts: Vec<(Sql, Vec<Parameter<'_>>)> =
        [(Sql::Fence, fences.parameters().to_vec())].into_iter().chain(sweep).chain(writes).collect();
    // Prepared before the transaction, because statements of one round trip must not wait for each other.
    let statements = link.statements(parts.iter().map(|(sql, _)| *sql)).await?;
    leased.set_in_transaction(true);
    let started: Request<'_> = Box::pin(link.client.batch_execute("BEGIN"));
    let made = parts
        .iter()
        .zip(&statements)
        .map(|((_, parameters), statement)| -> Request<'_> { Box::pin(execute(link, statement, parameters)) });
    let ended: Request<'_> = Box::pin(link.client.batch_execute("COMMIT"));
    let requests = [started].into_iter().chain(made).chain([ended]);
    if commit.batch.size_bytes() <= ROUND_TRIP_BYTES_MAX {
        // The first error is the cause of the others, also of the failed end of the transaction.
        pipelined(requests.collect()).await.into_iter().collect::<Result<(), Error>>()?;
    } else {
        for request in requests {
            request.await?;
        }
    }
    leased.set_in_transaction(false);
    Ok(())
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

struct Fences<'a> {
    shards: Vec<i64>,
    expected: Vec<i64>,
    tokens: Vec<Vec<u8>>,
    heads: Vec<Option<&'a [u8]>>,
    node: i64,
    claim_keys: Vec<&'a str>,
    claim_epochs: Vec<i64>,
}

impl<'a> Fences<'a> {
    fn of(commits: &[&'a Commit]) -> Self {
        let mut claims: Vec<&Claim> = commits.iter().filter_map(|commit| commit.batch.claim()).collect();
        claims.dedup();
        Self {
            shards: commits.iter().map(|commit| number(commit.shard)).collect(),
            expected: commits.iter().map(|commit| version(commit.expected)).collect(),
            tokens: commits.iter().map(|commit| commit.token.0.to_be_bytes().to_vec()).collect(),
            heads: commits.iter().map(|commit| commit.batch.head()).collect(),
            node: commits.first().map_or(0, |commit| commit.node),
            claim_keys: claims.iter().map(|claim| claim.key.as_str()).collect(),
            claim_epochs: claims.iter().map(|claim| epoch(claim)).collect(),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; FENCE_PARAMETERS] {
        let Self { shards, expected, tokens, heads, node, claim_keys, claim_epochs } = self;
        [shards, expected, tokens, heads, node, claim_keys, claim_epochs]
    }

    fn is_sweeping(&self) -> bool {
        self.expected.iter().copied().any(fence::is_sweeping)
    }

    fn sweep_parameters(&self) -> [Parameter<'_>; SWEEP_PARAMETERS] {
        [&self.shards, &self.expected]
    }
}

/// No shard reaches the maximum, so a larger version conflicts.
fn version(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX - 1)
}

fn epoch(claim: &Claim) -> i64 {
    i64::try_from(claim.epoch).unwrap_or(i64::MAX)
}

pub(crate) async fn execute(link: &Link, statement: &Statement, parameters: &[Parameter<'_>]) -> Result<(), Error> {
    link.client.execute(statement, parameters).await.map(drop)
}

/// The conflict may be with an earlier attempt of the same commit.
async fn resolve_conflict(leased: &Leased, commit: &Commit) -> Result<Outcome, Failure> {
    let link = leased.link();
    let shard = number(commit.shard);
    let next = i64::try_from(commit.expected.0).map_or(i64::MAX, |expected| expected.saturating_add(1));
    // The transaction has failed; statements can be prepared only outside of it.
    let (of_token, of_state) = match (link.prepared(Sql::Token), link.prepared(Sql::State)) {
        (Some(of_token), Some(of_state)) => (of_token, of_state),
        _ => {
            link.client.batch_execute("ROLLBACK").await?;
            (link.statement(Sql::Token).await?, link.statement(Sql::State).await?)
        }
    };
    let ended: Pin<Box<dyn Future<Output = _> + Send + '_>> =
        Box::pin(async { link.client.batch_execute("ROLLBACK").await.map(|()| Vec::new()) });
    let parameters: [&(dyn ToSql + Sync); 2] = [&shard, &next];
    let of_token = Box::pin(link.client.query(&of_token, &parameters));
    let of_state = Box::pin(link.client.query(&of_state, &parameters[..1]));
    let mut answers = pipelined(vec![ended, of_token, of_state]).await.into_iter();
    answers.next().transpose()?;
    leased.set_in_transaction(false);
    let found = answers.next().transpose()?.unwrap_or_default();
    let rows = answers.next().transpose()?.unwrap_or_default();
    let token = commit.token.0.to_be_bytes();
    if found.first().is_some_and(|row| row.try_get::<_, &[u8]>(0).is_ok_and(|found| found == token)) {
        // The earlier attempt may not be durable: a primary that is being shut down shows commits that no standby has.
        link.client.batch_execute(SYNC).await?;
        return Ok(Outcome::Committed(Version(commit.expected.0 + 1)));
    }
    let last = LastCommit::of(rows.first()).map_err(Failure::Permanent)?;
    if last.state.version == commit.expected && !last.is_dropped {
        if let Some(claim) = commit.batch.claim() {
            let statement = link.statement(Sql::Nodes(NodesSql::IsHeld)).await?;
            let row = link.client.query_one(&statement, &[&claim.key, &epoch(claim)]).await?;
            if !row.try_get::<_, bool>(0)? {
                return Err(Failure::Permanent(StorageError::Deposed));
            }
        }
        // The other commit was rolled back.
        return Err(Failure::Retry("a commit conflicted with another one that was rolled back".to_owned()));
    }
    Ok(Outcome::Conflict(last.state.version))
}

pub(crate) async fn drop_shard(pool: &Arc<Pool>, shard: Shard, node: i64) -> Result<()> {
    let (started, mut attempts, mut is_unknown) = (Instant::now(), 0, false);
    let ended = |error: StorageError, is_unknown| Err(if is_unknown { error.in_doubt() } else { error });
    loop {
        let leased = match pool.acquire().await {
            Ok(leased) => leased,
            Err(error) => return ended(error, is_unknown),
        };
        let answer = async {
            let statement = leased.link().statement(Sql::Drop).await?;
            leased.link().client.query(&statement, &[&number(shard), &node]).await
        };
        match answer.await.map_err(Failure::from) {
            Ok(_) => return Ok(()),
            Err(Failure::Lost(_)) if started.elapsed() < RESOLVE_TIMEOUT => {
                leased.set_broken();
                is_unknown = true;
            }
            Err(Failure::Conflict | Failure::Retry(_)) if attempts < ATTEMPTS_MAX => attempts += 1,
            Err(failure) => return ended(failure.into_error(), is_unknown),
        }
    }
}
