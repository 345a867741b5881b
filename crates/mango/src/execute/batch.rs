//! [`Batch`]: documents that are read together, which costs far less, and tested in order. A batch is at most as large
//! as the remaining limit, and grows while documents do not match.

use std::ops::ControlFlow;

use settee_database::{Head, ReadView, Stored};

use super::collector::Collector;
use crate::error::Result;

const MAX_ROWS: usize = if cfg!(test) { 4 } else { 128 };

pub(super) struct Batch {
    rows: Vec<Row>,
    size: usize,
}

struct Row {
    id: String,
    key: Vec<u8>,
}

pub(super) struct Offered {
    pub(super) rows: u64,
    pub(super) flow: ControlFlow<()>,
}

impl Batch {
    pub(super) fn new(collector: &Collector<'_>) -> Self {
        Self { rows: Vec::new(), size: usize::try_from(collector.remaining()).unwrap_or(MAX_ROWS).clamp(1, MAX_ROWS) }
    }

    /// `key` is empty without an index.
    pub(super) fn add(&mut self, id: &str, key: &[u8]) {
        self.rows.push(Row { id: id.to_owned(), key: key.to_vec() });
    }

    pub(super) fn is_full(&self) -> bool {
        self.rows.len() >= self.size
    }

    pub(super) fn process(&mut self, view: &ReadView<'_>, collector: &mut Collector<'_>) -> Result<Offered> {
        let rows = std::mem::take(&mut self.rows);
        self.size = (self.size * 2).min(MAX_ROWS);
        let ids: Vec<&str> = rows.iter().map(|row| row.id.as_str()).collect();
        let live: Vec<(usize, Head)> = (0..)
            .zip(view.heads(&ids)?)
            .filter_map(|(index, head)| Some((index, head.filter(|head| !head.stored.deleted)?)))
            .collect();
        let stored: Vec<Stored> = live.iter().map(|(_, head)| head.stored).collect();
        let mut processed = Ok(Offered { rows: rows.len() as u64, flow: ControlFlow::Continue(()) });
        view.revisions(&stored, |position, revision| {
            let Some(revision) = revision else { return ControlFlow::Continue(()) };
            let (index, head) = &live[position];
            let row = &rows[*index];
            match collector.process_revision(view, (&row.id, head), &revision, &row.key) {
                Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
                Ok(ControlFlow::Break(())) => {
                    processed = Ok(Offered { rows: *index as u64 + 1, flow: ControlFlow::Break(()) });
                    ControlFlow::Break(())
                }
                Err(error) => {
                    processed = Err(error);
                    ControlFlow::Break(())
                }
            }
        })?;
        processed
    }
}

pub(super) fn process_all<'a>(
    view: &ReadView<'_>,
    ids: impl Iterator<Item = &'a str>,
    collector: &mut Collector<'_>,
) -> Result<()> {
    let mut batch = Batch::new(collector);
    for id in ids {
        batch.add(id, b"");
        if batch.is_full() && batch.process(view, collector)?.flow.is_break() {
            return Ok(());
        }
    }
    batch.process(view, collector).map(|_| ())
}
