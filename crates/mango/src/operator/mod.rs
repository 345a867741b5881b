//! Operators that test one value, one file for each kind, and the list of them all ([`OPERATORS`]).
//!
//! To add one: write its file (argument, test, what it says to an index) and list it here. What combines conditions
//! (`$and`, `$not`, `$elemMatch` …) is not here but in the selector.

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

/// All operators.
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

/// The operator that a bare value stands for.
pub(crate) static EQ: &Operator = &comparison::EQ;

/// A condition on one value, ready to be tested.
pub(crate) trait Test: Send + Sync {
    /// Whether the value meets it.
    fn matches(&self, value: Value<'_>) -> bool;
}

/// An operator.
pub(crate) struct Operator {
    /// Its name, with the dollar sign.
    pub(crate) name: &'static str,
    /// The negation, as `$not` makes it.
    pub(crate) negation: Negation,
    /// Whether CouchDB counts it as help from an index on its field.
    pub(crate) indexable: bool,
    /// Checks the argument and prepares the test. The collation is that of the field: ids compare by their bytes.
    pub(crate) compile: fn(Value<'_>, Collation) -> Result<Box<dyn Test>, Wrong>,
    /// Which values can match, for an argument that compiled.
    pub(crate) bounds: fn(Value<'_>, Collation) -> Intervals,
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The negation of an operator.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Negation {
    /// `$not` stays in front of it.
    Wrapped,
    /// Another operator with the same argument.
    Operator(&'static str),
    /// The same operator with the opposite argument.
    Argument,
}

/// The fault of an argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// It is of the wrong type.
    Type,
    /// It is of the wrong type, and CouchDB says then that there is no such operator.
    Operator,
    /// Something that needs words.
    Because(String),
}

/// Finds an operator by its name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.iter().find(|operator| operator.name == name).copied()
}

impl Operator {
    /// Prepares the test for an argument.
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

/// The values of a type. Used by operators that match values of one type only.
pub(crate) fn of_kind(kind: Kind, collation: Collation) -> Intervals {
    let key = |text: &str| Key::new(Value::trusted(text.as_bytes()), collation);
    // The least values of types that have one; the order of types depends on the collation.
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

/// The same argument again, for operators that keep it.
fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}
