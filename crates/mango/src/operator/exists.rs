//! `$exists`: a field is there, or is not. Where it is not, the selector answers before this test is asked.

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
    // No range follows from it, but an index on the field suits the query better, as in CouchDB.
    indexable: true,
    compile: |argument, _| match argument.as_bool() {
        Some(wanted) => Ok(Box::new(Exists(wanted))),
        None => Err(Wrong::Type),
    },
    bounds: |_, _| Intervals::all(),
};
