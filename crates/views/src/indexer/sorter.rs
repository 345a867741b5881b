//! [`Sorter`]: collects rows in one flat buffer, sorts them, and spills them to a file when memory is short.
//!
//! Nothing is allocated for a row: keys and values lie one behind the other, and fixed-size slots are what is sorted. A
//! row that is to be removed has no value; where a key is both removed and put, the put stays.

use std::cmp::Ordering;

use super::merge::{Ranked, Source};
use super::runs::{RunDirectory, RunFile};
use crate::codec::{Reader, push_number};
use crate::error::Result;
use crate::tree::Row;
use crate::tree::apply::Change;

/// The bytes of a slot that count as memory.
const SLOT_BYTES: usize = size_of::<Slot>();

#[derive(Clone, Copy, Debug)]
struct Slot {
    /// The eight bytes behind those that all keys share; set when sorting.
    prefix: u64,
    start: u32,
    key_len: u32,
    /// How many of them are the sort key; not known of a removal.
    sort_len: u32,
    /// [`REMOVED`] if there is none.
    payload_len: u32,
}

const REMOVED: u32 = u32::MAX;

/// Rows in the order in which they come.
#[derive(Debug, Default)]
pub(crate) struct Sorter {
    bytes: Vec<u8>,
    slots: Vec<Slot>,
}

impl Sorter {
    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// The memory in use.
    pub(crate) fn size_bytes(&self) -> usize {
        self.bytes.len() + self.slots.len() * SLOT_BYTES
    }

    /// Adds a row; `write_key` appends its key and tells how many bytes of it are the sort key. Lends the sort key.
    #[inline]
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8], write_key: impl FnOnce(&mut Vec<u8>) -> usize) -> &[u8] {
        let start = self.bytes.len();
        let sort_len = write_key(&mut self.bytes);
        let middle = self.bytes.len();
        push_number(&mut self.bytes, sort_len as u64);
        push_number(&mut self.bytes, key.len() as u64);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value);
        let payload_len = narrow(self.bytes.len() - middle);
        let (key_len, narrow_sort_len) = (narrow(middle - start), narrow(sort_len));
        self.slots.push(Slot { prefix: 0, start: narrow(start), key_len, sort_len: narrow_sort_len, payload_len });
        &self.bytes[start..start + sort_len]
    }

    /// Adds what was taken from elsewhere.
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

    /// Adds the removal of a row.
    pub(crate) fn remove(&mut self, write_key: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write_key(&mut self.bytes);
        let key_len = narrow(self.bytes.len() - start);
        self.slots.push(Slot { prefix: 0, start: narrow(start), key_len, sort_len: key_len, payload_len: REMOVED });
    }

    /// Forgets everything and keeps the memory.
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.slots.clear();
    }

    /// The changes in the order in which they were added.
    pub(crate) fn changes(&self) -> impl Iterator<Item = Result<Change<'_>>> {
        self.slots.iter().map(|slot| self.change(slot))
    }

    fn change(&self, slot: &Slot) -> Result<Change<'_>> {
        let rest = &self.bytes[slot.start as usize..];
        let (row_key, rest) = rest.split_at(slot.key_len as usize);
        decode(row_key, (slot.payload_len != REMOVED).then(|| &rest[..slot.payload_len as usize]))
    }

    /// Sorts what is there and gives it away.
    pub(crate) fn take_sorted(&mut self) -> SortedRun {
        let mut run = std::mem::take(self);
        run.sort();
        SortedRun { run, at: 0 }
    }

    fn sort(&mut self) {
        let Self { bytes, slots } = self;
        let bytes = &bytes[..];
        if came_in_order(bytes, slots) {
            // Equal sort keys stand in the order in which they came, which is known without a look at their ids.
            let shared = set_prefixes(bytes, slots, sort_key);
            sort_by(slots, |a, b| compare_sort_keys(bytes, shared, a, b).then(a.start.cmp(&b.start)));
        } else {
            let shared = set_prefixes(bytes, slots, key);
            sort_by(slots, |a, b| a.prefix.cmp(&b.prefix).then_with(|| compare_rest(bytes, shared, a, b)));
        }
    }

    /// Writes what is there to a file in `directory`, sorted, and is empty then.
    pub(crate) fn spill(&mut self, directory: &RunDirectory) -> Result<RunFile> {
        self.sort();
        let file = self.write(directory)?;
        self.clear();
        Ok(file)
    }

    /// Writes what was sorted, as [`SpilledRows`](super::runs::SpilledRows) reads it.
    fn write(&self, directory: &RunDirectory) -> Result<RunFile> {
        let mut out = directory.create()?;
        let mut lengths = Vec::new();
        for slot in &self.slots {
            lengths.clear();
            let payload_len = if slot.payload_len == REMOVED { 0 } else { slot.payload_len };
            push_number(&mut lengths, u64::from(slot.key_len));
            push_number(&mut lengths, if slot.payload_len == REMOVED { 0 } else { u64::from(payload_len) + 1 });
            out.write_all(&lengths)?;
            let start = slot.start as usize;
            out.write_all(&self.bytes[start..start + slot.key_len as usize + payload_len as usize])?;
        }
        out.finish()
    }
}

/// What one thread has of one kind of rows: those still being collected, and sorted runs.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    pub(crate) current: Sorter,
    sorted: Vec<SortedRun>,
    spilled: Vec<RunFile>,
}

impl Runs {
    /// The memory in use by what is still being collected.
    pub(crate) fn size_bytes(&self) -> usize {
        self.current.size_bytes()
    }

    /// Moves what was collected to disk.
    pub(crate) fn spill(&mut self, directory: &RunDirectory) -> Result<()> {
        if !self.current.is_empty() {
            self.spilled.push(self.current.spill(directory)?);
        }
        Ok(())
    }

    /// Moves everything to disk, and tells the files of all runs so far.
    pub(crate) fn spill_all(&mut self, directory: &RunDirectory) -> Result<&[RunFile]> {
        self.spill(directory)?;
        for run in std::mem::take(&mut self.sorted) {
            self.spilled.push(run.run.write(directory)?);
        }
        Ok(&self.spilled)
    }

    /// Sorts what was collected.
    pub(crate) fn seal(&mut self) {
        if !self.current.is_empty() {
            self.sorted.push(self.current.take_sorted());
        }
    }

    /// Gives all sorted runs away.
    pub(crate) fn take_sources(&mut self, directory: &RunDirectory) -> Result<Vec<Ranked<'static>>> {
        let mut sources: Vec<_> = std::mem::take(&mut self.sorted).into_iter().map(|run| Ranked::new(run, 0)).collect();
        for run in std::mem::take(&mut self.spilled) {
            sources.push(Ranked::new(directory.read(&run)?, 0));
        }
        Ok(sources)
    }
}

/// Sorters are spilled long before this can happen; a single batch is limited as well.
fn narrow(len: usize) -> u32 {
    u32::try_from(len).expect("a run stays below 4 GiB")
}

fn key<'a>(bytes: &'a [u8], slot: &Slot) -> &'a [u8] {
    &bytes[slot.start as usize..][..slot.key_len as usize]
}

fn sort_key<'a>(bytes: &'a [u8], slot: &Slot) -> &'a [u8] {
    &key(bytes, slot)[..slot.sort_len as usize]
}

/// Whether there are only puts, of documents in the order of their ids.
fn came_in_order(bytes: &[u8], slots: &[Slot]) -> bool {
    let rest = |slot: &Slot| &key(bytes, slot)[slot.sort_len as usize..];
    slots.iter().all(|slot| slot.payload_len != REMOVED) && slots.is_sorted_by(|a, b| rest(a) < rest(b))
}

/// Sets the prefixes to what follows the bytes that `part` of all keys share, and tells how many these are.
fn set_prefixes(bytes: &[u8], slots: &mut [Slot], part: for<'a> fn(&'a [u8], &Slot) -> &'a [u8]) -> usize {
    let Some(first) = slots.first() else { return 0 };
    let first = part(bytes, first);
    let shared = slots.iter().skip(1).fold(first.len(), |shared, slot| {
        let same = part(bytes, slot).iter().zip(&first[..shared]).take_while(|(a, b)| a == b).count();
        shared.min(same)
    });
    for slot in slots {
        let rest = &part(bytes, slot)[shared..];
        let mut prefix = [0; 8];
        let len = rest.len().min(8);
        prefix[..len].copy_from_slice(&rest[..len]);
        slot.prefix = u64::from_be_bytes(prefix);
    }
    shared
}

fn sort_by(slots: &mut [Slot], compare: impl Fn(&Slot, &Slot) -> Ordering) {
    // Documents often come in the order of their keys.
    if !slots.is_sorted_by(|a, b| compare(a, b) != Ordering::Greater) {
        slots.sort_unstable_by(compare);
    }
}

/// No sort key is the beginning of another, so those that end within equal prefixes are equal.
fn compare_sort_keys(bytes: &[u8], shared: usize, a: &Slot, b: &Slot) -> Ordering {
    let ends_within = |slot: &Slot| slot.sort_len as usize <= shared + size_of::<u64>();
    a.prefix.cmp(&b.prefix).then_with(|| {
        if ends_within(a) && ends_within(b) { Ordering::Equal } else { sort_key(bytes, a).cmp(sort_key(bytes, b)) }
    })
}

fn compare_rest(bytes: &[u8], shared: usize, a: &Slot, b: &Slot) -> Ordering {
    let order = key(bytes, a)[shared..].cmp(&key(bytes, b)[shared..]);
    // Puts come before removals of the same key.
    order.then_with(|| (a.payload_len == REMOVED).cmp(&(b.payload_len == REMOVED)))
}

/// The change that [`Sorter::put`] wrote.
pub(super) fn decode<'a>(row_key: &'a [u8], payload: Option<&'a [u8]>) -> Result<Change<'a>> {
    let Some(payload) = payload else {
        return Ok(Change { row_key, row: None });
    };
    let mut reader = Reader::new(payload, "sorted run");
    let sort_len = reader.len()?;
    let key = reader.bytes()?;
    Ok(Change { row_key, row: Some(Row { row_key, sort_len, key, value: &payload[reader.position()..] }) })
}

/// Sorted rows in memory.
#[derive(Debug, Default)]
pub(crate) struct SortedRun {
    run: Sorter,
    at: usize,
}

impl Source for SortedRun {
    fn row_key(&self) -> Option<&[u8]> {
        self.run.slots.get(self.at).map(|slot| key(&self.run.bytes, slot))
    }

    fn change(&self) -> Result<Change<'_>> {
        self.run.change(&self.run.slots[self.at])
    }

    fn advance(&mut self) -> Result<()> {
        self.at += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::keys;

    /// Rows as `(sort key, document, number)`, which are sorted as their whole keys would be.
    #[track_caller]
    fn check(rows: &[(&[u8], &str, u32)], removed: Option<(&[u8], &str, u32)>) {
        let mut sorter = Sorter::default();
        let mut expected = Vec::new();
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
        let mut run = sorter.take_sorted();
        let mut sorted = Vec::new();
        while let Some(key) = run.row_key().map(<[u8]>::to_vec) {
            sorted.push((key, run.change().unwrap().row.is_none()));
            run.advance().unwrap();
        }
        assert_eq!(sorted, expected, "{rows:?} {removed:?}");
    }

    #[test]
    fn rows_are_sorted_by_key_then_id_then_number() {
        // No sort key is the beginning of another.
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
}
