//! [`Request`] and [`Reply`]: the contents of one round trip to the engine.

use crate::{Direction, Expect, KeyRange, Keyspace, Result, ShardState, Snapshot, StorageError, Version};

/// A part of a [`Snapshot::read`].
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// The last commit of the shard.
    State,
    /// The head of the shard.
    Head,
    /// The token of an earlier commit of the shard, as bytes, if it is still stored: proves that later commits are
    /// based on a cached state at that version.
    Token(Version),
    /// The value of a key.
    Get(Keyspace, &'a [u8]),
    /// The values of several keys.
    MultiGet(Keyspace, &'a [&'a [u8]]),
    /// The first entries of a range.
    Page(PageRange<'a>),
}

/// Range and limit of a page.
#[derive(Clone, Copy, Debug)]
pub struct PageRange<'a> {
    /// Keyspace of the entries.
    pub space: Keyspace,
    /// Range of keys.
    pub range: KeyRange<'a>,
    /// Order of the entries.
    pub direction: Direction,
    /// Maximum number of rows; not 0.
    pub rows: usize,
}

/// The reply to one [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Reply to [`Request::State`].
    State(ShardState),
    /// Reply to [`Request::Get`], [`Request::Head`] and [`Request::Token`].
    Value(Option<Vec<u8>>),
    /// Reply to [`Request::MultiGet`], in the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    /// Reply to [`Request::Page`].
    Page(Page),
}

/// Consecutive entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and values, in the requested order.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// True if the range has no entries after these.
    pub is_last: bool,
}

impl Page {
    /// Reads a page with a cursor of `snapshot`, for engines without round trips.
    pub fn scan<S: Snapshot + ?Sized>(snapshot: &S, page: PageRange<'_>) -> Result<Self> {
        let mut cursor = snapshot.scan(page.space, page.range, page.direction, Expect::Rows(page.rows))?;
        let mut rows = Vec::new();
        while let Some((key, value)) = cursor.next()? {
            if rows.len() == page.rows {
                return Ok(Self { rows, is_last: false });
            }
            rows.push((key.to_vec(), value.to_vec()));
        }
        Ok(Self { rows, is_last: true })
    }
}

impl Reply {
    /// Fails if this is not the reply to [`Request::State`].
    pub fn into_state(self) -> Result<ShardState> {
        if let Self::State(state) = self { Ok(state) } else { Err(mismatch()) }
    }

    /// Fails if this is not the reply to [`Request::Get`], [`Request::Head`] or [`Request::Token`].
    pub fn into_value(self) -> Result<Option<Vec<u8>>> {
        if let Self::Value(value) = self { Ok(value) } else { Err(mismatch()) }
    }

    /// Fails if this is not the reply to [`Request::MultiGet`].
    pub fn into_values(self) -> Result<Vec<Option<Vec<u8>>>> {
        if let Self::Values(values) = self { Ok(values) } else { Err(mismatch()) }
    }

    /// Fails if this is not the reply to [`Request::Page`].
    pub fn into_page(self) -> Result<Page> {
        if let Self::Page(page) = self { Ok(page) } else { Err(mismatch()) }
    }
}

fn mismatch() -> StorageError {
    StorageError::Corrupt("a reply of another kind than its request".to_owned())
}

pub(crate) fn one<S: Snapshot + ?Sized>(snapshot: &S, request: Request<'_>) -> Result<Reply> {
    snapshot.read(&[request])?.pop().ok_or_else(mismatch)
}
