//! `$lt`, `$lte`, `$eq`, `$ne`, `$gte`, `$gt`: comparison of values of any types.

use std::cmp::Ordering;

use settee_model::collate::{Collation, compare};
use settee_model::json::{Json, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, owned};
use crate::bounds::{Cut, Intervals, Key};

struct Comparison {
    with: Json,
    collation: Collation,
    holds: fn(Ordering) -> bool,
}

impl Test for Comparison {
    fn matches(&self, value: Value<'_>) -> bool {
        (self.holds)(compare(value, self.with.value(), self.collation))
    }
}

fn comparison(
    argument: Value<'_>,
    collation: Collation,
    holds: fn(Ordering) -> bool,
) -> Result<Box<dyn Test>, ArgumentError> {
    Ok(Box::new(Comparison { with: owned(argument), collation, holds }))
}

pub(super) static LT: Operator = Operator {
    name: "$lt",
    negation: Negation::Operator("$gte"),
    indexable: true,
    compile: |argument, collation| comparison(argument, collation, Ordering::is_lt),
    bounds: |argument, collation| Intervals::between(Cut::Start, Cut::Before(Key::new(argument, collation))),
};

pub(super) static LTE: Operator = Operator {
    name: "$lte",
    negation: Negation::Operator("$gt"),
    indexable: true,
    compile: |argument, collation| comparison(argument, collation, Ordering::is_le),
    bounds: |argument, collation| Intervals::between(Cut::Start, Cut::After(Key::new(argument, collation))),
};

pub(super) static EQ: Operator = Operator {
    name: "$eq",
    negation: Negation::Operator("$ne"),
    indexable: true,
    compile: |argument, collation| comparison(argument, collation, Ordering::is_eq),
    bounds: |argument, collation| Intervals::point(Key::new(argument, collation)),
};

pub(super) static NE: Operator = Operator {
    name: "$ne",
    negation: Negation::Operator("$eq"),
    indexable: false,
    compile: |argument, collation| comparison(argument, collation, Ordering::is_ne),
    bounds: |argument, collation| {
        let key = Key::new(argument, collation);
        let below = Intervals::between(Cut::Start, Cut::Before(key.clone()));
        below.or(Intervals::between(Cut::After(key), Cut::End))
    },
};

pub(super) static GTE: Operator = Operator {
    name: "$gte",
    negation: Negation::Operator("$lt"),
    indexable: true,
    compile: |argument, collation| comparison(argument, collation, Ordering::is_ge),
    bounds: |argument, collation| Intervals::between(Cut::Before(Key::new(argument, collation)), Cut::End),
};

pub(super) static GT: Operator = Operator {
    name: "$gt",
    negation: Negation::Operator("$lte"),
    indexable: true,
    compile: |argument, collation| comparison(argument, collation, Ordering::is_gt),
    bounds: |argument, collation| Intervals::between(Cut::After(Key::new(argument, collation)), Cut::End),
};
