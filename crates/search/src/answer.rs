//! [`Answer`]: the result of a search.

use crate::field::StoredValue;
use crate::search::bookmark;

#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub total_hits: u64,
    pub relation: Relation,
    /// Position after the hits.
    pub bookmark: String,
    /// Empty for grouped searches.
    pub hits: Vec<Hit>,
    /// Counts of the values of each counted field among all hits, by descending count, then ascending value.
    pub counts: Vec<(String, Vec<(String, u64)>)>,
    /// Number of hits per range; ranges without hits are omitted.
    pub ranges: Vec<(String, Vec<(String, u64)>)>,
    pub groups: Option<Vec<Group>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    EqualTo,
    GreaterThanOrEqualTo,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    pub id: String,
    /// Sort values. The last one is the id, unless a sort contains it.
    pub order: Vec<OrderValue>,
    /// Stored fields in the order of their first values; several values are an array.
    pub fields: Vec<(String, Vec<StoredValue>)>,
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
    pub fragments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// `None` for hits without the field.
    pub by: Option<String>,
    pub total_hits: u64,
    pub hits: Vec<Hit>,
}

impl Hit {
    #[must_use]
    pub fn bookmark(&self) -> String {
        bookmark::encode(Some(&self.order), None)
    }
}
