//! What a query asks for, as a tree: what both grammars are read into, and what others build without a text. Strings in it
//! are terms as they stand in the index: analyzers have done their work before.

use std::ops::Bound;

/// A query. Field names are those that index functions give; `_id` is a string field of every document.
#[derive(Clone, Debug, PartialEq)]
pub enum Query {
    /// Every document.
    All,
    /// No document.
    None,
    /// The documents with this term in a text, or with this string.
    Term {
        /// The field.
        field: String,
        /// The term.
        text: String,
    },
    /// The documents with this number.
    Number {
        /// The field.
        field: String,
        /// The number.
        value: f64,
    },
    /// The documents with these terms at these places relative to each other.
    Phrase {
        /// The field.
        field: String,
        /// The terms, each with its place. Several at one place are alternatives.
        terms: Vec<(u32, String)>,
        /// By how many places they may be off together.
        slop: u32,
    },
    /// The documents with a term that begins so.
    Prefix {
        /// The field.
        field: String,
        /// What it begins with.
        prefix: String,
    },
    /// The documents with a term like this: `*` for anything, `?` for any character, `\` before those that stand for themselves.
    Wildcard {
        /// The field.
        field: String,
        /// The pattern.
        pattern: String,
    },
    /// The documents with a term that matches as a whole, in Lucene's syntax of regular expressions.
    Regex {
        /// The field.
        field: String,
        /// The expression.
        pattern: String,
    },
    /// The documents with a term that few edits lead to.
    Fuzzy {
        /// The field.
        field: String,
        /// The term.
        text: String,
        /// The greatest number of edits: at most 2.
        edits: u8,
    },
    /// The documents with a term in a range of strings, by their bytes.
    Range {
        /// The field.
        field: String,
        /// The least.
        lower: Bound<String>,
        /// The greatest.
        upper: Bound<String>,
    },
    /// The documents with a number in a range.
    NumberRange {
        /// The field.
        field: String,
        /// The least.
        lower: Bound<f64>,
        /// The greatest.
        upper: Bound<f64>,
    },
    /// The documents that have the field.
    Exists {
        /// The field.
        field: String,
    },
    /// Combined queries.
    Boolean(Boolean),
    /// A query whose matches count more, or less.
    Boost(Box<Query>, f32),
    /// A query whose matches all count the same.
    Constant(Box<Query>, f32),
    /// The documents in whose text an interval is found.
    Intervals {
        /// The field.
        field: String,
        /// The interval.
        source: Interval,
    },
    /// The documents with the vectors that are nearest to another one; how near is how well they match.
    Nearest(Nearest),
}

/// Queries that a document must, should or must not match. One that only excludes finds nothing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Boolean {
    /// All of these match, and count.
    pub must: Vec<Query>,
    /// All of these match, and do not count.
    pub filter: Vec<Query>,
    /// Each of these counts. One at least matches where nothing else must.
    pub should: Vec<Query>,
    /// None of these matches.
    pub must_not: Vec<Query>,
    /// At least so many of `should` match.
    pub minimum_should_match: usize,
}

/// A search for near vectors.
#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    /// The field, which the definition of the index knows.
    pub field: String,
    /// The vector that others are near to.
    pub vector: Vec<f32>,
    /// The greatest number of documents.
    pub count: usize,
    /// How many are kept in sight on the way to them, in each segment: more find better ones, and take longer.
    pub candidates: usize,
    /// Only documents that match this.
    pub filter: Option<Box<Query>>,
}

/// Places in a text, as Lucene's interval functions select them.
#[derive(Clone, Debug, PartialEq)]
pub enum Interval {
    /// Where a term is.
    Term(String),
    /// Where one of the terms is that begin so (`fn:prefix`), look so, or are few edits away.
    Terms(Box<Query>),
    /// Where the intervals follow each other without gaps.
    Phrase(Vec<Interval>),
    /// Where they follow each other.
    Ordered(Vec<Interval>),
    /// Where they are all, in any order.
    Unordered(Vec<Interval>),
    /// As `Unordered`, and none lies within or across another.
    UnorderedNoOverlaps(Box<Interval>, Box<Interval>),
    /// Where one of them is.
    Or(Vec<Interval>),
    /// Where at least so many are.
    AtLeast(usize, Vec<Interval>),
    /// Those of at most so many places.
    MaxWidth(u32, Box<Interval>),
    /// Those with at most so many places between their parts.
    MaxGaps(u32, Box<Interval>),
    /// Made longer by so many places before and after.
    Extend(Box<Interval>, u32, u32),
    /// The first that are in a relation to the second.
    Filter(Relative, Box<Interval>, Box<Interval>),
    /// The first that are within so many places of the second, or not.
    Within(Box<Interval>, u32, Box<Interval>, bool),
}

/// How the intervals of a filter lie to those that they are filtered by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relative {
    /// They end before one begins.
    Before,
    /// They begin after one has ended.
    After,
    /// They hold one.
    Containing,
    /// They hold none.
    NotContaining,
    /// One holds them.
    ContainedBy,
    /// None holds them.
    NotContainedBy,
    /// They share a place with one.
    Overlapping,
    /// They share a place with none.
    NonOverlapping,
}

impl Query {
    /// The documents with this term or string.
    pub fn term(field: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Term { field: field.into(), text: text.into() }
    }

    /// The documents with this number.
    pub fn number(field: impl Into<String>, value: f64) -> Self {
        Self::Number { field: field.into(), value }
    }

    /// The documents with these terms one after the other.
    pub fn phrase<T: Into<String>>(field: impl Into<String>, terms: impl IntoIterator<Item = T>) -> Self {
        let terms = (0..).zip(terms.into_iter().map(Into::into)).collect();
        Self::Phrase { field: field.into(), terms, slop: 0 }
    }

    /// The documents with a string in this range.
    pub fn range(field: impl Into<String>, lower: Bound<String>, upper: Bound<String>) -> Self {
        Self::Range { field: field.into(), lower, upper }
    }

    /// The documents with a number in this range.
    pub fn number_range(field: impl Into<String>, lower: Bound<f64>, upper: Bound<f64>) -> Self {
        Self::NumberRange { field: field.into(), lower, upper }
    }

    /// The documents that have the field.
    pub fn exists(field: impl Into<String>) -> Self {
        Self::Exists { field: field.into() }
    }

    /// The documents that match all of these.
    #[must_use]
    pub fn all_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { must: queries, ..Boolean::default() })
    }

    /// The documents that match one of these.
    #[must_use]
    pub fn any_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { should: queries, ..Boolean::default() })
    }

    /// The documents that match none of these.
    #[must_use]
    pub fn none_of(queries: Vec<Self>) -> Self {
        Self::Boolean(Boolean { filter: vec![Self::All], must_not: queries, ..Boolean::default() })
    }
}
