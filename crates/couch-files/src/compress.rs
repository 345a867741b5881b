//! Terms and their compression. The first byte of a chunk is 131 for a term of Erlang's external format, `131 80` for
//! one whose remainder is a zlib stream preceded by its size, and 1 for a snappy block that contains a whole term.

use std::io::Read as _;

use crate::error::{FileError, TermError};
use crate::source::{Source, read_chunk};
use crate::term::{MAX_TERM_LEN, Tape};

const TERM: u8 = 131;
const DEFLATED: u8 = 80;
const SNAPPY: u8 = 1;
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(crate) fn read_term(source: &dyn Source, position: u64) -> Result<Tape, FileError> {
    let chunk = read_chunk(source, position, MAX_TERM_LEN as u64)?;
    decode(chunk, position)
}

pub(crate) fn decode(bytes: Vec<u8>, position: u64) -> Result<Tape, FileError> {
    let bytes = decompress(bytes, position)?;
    Tape::decode(bytes).map_err(|error| FileError::Term { position, error })
}

fn decompress(bytes: Vec<u8>, position: u64) -> Result<Vec<u8>, FileError> {
    let bad = FileError::Compression { position };
    match bytes.as_slice() {
        [SNAPPY, block @ ..] => {
            let len = snap::raw::decompress_len(block).map_err(|_| bad)?;
            // Snappy expands by a factor of less than 64.
            if len > MAX_TERM_LEN || len / 64 > block.len() {
                return Err(FileError::TooLarge { position });
            }
            let term = snap::raw::Decoder::new().decompress_vec(block);
            let term = term.map_err(|_| FileError::Compression { position })?;
            inflate(term, position)
        }
        [TERM, ..] => inflate(bytes, position),
        _ if bytes.starts_with(&ZSTD_MAGIC) => Err(FileError::Method { position, method: "zstd" }),
        _ => Err(bad),
    }
}

/// Returns terms without a zlib stream unchanged.
fn inflate(bytes: Vec<u8>, position: u64) -> Result<Vec<u8>, FileError> {
    let [TERM, DEFLATED, a, b, c, d, stream @ ..] = bytes.as_slice() else {
        return Ok(bytes);
    };
    let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
    if len >= MAX_TERM_LEN {
        return Err(FileError::TooLarge { position });
    }
    let mut term = vec![TERM];
    let mut stream = flate2::read::ZlibDecoder::new(stream).take(len as u64 + 1);
    stream.read_to_end(&mut term).map_err(|_| FileError::Compression { position })?;
    if term.len() != len + 1 {
        return Err(FileError::Term { position, error: TermError::Incomplete });
    }
    Ok(term)
}
