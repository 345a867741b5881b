//! Parameters of searches: [`SearchParams`], which both forms of search come down to, and what they have in common. What is
//! peculiar to one of them is in [`nouveau`] and [`clouseau`].

pub(crate) mod clouseau;
pub(crate) mod nouveau;

use std::borrow::Cow;

use settee_model::json::{Kind, Value};
use settee_search::{Freshness, Grouping, Highlighting, Range, Sort};

use super::Raw;
use crate::Error;

/// A search, as far as it can be told without the index.
#[derive(Clone, Debug)]
pub(crate) struct SearchParams {
    /// The text of the query.
    pub(crate) query: Option<String>,
    /// Near vectors, besides or instead of it.
    pub(crate) knn: Option<Knn>,
    /// The language whose numbers the query has.
    pub(crate) locale: Option<String>,
    pub(crate) partition: Option<String>,
    pub(crate) limit: usize,
    pub(crate) sort: Vec<Sort>,
    pub(crate) bookmark: Option<String>,
    pub(crate) counts: Vec<String>,
    pub(crate) top_n: Option<usize>,
    pub(crate) ranges: Vec<(String, Vec<Range>)>,
    pub(crate) drilldown: Vec<Vec<String>>,
    pub(crate) group: Option<Grouping>,
    /// Groups were asked for by the older name, which has an answer of its own.
    pub(crate) has_old_groups: bool,
    pub(crate) highlight: Option<Highlighting>,
    pub(crate) include_fields: Option<Vec<String>>,
    pub(crate) include_docs: bool,
    pub(crate) freshness: Freshness,
}

/// A search for near vectors.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knn {
    pub(crate) field: String,
    pub(crate) vector: Vec<f32>,
    /// How many documents it finds at most.
    pub(crate) k: usize,
    pub(crate) candidates: usize,
    /// The text of a query that they match.
    pub(crate) filter: Option<String>,
    /// How much more it counts than the query beside it.
    pub(crate) boost: f32,
}

impl SearchParams {
    /// A search with so many hits, of which nothing else is known.
    pub(crate) fn new(limit: usize, top_n: Option<usize>) -> Self {
        Self {
            query: None,
            knn: None,
            locale: None,
            partition: None,
            limit,
            sort: Vec::new(),
            bookmark: None,
            counts: Vec::new(),
            top_n,
            ranges: Vec::new(),
            drilldown: Vec::new(),
            group: None,
            has_old_groups: false,
            highlight: None,
            include_fields: None,
            include_docs: false,
            freshness: Freshness::Current,
        }
    }
}

/// `true` or `false` and nothing else: a text of an address, or a truth value of a body.
fn boolean(name: &str, raw: &Raw) -> Result<bool, Error> {
    let found = match raw {
        Raw::Text(text) if text == "true" => Some(true),
        Raw::Text(text) if text == "false" => Some(false),
        Raw::Text(_) => None,
        Raw::Json(json) => json.value().as_bool(),
    };
    found.ok_or_else(|| invalid(name, raw))
}

fn invalid(name: &str, raw: &Raw) -> Error {
    Error::query_parse(format!("Invalid value for {name}: {}", raw.shown()))
}

/// The text of a parameter that has one.
fn text<'a>(name: &str, raw: &'a Raw) -> Result<Cow<'a, str>, Error> {
    let found = match raw {
        Raw::Text(text) => Some(Cow::Borrowed(text.as_str())),
        Raw::Json(json) => json.value().as_str(),
    };
    found.ok_or_else(|| invalid(name, raw))
}

/// An integer: the digits of an address, or a number of a body.
fn integer(raw: &Raw) -> Option<i64> {
    match raw {
        Raw::Text(text) => text.parse().ok(),
        Raw::Json(json) => json.value().as_i64(),
    }
}

/// A list of texts.
fn texts(name: &str, value: Value<'_>) -> Result<Vec<String>, Error> {
    let texts = match value.kind() {
        Kind::Array => value.elements().map(|element| element.as_str().map(Cow::into_owned)).collect(),
        _ => None,
    };
    texts.ok_or_else(|| Error::bad_request(format!("{name} must be a list of strings")))
}

/// A text, or a list of them.
fn one_or_more(name: &str, value: Value<'_>) -> Result<Vec<String>, Error> {
    match value.as_str() {
        Some(text) => Ok(vec![text.into_owned()]),
        None => texts(name, value),
    }
}
