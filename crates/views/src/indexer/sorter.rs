//! [`Sorter`] collects rows in one flat buffer, sorts them, and spills them to a file if memory is short. If a key is
//! both removed and put, the put has priority.

use std::cmp::Ordering;

use super::merge::Source;
use super::radix::Numbered;
use super::runs::RunDirectory;
use super::slot::{REMOVED, Slot};
use super::sort::{By, Sorting};
use crate::error::Result;
use crate::index::RunFile;
use crate::tree::apply::Change;

const SLOT_BYTES: usize = size_of::<Slot>() + size_of::<Numbered>();

/// Typical maximum length of a row. Over-reserving costs nothing, because untouched pages are not allocated.
const ROW_BYTES: usize = 128;

/// A larger sorter, caused by a document with long rows, frees its memory.
const KEPT_BYTES: usize = 32 << 20;

#[derive(Debug, Default)]
pub(super) struct Space {
    sorting: Sorting,
    bytes: Vec<u8>,
}

#[derive(Debug, Default)]
pub(crate) struct Sorter {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
    expected_rows: usize,
    /// True if the sorter contains removals, or documents that are not in the order of their ids.
    is_unsorted: bool,
    longest_sort_key: u32,
}

impl Sorter {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * SLOT_BYTES
    }

    /// Reserves memory for at most `rows` rows and `bytes` bytes, because growth would copy the buffer.
    pub(crate) fn expect(&mut self, rows: u64, bytes: usize) {
        let most = bytes / (ROW_BYTES + SLOT_BYTES);
        self.expected_rows = usize::try_from(rows).unwrap_or(most).min(most);
    }

    /// Returns the sort key. `write_key` must append the row key and return the length of the sort key.
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], write_key: impl FnOnce(&mut Vec<u8>) -> usize) -> &[u8] {
        if self.expected_rows > 0 {
            let rows = std::mem::take(&mut self.expected_rows);
            self.slots.reserve(rows);
            self.bytes.reserve(rows * ROW_BYTES);
        }
        let start = self.bytes.len();
        let sort_len = write_key(&mut self.bytes);
        let key_len = narrow(self.bytes.len() - start);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let slot = Slot {
            start: narrow(start),
            key_len,
            sort_len: narrow(sort_len),
            emitted_len: narrow(key.len()),
            value_len: narrow(value.len()),
        };
        self.longest_sort_key = self.longest_sort_key.max(slot.sort_len);
        self.slots.push(slot);
        &self.bytes[start..start + sort_len]
    }

    pub(crate) fn mark_unsorted(&mut self) {
        self.is_unsorted = true;
    }

    #[inline]
    pub(crate) fn extend_value(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let before = self.bytes.len();
        write(&mut self.bytes);
        let last = self.slots.last_mut().expect("there is a row to extend");
        last.value_len += narrow(self.bytes.len() - before);
    }

    pub(crate) fn push(&mut self, change: Change<'_>) {
        match change.row {
            None => self.remove(|out| out.extend_from_slice(change.row_key)),
            Some(row) => {
                self.put(row.key, row.value, |out| {
                    out.extend_from_slice(row.row_key);
                    row.sort_len
                });
            }
        }
    }

    pub(crate) fn remove(&mut self, write_key: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write_key(&mut self.bytes);
        let key_len = narrow(self.bytes.len() - start);
        let start = narrow(start);
        self.is_unsorted = true;
        self.slots.push(Slot { start, key_len, sort_len: key_len, emitted_len: 0, value_len: REMOVED });
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
        (self.is_unsorted, self.longest_sort_key) = (false, 0);
    }

    pub(crate) fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        self.slots.iter().map(|slot| slot.change(&self.bytes))
    }

    /// Sorts and returns the contents. The run takes the allocated buffer of `space` and leaves its own.
    pub(super) fn take_sorted(&mut self, space: &mut Space) -> SortedRun {
        let mut run = std::mem::take(self);
        if let Some(by) = run.required_sort() {
            space.sorting.begin(&run.bytes, &mut run.slots, by);
            run.copy_in_order(&mut space.bytes);
            space.sorting.finish(&run.bytes, &mut run.slots, by);
            run.reorder_in_place(&mut space.bytes);
        }
        SortedRun { run, at: 0 }
    }

    fn required_sort(&self) -> Option<By> {
        let in_order = |a: &Slot, b: &Slot| compare(&self.bytes, a, b) != Ordering::Greater;
        match self.is_unsorted {
            // Back-pointers have no sort keys, and documents often arrive in the order of their keys.
            false if self.longest_sort_key == 0 => None,
            _ if self.slots.is_sorted_by(in_order) => None,
            // For documents in the order of their ids, a stable sort by sort key suffices and reads no ids.
            false => Some(By::SortKey),
            true => Some(By::Key),
        }
    }

    /// Moves the rows into the order of their slots. The memory accesses of this loop overlap.
    fn copy_in_order(&mut self, copied: &mut Vec<u8>) {
        copied.clear();
        copied.reserve(self.bytes.len());
        for slot in &mut self.slots {
            let row = &self.bytes[slot.start as usize..][..slot.len()];
            slot.start = narrow(copied.len());
            copied.extend_from_slice(row);
        }
        std::mem::swap(&mut self.bytes, copied);
    }

    /// Moves copied rows, which are nearly in order, into the order of their slots, so that reads are sequential.
    fn reorder_in_place(&mut self, moved: &mut Vec<u8>) {
        let (mut at, mut start) = (0, 0);
        while at < self.slots.len() {
            // Rows are contiguous, so a stretch is complete when all its bytes are present.
            let (first, mut len, mut end) = (at, 0, start);
            while len == 0 || start + len < end {
                let slot = &self.slots[at];
                len += slot.len();
                end = end.max(slot.start as usize + slot.len());
                at += 1;
            }
            if at - first > 1 {
                moved.clear();
                for slot in &mut self.slots[first..at] {
                    let row = &self.bytes[slot.start as usize..][..slot.len()];
                    slot.start = narrow(start + moved.len());
                    moved.extend_from_slice(row);
                }
                self.bytes[start..end].copy_from_slice(moved);
            }
            start = end;
        }
    }

    fn spill(&mut self, directory: &RunDirectory) -> Result<RunFile> {
        if let Some(by) = self.required_sort() {
            let mut sorting = Sorting::default();
            sorting.begin(&self.bytes, &mut self.slots, by);
            sorting.finish(&self.bytes, &mut self.slots, by);
        }
        let file = self.write(directory)?;
        self.clear();
        self.bytes.shrink_to(KEPT_BYTES);
        Ok(file)
    }

    fn write(&self, directory: &RunDirectory) -> Result<RunFile> {
        let mut out = directory.create()?;
        self.slots.iter().try_for_each(|slot| out.push(slot.change(&self.bytes)))?;
        out.finish()
    }
}

#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) current: Sorter,
    sorted: Vec<SortedRun>,
    spilled: Vec<RunFile>,
}

impl Runs {
    pub(crate) fn size_bytes(&self) -> usize {
        self.current.size_bytes()
    }

    pub(super) fn spill(&mut self, directory: &RunDirectory) -> Result<()> {
        if !self.current.is_empty() {
            self.spilled.push(self.current.spill(directory)?);
        }
        Ok(())
    }

    pub(super) fn spill_all(&mut self, directory: &RunDirectory) -> Result<&[RunFile]> {
        self.spill(directory)?;
        for run in std::mem::take(&mut self.sorted) {
            self.spilled.push(run.run.write(directory)?);
        }
        Ok(&self.spilled)
    }

    pub(super) fn seal(&mut self, space: &mut Space) {
        if !self.current.is_empty() {
            self.sorted.push(self.current.take_sorted(space));
        }
    }

    pub(super) fn sorted_bytes(&self) -> u64 {
        let in_memory = self.sorted.iter().map(|run| run.run.size_bytes() as u64).sum::<u64>();
        in_memory + self.spilled.iter().map(|file| file.bytes).sum::<u64>()
    }

    pub(crate) fn take(&mut self) -> (Vec<SortedRun>, Vec<RunFile>) {
        (std::mem::take(&mut self.sorted), std::mem::take(&mut self.spilled))
    }
}

/// A sorter is spilled long before 4 GiB, and batches are limited, so the conversion cannot fail.
fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("a run stays below 4 GiB")
}

fn compare(bytes: &[u8], a: &Slot, b: &Slot) -> Ordering {
    a.key(bytes).cmp(b.key(bytes)).then_with(|| a.is_removal().cmp(&b.is_removal()))
}

#[derive(Debug, Default)]
pub(crate) struct SortedRun {
    run: Sorter,
    at: usize,
}

impl SortedRun {
    /// True if no key can occur twice in this and other runs of the scan.
    pub(crate) fn has_new_rows_only(&self) -> bool {
        !self.run.is_unsorted
    }
}

impl Source for SortedRun {
    #[inline]
    fn row_key(&self) -> Option<&[u8]> {
        self.run.slots.get(self.at).map(|slot| slot.key(&self.run.bytes))
    }

    #[inline]
    fn change(&self) -> Result<Change<'_>> {
        Ok(self.run.slots[self.at].change(&self.run.bytes))
    }

    #[inline]
    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use settee_model::testing::Random;

    use super::*;
    use crate::keys;

    #[track_caller]
    fn check(rows: &[(&[u8], &str, u32)], removed: Option<(&[u8], &str, u32)>) {
        let mut sorter = Sorter::default();
        let mut expected = Vec::new();
        if !rows.is_sorted_by_key(|(_, id, number)| (*id, *number)) {
            sorter.mark_unsorted();
        }
        for (sort_key, id, number) in rows {
            sorter.put(b"1", id.as_bytes(), |out| {
                out.extend_from_slice(sort_key);
                keys::finish_row_key(out, id.as_bytes(), *number);
                sort_key.len()
            });
            let mut key = Vec::new();
            keys::push_row_key(&mut key, sort_key, id.as_bytes(), *number);
            expected.push((key, false));
        }
        if let Some((sort_key, id, number)) = removed {
            sorter.remove(|out| keys::push_row_key(out, sort_key, id.as_bytes(), number));
            let mut key = Vec::new();
            keys::push_row_key(&mut key, sort_key, id.as_bytes(), number);
            expected.push((key, true));
        }
        expected.sort();
        let mut run = sorter.take_sorted(&mut Space::default());
        let mut sorted = Vec::new();
        while let Some(key) = run.row_key().map(<[u8]>::to_vec) {
            sorted.push((key, run.change().unwrap().row.is_none()));
            run.advance().unwrap();
        }
        assert_eq!(sorted, expected, "{rows:?} {removed:?}");
    }

    #[test]
    fn rows_are_sorted_by_key_then_id_then_number() {
        let long = [[7; 20].as_slice(), &[0]].concat();
        let longer = [[7; 20].as_slice(), &[8, 0]].concat();
        let rows: [(&[u8], &str, u32); 7] = [
            (&[1, 9, 0], "a", 0),
            (&[1, 2, 0], "a", 1),
            (&long, "a", 2),
            (&[1, 9, 0], "b", 0),
            (&longer, "c", 0),
            (&[1, 2, 0], "c", 1),
            (&long, "d", 0),
        ];
        check(&[], None);
        check(&rows, None);
        check(&rows, Some((&[1, 9, 0], "a", 0)));
        let mut backwards = rows;
        backwards.reverse();
        check(&backwards, None);
        let constant: Vec<(&[u8], &str, u32)> = ["c", "a", "b"].iter().map(|id| ([5].as_slice(), *id, 0)).collect();
        check(&constant, None);
        check(&constant, Some((&[5], "b", 0)));
    }

    #[test]
    fn many_rows_are_sorted_as_few_are() {
        let mut random = Random::new();
        for round in 0..150 {
            let (letters, longest) = (2 + random.below(3), [3, 12, 40, 400][random.below(4)]);
            let shared = vec![9; random.below(longest)];
            let mut documents: Vec<String> = (0..random.below(400)).map(|number| format!("{number:04}")).collect();
            if round % 2 == 0 {
                documents.iter_mut().for_each(|id| id.insert(0, ['a', 'b'][random.below(2)]));
            }
            let mut rows = Vec::new();
            for id in &documents {
                for number in 0..random.below(3) {
                    let mut sort_key = shared.clone();
                    let more = random.below(longest);
                    sort_key.extend((0..more).map(|_| u8::try_from(1 + random.below(letters)).unwrap()));
                    sort_key.push(0);
                    rows.push((sort_key, id.as_str(), u32::try_from(number).unwrap()));
                }
            }
            let lent: Vec<(&[u8], &str, u32)> =
                rows.iter().map(|(sort_key, id, number)| (&sort_key[..], *id, *number)).collect();
            let removed = (round % 3 == 0 && !lent.is_empty()).then(|| lent[random.below(lent.len())]);
            check(&lent, removed);
        }
    }
}
