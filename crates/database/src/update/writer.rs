//! [`Writer`]: the state that only the leader of the update queue touches, and how it is read from what is committed.

use std::sync::Arc;

use settee_model::json::Json;
use settee_storage::{Direction, KeyRange, Keyspace, Page, PageRange, Request, ShardState, Snapshot};

use super::Fullness;
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
    let writer = Writer { state, meta, ranks, revs_limit, security, rank_log, rank_pieces, fullness };
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
