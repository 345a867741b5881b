//! `$exists`: a field is present or absent. The selector handles absent fields without this test.

use settee_model::json::Value;

use super::definition::{ArgumentError, Negation, Operator, Test};
use crate::bounds::Intervals;

struct Exists(bool);

impl Test for Exists {
    fn matches(&self, _: Value<'_>) -> bool {
        self.0
    }
}

pub(super) static EXISTS: Operator = Operator {
    name: "$exists",
    negation: Negation::Argument,
    // It implies no range, but CouchDB considers an index on the field more suitable.
    indexable: true,
    compile: |argument, _| match argument.as_bool() {
        Some(wanted) => Ok(Box::new(Exists(wanted))),
        None => Err(ArgumentError::Type),
    },
    bounds: |_, _| Intervals::all(),
};
