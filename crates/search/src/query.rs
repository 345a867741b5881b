//! [`Query`], parsed or built by the caller. Strings are terms of the index: analyzers were already applied.

use std::ops::Bound;

/// Field names are those of index functions; `_id` is a string field of every document.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    All,
    None,
    /// Matches a term of a text, or a string.
    Term {
        field: String,
        text: String,
    },
    Number {
        field: String,
        value: f64,
    },
    Phrase {
        field: String,
        terms: Vec<(u32, String)>,
        slop: u32,
    },
    Prefix {
        field: String,
        prefix: String,
    },
    /// `*` matches any text, `?` any character; `\` escapes.
    Wildcard {
        field: String,
        pattern: String,
    },
    Regex {
        field: String,
        pattern: String,
    },
    Fuzzy {
        field: String,
        text: String,
        /// Maximum number of edits, at most 2.
        edits: u8,
    },
    /// Strings are ordered by bytes.
    Range {
        field: String,
        lower: Bound<String>,
        upper: Bound<String>,
    },
    NumberRange {
        field: String,
        lower: Bound<f64>,
        upper: Bound<f64>,
    },
    Exists {
        field: String,
    },
    Boolean(Boolean),
    Boost(Box<Query>, f32),
    Constant(Box<Query>, f32),
    Intervals {
        field: String,
        source: Interval,
    },
    Nearest(Nearest),
}

/// A query with only exclusions matches nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boolean {
    /// Required, and part of the score.
    pub must: Vec<Query>,
    /// Required, and not part of the score.
    pub filter: Vec<Query>,
    /// Part of the score. At least one is required if `must` and `filter` are empty.
    pub should: Vec<Query>,
    pub must_not: Vec<Query>,
    pub minimum_should_match: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Must be in the definition of the index.
    pub field: String,
    pub vector: Vec<f32>,
    pub count: usize,
    /// Number of candidates per segment: more improve the recall, and take longer.
    pub candidates: usize,
    pub filter: Option<Box<Query>>,
}

/// Positions in a text, selected as by Lucene's interval functions.
#[derive(Clone, Debug, PartialEq)]
pub enum Interval {
    Term(String),
    /// Positions of the terms of a prefix, pattern or fuzzy query.
    Terms(Box<Query>),
    /// In sequence without gaps.
    Phrase(Vec<Interval>),
    Ordered(Vec<Interval>),
    Unordered(Vec<Interval>),
    UnorderedNoOverlaps(Box<Interval>, Box<Interval>),
    Or(Vec<Interval>),
    AtLeast(usize, Vec<Interval>),
    MaxWidth(u32, Box<Interval>),
    MaxGaps(u32, Box<Interval>),
    Extend(Box<Interval>, u32, u32),
    Filter(Relative, Box<Interval>, Box<Interval>),
    /// Intervals of the first source whose distance from the second is at most the number (true), or greater (false).
    Within(Box<Interval>, u32, Box<Interval>, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    Before,
    After,
    Containing,
    NotContaining,
    ContainedBy,
    NotContainedBy,
    Overlapping,
    NonOverlapping,
}

impl Query {
    pub fn term(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Term { field: field.into(), text: text.into() }
    }

    pub fn number(field: impl Into<String>, value: f64) -> Self {
        Self::Number { field: field.into(), value }
    }

    pub fn phrase<T: Into<String>>(field: impl Into<String>, terms: impl IntoIterator<Item = T>) -> Self {
        let terms = (0..).zip(terms.into_iter().map(Into::into)).collect();
        Self::Phrase { field: field.into(), terms, slop: 0 }
    }

    pub fn range(field: impl Into<String>, lower: Bound<String>, upper: Bound<String>) -> Self {
        Self::Range { field: field.into(), lower, upper }
    }

    pub fn number_range(field: impl Into<String>, lower: Bound<f64>, upper: Bound<f64>) -> Self {
        Self::NumberRange { field: field.into(), lower, upper }
    }

    pub fn exists(field: impl Into<String>) -> Self {
        Self::Exists { field: field.into() }
    }

    #[must_use]
    pub fn all_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { must: queries, ..Boolean::default() })
    }

    #[must_use]
    pub fn any_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { should: queries, ..Boolean::default() })
    }

    #[must_use]
    pub fn none_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { filter: vec![Self::All], must_not: queries, ..Boolean::default() })
    }
}
