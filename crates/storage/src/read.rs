//! [`Request`] and [`Reply`]: what one trip to the engine asks for and brings back.

use crate::{Direction, Expect, KeyRange, Keyspace, Result, ShardState, Snapshot, StorageError, Version};

/// A part of a [`Snapshot::read`].
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// The last commit of the shard.
    State,
    /// The head of the shard.
    Head,
    /// The token of an earlier commit of the shard, as bytes, if the engine still knows it: whoever knew the shard at that version finds out whether
    /// what came since stands on what it knows.
    Token(Version),
    /// The value of a key.
    Get(Keyspace, &'a [u8]),
    /// The values of several keys.
    MultiGet(Keyspace, &'a [&'a [u8]]),
    /// The first entries of a range.
    Page(PageRange<'a>),
}

/// Which entries a page has.
#[derive(Clone, Copy, Debug)]
pub struct PageRange<'a> {
    /// Where they lie.
    pub space: Keyspace,
    /// Between which keys.
    pub range: KeyRange<'a>,
    /// In which order they come.
    pub direction: Direction,
    /// The number of them at most; not 0.
    pub rows: usize,
}

/// The reply to one [`Request`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To [`Request::State`].
    State(ShardState),
    /// To [`Request::Get`], [`Request::Head`] and [`Request::Token`].
    Value(Option<Vec<u8>>),
    /// To [`Request::MultiGet`], in the order of the keys.
    Values(Vec<Option<Vec<u8>>>),
    /// To [`Request::Page`].
    Page(Page),
}

/// Entries side by side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// Keys and values, in the order that was asked for.
    pub rows: Vec<(Vec<u8>, Vec<u8>)>,
    /// Whether the range has no entries behind these.
    pub is_last: bool,
}

impl Page {
    /// Reads a page with a cursor of `snapshot`: for engines to which a trip costs nothing.
    ///
    /// # Errors
    /// When the engine cannot be read.
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
    /// The reply to [`Request::State`].
    ///
    /// # Errors
    /// When it is another one, which no engine may answer.
    pub fn into_state(self) -> Result<ShardState> {
        if let Self::State(state) = self { Ok(state) } else { Err(mismatch()) }
    }

    /// The reply to [`Request::Get`], [`Request::Head`] or [`Request::Token`].
    ///
    /// # Errors
    /// When it is another one, which no engine may answer.
    pub fn into_value(self) -> Result<Option<Vec<u8>>> {
        if let Self::Value(value) = self { Ok(value) } else { Err(mismatch()) }
    }

    /// The reply to [`Request::MultiGet`].
    ///
    /// # Errors
    /// When it is another one, which no engine may answer.
    pub fn into_values(self) -> Result<Vec<Option<Vec<u8>>>> {
        if let Self::Values(values) = self { Ok(values) } else { Err(mismatch()) }
    }

    /// The reply to [`Request::Page`].
    ///
    /// # Errors
    /// When it is another one, which no engine may answer.
    pub fn into_page(self) -> Result<Page> {
        if let Self::Page(page) = self { Ok(page) } else { Err(mismatch()) }
    }
}

fn mismatch() -> StorageError {
    StorageError::Corrupt("a reply of another kind than its request".to_owned())
}

/// The reply to a single request.
pub(crate) fn one<S: Snapshot + ?Sized>(snapshot: &S, request: Request<'_>) -> Result<Reply> {
    snapshot.read(&[request])?.pop().ok_or_else(mismatch)
}
