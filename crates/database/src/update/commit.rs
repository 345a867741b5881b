//! Commits of the update queue: a [`Group`] is retried until it is committed or fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use settee_storage::{Durability, Purpose, ShardLock, StorageError};

use super::contents::{Contents, Named};
use super::group::Group;
use super::queue::Pending;
use super::touched::Documents;
use super::writer::{COMMITS_READING_FIRST, LaterChanges, Writer};
use super::{Completion, UpdateOutcome, Work, WorkResult};
use crate::attempt::Attempt;
use crate::database::Database;
use crate::{DatabaseError, Event, ReadSet, Result};

/// Commits `works` under the shard lock `shard_lock` and completes each of them. If a completion panics, the others are
/// still called; the last panic is returned.
pub(super) fn commit(
    database: &Arc<Database>,
    writer: &mut Writer,
    shard_lock: ShardLock,
    mut works: Vec<Pending>,
) -> thread::Result<()> {
    let mut refused = Vec::new();
    if let Err(error) = database.engine().check() {
        // On a full disk, work that frees space is committed apart from work that needs space.
        let grows = |item: &mut Pending| item.work.purpose() == Purpose::Growth;
        refused = works.extract_if(.., grows).map(|item| (item.done, Err(error.clone().into()))).collect();
    }
    let read_sets = works.iter().filter_map(|item| item.read_set.clone()).collect();
    let works = works.into_iter().map(|item| (item.work, (item.done, item.read_set.is_some()))).collect();
    let (results, mut panicked) = match results(database, writer, shard_lock, read_sets, works) {
        Ok(results) => (results, Ok(())),
        // A dropped completion informs its owner of the failure.
        Err(panic) => (Vec::new(), Err(panic)),
    };
    for (done, result) in results.into_iter().chain(refused) {
        panicked = catch_unwind(AssertUnwindSafe(|| done(result))).and(panicked);
    }
    panicked
}

/// Commits works, some of which may depend on `read_sets`, and returns the result for each completion.
fn results(
    database: &Arc<Database>,
    writer: &mut Writer,
    shard_lock: ShardLock,
    read_sets: Vec<ReadSet>,
    works: Vec<(Work, (Completion, bool))>,
) -> thread::Result<Vec<(Completion, WorkResult)>> {
    let has_read_sets = !read_sets.is_empty();
    let (works, waiting): (Vec<Work>, Vec<_>) = works.into_iter().unzip();
    let attempt = Attempt::new(database.next_token()).with_read_sets(read_sets);
    match catch_unwind(AssertUnwindSafe(|| commit_until_done(database, writer, shard_lock, &works, attempt)))? {
        Ok(outcomes) => {
            database.counters().committed(&works, &outcomes);
            Ok(waiting.into_iter().map(|(done, _)| done).zip(outcomes.into_iter().map(Ok)).collect())
        }
        Err(error @ DatabaseError::Storage(StorageError::Outdated)) if has_read_sets => {
            let all = works.into_iter().zip(waiting);
            let (with_read_sets, free): (Vec<_>, Vec<_>) = all.partition(|(_, (_, has_read_sets))| *has_read_sets);
            // Works without a read set are committed again without the outdated ones.
            let free = if free.is_empty() {
                Vec::new()
            } else {
                results(database, writer, ShardLock::default(), Vec::new(), free)?
            };
            Ok(with_read_sets.into_iter().map(|(_, (done, _))| (done, Err(error.clone()))).chain(free).collect())
        }
        Err(error) => Ok(waiting.into_iter().map(|(done, _)| (done, Err(error.clone()))).collect()),
    }
}

/// Limits of the wait for an engine that is being opened again: 1500 times 20 ms, half a minute.
const INTERRUPTIONS_MAX: u32 = 1500;
const INTERRUPTION: Duration = Duration::from_millis(20);

/// Commits `works` and retries after conflicts. The shard lock `shard_lock` ends with the first commit.
fn commit_until_done(
    database: &Arc<Database>,
    writer: &mut Writer,
    mut shard_lock: ShardLock,
    works: &[Work],
    mut attempt: Attempt,
) -> Result<Vec<Vec<UpdateOutcome>>> {
    let mut outcomes = Vec::new();
    let mut left = INTERRUPTIONS_MAX;
    loop {
        let tried = writer
            .lock_shard(database, &mut shard_lock)
            .and_then(|is_current| attempt.check().map(|()| is_current))
            .and_then(|is_current| try_commit(database, writer, works, is_current, &mut attempt, &mut outcomes));
        match tried {
            Ok(true) => return Ok(outcomes),
            Ok(false) => {
                // After a conflict with another process, the next try waits for the shard lock.
                writer.give_way(database);
                drop(std::mem::take(&mut shard_lock));
                shard_lock = writer.line_up(database);
            }
            Err(DatabaseError::Storage(StorageError::Interrupted(_))) if left > 0 => {
                left -= 1;
                thread::park_timeout(INTERRUPTION);
            }
            // A document exists that was expected to be new. The next try reads first, so this can happen only once.
            Err(DatabaseError::Storage(StorageError::Present(_))) if writer.commits_reading_first == 0 => {
                writer.commits_reading_first = COMMITS_READING_FIRST;
            }
            Err(error) if !attempt.goes_on(database.engine().as_ref(), purpose(works), &error) => {
                return Err(attempt.give_up(error));
            }
            Err(_) => {}
        }
    }
}

/// Tries one commit. Returns `false` if the caller must retry. `is_current` must be true only if the writer has seen
/// the last commit of any process.
fn try_commit(
    database: &Arc<Database>,
    writer: &mut Writer,
    works: &[Work],
    is_current: bool,
    attempt: &mut Attempt,
    outcomes: &mut Vec<Vec<UpdateOutcome>>,
) -> Result<bool> {
    let (engine, shard) = (database.engine(), database.shard());
    if database.is_closed() {
        return Err(DatabaseError::NotFound);
    }
    let snapshot = engine.snapshot(shard)?;
    // If several processes write, the read includes the changes of their commits.
    let later = LaterChanges::after(writer.state);
    let requests = later.requests();
    let is_known = is_current || writer.locked_commits == 0;
    let besides = if is_known { &[] } else { &requests[1..] };
    let may_guess = is_known && writer.commits_reading_first == 0 && !attempt.is_in_doubt() && engine.refuses_present();
    if may_guess && let Some(documents) = Documents::likely_new(works) {
        let mut group =
            Group::new(database, writer, snapshot.as_ref(), (documents, Contents::default()), purpose(works));
        *outcomes = group.apply_all(works)?;
        // The commit validates the assumption that the documents are new. A refusal may be due to that assumption, so
        // it is checked with the stored documents.
        if outcomes.iter().flatten().all(|outcome| matches!(outcome, UpdateOutcome::Saved(_))) {
            return group.finish(attempt, durability(works));
        }
    }
    let named = Named::by(database, works);
    let (state, documents, contents, besides) = Documents::read(snapshot.as_ref(), works, named, besides)?;
    if state != writer.state {
        // Another process has committed to the shard, or an earlier try was applied.
        writer.learn(database, snapshot.as_ref(), state, besides)?;
    }
    if attempt.happened(state, snapshot.as_ref())? {
        *database.ranks.lock() = [Arc::clone(&writer.ranks), Arc::clone(&writer.ranks)];
        database.notify(Event::Committed(writer.meta.update_seq));
        return Ok(true);
    }
    let mut group = Group::new(database, writer, snapshot.as_ref(), (documents, contents), purpose(works));
    *outcomes = group.apply_all(works)?;
    group.finish(attempt, durability(works))
}

/// Returns [`Purpose::Room`] if all works free space.
fn purpose(works: &[Work]) -> Purpose {
    if works.iter().all(|work| work.purpose() == Purpose::Room) { Purpose::Room } else { Purpose::Growth }
}

/// Chunks of attachments need no sync of their own, because the sync of their revision's commit includes all earlier
/// commits.
fn durability(works: &[Work]) -> Durability {
    let only_staged = !works.is_empty() && works.iter().all(|work| matches!(work, Work::Stage(_)));
    if only_staged { Durability::Buffered } else { Durability::Synced }
}
