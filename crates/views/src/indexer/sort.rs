//! [`Sorting`] sorts the rows of one buffer, by eight bytes of their keys as a number; further passes sort groups with
//! equal bytes by the next bytes that differ. Between passes the caller may move the rows into the current order.

use std::cmp::Ordering;
use std::ops::Range;

use super::radix::{self, Numbered};
use super::slot::Slot;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By sort key; the sort is stable.
    SortKey,
    /// By whole key; a removal follows a put of the same key.
    Key,
}

impl By {
    /// Returns the compared bytes. No part is a proper prefix of another.
    fn part<'a>(self, slot: &Slot, bytes: &'a [u8]) -> &'a [u8] {
        match self {
            By::SortKey => slot.sort_key(bytes),
            By::Key => slot.key(bytes),
        }
    }

    fn then(self, a: &Slot, b: &Slot) -> Ordering {
        match self {
            By::SortKey => Ordering::Equal,
            By::Key => a.is_removal().cmp(&b.is_removal()),
        }
    }
}

/// Comparison sorts at most `FEW_ROWS` rows, and rows with more than `LONG_BYTES` common bytes.
const FEW_ROWS: usize = 16;
const LONG_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Sorting {
    order: Vec<Numbered>,
    numbered: Vec<Numbered>,
    slots: Vec<Slot>,
    ties: Vec<(Range<usize>, usize)>,
}

impl Sorting {
    /// Sorts by the first bytes that differ. The caller must then call [`Sorting::finish`].
    pub(super) fn begin(&mut self, bytes: &[u8], slots: &mut [Slot], by: By) {
        self.ties.clear();
        self.sort(bytes, slots, by, 0..slots.len(), 0);
    }

    pub(super) fn finish(&mut self, bytes: &[u8], slots: &mut [Slot], by: By) {
        while let Some((rows, shared)) = self.ties.pop() {
            self.sort(bytes, slots, by, rows, shared);
        }
    }

    /// Sorts by the first eight bytes that differ after `shared` bytes, and records groups of equal rows in `ties`.
    fn sort(&mut self, bytes: &[u8], all: &mut [Slot], by: By, rows: Range<usize>, shared: usize) {
        let slots = &mut all[rows.clone()];
        let part = |slot: &Slot| by.part(slot, bytes);
        if slots.len() <= FEW_ROWS || shared > LONG_BYTES {
            slots.sort_by(|a, b| part(a).cmp(part(b)).then_with(|| by.then(a, b)));
            return;
        }
        let Some(shared) = differ_at(slots, part, shared) else {
            slots.sort_by(|a, b| by.then(a, b));
            return;
        };
        self.order.clear();
        self.order.extend(slots.iter().map(|slot| word_at(part(slot), shared)).zip(0..));
        radix::sort(&mut self.order, &mut self.numbered);
        self.slots.clear();
        self.slots.extend(self.order.iter().map(|(_, index)| slots[*index as usize]));
        slots.copy_from_slice(&self.slots);
        let mut start = rows.start;
        for equal in self.order.chunk_by(|a, b| a.0 == b.0) {
            let rows = start..start + equal.len();
            start = rows.end;
            if equal.len() > 1 {
                self.ties.push((rows, shared + size_of::<u64>()));
            }
        }
    }
}

fn differ_at<'a>(slots: &[Slot], part: impl Fn(&Slot) -> &'a [u8], shared: usize) -> Option<usize> {
    let first = part(slots.first()?);
    (shared..first.len()).step_by(size_of::<u64>()).find_map(|at| {
        let word = word_at(first, at);
        let differing = slots.iter().fold(0, |bits, slot| bits | (word_at(part(slot), at) ^ word));
        (differing != 0).then(|| at + differing.leading_zeros() as usize / 8)
    })
}

/// Returns eight bytes as a number with the same order. Missing bytes are zero, because no part is a proper prefix.
fn word_at(bytes: &[u8], start: usize) -> u64 {
    let bytes = bytes.get(start..).unwrap_or_default();
    if let Some(word) = bytes.first_chunk() {
        return u64::from_be_bytes(*word);
    }
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_be_bytes(word)
}
