//! `$beginsWith`: compared by characters and not by the collation.

use settee_model::json::{Json, Kind, Value, write_string};

use super::definition::{ArgumentError, Negation, Operator, Test};
use crate::bounds::{Cut, Intervals, Key};

struct BeginsWith(Vec<u8>);

impl Test for BeginsWith {
    fn matches(&self, value: Value<'_>) -> bool {
        value.string_bytes().is_some_and(|text| text.starts_with(&self.0))
    }
}

pub(crate) fn last_with(prefix: Value<'_>) -> Json {
    let mut text = prefix.as_str().unwrap_or_default().into_owned();
    text.push('\u{ffff}');
    let mut json = Vec::new();
    write_string(&mut json, &text);
    Json::trusted(json)
}

pub(super) static BEGINS_WITH: Operator = Operator {
    name: "$beginsWith",
    negation: Negation::Wrapped,
    indexable: true,
    compile: |argument, _| match argument.kind() {
        Kind::String => Ok(Box::new(BeginsWith(argument.string_bytes().unwrap_or_default().into_owned()))),
        Kind::Null | Kind::Bool | Kind::Number | Kind::Array | Kind::Object => Err(ArgumentError::Operator),
    },
    bounds: |argument, collation| {
        let low = Cut::Before(Key::new(argument, collation));
        let high = match collation {
            settee_model::collate::Collation::Unicode => Cut::After(Key::new(last_with(argument).value(), collation)),
            settee_model::collate::Collation::Raw => Cut::End,
        };
        Intervals::between(low, high)
    },
};
