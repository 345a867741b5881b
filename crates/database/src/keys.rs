//! Encodings of all keys that databases store.
//!
//! Documents and local documents are stored under their id. The byte order of all other keys is the order of the
//! encoded values.

use crate::{DatabaseError, Result};

/// An engine may refuse values of 100 kB.
pub(crate) const BODY_CHUNK_BYTES: usize = if cfg!(test) { 100 } else { 64 << 10 };

pub(crate) const ATTACHMENT_CHUNK_BYTES: usize = BODY_CHUNK_BYTES;

pub(crate) const UPLOAD: &[u8] = b"u";

/// Counters of earlier versions; current ones are in the head of the shard.
pub(crate) const META: &[u8] = b"meta";
pub(crate) const REVS_LIMIT: &[u8] = b"revs_limit";
pub(crate) const PURGED_INFOS_LIMIT: &[u8] = b"purged_infos_limit";
pub(crate) const TIME_SEQ: &[u8] = b"time_seq";
pub(crate) const PURGE: &[u8] = b"purge/";
pub(crate) const SECURITY: &[u8] = b"security";
pub(crate) const RANK_TABLE: &[u8] = b"rank/table";
pub(crate) const RANK_PIECE: &[u8] = b"rank/piece/";
/// One entry per commit since the latest complete tables.
pub(crate) const RANK_LOG: &[u8] = b"rank/log/";
pub(crate) const PIECES: &[u8] = b"pieces/";
/// Exists if documents were written with per-document access.
pub(crate) const ACCESS_CONTROL: &[u8] = b"access/control";
/// Numbers of access lists, by the hash of the list.
pub(crate) const ACCESS_LIST: &[u8] = b"access/list/";
pub(crate) const ACCESS_NUMBER: &[u8] = b"access/number/";
/// Records of other layers.
pub(crate) const ATTACHED: &[u8] = b"attached/";

pub(crate) const DATABASE: &[u8] = b"database/";
/// Shards whose entries are still to be removed.
pub(crate) const DROPPED: &[u8] = b"dropped/";
pub(crate) const SETTINGS: &[u8] = b"settings";
pub(crate) const NEXT_SHARD: &[u8] = b"next_shard";

pub(crate) fn decode_id(key: &[u8]) -> Result<&str> {
    std::str::from_utf8(key).map_err(|_| DatabaseError::Corrupt("document id"))
}

pub(crate) fn sequence(seq: u64) -> [u8; 8] {
    seq.to_be_bytes()
}

pub(crate) fn decode_sequence(key: &[u8]) -> Result<u64> {
    Ok(u64::from_be_bytes(key.try_into().map_err(|_| DatabaseError::Corrupt("sequence key"))?))
}

const FURTHER_BODY: u64 = 1 << 63;
const FURTHER_BODY_BITS: u32 = 20;

/// Returns the number of the body that an update with the sequence `seq` writes after `earlier` others. For the first
/// one this is the sequence itself, so that bodies and changes have the same order. The rare further bodies sort behind
/// all of those. Returns `None` if all numbers of the sequence are used.
pub(crate) fn body_number(seq: u64, earlier: u64) -> Option<u64> {
    if earlier == 0 {
        return Some(seq);
    }
    let fits = earlier >> FURTHER_BODY_BITS == 0 && seq < FURTHER_BODY >> FURTHER_BODY_BITS;
    fits.then_some(FURTHER_BODY | seq << FURTHER_BODY_BITS | earlier)
}

#[cfg(test)]
pub(crate) fn writer_of_body(number: u64) -> u64 {
    if number & FURTHER_BODY == 0 { number } else { (number & !FURTHER_BODY) >> FURTHER_BODY_BITS }
}

pub(crate) fn body(body_seq: u64, chunk: u16) -> [u8; 10] {
    let mut key = [0; 10];
    key[..8].copy_from_slice(&body_seq.to_be_bytes());
    key[8..].copy_from_slice(&chunk.to_be_bytes());
    key
}

pub(crate) fn attachment_chunk(blob: u64, number: u32) -> [u8; 13] {
    let mut key = [b'b'; 13];
    key[1..9].copy_from_slice(&blob.to_be_bytes());
    key[9..].copy_from_slice(&number.to_be_bytes());
    key
}

pub(crate) fn content(hash: &[u8; 32]) -> [u8; 33] {
    let mut key = [b'c'; 33];
    key[1..].copy_from_slice(hash);
    key
}

pub(crate) fn upload(blob: u64) -> [u8; 9] {
    let mut key = [UPLOAD[0]; 9];
    key[1..].copy_from_slice(&blob.to_be_bytes());
    key
}

pub(crate) fn piece(id: &[u8], number: u32) -> Vec<u8> {
    [PIECES, id, &number.to_be_bytes()].concat()
}

pub(crate) fn rank_piece(number: u64) -> Vec<u8> {
    prefixed(RANK_PIECE, &number.to_be_bytes())
}

pub(crate) fn prefixed(prefix: &[u8], rest: &[u8]) -> Vec<u8> {
    [prefix, rest].concat()
}

/// Returns the least key after all keys with `prefix`, whose last byte must not be 255.
pub(crate) fn after_prefix(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
