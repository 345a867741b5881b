//! Back-pointers: from a document to its rows in an index. An entry contains the sort keys of the rows in the order of
//! emission; an empty entry means that the document has no rows any more. Entries of the last load are in a tree.
//! Entries that changed since are stored individually and have priority. Their keys start with the number of the load,
//! so that the commit of the next load need not remove them.

use settee_storage::codec::{Reader, put_bytes};
use settee_storage::{Batch, Cursor, Direction, Expect, KeyRange, Keyspace, Snapshot};

use super::merge::Source;
use crate::error::Result;
use crate::keys;
use crate::leaf::Row;
use crate::tree::apply::Change;
use crate::tree::{Root, TreeReader, leaves_per_round_trip};

pub(super) fn push(entry: &mut Vec<u8>, sort_key: &[u8]) {
    put_bytes(entry, sort_key);
}

pub(crate) fn for_each_row(entry: &[u8], mut each: impl FnMut(&[u8], u32)) -> Result<()> {
    let mut reader = Reader::new(entry, "back-pointers");
    let mut number = 0;
    while !reader.is_at_end() {
        each(reader.bytes()?, number);
        number += 1;
    }
    Ok(())
}

#[derive(Clone)]
pub(crate) struct EntryReader<'a> {
    pub(crate) tree: TreeReader<'a>,
    pub(crate) root: Option<Root>,
    pub(crate) load: u64,
}

impl EntryReader<'_> {
    pub(super) fn typical_bytes(&self) -> u64 {
        self.root.as_ref().map_or(0, |root| root.node.bytes / root.node.rows.max(1))
    }

    /// Returns one entry per id: `None` if the document never had rows, an empty one if it has none any more.
    pub(crate) fn lookup(&self, ids: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        let bytes: Vec<Vec<u8>> = ids.iter().map(|id| keys::entry(self.load, id.as_bytes())).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let mut found = self.tree.snapshot.multi_get(Keyspace::IndexEntries, &bytes)?;
        if let Some(root) = &self.root {
            self.lookup_loaded(root, ids, &mut found)?;
        }
        Ok(found)
    }

    /// Looks up entries in key order, so that each leaf is read once.
    fn lookup_loaded(&self, root: &Root, ids: &[&str], found: &mut [Option<Vec<u8>>]) -> Result<()> {
        let mut missing: Vec<(Vec<u8>, usize)> = Vec::new();
        for (index, id) in ids.iter().enumerate().filter(|&(index, _)| found[index].is_none()) {
            let mut key = Vec::with_capacity(id.len() + 2);
            keys::push_document_key(&mut key, id.as_bytes());
            missing.push((key, index));
        }
        missing.sort_unstable();
        let mut leaves: Vec<(u64, u64, usize)> = Vec::new();
        for (position, (key, _)) in missing.iter().enumerate() {
            let (id, bytes) = self.tree.leaf_of(root, key)?;
            match leaves.last_mut() {
                Some((last, _, end)) if *last == id => *end = position + 1,
                _ => leaves.push((id, bytes, position + 1)),
            }
        }
        let mut start = 0;
        let mut left = &leaves[..];
        while !left.is_empty() {
            let (now, later) = left.split_at(leaves_per_round_trip(left.iter().map(|(_, bytes, _)| *bytes)).max(1));
            let read = self.tree.leaves(&now.iter().map(|(id, ..)| *id).collect::<Vec<_>>())?;
            for (leaf, &(_, _, end)) in read.iter().zip(now) {
                for (key, index) in &missing[start..end] {
                    let rank = leaf.rank(key);
                    if rank < leaf.len() && leaf.row(rank).row_key == *key {
                        found[*index] = Some(leaf.row(rank).value.to_vec());
                    }
                }
                start = end;
            }
            left = later;
        }
        Ok(())
    }
}

/// Without a tree, an absent entry is equivalent to an empty one.
pub(super) fn write_change(batch: &mut Batch, change: Change<'_>, load: u64, is_loaded: bool) {
    let key = keys::entry(load, keys::row_id(change.row_key, 0).as_bytes());
    match change.row {
        Some(row) => batch.put(Keyspace::IndexEntries, &key, row.value),
        None if is_loaded => batch.put(Keyspace::IndexEntries, &key, &[]),
        None => batch.delete(Keyspace::IndexEntries, &key),
    }
}

pub(super) struct ChangedEntries<'a> {
    cursor: Box<dyn Cursor + 'a>,
    prefix_len: usize,
    row_key: Vec<u8>,
    entry: Vec<u8>,
    is_at_end: bool,
}

impl<'a> ChangedEntries<'a> {
    pub(super) fn open(snapshot: &'a dyn Snapshot, load: u64) -> Result<Self> {
        let (start, end) = (keys::entry_prefix(load), keys::after_entries(load));
        let range = KeyRange { start: Some(&start), end: Some(&end) };
        let cursor = snapshot.scan(Keyspace::IndexEntries, range, Direction::Forward, Expect::All)?;
        let (row_key, entry) = (Vec::new(), Vec::new());
        let mut entries = Self { cursor, prefix_len: start.len(), row_key, entry, is_at_end: false };
        entries.advance()?;
        Ok(entries)
    }
}

impl Source for ChangedEntries<'_> {
    fn row_key(&self) -> Option<&[u8]> {
        (!self.is_at_end).then_some(&self.row_key)
    }

    fn change(&self) -> Result<Change<'_>> {
        let row = Row { row_key: &self.row_key, sort_len: 0, key: &[], value: &self.entry };
        Ok(Change { row_key: &self.row_key, row: (!self.entry.is_empty()).then_some(row) })
    }

    fn advance(&mut self) -> Result<()> {
        let Some((key, entry)) = self.cursor.next()? else {
            self.is_at_end = true;
            return Ok(());
        };
        self.row_key.clear();
        keys::push_document_key(&mut self.row_key, &key[self.prefix_len..]);
        self.entry.clear();
        self.entry.extend_from_slice(entry);
        Ok(())
    }
}
