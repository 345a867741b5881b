//! `$regex`: a string matches a regular expression anywhere.
//!
//! CouchDB matches expressions in Perl's syntax on the bytes of the UTF-8 text; here the same syntax is matched in
//! linear time, which bounds the time of an expression. Features that cannot be matched in linear time (look-around,
//! backreferences, classes with characters outside ASCII) are rejected when the query is parsed.

use regex::bytes::{Regex, RegexBuilder};
use settee_model::json::{Kind, Value};

use super::{Negation, Operator, Test, Wrong, of_kind};

const SIZE_LIMIT_BYTES: usize = 1 << 20;

struct Matches(Regex);

impl Test for Matches {
    fn matches(&self, value: Value<'_>) -> bool {
        value.string_bytes().is_some_and(|text| self.0.is_match(&text))
    }
}

fn compile(expression: &str) -> Result<Regex, Wrong> {
    let built = RegexBuilder::new(expression)
        .unicode(false)
        .size_limit(SIZE_LIMIT_BYTES)
        .dfa_size_limit(SIZE_LIMIT_BYTES)
        .nest_limit(100)
        .build();
    // The message of the crate marks the position over several lines; its last line describes the defect.
    built.map_err(|error| {
        let text = error.to_string();
        let last = text.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or_default();
        Wrong::Because(last.trim().trim_start_matches("error: ").to_owned())
    })
}

pub(super) static REGEX: Operator = Operator {
    name: "$regex",
    negation: Negation::Wrapped,
    indexable: false,
    compile: |argument, _| match argument.as_str() {
        Some(expression) => Ok(Box::new(Matches(compile(&expression)?))),
        None => Err(Wrong::Operator),
    },
    bounds: |_, collation| of_kind(Kind::String, collation),
};
