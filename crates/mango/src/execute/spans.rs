//! [`queries`]: ranges of an index as queries of its view.
//!
//! Neighbouring single keys become one query, so that `$in` with thousands of values costs one walk.

use std::cmp::Ordering;

use settee_model::collate::{Collation, compare};
use settee_model::json::Json;
use settee_views::{End, Inclusion, Keys, Order as ViewOrder, Start};

use crate::bounds::{Cut, Key};
use crate::planner::access::KeyRange;
use crate::sort::Order;

/// Sorts behind every value that a document has in earnest: a member name of characters that sort last.
const MAX: &[u8] = "{\"\u{ffff}\u{ffff}\u{ffff}\u{ffff}\":{}}".as_bytes();

/// A part of an index between two keys.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    low: Json,
    high: Json,
    /// Whether the high key itself belongs to it.
    inclusion: Inclusion,
    /// The only key.
    point: Option<Json>,
    /// Rows of the first key begin here, in the order of the query.
    first_id: Option<String>,
}

/// The place of the last row that was read.
pub(super) struct Position<'a> {
    pub(super) key: &'a Json,
    pub(super) id: &'a str,
}

/// The order of a view for a sort.
pub(super) fn view_order(order: Order) -> ViewOrder {
    match order {
        Order::Ascending => ViewOrder::Ascending,
        Order::Descending => ViewOrder::Descending,
    }
}

/// The queries that read `ranges` of an index with so many columns, from `after` on. The row at `after` may come again.
pub(super) fn queries(ranges: &[KeyRange], columns: usize, order: Order, after: Option<&Position<'_>>) -> Vec<Keys> {
    let mut spans: Vec<Span> = ranges.iter().map(|range| span(range, columns)).collect();
    if order == Order::Descending {
        spans.reverse();
    }
    let spans = match after {
        Some(after) => spans.into_iter().filter_map(|span| rest(span, order, after)).collect(),
        None => spans,
    };
    let mut queries = Vec::new();
    let mut points: Vec<Json> = Vec::new();
    for span in spans {
        match span.point {
            Some(key) => points.push(key),
            None => {
                flush(&mut points, order, &mut queries);
                queries.push(between(span, order));
            }
        }
    }
    flush(&mut points, order, &mut queries);
    queries
}

fn flush(points: &mut Vec<Json>, order: Order, queries: &mut Vec<Keys>) {
    let mut keys = std::mem::take(points);
    // A view turns the list around itself.
    if order == Order::Descending {
        keys.reverse();
    }
    match keys.len() {
        0 => {}
        1 => queries.extend(keys.into_iter().map(Keys::one)),
        _ => queries.push(Keys::Many(keys)),
    }
}

fn span(range: &KeyRange, columns: usize) -> Span {
    let list = |last: Option<&Key>, max: bool| {
        let mut out = b"[".to_vec();
        let values = range.prefix.iter().map(|key| key.json.as_bytes()).chain(last.map(|key| key.json.as_bytes()));
        for value in values.chain(max.then_some(MAX)) {
            if out.len() > 1 {
                out.push(b',');
            }
            out.extend_from_slice(value);
        }
        out.push(b']');
        Json::trusted(out)
    };
    let low = match &range.low {
        Cut::Start | Cut::End => list(None, false),
        Cut::Before(key) => list(Some(key), false),
        // Behind all rows of the key.
        Cut::After(key) => list(Some(key), true),
    };
    let (high, inclusion) = match &range.high {
        Cut::End | Cut::Start => (list(None, true), Inclusion::Inclusive),
        Cut::Before(key) => (list(Some(key), false), Inclusion::Exclusive),
        Cut::After(key) => (list(Some(key), true), Inclusion::Inclusive),
    };
    let is_point = range.prefix.len() == columns && columns > 0;
    Span { low, high, inclusion, point: is_point.then(|| list(None, false)), first_id: None }
}

/// What of a span lies behind a position; `None` if nothing does.
fn rest(mut span: Span, order: Order, after: &Position<'_>) -> Option<Span> {
    let to = |key: &Json| compare(after.key.value(), key.value(), Collation::Unicode);
    let (to_low, to_high) = match &span.point {
        Some(point) => (to(point), to(point)),
        None => (to(&span.low), to(&span.high)),
    };
    let is_inside = to_low.is_ge() && (to_high.is_lt() || (to_high.is_eq() && span.inclusion == Inclusion::Inclusive));
    if is_inside {
        if span.point.take().is_some() {
            (span.low, span.high, span.inclusion) = (after.key.clone(), after.key.clone(), Inclusion::Inclusive);
        }
        span.first_id = Some(after.id.to_owned());
        match order {
            Order::Ascending => span.low = after.key.clone(),
            Order::Descending => (span.high, span.inclusion) = (after.key.clone(), Inclusion::Inclusive),
        }
        return Some(span);
    }
    let is_behind = match order {
        Order::Ascending => to_low == Ordering::Less,
        Order::Descending => to_high.is_ge(),
    };
    is_behind.then_some(span)
}

fn between(span: Span, order: Order) -> Keys {
    let Span { low, high, inclusion, first_id, .. } = span;
    let (start, end, inclusion) = match order {
        Order::Ascending => (low, high, inclusion),
        // The end of the range is now its low side, which always belongs to it.
        Order::Descending => (high, low, Inclusion::Inclusive),
    };
    Keys::Range {
        start: Some(Start { key: start, docid: first_id }),
        end: Some(End { key: end, docid: None, inclusion }),
    }
}
