//! [`Translator`] converts a [`Clause`] to a query of the search engine.

use std::ops::Bound;

use settee_search::{Boolean, Index, Query, SearchLimits};

use super::clause::{Clause, NULL, NUMBER, STRING, Scalar};
use super::definition::TextDefinition;
use super::fields::{DEFAULT, FIELD_NAMES, MAX_STRING_BYTES, cut};
use super::path::Path;

pub(crate) struct Translator<'i> {
    index: &'i Index,
    limits: &'i SearchLimits,
    is_keyword: bool,
    has_lengths: bool,
}

type Result<T, E = settee_search::Error> = std::result::Result<T, E>;

impl<'i> Translator<'i> {
    pub(crate) fn new(index: &'i Index, definition: &TextDefinition, limits: &'i SearchLimits) -> Self {
        Self { index, limits, is_keyword: definition.is_keyword(), has_lengths: definition.has_lengths }
    }

    pub(crate) fn query(&self, clause: &Clause) -> Result<Query> {
        Ok(match clause {
            Clause::And(clauses) => self.all(clauses)?,
            Clause::Or(clauses) => any(clauses.iter().map(|clause| self.query(clause)).collect::<Result<_>>()?),
            Clause::Except(path, clause) => {
                let must_not = if self.may_exclude(path, clause) { vec![self.query(clause)?] } else { Vec::new() };
                Query::Boolean(Boolean { must: vec![exists(path)], must_not, ..Boolean::default() })
            }
            Clause::Missing(path) => {
                Query::Boolean(Boolean { must: vec![Query::All], must_not: vec![exists(path)], ..Boolean::default() })
            }
            Clause::Exists(path) => exists(path),
            Clause::HasNumber(path) => Query::term(FIELD_NAMES, path.field(NUMBER)),
            Clause::HasString(path) => Query::term(FIELD_NAMES, path.field(STRING)),
            Clause::IsNull(path) => Query::term(FIELD_NAMES, path.field(NULL)),
            Clause::Is(path, value) => self.equal(path, value)?,
            // As in CouchDB, this finds nothing if the lengths of arrays are not indexed.
            Clause::Length(path, length) => {
                number(path.field(super::clause::LENGTH), length.parse().unwrap_or(f64::NAN))
            }
            Clause::Between(path, low, high) => self.between(path, low, high),
            Clause::Begins(path, prefix) if self.is_keyword => {
                Query::Prefix { field: path.field(STRING), prefix: cut(prefix).to_owned() }
            }
            Clause::Begins(path, _) => Query::term(FIELD_NAMES, path.field(STRING)),
            Clause::Words(text) => self.words(DEFAULT, text)?,
            Clause::Approximate(clause) => self.query(clause)?,
        })
    }

    fn all(&self, clauses: &[Clause]) -> Result<Query> {
        // A list is also found by its elements, and tested afterwards.
        let counts = |clause: &&Clause| self.has_lengths || !matches!(clause, Clause::Length(..)) || clauses.len() == 1;
        let must: Vec<Query> = clauses.iter().filter(counts).map(|clause| self.query(clause)).collect::<Result<_>>()?;
        Ok(if must.is_empty() { Query::All } else { Query::Boolean(Boolean { must, ..Boolean::default() }) })
    }

    /// Hits may be excluded only if the clause finds neither too much nor other elements.
    fn may_exclude(&self, path: &Path, clause: &Clause) -> bool {
        clause.is_exact(self.is_keyword) && !path.has_elements()
    }

    fn equal(&self, path: &Path, value: &Scalar) -> Result<Query> {
        let field = path.field(value.kind());
        Ok(match value {
            Scalar::Number(value, _) => number(field, *value),
            Scalar::Boolean(value) => Query::term(field, value.to_string()),
            Scalar::String(text) if self.is_keyword => Query::term(field, cut(text)),
            Scalar::String(text) => match self.words(&field, text)? {
                // The analyzer yields no term for the text.
                Query::None | Query::All => Query::term(FIELD_NAMES, field),
                words => words,
            },
        })
    }

    fn words(&self, field: &str, text: &str) -> Result<Query> {
        let quoted = text.replace('\\', "\\\\").replace('"', "\\\"");
        self.index.parse_classic(&format!("{field}:\"{quoted}\""), self.limits)
    }

    fn between(&self, path: &Path, low: &Bound<Scalar>, high: &Bound<Scalar>) -> Query {
        let value = match (low, high) {
            (Bound::Included(value) | Bound::Excluded(value), _)
            | (_, Bound::Included(value) | Bound::Excluded(value)) => value,
            (Bound::Unbounded, Bound::Unbounded) => return exists(path),
        };
        let field = path.field(value.kind());
        match value {
            Scalar::Number(..) => Query::NumberRange { field, lower: number_bound(low), upper: number_bound(high) },
            Scalar::String(_) if !self.is_keyword => Query::term(FIELD_NAMES, field),
            Scalar::Boolean(_) | Scalar::String(_) => {
                Query::Range { field, lower: text_bound(low), upper: text_bound(high) }
            }
        }
    }
}

fn any(should: Vec<Query>) -> Query {
    if should.is_empty() { Query::None } else { Query::Boolean(Boolean { should, ..Boolean::default() }) }
}

fn exists(path: &Path) -> Query {
    if path.is_empty() {
        return Query::All;
    }
    let name = path.escaped();
    let prefix = |prefix| Query::Prefix { field: FIELD_NAMES.to_owned(), prefix };
    any(vec![prefix(format!("{name}_3a")), prefix(format!("{name}."))])
}

fn number(field: String, value: f64) -> Query {
    Query::Number { field, value }
}

/// The bound is inclusive, because different integers may be the same number in the index.
fn number_bound(bound: &Bound<Scalar>) -> Bound<f64> {
    match bound {
        Bound::Included(Scalar::Number(value, _)) | Bound::Excluded(Scalar::Number(value, _)) => {
            Bound::Included(*value)
        }
        _ => Bound::Unbounded,
    }
}

/// The bound is inclusive, because only a prefix of a string is indexed.
fn text_bound(bound: &Bound<Scalar>) -> Bound<String> {
    let text = |value: &Scalar| match value {
        Scalar::String(text) => text.clone(),
        Scalar::Boolean(value) => value.to_string(),
        Scalar::Number(_, text) => text.clone(),
    };
    match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(value) => Bound::Included(cut(&text(value)).to_owned()),
        Bound::Excluded(value) => {
            let text = text(value);
            if text.len() < MAX_STRING_BYTES { Bound::Excluded(text) } else { Bound::Included(cut(&text).to_owned()) }
        }
    }
}
