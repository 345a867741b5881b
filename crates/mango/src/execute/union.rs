//! Documents by several indexes: ids are collected, then documents are read in the order of ids, as in a full scan.

use std::collections::BTreeSet;
use std::ops::{Bound, ControlFlow};

use settee_database::{Direction, ReadView};
use settee_views::{Header, MapRow, ReduceRow, RowSink};

use super::batch;
use super::collector::Collector;
use super::primary::{self, direction, last_id};
use super::rows::{RowConsumer, scan_index};
use super::scope::{RESTRICTED_QUERIES_MAX, ReadScope};
use super::spans::Position;
use crate::error::Result;
use crate::planner::access::{self, Access};
use crate::sort::Order;

/// Number of ids from which a full scan is as fast.
const MAX_IDS: usize = 200_000;

pub(super) fn run(scope: ReadScope<'_>, parts: &[Access<'_>], collector: &mut Collector<'_>) -> Result<()> {
    let options = collector.options;
    let mut ids = Ids::default();
    let is_too_long = scope.is_restricted() && parts.len() > RESTRICTED_QUERIES_MAX;
    for part in parts.iter().filter(|_| !is_too_long) {
        match part {
            Access::Index(index, ranges) => {
                scan_index(scope, (index, ranges), options, Order::Ascending, &mut ids)?;
            }
            Access::Primary(ranges) => ids.add_documents(&scope.documents()?, ranges)?,
            Access::Union(_) | Access::Text(_) => {}
        }
    }
    // The database is opened last, so that it is at least as recent as the indexes.
    let view = scope.documents()?;
    if is_too_long || ids.is_done() {
        let Access::Primary(ranges) = access::primary(options) else { return Ok(()) };
        return primary::run(&view, &ranges, collector);
    }
    collector.stats.keys_examined += ids.examined;
    read(&view, &ids.found, collector)
}

fn read(view: &ReadView<'_>, ids: &BTreeSet<String>, collector: &mut Collector<'_>) -> Result<()> {
    let after = last_id(collector.options);
    let limit = after.map_or(Bound::Unbounded, Bound::Excluded);
    let ordered: Box<dyn Iterator<Item = &String>> = match direction(collector.options) {
        Direction::Forward => Box::new(ids.range::<str, _>((limit, Bound::Unbounded))),
        Direction::Backward => Box::new(ids.range::<str, _>((Bound::Unbounded, limit)).rev()),
    };
    batch::process_all(view, ordered.map(String::as_str), collector)
}

#[derive(Default)]
struct Ids {
    found: BTreeSet<String>,
    examined: u64,
}

impl Ids {
    fn add_documents(&mut self, view: &ReadView<'_>, ranges: &[settee_database::IdRange]) -> Result<()> {
        for range in ranges {
            let mut rows = view.all_docs(range, Direction::Forward)?;
            while !self.is_done()
                && let Some(row) = rows.next()?
            {
                self.examined += 1;
                self.found.insert(row.id.to_owned());
            }
        }
        Ok(())
    }
}

impl RowConsumer for Ids {
    fn is_done(&self) -> bool {
        self.found.len() > MAX_IDS
    }

    fn after(&self) -> Option<Position<'_>> {
        None
    }
}

impl RowSink for Ids {
    fn header(&mut self, _: Header) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }

    fn map_row(&mut self, row: MapRow<'_>) -> ControlFlow<()> {
        self.examined += 1;
        if !self.found.contains(row.id) {
            self.found.insert(row.id.to_owned());
        }
        if self.is_done() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn reduce_row(&mut self, _: ReduceRow<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
