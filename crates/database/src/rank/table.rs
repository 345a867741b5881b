//! The whole tables of ranks as they are stored: in one value, or in pieces if there are many buckets.

use settee_storage::codec::{Reader, put_varint};
use settee_storage::{Batch, Keyspace, Snapshot};

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
