//! What is asked of an index: a [`Request`]. Its parameters are read here where their texts have a syntax of their own.

use std::ops::Bound;

use crate::error::{Error, Result};
use crate::query::Query;

/// The number of hits of an answer, unless the request says otherwise.
pub const DEFAULT_LIMIT: usize = 25;

/// The number of values of a field that are counted, unless the request says otherwise; and the greatest number.
pub const DEFAULT_TOP_N: usize = 10;
/// See [`DEFAULT_TOP_N`].
pub const MAX_TOP_N: usize = 1_000;

/// How many vectors are kept in sight on the way to near ones, unless a query says otherwise.
pub const DEFAULT_CANDIDATES: usize = 50;

/// The greatest number of them.
pub const MAX_CANDIDATES: usize = 10_000;

/// A search.
#[derive(Clone, Debug)]
pub struct Request {
    /// What is looked for.
    pub query: Query,
    /// Only in this partition.
    pub partition: Option<String>,
    /// The greatest number of hits in the answer; 0 for none.
    pub limit: usize,
    /// The order of hits; empty: by relevance.
    pub sort: Vec<Sort>,
    /// Of an earlier answer: the hits after those.
    pub bookmark: Option<String>,
    /// The fields whose values are counted among all hits.
    pub counts: Vec<String>,
    /// The greatest number of values for each of them; `None` for all.
    pub top_n: Option<usize>,
    /// The fields whose numbers are put in ranges.
    pub ranges: Vec<(String, Vec<Range>)>,
    /// Only hits with one of the values (behind the first) in the field (the first), for all of these.
    pub drilldown: Vec<Vec<String>>,
    /// Hits are put in groups.
    pub group: Option<Grouping>,
    /// Fragments of stored texts are given with the words that were found.
    pub highlight: Option<Highlighting>,
    /// Only these of the stored fields; `None` for all.
    pub include_fields: Option<Vec<String>>,
}

impl Request {
    /// A search for `query` as it is without any parameter.
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

/// What hits are ordered by.
#[derive(Clone, Debug, PartialEq)]
pub struct Sort {
    /// The value.
    pub by: SortBy,
    /// Whether the greatest come first. For [`SortBy::Relevance`], the least.
    pub descending: bool,
}

/// A value of hits that has an order.
#[derive(Clone, Debug, PartialEq)]
pub enum SortBy {
    /// How well they match: the best first.
    Relevance,
    /// Their ids.
    Id,
    /// A field, of whatever type it has.
    Field(String),
    /// Strings of a field.
    StringField(String),
    /// Numbers of a field.
    NumberField(String),
    /// How far a place (longitude and latitude in fields of these names, degrees) is from another, in kilometres or miles.
    Distance {
        /// The field with the longitude.
        longitude_field: String,
        /// The field with the latitude.
        latitude_field: String,
        /// The longitude of the other place.
        longitude: f64,
        /// The latitude of the other place.
        latitude: f64,
        /// How many of the unit is a kilometre.
        unit_per_km: f64,
    },
}

/// Numbers between two bounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Range {
    /// The name it has in the answer.
    pub label: String,
    /// The least.
    pub lower: Bound<f64>,
    /// The greatest.
    pub upper: Bound<f64>,
}

/// How hits are put in groups.
#[derive(Clone, Debug, PartialEq)]
pub struct Grouping {
    /// By the values of this field; hits without it are a group too.
    pub field: String,
    /// The greatest number of groups.
    pub limit: usize,
    /// The order of groups, by their first hits.
    pub sort: Vec<Sort>,
}

/// How found words are shown.
#[derive(Clone, Debug, PartialEq)]
pub struct Highlighting {
    /// The fields, which must be stored.
    pub fields: Vec<String>,
    /// Before each found word.
    pub pre_tag: String,
    /// After it.
    pub post_tag: String,
    /// The greatest number of fragments of a field.
    pub number: usize,
    /// About how many characters a fragment has.
    pub size: usize,
}

impl Sort {
    /// Reads an element of `sort` of `_nouveau`: `name`, `-name`, `+name`, where `relevance` and `_id` are what they say.
    ///
    /// # Errors
    /// When it is none.
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

/// Takes a sign apart from what is behind it.
pub(crate) fn sign(text: &str) -> (bool, &str) {
    match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    }
}

impl Sort {
    /// Reads an element of `sort` of `_search`: `name<number>`, `name<string>`, `<score>`, `<doc>` or
    /// `<distance,longitude field,latitude field,longitude,latitude,km or mi>`, perhaps with a sign before it.
    ///
    /// # Errors
    /// When it is none.
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
    /// Reads a range of `_search`: `[0 TO 100}`, with `*` for an open end.
    ///
    /// # Errors
    /// When it is none.
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
