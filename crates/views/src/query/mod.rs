//! Queries of a view and their answers: [`ViewQuery`] in, rows into a [`RowSink`].
//!
//! The types here cannot be contradictory; parameters that contradict each other or the kind of view are a
//! [`QueryError`](crate::QueryError), whose text is CouchDB's. Reading parameters from query strings or bodies, and fetching
//! documents for `include_docs`, are left to the caller.

mod group;
mod plan;
mod range;
mod rows;

use std::borrow::Cow;
use std::ops::ControlFlow;

use settee_design::Cancellation;
use settee_model::json::{Json, Value};

pub(crate) use plan::{Plan, Shown};

/// A query of one view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewQuery {
    /// Which keys.
    pub keys: Keys,
    /// `descending`.
    pub order: Order,
    /// `reduce`, `group` and `group_level`.
    pub reduce: Reduce,
    /// The number of rows that or groups to leave out first.
    pub skip: u64,
    /// The number of rows that or groups to give at most.
    pub limit: Option<u64>,
    /// `include_docs`. The rows are the same; see [`MapRow::document`].
    pub docs: Docs,
    /// `update` and `stale`.
    pub update: Update,
    /// The partition whose rows are asked for; needed if the index is partitioned, refused if it is not.
    pub partition: Option<String>,
}

/// The keys that a query asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// `startkey` and `endkey` (also `key`, which is both): all rows between them, where `start` is the side on which
    /// the rows begin in the order asked for.
    Range {
        /// Where the rows begin; absent: at the very first.
        start: Option<Start>,
        /// Where the rows end; absent: after the very last.
        end: Option<End>,
    },
    /// `keys`: the rows of each key, in this order, as far as they are within the bounds. One key is the same as a range
    /// from it to itself.
    Many(Vec<Json>, Bounds),
}

impl Default for Keys {
    fn default() -> Self {
        Self::Range { start: None, end: None }
    }
}

impl Keys {
    /// `key`: the rows of one key.
    #[must_use]
    pub fn one(key: Json) -> Self {
        let start = Start { key: key.clone(), docid: None };
        Self::Range { start: Some(start), end: Some(End { key, docid: None, inclusion: Inclusion::Inclusive }) }
    }
}

/// `startkey` with `startkey_docid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// The key.
    pub key: Json,
    /// Rows of the key begin at this document id.
    pub docid: Option<String>,
}

/// `endkey` with `endkey_docid` and `inclusive_end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// The key.
    pub key: Json,
    /// Rows of the key end at this document id.
    pub docid: Option<String>,
    /// Whether the end itself belongs to the range.
    pub inclusion: Inclusion,
}

/// `startkey_docid`, `endkey_docid` and `inclusive_end` beside `keys`: they hold for the rows of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// Rows of a key begin at this document id.
    pub start: Option<String>,
    /// Rows of a key end at this document id.
    pub end: Option<String>,
    /// Whether the end itself belongs to the rows. Without an id there are none otherwise.
    pub inclusion: Inclusion,
}

/// `inclusive_end`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Inclusion {
    /// `true`
    #[default]
    Inclusive,
    /// `false`
    Exclusive,
}

/// `descending`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// `false`
    #[default]
    Ascending,
    /// `true`
    Descending,
}

/// `reduce`, `group` and `group_level`, as far as they were given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// Nothing was said, or `group=false` or `group_level=0`: one reduction if the view can reduce, otherwise its rows.
    #[default]
    Default,
    /// `reduce=false`: the rows of the map function. Together with grouping it is
    /// [`QueryError::GroupingOnMap`](crate::QueryError::GroupingOnMap).
    Off,
    /// `reduce=true`: one reduction of the whole range.
    Whole,
    /// `group_level=n`, at least 1: a reduction for each prefix of n elements of array keys and for each other key.
    Level(u32),
    /// `group=true`: a reduction for each key.
    Exact,
}

/// `include_docs`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Docs {
    /// `false`
    #[default]
    Without,
    /// `true`
    Include,
}

/// `update`; `stale=ok` is `False`, `stale=update_after` is `Lazy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Update {
    /// The answer shows everything that was in the database when the query began.
    #[default]
    True,
    /// The answer shows the index as it is.
    False,
    /// As `False`; the caller is told to bring the index up to date afterwards, see [`Answer`](crate::Answer).
    Lazy,
}

/// Another definition of a view answers than the one that its design document has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// The signature of the index that is being built.
    pub building: String,
    /// The part of it that is done, in percent; absent while nobody works on it.
    pub progress: Option<u64>,
}

/// The figures before the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Rows of a map function follow.
    Map {
        /// The number of rows that the view has.
        total_rows: u64,
        /// The number of rows that precede the first one asked for.
        offset: u64,
        /// The update sequence of the database that the rows show.
        update_seq: u64,
    },
    /// Reductions follow.
    Reduce {
        /// The update sequence of the database that the rows show.
        update_seq: u64,
    },
}

/// A row of a map function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRow<'a> {
    /// The emitted key as JSON text.
    pub key: &'a [u8],
    /// The id of the document that emitted it, as plain text.
    pub id: &'a str,
    /// The emitted value as JSON text.
    pub value: &'a [u8],
}

/// A reduction of one or more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReduceRow<'a> {
    /// The common part of the rows, as JSON text: `null`, the key, or the first elements of the key.
    pub key: &'a [u8],
    /// The reduction as JSON text.
    pub value: &'a [u8],
}

/// The document that `include_docs` puts beside a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedDocument<'a> {
    /// Its id; absent if the value names one that is no string, which no document has.
    pub id: Option<Cow<'a, str>>,
    /// Its revision; absent: the winner.
    pub rev: Option<Cow<'a, str>>,
}

impl<'a> MapRow<'a> {
    /// The document that `include_docs` asks for: the one that `_id` and `_rev` in the value name, otherwise the one that
    /// emitted the row.
    #[must_use]
    pub fn document(&self) -> LinkedDocument<'a> {
        let value = Value::trusted(self.value);
        let id = value.get("_id").map_or(Some(Cow::Borrowed(self.id)), Value::as_str);
        LinkedDocument { id, rev: value.get("_rev").and_then(Value::as_str) }
    }
}

/// Takes an answer as it is found. Nothing of it is kept in memory meanwhile, so a sink may block.
pub trait RowSink {
    /// Returns the cancellation of the client: a query that waits for its index ends with it.
    fn cancellation(&self) -> Cancellation {
        Cancellation::never()
    }

    /// Called before everything else if the view that answers is not the one that was asked for.
    fn stale(&mut self, stale: &Stale) {
        let _ = stale;
    }

    /// Called once, before the rows. `Break` ends the query: it is the receiver's wish and no error.
    fn header(&mut self, header: Header) -> ControlFlow<()>;

    /// A row of a map function.
    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()>;

    /// A reduction.
    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()>;
}
