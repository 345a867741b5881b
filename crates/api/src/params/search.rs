//! Parameters of searches: [`SearchParams`] is common to both search APIs. [`nouveau`] and [`clouseau`]
//! contain their differences.

pub(crate) mod clouseau;
pub(crate) mod nouveau;

use std::borrow::Cow;

use settee_model::json::{Kind, Value};
use settee_search::{Freshness, Grouping, Highlighting, Range, Sort};

use super::Raw;
use crate::Error;

#[derive(Clone, Debug)]
pub(crate) struct SearchParams {
    pub(crate) query: Option<String>,
    pub(crate) knn: Option<Knn>,
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
    /// True if groups were requested by the older name, which has another response.
    pub(crate) has_old_groups: bool,
    pub(crate) highlight: Option<Highlighting>,
    pub(crate) include_fields: Option<Vec<String>>,
    pub(crate) include_docs: bool,
    pub(crate) freshness: Freshness,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Knn {
    pub(crate) field: String,
    pub(crate) vector: Vec<f32>,
    pub(crate) k: usize,
    pub(crate) candidates: usize,
    pub(crate) filter: Option<String>,
    pub(crate) boost: f32,
}

impl SearchParams {
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

/// Parses exactly `true` or `false` of a query string, or a JSON boolean.
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

fn text<'a>(name: &str, raw: &'a Raw) -> Result<Cow<'a, str>, Error> {
    let found = match raw {
        Raw::Text(text) => Some(Cow::Borrowed(text.as_str())),
        Raw::Json(json) => json.value().as_str(),
    };
    found.ok_or_else(|| invalid(name, raw))
}

fn integer(raw: &Raw) -> Option<i64> {
    match raw {
        Raw::Text(text) => text.parse().ok(),
        Raw::Json(json) => json.value().as_i64(),
    }
}

fn texts(name: &str, value: Value<'_>) -> Result<Vec<String>, Error> {
    let texts = match value.kind() {
        Kind::Array => value.elements().map(|element| element.as_str().map(Cow::into_owned)).collect(),
        _ => None,
    };
    texts.ok_or_else(|| Error::bad_request(format!("{name} must be a list of strings")))
}

fn one_or_more(name: &str, value: Value<'_>) -> Result<Vec<String>, Error> {
    match value.as_str() {
        Some(text) => Ok(vec![text.into_owned()]),
        None => texts(name, value),
    }
}
