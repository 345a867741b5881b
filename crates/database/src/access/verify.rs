//! [`ExpectedRows`]: compares the access indexes of a database with its documents.

use std::sync::Arc;

use settee_storage::codec::Reader as Decoder;
use settee_storage::{Direction, Expect, KeyRange, Snapshot};

use super::AccessList;
use super::index::{Order, SPACE, rows, sequence_key};
use super::lists::{self, Lists};
use super::removal::Removal;
use crate::record::Head;
use crate::{DatabaseError, Result};

/// The index rows of the documents that were passed to [`Self::missing_of`].
#[derive(Default)]
pub(crate) struct ExpectedRows {
    lists: Lists,
    count: u64,
}

impl ExpectedRows {
    pub(crate) fn list(&mut self, snapshot: &dyn Snapshot, number: u32) -> Result<Arc<AccessList>> {
        lists::read(snapshot, [number].into_iter(), &mut self.lists)?;
        self.lists.get(&number).cloned().ok_or(DatabaseError::Corrupt("access list"))
    }

    /// Returns the number of missing index rows of a document.
    pub(crate) fn missing_of(&mut self, snapshot: &dyn Snapshot, id: &str, head: &Head) -> Result<usize> {
        let list = self.list(snapshot, head.stored.access)?;
        let expected = rows(id, head, &list);
        self.count += expected.len() as u64;
        let expected: Vec<&[u8]> = expected.iter().map(Vec::as_slice).collect();
        let found = snapshot.multi_get(SPACE, &expected)?;
        Ok(found.iter().filter(|value| value.as_deref() != Some(b"")).count())
    }

    /// Returns descriptions of rows that belong to no document, and of removals without their row in the feed.
    pub(crate) fn check_others(&self, snapshot: &dyn Snapshot) -> Result<Vec<String>> {
        let mut problems = Vec::new();
        let (mut count, mut removals, mut removals_in_feeds) = (0, 0, 0);
        let mut cursor = snapshot.scan(SPACE, KeyRange::default(), Direction::Forward, Expect::All)?;
        while let Some((key, value)) = cursor.next()? {
            match Order::of_key(key) {
                Some(Order::Removals) => {
                    let (entry, id) = entry_and_rest(key)?;
                    let in_feed = sequence_key(entry, Removal::decode(value)?.seq);
                    if snapshot.get(SPACE, &in_feed)?.as_deref() == Some(id) {
                        removals += 1;
                    } else {
                        let id = String::from_utf8_lossy(id);
                        problems.push(format!("the removal of {id:?} is missing in the feed of {entry:?}"));
                    }
                }
                Some(Order::Sequences) if !value.is_empty() => removals_in_feeds += 1,
                Some(Order::Ids | Order::Deletions | Order::Sequences) => count += 1,
                None => problems.push("a row of the access indexes has an unknown key".to_owned()),
            }
        }
        for (name, found, expected) in [("rows", count, self.count), ("removals in feeds", removals_in_feeds, removals)]
        {
            if found != expected {
                problems.push(format!("the access indexes have {found} {name} instead of {expected}"));
            }
        }
        Ok(problems)
    }
}

fn entry_and_rest(key: &[u8]) -> Result<(&str, &[u8])> {
    let mut reader = Decoder::new(&key[1..], "access index");
    let entry = reader.text()?;
    Ok((entry, &key[1 + reader.position()..]))
}
