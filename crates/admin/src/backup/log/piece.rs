//! A piece of a log, as it is stored:
//!
//! ```text
//! gzip of:  "SETTEEL1", varint position in front of the first record,
//!           each record: varint how far its end is behind the one before, varint time in microseconds + 1 (0: none),
//!                        bytes (length as a varint) as the engine has them,
//!           SHA-256 of all that
//! ```

use std::io::{Read as _, Write as _};

use anyhow::{Context as _, anyhow, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use settee_storage::LogRecord;
use settee_storage::codec::{Reader, put_bytes, put_varint};
use sha2::{Digest as _, Sha256};

const MAGIC: &[u8; 8] = b"SETTEEL1";
const SUM: usize = 32;

/// Maximum size of an unpacked piece. A single commit, which has its own limit, can fill a piece.
const UNPACKED_BYTES: u64 = 2 << 30;

pub(super) struct Piece {
    bytes: Vec<u8>,
    pub(super) after: u64,
    pub(super) end: u64,
}

impl Piece {
    pub(super) fn new(after: u64) -> Self {
        let mut bytes = MAGIC.to_vec();
        put_varint(&mut bytes, after);
        Self { bytes, after, end: after }
    }

    pub(super) fn push(&mut self, record: LogRecord<'_>) {
        put_varint(&mut self.bytes, record.end - self.end);
        put_varint(&mut self.bytes, record.time_us.map_or(0, |time| time + 1));
        put_bytes(&mut self.bytes, record.bytes);
        self.end = record.end;
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.end == self.after
    }

    pub(super) fn finish(mut self) -> anyhow::Result<Vec<u8>> {
        let sum = Sha256::digest(&self.bytes);
        self.bytes.extend_from_slice(&sum);
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&self.bytes)?;
        Ok(packed.finish()?)
    }
}

pub(super) struct Read(Vec<u8>);

impl Read {
    pub(super) fn open(packed: &[u8]) -> anyhow::Result<Self> {
        let mut bytes = Vec::new();
        GzDecoder::new(packed).take(UNPACKED_BYTES).read_to_end(&mut bytes).context("it cannot be unpacked")?;
        let content = bytes.len().checked_sub(SUM).context("it is truncated")?;
        ensure!(Sha256::digest(&bytes[..content])[..] == bytes[content..], "it is damaged");
        ensure!(bytes.starts_with(MAGIC), "its format is not supported by this version");
        bytes.truncate(content);
        Ok(Self(bytes))
    }

    /// Calls `each` with the records, which must follow the position `after`, until it returns false. Returns true if
    /// all records were consumed, and the position after the last.
    pub(super) fn each(
        &self,
        after: u64,
        each: &mut dyn FnMut(LogRecord<'_>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<(bool, u64)> {
        let mut reader = Reader::new(&self.0[MAGIC.len()..], "a piece of a log");
        let broken = |error: settee_storage::codec::Corrupt| anyhow!("{}", error.0);
        let mut end = reader.varint().map_err(broken)?;
        ensure!(end == after, "the preceding piece is missing: it starts at {end}, not at {after}");
        while !reader.is_at_end() {
            end += reader.varint().map_err(broken)?;
            let time_us = reader.varint().map_err(broken)?.checked_sub(1);
            let bytes = reader.bytes().map_err(broken)?;
            if !each(LogRecord { end, time_us, bytes })? {
                return Ok((false, end));
            }
        }
        Ok((true, end))
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_written_and_damage_is_found() {
        let records = [(11, Some(5), vec![1; 1000]), (12, None, vec![]), (900, Some(u64::MAX - 1), vec![2; 3])];
        let mut piece = Piece::new(10);
        assert!(piece.is_empty());
        for (end, time_us, bytes) in &records {
            piece.push(LogRecord { end: *end, time_us: *time_us, bytes });
        }
        assert_eq!((piece.after, piece.end, piece.is_empty()), (10, 900, false));
        let packed = piece.finish().unwrap();
        let collect = |after: u64, most: usize| -> anyhow::Result<_> {
            let mut found = Vec::new();
            let end = Read::open(&packed)?.each(after, &mut |record| {
                found.push((record.end, record.time_us, record.bytes.to_vec()));
                Ok(found.len() < most)
            })?;
            Ok((found, end))
        };
        assert_eq!(collect(10, 9).unwrap(), (records.to_vec(), (true, 900)));
        assert_eq!(collect(10, 2).unwrap(), (records[..2].to_vec(), (false, 12)));
        assert!(collect(9, 9).unwrap_err().to_string().contains("missing"));
        for place in 10..packed.len() {
            let mut bad = packed.clone();
            bad[place] ^= 1;
            let opened = Read::open(&bad).map(|read| read.0);
            assert!(opened.is_err() || opened.unwrap() == Read::open(&packed).unwrap().0, "{place}");
        }
        for length in 0..packed.len() - 8 {
            assert!(Read::open(&packed[..length]).is_err(), "{length}");
        }
    }
}
