//! [`Changes`]: scan of the changes feed. Sequence entries and their bodies usually have the same order, so both are
//! read by sequential scans. Other bodies, such as the further ones of an update that wrote several, are read singly.

use std::collections::VecDeque;

use settee_model::{Document, Rev};
use settee_storage::{Cursor, Direction, Expect, KeyRange, Keyspace};

use super::ReadView;
use crate::access::index::Union;
use crate::attachment::{EncodingInfo, decode_all, write_stubs};
use crate::record::{SequenceEntry, Stored};
use crate::{DatabaseError, Result, keys};

/// Number of unwanted body chunks in a row after which the scan seeks instead of stepping.
const STEPS_BEFORE_SEEK: u32 = 8;

const CORRUPT: DatabaseError = DatabaseError::Corrupt("attachments");

/// Number of leaves of a document: one or several.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leaves {
    /// The winner is the only leaf.
    One,
    /// The document has conflicts, including deleted ones.
    Several,
}

impl ReadView<'_> {
    /// Scans documents in the order of their last changes: forward after `since`, or backward from `since`.
    pub fn changes(&self, since: u64, direction: Direction) -> Result<Changes<'_>> {
        self.changes_expecting(since, direction, Expect::Few)
    }

    /// As [`Self::changes`], with an estimate of the number of rows.
    pub fn changes_expecting(&self, since: u64, direction: Direction, expect: Expect) -> Result<Changes<'_>> {
        Changes::open(self, since, direction, expect)
    }
}

/// One row of the feed: a document at the position of its last change.
#[derive(Clone, Debug)]
pub struct Change<'a> {
    /// Update sequence of the change.
    pub seq: u64,
    /// Id of the document.
    pub id: &'a str,
    /// Winning revision.
    pub rev: Rev,
    /// Stored record of the winner.
    pub stored: Stored,
    /// Number of leaves.
    pub leaves: Leaves,
}

/// A scan of the changes.
pub struct Changes<'a> {
    view: &'a ReadView<'a>,
    entries: Box<dyn Cursor + 'a>,
    /// Entries of a member, instead of `entries`.
    visible: Option<Visible<'a>>,
    bodies: Option<BodyScan<'a>>,
    current: Vec<u8>,
    seq: u64,
}

struct Visible<'a> {
    sequences: Union<'a>,
    ahead: VecDeque<(u64, Vec<u8>)>,
}

struct BodyScan<'a> {
    cursor: Box<dyn Cursor + 'a>,
    /// Key at the cursor, whose value is in `chunk`; `None` before the first one.
    key: Option<[u8; 10]>,
    chunk: Vec<u8>,
}

impl<'a> Changes<'a> {
    pub(crate) fn open(view: &'a ReadView<'a>, since: u64, direction: Direction, expect: Expect) -> Result<Self> {
        let start = keys::sequence(since.saturating_add(1));
        let range = match direction {
            Direction::Forward => KeyRange { start: Some(&start), end: None },
            Direction::Backward => KeyRange { start: None, end: Some(&start) },
        };
        let entries = view.snapshot().scan(Keyspace::Sequence, range, direction, expect)?;
        let visible = match view.member() {
            None => None,
            Some(member) => {
                let sequences = view.visible_sequences(member, since, direction)?;
                Some(Visible { sequences, ahead: VecDeque::new() })
            }
        };
        let bodies = match direction {
            // The bodies of a member's documents are far apart.
            Direction::Forward if visible.is_none() => {
                let from = keys::body(since.saturating_add(1), 0);
                let range = KeyRange { start: Some(&from), end: None };
                let cursor = view.snapshot().scan(Keyspace::Bodies, range, Direction::Forward, expect)?;
                Some(BodyScan { cursor, key: None, chunk: Vec::new() })
            }
            Direction::Forward | Direction::Backward => None,
        };
        Ok(Self { view, entries, visible, bodies, current: Vec::new(), seq: 0 })
    }

    /// Returns the next row.
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which an iterator cannot do")]
    pub fn next(&mut self) -> Result<Option<Change<'_>>> {
        self.view.check_cancelled()?;
        if let Some(visible) = &mut self.visible {
            let Some((seq, entry)) = visible.next(self.view)? else { return Ok(None) };
            (self.seq, self.current) = (seq, entry);
            return self.change().map(Some);
        }
        let Some((key, value)) = self.entries.next()? else {
            return Ok(None);
        };
        self.seq = keys::decode_sequence(key)?;
        self.current.clear();
        self.current.extend_from_slice(value);
        self.change().map(Some)
    }

    /// Appends the winning revision of the current row, as [`ReadView::write_document`].
    pub fn write_document(&mut self, out: &mut Vec<u8>, extra: impl FnOnce(&mut Vec<u8>)) -> Result<()> {
        let entry = SequenceEntry::decode(self.seq, &self.current)?;
        let (id, rev, stored) = (entry.id, &entry.rev, entry.stored);
        if let Some(scan) = self.bodies.as_mut().filter(|_| stored.body_seq == self.seq)
            && let Some(bytes) = scan.bytes(stored)?
        {
            let (record, body) = bytes.split_at_checked(stored.attachments_size as usize).ok_or(CORRUPT)?;
            Document::write_json(out, id, rev, stored.deleted, extra, body);
            if !record.is_empty() {
                write_stubs(out, &decode_all(record)?, EncodingInfo::Hidden);
            }
        } else {
            self.view.write_document(out, id, rev, stored, extra)?;
        }
        Ok(())
    }

    fn change(&self) -> Result<Change<'_>> {
        let entry = SequenceEntry::decode(self.seq, &self.current)?;
        let leaves = if entry.has_conflicts { Leaves::Several } else { Leaves::One };
        Ok(Change { seq: self.seq, id: entry.id, rev: entry.rev, stored: entry.stored, leaves })
    }
}

impl Visible<'_> {
    fn next(&mut self, view: &ReadView<'_>) -> Result<Option<(u64, Vec<u8>)>> {
        if self.ahead.is_empty() {
            self.ahead.extend(view.visible_changes(&mut self.sequences)?);
        }
        Ok(self.ahead.pop_front())
    }
}

impl BodyScan<'_> {
    /// Returns `None` if the body has several chunks or the scan has passed it.
    fn bytes(&mut self, stored: Stored) -> Result<Option<&[u8]>> {
        let wanted = keys::body(stored.body_seq, 0);
        if stored.total_bytes() > keys::BODY_CHUNK_BYTES || self.key.is_some_and(|key| key > wanted) {
            return Ok(None);
        }
        let mut steps = 0;
        while self.key.is_none_or(|key| key < wanted) {
            if steps == STEPS_BEFORE_SEEK {
                self.cursor.seek(&wanted)?;
            }
            steps += 1;
            let Some((key, chunk)) = self.cursor.next()? else {
                return Ok(None);
            };
            let key: [u8; 10] = key.try_into().map_err(|_| crate::DatabaseError::Corrupt("body key"))?;
            if key >= wanted {
                self.chunk.clear();
                self.chunk.extend_from_slice(chunk);
            }
            self.key = Some(key);
        }
        Ok((self.key == Some(wanted)).then_some(&self.chunk))
    }
}
