//! Numbers and strings in RocksDB's formats ([`Bytes`]), and its checksums.

/// Bytes that were not read yet. Every method returns `None` if they are too short.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bytes<'a>(pub(super) &'a [u8]);

impl<'a> Bytes<'a> {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn take(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    pub(super) fn byte(&mut self) -> Option<u8> {
        self.take(1).map(|byte| byte[0])
    }

    pub(super) fn fixed32(&mut self) -> Option<u32> {
        Some(u32::from_le_bytes(self.take(4)?.try_into().ok()?))
    }

    pub(super) fn fixed64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    pub(super) fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    pub(super) fn length(&mut self) -> Option<usize> {
        usize::try_from(self.varint()?).ok()
    }

    pub(super) fn prefixed(&mut self) -> Option<&'a [u8]> {
        let length = self.length()?;
        self.take(length)
    }
}

pub(super) fn masked_crc(parts: &[&[u8]]) -> u32 {
    let crc = parts.iter().fold(0, |crc, part| crc32c::crc32c_append(crc, part));
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

const CRC: u8 = 1;
const XXH3: u8 = 4;

/// The last byte of the block is passed separately. `None` for an unknown kind.
pub(super) fn block_checksum(kind: u8, data: &[u8], last: u8) -> Option<u32> {
    match kind {
        CRC => Some(masked_crc(&[data, &[last]])),
        XXH3 => Some(xxhash_rust::xxh3::xxh3_64(data) as u32 ^ u32::from(last).wrapping_mul(0x6b90_83d9)),
        _ => None,
    }
}

/// Added to the checksum of the block at `offset` in a file with this base, so that a misplaced block does not match.
pub(super) fn context(base: u32, offset: u64) -> u32 {
    if base == 0 { 0 } else { base ^ (offset as u32).wrapping_add((offset >> 32) as u32) }
}

const NO_COMPRESSION: u8 = 0;
const LZ4: u8 = 4;
const ZSTD: u8 = 7;

const UNPACKED_MAX: u64 = 1 << 30;

pub(super) fn is_compression(kind: u8) -> bool {
    matches!(kind, NO_COMPRESSION | LZ4 | ZSTD)
}

pub(super) fn unpack(kind: u8, packed: &[u8]) -> Option<Vec<u8>> {
    if kind == NO_COMPRESSION {
        return Some(packed.to_vec());
    }
    let mut bytes = Bytes(packed);
    let size = bytes.varint().filter(|size| *size <= UNPACKED_MAX)? as usize;
    match kind {
        LZ4 => lz4_flex::block::decompress(bytes.0, size).ok(),
        ZSTD => {
            let mut out = vec![0; size];
            let length = ruzstd::decoding::FrameDecoder::new().decode_all(bytes.0, &mut out).ok()?;
            (length == size).then_some(out)
        }
        _ => None,
    }
}
