//! [`Operator`]: the definition of an operator, and helpers of several operators.

use settee_model::collate::Collation;
use settee_model::json::{Json, Kind, Value};

use crate::bounds::{Cut, Intervals, Key};
use crate::error::Refusal;

pub(crate) trait Test: Send + Sync {
    fn matches(&self, value: Value<'_>) -> bool;
}

pub(crate) struct Operator {
    pub(crate) name: &'static str,
    pub(crate) negation: Negation,
    /// True if CouchDB considers an index on the field useful.
    pub(crate) indexable: bool,
    /// Validates the argument and compiles the test. The collation is that of the field: ids are compared by bytes.
    pub(crate) compile: fn(Value<'_>, Collation) -> Result<Box<dyn Test>, ArgumentError>,
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
    Wrapped,
    Operator(&'static str),
    Argument,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArgumentError {
    Type,
    /// Wrong type, for which CouchDB reports an unknown operator.
    Operator,
    Because(String),
}

impl Operator {
    pub(crate) fn test(&'static self, argument: Value<'_>, collation: Collation) -> Result<Box<dyn Test>, Refusal> {
        (self.compile)(argument, collation).map_err(|wrong| match wrong {
            ArgumentError::Operator => Refusal::InvalidOperator(self.name.to_owned()),
            ArgumentError::Type => Refusal::BadArgument { operator: self.name, argument: crate::shown(argument) },
            ArgumentError::Because(why) => {
                Refusal::BadArgument { operator: self.name, argument: format!("{}: {why}", crate::shown(argument)) }
            }
        })
    }
}

pub(crate) fn values_of_kind(kind: Kind, collation: Collation) -> Intervals {
    let key = |text: &str| Key::new(Value::trusted(text.as_bytes()), collation);
    // Least values of types that have one. The order of types depends on the collation.
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

pub(super) fn owned(value: Value<'_>) -> Json {
    Json::trusted(value.raw().to_vec())
}
