//! [`Clause`]: a selector as a query of a text index.
//!
//! A clause finds every document that matches its selector, as far as the index contains its fields, and may find
//! others: each document is tested afterwards. [`Clause::write`] shows it as the query that CouchDB would send to
//! Lucene, which is independent of [`search`](super::search).

use std::ops::Bound;

use super::fields::MAX_STRING_BYTES;
use super::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
    /// A number with its JSON text.
    Number(f64, String),
    Boolean(bool),
    String(String),
}

impl Scalar {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Number(..) => NUMBER,
            Self::Boolean(_) => BOOLEAN,
            Self::String(_) => STRING,
        }
    }
}

pub(crate) const STRING: &str = "string";
/// See [`STRING`].
pub(crate) const NUMBER: &str = "number";
/// See [`STRING`].
pub(crate) const BOOLEAN: &str = "boolean";
/// See [`STRING`]. The type of `null`, whose value is `true`.
pub(crate) const NULL: &str = "null";
/// See [`STRING`]. The type of the number of elements of an array.
pub(crate) const LENGTH: &str = "length";

/// A condition on the fields of an index.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Clause {
    And(Vec<Clause>),
    Or(Vec<Clause>),
    /// The field has a value other than these.
    Except(Path, Box<Clause>),
    Missing(Path),
    /// The field has a value of any type.
    Exists(Path),
    HasNumber(Path),
    HasString(Path),
    Is(Path, Scalar),
    IsNull(Path),
    /// The field is an array with this number of elements; the path is that of the elements.
    Length(Path, String),
    /// The field has a value of the same type between two bounds.
    Between(Path, Bound<Scalar>, Bound<Scalar>),
    Begins(Path, String),
    /// A string of the document contains these consecutive words.
    Words(String),
    /// A condition that may find too much, so it must not be negated.
    Loose(Box<Clause>),
}

impl Clause {
    /// Marks the condition as one that may find too much.
    pub(crate) fn loose(self) -> Self {
        Self::Loose(Box::new(self))
    }

    /// Returns true if it finds only documents that match, in an index whose strings are indexed unchanged
    /// (`is_keyword`) or analyzed.
    pub(crate) fn is_exact(&self, is_keyword: bool) -> bool {
        match self {
            Self::And(clauses) | Self::Or(clauses) => clauses.iter().all(|clause| clause.is_exact(is_keyword)),
            Self::Except(_, clause) => clause.is_exact(is_keyword),
            // Of longer strings only a prefix is indexed.
            Self::Is(_, Scalar::String(text)) => is_keyword && text.len() < MAX_STRING_BYTES,
            // Beyond this, different integers are the same number in the index.
            Self::Is(_, Scalar::Number(number, _)) => number.abs() < 9_007_199_254_740_992.0,
            Self::Is(..) | Self::IsNull(_) | Self::Missing(_) | Self::Exists(_) | Self::Words(_) => true,
            Self::HasNumber(_)
            | Self::HasString(_)
            | Self::Length(..)
            | Self::Between(..)
            | Self::Begins(..)
            | Self::Loose(_) => false,
        }
    }

    /// Returns true if CouchDB would have no query for Lucene.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::And(clauses) | Self::Or(clauses) => clauses.iter().all(Self::is_empty),
            Self::Loose(clause) => clause.is_empty(),
            _ => false,
        }
    }

    /// Appends the names of the fields that an index must contain, as written by clients, with their types. Existence,
    /// null and lengths of arrays are in every index.
    pub(crate) fn fields(&self, out: &mut Vec<(String, &'static str)>) {
        let mut add = |path: &Path, kind| {
            let field = (path.shown(), kind);
            if !out.contains(&field) {
                out.push(field);
            }
        };
        match self {
            // For a field and its elements, an index is expected to contain the former.
            Self::Or(clauses) => match &clauses[..] {
                [first, second] if second.is_of_elements() && first.has_field() => first.fields(out),
                clauses => clauses.iter().for_each(|clause| clause.fields(out)),
            },
            Self::And(clauses) => clauses.iter().for_each(|clause| clause.fields(out)),
            Self::Except(_, clause) | Self::Loose(clause) => clause.fields(out),
            Self::Is(path, value) => add(path, value.kind()),
            Self::Between(path, Bound::Included(value) | Bound::Excluded(value), _)
            | Self::Between(path, _, Bound::Included(value) | Bound::Excluded(value)) => add(path, value.kind()),
            Self::HasString(path) | Self::Begins(path, _) => add(path, STRING),
            Self::Words(_) => {
                let field = ("$default".to_owned(), "");
                if !out.contains(&field) {
                    out.push(field);
                }
            }
            Self::Between(..)
            | Self::Missing(_)
            | Self::Exists(_)
            | Self::HasNumber(_)
            | Self::IsNull(_)
            | Self::Length(..) => {}
        }
    }

    /// Returns true if it tests a value of one field.
    fn has_field(&self) -> bool {
        self.field_path().is_some()
    }

    fn is_of_elements(&self) -> bool {
        self.field_path().is_some_and(Path::has_elements)
    }

    fn field_path(&self) -> Option<&Path> {
        match self {
            Self::Is(path, _) | Self::Between(path, ..) | Self::Begins(path, _) | Self::Length(path, _) => Some(path),
            Self::Loose(clause) => clause.field_path(),
            _ => None,
        }
    }

    /// Appends the query that CouchDB would generate.
    pub(crate) fn write(&self, out: &mut String) {
        match self {
            Self::And(clauses) => write_list(clauses, " AND ", out),
            Self::Or(clauses) => write_list(clauses, " OR ", out),
            Self::Except(path, clause) => {
                out.push('(');
                write_exists(path, out);
                if !clause.is_empty() {
                    out.push_str(" AND NOT (");
                    clause.write(out);
                    out.push(')');
                }
                out.push(')');
            }
            Self::Missing(path) => {
                out.push_str("($fieldnames:/.*/  AND NOT (");
                write_exists(path, out);
                out.push_str("))");
            }
            Self::Exists(path) => write_exists(path, out),
            Self::HasNumber(path) => out.push_str(&format!("($fieldnames:{})", path.field(NUMBER))),
            Self::HasString(path) => out.push_str(&format!("($fieldnames:{})", path.field(STRING))),
            Self::Is(path, value) => out.push_str(&format!("({}:{})", path.field(value.kind()), shown(value))),
            Self::IsNull(path) => out.push_str(&format!("({}:true)", path.field(NULL))),
            Self::Length(path, length) => out.push_str(&format!("({}:{length})", path.field(LENGTH))),
            Self::Between(path, low, high) => write_range(path, low, high, out),
            Self::Begins(path, prefix) => {
                out.push_str(&format!("({}:{}*)", path.field(STRING), escaped(prefix)));
            }
            Self::Words(text) => out.push_str(&format!("($default:{})", quoted(text))),
            Self::Loose(clause) => clause.write(out),
        }
    }
}

fn write_list(clauses: &[Clause], between: &str, out: &mut String) {
    let mut clauses = clauses.iter().filter(|clause| !clause.is_empty());
    let Some(first) = clauses.next() else { return };
    out.push('(');
    first.write(out);
    for clause in clauses {
        out.push_str(between);
        clause.write(out);
    }
    out.push(')');
}

fn write_exists(path: &Path, out: &mut String) {
    let name = path.escaped();
    out.push_str(&format!("(($fieldnames:{name}_3a*) OR ($fieldnames:{name}.*))"));
}

fn write_range(path: &Path, low: &Bound<Scalar>, high: &Bound<Scalar>, out: &mut String) {
    let value = match (low, high) {
        (Bound::Included(value) | Bound::Excluded(value), _) | (_, Bound::Included(value) | Bound::Excluded(value)) => {
            value
        }
        (Bound::Unbounded, Bound::Unbounded) => return write_exists(path, out),
    };
    // CouchDB's words for the smallest and the greatest string.
    let (least, greatest) = match value {
        Scalar::Number(..) => ("*", "*"),
        Scalar::Boolean(_) | Scalar::String(_) => ("\"\"", "\\u0x10FFFF"),
    };
    let (open, low) = match low {
        Bound::Included(value) => ('[', shown(value)),
        Bound::Excluded(value) => ('{', shown(value)),
        Bound::Unbounded => ('[', least.to_owned()),
    };
    let (high, close) = match high {
        Bound::Included(value) => (shown(value), ']'),
        Bound::Excluded(value) => (shown(value), '}'),
        Bound::Unbounded => (greatest.to_owned(), ']'),
    };
    out.push_str(&format!("({}:{open}{low} TO {high}{close})", path.field(value.kind())));
}

fn shown(value: &Scalar) -> String {
    match value {
        Scalar::Number(_, text) => text.clone(),
        Scalar::Boolean(value) => value.to_string(),
        Scalar::String(text) => quoted(text),
    }
}

/// Returns a text in quotation marks. If it contains a number CouchDB escapes nothing; here at least the terminator is
/// escaped.
fn quoted(text: &str) -> String {
    let has_number = text.chars().any(char::is_numeric) || text.contains("NaN") || text.contains("Infinity");
    let inner = if has_number { text.replace('\\', "\\\\").replace('"', "\\\"") } else { escaped(text) };
    format!("\"{inner}\"")
}

/// Returns a text with backslashes before all characters that are special in Lucene.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match rest.get(..2) {
            Some("&&" | "||") => 2,
            _ => first.len_utf8(),
        };
        if length == 2 && first.is_ascii() || "+-(){}[]!^~*?:/\\\" \t\r\n".contains(first) {
            out.push('\\');
        }
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out
}
