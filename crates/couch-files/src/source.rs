//! [`Source`] reads the bytes of a file; [`BlockReader`] removes the block prefixes that CouchDB inserts.

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use md5::{Digest as _, Md5};
use xxhash_rust::xxh3::xxh3_128;

use crate::error::FileError;

pub(crate) const BLOCK: u64 = 4096;

/// First byte of a block that starts with a header; it is zero in all other blocks.
pub(crate) const HEADER_MARK: u8 = 1;

/// Bit of the length of a chunk with a checksum.
const HAS_CHECKSUM: u32 = 1 << 31;

pub(crate) const CHECKSUM: u64 = 16;

pub trait Source: Send + Sync {
    fn size(&self) -> u64;

    /// The caller must ensure that the range is within [`Self::size`].
    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> std::io::Result<()>;
}

impl Source for Vec<u8> {
    fn size(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> std::io::Result<()> {
        let range = usize::try_from(position).ok().and_then(|start| self.get(start..start.checked_add(buffer.len())?));
        buffer.copy_from_slice(range.ok_or(std::io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

#[derive(Debug)]
pub struct FileSource {
    file: File,
    size: u64,
}

impl FileSource {
    /// The size is read once: data that are appended later are invisible.
    pub fn open(path: &Path) -> std::io::Result<FileSource> {
        let file = File::open(path)?;
        let size = file.metadata()?.len();
        Ok(FileSource { file, size })
    }
}

impl Source for FileSource {
    fn size(&self) -> u64 {
        self.size
    }

    fn read_exact_at(&self, buffer: &mut [u8], position: u64) -> std::io::Result<()> {
        self.file.read_exact_at(buffer, position)
    }
}

/// Contiguous data without the first byte of each block.
pub(crate) struct BlockReader<'s> {
    source: &'s dyn Source,
    position: u64,
}

impl<'s> BlockReader<'s> {
    /// `position` may be that of the first byte of a block.
    pub(crate) fn new(source: &'s dyn Source, position: u64) -> BlockReader<'s> {
        BlockReader { source, position }
    }

    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// Allocates memory only if the file contains `len` more bytes.
    pub(crate) fn read(&mut self, len: u64) -> Result<Vec<u8>, FileError> {
        let start = self.position;
        let end = end_of_run(start, len).filter(|end| *end <= self.source.size());
        let end = end.ok_or(FileError::BeyondEnd { position: start })?;
        let raw_len = usize::try_from(end - start).map_err(|_| FileError::TooLarge { position: start })?;
        let mut bytes = vec![0; raw_len];
        self.source.read_exact_at(&mut bytes, start).map_err(|error| FileError::Io { position: start, error })?;
        self.position = end;
        remove_prefixes(&mut bytes, start);
        Ok(bytes)
    }
}

fn end_of_run(start: u64, len: u64) -> Option<u64> {
    if len == 0 {
        return Some(start);
    }
    let data_per_block = BLOCK - 1;
    // Data bytes of the first block that precede the run.
    let before = (start % BLOCK).saturating_sub(1);
    let last = before.checked_add(len)? - 1;
    let block = start / BLOCK + last / data_per_block;
    block.checked_mul(BLOCK)?.checked_add(1 + last % data_per_block + 1)
}

fn remove_prefixes(bytes: &mut Vec<u8>, position: u64) {
    let block = BLOCK as usize;
    let offset = (position % BLOCK) as usize;
    let mut from = (block - offset) % block;
    let mut to = from;
    while from < bytes.len() {
        let end = bytes.len().min(from + block);
        bytes.copy_within(from + 1..end, to);
        to += end - from - 1;
        from = end;
    }
    bytes.truncate(to.min(bytes.len()));
}

/// Verifies the checksum, if the chunk has one. A chunk longer than `limit` is an error.
pub(crate) fn read_chunk(source: &dyn Source, position: u64, limit: u64) -> Result<Vec<u8>, FileError> {
    let mut run = BlockReader::new(source, position);
    let head = run.read(4)?;
    let head = u32::from_be_bytes([head[0], head[1], head[2], head[3]]);
    let len = u64::from(head & !HAS_CHECKSUM);
    if len > limit {
        return Err(FileError::TooLarge { position });
    }
    if head & HAS_CHECKSUM == 0 {
        return run.read(len);
    }
    let checksum = run.read(CHECKSUM)?;
    let data = run.read(len)?;
    if has_checksum(&data, &checksum) { Ok(data) } else { Err(FileError::Checksum { position }) }
}

/// CouchDB uses MD5, or since version 3.4 the 128-bit XXH3 hash.
pub(crate) fn has_checksum(data: &[u8], checksum: &[u8]) -> bool {
    let xxh = xxh3_128(data);
    checksum == xxh.to_le_bytes() || checksum == xxh.to_be_bytes() || checksum == Md5::digest(data).as_slice()
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn runs_skip_the_first_byte_of_each_block() {
        let mut file: Vec<u8> = (0..20_000_u32).map(|at| (at % 251) as u8).collect();
        for block in file.chunks_mut(BLOCK as usize) {
            block[0] = 0xff;
        }
        let expected = |start: usize, len: usize| -> Vec<u8> {
            (start..file.len()).filter(|at| at % BLOCK as usize != 0).take(len).map(|at| file[at]).collect()
        };
        for start in [0, 1, 2, 4094, 4095, 4096, 4097, 8191, 8192] {
            for len in [0, 1, 2, 4094, 4095, 4096, 8189, 8190, 8191, 9000] {
                let mut run = BlockReader::new(&file, start);
                let bytes = run.read(len).unwrap();
                assert_eq!(bytes, expected(start as usize, len as usize), "{start} {len}");
                let next = run.read(5).unwrap();
                assert_eq!(next, expected(start as usize, len as usize + 5)[len as usize..], "{start} {len}");
            }
        }
        assert!(matches!(BlockReader::new(&file, 19_000).read(1_001), Err(FileError::BeyondEnd { position: 19_000 })));
        assert!(matches!(BlockReader::new(&file, u64::MAX).read(u64::MAX), Err(FileError::BeyondEnd { .. })));
    }

    #[test]
    fn chunks_are_verified() {
        let mut file = vec![0; 100];
        file.extend_from_slice(&(HAS_CHECKSUM | 3).to_be_bytes());
        file.extend_from_slice(&Md5::digest(b"abc"));
        file.extend_from_slice(b"abc");
        assert_eq!(read_chunk(&file, 100, 10).unwrap(), b"abc");
        assert!(matches!(read_chunk(&file, 100, 2), Err(FileError::TooLarge { position: 100 })));
        *file.last_mut().unwrap() = b'd';
        assert!(matches!(read_chunk(&file, 100, 10), Err(FileError::Checksum { position: 100 })));
    }
}
