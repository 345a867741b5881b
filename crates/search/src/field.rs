//! [`Field`]: output of index functions, independent of its storage.

use crate::error::{Error, Result};

/// Each distinct field of an index has a cost in every segment.
pub const MAX_FIELDS: usize = 1_000;

pub(crate) const MAX_FIELDS_OF_DOCUMENT: usize = 10_000;

/// In bytes, as for a term in Lucene.
pub const MAX_TERM_BYTES: usize = 32_766;

pub(crate) const MAX_TEXT_BYTES: usize = 16 << 20;

#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// `default` is the default field of queries.
    pub name: String,
    pub value: FieldValue,
    pub options: FieldOptions,
}

#[derive(Clone, Debug, PartialEq)]
pub enum FieldValue {
    Text(String),
    /// Unanalyzed string, for searching, sorting and counting.
    String(String),
    /// Number, for searching, sorting and counting in ranges.
    Double(f64),
    Stored(StoredValue),
    /// For nearest-neighbour search; only for `_nouveau`.
    Vector(Vec<f32>),
}

#[derive(Clone, Debug, PartialEq)]
pub enum StoredValue {
    String(String),
    Double(f64),
    Bool(bool),
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldOptions {
    pub store: bool,
    /// Always true for `_nouveau`.
    pub index: bool,
    /// True if the whole text is stored for sorting, counting and grouping. Always true for strings and numbers.
    pub facet: bool,
    /// Weight of a match; only for `_search`.
    pub boost: f32,
}

impl Default for FieldOptions {
    fn default() -> Self {
        Self { store: false, index: true, facet: false, boost: 1.0 }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FieldKind {
    Text,
    String,
    Double,
    Stored,
    Vector,
}

impl FieldKind {
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

/// Validates the name of a field of `_nouveau`: `^\$?[a-zA-Z][a-zA-Z0-9_]*$`.
#[must_use]
pub fn check_name(name: &str) -> bool {
    let rest = name.strip_prefix('$').unwrap_or(name);
    rest.starts_with(|first: char| first.is_ascii_alphabetic())
        && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

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
