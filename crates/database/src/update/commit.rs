//! From the works that waited to their results: a [`Group`] is tried until it is committed, or cannot be.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use settee_storage::{Durability, Purpose, StorageError, Turn};

use super::contents::{Contents, Named};
use super::group::Group;
use super::queue::Pending;
use super::touched::Documents;
use super::writer::{LOOKS, News, Writer};
use super::{Completion, UpdateOutcome, Work, WorkResult};
use crate::attempt::Attempt;
use crate::database::Database;
use crate::{DatabaseError, Event, Premise, Result};

/// Commits `works` in `turn` and answers each of them. A panic of one completion does not keep the others from their
/// answers; the last one is returned.
pub(super) fn commit(
    database: &Arc<Database>,
    writer: &mut Writer,
    turn: Turn,
    mut works: Vec<Pending>,
) -> thread::Result<()> {
    let mut refused = Vec::new();
    if let Err(error) = database.engine().check() {
        // Where there is no room to grow, what makes room must not wait in one commit with what does not.
        let grows = |item: &mut Pending| item.work.purpose() == Purpose::Growth;
        refused = works.extract_if(.., grows).map(|item| (item.done, Err(error.clone().into()))).collect();
    }
    let premises = works.iter().filter_map(|item| item.premise.clone()).collect();
    let works = works.into_iter().map(|item| (item.work, (item.done, item.premise.is_some()))).collect();
    let (results, mut panicked) = match results(database, writer, turn, premises, works) {
        Ok(results) => (results, Ok(())),
        // Dropping the completions tells their owners.
        Err(panic) => (Vec::new(), Err(panic)),
    };
    for (done, result) in results.into_iter().chain(refused) {
        panicked = catch_unwind(AssertUnwindSafe(|| done(result))).and(panicked);
    }
    panicked
}

/// Commits works, of which some may have been judged by `premises`, and tells what to answer whom.
fn results(
    database: &Arc<Database>,
    writer: &mut Writer,
    turn: Turn,
    premises: Vec<Premise>,
    works: Vec<(Work, (Completion, bool))>,
) -> thread::Result<Vec<(Completion, WorkResult)>> {
    let presumes = !premises.is_empty();
    let (works, waiting): (Vec<Work>, Vec<_>) = works.into_iter().unzip();
    let attempt = Attempt::new(database.next_token()).presuming(premises);
    match catch_unwind(AssertUnwindSafe(|| commit_until_done(database, writer, turn, &works, attempt)))? {
        Ok(outcomes) => {
            database.counters().committed(&works, &outcomes);
            Ok(waiting.into_iter().map(|(done, _)| done).zip(outcomes.into_iter().map(Ok)).collect())
        }
        Err(error @ DatabaseError::Storage(StorageError::Outdated)) if presumes => {
            let all = works.into_iter().zip(waiting);
            let (presuming, free): (Vec<_>, Vec<_>) = all.partition(|(_, (_, presumes))| *presumes);
            // Others are made as if those had not been there.
            let free = if free.is_empty() {
                Vec::new()
            } else {
                results(database, writer, Turn::default(), Vec::new(), free)?
            };
            Ok(presuming.into_iter().map(|(_, (done, _))| (done, Err(error.clone()))).chain(free).collect())
        }
        Err(error) => Ok(waiting.into_iter().map(|(done, _)| (done, Err(error.clone()))).collect()),
    }
}

/// An engine that is opened again is waited for, for half a minute at most.
const INTERRUPTIONS_MAX: u32 = 1500;
const INTERRUPTION: Duration = Duration::from_millis(20);

/// `turn` ends with the first commit.
fn commit_until_done(
    database: &Arc<Database>,
    writer: &mut Writer,
    mut turn: Turn,
    works: &[Work],
    mut attempt: Attempt,
) -> Result<Vec<Vec<UpdateOutcome>>> {
    let mut outcomes = Vec::new();
    let mut left = INTERRUPTIONS_MAX;
    loop {
        let tried = writer
            .take_turn(database, &mut turn)
            .and_then(|is_current| attempt.check().map(|()| is_current))
            .and_then(|is_current| try_commit(database, writer, works, is_current, &mut attempt, &mut outcomes));
        match tried {
            Ok(true) => return Ok(outcomes),
            Ok(false) => {
                // Somebody else was faster, and may be again: wait for those who write.
                writer.give_way(database);
                drop(std::mem::take(&mut turn));
                turn = writer.line_up(database);
            }
            Err(DatabaseError::Storage(StorageError::Interrupted(_))) if left > 0 => {
                left -= 1;
                thread::park_timeout(INTERRUPTION);
            }
            // Not expected, once: who has looked knows better than that.
            Err(DatabaseError::Storage(StorageError::Present(_))) if writer.looks == 0 => writer.looks = LOOKS,
            Err(error) if !attempt.goes_on(database.engine().as_ref(), purpose(works), &error) => return Err(error),
            Err(_) => {}
        }
    }
}

/// `false` if it is to be tried again. `is_current` if the writer knows the last commit, of whomever.
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
    // Where several processes write, what others have committed comes along.
    let news = News::after(writer.state);
    let requests = news.requests();
    let is_known = is_current || writer.crowd == 0;
    let besides = if is_known { &[] } else { &requests[1..] };
    let may_guess = is_known && writer.looks == 0 && !attempt.is_in_doubt() && engine.refuses_present();
    if may_guess && let Some(documents) = Documents::likely_new(works) {
        let mut group =
            Group::new(database, writer, snapshot.as_ref(), (documents, Contents::default()), purpose(works));
        *outcomes = group.apply_all(works)?;
        // The commit finds out whether it was guessed right. What would be refused may be refused for another reason.
        if outcomes.iter().flatten().all(|outcome| matches!(outcome, UpdateOutcome::Saved(_))) {
            return group.finish(attempt, durability(works));
        }
    }
    let named = Named::by(database, works);
    let (state, documents, contents, besides) = Documents::read(snapshot.as_ref(), works, named, besides)?;
    if state != writer.state {
        // Another node has committed to the shard, or an earlier try has arrived.
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

/// Room, if everything makes some.
fn purpose(works: &[Work]) -> Purpose {
    if works.iter().all(|work| work.purpose() == Purpose::Room) { Purpose::Room } else { Purpose::Growth }
}

/// Bytes of attachments need not be on disk before the commit of their revision, which takes all before it along.
fn durability(works: &[Work]) -> Durability {
    let only_staged = !works.is_empty() && works.iter().all(|work| matches!(work, Work::Stage(_)));
    if only_staged { Durability::Buffered } else { Durability::Synced }
}
