//! [`Intervals`]: ranges of the values of a field. They contain all values that match, and possibly others.

use std::cmp::Ordering;
use std::sync::Arc;

use settee_model::collate::{self, Collation};
use settee_model::json::{Json, Value};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) json: Json,
    encoded: Vec<u8>,
}

impl Key {
    pub(crate) fn new(value: Value<'_>, collation: Collation) -> Arc<Self> {
        let mut encoded = Vec::new();
        collate::encode(value, collation, &mut encoded);
        Arc::new(Self { json: Json::trusted(value.raw().to_vec()), encoded })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    Start,
    Before(Arc<Key>),
    After(Arc<Key>),
    End,
}

impl Cut {
    fn place(&self) -> (u8, &[u8], u8) {
        match self {
            Self::Start => (0, &[], 0),
            Self::Before(key) => (1, &key.encoded, 0),
            Self::After(key) => (1, &key.encoded, 1),
            Self::End => (2, &[], 0),
        }
    }
}

impl Ord for Cut {
    fn cmp(&self, other: &Self) -> Ordering {
        // No encoding is a proper prefix of another, so comparing the parts compares the positions.
        self.place().cmp(&other.place())
    }
}

impl PartialOrd for Cut {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// `low` must be less than `high`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Interval {
    pub(crate) low: Cut,
    pub(crate) high: Cut,
}

impl Interval {
    pub(crate) fn point(&self) -> Option<&Arc<Key>> {
        match (&self.low, &self.high) {
            (Cut::Before(low), Cut::After(high)) if low.encoded == high.encoded => Some(low),
            _ => None,
        }
    }
}

/// Disjoint, non-adjacent ranges in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Intervals(Vec<Interval>);

impl Intervals {
    pub(crate) fn all() -> Self {
        Self(vec![Interval { low: Cut::Start, high: Cut::End }])
    }

    pub(crate) fn none() -> Self {
        Self(Vec::new())
    }

    pub(crate) fn between(low: Cut, high: Cut) -> Self {
        if low < high { Self(vec![Interval { low, high }]) } else { Self::none() }
    }

    pub(crate) fn point(key: Arc<Key>) -> Self {
        Self(vec![Interval { low: Cut::Before(Arc::clone(&key)), high: Cut::After(key) }])
    }

    pub(crate) fn points(keys: impl Iterator<Item = Arc<Key>>) -> Self {
        let intervals = keys.map(|key| Interval { low: Cut::Before(Arc::clone(&key)), high: Cut::After(key) });
        Self::united(intervals.collect())
    }

    pub(crate) fn is_all(&self) -> bool {
        matches!(&self.0[..], [Interval { low: Cut::Start, high: Cut::End }])
    }

    pub(crate) fn as_slice(&self) -> &[Interval] {
        &self.0
    }

    pub(crate) fn and(&self, other: &Self) -> Self {
        let (mut left, mut right) = (self.0.iter().peekable(), other.0.iter().peekable());
        let mut common = Vec::new();
        while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
            let low = (&a.low).max(&b.low);
            let high = (&a.high).min(&b.high);
            if low < high {
                common.push(Interval { low: low.clone(), high: high.clone() });
            }
            if a.high <= b.high {
                left.next()
            } else {
                right.next()
            };
        }
        Self(common)
    }

    pub(crate) fn or(self, other: Self) -> Self {
        Self::any([self, other].into_iter())
    }

    pub(crate) fn any(sets: impl Iterator<Item = Self>) -> Self {
        Self::united(sets.flat_map(|set| set.0).collect())
    }

    fn united(mut intervals: Vec<Interval>) -> Self {
        intervals.sort_by(|a, b| a.low.cmp(&b.low));
        let mut apart: Vec<Interval> = Vec::with_capacity(intervals.len());
        for interval in intervals {
            match apart.last_mut() {
                Some(last) if interval.low <= last.high => {
                    if interval.high > last.high {
                        last.high = interval.high;
                    }
                }
                _ => apart.push(interval),
            }
        }
        Self(apart)
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    fn key(number: i64) -> Arc<Key> {
        let json = Json::parse(number.to_string().as_bytes()).unwrap();
        Key::new(json.value(), Collation::Unicode)
    }

    fn shown(intervals: &Intervals) -> String {
        let text = |key: &Key| String::from_utf8(key.json.as_bytes().to_vec()).unwrap();
        let parts = intervals.as_slice().iter().map(|interval| {
            let low = match &interval.low {
                Cut::Start => "(".to_owned(),
                Cut::Before(key) => format!("[{}", text(key)),
                Cut::After(key) => format!("({}", text(key)),
                Cut::End => unreachable!(),
            };
            let high = match &interval.high {
                Cut::End => ")".to_owned(),
                Cut::Before(key) => format!("{})", text(key)),
                Cut::After(key) => format!("{}]", text(key)),
                Cut::Start => unreachable!(),
            };
            format!("{low},{high}")
        });
        parts.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ranges_are_intersected_and_united() {
        let from = |n| Intervals::between(Cut::Before(key(n)), Cut::End);
        let above = |n| Intervals::between(Cut::After(key(n)), Cut::End);
        let below = |n| Intervals::between(Cut::Start, Cut::Before(key(n)));
        let to = |n| Intervals::between(Cut::Start, Cut::After(key(n)));
        let points = |numbers: &[i64]| Intervals::points(numbers.iter().map(|n| key(*n)));
        let check = |intervals: &Intervals, expected: &str| assert_eq!(shown(intervals), expected);
        check(&from(1).and(&below(5)), "[1,5)");
        check(&above(1).and(&to(5)), "(1,5]");
        check(&from(1).and(&to(1)), "[1,1]");
        check(&above(1).and(&to(1)), "");
        check(&from(5).and(&to(1)), "");
        check(&points(&[7, 1, 3, 1]), "[1,1] [3,3] [7,7]");
        check(&points(&[1, 3, 7]).and(&above(1)), "[3,3] [7,7]");
        check(&below(2).or(points(&[2])), "(,2]");
        check(&below(2).or(above(2)), "(,2) (2,)");
        check(&below(2).or(from(2)), "(,)");
        assert!(below(3).or(above(2)).is_all());
        check(&below(2).or(above(4)).and(&points(&[1, 3, 5])), "[1,1] [5,5]");
        check(&Intervals::none().or(Intervals::none()), "");
    }

    #[test]
    fn intersections_agree_with_membership() {
        let numbers: Vec<i64> = (0..4).collect();
        let subset = |bits: u32| Intervals::points(numbers.iter().filter(|n| bits & (1 << **n) != 0).map(|n| key(*n)));
        for a in 0..16 {
            for b in 0..16 {
                assert_eq!(subset(a).and(&subset(b)), subset(a & b));
                assert_eq!(subset(a).or(subset(b)), subset(a | b));
            }
        }
    }
}
