//! The access indexes of each entry of a list: the live and the deleted documents by id, and all documents in the order of
//! their last changes, with the removals of the entry from lists. They are in the shard of the database.

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

use settee_storage::codec::put_varint;
use settee_storage::{Batch, Cursor, Direction, Expect, KeyRange, Keyspace, Snapshot};

use super::AccessList;
use crate::record::Head;
use crate::{Result, keys};

pub(super) const SPACE: Keyspace = Keyspace::IndexEntries;

/// Order of an access index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ids of live documents.
    Ids,
    /// Ids of deleted documents.
    Deletions,
    /// Update sequences of all documents. The value is empty, or the id of a document whose list has lost the entry.
    Sequences,
    /// Ids of documents whose list has lost the entry.
    Removals,
}

impl Order {
    /// Returns the common prefix of the keys of an entry. The length of the entry precedes it, so that no prefix starts
    /// with another one. Entries are not empty and end with a byte of UTF-8, so that [`keys::after_prefix`] is valid.
    pub(crate) fn prefix(self, entry: &str) -> Vec<u8> {
        let mut prefix = vec![self.letter()];
        put_varint(&mut prefix, entry.len() as u64);
        prefix.extend_from_slice(entry.as_bytes());
        prefix
    }

    fn letter(self) -> u8 {
        match self {
            Self::Ids => b'i',
            Self::Deletions => b'd',
            Self::Sequences => b's',
            Self::Removals => b'r',
        }
    }

    /// Returns the order of the index that contains `key`.
    pub(super) fn of_key(key: &[u8]) -> Option<Self> {
        let all = [Self::Ids, Self::Deletions, Self::Sequences, Self::Removals];
        all.into_iter().find(|order| key.first() == Some(&order.letter()))
    }
}

pub(super) fn sequence_key(entry: &str, seq: u64) -> Vec<u8> {
    keys::prefixed(&Order::Sequences.prefix(entry), &keys::sequence(seq))
}

pub(super) fn id_key(order: Order, entry: &str, id: &str) -> Vec<u8> {
    keys::prefixed(&order.prefix(entry), id.as_bytes())
}

/// The rows of one document.
pub(super) fn rows(id: &str, head: &Head, list: &AccessList) -> Vec<Vec<u8>> {
    let of_id = if head.stored.deleted { Order::Deletions } else { Order::Ids };
    list.entries().iter().flat_map(|entry| [sequence_key(entry, head.seq), id_key(of_id, entry, id)]).collect()
}

/// Replaces the rows of a document.
pub(crate) fn replace(
    batch: &mut Batch,
    id: &str,
    before: Option<(&Head, &AccessList)>,
    now: Option<(&Head, &AccessList)>,
) {
    let [before, now] = [before, now].map(|of| of.map(|(head, list)| rows(id, head, list)).unwrap_or_default());
    before.iter().filter(|row| !now.contains(row)).for_each(|row| batch.delete(SPACE, row));
    now.iter().filter(|row| !before.contains(row)).for_each(|row| batch.put(SPACE, row, b""));
}

/// The union of the rows of several entries in one order, without duplicates. The cost of a row is logarithmic in their
/// number.
pub(crate) struct Union<'a> {
    sources: Vec<Source<'a>>,
    next: BinaryHeap<Next>,
}

struct Source<'a> {
    cursor: Box<dyn Cursor + 'a>,
    prefix_bytes: usize,
}

/// An id or an encoded sequence, and the value of its row.
type Row = (Vec<u8>, Vec<u8>);

/// The next row of a source. The greatest one is returned first.
struct Next {
    row: Row,
    source: usize,
    direction: Direction,
}

impl Source<'_> {
    fn next(&mut self) -> Result<Option<Row>> {
        Ok(self.cursor.next()?.map(|(key, value)| (key[self.prefix_bytes..].to_vec(), value.to_vec())))
    }
}

impl Ord for Next {
    fn cmp(&self, other: &Self) -> Ordering {
        let keys = match self.direction {
            Direction::Forward => other.row.0.cmp(&self.row.0),
            Direction::Backward => self.row.0.cmp(&other.row.0),
        };
        keys.then_with(|| self.row.1.is_empty().cmp(&other.row.1.is_empty()))
    }
}

impl PartialOrd for Next {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Next {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Next {}

impl<'a> Union<'a> {
    /// Scans ids or encoded sequences in `range`.
    pub(crate) fn open(
        snapshot: &'a dyn Snapshot,
        (order, entries): (Order, &[String]),
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Self> {
        let mut union =
            Self { sources: Vec::with_capacity(entries.len()), next: BinaryHeap::with_capacity(entries.len()) };
        for entry in entries {
            let prefix = order.prefix(entry);
            let start = keys::prefixed(&prefix, range.start.unwrap_or_default());
            let end = match range.end {
                Some(end) => keys::prefixed(&prefix, end),
                None => keys::after_prefix(&prefix),
            };
            let bounds = KeyRange { start: Some(&start), end: Some(&end) };
            let cursor = snapshot.scan(SPACE, bounds, direction, expect)?;
            let mut source = Source { cursor, prefix_bytes: prefix.len() };
            if let Some(row) = source.next()? {
                union.next.push(Next { row, source: union.sources.len(), direction });
                union.sources.push(source);
            }
        }
        Ok(union)
    }

    /// Returns the next row. Of rows with equal keys it is one with an empty value, if any.
    pub(crate) fn next(&mut self) -> Result<Option<Row>> {
        let Some(row) = self.take()? else { return Ok(None) };
        while self.next.peek().is_some_and(|next| next.row.0 == row.0) {
            self.take()?;
        }
        Ok(Some(row))
    }

    /// Removes the first row of all sources.
    fn take(&mut self) -> Result<Option<Row>> {
        let Some(mut first) = self.next.peek_mut() else { return Ok(None) };
        Ok(Some(match self.sources[first.source].next()? {
            Some(following) => std::mem::replace(&mut first.row, following),
            None => PeekMut::pop(first).row,
        }))
    }

    /// Returns at most `most` further rows.
    pub(crate) fn together(&mut self, most: usize) -> Result<Vec<Row>> {
        let mut rows = Vec::new();
        while rows.len() < most
            && let Some(row) = self.next()?
        {
            rows.push(row);
        }
        Ok(rows)
    }
}
