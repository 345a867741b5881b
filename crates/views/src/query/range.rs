//! Converts keys of clients to ranges of row keys.

use settee_model::collate::{self, Collation};
use settee_model::json::Json;

use super::{Bounds, End, Inclusion, Order, Start};
use crate::error::QueryError;
use crate::keys;
use crate::tree::walk::{Direction, RowRange};

impl Order {
    pub(super) fn direction(self) -> Direction {
        match self {
            Self::Ascending => Direction::Forward,
            Self::Descending => Direction::Backward,
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Space<'a> {
    pub(super) prefix: &'a [u8],
    pub(super) collation: Collation,
}

impl Space<'_> {
    fn sort_key(self, key: &Json) -> Vec<u8> {
        let mut out = self.prefix.to_vec();
        collate::encode(key.value(), self.collation, &mut out);
        out
    }

    pub(super) fn all(self) -> RowRange {
        let upper = (!self.prefix.is_empty()).then(|| keys::after_prefix(self.prefix));
        RowRange { lower: self.prefix.to_vec(), upper }
    }
}

/// Document ids apply only together with their key, as in CouchDB.
pub(super) fn between(
    start: Option<&Start>,
    end: Option<&End>,
    order: Order,
    space: Space<'_>,
) -> Result<RowRange, QueryError> {
    let start = start.map(|start| (space.sort_key(&start.key), start.docid.as_deref()));
    let end = end.map(|end| (space.sort_key(&end.key), end.docid.as_deref(), end.inclusion));
    if let (Some((start, _)), Some((end, ..))) = (&start, &end) {
        match order {
            Order::Ascending if start > end => return Err(QueryError::RangeNotAscending),
            Order::Descending if start < end => return Err(QueryError::RangeNotDescending),
            Order::Ascending | Order::Descending => {}
        }
    }
    let before = |key: Vec<u8>, id: Option<&str>| id.map_or(key.clone(), |id| keys::from_id(&key, id));
    let behind =
        |key: Vec<u8>, id: Option<&str>| id.map_or_else(|| keys::after_prefix(&key), |id| keys::after_id(&key, id));
    let (lower, upper) = match order {
        Order::Ascending => (
            start.map(|(key, id)| before(key, id)),
            end.map(|(key, id, inclusion)| match inclusion {
                Inclusion::Inclusive => behind(key, id),
                Inclusion::Exclusive => before(key, id),
            }),
        ),
        Order::Descending => (
            end.map(|(key, id, inclusion)| match inclusion {
                Inclusion::Inclusive => before(key, id),
                Inclusion::Exclusive => behind(key, id),
            }),
            start.map(|(key, id)| behind(key, id)),
        ),
    };
    let all = space.all();
    Ok(RowRange { lower: lower.unwrap_or(all.lower), upper: upper.or(all.upper) })
}

pub(super) fn of_key(key: &Json, bounds: &Bounds, order: Order, space: Space<'_>) -> Result<RowRange, QueryError> {
    if *bounds != Bounds::default() {
        let start = Start { key: key.clone(), docid: bounds.start.clone() };
        let end = End { key: key.clone(), docid: bounds.end.clone(), inclusion: bounds.inclusion };
        return between(Some(&start), Some(&end), order, space);
    }
    let lower = space.sort_key(key);
    Ok(RowRange { upper: Some(keys::after_prefix(&lower)), lower })
}
