//! [`Merge`]: merges the entries of many files in key order, and collects the lost key ranges.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::entry::{Entry, Kind};
use super::table::{self, DataRange, Location, MAX_KEY};

/// Keys whose entries cannot be read: exclusive start, inclusive end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LostKeys {
    pub(super) after: Vec<u8>,
    pub(super) through: Vec<u8>,
}

pub(super) struct Source {
    pub(super) bytes: Vec<u8>,
    pub(super) checksum: u8,
    pub(super) base: u32,
    pub(super) data_ranges: VecDeque<DataRange>,
    pub(super) entries: VecDeque<Entry>,
    pub(super) last: Vec<u8>,
}

impl Source {
    fn next(&mut self, lost: &mut Vec<LostKeys>) -> Option<Entry> {
        loop {
            if let Some(entry) = self.entries.pop_front() {
                self.last.clone_from(&entry.key);
                return Some(entry);
            }
            let DataRange { location, through } = self.data_ranges.pop_front()?;
            match table::read(&self.bytes, self.checksum, self.base, location) {
                Some(entries) => self.entries = entries.into(),
                None => {
                    let through = through.unwrap_or(MAX_KEY.to_vec());
                    // After the last block of a file with a damaged end, the unknown rest contains no data.
                    if matches!(location, Location::Block(_)) || through != MAX_KEY || self.last.is_empty() {
                        lost.push(LostKeys { after: self.last.clone(), through: through.clone() });
                    }
                    if through != MAX_KEY {
                        self.last = through;
                    }
                }
            }
        }
    }
}

/// A file that is opened when the merge reaches its first key.
pub(super) struct UnopenedFile {
    pub(super) smallest: Vec<u8>,
    pub(super) open: Box<dyn FnOnce() -> Option<Source>>,
    pub(super) largest: Vec<u8>,
}

/// Range deletions by start key, with the end key and the sequence number. Each covers a whole shard.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<Vec<u8>, (Vec<u8>, u64)>);

impl Ranges {
    pub(super) fn add(&mut self, range: &Entry) {
        let found = self.0.entry(range.key.clone()).or_insert_with(|| (range.value.clone(), range.seq));
        found.1 = found.1.max(range.seq);
    }

    fn hides(&self, entry: &Entry) -> bool {
        let before = self.0.range::<[u8], _>((std::ops::Bound::Unbounded, std::ops::Bound::Included(&entry.key[..])));
        before.last().is_some_and(|(_, (end, seq))| entry.key < *end && entry.seq < *seq)
    }
}

type HeapKey = (Vec<u8>, Reverse<u64>, usize, HeapEntry);

/// Returns the newest entry of each key, in key order.
pub(super) struct Merge {
    /// In descending order of the first keys.
    unopened: Vec<UnopenedFile>,
    open: Vec<Source>,
    heap: BinaryHeap<Reverse<HeapKey>>,
    ranges: Ranges,
    last: Option<Vec<u8>>,
    pub(super) lost: Vec<LostKeys>,
}

/// All elements of the heap are equal in this part, so that it does not affect their order.
struct HeapEntry(Entry);

impl PartialEq for HeapEntry {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for HeapEntry {}

impl PartialOrd for HeapEntry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for HeapEntry {
    fn cmp(&self, _: &Self) -> std::cmp::Ordering {
        std::cmp::Ordering::Equal
    }
}

impl Merge {
    pub(super) fn new(mut unopened: Vec<UnopenedFile>, logged: Source, ranges: Ranges) -> Self {
        unopened.sort_by(|a, b| b.smallest.cmp(&a.smallest));
        let mut merge =
            Self { unopened, open: Vec::new(), heap: BinaryHeap::new(), ranges, last: None, lost: Vec::new() };
        merge.add(logged);
        merge
    }

    fn add(&mut self, source: Source) {
        self.open.push(source);
        self.advance(self.open.len() - 1);
    }

    fn advance(&mut self, index: usize) {
        match self.open[index].next(&mut self.lost) {
            Some(entry) => {
                self.heap.push(Reverse((entry.key.clone(), Reverse(entry.seq), index, HeapEntry(entry))));
            }
            None => self.open[index].bytes = Vec::new(),
        }
    }

    fn pop(&mut self) -> Option<Entry> {
        loop {
            let next = self.heap.peek().map(|Reverse((key, ..))| key);
            let is_due = self.unopened.last().is_some_and(|unopened| next.is_none_or(|key| unopened.smallest <= *key));
            if !is_due {
                break;
            }
            let UnopenedFile { smallest, open, largest } = self.unopened.pop()?;
            match open() {
                Some(source) => self.add(source),
                None => self.lost.push(LostKeys { after: smallest, through: largest }),
            }
        }
        let Reverse((_, _, index, HeapEntry(entry))) = self.heap.pop()?;
        self.advance(index);
        Some(entry)
    }

    pub(super) fn next(&mut self) -> Option<Entry> {
        loop {
            let entry = self.pop()?;
            if self.last.as_ref() == Some(&entry.key) {
                continue;
            }
            self.last = Some(entry.key.clone());
            if matches!(entry.kind, Kind::Value | Kind::Blob) && !self.ranges.hides(&entry) {
                return Some(entry);
            }
        }
    }
}
