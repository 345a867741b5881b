//! `$size`: an array has this number of elements.

use settee_model::json::{Kind, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, values_of_kind};

struct Size(u64);

impl Test for Size {
    fn matches(&self, value: Value<'_>) -> bool {
        value.kind() == Kind::Array && value.elements().count() as u64 == self.0
    }
}

pub(super) static SIZE: Operator = Operator {
    name: "$size",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| match argument.as_u64() {
        Some(size) => Ok(Box::new(Size(size))),
        None => Err(ArgumentError::Type),
    },
    bounds: |_, collation| values_of_kind(Kind::Array, collation),
};
