//! [`Writer`]: the state of the leader of the update queue, and its recovery from committed data.

use std::sync::Arc;

use settee_model::json::Json;
use settee_storage::{Keyspace, Page, Reply, Request, ShardState, Snapshot, Version};

use super::fullness::RevisionCountCache;
use super::upload_marks::marks;
use crate::meta::{Meta, decode_revs_limit};
use crate::rank::RankIndex;
use crate::{DatabaseError, Result, keys, rank};

#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) state: ShardState,
    pub(crate) meta: Meta,
    pub(crate) ranks: Arc<RankIndex>,
    pub(crate) revs_limit: u64,
    pub(crate) security: Option<Json>,
    pub(crate) rank_log: Vec<u64>,
    pub(crate) rank_pieces: usize,
    pub(crate) fullness: RevisionCountCache,
    /// Number of further commits that read documents before they insert them, because one was unexpectedly present.
    pub(crate) commits_reading_first: u32,
}

/// Number of commits that read first after a document was unexpectedly present. A failed insert wastes a batch.
pub(super) const COMMITS_READING_FIRST: u32 = 64;

pub(super) struct LaterChanges {
    version: Version,
    log: [Vec<u8>; 2],
}

impl LaterChanges {
    pub(super) fn after(state: ShardState) -> Self {
        let first = keys::prefixed(keys::RANK_LOG, &keys::sequence(state.version.0 + 1));
        Self { version: state.version, log: [first, keys::after_prefix(keys::RANK_LOG)] }
    }

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
    /// Updates this to the committed state, after commits of other processes or a commit with an unknown outcome.
    /// `read` are the replies to the requests of [`LaterChanges`], or empty.
    pub(crate) fn follow(&mut self, snapshot: &dyn Snapshot, state: ShardState, read: Vec<Reply>) -> Result<()> {
        if !self.replay(snapshot, state, read)? {
            *self = Self { commits_reading_first: self.commits_reading_first, ..load_writer(snapshot)? };
        }
        Ok(())
    }

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
        // The cached state may be lost in a crash of a server, after which others continued from an earlier state.
        let is_linear = token.is_some_and(|token| token == self.state.token.0.to_be_bytes());
        let (Some(head), true, true) = (head, is_linear, log.is_last) else { return Ok(false) };
        let mut ranks = RankIndex::clone(&self.ranks);
        let Some(numbers) = ranks.replay_all(known, state, &log.rows) else { return Ok(false) };
        self.meta = Meta::of_records(Some(head), None)?;
        self.revs_limit = decode_revs_limit(revs_limit)?;
        self.security = security.map(Json::trusted);
        self.rank_log.extend(numbers);
        (self.state, self.ranks, self.fullness) = (state, Arc::new(ranks), RevisionCountCache::default());
        Ok(true)
    }
}

pub(crate) fn load_writer(snapshot: &dyn Snapshot) -> Result<Writer> {
    Ok(load(snapshot)?.0)
}

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
    let (ranks, fullness) = (Arc::new(ranks), RevisionCountCache::default());
    let writer =
        Writer { state, meta, ranks, revs_limit, security, rank_log, rank_pieces, fullness, commits_reading_first: 0 };
    Ok((writer, uploads.into_page()?))
}
