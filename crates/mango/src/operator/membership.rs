//! `$in`, `$nin`: a value, or an element of an array, is in a list. The list is stored as sorted encodings. As in
//! CouchDB, an array is not tested as a whole.

use settee_model::collate::{self, Collation};
use settee_model::json::{Kind, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, values_of_kind};
use crate::bounds::{Intervals, Key};

struct Membership {
    members: Vec<Vec<u8>>,
    collation: Collation,
    wanted: bool,
}

impl Membership {
    fn has(&self, value: Value<'_>, buffer: &mut Vec<u8>) -> bool {
        buffer.clear();
        collate::encode(value, self.collation, buffer);
        self.members.binary_search_by(|member| member.as_slice().cmp(buffer)).is_ok()
    }
}

impl Test for Membership {
    fn matches(&self, value: Value<'_>) -> bool {
        let mut buffer = Vec::new();
        let is_in = match value.kind() {
            Kind::Array => value.elements().any(|element| self.has(element, &mut buffer)),
            Kind::Null | Kind::Bool | Kind::Number | Kind::String | Kind::Object => self.has(value, &mut buffer),
        };
        is_in == self.wanted
    }
}

fn membership(argument: Value<'_>, collation: Collation, wanted: bool) -> Result<Box<dyn Test>, ArgumentError> {
    if argument.kind() != Kind::Array {
        return Err(ArgumentError::Type);
    }
    let encoded = argument.elements().map(|member| {
        let mut encoded = Vec::new();
        collate::encode(member, collation, &mut encoded);
        encoded
    });
    let mut members: Vec<Vec<u8>> = encoded.collect();
    members.sort_unstable();
    members.dedup();
    Ok(Box::new(Membership { members, collation, wanted }))
}

pub(super) static IN: Operator = Operator {
    name: "$in",
    negation: Negation::Operator("$nin"),
    indexable: false,
    compile: |argument, collation| membership(argument, collation, true),
    bounds: |argument, collation| {
        let scalars = argument.elements().filter(|member| member.kind() != Kind::Array);
        let points = Intervals::points(scalars.map(|member| Key::new(member, collation)));
        if argument.elements().next().is_some() { points.or(values_of_kind(Kind::Array, collation)) } else { points }
    },
};

pub(super) static NIN: Operator = Operator {
    name: "$nin",
    negation: Negation::Operator("$in"),
    indexable: false,
    compile: |argument, collation| membership(argument, collation, false),
    bounds: |_, _| Intervals::all(),
};
