//! [`AllDocs`]: the documents that are not deleted, in id order.

use std::collections::VecDeque;

use settee_storage::{Cursor, Direction, Expect, KeyRange, Keyspace};

use super::ReadView;
use super::ahead::{BODY_BYTES, Bodies, DOCUMENTS_TOGETHER};
use super::id_range::IdRange;
use super::visible::ROWS_TOGETHER;
use crate::access::index::Union;
use crate::rank::{BUCKET_ENTRIES, Counts, Skip};
use crate::record::Head;
use crate::{Result, keys};

/// Ids are UTF-8.
const END_OF_IDS: &[u8] = &[0xff];

/// A row of a document list.
#[derive(Clone, Debug)]
pub struct DocRow<'a> {
    /// Id of the document.
    pub id: &'a str,
    /// Winning revision.
    pub head: Head,
}

/// A scan of the documents that are not deleted.
pub struct AllDocs<'a> {
    view: &'a ReadView<'a>,
    cursor: Box<dyn Cursor + 'a>,
    /// Documents of a member, instead of `cursor`.
    visible: Option<Visible<'a>>,
    range: IdRange,
    direction: Direction,
    id: String,
    /// Edge of the current bucket, if the bucket counts live documents, which may be on either side of the scan.
    within: Option<Option<Vec<u8>>>,
}

struct Visible<'a> {
    ids: Union<'a>,
    ahead: VecDeque<(String, Head)>,
}

impl ReadView<'_> {
    /// Scans the documents that are not deleted, in `range` and `direction`.
    pub fn all_docs(&self, range: &IdRange, direction: Direction) -> Result<AllDocs<'_>> {
        AllDocs::open(self, range, direction)
    }
}

const DELETED_ROW: usize = if cfg!(test) { 2 } else { 64 };

impl<'a> AllDocs<'a> {
    pub(super) fn open(view: &'a ReadView<'a>, range: &IdRange, direction: Direction) -> Result<Self> {
        let key_range = KeyRange { start: range.start.as_deref(), end: range.end.as_deref() };
        let cursor = view.snapshot.scan(Keyspace::Documents, key_range, direction, Expect::Few)?;
        let visible = match view.member() {
            None => None,
            Some(member) => Some(Visible { ids: view.visible_ids(member, range, direction)?, ahead: VecDeque::new() }),
        };
        Ok(Self { view, cursor, visible, range: range.clone(), direction, id: String::new(), within: None })
    }

    /// Returns the next document.
    #[expect(clippy::should_implement_trait, reason = "rows are lent, which an iterator cannot do")]
    pub fn next(&mut self) -> Result<Option<DocRow<'_>>> {
        let mut deleted = 0;
        self.view.check_cancelled()?;
        if let Some(visible) = &mut self.visible {
            let Some((id, head)) = visible.next(self.view)? else { return Ok(None) };
            self.id = id;
            return Ok(Some(DocRow { id: &self.id, head }));
        }
        while let Some((id, record)) = self.cursor.next()? {
            if Head::is_deleted(record) {
                deleted += 1;
                if deleted >= DELETED_ROW && !is_within(self.within.as_ref(), self.direction, id) {
                    let id = id.to_vec();
                    self.pass_deleted(&id)?;
                    // After a backward seek the cursor may be on the edge of the same bucket, which must be stepped
                    // over.
                    deleted = 0;
                }
                continue;
            }
            let head = Head::decode(record)?;
            self.id.clear();
            self.id.push_str(keys::decode_id(id)?);
            return Ok(Some(DocRow { id: &self.id, head }));
        }
        Ok(None)
    }

    /// Skips deleted documents, of which `id` is one. Buckets without live documents are skipped, so at most two
    /// buckets are scanned between two live documents.
    fn pass_deleted(&mut self, id: &[u8]) -> Result<()> {
        let ranks = self.view.ranks()?;
        match ranks.ids.next_counted(id, self.direction) {
            None => {
                let (start, end) = ranks.ids.edges(id);
                self.within = Some(match self.direction {
                    Direction::Forward => end.map(<[u8]>::to_vec),
                    Direction::Backward => Some(start.to_vec()),
                });
            }
            Some(Skip::To(key)) => self.cursor.seek(key)?,
            Some(Skip::All) if self.direction == Direction::Forward => self.cursor.seek(END_OF_IDS)?,
            Some(Skip::All) => self.cursor.seek(b"")?,
        }
        Ok(())
    }

    /// Returns the next documents, at most `most` and at most [`DOCUMENTS_TOGETHER`], and reads ahead the bodies that
    /// the caller is about to request. Returns an empty list at the end.
    pub fn together(&mut self, most: usize, bodies: Bodies) -> Result<Vec<(String, Head)>> {
        let mut rows: Vec<(String, Head)> = Vec::new();
        let mut bytes = 0;
        while rows.len() < most.min(DOCUMENTS_TOGETHER)
            && bytes < BODY_BYTES
            && let Some(row) = self.next()?
        {
            bytes += if bodies == Bodies::None { 0 } else { row.head.stored.total_bytes() };
            rows.push((row.id.to_owned(), row.head));
        }
        match bodies {
            _ if rows.is_empty() => {}
            Bodies::None => {}
            Bodies::Winners => {
                self.view.read_bodies_ahead(&rows.iter().map(|(_, head)| head.stored).collect::<Vec<_>>())?;
            }
            Bodies::Leaves => {
                self.view.read_ahead(&rows.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), bodies)?;
            }
        }
        Ok(rows)
    }

    /// Skips `count` documents, most of them without reading them. Must be called before the first [`Self::next`].
    pub fn skip(&mut self, count: u64) -> Result<()> {
        if count == 0 {
            return Ok(());
        }
        let mut left = count;
        if let Some(visible) = &mut self.visible {
            for _ in 0..count {
                if visible.ids.next()?.is_none() {
                    break;
                }
            }
            return Ok(());
        }
        if count > u64::from(BUCKET_ENTRIES) {
            let ranks = self.view.ranks()?;
            left = match self.direction {
                Direction::Forward => self.jump_forward(&ranks.ids, count)?,
                Direction::Backward => self.jump_backward(&ranks.ids, count)?,
            };
        }
        for _ in 0..left {
            if self.next()?.is_none() {
                break;
            }
        }
        Ok(())
    }

    fn jump_forward(&mut self, ids: &Counts, count: u64) -> Result<u64> {
        let start = self.range.start.as_deref().unwrap_or_default();
        let target = self.view.rank_of_id(start)?.saturating_add(count);
        let Some(bucket) = ids.at(target) else {
            self.cursor.seek(END_OF_IDS)?;
            return Ok(0);
        };
        if bucket.start <= start {
            return Ok(count);
        }
        self.cursor.seek(bucket.start)?;
        Ok(target - bucket.before)
    }

    fn jump_backward(&mut self, ids: &Counts, count: u64) -> Result<u64> {
        let beyond = match self.range.end.as_deref() {
            Some(end) => self.view.rank_of_id(end)?,
            None => self.view.doc_count()?,
        };
        let target = beyond.checked_sub(count).and_then(|rank| rank.checked_sub(1));
        let Some(bucket) = target.and_then(|target| ids.at(target)) else {
            self.cursor.seek(b"")?;
            return Ok(0);
        };
        let Some(bucket_end) = bucket.end.filter(|end| self.range.end.as_deref().is_none_or(|limit| *end < limit))
        else {
            return Ok(count);
        };
        self.cursor.seek(bucket_end)?;
        let mut left = bucket.before + bucket.count - (beyond - count);
        // The seek positions the cursor on the bucket's end itself if that is a document.
        if self.view.head(keys::decode_id(bucket_end)?)?.is_some_and(|head| !head.stored.deleted) {
            left += 1;
        }
        Ok(left)
    }
}

impl Visible<'_> {
    fn next(&mut self, view: &ReadView<'_>) -> Result<Option<(String, Head)>> {
        while self.ahead.is_empty() {
            let rows = self.ids.together(ROWS_TOGETHER)?;
            let ids = rows.iter().map(|(id, _)| keys::decode_id(id).map(str::to_owned));
            let ids: Vec<String> = ids.collect::<Result<_>>()?;
            if ids.is_empty() {
                return Ok(None);
            }
            let heads = view.listed_heads(&ids.iter().map(String::as_str).collect::<Vec<_>>())?;
            let rows = ids.into_iter().zip(heads).filter_map(|(id, head)| Some((id, head?)));
            self.ahead.extend(rows.filter(|(_, head)| !head.stored.deleted));
        }
        Ok(self.ahead.pop_front())
    }
}

fn is_within(edge: Option<&Option<Vec<u8>>>, direction: Direction, id: &[u8]) -> bool {
    match (edge, direction) {
        (None, _) => false,
        (Some(None), _) => true,
        (Some(Some(edge)), Direction::Forward) => id < edge.as_slice(),
        (Some(Some(edge)), Direction::Backward) => id >= edge.as_slice(),
    }
}
