//! `$all`: an array contains all elements of a list, or equals its only element. An empty list matches nothing.

use std::collections::HashSet;

use settee_model::json::{Kind, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, values_of_kind};
use super::exact::exact_key;

struct All {
    wanted: Vec<Vec<u8>>,
    /// Set if the list contains one array only.
    single_array: Option<Vec<u8>>,
}

impl Test for All {
    fn matches(&self, value: Value<'_>) -> bool {
        if value.kind() != Kind::Array || self.wanted.is_empty() {
            return false;
        }
        let found: HashSet<Vec<u8>> = value.elements().map(exact_key).collect();
        self.wanted.iter().all(|wanted| found.contains(wanted))
            || self.single_array.as_ref().is_some_and(|single_array| *single_array == exact_key(value))
    }
}

pub(super) static ALL: Operator = Operator {
    name: "$all",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| {
        if argument.kind() != Kind::Array {
            return Err(ArgumentError::Type);
        }
        let mut wanted: Vec<Vec<u8>> = argument.elements().map(exact_key).collect();
        let single_array = match (wanted.len(), argument.elements().next()) {
            (1, Some(only)) if only.kind() == Kind::Array => Some(exact_key(only)),
            _ => None,
        };
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Box::new(All { wanted, single_array }))
    },
    bounds: |_, collation| values_of_kind(Kind::Array, collation),
};
