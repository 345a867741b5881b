//! Resolves a syntax tree with analyzers, types of fields and modifiers.

use std::cell::Cell;
use std::ops::Bound;

use super::functions;
use super::grammar::{Context, DEFAULT_FIELD, Grammar, MAX_CLAUSES, too_many_clauses};
use super::number;
use super::tree::{Modifier, Node, Text};
use crate::analysis::Token;
use crate::error::{Error, Result};
use crate::query::{Boolean, Query};

pub(super) fn resolve(context: &Context<'_>, node: &Node) -> Result<Query> {
    let resolver = Resolver { context, words: Cell::new(0) };
    Ok(resolver.node(node)?.unwrap_or(Query::None))
}

struct Resolver<'a> {
    context: &'a Context<'a>,
    words: Cell<usize>,
}

/// A quoted text with more words matches nothing.
const MAX_QUOTED_WORDS: usize = 4_096;

impl Resolver<'_> {
    /// Returns `None` if the analyzers yield no words; the node is then ignored.
    fn node(&self, node: &Node) -> Result<Option<Query>> {
        Ok(match node {
            Node::Term { field, text, fuzzy } => self.term(name(field.as_ref()), text, *fuzzy)?,
            Node::Quoted { field, text, slop } => self.quoted(name(field.as_ref()), text, slop.unwrap_or(0))?,
            Node::Regex { field, pattern } => {
                Some(Query::Regex { field: name(field.as_ref()).to_owned(), pattern: pattern.clone() })
            }
            Node::Range { field, lower, upper, includes } => {
                Some(self.range(name(field.as_ref()), lower, upper, *includes)?)
            }
            Node::Functions { field, source } => {
                let field = name(field.as_ref());
                let words = |text: &str| self.tokens(field, text, MAX_QUOTED_WORDS);
                functions::meaning(source, field, self.context.analyzers.of(field), &words)?
                    .map(|source| Query::Intervals { field: field.to_owned(), source })
            }
            Node::Boost(inner, boost) => self.node(inner)?.map(|inner| Query::Boost(Box::new(inner), *boost)),
            Node::Group(inner) => self.node(inner)?,
            Node::AtLeast(count, inner) => self.node(inner)?.map(|inner| at_least(*count, inner)),
            Node::Modified(Modifier::Required, inner) => self.node(inner)?,
            Node::Modified(Modifier::Prohibited, _) | Node::Clauses { .. } => {
                let mut clauses = Clauses::default();
                self.collect(node, false, &mut clauses)?;
                clauses.finish()
            }
        })
    }

    /// Clauses without parentheses belong to one query, independent of the operators between them.
    fn collect(&self, node: &Node, required: bool, out: &mut Clauses) -> Result<()> {
        match node {
            Node::Clauses { and, clauses } => clauses.iter().try_for_each(|clause| self.collect(clause, *and, out)),
            Node::Modified(modifier, inner) => {
                let Some(query) = self.node(inner)? else { return Ok(()) };
                match modifier {
                    Modifier::Required => out.boolean.must.push(query),
                    Modifier::Prohibited => out.boolean.must_not.push(query),
                }
                Ok(())
            }
            clause => {
                let Some(query) = self.node(clause)? else { return Ok(()) };
                if required {
                    out.boolean.must.push(query);
                } else {
                    out.boolean.should.push(query);
                }
                Ok(())
            }
        }
    }

    fn term(&self, field: &str, text: &Text, fuzzy: Option<f32>) -> Result<Option<Query>> {
        if field == "*" && text.is("*") {
            return Ok(Some(Query::All));
        }
        if self.context.grammar == Grammar::Standard && self.context.fields.is_number(field) {
            return Ok(Some(Query::number(field, self.number(text)?)));
        }
        let analyzer = self.context.analyzers.of(field);
        let named = || field.to_owned();
        if text.is_wildcard() {
            if text.leads_with_wildcard() {
                return Err(self.leading(field, text));
            }
            return Ok(Some(match text.prefix() {
                Some(prefix) => Query::Prefix { field: named(), prefix: analyzer.normalize(&prefix) },
                None => Query::Wildcard { field: named(), pattern: text.pattern(|part| analyzer.normalize(part)) },
            }));
        }
        if let Some(similarity) = fuzzy {
            let text = analyzer.normalize(&text.text());
            let edits = edits(similarity, text.chars().count());
            return Ok(Some(Query::Fuzzy { field: named(), text, edits }));
        }
        let tokens = self.tokens(field, &text.text(), MAX_CLAUSES)?;
        self.words.set(self.words.get() + tokens.len());
        if self.words.get() > MAX_CLAUSES {
            return Err(Error::BadRequest(too_many_clauses()));
        }
        let mut terms: Vec<_> = tokens.into_iter().map(|token| Query::term(field, token.text)).collect();
        let words = match terms.len() {
            0 => None,
            1 => terms.pop(),
            _ => Some(Query::any_of(terms)),
        };
        Ok(self.or_number(field, text, words))
    }

    /// A field of `_search` may have texts and numbers: a numeric word is searched in both.
    fn or_number(&self, field: &str, text: &Text, words: Option<Query>) -> Option<Query> {
        if self.context.grammar == Grammar::Standard || !self.context.fields.is_number(field) {
            return words;
        }
        let number = number::whole(&text.text()).map(|number| Query::number(field, number));
        match (number, words) {
            (Some(number), Some(words)) if self.context.fields.is_text(field) => {
                Some(Query::any_of(vec![number, words]))
            }
            (Some(number), _) => Some(number),
            (None, words) => words,
        }
    }

    fn quoted(&self, field: &str, text: &Text, slop: u32) -> Result<Option<Query>> {
        if self.context.grammar == Grammar::Standard && self.context.fields.is_number(field) {
            return Ok(Some(Query::number(field, self.number(text)?)));
        }
        let mut tokens = self.tokens(field, &text.text(), MAX_QUOTED_WORDS)?;
        let words = match tokens.len() {
            0 => None,
            1 => tokens.pop().map(|token| Query::term(field, token.text)),
            _ => {
                let first = tokens[0].position;
                let terms = tokens.into_iter().map(|token| (token.position - first, token.text)).collect();
                Some(Query::Phrase { field: field.to_owned(), terms, slop })
            }
        };
        Ok(self.or_number(field, text, words))
    }

    fn tokens(&self, field: &str, text: &str, most: usize) -> Result<Vec<Token>> {
        if field == "_id" {
            return Ok(vec![Token { text: text.to_owned(), position: 0, start: 0, end: text.len() }]);
        }
        let limits = self.context.limits;
        let (mut steps, mut count) = (limits.steps(), 0);
        self.context.analyzers.of(field).collect(text, |token| {
            steps.take(1)?;
            limits.charge(size_of::<Query>() + 2 * token.text.len() + field.len())?;
            count += 1;
            if count > most {
                return Err(Error::BadRequest(too_many_clauses()));
            }
            Ok(Some(token))
        })
    }

    fn range(&self, field: &str, lower: &Text, upper: &Text, includes: (bool, bool)) -> Result<Query> {
        let is_open = |text: &Text| text.is("*") || text.len() == 0;
        let is_number = match self.context.grammar {
            Grammar::Standard => self.context.fields.is_number(field),
            Grammar::Classic => {
                let fits = |text: &Text| is_open(text) || number::whole(&text.text()).is_some();
                self.context.fields.is_number(field)
                    && fits(lower)
                    && fits(upper)
                    && !(is_open(lower) && is_open(upper) && self.context.fields.is_text(field))
            }
        };
        if is_number {
            let bound = |text: &Text, included: bool| -> Result<Bound<f64>> {
                Ok(match is_open(text) {
                    true => Bound::Unbounded,
                    false => end(self.number(text)?, included),
                })
            };
            return Ok(Query::number_range(field, bound(lower, includes.0)?, bound(upper, includes.1)?));
        }
        let analyzer = self.context.analyzers.of(field);
        let normalize = |text: &Text| if field == "_id" { text.text() } else { analyzer.normalize(&text.text()) };
        let bound = |text: &Text, included: bool| match is_open(text) {
            true => Bound::Unbounded,
            false => end(normalize(text), included),
        };
        Ok(Query::range(field, bound(lower, includes.0), bound(upper, includes.1)))
    }

    fn number(&self, text: &Text) -> Result<f64> {
        let number = match self.context.grammar {
            Grammar::Standard => self.context.locale.parse(&text.text()),
            Grammar::Classic => number::whole(&text.text()),
        };
        let number = number.ok_or_else(|| {
            Error::bad_request(format!("Could not parse text \"{}\" using java.text.DecimalFormat", text.shown()))
        })?;
        Ok(number + 0.0)
    }

    fn leading(&self, field: &str, text: &Text) -> Error {
        match self.context.grammar {
            Grammar::Standard => {
                Error::bad_request(format!("Leading wildcard is not allowed: {field}:{}", text.shown()))
            }
            Grammar::Classic => Error::bad_request(format!(
                "Cannot parse '{}': '*' or '?' not allowed as first character in WildcardQuery",
                text.shown()
            )),
        }
    }
}

#[derive(Default)]
struct Clauses {
    boolean: Boolean,
}

impl Clauses {
    fn finish(mut self) -> Option<Query> {
        let Boolean { must, should, must_not, .. } = &mut self.boolean;
        match (must.len(), should.len(), must_not.len()) {
            (0, 0, 0) => None,
            (1, 0, 0) => must.pop(),
            (0, 1, 0) => should.pop(),
            _ => Some(Query::Boolean(self.boolean)),
        }
    }
}

fn name(field: Option<&String>) -> &str {
    field.map_or(DEFAULT_FIELD, String::as_str)
}

fn end<T>(value: T, included: bool) -> Bound<T> {
    if included { Bound::Included(value) } else { Bound::Excluded(value) }
}

fn at_least(count: usize, query: Query) -> Query {
    match query {
        Query::Boolean(boolean) => Query::Boolean(Boolean { minimum_should_match: count, ..boolean }),
        Query::Boost(inner, boost) => Query::Boost(Box::new(at_least(count, *inner)), boost),
        query if count <= 1 => query,
        _ => Query::None,
    }
}

/// Below 1, the number after `~` is a similarity.
fn edits(similarity: f32, length: usize) -> u8 {
    #[expect(clippy::cast_precision_loss, reason = "terms are short")]
    let edits = if similarity >= 1.0 || similarity == 0.0 { similarity } else { (1.0 - similarity) * length as f32 };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "between 0 and 2")]
    let edits = edits.clamp(0.0, 2.0) as u8;
    edits
}
