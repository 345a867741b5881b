//! Stored rank tables, in pieces if they have many buckets, and the rank log of later changes.

use settee_storage::codec::{Reader, put_varint};
use settee_storage::{Batch, Direction, KeyRange, Keyspace, Page, PageRange, Request, ShardState, Snapshot};

use super::RankIndex;
use crate::{DatabaseError, Result, keys};

const PIECE_BYTES: usize = if cfg!(test) { 100 } else { 64 << 10 };

const PIECES_TOGETHER: usize = 16;

/// First byte of divided tables, before the number of pieces. Undivided tables start with a version, never 0.
const IN_PIECES: u8 = 0;

/// Deletes surplus pieces of the previous tables, which had `before` pieces. Returns the new number of pieces.
pub(crate) fn put(batch: &mut Batch, encoded: &[u8], before: usize) -> usize {
    let mut count = 0;
    if encoded.len() <= PIECE_BYTES {
        batch.put(Keyspace::Catalog, keys::RANK_TABLE, encoded);
    } else {
        for piece in encoded.chunks(PIECE_BYTES) {
            batch.put(Keyspace::Catalog, &keys::rank_piece(count), piece);
            count += 1;
        }
        let mut value = vec![IN_PIECES];
        put_varint(&mut value, count);
        batch.put(Keyspace::Catalog, keys::RANK_TABLE, &value);
    }
    (count..before as u64).for_each(|number| batch.delete(Keyspace::Catalog, &keys::rank_piece(number)));
    count as usize
}

pub(crate) fn read(snapshot: &dyn Snapshot, stored: &[u8]) -> Result<(RankIndex, usize)> {
    if stored.first() != Some(&IN_PIECES) {
        return Ok((RankIndex::decode(stored)?, 0));
    }
    let count = Reader::new(&stored[1..], "rank table").varint()?;
    let mut encoded = Vec::new();
    for start in (0..count).step_by(PIECES_TOGETHER) {
        let wanted: Vec<Vec<u8>> = (start..count).take(PIECES_TOGETHER).map(keys::rank_piece).collect();
        let wanted: Vec<&[u8]> = wanted.iter().map(Vec::as_slice).collect();
        for piece in snapshot.multi_get(Keyspace::Catalog, &wanted)? {
            encoded.extend_from_slice(&piece.ok_or(DatabaseError::Corrupt("rank table"))?);
        }
    }
    Ok((RankIndex::decode(&encoded)?, count as usize))
}

/// Exceeds the usual length of the log.
const LOADED_RECORDS: usize = 2_000;

pub(crate) fn log(end: &[u8]) -> PageRange<'_> {
    log_from(keys::RANK_LOG, end)
}

pub(crate) fn log_from<'a>(start: &'a [u8], end: &'a [u8]) -> PageRange<'a> {
    let range = KeyRange { start: Some(start), end: Some(end) };
    PageRange { space: Keyspace::Catalog, range, direction: Direction::Forward, rows: LOADED_RECORDS }
}

pub(crate) fn load(snapshot: &dyn Snapshot, state: ShardState) -> Result<RankIndex> {
    let end = keys::after_prefix(keys::RANK_LOG);
    let requests = [Request::Get(Keyspace::Catalog, keys::RANK_TABLE), Request::Page(log(&end))];
    let [table, log]: [_; 2] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
    Ok(decode(snapshot, state, table.into_value()?, log.into_page()?)?.0)
}

/// Returns the ranks, the numbers of their log records, and the number of pieces. `log` is the first page of the log.
pub(crate) fn decode(
    snapshot: &dyn Snapshot,
    state: ShardState,
    table: Option<Vec<u8>>,
    mut log: Page,
) -> Result<(RankIndex, Vec<u64>, usize)> {
    let (mut ranks, pieces) = table.map_or_else(|| Ok((RankIndex::new(), 0)), |stored| read(snapshot, &stored))?;
    let mut numbers = Vec::new();
    let end = keys::after_prefix(keys::RANK_LOG);
    loop {
        for (key, record) in &log.rows {
            let logged = keys::decode_sequence(&key[keys::RANK_LOG.len()..])?;
            ranks.replay(logged, record)?;
            numbers.push(logged);
        }
        let Some((last, _)) = log.rows.last().filter(|_| !log.is_last) else { break };
        let start = [last.as_slice(), &[0]].concat();
        log = Page::scan(snapshot, log_from(&start, &end))?;
    }
    ranks.state = state;
    Ok((ranks, numbers, pieces))
}
