//! What an index function yields: named values of a few types. Says nothing of how they are stored.

use crate::error::{Error, Result};

/// The greatest number of different fields of an index: each costs a little in every segment.
pub const MAX_FIELDS: usize = 1_000;

/// The greatest number of fields that one document may yield.
pub(crate) const MAX_FIELDS_OF_DOCUMENT: usize = 10_000;

/// The longest value of a string field, in bytes: Lucene's longest term.
pub const MAX_TERM_BYTES: usize = 32_766;

/// The longest text of a field, in bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;

/// One call of `index`.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name; `default` is searched where a query names none.
    pub name: String,
    /// The value, with its type.
    pub value: FieldValue,
    /// What is done with it.
    pub options: FieldOptions,
}

/// The value of a field.
#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    /// A text, taken apart by an analyzer.
    Text(String),
    /// A string as a whole; can be sorted by and counted.
    String(String),
    /// A number; can be sorted by and put in ranges.
    Double(f64),
    /// A value that only comes back with hits.
    Stored(StoredValue),
    /// A vector, to be found by others that are near it. Of `_nouveau`.
    Vector(Vec<f32>),
}

/// A value that comes back with hits.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredValue {
    /// A string.
    String(String),
    /// A number.
    Double(f64),
    /// `true` or `false`.
    Bool(bool),
}

/// What is done with a field besides finding documents by it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldOptions {
    /// It comes back with hits.
    pub store: bool,
    /// It can be searched. Of `_search`; always so for `_nouveau`.
    pub index: bool,
    /// A text is also kept as a whole, to be sorted by, counted and grouped by. Strings and numbers always are.
    pub facet: bool,
    /// How much more a match counts. Of `_search`.
    pub boost: f32,
}

impl Default for FieldOptions {
    fn default() -> Self {
        Self { store: false, index: true, facet: false, boost: 1.0 }
    }
}

/// The type that a field has in an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldKind {
    /// See [`FieldValue::Text`].
    Text,
    /// See [`FieldValue::String`].
    String,
    /// See [`FieldValue::Double`].
    Double,
    /// See [`FieldValue::Stored`].
    Stored,
    /// See [`FieldValue::Vector`].
    Vector,
}

impl FieldKind {
    /// The name that CouchDB's messages have for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Text => "TEXT",
            Self::String => "STRING",
            Self::Double => "DOUBLE",
            Self::Stored => "STORED",
            Self::Vector => "VECTOR",
        }
    }
}

impl FieldValue {
    /// The type of the value.
    #[must_use]
    pub const fn kind(&self) -> FieldKind {
        match self {
            Self::Text(_) => FieldKind::Text,
            Self::String(_) => FieldKind::String,
            Self::Double(_) => FieldKind::Double,
            Self::Stored(_) => FieldKind::Stored,
            Self::Vector(_) => FieldKind::Vector,
        }
    }
}

/// Whether a field of `_nouveau` may have this name: `^\$?[a-zA-Z][a-zA-Z0-9_]*$`.
#[must_use]
pub fn check_name(name: &str) -> bool {
    let rest = name.strip_prefix('$').unwrap_or(name);
    rest.starts_with(|first: char| first.is_ascii_alphabetic())
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Finds what no index takes.
pub(crate) fn check(fields: &[Field]) -> Result<()> {
    if fields.len() > MAX_FIELDS_OF_DOCUMENT {
        return Err(Error::BadField(format!("a document yields more than {MAX_FIELDS_OF_DOCUMENT} fields")));
    }
    fields.iter().try_for_each(check_one)
}

fn check_one(field: &Field) -> Result<()> {
    let refuse = |reason: String| Err(Error::BadField(format!("field {} {reason}", field.name)));
    if field.name.is_empty() || field.name.len() > 1_000 || field.name.contains('\0') {
        return refuse("has a name that no field may have".to_owned());
    }
    match &field.value {
        FieldValue::Text(text) if text.len() > MAX_TEXT_BYTES => {
            refuse(format!("is longer than {MAX_TEXT_BYTES} bytes"))
        }
        FieldValue::String(text) if text.len() > MAX_TERM_BYTES => {
            refuse(format!("is longer than {MAX_TERM_BYTES} bytes, the longest string that can be indexed"))
        }
        FieldValue::Double(number) if number.is_nan() => refuse("is not a number".to_owned()),
        _ => Ok(()),
    }
}
