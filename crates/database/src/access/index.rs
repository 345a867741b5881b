//! The access indexes: for each entry of a list, the live documents in the order of their ids, and all documents in the
//! order of their last changes. Both are in the shard of the database.

use settee_storage::codec::put_varint;
use settee_storage::{Batch, Cursor, Direction, Expect, KeyRange, Keyspace, Snapshot};

use super::AccessList;
use crate::record::Head;
use crate::{Result, keys};

const SPACE: Keyspace = Keyspace::IndexEntries;

/// Order of an access index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Ids of live documents.
    Ids,
    /// Update sequences of all documents.
    Sequences,
}

impl Order {
    /// Returns the common prefix of the keys of an entry. The length of the entry precedes it, so that no prefix starts
    /// with another one. Entries are not empty and end with a byte of UTF-8, so that [`keys::after_prefix`] is valid.
    fn prefix(self, entry: &str) -> Vec<u8> {
        let mut prefix = vec![match self {
            Self::Ids => b'i',
            Self::Sequences => b's',
        }];
        put_varint(&mut prefix, entry.len() as u64);
        prefix.extend_from_slice(entry.as_bytes());
        prefix
    }
}

/// The rows of one document.
fn rows(id: &str, head: &Head, list: &AccessList) -> Vec<Vec<u8>> {
    let mut rows = Vec::new();
    for entry in list.entries() {
        rows.push(keys::prefixed(&Order::Sequences.prefix(entry), &keys::sequence(head.seq)));
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
    next: Option<Vec<u8>>,
}

impl Source<'_> {
    fn advance(&mut self) -> Result<()> {
        self.next = self.cursor.next()?.map(|(key, _)| key[self.prefix_bytes..].to_vec());
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

    /// Returns the next id or encoded sequence.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<u8>>> {
        let all = self.sources.iter().filter_map(|source| source.next.as_ref());
        let next = match self.direction {
            Direction::Forward => all.min(),
            Direction::Backward => all.max(),
        };
        let Some(next) = next.cloned() else { return Ok(None) };
        for source in &mut self.sources {
            if source.next.as_ref() == Some(&next) {
                source.advance()?;
            }
        }
        Ok(Some(next))
    }

    pub(crate) fn count(mut self) -> Result<u64> {
        let mut count = 0;
        while self.next()?.is_some() {
            count += 1;
        }
        Ok(count)
    }
}
