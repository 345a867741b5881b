//! [`Bloom`]: stored filter for the ids of a segment, so that a change need not read the ids of all segments.

use std::io::Write as _;

use tantivy::directory::{FileSlice, TerminatingWrite};
use tantivy::{Directory, HasLen};

use crate::error::{Error, Result};
use crate::store::SegmentRecord;

/// The false-positive rate is about two percent.
const BITS_PER_ID: usize = 10;
/// All bits of an id are in one block, so that a lookup reads one position.
const PROBES: u32 = 5;
const BLOCK_BYTES: usize = 64;
const BITS_PER_PROBE: u32 = 9;

const SUFFIX: &str = ".ids";

pub(super) enum Bloom {
    Memory(Vec<u8>),
    Stored(FileSlice),
}

impl Bloom {
    pub(super) fn with_room(count: usize) -> Self {
        Self::Memory(vec![0; (count * BITS_PER_ID).div_ceil(8 * BLOCK_BYTES).max(1) * BLOCK_BYTES])
    }

    pub(super) fn add(&mut self, id: &[u8]) {
        let Self::Memory(bytes) = self else { return };
        let hash = hash(id);
        let start = block(hash, bytes.len()) * BLOCK_BYTES;
        places(hash).for_each(|(byte, bit)| bytes[start + byte] |= bit);
    }

    /// False only if the segment does not contain the document.
    pub(super) fn may_contain(&self, id: &str) -> Result<bool> {
        let hash = hash(id.as_bytes());
        let has = |block: &[u8]| places(hash).all(|(byte, bit)| block[byte] & bit != 0);
        match self {
            Self::Memory(bytes) => Ok(has(&bytes[block(hash, bytes.len()) * BLOCK_BYTES..])),
            Self::Stored(file) => {
                let start = block(hash, file.len()) * BLOCK_BYTES;
                let read = file.read_bytes_slice(start..start + BLOCK_BYTES).map_err(Error::from_io)?;
                Ok(has(&read))
            }
        }
    }

    pub(super) fn write(&self, directory: &dyn Directory, segment: &str) -> Result<()> {
        let Self::Memory(bytes) = self else { return Ok(()) };
        let mut out = directory.open_write(name(segment).as_ref()).map_err(tantivy::TantivyError::from)?;
        out.write_all(bytes).map_err(Error::from_io)?;
        out.terminate().map_err(Error::from_io)
    }

    /// Returns `None` for a segment of an earlier version without filter.
    pub(super) fn open(directory: &dyn Directory, segment: &SegmentRecord) -> Result<Option<Self>> {
        let name = name(&segment.id);
        if segment.files.iter().all(|file| file.name != name) {
            return Ok(None);
        }
        let file = directory.open_read(name.as_ref()).map_err(tantivy::TantivyError::from)?;
        let is_whole = file.len() >= BLOCK_BYTES && file.len() % BLOCK_BYTES == 0;
        if is_whole { Ok(Some(Self::Stored(file))) } else { Err(Error::Corrupt("a filter of ids".to_owned())) }
    }
}

fn name(segment: &str) -> String {
    format!("{segment}{SUFFIX}")
}

/// FNV-1a with a final mix. Filters are stored, so this function must not change.
fn hash(id: &[u8]) -> u64 {
    let hash =
        id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    let hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}

fn block(hash: u64, length: usize) -> usize {
    (((hash & 0xffff_ffff) * (length / BLOCK_BYTES) as u64) >> 32) as usize
}

fn places(hash: u64) -> impl Iterator<Item = (usize, u8)> {
    let bits = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..PROBES).map(move |probe| {
        let place = (bits >> (64 - BITS_PER_PROBE * (probe + 1))) & ((1 << BITS_PER_PROBE) - 1);
        ((place / 8) as usize, 1 << (place % 8))
    })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use tantivy::directory::{ManagedDirectory, RamDirectory};

    use super::*;
    use crate::store::FileRecord;

    #[test]
    fn a_stored_filter_finds_its_ids_and_few_others() {
        for count in [1, 10_000] {
            let mut bloom = Bloom::with_room(count);
            (0..count).for_each(|number| bloom.add(format!("id{number}").as_bytes()));
            let directory = ManagedDirectory::wrap(Box::new(RamDirectory::create())).unwrap();
            bloom.write(&directory, "segment").unwrap();
            let files = vec![FileRecord { name: "segment.ids".to_owned(), number: 0, bytes: 0 }];
            let id = "segment".to_owned();
            let record = SegmentRecord { id, docs: 0, deleted: 0, deleted_at: 0, slots: 0, files };
            let stored = Bloom::open(&directory, &record).unwrap().unwrap();
            for bloom in [&bloom, &stored] {
                assert!((0..count).all(|number| bloom.may_contain(&format!("id{number}")).unwrap()));
                let wrong = (0..10_000).filter(|number| bloom.may_contain(&format!("other{number}")).unwrap()).count();
                assert!(wrong < 300, "{wrong}");
            }
            let without = SegmentRecord { files: Vec::new(), ..record };
            assert!(Bloom::open(&directory, &without).unwrap().is_none());
        }
        assert!(!Bloom::with_room(0).may_contain("x").unwrap());
    }
}
