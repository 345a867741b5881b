//! [`Answer`]: the result of a search.

use crate::field::StoredValue;
use crate::search::bookmark;

/// The result of a [`Request`](crate::Request).
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub total_hits: u64,
    pub relation: Relation,
    /// Position after these hits.
    pub bookmark: String,
    /// Hits, in order. Empty for grouped searches.
    pub hits: Vec<Hit>,
    /// Counts of the values of counted fields among all hits, by descending count, then ascending value.
    pub counts: Vec<(String, Vec<(String, u64)>)>,
    /// Number of hits per range; ranges without hits are omitted.
    pub ranges: Vec<(String, Vec<(String, u64)>)>,
    /// Groups, if requested.
    pub groups: Option<Vec<Group>>,
}

/// Accuracy of [`Answer::total_hits`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// Exact.
    EqualTo,
    /// A lower bound.
    GreaterThanOrEqualTo,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub id: String,
    /// Values by which it was ordered. The last one is its id, unless a sort contains it.
    pub order: Vec<OrderValue>,
    /// Stored fields, in the order of their first values; several values of a field are an array.
    pub fields: Vec<(String, Vec<StoredValue>)>,
    /// Fragments of fields, if requested.
    pub highlights: Vec<Highlight>,
}

#[derive(Clone, Debug, PartialEq)]
pub enum OrderValue {
    Score(f32),
    Double(f64),
    String(String),
    Null,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Highlight {
    pub field: String,
    /// Fragments, with tags around matching words.
    pub fragments: Vec<String>,
}

/// Hits with the same value of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Value of the field; `None` for hits without one.
    pub by: Option<String>,
    pub total_hits: u64,
    pub hits: Vec<Hit>,
}

impl Hit {
    /// Returns the position after this hit.
    #[must_use]
    pub fn bookmark(&self) -> String {
        bookmark::encode(Some(&self.order), None)
    }
}
