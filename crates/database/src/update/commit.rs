//! Commits the work of the update queue: a [`Group`] is retried until it is committed or fails.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use settee_storage::{Durability, Purpose, Reply, ShardState, Snapshot, StorageError};

use super::contents::{Contents, Named};
use super::group::Group;
use super::queue::Pending;
use super::touched::Documents;
use super::work::{Completion, Origin, UpdateOutcome, Work, WorkResult};
use super::writer::{COMMITS_READING_FIRST, LaterChanges, Writer};
use crate::attempt::Attempt;
use crate::database::{Database, Source};
use crate::{DatabaseError, Event, Result};

/// Completes each of `works`, even if the completion of another one panics. Returns the last panic.
pub(super) fn commit(database: &Arc<Database>, writer: &mut Writer, mut works: Vec<Pending>) -> thread::Result<()> {
    let mut refused = Vec::new();
    let mut refuse = |is_refused: fn(&Pending) -> bool, works: &mut Vec<Pending>, error: &StorageError| {
        let all = works.extract_if(.., |item| is_refused(item));
        refused.extend(all.map(|item| (item.done, Err(DatabaseError::from(error.clone())))));
    };
    if let Err(error) = database.engine().check() {
        // On a full disk, work that frees space is committed apart from work that needs space.
        refuse(|item| item.work.purpose() == Purpose::Growth, &mut works, &error);
    }
    let is_of_client = |item: &Pending| item.origin == Origin::Client;
    let claim = if works.iter().any(is_of_client) { database.claim() } else { Ok(None) };
    let claim = claim.unwrap_or_else(|error| {
        refuse(is_of_client, &mut works, &error);
        None
    });
    let (works, waiting): (Vec<Work>, Vec<Completion>) = works.into_iter().map(|item| (item.work, item.done)).unzip();
    let attempt = Attempt::new(database.next_token()).under(claim.clone());
    let committed = catch_unwind(AssertUnwindSafe(|| commit_until_done(database, writer, &works, attempt)));
    let (results, mut panicked): (Vec<WorkResult>, _) = match committed {
        Ok(Ok(outcomes)) => {
            database.counters().committed(&works, &outcomes);
            (outcomes.into_iter().map(Ok).collect(), Ok(()))
        }
        Ok(Err(error)) => {
            if let (DatabaseError::Storage(StorageError::Deposed), Some(claim)) = (&error, &claim) {
                database.deposed(claim);
            }
            (waiting.iter().map(|_| Err(error.clone())).collect(), Ok(()))
        }
        Err(panic) => (Vec::new(), Err(panic)),
    };
    for (done, result) in waiting.into_iter().zip(results).chain(refused) {
        panicked = catch_unwind(AssertUnwindSafe(|| done(result))).and(panicked);
    }
    panicked
}

/// Limits of the wait for an engine that is being opened again: half a minute.
const INTERRUPTIONS_MAX: u32 = 1500;
const INTERRUPTION: Duration = Duration::from_millis(20);

fn commit_until_done(
    database: &Arc<Database>,
    writer: &mut Writer,
    works: &[Work],
    mut attempt: Attempt,
) -> Result<Vec<Vec<UpdateOutcome>>> {
    let mut outcomes = Vec::new();
    let mut left = INTERRUPTIONS_MAX;
    let mut is_current = true;
    loop {
        match try_commit(database, writer, works, is_current, &mut attempt, &mut outcomes) {
            Ok(true) => return Ok(outcomes),
            Ok(false) => is_current = false,
            Err(DatabaseError::Storage(StorageError::Interrupted(_))) if left > 0 => {
                left -= 1;
                thread::park_timeout(INTERRUPTION);
            }
            // A document exists that was expected to be new. The next try reads first, so this can happen only once.
            Err(DatabaseError::Storage(StorageError::Present(_))) if writer.commits_reading_first == 0 => {
                writer.commits_reading_first = COMMITS_READING_FIRST;
            }
            Err(error) if !attempt.prepare_retry(database.engine().as_ref(), purpose(works), &error) => {
                return Err(attempt.final_error(error));
            }
            Err(_) => {}
        }
    }
}

/// `is_current` is false after a conflict with another process, whose changes are then read with the documents.
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
    let later = LaterChanges::after(writer.state);
    let requests = later.requests();
    let besides = if is_current { &[] } else { &requests[1..] };
    let may_guess =
        is_current && writer.commits_reading_first == 0 && !attempt.is_in_doubt() && engine.refuses_present();
    if may_guess && let Some(documents) = Documents::likely_new(works) {
        let mut group =
            Group::new(database, writer, snapshot.as_ref(), (documents, Contents::default()), purpose(works));
        *outcomes = group.apply_all(works)?;
        // A wrong assumption that the documents are new may cause a refusal, so a refusal is checked with a read.
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

fn purpose(works: &[Work]) -> Purpose {
    if works.iter().all(|work| work.purpose() == Purpose::Room) { Purpose::Room } else { Purpose::Growth }
}

/// Chunks of attachments need no sync, because the sync of their revision's commit includes all earlier commits.
fn durability(works: &[Work]) -> Durability {
    let only_staged = !works.is_empty() && works.iter().all(|work| matches!(work, Work::Stage(_)));
    if only_staged { Durability::Buffered } else { Durability::Synced }
}

impl Writer {
    pub(super) fn learn(
        &mut self,
        database: &Database,
        snapshot: &dyn Snapshot,
        state: ShardState,
        read: Vec<Reply>,
    ) -> Result<()> {
        self.follow(snapshot, state, read)?;
        database.cache_state(Source::Anywhere, state.version, &self.meta, self.security.clone());
        Ok(())
    }
}
