//! View queries ([`ViewQuery`]) and the receiver of their results ([`RowSink`]). Contradictory parameters are a
//! [`QueryError`](crate::QueryError) with CouchDB's text. The caller reads the documents for `include_docs`.

mod group;
pub(crate) mod plan;
mod range;
mod rows;

use std::borrow::Cow;
use std::ops::ControlFlow;

use settee_design::Cancellation;
use settee_model::json::{Json, Value};

/// A query of one view.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ViewQuery {
    /// Keys of the query.
    pub keys: Keys,
    /// `descending`.
    pub order: Order,
    /// `reduce`, `group` and `group_level`.
    pub reduce: Reduce,
    /// Number of rows or groups to skip.
    pub skip: u64,
    /// Maximum number of rows or groups.
    pub limit: Option<u64>,
    /// `include_docs`. The rows are unchanged; see [`MapRow::document`].
    pub docs: Docs,
    /// `update` and `stale`.
    pub update: Update,
    /// Partition of the query; mandatory for partitioned indexes, invalid for others.
    pub partition: Option<String>,
}

/// Keys of a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keys {
    /// `startkey` and `endkey`, or `key` as both. `start` is the first side in the requested order.
    Range {
        /// `None` for the first row.
        start: Option<Start>,
        /// `None` for the last row.
        end: Option<End>,
    },
    /// `keys`: the rows of each key in this order, within the bounds.
    Many(Vec<Json>, Bounds),
}

impl Default for Keys {
    fn default() -> Self {
        Self::Range { start: None, end: None }
    }
}

impl Keys {
    /// Returns the range of one key, as `key` does.
    #[must_use]
    pub fn one(key: Json) -> Self {
        let start = Start { key: key.clone(), docid: None };
        Self::Range { start: Some(start), end: Some(End { key, docid: None, inclusion: Inclusion::Inclusive }) }
    }
}

/// `startkey` with `startkey_docid`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Start {
    /// Key at which the rows start.
    pub key: Json,
    /// First document id among the rows of the key.
    pub docid: Option<String>,
}

/// `endkey` with `endkey_docid` and `inclusive_end`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Key at which the rows end.
    pub key: Json,
    /// Last document id among the rows of the key.
    pub docid: Option<String>,
    /// `inclusive_end`.
    pub inclusion: Inclusion,
}

/// `startkey_docid`, `endkey_docid` and `inclusive_end` with `keys`; they apply to the rows of each key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    /// First document id of each key.
    pub start: Option<String>,
    /// Last document id of each key.
    pub end: Option<String>,
    /// `inclusive_end`. Without an end id, an exclusive end excludes all rows.
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

/// `reduce`, `group` and `group_level`, if given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduce {
    /// No parameter, `group=false` or `group_level=0`: one reduction if the view has a reduce function, otherwise its
    /// rows.
    #[default]
    Default,
    /// `reduce=false`: rows. Grouping is then [`QueryError::GroupingOnMap`](crate::QueryError::GroupingOnMap).
    Off,
    /// `reduce=true`: one reduction of the whole range.
    Whole,
    /// `group_level=n`, n ≥ 1: a reduction for each prefix of n elements of array keys and for each other key.
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
    /// The result includes all changes before the query.
    #[default]
    True,
    /// The result shows the current index.
    False,
    /// As `False`; the caller must then update the index, see [`Answer`](crate::Answer).
    Lazy,
}

/// The result is that of a former definition of the view.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stale {
    /// Signature of the index that is being built.
    pub building: String,
    /// Progress of its build in percent; `None` while no build is running.
    pub progress: Option<u64>,
}

/// Values before the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// Rows of a map function follow the header.
    Map {
        /// Number of rows of the view, in all partitions.
        total_rows: u64,
        /// Number of rows before the first returned one.
        offset: u64,
        /// Update sequence of the database that the rows show.
        update_seq: u64,
    },
    /// Reductions follow the header.
    Reduce {
        /// Update sequence of the database that the rows show.
        update_seq: u64,
    },
}

/// A row of a map function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapRow<'a> {
    /// Emitted key as JSON text.
    pub key: &'a [u8],
    /// Id of the document that emitted the row, as plain text.
    pub id: &'a str,
    /// Emitted value as JSON text.
    pub value: &'a [u8],
}

/// A reduction of one or more rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReduceRow<'a> {
    /// `null`, the key, or the first elements of the key, as JSON text.
    pub key: &'a [u8],
    /// Reduction as JSON text.
    pub value: &'a [u8],
}

/// The document that `include_docs` adds to a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedDocument<'a> {
    /// `None` if `_id` in the value is not a string, which matches no document.
    pub id: Option<Cow<'a, str>>,
    /// `None` for the winner.
    pub rev: Option<Cow<'a, str>>,
}

impl<'a> MapRow<'a> {
    /// Returns the document for `include_docs`: the one named in the value, or the emitting document.
    #[must_use]
    pub fn document(&self) -> LinkedDocument<'a> {
        let value = Value::trusted(self.value);
        let id = value.get("_id").map_or(Some(Cow::Borrowed(self.id)), Value::as_str);
        LinkedDocument { id, rev: value.get("_rev").and_then(Value::as_str) }
    }
}

/// Receiver of a result. Rows are not buffered, so a sink may block.
pub trait RowSink {
    /// A query that waits for its index ends when this is cancelled.
    fn cancellation(&self) -> Cancellation {
        Cancellation::never()
    }

    /// Called first if another definition of the view serves the query.
    fn stale(&mut self, stale: &Stale) {
        let _ = stale;
    }

    /// Called once before the rows. `Break` ends the query without an error.
    fn header(&mut self, header: Header) -> ControlFlow<()>;

    /// Receives a row of a map function.
    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()>;

    /// Receives a reduction.
    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()>;
}
