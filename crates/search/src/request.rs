//! [`Request`]: a search with its parameters, and the parsers of these.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::query::Query;

pub const DEFAULT_LIMIT: usize = 25;

pub const DEFAULT_TOP_N: usize = 10;
pub const MAX_TOP_N: usize = 1_000;

pub const DEFAULT_CANDIDATES: usize = 50;

pub const MAX_CANDIDATES: usize = 10_000;

#[derive(Clone, Debug)]
pub struct Request {
    pub query: Query,
    pub partition: Option<String>,
    /// Maximum number of hits; may be 0.
    pub limit: usize,
    /// Order of hits; empty for relevance.
    pub sort: Vec<Sort>,
    pub bookmark: Option<String>,
    /// Fields whose values are counted among all hits.
    pub counts: Vec<String>,
    /// Maximum number of counted values per field; `None` for all.
    pub top_n: Option<usize>,
    pub ranges: Vec<(String, Vec<Range>)>,
    /// Each list is a field and its permitted values; a hit must match all lists.
    pub drilldown: Vec<Vec<String>>,
    pub group: Option<Grouping>,
    pub highlight: Option<Highlighting>,
    /// `None` for all stored fields.
    pub include_fields: Option<Vec<String>>,
}

impl Request {
    #[must_use]
    pub fn new(query: Query) -> Self {
        Self {
            query,
            partition: None,
            limit: DEFAULT_LIMIT,
            sort: Vec::new(),
            bookmark: None,
            counts: Vec::new(),
            top_n: Some(DEFAULT_TOP_N),
            ranges: Vec::new(),
            drilldown: Vec::new(),
            group: None,
            highlight: None,
            include_fields: None,
        }
    }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Sort {
    pub by: SortBy,
    /// For [`SortBy::Relevance`], true means ascending scores.
    pub descending: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub enum SortBy {
    Relevance,
    Id,
    Field(String),
    StringField(String),
    NumberField(String),
    /// Distance from a point in kilometres or miles; the fields contain degrees.
    Distance {
        longitude_field: String,
        latitude_field: String,
        longitude: f64,
        latitude: f64,
        unit_per_km: f64,
    },
}

#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    pub label: String,
    pub lower: Bound<f64>,
    pub upper: Bound<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// Hits without the field form a group, too.
    pub field: String,
    pub limit: usize,
    pub sort: Vec<Sort>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Highlighting {
    /// Fields to highlight, which must be stored.
    pub fields: Vec<String>,
    pub pre_tag: String,
    pub post_tag: String,
    pub number: usize,
    pub size: usize,
}

impl Sort {
    /// Parses an element of `sort` of `_nouveau`: `name`, `-name` or `+name`; `relevance` and `_id` are also names.
    pub fn parse(text: &str) -> Result<Self> {
        let (descending, name) = sign(text);
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.$".contains(&byte));
        if !is_name {
            return Err(Error::bad_request(format!("Invalid sort parameter: {text}")));
        }
        let by = match name {
            "relevance" => SortBy::Relevance,
            "_id" => SortBy::Id,
            name => SortBy::Field(name.to_owned()),
        };
        Ok(Self { by, descending })
    }
}

pub(crate) fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

impl Sort {
    /// Parses an element of `sort` of `_search`: `name<number>`, `name<string>`, `<score>`, `<doc>` or
    /// `<distance,longitude field,latitude field,longitude,latitude,km or mi>`, with an optional sign.
    pub fn parse_classic(text: &str) -> Result<Self> {
        let unknown = || Error::bad_request(format!("Unrecognized sort parameter: {text}"));
        let (descending, rest) = sign(text);
        let (name, kind) = match rest.strip_suffix('>').and_then(|rest| rest.split_once('<')) {
            Some((name, kind)) => (name, kind),
            None if rest.contains(['<', '>']) || rest.is_empty() => return Err(unknown()),
            None => (rest, ""),
        };
        let by = match (name, kind) {
            ("", "score") => SortBy::Relevance,
            ("", "doc") => SortBy::Id,
            ("", place) => distance(place).ok_or_else(unknown)?,
            (name, "") => SortBy::Field(name.to_owned()),
            (name, "number") => SortBy::NumberField(name.to_owned()),
            (name, "string") => SortBy::StringField(name.to_owned()),
            _ => return Err(unknown()),
        };
        Ok(Self { by, descending })
    }
}

fn distance(text: &str) -> Option<SortBy> {
    let parts: Vec<&str> = text.split(',').map(str::trim).collect();
    let ["distance", longitude_field, latitude_field, longitude, latitude, unit] = parts.as_slice() else {
        return None;
    };
    let unit_per_km = match *unit {
        "km" => 1.0,
        "mi" => 0.621_371_192_237_334,
        _ => return None,
    };
    Some(SortBy::Distance {
        longitude_field: (*longitude_field).to_owned(),
        latitude_field: (*latitude_field).to_owned(),
        longitude: longitude.parse().ok()?,
        latitude: latitude.parse().ok()?,
        unit_per_km,
    })
}

impl Range {
    /// Parses a range of `_search`: `[0 TO 100}`, with `*` for an open end.
    pub fn parse_classic(label: &str, text: &str) -> Result<Self> {
        let invalid = || Error::bad_request(format!("{text} was not a well-formed range specification"));
        let first = text.chars().next().ok_or_else(invalid)?;
        let last = text.chars().next_back().ok_or_else(invalid)?;
        if text.len() < 2 || !"[{".contains(first) || !"]}".contains(last) {
            return Err(invalid());
        }
        let (lower, upper) = text[1..text.len() - 1].split_once(" TO ").ok_or_else(invalid)?;
        let bound = |text: &str, included: bool| -> Result<Bound<f64>> {
            match text.trim() {
                "*" => Ok(Bound::Unbounded),
                number => {
                    let number = number.parse().map_err(|_| invalid())?;
                    Ok(if included { Bound::Included(number) } else { Bound::Excluded(number) })
                }
            }
        };
        Ok(Self { label: label.to_owned(), lower: bound(lower, first == '[')?, upper: bound(upper, last == ']')? })
    }
}
