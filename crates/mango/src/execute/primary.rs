//! Documents in the order of their ids.

use settee_database::{Bodies, DOCUMENTS_TOGETHER, Direction, IdRange, ReadView};

use super::collector::Collector;
use crate::bookmark::Bookmark;
use crate::error::Result;
use crate::options::FindOptions;
use crate::planner::access::DESIGN;
use crate::sort::Order;

/// `ranges` must be ascending.
pub(super) fn run(view: &ReadView<'_>, ranges: &[IdRange], collector: &mut Collector<'_>) -> Result<()> {
    run_until(view, ranges, |_| false, collector).map(|_| ())
}

pub(super) fn run_until(
    view: &ReadView<'_>,
    ranges: &[IdRange],
    is_enough: impl Fn(&Collector<'_>) -> bool,
    collector: &mut Collector<'_>,
) -> Result<Option<String>> {
    let direction = direction(collector.options);
    let after = last_id(collector.options);
    let ordered: Vec<&IdRange> = match direction {
        Direction::Forward => ranges.iter().collect(),
        Direction::Backward => ranges.iter().rev().collect(),
    };
    // The names of conflicting revisions are read with the leaves.
    let bodies = if collector.options.conflicts { Bodies::Leaves } else { Bodies::Winners };
    let mut size = usize::try_from(collector.remaining()).unwrap_or(DOCUMENTS_TOGETHER).clamp(1, DOCUMENTS_TOGETHER);
    let mut is_first = true;
    for range in ordered {
        let Some(range) = rest(range, after, direction) else { continue };
        // Design documents are between the ranges of a scan. CouchDB reads and counts them.
        if !std::mem::take(&mut is_first) && collector.options.execution_stats {
            let design = view.rank_of_id(DESIGN.1)?.saturating_sub(view.rank_of_id(DESIGN.0)?);
            collector.stats.keys_examined += design;
            collector.count(design);
        }
        let mut rows = view.all_docs(&range, direction)?;
        loop {
            let together = rows.together(size, bodies)?;
            if together.is_empty() {
                break;
            }
            size = (2 * size).min(DOCUMENTS_TOGETHER);
            for (id, head) in together {
                collector.stats.keys_examined += 1;
                if collector.read(view, &id, &head, b"")?.is_break() {
                    return Ok(None);
                }
                if is_enough(collector) {
                    return Ok(Some(id));
                }
            }
        }
    }
    Ok(None)
}

pub(super) fn direction(options: &FindOptions) -> Direction {
    match options.sort.order {
        Order::Ascending => Direction::Forward,
        Order::Descending => Direction::Backward,
    }
}

pub(super) fn last_id(options: &FindOptions) -> Option<&str> {
    match &options.bookmark {
        Some(Bookmark::Primary { id }) => Some(id),
        Some(Bookmark::Index { .. } | Bookmark::Text { .. }) | None => None,
    }
}

fn rest(range: &IdRange, after: Option<&str>, direction: Direction) -> Option<IdRange> {
    let mut range = range.clone();
    if let Some(after) = after {
        match direction {
            Direction::Forward => {
                let mut next = after.as_bytes().to_vec();
                next.push(0);
                range.start = Some(range.start.map_or_else(|| next.clone(), |start| start.max(next.clone())));
            }
            Direction::Backward => {
                let limit = after.as_bytes().to_vec();
                range.end = Some(range.end.map_or_else(|| limit.clone(), |end| end.min(limit.clone())));
            }
        }
    }
    let is_empty = matches!((&range.start, &range.end), (Some(start), Some(end)) if start >= end);
    (!is_empty).then_some(range)
}
