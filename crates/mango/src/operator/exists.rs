//! `$exists`: a field is present, or absent. The selector handles absent fields without this test.

use settee_model::json::Value;

use super::{Negation, Operator, Test, Wrong};
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
    // It implies no range, but an index on the field is more suitable, as in CouchDB.
    indexable: true,
    compile: |argument, _| match argument.as_bool() {
        Some(wanted) => Ok(Box::new(Exists(wanted))),
        None => Err(Wrong::Type),
    },
    bounds: |_, _| Intervals::all(),
};
