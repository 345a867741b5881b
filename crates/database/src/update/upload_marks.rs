//! Marks of unfinished uploads.

use settee_storage::{Direction, KeyRange, Keyspace, Page, PageRange, Snapshot};

use crate::{Result, keys};

/// Exceeds the usual number of unfinished uploads.
const LOADED_MARKS: usize = 2_000;

pub(super) fn read(snapshot: &dyn Snapshot) -> Result<Page> {
    Ok(Page::scan(snapshot, marks(&keys::after_prefix(keys::UPLOAD)))?)
}

pub(super) fn marks(end: &[u8]) -> PageRange<'_> {
    let range = KeyRange { start: Some(keys::UPLOAD), end: Some(end) };
    PageRange { space: Keyspace::Attachments, range, direction: Direction::Forward, rows: LOADED_MARKS }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OwnUploads {
    GoOn,
    Over,
}
