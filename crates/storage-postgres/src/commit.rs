//! Commits: one transaction, sent as a whole in one trip, that begins with the fence of its shard.
//!
//! A commit whose connection is lost is made again with the same token. If the first one did happen, or happens while that
//! runs, the fence refuses the second one, and the token tells whose commit is there. Who has lined up (the module `line`) commits in the
//! transaction in which it waited.

use std::borrow::Cow;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use settee_storage::{Batch, CommitToken, Durability, Keyspace, Operation, Outcome, Result, Shard, Version};
use tokio_postgres::types::ToSql;
use tokio_postgres::{Error, Statement};

use crate::connect::{Link, together};
use crate::error::Failure;
use crate::keys::{stored, stored_value};
use crate::lease::{Last, number};
use crate::pool::{Leased, Pool};
use crate::shape::{FENCE_PARAMETERS, Shape};
use crate::sql::{Kind, Sql};

/// Statements have so many rows and bytes at most: a message to PostgreSQL has a gigabyte, and must arrive in the time after which it ends the
/// transactions of writers of which it hears nothing.
const PIECE_ROWS: usize = 5_000;
const PIECE_BYTES: usize = 2 << 20;

/// Commits of fewer bytes are one statement.
const STATEMENT_BYTES: usize = 256 << 10;

/// Commits of more bytes are sent piece by piece, so that they are not in memory twice.
const TRIP_BYTES: usize = 64 << 20;

/// How long a commit is tried of which nobody knows whether it happened, unless there is silence.
const PATIENCE: Duration = Duration::from_secs(30);
const PATIENCE_STEP: Duration = Duration::from_millis(50);

/// Commits that the server wants made again.
const TRIES: u32 = 20;

/// What a commit does beside its writes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fence<'a> {
    pub(crate) shard: Shard,
    pub(crate) expected: Version,
    pub(crate) token: CommitToken,
    pub(crate) head: Option<&'a [u8]>,
    pub(crate) node: i64,
    pub(crate) durability: Durability,
}

/// A part of the writes of a commit: one statement.
pub(crate) struct Piece<'a> {
    pub(crate) sql: Sql,
    keys: Vec<Cow<'a, [u8]>>,
    values: Vec<Cow<'a, [u8]>>,
}

/// Makes a commit, in the transaction of a turn if there is one.
///
/// # Errors
/// When it did not happen, for another reason than a conflict.
pub(crate) async fn commit(
    pool: &Arc<Pool>,
    mut turn: Option<Leased>,
    fence: Fence<'_>,
    batch: &Batch,
) -> Result<Outcome> {
    let pieces = pieces(batch);
    let size = batch.size_bytes();
    let shape = Shape::of(pieces.iter().map(|piece| piece.sql));
    let shape = shape.filter(|_| size <= STATEMENT_BYTES && fence.durability == Durability::Synced);
    let (begun, mut tries, mut is_unknown) = (Instant::now(), 0, false);
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
        let tried = match shape.map(Sql::Commit).filter(|sql| leased.link().has_room_for(*sql)) {
            Some(sql) => attempt_at_once(&leased, fence, &pieces, sql).await,
            None => attempt(&leased, fence, &pieces, size <= TRIP_BYTES).await,
        };
        let failure = match tried {
            Ok(()) => return Ok(Outcome::Committed(Version(fence.expected.0 + 1))),
            Err(Failure::Conflict) => match who_was_first(&leased, fence).await {
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
            Failure::Again(_) | Failure::Conflict | Failure::Refused(_) => return Err(failure.into_error()),
        }
    }
}

/// Makes a commit of one statement.
async fn attempt_at_once(leased: &Leased, fence: Fence<'_>, pieces: &[Piece<'_>], sql: Sql) -> Result<(), Failure> {
    let link = leased.link();
    let statement = link.statement(sql).await?;
    let guard = Guard::of(fence);
    let mut parameters = guard.parameters().to_vec();
    pieces.iter().for_each(|piece| parameters.extend(piece.parameters()));
    // By itself it is a transaction. Who has lined up has begun one.
    if leased.is_in_transaction() {
        let written: Request<'_> = Box::pin(async { link.client.query(&statement, &parameters).await.map(drop) });
        let ended: Request<'_> = Box::pin(link.client.batch_execute("COMMIT"));
        together(vec![written, ended]).await.into_iter().collect::<Result<(), Error>>()?;
        leased.set_in_transaction(false);
    } else {
        link.client.query(&statement, &parameters).await?;
    }
    Ok(())
}

async fn attempt(leased: &Leased, fence: Fence<'_>, pieces: &[Piece<'_>], is_one_trip: bool) -> Result<(), Failure> {
    let link = leased.link();
    // Before the transaction: what is sent in one trip may not wait for anything.
    let guard = link.statement(Sql::Fence).await?;
    let statements = link.statements(pieces.iter().map(|piece| piece.sql)).await?;
    let begin = match (fence.durability, leased.set_in_transaction(true)) {
        (Durability::Synced, false) => "BEGIN",
        (Durability::Buffered, false) => "BEGIN; SET LOCAL synchronous_commit TO off",
        // Who has lined up has begun.
        (Durability::Synced, true) => "",
        (Durability::Buffered, true) => "SET LOCAL synchronous_commit TO off",
    };
    let begun: Request<'_> = Box::pin(link.client.batch_execute(begin));
    let guarded: Request<'_> = Box::pin(guarded(link, &guard, fence));
    let shard = number(fence.shard);
    let written = pieces
        .iter()
        .zip(&statements)
        .map(|(piece, statement)| -> Request<'_> { Box::pin(written(link, statement, shard, piece)) });
    let ended: Request<'_> = Box::pin(link.client.batch_execute("COMMIT"));
    let requests = [begun, guarded].into_iter().chain(written).chain([ended]);
    if is_one_trip {
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

type Parameter<'a> = &'a (dyn ToSql + Sync);

/// A fence as parameters.
struct Guard<'a> {
    shard: i64,
    expected: i64,
    token: Vec<u8>,
    head: Option<&'a [u8]>,
    node: i64,
}

impl<'a> Guard<'a> {
    fn of(fence: Fence<'a>) -> Self {
        // No shard has more, so that a larger one conflicts.
        let expected = i64::try_from(fence.expected.0).unwrap_or(i64::MAX - 1);
        let token = fence.token.0.to_be_bytes().to_vec();
        Self { shard: number(fence.shard), expected, token, head: fence.head, node: fence.node }
    }

    fn parameters(&self) -> [Parameter<'_>; FENCE_PARAMETERS] {
        [&self.shard, &self.expected, &self.token, &self.head, &self.node]
    }
}

async fn guarded(link: &Link, statement: &Statement, fence: Fence<'_>) -> Result<(), Error> {
    link.client.query(statement, &Guard::of(fence).parameters()).await.map(drop)
}

impl Piece<'_> {
    fn parameters(&self) -> impl Iterator<Item = Parameter<'_>> {
        let keys: Parameter<'_> = &self.keys;
        let values: Parameter<'_> = &self.values;
        [keys].into_iter().chain((!matches!(self.sql, Sql::Write(_, Kind::Delete))).then_some(values))
    }
}

pub(crate) async fn written(link: &Link, statement: &Statement, shard: i64, piece: &Piece<'_>) -> Result<(), Error> {
    let first: Parameter<'_> = &shard;
    let parameters: Vec<Parameter<'_>> = [first].into_iter().chain(piece.parameters()).collect();
    link.client.execute(statement, &parameters).await.map(drop)
}

/// After a conflict: it may have been with this very commit.
async fn who_was_first(leased: &Leased, fence: Fence<'_>) -> Result<Outcome, Failure> {
    let link = leased.link();
    let shard = number(fence.shard);
    let next = i64::try_from(fence.expected.0).map_or(i64::MAX, |expected| expected.saturating_add(1));
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
    let token = fence.token.0.to_be_bytes();
    if found.first().is_some_and(|row| row.try_get::<_, &[u8]>(0).is_ok_and(|found| found == token)) {
        return Ok(Outcome::Committed(Version(fence.expected.0 + 1)));
    }
    let last = Last::of(rows.first()).map_err(Failure::Refused)?;
    if last.state.version == fence.expected && !last.is_dropped {
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

/// The last write to each key of a batch.
struct Write<'a> {
    key: &'a [u8],
    /// None to remove it.
    value: Option<&'a [u8]>,
    is_new: bool,
}

impl Write<'_> {
    fn kind(&self) -> Kind {
        match self.value {
            None => Kind::Delete,
            Some(_) if self.is_new => Kind::Insert,
            Some(_) => Kind::Put,
        }
    }
}

/// What is left of a batch when earlier writes to the same key are taken out, in pieces by keyspace and kind.
pub(crate) fn pieces(batch: &Batch) -> Vec<Piece<'_>> {
    let mut spaces: [HashMap<&[u8], Write<'_>>; Keyspace::ALL.len()] = Default::default();
    for operation in batch.operations() {
        let (space, key, value, is_insert) = match operation {
            Operation::Put(space, key, value) => (space, key, Some(value), false),
            Operation::Insert(space, key, value) => (space, key, Some(value), true),
            Operation::Delete(space, key) => (space, key, None, false),
        };
        let writes = &mut spaces[space as usize];
        let is_new = is_insert && !writes.contains_key(key);
        writes.insert(key, Write { key, value, is_new });
    }
    let mut pieces = Vec::new();
    for (space, writes) in Keyspace::ALL.into_iter().zip(spaces) {
        let mut writes: Vec<Write<'_>> = writes.into_values().collect();
        // Neighbours lie in the same pages, and who writes in one order never waits in a circle.
        writes.sort_unstable_by_key(|write| write.key);
        for kind in Kind::ALL {
            divide(Sql::Write(space, kind), writes.iter().filter(|write| write.kind() == kind), &mut pieces);
        }
    }
    pieces
}

fn divide<'a, 'b>(sql: Sql, writes: impl Iterator<Item = &'b Write<'a>>, pieces: &mut Vec<Piece<'a>>)
where
    'a: 'b,
{
    let mut bytes = usize::MAX;
    for write in writes {
        let size = write.key.len() + write.value.map_or(0, <[u8]>::len);
        let is_full = pieces.last().is_none_or(|piece| piece.sql != sql || piece.keys.len() >= PIECE_ROWS);
        if is_full || bytes.saturating_add(size) > PIECE_BYTES {
            pieces.push(Piece { sql, keys: Vec::new(), values: Vec::new() });
            bytes = 0;
        }
        bytes += size;
        if let Some(piece) = pieces.last_mut() {
            piece.keys.push(stored(write.key));
            piece.values.extend(write.value.map(|value| stored_value(write.key, value)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each piece as its statement and the keys with what they are set to.
    fn shape(batch: &Batch) -> Vec<(Sql, Vec<String>)> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
        let lines = |piece: &Piece<'_>| {
            let value = |at: usize| piece.values.get(at).map_or(String::new(), |value| format!("={}", text(value)));
            piece.keys.iter().enumerate().map(|(at, key)| text(key) + &value(at)).collect()
        };
        pieces(batch).iter().map(|piece| (piece.sql, lines(piece))).collect()
    }

    #[test]
    fn the_last_write_of_a_key_is_left_sorted_by_kind() {
        let (space, other) = (Keyspace::Bodies, Keyspace::Local);
        let mut batch = Batch::new();
        batch.insert(space, b"new", b"1");
        batch.put(space, b"b", b"1");
        batch.put(space, b"a", b"1");
        batch.put(space, b"b", b"2");
        batch.delete(space, b"gone");
        batch.insert(space, b"new then gone", b"1");
        batch.delete(space, b"new then gone");
        batch.delete(space, b"gone then new");
        batch.insert(space, b"gone then new", b"3");
        batch.delete(other, b"a");
        let lines = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let wanted = [
            (Sql::Write(space, Kind::Delete), lines(&["gone", "new then gone"])),
            (Sql::Write(space, Kind::Put), lines(&["a=1", "b=2", "gone then new=3"])),
            (Sql::Write(space, Kind::Insert), lines(&["new=1"])),
            (Sql::Write(other, Kind::Delete), lines(&["a"])),
        ];
        assert_eq!(shape(&batch), wanted);
        assert_eq!(shape(&Batch::new()), []);
    }

    #[test]
    fn pieces_are_bounded() {
        let mut batch = Batch::new();
        for at in 0..PIECE_ROWS + 1 {
            batch.delete(Keyspace::Local, &at.to_be_bytes());
        }
        for at in 0..5_u8 {
            batch.put(Keyspace::Bodies, &[at], &vec![at; PIECE_BYTES / 2]);
        }
        batch.put(Keyspace::Bodies, &[9], &vec![9; 2 * PIECE_BYTES]);
        let sizes: Vec<(Sql, usize)> = pieces(&batch).iter().map(|piece| (piece.sql, piece.keys.len())).collect();
        let (bodies, local) = (Sql::Write(Keyspace::Bodies, Kind::Put), Sql::Write(Keyspace::Local, Kind::Delete));
        let mut wanted = vec![(bodies, 1); 6];
        wanted.extend([(local, PIECE_ROWS), (local, 1)]);
        assert_eq!(sizes, wanted);
    }
}
