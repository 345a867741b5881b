//! [`Batch`]: documents that are read together and offered one after the other.
//!
//! Reading a document costs two lookups, its revisions and its body; many together cost far less than one by one. A
//! batch is no larger than the answer may become, and grows while the documents do not match.

use std::ops::ControlFlow;

use settee_database::{Head, ReadView, Stored};

use super::collector::Collector;
use crate::error::Result;

/// The most documents that are read together.
const MAX_ROWS: usize = if cfg!(test) { 4 } else { 128 };

/// Rows whose documents are to be read.
pub(super) struct Batch {
    rows: Vec<Row>,
    /// So many rows are gathered before they are read.
    size: usize,
}

struct Row {
    id: String,
    /// The key of the row of an index that led to the document.
    key: Vec<u8>,
}

/// The outcome of a batch.
pub(super) struct Offered {
    /// The number of rows that were looked at.
    pub(super) rows: u64,
    /// `Break` when no further document is wanted.
    pub(super) flow: ControlFlow<()>,
}

impl Batch {
    pub(super) fn new(collector: &Collector<'_>) -> Self {
        Self { rows: Vec::new(), size: usize::try_from(collector.wanted()).unwrap_or(MAX_ROWS).clamp(1, MAX_ROWS) }
    }

    /// Adds a row. `key` is empty without an index.
    pub(super) fn add(&mut self, id: &str, key: &[u8]) {
        self.rows.push(Row { id: id.to_owned(), key: key.to_vec() });
    }

    /// Whether the rows should be offered before others are added.
    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.size
    }

    /// Offers the documents of all rows in their order. Those that are deleted or gone are left out.
    pub(super) fn offer(&mut self, view: &ReadView, collector: &mut Collector<'_>) -> Result<Offered> {
        let rows = std::mem::take(&mut self.rows);
        self.size = (self.size * 2).min(MAX_ROWS);
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let live: Vec<(usize, Head)> = (0..)
            .zip(view.heads(&ids)?)
            .filter_map(|(index, head)| Some((index, head.filter(|head| !head.stored.deleted)?)))
            .collect();
        let stored: Vec<Stored> = live.iter().map(|(_, head)| head.stored).collect();
        let mut offered = Ok(Offered { rows: rows.len() as u64, flow: ControlFlow::Continue(()) });
        view.revisions(&stored, |position, revision| {
            let Some(revision) = revision else { return ControlFlow::Continue(()) };
            let (index, head) = &live[position];
            let row = &rows[*index];
            match collector.offer_revision(view, (&row.id, head), &revision, &row.key) {
                Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                Ok(ControlFlow::Break(())) => {
                    offered = Ok(Offered { rows: *index as u64 + 1, flow: ControlFlow::Break(()) });
                    ControlFlow::Break(())
                }
                Err(error) => {
                    offered = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        offered
    }
}

/// Offers the documents `ids` in their order.
pub(super) fn offer_all<'a>(
    view: &ReadView,
    ids: impl Iterator<Item = &'a str>,
    collector: &mut Collector<'_>,
) -> Result<()> {
    let mut batch = Batch::new(collector);
    for id in ids {
        batch.add(id, b"");
        if batch.is_full() && batch.offer(view, collector)?.flow.is_break() {
            return Ok(());
        }
    }
    batch.offer(view, collector).map(|_| ())
}
