//! [`Writer`]: the state that only the leader of the update queue touches, and how it is read from what is committed.

use std::sync::Arc;

use settee_model::json::Json;
use settee_storage::{
    Direction, KeyRange, Keyspace, Page, PageRange, Reply, Request, ShardState, Snapshot, Turn, Version,
};

use super::Fullness;
use crate::database::{Database, Source};
use crate::meta::{Meta, decode_revs_limit};
use crate::rank::Ranks;
use crate::{DatabaseError, Result, keys, rank};

/// The state that only the leader of the update queue touches.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) state: ShardState,
    pub(crate) meta: Meta,
    pub(crate) ranks: Arc<Ranks>,
    pub(crate) revs_limit: u64,
    pub(crate) security: Option<Json>,
    /// The log records of ranks since the whole tables were stored.
    pub(crate) rank_log: Vec<u64>,
    /// The number of pieces of these tables.
    pub(crate) rank_pieces: usize,
    pub(crate) fullness: Fullness,
    /// The commits for which this process still lines up: others have been faster than one of its own not long ago.
    pub(crate) crowd: u32,
    /// The commits which still look for documents before they insert them: one was there not long ago.
    pub(crate) looks: u32,
}

/// The commits for which a process lines up after another one was faster once: that may have come by, as it does now and then where it hands its
/// writes over to this one. A commit in line is a transaction of its own with two waits in place of one.
const PASSER_BY: u32 = 8;

/// The commits for which it lines up when another one has written again in that time. What comes of it when the other one has gone is a
/// wait for nobody.
const CROWD: u32 = 64;

/// The commits that look first after a document was there of which that was not expected. One that finds out by itself costs a batch
/// in vain.
pub(super) const LOOKS: u32 = 64;

/// What the commits after one have changed of a writer.
pub(super) struct News {
    version: Version,
    /// The log records of ranks, from one to the end of all.
    log: [Vec<u8>; 2],
}

impl News {
    pub(super) fn after(state: ShardState) -> Self {
        let first = keys::prefixed(keys::RANK_LOG, &keys::sequence(state.version.0 + 1));
        Self { version: state.version, log: [first, keys::after_prefix(keys::RANK_LOG)] }
    }

    /// The state, and what is behind it.
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
    /// Another process was faster.
    pub(super) fn give_way(&mut self, database: &Database) {
        self.crowd = self.crowd.max(PASSER_BY);
        database.meet_others();
    }

    /// Waits for a turn that brings what others have committed.
    pub(super) fn line_up(&self, database: &Database) -> Turn {
        database.engine().line_up(database.shard(), &News::after(self.state).requests())
    }

    /// Brings this to what was there when a turn had come. `false` if that is not known.
    pub(super) fn take_turn(&mut self, database: &Database, turn: &mut Turn) -> Result<bool> {
        let Some(mut seen) = turn.take_seen().filter(|seen| !seen.is_empty()) else { return Ok(false) };
        let state = seen.remove(0).into_state()?;
        if state != self.state {
            let snapshot = database.engine().snapshot(database.shard())?;
            self.learn(database, snapshot.as_ref(), state, seen)?;
        }
        Ok(true)
    }

    /// [Follows](Self::follow) on behalf of all who use the database.
    pub(super) fn learn(
        &mut self,
        database: &Database,
        snapshot: &dyn Snapshot,
        state: ShardState,
        read: Vec<Reply>,
    ) -> Result<()> {
        if self.crowd > 0 {
            database.meet_others();
        }
        // Not the commit that this one has given way to: that is followed before the next one is counted.
        if (1..PASSER_BY).contains(&self.crowd) {
            self.crowd = CROWD;
        }
        self.follow(snapshot, state, read)?;
        database.know(Source::Anywhere, state.version, &self.meta, self.security.clone());
        Ok(())
    }

    /// Brings this to what is committed, after others have committed, or a commit whose outcome was not known has happened. `read` are the
    /// replies to what [`News`] asks for, if they were asked for.
    pub(crate) fn follow(&mut self, snapshot: &dyn Snapshot, state: ShardState, read: Vec<Reply>) -> Result<()> {
        if !self.replay(snapshot, state, read)? {
            *self = Self { crowd: self.crowd, looks: self.looks, ..load_writer(snapshot)? };
        }
        Ok(())
    }

    /// Applies what the commits since have changed. `false` if that does not tell enough.
    fn replay(&mut self, snapshot: &dyn Snapshot, state: ShardState, read: Vec<Reply>) -> Result<bool> {
        let known = self.state.version.0;
        if state.version.0 <= known {
            return Ok(false);
        }
        let news = News::after(self.state);
        let read = if read.is_empty() { snapshot.read(&news.requests()[1..])? } else { read };
        let [token, head, records, log]: [_; 4] = read.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let records: [_; 2] = records.into_values()?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
        let [revs_limit, security] = records;
        let (token, head, log) = (token.into_value()?, head.into_value()?, log.into_page()?);
        // What is known here may have been lost with a server's memory, and others have gone on from before it.
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

/// More unfinished uploads than there are.
const LOADED_MARKS: usize = 2_000;

/// Reads what the leader of the update queue needs, from what is committed.
pub(crate) fn load_writer(snapshot: &dyn Snapshot) -> Result<Writer> {
    Ok(load(snapshot)?.0)
}

/// The same, and the marks of unfinished uploads, in one trip.
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
    let writer =
        Writer { state, meta, ranks, revs_limit, security, rank_log, rank_pieces, fullness, crowd: 0, looks: 0 };
    Ok((writer, uploads.into_page()?))
}

/// The marks of unfinished uploads.
pub(super) fn upload_marks(snapshot: &dyn Snapshot) -> Result<Page> {
    Ok(Page::scan(snapshot, marks(&keys::after_prefix(keys::UPLOAD)))?)
}

fn marks(end: &[u8]) -> PageRange<'_> {
    let range = KeyRange { start: Some(keys::UPLOAD), end: Some(end) };
    PageRange { space: Keyspace::Attachments, range, direction: Direction::Forward, rows: LOADED_MARKS }
}
