//! The access indexes: for each entry of a list, the live documents in the order of their ids, and all documents in the
//! order of their last changes. Both are in the shard of the database. The second one also contains the removals of the
//! entry from lists.

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
    /// Update sequences of all documents. The value is empty, or the id of a document whose list has lost the entry.
    Sequences,
    /// Ids of documents whose list has lost the entry.
    Removals,
}

impl Order {
    /// Returns the common prefix of the keys of an entry. The length of the entry precedes it, so that no prefix starts
    /// with another one. Entries are not empty and end with a byte of UTF-8, so that [`keys::after_prefix`] is valid.
    pub(super) fn prefix(self, entry: &str) -> Vec<u8> {
        let mut prefix = vec![match self {
            Self::Ids => b'i',
            Self::Sequences => b's',
            Self::Removals => b'r',
        }];
        put_varint(&mut prefix, entry.len() as u64);
        prefix.extend_from_slice(entry.as_bytes());
        prefix
    }
}

pub(super) fn sequence_key(entry: &str, seq: u64) -> Vec<u8> {
    keys::prefixed(&Order::Sequences.prefix(entry), &keys::sequence(seq))
}

/// The rows of one document.
fn rows(id: &str, head: &Head, list: &AccessList) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for entry in list.entries() {
        rows.push(sequence_key(entry, head.seq));
        if !head.stored.deleted {
            rows.push(keys::prefixed(&Order::Ids.prefix(entry), id.as_bytes()));
        }
    }
    rows
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

/// The union of the rows of several entries in one order, without duplicates.
pub(crate) struct Union<'a> {
    sources: Vec<Source<'a>>,
    direction: Direction,
}

struct Source<'a> {
    cursor: Box<dyn Cursor + 'a>,
    prefix_bytes: usize,
    next: Option<Row>,
}

/// An id or an encoded sequence, and the value of its row.
type Row = (Vec<u8>, Vec<u8>);

impl Source<'_> {
    fn advance(&mut self) -> Result<()> {
        self.next = self.cursor.next()?.map(|(key, value)| (key[self.prefix_bytes..].to_vec(), value.to_vec()));
        Ok(())
    }
}

impl<'a> Union<'a> {
    /// Scans ids or encoded sequences in `range`.
    pub(crate) fn open(
        snapshot: &'a dyn Snapshot,
        (order, entries): (Order, &[String]),
        range: KeyRange<'_>,
        direction: Direction,
        expect: Expect,
    ) -> Result<Self> {
        let mut sources = Vec::with_capacity(entries.len());
        for entry in entries {
            let prefix = order.prefix(entry);
            let start = keys::prefixed(&prefix, range.start.unwrap_or_default());
            let end = match range.end {
                Some(end) => keys::prefixed(&prefix, end),
                None => keys::after_prefix(&prefix),
            };
            let bounds = KeyRange { start: Some(&start), end: Some(&end) };
            let cursor = snapshot.scan(SPACE, bounds, direction, expect)?;
            let mut source = Source { cursor, prefix_bytes: prefix.len(), next: None };
            source.advance()?;
            sources.push(source);
        }
        Ok(Self { sources, direction })
    }

    /// Returns the next row. Of rows with equal keys it is one with an empty value, if any.
    pub(crate) fn next(&mut self) -> Result<Option<Row>> {
        let all = self.sources.iter().filter_map(|source| source.next.as_ref().map(|(key, _)| key));
        let next = match self.direction {
            Direction::Forward => all.min(),
            Direction::Backward => all.max(),
        };
        let Some(next) = next.cloned() else { return Ok(None) };
        let mut value = None;
        for source in &mut self.sources {
            if let Some((_, found)) = source.next.take_if(|(key, _)| *key == next) {
                value =
                    Some(value.map_or(found.clone(), |known: Vec<u8>| if found.is_empty() { found } else { known }));
                source.advance()?;
            }
        }
        Ok(value.map(|value| (next, value)))
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
