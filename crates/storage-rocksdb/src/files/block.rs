//! [`Blocks`]: the blocks of a sorted file with verified checksums; [`Rows`], the keys and values of a block.

use super::bytes::{Bytes, block_checksum, context, is_compression, unpack};

/// Each block ends with the kind of its compression and its checksum.
pub(super) const TRAILER: usize = 5;

const SCANNED_MAX: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Handle {
    pub(super) offset: usize,
    pub(super) size: usize,
}

impl Handle {
    pub(super) fn decode(bytes: &mut Bytes<'_>) -> Option<Self> {
        Some(Self { offset: bytes.length()?, size: bytes.length()? })
    }

    pub(super) fn end(self) -> Option<usize> {
        self.offset.checked_add(self.size)?.checked_add(TRAILER)
    }
}

#[derive(Clone, Copy)]
pub(super) struct Blocks<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) checksum: u8,
    pub(super) base: u32,
}

impl<'a> Blocks<'a> {
    fn checked(&self, handle: Handle) -> Option<(u8, &'a [u8])> {
        let bytes = self.bytes.get(handle.offset..handle.end()?)?;
        let (data, trailer) = bytes.split_at(handle.size);
        let mut rest = Bytes(trailer);
        let kind = rest.byte()?;
        let expected =
            block_checksum(self.checksum, data, kind)?.wrapping_add(context(self.base, handle.offset as u64));
        (rest.fixed32()? == expected).then_some((kind, data))
    }

    pub(super) fn is_whole(&self, handle: Handle) -> bool {
        self.checked(handle).is_some()
    }

    /// `None` if the block is damaged.
    pub(super) fn read(&self, handle: Handle) -> Option<Vec<u8>> {
        let (kind, data) = self.checked(handle)?;
        unpack(kind, data)
    }

    /// Finds the block that starts at `offset` and ends before `end`, by its checksum.
    pub(super) fn find(&self, offset: usize, end: usize) -> Option<Handle> {
        let sizes = self.sizes(offset, end);
        sizes.map(|size| Handle { offset, size }).find(|handle| self.is_whole(*handle))
    }

    fn sizes(&self, offset: usize, end: usize) -> impl Iterator<Item = usize> + use<'a> {
        let most = end.min(self.bytes.len()).saturating_sub(offset + TRAILER).min(SCANNED_MAX);
        let bytes = self.bytes;
        (1..=most).filter(move |size| is_compression(bytes[offset + size]))
    }

    /// Finds the base of the checksums of a file whose end is damaged: the one that matches the first two blocks.
    pub(super) fn find_base(bytes: &'a [u8], checksum: u8) -> Option<u32> {
        let blocks = Blocks { bytes, checksum, base: 0 };
        blocks.sizes(0, bytes.len()).find_map(|size| {
            let mut trailer = Bytes(&bytes[size..]);
            let kind = trailer.byte()?;
            let base = trailer.fixed32()?.wrapping_sub(block_checksum(checksum, &bytes[..size], kind)?);
            unpack(kind, &bytes[..size]).filter(|block| Rows::new(block).is_some())?;
            let blocks = Blocks { bytes, checksum, base };
            (base != 0 && blocks.find(size + TRAILER, bytes.len()).is_some()).then_some(base)
        })
    }
}

pub(super) struct Rows<'a> {
    rest: Bytes<'a>,
    key: Vec<u8>,
    is_index: bool,
}

const SEPARATED: u32 = 1 << 28;
const UNIFORM: u32 = 1 << 29;
const HASHED: u32 = 1 << 31;

impl<'a> Rows<'a> {
    pub(super) fn new(block: &'a [u8]) -> Option<Self> {
        let (rest, packed) = block.split_last_chunk::<4>()?;
        let packed = u32::from_le_bytes(*packed);
        if packed & (SEPARATED | HASHED) != 0 {
            return None;
        }
        let restarts = (packed & !UNIFORM) as usize;
        let entries = rest.len().checked_sub(restarts.checked_mul(4)?)?;
        (restarts > 0).then(|| Self { rest: Bytes(&rest[..entries]), key: Vec::new(), is_index: false })
    }

    #[expect(clippy::type_complexity, reason = "the key is lent by the cursor, the value by the block")]
    pub(super) fn next(&mut self) -> Result<Option<(&[u8], &'a [u8])>, ()> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let value = self.step().ok_or(())?;
        Ok(Some((&self.key, value)))
    }

    fn step(&mut self) -> Option<&'a [u8]> {
        let (shared, own) = (self.rest.length()?, self.rest.length()?);
        let length = if self.is_index { 0 } else { self.rest.length()? };
        if shared > self.key.len() {
            return None;
        }
        self.key.truncate(shared);
        self.key.extend_from_slice(self.rest.take(own)?);
        self.rest.take(length)
    }
}

/// Returns the entries of an index block: the greatest key of each block, as stored, and the position of the block.
pub(super) fn handles(block: &[u8], has_deltas: bool) -> Option<Vec<(Vec<u8>, Handle)>> {
    let mut rows = Rows::new(block)?;
    rows.is_index = has_deltas;
    let mut found: Vec<(Vec<u8>, Handle)> = Vec::new();
    while !rows.rest.is_empty() {
        // A handle is stored completely if its key is.
        let shared = Bytes(rows.rest.0).varint()?;
        let mut value = Bytes(rows.step()?);
        let handle = if !has_deltas {
            Handle::decode(&mut value)?
        } else if shared == 0 {
            Handle::decode(&mut rows.rest)?
        } else {
            let (_, before) = found.last()?;
            let zigzag = rows.rest.varint()?;
            let delta = (zigzag >> 1) as i64 ^ -((zigzag & 1) as i64);
            Handle { offset: before.end()?, size: usize::try_from(before.size as i64 + delta).ok()? }
        };
        found.push((rows.key.clone(), handle));
    }
    Some(found)
}
