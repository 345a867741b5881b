//! [`Clause`]: a selector as a query of a text index. A clause finds every document that matches its selector, and
//! possibly others, which are tested afterwards. [`Clause::write`] shows the query that CouchDB would send to Lucene.

use std::ops::Bound;

use super::fields::MAX_STRING_BYTES;
use super::path::Path;

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Scalar {
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
pub(crate) const NUMBER: &str = "number";
pub(crate) const BOOLEAN: &str = "boolean";
/// Type of `null`; its value in the index is `true`.
pub(crate) const NULL: &str = "null";
pub(crate) const LENGTH: &str = "length";

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Clause {
    And(Vec<Clause>),
    Or(Vec<Clause>),
    /// The field has a value other than these.
    Except(Path, Box<Clause>),
    Missing(Path),
    Exists(Path),
    HasNumber(Path),
    HasString(Path),
    Is(Path, Scalar),
    IsNull(Path),
    Length(Path, String),
    Between(Path, Bound<Scalar>, Bound<Scalar>),
    Begins(Path, String),
    Words(String),
    /// A condition that may find too much, so it must not be negated.
    Approximate(Box<Clause>),
}

impl Clause {
    pub(crate) fn approximate(self) -> Self {
        Self::Approximate(Box::new(self))
    }

    /// True if the clause finds only documents that match. `is_keyword` is true if strings are indexed unchanged.
    pub(crate) fn is_exact(&self, is_keyword: bool) -> bool {
        match self {
            Self::And(clauses) | Self::Or(clauses) => clauses.iter().all(|clause| clause.is_exact(is_keyword)),
            Self::Except(_, clause) => clause.is_exact(is_keyword),
            // Only a prefix of a longer string is indexed.
            Self::Is(_, Scalar::String(text)) => is_keyword && text.len() < MAX_STRING_BYTES,
            // Beyond this, different integers are the same number in the index.
            Self::Is(_, Scalar::Number(number, _)) => number.abs() < 9_007_199_254_740_992.0,
            Self::Is(..) | Self::IsNull(_) | Self::Missing(_) | Self::Exists(_) | Self::Words(_) => true,
            Self::HasNumber(_)
            | Self::HasString(_)
            | Self::Length(..)
            | Self::Between(..)
            | Self::Begins(..)
            | Self::Approximate(_) => false,
        }
    }

    /// True if CouchDB would have no query for Lucene.
    pub(crate) fn is_empty(&self) -> bool {
        match self {
            Self::And(clauses) | Self::Or(clauses) => clauses.iter().all(Self::is_empty),
            Self::Approximate(clause) => clause.is_empty(),
            _ => false,
        }
    }

    /// Appends the names and types of the fields that an index must contain. Existence, null and lengths always are.
    pub(crate) fn fields(&self, out: &mut Vec<(String, &'static str)>) {
        let mut add = |path: &Path, kind| {
            let field = (path.shown(), kind);
            if !out.contains(&field) {
                out.push(field);
            }
        };
        match self {
            Self::Or(clauses) => match &clauses[..] {
                [first, second] if second.is_of_elements() && first.has_field() => first.fields(out),
                clauses => clauses.iter().for_each(|clause| clause.fields(out)),
            },
            Self::And(clauses) => clauses.iter().for_each(|clause| clause.fields(out)),
            Self::Except(_, clause) | Self::Approximate(clause) => clause.fields(out),
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

    fn has_field(&self) -> bool {
        self.field_path().is_some()
    }

    fn is_of_elements(&self) -> bool {
        self.field_path().is_some_and(Path::has_elements)
    }

    fn field_path(&self) -> Option<&Path> {
        match self {
            Self::Is(path, _) | Self::Between(path, ..) | Self::Begins(path, _) | Self::Length(path, _) => Some(path),
            Self::Approximate(clause) => clause.field_path(),
            _ => None,
        }
    }

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
            Self::Approximate(clause) => clause.write(out),
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
    // CouchDB's words for the least and the greatest string.
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

/// CouchDB escapes nothing if the text contains a number; here at least the terminator is escaped.
fn quoted(text: &str) -> String {
    let has_number = text.chars().any(char::is_numeric) || text.contains("NaN") || text.contains("Infinity");
    let inner = if has_number { text.replace('\\', "\\\\").replace('"', "\\\"") } else { escaped(text) };
    format!("\"{inner}\"")
}

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
