//! [`queries`] converts ranges of an index to queries of its view. Adjacent single keys become one query.

use std::cmp::Ordering;

use settee_model::collate::{Collation, compare};
use settee_model::json::Json;
use settee_views::{Bounds, End, Inclusion, Keys, Order as ViewOrder, Start};

use crate::bounds::{Cut, Key};
use crate::planner::access::KeyRange;
use crate::sort::Order;

/// Sorts after every practical value: a member name of characters that sort last.
const GREATEST_VALUE: &[u8] = "{\"\u{ffff}\u{ffff}\u{ffff}\u{ffff}\":{}}".as_bytes();

#[derive(Clone, Debug, PartialEq, Eq)]
struct Span {
    low: Json,
    high: Json,
    inclusion: Inclusion,
    point: Option<Json>,
    /// First document id within the first key, in the order of the query.
    first_id: Option<String>,
}

pub(super) struct Position<'a> {
    pub(super) key: &'a Json,
    pub(super) id: &'a str,
}

pub(super) fn view_order(order: Order) -> ViewOrder {
    match order {
        Order::Ascending => ViewOrder::Ascending,
        Order::Descending => ViewOrder::Descending,
    }
}

/// Returns the queries for `ranges`, starting at `after`, whose row may be returned again.
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
    if order == Order::Descending {
        keys.reverse();
    }
    match keys.len() {
        0 => {}
        1 => queries.extend(keys.into_iter().map(Keys::one)),
        _ => queries.push(Keys::Many(keys, Bounds::default())),
    }
}

fn span(range: &KeyRange, columns: usize) -> Span {
    let list = |last: Option<&Key>, max: bool| {
        let mut out = b"[".to_vec();
        let values = range.prefix.iter().map(|key| key.json.as_bytes()).chain(last.map(|key| key.json.as_bytes()));
        for value in values.chain(max.then_some(GREATEST_VALUE)) {
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
        // The end of the range is now its low side, which is always included.
        Order::Descending => (high, low, Inclusion::Inclusive),
    };
    Keys::Range {
        start: Some(Start { key: start, docid: first_id }),
        end: Some(End { key: end, docid: None, inclusion }),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use std::sync::Arc;

    use settee_model::json::Value;

    use super::*;

    fn key(text: &str) -> Arc<Key> {
        Key::new(Json::parse(text.as_bytes()).unwrap().value(), Collation::Unicode)
    }

    fn point(text: &str) -> KeyRange {
        KeyRange { prefix: vec![key(text)], low: Cut::Start, high: Cut::End }
    }

    fn shown(queries: &[Keys]) -> String {
        let text = |json: &Json| {
            String::from_utf8_lossy(json.as_bytes()).replace(std::str::from_utf8(GREATEST_VALUE).unwrap(), "MAX")
        };
        let parts = queries.iter().map(|query| match query {
            Keys::Many(keys, _) => keys.iter().map(text).collect::<Vec<_>>().join("+"),
            Keys::Range { start, end } => {
                let (start, end) = (start.as_ref().unwrap(), end.as_ref().unwrap());
                let id = start.docid.as_ref().map(|id| format!("@{id}")).unwrap_or_default();
                let bracket = if end.inclusion == Inclusion::Inclusive { "" } else { "!" };
                format!("{}{id}..{}{bracket}", text(&start.key), text(&end.key))
            }
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    fn check(ranges: &[KeyRange], order: Order, after: Option<(&str, &str)>, expected: &str) {
        let place = after.map(|(key, id)| (Json::parse(key.as_bytes()).unwrap(), id));
        let after = place.as_ref().map(|(key, id)| Position { key, id });
        assert_eq!(shown(&queries(ranges, 1, order, after.as_ref())), expected);
    }

    #[test]
    fn single_keys_become_one_query() {
        let between = |low: Cut, high: Cut| KeyRange { prefix: Vec::new(), low, high };
        let ranges = [point("1"), point("2"), between(Cut::After(key("5")), Cut::Before(key("\"a\""))), point("{}")];
        check(&ranges, Order::Ascending, None, r#"[1]+[2] [5,MAX]..["a"]! [{}]..[{}]"#);
        check(&ranges, Order::Descending, None, r#"[{}]..[{}] ["a"]..[5,MAX] [1]+[2]"#);
        let all = [between(Cut::Start, Cut::End)];
        check(&all, Order::Ascending, None, "[]..[MAX]");
        check(&all, Order::Descending, None, "[MAX]..[]");
    }

    #[test]
    fn a_bookmark_skips_the_rows_already_read() {
        let between = |low: &str, high: &str| KeyRange {
            prefix: Vec::new(),
            low: Cut::Before(key(low)),
            high: Cut::After(key(high)),
        };
        let ranges = [point("1"), point("2"), between("5", "9"), point("20")];
        let after = |order, key, expected| check(&ranges, order, Some((key, "x")), expected);
        after(Order::Ascending, "[0]", "[1]+[2] [5]..[9,MAX] [20]..[20]");
        after(Order::Ascending, "[1]", "[1]@x..[1] [2]..[2] [5]..[9,MAX] [20]..[20]");
        after(Order::Ascending, "[3]", "[5]..[9,MAX] [20]..[20]");
        after(Order::Ascending, "[7]", "[7]@x..[9,MAX] [20]..[20]");
        after(Order::Ascending, "[20]", "[20]@x..[20]");
        after(Order::Ascending, "[21]", "");
        after(Order::Descending, "[21]", "[20]..[20] [9,MAX]..[5] [1]+[2]");
        after(Order::Descending, "[7]", "[7]@x..[5] [1]+[2]");
        after(Order::Descending, "[2]", "[2]@x..[2] [1]..[1]");
        after(Order::Descending, "[0]", "");
    }

    #[test]
    fn the_end_of_everything_sorts_last() {
        let max = Value::trusted(GREATEST_VALUE);
        for text in
            [r#"{"zzz":1}"#, r#"{"\ud7a3":{}}"#, "{\"\u{10ffff}\":1}", "{\"\u{fffd}\":[]}", "[{}]", "\"\u{ffff}\""]
        {
            let value = Json::parse(text.as_bytes()).unwrap();
            assert!(compare(value.value(), max, Collation::Unicode).is_lt(), "{text}");
        }
    }
}
