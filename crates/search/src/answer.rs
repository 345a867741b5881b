//! What an index answers: an [`Answer`].

use crate::field::StoredValue;
use crate::search::bookmark;

/// The answer to a [`Request`](crate::Request).
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// The number of hits.
    pub total_hits: u64,
    /// Whether there may be more.
    pub relation: Relation,
    /// Leads to the hits after these.
    pub bookmark: String,
    /// The hits, in their order. Empty where groups are asked for.
    pub hits: Vec<Hit>,
    /// How often which value of a counted field is among all hits: the most frequent, then the least, first.
    pub counts: Vec<(String, Vec<(String, u64)>)>,
    /// How many hits have a number in which range; ranges without hits are left out.
    pub ranges: Vec<(String, Vec<(String, u64)>)>,
    /// The groups, if asked for.
    pub groups: Option<Vec<Group>>,
}

/// Whether [`Answer::total_hits`] is all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// It is.
    EqualTo,
    /// There are so many, and perhaps more.
    GreaterThanOrEqualTo,
}

/// A document that was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// Its id.
    pub id: String,
    /// What it was ordered by. The last is its id, wherever no sort says so itself.
    pub order: Vec<OrderValue>,
    /// Its stored fields, in the order of their first values; several values of a field are an array.
    pub fields: Vec<(String, Vec<StoredValue>)>,
    /// The fragments of fields, if asked for.
    pub highlights: Vec<Highlight>,
}

/// A value that a hit was ordered by.
#[derive(Clone, Debug, PartialEq)]
pub enum OrderValue {
    /// How well it matches.
    Score(f32),
    /// A number.
    Double(f64),
    /// A string.
    String(String),
    /// It has none.
    Null,
}

/// Fragments of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Highlight {
    /// The field.
    pub field: String,
    /// The fragments, with tags around what was found.
    pub fragments: Vec<String>,
}

/// Hits with the same value of a field.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// The value; `None` for hits that have none.
    pub by: Option<String>,
    /// The number of hits in it.
    pub total_hits: u64,
    /// The first of them.
    pub hits: Vec<Hit>,
}

impl Hit {
    /// Leads to the hits after this one.
    #[must_use]
    pub fn bookmark(&self) -> String {
        bookmark::encode(Some(&self.order), None)
    }
}
