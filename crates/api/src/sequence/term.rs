//! The opaque part of a sequence: an Erlang term in base64url without padding. Only the layout that this server writes
//! is decoded. The terms of CouchDB are only validated.

use std::io::Read as _;
use std::sync::LazyLock;

use data_encoding::{BASE64URL_NOPAD, Encoding};
use flate2::read::ZlibDecoder;

const VERSION: u8 = 131;

mod tag {
    pub(super) const COMPRESSED: u8 = 80;
    pub(super) const SMALL_INTEGER: u8 = 97;
    pub(super) const INTEGER: u8 = 98;
    pub(super) const ATOM: u8 = 100;
    pub(super) const SMALL_TUPLE: u8 = 104;
    pub(super) const NIL: u8 = 106;
    pub(super) const STRING: u8 = 107;
    pub(super) const LIST: u8 = 108;
    pub(super) const BINARY: u8 = 109;
    pub(super) const SMALL_BIG: u8 = 110;
    pub(super) const ATOM_UTF8: u8 = 118;
    pub(super) const SMALL_ATOM_UTF8: u8 = 119;
}

/// `[{nonode@nohost, [0, 4294967295], {`: all nodes on one store issue the same sequences. The node has the
/// encoding of atoms that CouchDB uses, because some decoders know no other.
const HEAD: [u8; 41] = [
    VERSION, 108, 0, 0, 0, 1, 104, 3, 100, 0, 13, b'n', b'o', b'n', b'o', b'd', b'e', b'@', b'n', b'o', b'h', b'o',
    b's', b't', 108, 0, 0, 0, 2, 97, 0, 110, 4, 0, 255, 255, 255, 255, 106, 104, 3,
];

const UUID: [u8; 5] = [tag::BINARY, 0, 0, 0, 16];

/// `, nonode@nohost}}]`
const TAIL: [u8; 17] = [100, 0, 13, b'n', b'o', b'n', b'o', b'd', b'e', b'@', b'n', b'o', b'h', b'o', b's', b't', 106];

/// [`HEAD`] and the tag of an integer in base64: together a multiple of three bytes, so that the text of the
/// rest does not depend on them.
static START: LazyLock<String> = LazyLock::new(|| BASE64URL_NOPAD.encode(&[&HEAD[..], &[tag::INTEGER]].concat()));

/// The encoding of received terms: as in CouchDB, the unused bits of the last digit are ignored.
static RECEIVED: LazyLock<Encoding> = LazyLock::new(|| {
    let mut specification = BASE64URL_NOPAD.specification();
    specification.check_trailing_bits = false;
    specification.encoding().expect("the specification differs from a valid one in a check")
});

/// Longest term of CouchDB that is decompressed: the sequence of a database of 10,000 shards.
const MAX_TERM_BYTES: u64 = 1 << 20;

/// Deepest nesting of a term. Those of CouchDB have four levels.
const MAX_DEPTH: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    Settee { instance: u64, seq: u64 },
    Couchdb,
}

pub(super) fn write(out: &mut Vec<u8>, instance: u64, seq: u64) {
    match i32::try_from(seq) {
        Ok(seq) => {
            out.extend_from_slice(START.as_bytes());
            let mut rest = [0; 4 + UUID.len() + 16 + TAIL.len()];
            rest[..4].copy_from_slice(&seq.to_be_bytes());
            write_uuid(&mut rest[4..], instance);
            append_base64(out, &rest);
        }
        Err(_) => {
            let bytes = seq.to_le_bytes();
            let length = 8 - seq.leading_zeros() as usize / 8;
            let mut rest = [0; UUID.len() + 16 + TAIL.len()];
            write_uuid(&mut rest, instance);
            let length_byte = u8::try_from(length).expect("an integer has eight bytes at most");
            let head = [tag::SMALL_BIG, length_byte, 0];
            append_base64(out, &[&HEAD[..], &head, &bytes[..length], &rest].concat());
        }
    }
}

fn write_uuid(to: &mut [u8], instance: u64) {
    let (tag, rest) = to.split_at_mut(UUID.len());
    let (uuid, tail) = rest.split_at_mut(16);
    tag.copy_from_slice(&UUID);
    for (index, digit) in uuid.iter_mut().enumerate() {
        let nibble = (instance >> (60 - 4 * index)) & 15;
        *digit = b"0123456789abcdef"[nibble as usize];
    }
    tail.copy_from_slice(&TAIL);
}

fn append_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + BASE64URL_NOPAD.encode_len(bytes.len()), 0);
    BASE64URL_NOPAD.encode_mut(bytes, &mut out[start..]);
}

/// Returns `None` if the term is malformed. Bytes after the term are ignored, as in CouchDB.
pub(super) fn parse(opaque: &str) -> Option<Origin> {
    let bytes = RECEIVED.decode(opaque.as_bytes()).ok()?;
    if let Some((instance, seq)) = own(&bytes) {
        return Some(Origin::Settee { instance, seq });
    }
    let (&VERSION, term) = bytes.split_first()? else { return None };
    match term {
        [tag::COMPRESSED, packed @ ..] => {
            let (length, packed) = packed.split_first_chunk::<4>()?;
            let length = u64::from(u32::from_be_bytes(*length));
            let mut plain = Vec::new();
            ZlibDecoder::new(packed).take(MAX_TERM_BYTES.min(length + 1)).read_to_end(&mut plain).ok()?;
            (plain.len() as u64 == length).then_some(())?;
            skip(&plain, MAX_DEPTH)?
        }
        plain => skip(plain, MAX_DEPTH)?,
    };
    Some(Origin::Couchdb)
}

fn own(bytes: &[u8]) -> Option<(u64, u64)> {
    let (seq, rest) = match bytes.strip_prefix(&HEAD)? {
        [tag::INTEGER, rest @ ..] => {
            let (seq, rest) = rest.split_first_chunk()?;
            (u64::try_from(i32::from_be_bytes(*seq)).ok()?, rest)
        }
        [tag::SMALL_BIG, length @ 1..=8, 0, rest @ ..] => {
            let (digits, rest) = rest.split_at_checked(usize::from(*length))?;
            (digits.iter().rev().fold(0, |seq, digit| seq << 8 | u64::from(*digit)), rest)
        }
        _ => return None,
    };
    let (uuid, rest) = rest.strip_prefix(&UUID)?.split_first_chunk::<16>()?;
    let instance = u64::from_str_radix(std::str::from_utf8(uuid).ok()?, 16).ok()?;
    rest.starts_with(&TAIL).then_some((instance, seq))
}

fn skip(bytes: &[u8], depth: usize) -> Option<&[u8]> {
    let (&tag, rest) = bytes.split_first()?;
    let depth = depth.checked_sub(1)?;
    let (length, rest) = match tag {
        tag::SMALL_INTEGER => (1, rest),
        tag::INTEGER => (4, rest),
        tag::NIL => (0, rest),
        tag::SMALL_ATOM_UTF8 => rest.split_first().map(|(length, rest)| (usize::from(*length), rest))?,
        tag::SMALL_BIG => rest.split_first().map(|(length, rest)| (usize::from(*length) + 1, rest))?,
        tag::ATOM | tag::ATOM_UTF8 | tag::STRING => {
            rest.split_first_chunk().map(|(length, rest)| (usize::from(u16::from_be_bytes(*length)), rest))?
        }
        tag::BINARY => rest.split_first_chunk().map(|(length, rest)| (u32::from_be_bytes(*length) as usize, rest))?,
        tag::SMALL_TUPLE => {
            let (count, rest) = rest.split_first()?;
            return (0..*count).try_fold(rest, |rest, _| skip(rest, depth));
        }
        tag::LIST => {
            let (count, rest) = rest.split_first_chunk()?;
            return (0..=u32::from_be_bytes(*count)).try_fold(rest, |rest, _| skip(rest, depth));
        }
        _ => return None,
    };
    rest.get(length..)
}
