//! `$regex`: a string matches a regular expression anywhere, on the bytes of the UTF-8 text as in CouchDB, in linear
//! time. Features that this excludes (look-around, backreferences, classes with characters outside ASCII) are rejected.

use regex::bytes::{Regex, RegexBuilder};
use settee_model::json::{Kind, Value};

use super::definition::{ArgumentError, Negation, Operator, Test, values_of_kind};

const SIZE_LIMIT_BYTES: usize = 1 << 20;

struct Matches(Regex);

impl Test for Matches {
    fn matches(&self, value: Value<'_>) -> bool {
        value.string_bytes().is_some_and(|text| self.0.is_match(&text))
    }
}

fn compile(expression: &str) -> Result<Regex, ArgumentError> {
    let built = RegexBuilder::new(expression)
        .unicode(false)
        .size_limit(SIZE_LIMIT_BYTES)
        .dfa_size_limit(SIZE_LIMIT_BYTES)
        .nest_limit(100)
        .build();
    built.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        ArgumentError::Because(last.trim().trim_start_matches("error: ").to_owned())
    })
}

pub(super) static REGEX: Operator = Operator {
    name: "$regex",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| match argument.as_str() {
        Some(expression) => Ok(Box::new(Matches(compile(&expression)?))),
        None => Err(ArgumentError::Operator),
    },
    bounds: |_, collation| values_of_kind(Kind::String, collation),
};
