//! [`Writer`]: the state of the leader of the update queue, and its recovery from committed data.

use std::sync::Arc;

use settee_model::json::Json;
use settee_storage::{
    Direction, KeyRange, Keyspace, Page, PageRange, Reply, Request, ShardLock, ShardState, Snapshot, Version,
};

use super::Fullness;
use crate::database::{Database, Source};
use crate::meta::{Meta, decode_revs_limit};
use crate::rank::Ranks;
use crate::{DatabaseError, Result, keys, rank};

/// State that only the leader of the update queue uses.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) state: ShardState,
    pub(crate) meta: Meta,
    pub(crate) ranks: Arc<Ranks>,
    pub(crate) revs_limit: u64,
    pub(crate) security: Option<Json>,
    /// Numbers of the rank log records since the complete tables were stored.
    pub(crate) rank_log: Vec<u64>,
    pub(crate) rank_pieces: usize,
    pub(crate) fullness: Fullness,
    /// Number of further commits under the shard lock, because another process committed recently.
    pub(crate) locked_commits: u32,
    /// Number of further commits that read documents before they insert them, because one was unexpectedly present
    /// recently.
    pub(crate) commits_reading_first: u32,
}

/// Number of commits under the shard lock after a conflict with another process. It is small because another process
/// that forwards its writes to this one commits only occasionally, and a commit under the lock is a separate
/// transaction with two waits instead of one.
const FIRST_LOCKED_COMMITS: u32 = 8;

/// Number of commits under the shard lock after another process has written during [`FIRST_LOCKED_COMMITS`] commits. If the
/// other process has stopped writing, these waits are wasted.
const FURTHER_LOCKED_COMMITS: u32 = 64;

/// Number of commits that read first after a document was unexpectedly present. A failed insert wastes a batch.
pub(super) const COMMITS_READING_FIRST: u32 = 64;

/// Requests for the changes that later commits made to the state of a writer.
pub(super) struct LaterChanges {
    version: Version,
    /// First key of the new rank log records, and the end of the log.
    log: [Vec<u8>; 2],
}

impl LaterChanges {
    pub(super) fn after(state: ShardState) -> Self {
        let first = keys::prefixed(keys::RANK_LOG, &keys::sequence(state.version.0 + 1));
        Self { version: state.version, log: [first, keys::after_prefix(keys::RANK_LOG)] }
    }

    /// Requests for the shard state and the changes since.
    pub(super) fn requests(&self) -> [Request<'_>; 5] {
        let [first, end] = &self.log;
        [
            Request::State,
            Request::Token(self.version),
            Request::Head,
            Request::MultiGet(Keyspace::Catalog, &[keys::REVS_LIMIT, keys::SECURITY]),
            Request::Page(rank::table::log_from(first, end)),
        ]
    }
}

impl Writer {
    /// Records a conflict with another process.
    pub(super) fn give_way(&mut self, database: &Database) {
        self.locked_commits = self.locked_commits.max(FIRST_LOCKED_COMMITS);
        database.note_contention();
    }

    /// Waits for the shard lock, which also returns the changes of other processes.
    pub(super) fn line_up(&self, database: &Database) -> ShardLock {
        database.engine().line_up(database.shard(), &LaterChanges::after(self.state).requests())
    }

    /// Updates this to the state that was read with the lock. Returns `false` if the lock returned no state.
    pub(super) fn lock_shard(&mut self, database: &Database, shard_lock: &mut ShardLock) -> Result<bool> {
        let Some(mut seen) = shard_lock.take_seen().filter(|seen| !seen.is_empty()) else { return Ok(false) };
        let state = seen.remove(0).into_state()?;
        if state != self.state {
            let snapshot = database.engine().snapshot(database.shard())?;
            self.learn(database, snapshot.as_ref(), state, seen)?;
        }
        Ok(true)
    }

    /// [Follows](Self::follow) other commits and updates the cache of the database.
    pub(super) fn learn(
        &mut self,
        database: &Database,
        snapshot: &dyn Snapshot,
        state: ShardState,
        read: Vec<Reply>,
    ) -> Result<()> {
        if self.locked_commits > 0 {
            database.note_contention();
        }
        // The first commit after a conflict is excluded, because it is the one that caused the conflict.
        if (1..FIRST_LOCKED_COMMITS).contains(&self.locked_commits) {
            self.locked_commits = FURTHER_LOCKED_COMMITS;
        }
        self.follow(snapshot, state, read)?;
        database.cache_state(Source::Anywhere, state.version, &self.meta, self.security.clone());
        Ok(())
    }

    /// Updates this to the committed state, after commits of other processes or a commit with an unknown outcome.
    /// `read` are the replies to the requests of [`LaterChanges`], or empty.
    pub(crate) fn follow(&mut self, snapshot: &dyn Snapshot, state: ShardState, read: Vec<Reply>) -> Result<()> {
        if !self.replay(snapshot, state, read)? {
            *self = Self {
                locked_commits: self.locked_commits,
                commits_reading_first: self.commits_reading_first,
                ..load_writer(snapshot)?
            };
        }
        Ok(())
    }

    /// Applies the changes of later commits. Returns `false` if they are not sufficient.
    fn replay(&mut self, snapshot: &dyn Snapshot, state: ShardState, read: Vec<Reply>) -> Result<bool> {
        let known = self.state.version.0;
        if state.version.0 <= known {
            return Ok(false);
        }
        let later = LaterChanges::after(self.state);
        let read = if read.is_empty() { snapshot.read(&later.requests()[1..])? } else { read };
        let [token, head, records, log]: [_; 4] = read.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let records: [_; 2] = records.into_values()?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [revs_limit, security] = records;
        let (token, head, log) = (token.into_value()?, head.into_value()?, log.into_page()?);
        // The cached state may have been lost in a crash of a server, after which other processes continued from an
        // earlier state.
        let is_linear = token.is_some_and(|token| token == self.state.token.0.to_be_bytes());
        let (Some(head), true, true) = (head, is_linear, log.is_last) else { return Ok(false) };
        let mut ranks = Ranks::clone(&self.ranks);
        let Some(numbers) = ranks.replay_all(known, state, &log.rows) else { return Ok(false) };
        self.meta = Meta::of_records(Some(head), None)?;
        self.revs_limit = decode_revs_limit(revs_limit)?;
        self.security = security.map(Json::trusted);
        self.rank_log.extend(numbers);
        (self.state, self.ranks, self.fullness) = (state, Arc::new(ranks), Fullness::default());
        Ok(true)
    }
}

/// Number of marks that are read, which exceeds the usual number of unfinished uploads.
const LOADED_MARKS: usize = 2_000;

pub(crate) fn load_writer(snapshot: &dyn Snapshot) -> Result<Writer> {
    Ok(load(snapshot)?.0)
}

/// Loads the state of the leader and the marks of unfinished uploads in one round trip.
pub(crate) fn load(snapshot: &dyn Snapshot) -> Result<(Writer, Page)> {
    let (log_end, uploads_end) = (keys::after_prefix(keys::RANK_LOG), keys::after_prefix(keys::UPLOAD));
    let records = [keys::RANK_TABLE, keys::REVS_LIMIT, keys::SECURITY, keys::META];
    let requests = [
        Request::State,
        Request::Head,
        Request::MultiGet(Keyspace::Catalog, &records),
        Request::Page(rank::table::log(&log_end)),
        Request::Page(marks(&uploads_end)),
    ];
    let replies: [_; 5] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
    let [state, head, records, rank_log, uploads] = replies;
    let (state, head) = (state.into_state()?, head.into_value()?);
    let records: [_; 4] = records.into_values()?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
    let [rank_table, revs_limit, security, old_meta] = records;
    let (ranks, rank_log, rank_pieces) = rank::table::decode(snapshot, state, rank_table, rank_log.into_page()?)?;
    let meta = Meta::of_records(head, old_meta)?;
    let revs_limit = decode_revs_limit(revs_limit)?;
    let security = security.map(Json::trusted);
    let (ranks, fullness) = (Arc::new(ranks), Fullness::default());
    let writer = Writer {
        state,
        meta,
        ranks,
        revs_limit,
        security,
        rank_log,
        rank_pieces,
        fullness,
        locked_commits: 0,
        commits_reading_first: 0,
    };
    Ok((writer, uploads.into_page()?))
}

pub(super) fn upload_marks(snapshot: &dyn Snapshot) -> Result<Page> {
    Ok(Page::scan(snapshot, marks(&keys::after_prefix(keys::UPLOAD)))?)
}

fn marks(end: &[u8]) -> PageRange<'_> {
    let range = KeyRange { start: Some(keys::UPLOAD), end: Some(end) };
    PageRange { space: Keyspace::Attachments, range, direction: Direction::Forward, rows: LOADED_MARKS }
}
