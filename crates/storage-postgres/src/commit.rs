//! Commits: one transaction, sent as a whole in one trip, that begins with the fence of its shard.
//!
//! Small ones may share it with commits to other shards (the module `joint`); what fails together is tried alone. A commit whose connection is
//! lost is made again with the same token. If the first one did happen, or happens while that
//! runs, the fence refuses the second one, and the token tells whose commit is there. Who has lined up (the module `line`) commits in the
//! transaction in which it waited.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use settee_storage::{Batch, CommitToken, Durability, Outcome, Premise, Result, Shard, Version};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use crate::connect::{Link, together};
use crate::error::Failure;
use crate::fence::{self, FENCE_PARAMETERS, PREMISE_PARAMETERS, SWEEP_PARAMETERS};
use crate::follow::moment;
use crate::joint::{Joined, Joint};
use crate::lease::{Last, number};
use crate::pieces::{PIECE_ROWS, Parameter, Piece, pieces};
use crate::pool::{Leased, Pool};
use crate::shape::Shape;
use crate::sql::Sql;

/// Commits of fewer bytes are one statement.
const STATEMENT_BYTES: usize = 256 << 10;

/// Commits of more bytes are sent piece by piece, so that they are not in memory twice.
const TRIP_BYTES: usize = 64 << 20;

/// How long a commit is tried of which nobody knows whether it happened, unless there is silence.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_STEP: Duration = Duration::from_millis(50);

/// Commits that the server wants made again.
const TRIES: u32 = 20;

/// What is to be committed.
#[derive(Debug)]
pub(crate) struct Commit {
    pub(crate) shard: Shard,
    pub(crate) expected: Version,
    pub(crate) token: CommitToken,
    pub(crate) batch: Batch,
    pub(crate) node: i64,
    pub(crate) durability: Durability,
}

impl Commit {
    /// Whether it can be one statement.
    fn is_small(&self) -> bool {
        let Self { batch, durability, .. } = self;
        *durability == Durability::Synced && batch.size_bytes() <= STATEMENT_BYTES && batch.len() <= PIECE_ROWS
    }

    fn done(&self) -> Outcome {
        Outcome::Committed(Version(self.expected.0 + 1))
    }
}

/// Makes a commit, in the transaction of a turn if there is one, and otherwise together with others that come at the same moment.
///
/// # Errors
/// When it did not happen, for another reason than a conflict.
pub(crate) async fn commit(joint: &Arc<Joint>, turn: Option<Leased>, commit: Commit) -> Result<Outcome> {
    let (begun, commit) = (Instant::now(), Arc::new(commit));
    if turn.is_some() || !Joint::takes(&commit) {
        return alone(joint.pool(), turn, &commit, begun, false).await;
    }
    match joint.make(&commit).await {
        Joined::Committed => Ok(commit.done()),
        Joined::Refused(error) => Err(error),
        Joined::Failed { is_unknown } => alone(joint.pool(), None, &commit, begun, is_unknown).await,
    }
}

/// Makes a commit by itself. `is_unknown` if it may have been made already.
async fn alone(
    pool: &Arc<Pool>,
    mut turn: Option<Leased>,
    commit: &Commit,
    begun: Instant,
    mut is_unknown: bool,
) -> Result<Outcome> {
    let mut tries = 0;
    loop {
        let taken = if let Some(held) = turn.take() { Ok(held) } else { pool.take().await };
        let leased = match taken {
            Ok(leased) => leased,
            Err(_) if is_unknown && begun.elapsed() < PATIENCE && !pool.connector().is_silent() => {
                tokio::time::sleep(PATIENCE_STEP).await;
                continue;
            }
            Err(_) if is_unknown => return Ok(Outcome::Unknown),
            Err(error) => return Err(error),
        };
        let tried = if commit.is_small() { at_once(&leased, &[commit]).await } else { None };
        let tried = match tried {
            Some(tried) => tried,
            None => in_pieces(&leased, commit).await,
        };
        let failure = match tried {
            Ok(()) => return Ok(commit.done()),
            Err(Failure::Conflict) => match who_was_first(&leased, commit).await {
                Ok(outcome) => return Ok(outcome),
                Err(failure) => failure,
            },
            Err(failure) => failure,
        };
        match failure {
            Failure::Lost(_) => {
                leased.set_broken();
                is_unknown = true;
                if begun.elapsed() > PATIENCE {
                    return Ok(Outcome::Unknown);
                }
            }
            Failure::Again(_) | Failure::Conflict if tries < TRIES && begun.elapsed() < PATIENCE => tries += 1,
            // An earlier try may be on its way still, whatever the server says of this one.
            _ if is_unknown => return Ok(Outcome::Unknown),
            Failure::Again(_) | Failure::Conflict | Failure::Outdated | Failure::Refused(_) => {
                return Err(failure.into_error());
            }
        }
    }
}

/// Makes small commits to different shards by one statement, all or none. They come in the order of their shards. `None` if the connection has
/// no room for the statement.
pub(crate) async fn at_once(leased: &Leased, commits: &[&Commit]) -> Option<Result<(), Failure>> {
    let premise =
        commits.iter().filter_map(|commit| commit.batch.premise().cloned()).reduce(|one, other| one.and(&other));
    // A later connection may be one to another server than that which was asked, or to one that had to start anew: it gives numbers of transactions
    // out again.
    if premise.as_ref().is_some_and(|premise| moment(leased.link().since()) >= premise.moment()) {
        return Some(Err(Failure::Outdated));
    }
    let batches: Vec<(i64, &Batch)> = commits.iter().map(|commit| (number(commit.shard), &commit.batch)).collect();
    let (pieces, fences) = (pieces(&batches), Fences::of(commits));
    let shape = Shape::of(pieces.iter().map(|piece| piece.sql))?;
    let sql = Sql::Commit(if fences.is_sweeping() { shape.sweeping() } else { shape });
    if !leased.link().has_room_for(sql) {
        return None;
    }
    Some(by_statement(leased, sql, (&fences, &Presumed::of(premise.as_ref())), &pieces).await)
}

async fn by_statement(
    leased: &Leased,
    sql: Sql,
    (fences, presumed): (&Fences<'_>, &Presumed<'_>),
    pieces: &[Piece<'_>],
) -> Result<(), Failure> {
    let link = leased.link();
    let statement = link.statement(sql).await?;
    let mut parameters = fences.parameters().to_vec();
    parameters.extend(presumed.parameters());
    pieces.iter().for_each(|piece| parameters.extend(piece.parameters()));
    // By itself it is a transaction. Who has lined up has begun one.
    let is_written = AtomicBool::new(false);
    let written: Request<'_> = Box::pin(async {
        let rows = link.client.query(&statement, &parameters).await?;
        is_written.store(!rows.is_empty(), Ordering::Relaxed);
        Ok(())
    });
    if leased.is_in_transaction() {
        let ended: Request<'_> = Box::pin(link.client.batch_execute("COMMIT"));
        together(vec![written, ended]).await.into_iter().collect::<Result<(), Error>>()?;
        leased.set_in_transaction(false);
    } else {
        written.await?;
    }
    if is_written.into_inner() { Ok(()) } else { Err(Failure::Outdated) }
}

/// Makes a commit by a statement for each of its pieces. It must presume nothing.
async fn in_pieces(leased: &Leased, commit: &Commit) -> Result<(), Failure> {
    if commit.batch.premise().is_some() {
        return Err(Failure::Outdated);
    }
    let link = leased.link();
    let (pieces, fences) = (pieces(&[(number(commit.shard), &commit.batch)]), Fences::of(&[commit]));
    let sweep = fences.is_sweeping().then(|| (Sql::Sweep, fences.sweep_parameters().to_vec()));
    let writes = pieces.iter().map(|piece| (piece.sql, piece.parameters().collect()));
    let parts: Vec<(Sql, Vec<Parameter<'_>>)> =
        [(Sql::Fence, fences.parameters().to_vec())].into_iter().chain(sweep).chain(writes).collect();
    // Before the transaction: what is sent in one trip may not wait for anything.
    let statements = link.statements(parts.iter().map(|(sql, _)| *sql)).await?;
    let begin = match (commit.durability, leased.set_in_transaction(true)) {
        (Durability::Synced, false) => "BEGIN",
        (Durability::Buffered, false) => "BEGIN; SET LOCAL synchronous_commit TO off",
        // Who has lined up has begun.
        (Durability::Synced, true) => "",
        (Durability::Buffered, true) => "SET LOCAL synchronous_commit TO off",
    };
    let begun: Request<'_> = Box::pin(link.client.batch_execute(begin));
    let made = parts
        .iter()
        .zip(&statements)
        .map(|((_, parameters), statement)| -> Request<'_> { Box::pin(written(link, statement, parameters)) });
    let ended: Request<'_> = Box::pin(link.client.batch_execute("COMMIT"));
    let requests = [begun].into_iter().chain(made).chain([ended]);
    if commit.batch.size_bytes() <= TRIP_BYTES {
        // The first error is the cause of the others, and of the end being none.
        together(requests.collect()).await.into_iter().collect::<Result<(), Error>>()?;
    } else {
        for request in requests {
            request.await?;
        }
    }
    leased.set_in_transaction(false);
    Ok(())
}

type Request<'a> = Pin<Box<dyn Future<Output = Result<(), Error>> + Send + 'a>>;

/// The fences of commits, as parameters.
struct Fences<'a> {
    shards: Vec<i64>,
    expected: Vec<i64>,
    tokens: Vec<Vec<u8>>,
    heads: Vec<Option<&'a [u8]>>,
    node: i64,
}

impl<'a> Fences<'a> {
    fn of(commits: &[&'a Commit]) -> Self {
        Self {
            shards: commits.iter().map(|commit| number(commit.shard)).collect(),
            expected: commits.iter().map(|commit| version(commit.expected)).collect(),
            tokens: commits.iter().map(|commit| commit.token.0.to_be_bytes().to_vec()).collect(),
            heads: commits.iter().map(|commit| commit.batch.head()).collect(),
            // All are of this process.
            node: commits.first().map_or(0, |commit| commit.node),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; FENCE_PARAMETERS] {
        [&self.shards, &self.expected, &self.tokens, &self.heads, &self.node]
    }

    /// Whether it is one of the commits' turn to [sweep](fence::sweep).
    fn is_sweeping(&self) -> bool {
        self.expected.iter().copied().any(fence::is_sweeping)
    }

    fn sweep_parameters(&self) -> [Parameter<'_>; SWEEP_PARAMETERS] {
        [&self.shards, &self.expected]
    }
}

/// What commits presume, as parameters.
struct Presumed<'a> {
    shards: Vec<i64>,
    shown: Option<&'a str>,
}

impl<'a> Presumed<'a> {
    fn of(premise: Option<&'a Premise>) -> Self {
        let shards = premise.map(Premise::shards).unwrap_or_default();
        Self { shards: shards.iter().copied().map(number).collect(), shown: premise.map(Premise::heard) }
    }

    fn parameters(&self) -> [Parameter<'_>; PREMISE_PARAMETERS] {
        [&self.shards, &self.shown]
    }
}

/// No shard has more, so that a larger one conflicts.
fn version(version: Version) -> i64 {
    i64::try_from(version.0).unwrap_or(i64::MAX - 1)
}

/// Has a statement write.
pub(crate) async fn written(link: &Link, statement: &Statement, parameters: &[Parameter<'_>]) -> Result<(), Error> {
    link.client.execute(statement, parameters).await.map(drop)
}

/// After a conflict: it may have been with this very commit.
async fn who_was_first(leased: &Leased, commit: &Commit) -> Result<Outcome, Failure> {
    let link = leased.link();
    let shard = number(commit.shard);
    let next = i64::try_from(commit.expected.0).map_or(i64::MAX, |expected| expected.saturating_add(1));
    // The transaction has failed, and statements can be made only outside of it.
    let (of_token, of_state) = match (link.known(Sql::Token), link.known(Sql::State)) {
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
    let mut answers = together(vec![ended, of_token, of_state]).await.into_iter();
    answers.next().transpose()?;
    leased.set_in_transaction(false);
    let found = answers.next().transpose()?.unwrap_or_default();
    let rows = answers.next().transpose()?.unwrap_or_default();
    let token = commit.token.0.to_be_bytes();
    if found.first().is_some_and(|row| row.try_get::<_, &[u8]>(0).is_ok_and(|found| found == token)) {
        return Ok(Outcome::Committed(Version(commit.expected.0 + 1)));
    }
    let last = Last::of(rows.first()).map_err(Failure::Refused)?;
    if last.state.version == commit.expected && !last.is_dropped {
        // Whoever was first has not ended well.
        return Err(Failure::Again("a commit gave way to another that did not happen".to_owned()));
    }
    Ok(Outcome::Conflict(last.state.version))
}

/// Makes the last commit of a shard.
pub(crate) async fn drop_shard(pool: &Arc<Pool>, shard: Shard, node: i64) -> Result<()> {
    let (begun, mut tries) = (Instant::now(), 0);
    loop {
        let leased = pool.take().await?;
        let answer = async {
            let statement = leased.link().statement(Sql::Drop).await?;
            leased.link().client.query(&statement, &[&number(shard), &node]).await
        };
        match answer.await.map_err(Failure::from) {
            Ok(_) => return Ok(()),
            Err(Failure::Lost(_)) if begun.elapsed() < PATIENCE => leased.set_broken(),
            Err(Failure::Conflict | Failure::Again(_)) if tries < TRIES => tries += 1,
            Err(failure) => return Err(failure.into_error()),
        }
    }
}
