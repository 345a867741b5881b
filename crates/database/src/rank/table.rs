//! The whole tables of ranks as they are stored: in one value, or in pieces if there are many buckets; and the log of what changed
//! since.

use settee_storage::codec::{Reader, put_varint};
use settee_storage::{Batch, Direction, KeyRange, Keyspace, Page, PageRange, Request, ShardState, Snapshot};

use super::Ranks;
use crate::{DatabaseError, Result, keys};

/// The bytes that one stored value holds.
const PIECE_BYTES: usize = if cfg!(test) { 100 } else { 64 << 10 };

/// So many pieces are read together.
const PIECES_TOGETHER: usize = 16;

/// The stored value begins so if the tables are in pieces, and then tells how many there are. Tables begin with the version of
/// a commit, which is never 0.
const IN_PIECES: u8 = 0;

/// Puts the tables in the place of those before, which had `before` pieces. Tells how many these have.
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

/// The tables that `stored` tells of, and how many pieces they have.
pub(crate) fn read(snapshot: &dyn Snapshot, stored: &[u8]) -> Result<(Ranks, usize)> {
    if stored.first() != Some(&IN_PIECES) {
        return Ok((Ranks::decode(stored)?, 0));
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
    Ok((Ranks::decode(&encoded)?, count as usize))
}

/// More log records than are kept.
const LOADED_RECORDS: usize = 2_000;

/// The first log records; `end` is the end of all of them.
pub(crate) fn log(end: &[u8]) -> PageRange<'_> {
    log_from(keys::RANK_LOG, end)
}

/// Log records from a key on; `end` is the end of all of them.
pub(crate) fn log_from<'a>(start: &'a [u8], end: &'a [u8]) -> PageRange<'a> {
    let range = KeyRange { start: Some(start), end: Some(end) };
    PageRange { space: Keyspace::Catalog, range, direction: Direction::Forward, rows: LOADED_RECORDS }
}

/// The ranks as of `state`, which is that of `snapshot`.
pub(crate) fn load(snapshot: &dyn Snapshot, state: ShardState) -> Result<Ranks> {
    let end = keys::after_prefix(keys::RANK_LOG);
    let requests = [Request::Get(Keyspace::Catalog, keys::RANK_TABLE), Request::Page(log(&end))];
    let [table, log]: [_; 2] = snapshot.read(&requests)?.try_into().map_err(|_| DatabaseError::Corrupt("replies"))?;
    Ok(decode(snapshot, state, table.into_value()?, log.into_page()?)?.0)
}

/// The ranks as of `state`, the numbers of their log records, and how many pieces the tables have. `log` has the first of
/// these records.
pub(crate) fn decode(
    snapshot: &dyn Snapshot,
    state: ShardState,
    table: Option<Vec<u8>>,
    mut log: Page,
) -> Result<(Ranks, Vec<u64>, usize)> {
    let (mut ranks, pieces) = table.map_or_else(|| Ok((Ranks::new(), 0)), |stored| read(snapshot, &stored))?;
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
