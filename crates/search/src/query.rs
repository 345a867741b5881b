//! Queries as trees: the result of parsing with either grammar, or built directly. Strings are terms of the index:
//! analyzers were already applied.

use std::ops::Bound;

/// A query. Field names are those of index functions; `_id` is a string field of every document.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    All,
    None,
    /// Documents with this term in a text, or with this string.
    Term {
        field: String,
        text: String,
    },
    Number {
        field: String,
        value: f64,
    },
    /// Documents with these terms at these relative positions.
    Phrase {
        field: String,
        /// Terms, each with its position. Several at one position are alternatives.
        terms: Vec<(u32, String)>,
        /// Maximum total displacement.
        slop: u32,
    },
    Prefix {
        field: String,
        prefix: String,
    },
    /// Documents with a term that matches a pattern: `*` for any text, `?` for any character, `\` as escape.
    Wildcard {
        field: String,
        pattern: String,
    },
    /// Documents with a term that matches as a whole, in Lucene's syntax of regular expressions.
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
    /// Documents with a term in a range of strings, by bytes.
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
    /// A query with weighted matches.
    Boost(Box<Query>, f32),
    /// A query whose matches have a constant score.
    Constant(Box<Query>, f32),
    Intervals {
        field: String,
        source: Interval,
    },
    /// Documents with the nearest vectors to a given one; the score is the similarity.
    Nearest(Nearest),
}

/// Queries that a document must, should or must not match. A query with exclusions only finds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boolean {
    /// Required, and part of the score.
    pub must: Vec<Query>,
    /// Required, and not part of the score.
    pub filter: Vec<Query>,
    /// Optional, and part of the score. At least one is required if nothing else is.
    pub should: Vec<Query>,
    pub must_not: Vec<Query>,
    pub minimum_should_match: usize,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Field name, which must be in the definition of the index.
    pub field: String,
    pub vector: Vec<f32>,
    pub count: usize,
    /// Number of candidates per segment during the search: more improve the recall, and take longer.
    pub candidates: usize,
    pub filter: Option<Box<Query>>,
}

/// Positions in a text, selected as by Lucene's interval functions.
#[derive(Clone, Debug, PartialEq)]
pub enum Interval {
    Term(String),
    /// Positions of any term with a prefix (`fn:prefix`), of a pattern, or within an edit distance.
    Terms(Box<Query>),
    /// The intervals in sequence without gaps.
    Phrase(Vec<Interval>),
    Ordered(Vec<Interval>),
    Unordered(Vec<Interval>),
    UnorderedNoOverlaps(Box<Interval>, Box<Interval>),
    Or(Vec<Interval>),
    AtLeast(usize, Vec<Interval>),
    MaxWidth(u32, Box<Interval>),
    /// Intervals with at most this many positions between their parts.
    MaxGaps(u32, Box<Interval>),
    /// Intervals extended by this many positions before and after.
    Extend(Box<Interval>, u32, u32),
    /// Intervals of the first source with a relation to the second.
    Filter(Relative, Box<Interval>, Box<Interval>),
    /// Intervals of the first source that are within this distance of the second, or not.
    Within(Box<Interval>, u32, Box<Interval>, bool),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    /// They end before one starts.
    Before,
    /// They start after one has ended.
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
