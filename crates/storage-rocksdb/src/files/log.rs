//! [`Log`]: the records of a log file, of writes or of the manifest, and the places where there should be one.
//!
//! A log consists of blocks of 32 KiB, and a record of fragments that are in one block each. Behind a fragment that is
//! damaged the next one is looked for where its length points, and then at the next block: nowhere else, because bytes
//! that a client has written may look like a fragment.

use super::bytes::{Bytes, masked_crc};

const BLOCK: usize = 32 << 10;
const HEADER: usize = 7;
/// The header of a fragment in a file that was used before has the number of the log as well.
const RECYCLED_HEADER: usize = HEADER + 4;

/// The records of a file that was read as a whole.
pub(super) struct Log<'a> {
    bytes: &'a [u8],
    at: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A record, and where it begins.
    Record(usize, Vec<u8>),
    /// Bytes that are no record.
    Damage {
        offset: usize,
        length: usize,
        /// Nothing that can be read follows: what a crash leaves looks like that.
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
    /// The notes that the store keeps for itself.
    Note,
}

/// A record as it follows the first `length` bytes of a log.
pub(super) fn append(length: usize, record: &[u8]) -> Vec<u8> {
    let (mut out, mut rest, mut is_first) = (Vec::new(), record, true);
    loop {
        let left = BLOCK - (length + out.len()) % BLOCK;
        if left < HEADER {
            out.resize(out.len() + left, 0);
            continue;
        }
        let (payload, others) = rest.split_at(rest.len().min(left - HEADER));
        let kind = match (is_first, others.is_empty()) {
            (true, true) => 1,
            (true, false) => 2,
            (false, false) => 3,
            (false, true) => 4,
        };
        out.extend_from_slice(&masked_crc(&[&[kind], payload]).to_le_bytes());
        out.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        out.push(kind);
        out.extend_from_slice(payload);
        if others.is_empty() {
            return out;
        }
        (rest, is_first) = (others, false);
    }
}

/// Returns true if the record at `at`, which is not whole, looks like a write that did not reach the disk as a whole: what is missing of
/// it is zeros, or behind the end of the file. Others may follow it that were written later and reached the disk.
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

/// Whether the record at `at`, which is not whole, ends where the file does, or nothing but zeros follows: that is what a crash
/// leaves. Fragments of it that are whole may be in blocks before.
pub(super) fn is_cut(bytes: &[u8], mut at: usize) -> bool {
    let log = Log::new(bytes);
    while let Some(Fragment { kind: Kind::First | Kind::Middle, end, .. }) = log.fragment(at) {
        let left = BLOCK - end % BLOCK;
        at = if left < HEADER { end + left } else { end };
    }
    let Some(length) = bytes.get(at + 4..at + 6) else { return true };
    let end = at + HEADER + usize::from(u16::from_le_bytes([length[0], length[1]]));
    // A commit ends with its token, whose bytes are random: few end with two zeros by themselves.
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

    /// Where reading can go on behind damage at `at`.
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
        // Space that was set aside and not used.
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
                // Too little for a header: zeros.
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
                // The end of a record whose beginning is damaged.
                (Kind::Middle | Kind::Last, None) => return self.damage(at, end),
                // A record that does not end; the next one is whole.
                (Kind::Full | Kind::First, Some((start, _))) => {
                    let start = *start;
                    return self.damage(start, at);
                }
            }
        }
    }
}
