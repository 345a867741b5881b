//! [`Plan`]: a validated query.

use std::ops::ControlFlow;

use settee_database::Layout;
use settee_model::collate::Collation;

use super::group::{Grouping, Groups};
use super::range::{Space, between, of_key};
use super::rows::Rows;
use super::visible::{Selected, VisibleRows};
use super::{Docs, Header, Keys, Order, Reduce, ReduceRow, RowSink, ViewQuery};
use crate::error::QueryError;
use crate::error::{Result, ViewError};
use crate::index::Meta;
use crate::keys;
use crate::reduce::Aggregate;
use crate::tree::walk::{RowRange, Visitor, walk};
use crate::tree::{LEAVES_PER_ROUND_TRIP, TreeReader};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    ranges: Vec<RowRange>,
    order: Order,
    mode: Mode,
    skip: u64,
    limit: u64,
    is_of_partition: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Map,
    Reduce(Grouping),
}

#[derive(Clone, Copy)]
pub(crate) struct IndexSnapshot<'a> {
    pub(crate) tree: TreeReader<'a>,
    pub(crate) meta: &'a Meta,
    /// `None` if all rows are visible.
    pub(crate) visible: Option<&'a VisibleRows>,
}

impl IndexSnapshot<'_> {
    fn total_rows(&self) -> u64 {
        let all = || self.meta.rows.as_ref().map_or(0, |root| root.node.rows);
        self.visible.map_or_else(all, VisibleRows::count)
    }

    fn rank(&self, bound: &[u8]) -> Result<u64> {
        match (self.visible, &self.meta.rows) {
            (Some(visible), _) => Ok(visible.rank(bound)),
            (None, Some(root)) => self.tree.rank(root, bound),
            (None, None) => Ok(0),
        }
    }

    fn may_have_rows_in(&self, range: &RowRange) -> bool {
        self.visible.is_none_or(|visible| visible.has_any_in(range))
    }
}

fn prefix(layout: Layout, partition: Option<&str>) -> Result<Vec<u8>, QueryError> {
    let mut prefix = Vec::new();
    match (layout, partition) {
        (Layout::Whole, None) => {}
        (Layout::Whole, Some(_)) => return Err(QueryError::PartitionOnGlobal),
        (Layout::Partitioned, None) => return Err(QueryError::PartitionMissing),
        (Layout::Partitioned, Some(partition)) => keys::push_partition(&mut prefix, partition),
    }
    Ok(prefix)
}

impl Plan {
    pub(crate) fn new(
        query: &ViewQuery,
        can_reduce: bool,
        collation: Collation,
        layout: Layout,
    ) -> Result<Self, QueryError> {
        let prefix = prefix(layout, query.partition.as_deref())?;
        let space = Space { prefix: &prefix, collation };
        let mode = match (query.reduce, can_reduce) {
            (Reduce::Off, _) | (Reduce::Default, false) => Mode::Map,
            (Reduce::Whole, false) => return Err(QueryError::ReduceOnMap),
            (Reduce::Level(_) | Reduce::Exact, false) => return Err(QueryError::GroupingOnMap),
            (Reduce::Default | Reduce::Whole | Reduce::Level(0), true) => Mode::Reduce(Grouping::Whole),
            (Reduce::Level(level), true) => Mode::Reduce(Grouping::Level(level as usize, layout)),
            (Reduce::Exact, true) => Mode::Reduce(Grouping::Exact),
        };
        if mode != Mode::Map && query.docs == Docs::Include {
            return Err(QueryError::DocsOnReduce);
        }
        let ranges = match &query.keys {
            Keys::Range { start, end } => vec![between(start.as_ref(), end.as_ref(), query.order, space)?],
            Keys::Many(keys, bounds) => {
                if keys.len() > 1 && !matches!(mode, Mode::Map | Mode::Reduce(Grouping::Exact)) {
                    return Err(QueryError::ManyKeysOnReduce);
                }
                let ranges = keys.iter().map(|key| of_key(key, bounds, query.order, space));
                match query.order {
                    Order::Ascending => ranges.collect::<Result<_, _>>()?,
                    Order::Descending => ranges.rev().collect::<Result<_, _>>()?,
                }
            }
        };
        Ok(Self {
            ranges,
            order: query.order,
            mode,
            skip: query.skip,
            limit: query.limit.unwrap_or(u64::MAX),
            is_of_partition: query.partition.is_some(),
        })
    }

    pub(crate) fn reduces(&self) -> bool {
        self.mode != Mode::Map
    }

    /// `aggregate` is the reduce function of the view with the position of its reductions in the index.
    pub(crate) fn run(
        &self,
        snapshot: IndexSnapshot<'_>,
        aggregate: Option<(&mut Aggregate, usize)>,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        match (self.mode, aggregate) {
            (Mode::Map, _) => self.show_rows(snapshot, sink),
            (Mode::Reduce(grouping), Some((aggregate, index))) => {
                self.show_groups(snapshot, grouping, aggregate, index, sink)
            }
            (Mode::Reduce(_), None) => Err(ViewError::Corrupt("reductions are missing")),
        }
    }

    fn show_rows(&self, snapshot: IndexSnapshot<'_>, sink: &mut dyn RowSink) -> Result<()> {
        let total_rows = snapshot.total_rows();
        let (before, skipped) = match self.ranges.first() {
            Some(range) => (self.rows_before(snapshot, range)?, self.rows_skipped(snapshot, range)?),
            None => (0, self.skip),
        };
        let offset = before.saturating_add(skipped).min(total_rows);
        let header = Header::Map { total_rows, offset, update_seq: snapshot.meta.update_seq };
        if sink.header(header).is_break() {
            return Ok(());
        }
        let mut rows = Rows::new(self.skip, self.limit, self.order, sink);
        if self.limit > 0 {
            let _ = self.walk_ranges(snapshot, &mut rows)?;
        }
        Ok(())
    }

    fn rows_before(&self, snapshot: IndexSnapshot<'_>, range: &RowRange) -> Result<u64> {
        match (self.order, &range.upper) {
            (Order::Ascending, _) => snapshot.rank(&range.lower),
            (Order::Descending, Some(upper)) => Ok(snapshot.total_rows() - snapshot.rank(upper)?),
            (Order::Descending, None) => Ok(0),
        }
    }

    /// Returns the skipped rows that count in `offset`: in a partition at most those of the range.
    fn rows_skipped(&self, snapshot: IndexSnapshot<'_>, range: &RowRange) -> Result<u64> {
        if !self.is_of_partition || self.skip == 0 {
            return Ok(self.skip);
        }
        let end = range.upper.as_ref().map_or(Ok(snapshot.total_rows()), |upper| snapshot.rank(upper))?;
        Ok(self.skip.min(end.saturating_sub(snapshot.rank(&range.lower)?)))
    }

    fn show_groups(
        &self,
        snapshot: IndexSnapshot<'_>,
        grouping: Grouping,
        aggregate: &mut Aggregate,
        index: usize,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let update_seq = snapshot.meta.update_seq;
        if sink.header(Header::Reduce { update_seq }).is_break() || self.limit == 0 {
            return Ok(());
        }
        if let (Grouping::Whole, [range], Some(root)) = (grouping, &self.ranges[..], &snapshot.meta.rows)
            && *range == RowRange::default()
            && snapshot.visible.is_none()
        {
            if self.skip == 0 {
                let mut value = Vec::new();
                for reduction in aggregate.finalize(&[vec![root.node.reductions[index].as_slice()]])? {
                    aggregate.finish(&reduction, &mut value);
                }
                let _ = sink.reduce_row(ReduceRow { key: b"null", value: &value });
            }
            return Ok(());
        }
        let mut groups = Groups::new(grouping, self.order, self.skip, self.limit, (aggregate, index), sink);
        if self.walk_ranges(snapshot, &mut groups)?.is_continue() {
            groups.finish()?;
        }
        Ok(())
    }

    fn walk_ranges(&self, snapshot: IndexSnapshot<'_>, visitor: &mut dyn Visitor) -> Result<ControlFlow<()>> {
        match snapshot.visible {
            Some(visible) => self.walk_all(snapshot, &mut Selected::new(visible, snapshot.meta, visitor)),
            None => self.walk_all(snapshot, visitor),
        }
    }

    fn walk_all(&self, snapshot: IndexSnapshot<'_>, visitor: &mut dyn Visitor) -> Result<ControlFlow<()>> {
        let IndexSnapshot { tree, meta, .. } = snapshot;
        let Some(root) = &meta.rows else {
            return Ok(ControlFlow::Continue(()));
        };
        for (number, range) in self.ranges.iter().enumerate() {
            if self.ranges.len() > 1 && number % LEAVES_PER_ROUND_TRIP == 0 {
                let next = self.ranges[number..].iter().take(LEAVES_PER_ROUND_TRIP);
                let next = next.filter(|range| snapshot.may_have_rows_in(range));
                tree.read_ahead(root, next.map(|range| range.lower.as_slice()))?;
            }
            if snapshot.may_have_rows_in(range) {
                let flow = walk(tree, root, range, self.order.direction(), visitor)?;
                if flow.is_break() {
                    return Ok(flow);
                }
            }
            let flow = visitor.end_of_range()?;
            if flow.is_break() {
                return Ok(flow);
            }
        }
        Ok(ControlFlow::Continue(()))
    }
}
