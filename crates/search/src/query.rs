//! Queries as trees: the result of parsing with either grammar, or built directly. Strings are terms of the index:
//! analyzers were already applied.

use std::ops::Bound;

/// A query. Field names are those of index functions; `_id` is a string field of every document.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Every document.
    All,
    /// No document.
    None,
    /// Documents with this term in a text, or with this string.
    Term {
        /// Field name.
        field: String,
        /// Term.
        text: String,
    },
    /// Documents with this number.
    Number {
        /// Field name.
        field: String,
        /// Number.
        value: f64,
    },
    /// Documents with these terms at these relative positions.
    Phrase {
        /// Field name.
        field: String,
        /// Terms, each with its position. Several at one position are alternatives.
        terms: Vec<(u32, String)>,
        /// Maximum total displacement.
        slop: u32,
    },
    /// Documents with a term that has this prefix.
    Prefix {
        /// Field name.
        field: String,
        /// Prefix.
        prefix: String,
    },
    /// Documents with a term that matches a pattern: `*` for any text, `?` for any character, `\` as escape.
    Wildcard {
        /// Field name.
        field: String,
        /// Pattern.
        pattern: String,
    },
    /// Documents with a term that matches as a whole, in Lucene's syntax of regular expressions.
    Regex {
        /// Field name.
        field: String,
        /// Expression.
        pattern: String,
    },
    /// Documents with a term within an edit distance.
    Fuzzy {
        /// Field name.
        field: String,
        /// Term.
        text: String,
        /// Maximum number of edits, at most 2.
        edits: u8,
    },
    /// Documents with a term in a range of strings, by bytes.
    Range {
        /// Field name.
        field: String,
        /// Lower bound.
        lower: Bound<String>,
        /// Upper bound.
        upper: Bound<String>,
    },
    /// Documents with a number in a range.
    NumberRange {
        /// Field name.
        field: String,
        /// Lower bound.
        lower: Bound<f64>,
        /// Upper bound.
        upper: Bound<f64>,
    },
    /// Documents that have the field.
    Exists {
        /// Field name.
        field: String,
    },
    /// Combined queries.
    Boolean(Boolean),
    /// A query with weighted matches.
    Boost(Box<Query>, f32),
    /// A query whose matches have a constant score.
    Constant(Box<Query>, f32),
    /// Documents with a text that contains an interval.
    Intervals {
        /// Field name.
        field: String,
        /// Interval.
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
    /// Excluded.
    pub must_not: Vec<Query>,
    /// Minimum number of matches in `should`.
    pub minimum_should_match: usize,
}

/// A nearest-neighbour search.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// Field name, which must be in the definition of the index.
    pub field: String,
    /// Query vector.
    pub vector: Vec<f32>,
    /// Maximum number of documents.
    pub count: usize,
    /// Number of candidates per segment during the search: more improve the recall, and take longer.
    pub candidates: usize,
    /// Restricts the search to documents that match.
    pub filter: Option<Box<Query>>,
}

/// Positions in a text, selected as by Lucene's interval functions.
#[derive(Clone, Debug, PartialEq)]
pub enum Interval {
    /// Positions of a term.
    Term(String),
    /// Positions of any term with a prefix (`fn:prefix`), of a pattern, or within an edit distance.
    Terms(Box<Query>),
    /// The intervals in sequence without gaps.
    Phrase(Vec<Interval>),
    /// The intervals in sequence.
    Ordered(Vec<Interval>),
    /// All intervals, in any order.
    Unordered(Vec<Interval>),
    /// As `Unordered`, without overlaps.
    UnorderedNoOverlaps(Box<Interval>, Box<Interval>),
    /// Any of the intervals.
    Or(Vec<Interval>),
    /// At least this many of the intervals.
    AtLeast(usize, Vec<Interval>),
    /// Intervals of at most this width.
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

/// Relation of intervals in a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    /// They end before one starts.
    Before,
    /// They start after one has ended.
    After,
    /// They contain one.
    Containing,
    /// They contain none.
    NotContaining,
    /// They are contained in one.
    ContainedBy,
    /// They are contained in none.
    NotContainedBy,
    /// They overlap one.
    Overlapping,
    /// They overlap none.
    NonOverlapping,
}

impl Query {
    /// Returns the query for a term or string.
    pub fn term(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Term { field: field.into(), text: text.into() }
    }

    /// Returns the query for a number.
    pub fn number(field: impl Into<String>, value: f64) -> Self {
        Self::Number { field: field.into(), value }
    }

    /// Returns the query for a sequence of terms.
    pub fn phrase<T: Into<String>>(field: impl Into<String>, terms: impl IntoIterator<Item = T>) -> Self {
        let terms = (0..).zip(terms.into_iter().map(Into::into)).collect();
        Self::Phrase { field: field.into(), terms, slop: 0 }
    }

    /// Returns the query for a range of strings.
    pub fn range(field: impl Into<String>, lower: Bound<String>, upper: Bound<String>) -> Self {
        Self::Range { field: field.into(), lower, upper }
    }

    /// Returns the query for a range of numbers.
    pub fn number_range(field: impl Into<String>, lower: Bound<f64>, upper: Bound<f64>) -> Self {
        Self::NumberRange { field: field.into(), lower, upper }
    }

    /// Returns the query for the existence of a field.
    pub fn exists(field: impl Into<String>) -> Self {
        Self::Exists { field: field.into() }
    }

    /// Returns the query for documents that match all of these.
    #[must_use]
    pub fn all_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { must: queries, ..Boolean::default() })
    }

    /// Returns the query for documents that match one of these.
    #[must_use]
    pub fn any_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { should: queries, ..Boolean::default() })
    }

    /// Returns the query for documents that match none of these.
    #[must_use]
    pub fn none_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { filter: vec![Self::All], must_not: queries, ..Boolean::default() })
    }
}
