//! `_top_N` and `_bottom_N`: the N greatest or smallest distinct values in view collation.

use std::cmp::Ordering;

use settee_design::Growth;
use settee_model::collate::{Collation, compare};
use settee_model::json::{Value, write_array};

use super::builtin::{Builtin, Input, OfValues, Values};

pub(super) fn parse(source: &str, _: Growth) -> Option<Box<dyn Builtin>> {
    let (end, count) = match (source.strip_prefix("_top_"), source.strip_prefix("_bottom_")) {
        (Some(count), _) => (End::Top, count),
        (_, Some(count)) => (End::Bottom, count),
        _ => return None,
    };
    let count = parse_count(count).ok()?;
    Some(Box::new(Rank { end, count }))
}

const MAX_COUNT: usize = 100;

/// The texts are CouchDB's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum InvalidRank {
    #[error("invalid rank reducer")]
    NoInteger,
    #[error("rank value must be between 1 and {MAX_COUNT}")]
    OutOfRange,
}

/// Parses an integer as Erlang does: signs and leading zeros are permitted.
fn parse_count(text: &str) -> Result<usize, InvalidRank> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(InvalidRank::NoInteger);
    }
    let count = text.parse::<isize>().ok().and_then(|count| usize::try_from(count).ok());
    count.filter(|count| (1..=MAX_COUNT).contains(count)).ok_or(InvalidRank::OutOfRange)
}

pub(super) fn refuse(source: &str) -> Option<InvalidRank> {
    let count = source.strip_prefix("_top_").or_else(|| source.strip_prefix("_bottom_"))?;
    parse_count(count).err()
}

struct Rank {
    end: End,
    count: usize,
}

enum End {
    Top,
    Bottom,
}

impl Rank {
    fn consider<'a>(&self, best: &mut Vec<Value<'a>>, value: Value<'a>) {
        let place = best.binary_search_by(|other| {
            let order = compare(*other, value, Collation::Unicode);
            match self.end {
                End::Bottom => order,
                End::Top => order.reverse(),
            }
        });
        if let Err(place) = place
            && place < self.count
        {
            best.truncate(self.count - 1);
            best.insert(place, value);
        }
    }

    /// The common case: `value` cannot enter a full list.
    fn is_beaten(&self, best: &[Value<'_>], value: Value<'_>) -> bool {
        let Some(last) = best.last().filter(|_| best.len() == self.count) else {
            return false;
        };
        let order = compare(value, *last, Collation::Unicode);
        match self.end {
            End::Bottom => order != Ordering::Less,
            End::Top => order != Ordering::Greater,
        }
    }

    fn rank<'a>(&self, values: impl Iterator<Item = Value<'a>>, out: &mut Vec<u8>) {
        let mut best = Vec::with_capacity(self.count);
        for value in values {
            if !self.is_beaten(&best, value) {
                self.consider(&mut best, value);
            }
        }
        write_array(out, &best, |out, value| out.extend_from_slice(value.raw()));
    }
}

impl OfValues for Rank {
    fn reduce(&self, values: &Values<'_>, out: &mut Vec<u8>) {
        self.rank(values.iter().map(Value::trusted), out);
    }
}

impl Builtin for Rank {
    fn input(&self) -> Input<'_> {
        Input::Values(self)
    }

    fn rereduce(&self, partials: &[&[u8]], out: &mut Vec<u8>) {
        self.rank(partials.iter().flat_map(|partial| Value::trusted(partial).elements()), out);
    }
}
