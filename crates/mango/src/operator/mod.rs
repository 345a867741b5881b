//! Operators that test one value, one file per type, and the list of all ([`OPERATORS`]).
//!
//! To add one: write its file (argument, test, index bounds) and list it here. Combinations of conditions (`$and`,
//! `$not`, `$elemMatch` …) are implemented in the selector.

mod all;
mod begins_with;
mod comparison;
mod exact;
mod exists;
mod membership;
mod modulo;
mod regex;
mod size;
#[cfg(test)]
mod tests;
mod type_name;

use settee_model::collate::Collation;
use settee_model::json::{Json, Kind, Value};

use crate::bounds::{Cut, Intervals, Key};
use crate::error::Refusal;

pub(crate) static OPERATORS: &[&Operator] = &[
    &comparison::LT,
    &comparison::LTE,
    &comparison::EQ,
    &comparison::NE,
    &comparison::GTE,
    &comparison::GT,
    &membership::IN,
    &membership::NIN,
    &exists::EXISTS,
    &type_name::TYPE,
    &modulo::MOD,
    &regex::REGEX,
    &begins_with::BEGINS_WITH,
    &all::ALL,
    &size::SIZE,
];

/// The operator that a bare value implies.
pub(crate) static EQ: &Operator = &comparison::EQ;

/// A compiled condition on one value.
pub(crate) trait Test: Send + Sync {
    fn matches(&self, value: Value<'_>) -> bool;
}

pub(crate) struct Operator {
    /// Name, including the dollar sign.
    pub(crate) name: &'static str,
    pub(crate) negation: Negation,
    /// True if CouchDB considers an index on its field useful.
    pub(crate) indexable: bool,
    /// Validates the argument and compiles the test. The collation is that of the field: ids are compared by bytes.
    pub(crate) compile: fn(Value<'_>, Collation) -> Result<Box<dyn Test>, Wrong>,
    /// Returns the values that can match, for a valid argument.
    pub(crate) bounds: fn(Value<'_>, Collation) -> Intervals,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Negation {
    /// `$not` is kept.
    Wrapped,
    /// Another operator with the same argument.
    Operator(&'static str),
    /// The same operator with the inverted argument.
    Argument,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    Type,
    /// Wrong type, for which CouchDB reports an unknown operator.
    Operator,
    Because(String),
}

pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name == name).copied()
}

impl Operator {
    pub(crate) fn test(&'static self, argument: Value<'_>, collation: Collation) -> Result<Box<dyn Test>, Refusal> {
        (self.compile)(argument, collation).map_err(|wrong| match wrong {
            Wrong::Operator => Refusal::InvalidOperator(self.name.to_owned()),
            Wrong::Type => Refusal::BadArgument { operator: self.name, argument: crate::shown(argument) },
            Wrong::Because(why) => {
                Refusal::BadArgument { operator: self.name, argument: format!("{}: {why}", crate::shown(argument)) }
            }
        })
    }
}

/// Returns the values of a type, for operators that match one type only.
pub(crate) fn of_kind(kind: Kind, collation: Collation) -> Intervals {
    let key = |text: &str| Key::new(Value::trusted(text.as_bytes()), collation);
    // Smallest values of types that have one; the order of types depends on the collation.
    let (string, array, object) = (key("\"\""), key("[]"), key("{}"));
    let between = |low, high| Intervals::between(Cut::Before(low), Cut::Before(high));
    match (kind, collation) {
        (Kind::Null, _) => Intervals::point(key("null")),
        (Kind::Bool, _) => Intervals::points([key("false"), key("true")].into_iter()),
        (Kind::Number, Collation::Unicode) => Intervals::between(Cut::After(key("true")), Cut::Before(string)),
        (Kind::Number, Collation::Raw) => Intervals::between(Cut::Start, Cut::Before(key("false"))),
        (Kind::String, Collation::Unicode) => between(string, array),
        (Kind::String, Collation::Raw) => Intervals::between(Cut::Before(string), Cut::End),
        (Kind::Array, Collation::Unicode) => between(array, object),
        (Kind::Array, Collation::Raw) => between(array, string),
        (Kind::Object, Collation::Unicode) => Intervals::between(Cut::Before(object), Cut::End),
        (Kind::Object, Collation::Raw) => between(object, array),
    }
}

/// Copies the argument, for operators that keep it.
fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}
