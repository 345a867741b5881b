//! `$all`: an array contains all of these elements, or equals the single array in the list. An empty list matches
//! nothing.

use std::collections::HashSet;

use settee_model::json::{Kind, Value};

use super::exact::exact_key;
use super::{Negation, Operator, Test, Wrong, of_kind};

struct All {
    /// The distinct required elements.
    wanted: Vec<Vec<u8>>,
    /// The single array in the list, if the list contains nothing else.
    itself: Option<Vec<u8>>,
}

impl Test for All {
    fn matches(&self, value: Value<'_>) -> bool {
        if value.kind() != Kind::Array || self.wanted.is_empty() {
            return false;
        }
        let found: HashSet<Vec<u8>> = value.elements().map(exact_key).collect();
        self.wanted.iter().all(|wanted| found.contains(wanted))
            || self.itself.as_ref().is_some_and(|itself| *itself == exact_key(value))
    }
}

pub(super) static ALL: Operator = Operator {
    name: "$all",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| {
        if argument.kind() != Kind::Array {
            return Err(Wrong::Type);
        }
        let mut wanted: Vec<Vec<u8>> = argument.elements().map(exact_key).collect();
        let itself = match (wanted.len(), argument.elements().next()) {
            (1, Some(only)) if only.kind() == Kind::Array => Some(exact_key(only)),
            _ => None,
        };
        wanted.sort_unstable();
        wanted.dedup();
        Ok(Box::new(All { wanted, itself }))
    },
    bounds: |_, collation| of_kind(Kind::Array, collation),
};
