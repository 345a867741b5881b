//! `$type`: a value has a type. An unknown type matches nothing, as in CouchDB.

use settee_model::json::{Kind, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, values_of_kind};
use crate::bounds::Intervals;

struct OfKind(Option<Kind>);

impl Test for OfKind {
    fn matches(&self, value: Value<'_>) -> bool {
        self.0 == Some(value.kind())
    }
}

fn kind(argument: Value<'_>) -> Option<Kind> {
    match argument.as_str()?.as_ref() {
        "null" => Some(Kind::Null),
        "boolean" => Some(Kind::Bool),
        "number" => Some(Kind::Number),
        "string" => Some(Kind::String),
        "array" => Some(Kind::Array),
        "object" => Some(Kind::Object),
        _ => None,
    }
}

pub(super) static TYPE: Operator = Operator {
    name: "$type",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| match argument.kind() {
        Kind::String => Ok(Box::new(OfKind(kind(argument)))),
        Kind::Null | Kind::Bool | Kind::Number | Kind::Array | Kind::Object => Err(ArgumentError::Type),
    },
    bounds: |argument, collation| kind(argument).map_or_else(Intervals::none, |kind| values_of_kind(kind, collation)),
};
