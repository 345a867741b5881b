//! Documents by the rows of an index.

use std::ops::ControlFlow;

use settee_database::{DatabaseError, ReadView};
use settee_design::Cancellation;
use settee_model::collate::{Collation, compare};
use settee_model::json::{Json, Value, write_string};
use settee_views::{Header, MapRow, Reduce, ReduceRow, RowSink, Update, ViewQuery};

use super::batch::Batch;
use super::collector::Collector;
use super::scope::{RESTRICTED_QUERIES_MAX, ReadScope};
use super::spans::{Position, queries, view_order};
use crate::bookmark::Bookmark;
use crate::error::{MangoError, Result};
use crate::field::FieldPath;
use crate::index::Index;
use crate::options::FindOptions;
use crate::planner::access::KeyRange;
use crate::projection::write_object;
use crate::sort::Order;

/// `ranges` must be ascending. With `covering` documents are built from the rows.
pub(super) fn run(
    scope: ReadScope<'_>,
    index: &Index,
    ranges: &[KeyRange],
    covering: bool,
    collector: &mut Collector<'_>,
) -> Result<()> {
    let options = collector.options;
    let after = match &options.bookmark {
        Some(Bookmark::Index { key, id, .. }) => Some(Position { key, id }),
        Some(Bookmark::Primary { .. } | Bookmark::Text { .. }) | None => None,
    };
    let documents =
        if covering { DocumentSource::IndexRows(RowDocument::new(index)) } else { DocumentSource::Unopened };
    let mut rows = Rows { scope, collector, documents, after, error: None, done: false };
    scan_index(scope, (index, ranges), options, options.sort.order, &mut rows)?;
    if let Some(error) = rows.error.take() {
        return Err(error);
    }
    if rows.done { Ok(()) } else { rows.read().map(|_| ()) }
}

pub(super) trait RowConsumer: RowSink {
    fn is_done(&self) -> bool;

    fn after(&self) -> Option<Position<'_>>;
}

/// Passes the rows of `ranges` to `rows` with as few queries as possible. If these are too many for a member, `rows`
/// receives all rows of the index that the member sees; documents outside the ranges do not match the selector.
pub(super) fn scan_index(
    scope: ReadScope<'_>,
    (index, ranges): (&Index, &[KeyRange]),
    options: &FindOptions,
    order: Order,
    rows: &mut dyn RowConsumer,
) -> Result<()> {
    let columns = index.definition.columns.len();
    let mut queries = queries(ranges, columns, order, rows.after().as_ref());
    if scope.is_restricted() && queries.len() > RESTRICTED_QUERIES_MAX {
        queries = self::queries(&[KeyRange::all()], columns, order, rows.after().as_ref());
    }
    let cancellation = &scope.client.cancellation;
    let mut update = if options.updates() { Update::True } else { Update::False };
    for keys in queries {
        let partition = options.partition.clone();
        let order = view_order(order);
        let query = ViewQuery { keys, order, reduce: Reduce::Off, update, partition, ..ViewQuery::default() };
        let _ = scope.query(index, &query, &mut RowForwarder(rows, cancellation))?;
        cancellation.check().map_err(DatabaseError::from)?;
        if rows.is_done() {
            break;
        }
        update = Update::False;
    }
    Ok(())
}

struct RowForwarder<'a>(&'a mut dyn RowConsumer, &'a Cancellation);

impl RowSink for RowForwarder<'_> {
    fn cancellation(&self) -> Cancellation {
        self.1.clone()
    }

    fn header(&mut self, header: Header) -> ControlFlow<()> {
        self.0.header(header)
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        if self.1.is_cancelled() { ControlFlow::Break(()) } else { self.0.map_row(row) }
    }

    fn reduce_row(&mut self, row: ReduceRow<'_>) -> ControlFlow<()> {
        self.0.reduce_row(row)
    }
}

enum DocumentSource<'a> {
    /// The database is opened at the first row, so that it is at least as recent as the index.
    Unopened,
    Read(Box<(ReadView<'a>, Batch)>),
    IndexRows(RowDocument),
}

struct Rows<'a, 'c> {
    scope: ReadScope<'a>,
    collector: &'a mut Collector<'c>,
    documents: DocumentSource<'a>,
    after: Option<Position<'a>>,
    error: Option<MangoError>,
    done: bool,
}

impl RowConsumer for Rows<'_, '_> {
    fn is_done(&self) -> bool {
        self.done
    }

    fn after(&self) -> Option<Position<'_>> {
        self.after.as_ref().map(|after| Position { key: after.key, id: after.id })
    }
}

impl RowSink for Rows<'_, '_> {
    fn header(&mut self, _: Header) -> ControlFlow<()> {
        if matches!(self.documents, DocumentSource::Unopened) {
            match self.scope.documents() {
                Ok(view) => self.documents = DocumentSource::Read(Box::new((view, Batch::new(self.collector)))),
                Err(error) => return self.fail(error),
            }
        }
        ControlFlow::Continue(())
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        if self.is_known(row) {
            return ControlFlow::Continue(());
        }
        match self.process(row) {
            Ok(ControlFlow::Continue(())) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => {
                self.done = true;
                ControlFlow::Break(())
            }
            Err(error) => self.fail(error),
        }
    }

    fn reduce_row(&mut self, _: ReduceRow<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Rows<'_, '_> {
    fn is_known(&self, row: MapRow<'_>) -> bool {
        self.after.as_ref().is_some_and(|after| {
            row.id == after.id && compare(Value::trusted(row.key), after.key.value(), Collation::Unicode).is_eq()
        })
    }

    fn process(&mut self, row: MapRow<'_>) -> Result<ControlFlow<()>> {
        match &mut self.documents {
            DocumentSource::IndexRows(document) => {
                let text = document.write(row);
                self.collector.stats.keys_examined += 1;
                Ok(self.collector.process(Value::trusted(text), row.id, row.key))
            }
            DocumentSource::Read(read) => {
                let (_, batch) = &mut **read;
                batch.add(row.id, row.key);
                if batch.is_full() { self.read() } else { Ok(ControlFlow::Continue(())) }
            }
            DocumentSource::Unopened => Ok(ControlFlow::Continue(())),
        }
    }

    fn read(&mut self) -> Result<ControlFlow<()>> {
        let DocumentSource::Read(read) = &mut self.documents else {
            return Ok(ControlFlow::Continue(()));
        };
        let (view, batch) = &mut **read;
        let processed = batch.process(view, self.collector)?;
        self.collector.stats.keys_examined += processed.rows;
        Ok(processed.flow)
    }

    fn fail(&mut self, error: MangoError) -> ControlFlow<()> {
        self.error = Some(error);
        self.done = true;
        ControlFlow::Break(())
    }
}

struct RowDocument {
    columns: Vec<FieldPath>,
    id_path: FieldPath,
    text: Vec<u8>,
}

impl RowDocument {
    fn new(index: &Index) -> Self {
        let columns = index.definition.columns.iter().map(|(_, path)| path.clone()).collect();
        let id_path = FieldPath::parse("_id").expect("a name without dots is a path");
        Self { columns, id_path, text: Vec::new() }
    }

    fn write(&mut self, row: MapRow<'_>) -> &[u8] {
        let mut id = Vec::new();
        write_string(&mut id, row.id);
        let id = Json::trusted(id);
        let values = self.columns.iter().zip(Value::trusted(row.key).elements());
        self.text.clear();
        write_object(std::iter::once((&self.id_path, id.value())).chain(values), &mut self.text);
        &self.text
    }
}
