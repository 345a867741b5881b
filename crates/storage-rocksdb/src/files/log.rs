//! [`Log`]: the records of a log file or a manifest, and the damaged ranges between them. A log consists of blocks of
//! 32 KiB, and a record of fragments in one block each. After a damaged fragment the next one is searched for at its
//! end and at the starts of the next blocks only, because the data of clients can look like a fragment.

use super::bytes::{Bytes, masked_crc};

pub(super) const BLOCK: usize = 32 << 10;
pub(super) const HEADER: usize = 7;
/// In a recycled file the header of a fragment also contains the number of the log.
const RECYCLED_HEADER: usize = HEADER + 4;

pub(super) struct Log<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    Record(usize, Vec<u8>),
    Damage {
        offset: usize,
        length: usize,
        /// No readable bytes follow, as after a crash.
        is_last: bool,
    },
}

struct Fragment<'a> {
    kind: Kind,
    payload: &'a [u8],
    end: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Full,
    First,
    Middle,
    Last,
    Note,
}

/// Returns true if the missing part of the incomplete record at `at` is zeros or beyond the end of the file.
pub(super) fn is_torn(bytes: &[u8], mut at: usize) -> bool {
    let log = Log::new(bytes);
    while let Some(Fragment { kind: Kind::First | Kind::Middle, end, .. }) = log.fragment(at) {
        let left = BLOCK - end % BLOCK;
        at = if left < HEADER { end + left } else { end };
    }
    let Some(header) = bytes.get(at..at + HEADER) else { return true };
    // No fragment has the kind 0.
    if header[HEADER - 1] == 0 {
        return true;
    }
    let end = at + HEADER + usize::from(u16::from_le_bytes([header[4], header[5]]));
    let is_in_block = (end - 1) / BLOCK == at / BLOCK;
    is_in_block && bytes.get(end - 1).is_none_or(|last| *last == 0)
}

/// Returns true if the incomplete record at `at` ends at the end of the file, or if only zeros follow.
pub(super) fn is_cut(bytes: &[u8], mut at: usize) -> bool {
    let log = Log::new(bytes);
    while let Some(Fragment { kind: Kind::First | Kind::Middle, end, .. }) = log.fragment(at) {
        let left = BLOCK - end % BLOCK;
        at = if left < HEADER { end + left } else { end };
    }
    let Some(length) = bytes.get(at + 4..at + 6) else { return true };
    let end = at + HEADER + usize::from(u16::from_le_bytes([length[0], length[1]]));
    // A commit ends with its token, whose bytes are random and rarely end with two zeros.
    end > bytes.len() || bytes.ends_with(&[0; 2])
}

impl<'a> Log<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    fn fragment(&self, at: usize) -> Option<Fragment<'a>> {
        let in_block = (BLOCK - at % BLOCK).min(self.bytes.len().checked_sub(at)?);
        let mut rest = Bytes(&self.bytes[at..at + in_block]);
        let crc = rest.fixed32()?;
        let length = usize::from(u16::from_le_bytes(rest.take(2)?.try_into().ok()?));
        let typed = rest.0;
        let (kind, header) = match rest.byte()? {
            1 => (Kind::Full, HEADER),
            2 => (Kind::First, HEADER),
            3 => (Kind::Middle, HEADER),
            4 => (Kind::Last, HEADER),
            5 => (Kind::Full, RECYCLED_HEADER),
            6 => (Kind::First, RECYCLED_HEADER),
            7 => (Kind::Middle, RECYCLED_HEADER),
            8 => (Kind::Last, RECYCLED_HEADER),
            9 | 10 | 130 => (Kind::Note, HEADER),
            11 | 131 => (Kind::Note, RECYCLED_HEADER),
            _ => return None,
        };
        rest.take(header - HEADER)?;
        let payload = rest.take(length)?;
        let checked = typed.get(..header - HEADER + 1 + length)?;
        (masked_crc(&[checked]) == crc).then_some(Fragment { kind, payload, end: at + header + length })
    }

    fn resume(&self, at: usize) -> usize {
        if let Some(length) = self.bytes.get(at + 4..at + 6) {
            let end = at + HEADER + usize::from(u16::from_le_bytes([length[0], length[1]]));
            if end / BLOCK == at / BLOCK && self.fragment(end).is_some() {
                return end;
            }
        }
        let mut block = (at / BLOCK + 1) * BLOCK;
        while block < self.bytes.len() && self.fragment(block).is_none() {
            block += BLOCK;
        }
        block.min(self.bytes.len())
    }

    fn damage(&mut self, offset: usize, end: usize) -> Option<Item> {
        self.at = end;
        let length = end - offset;
        let is_last = end == self.bytes.len();
        // Preallocated space that was not used.
        if is_last && self.bytes[offset..].iter().all(|byte| *byte == 0) {
            return None;
        }
        Some(Item::Damage { offset, length, is_last })
    }
}

impl Iterator for Log<'_> {
    type Item = Item;

    fn next(&mut self) -> Option<Item> {
        let mut begun: Option<(usize, Vec<u8>)> = None;
        loop {
            let at = self.at;
            if at >= self.bytes.len() {
                let (start, _) = begun?;
                return self.damage(start, self.bytes.len());
            }
            let left = BLOCK - at % BLOCK;
            if left < HEADER {
                // The rest of the block is too short for a header and is filled with zeros.
                let end = (at + left).min(self.bytes.len());
                if self.bytes[at..end].iter().any(|byte| *byte != 0) {
                    return self.damage(at, end);
                }
                self.at = end;
                continue;
            }
            let Some(Fragment { kind, payload, end }) = self.fragment(at) else {
                let start = begun.map_or(at, |(start, _)| start);
                let end = self.resume(at);
                return self.damage(start, end);
            };
            match (kind, &mut begun) {
                (Kind::Note, _) => self.at = end,
                (Kind::Full, None) => {
                    self.at = end;
                    return Some(Item::Record(at, payload.to_vec()));
                }
                (Kind::First, None) => {
                    self.at = end;
                    begun = Some((at, payload.to_vec()));
                }
                (Kind::Middle, Some((_, record))) => {
                    self.at = end;
                    record.extend_from_slice(payload);
                }
                (Kind::Last, Some((start, record))) => {
                    self.at = end;
                    record.extend_from_slice(payload);
                    return Some(Item::Record(*start, std::mem::take(record)));
                }
                (Kind::Middle | Kind::Last, None) => return self.damage(at, end),
                (Kind::Full | Kind::First, Some((start, _))) => {
                    let start = *start;
                    return self.damage(start, at);
                }
            }
        }
    }
}
