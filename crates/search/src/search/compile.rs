//! Converts a [`Query`] to one of `tantivy`.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use tantivy::query::{
    AllQuery, Bm25Weight, BooleanQuery, BoostQuery, ConstScoreQuery, EmptyQuery, ExistsQuery, Occur, PhraseQuery,
    Query as Compiled, RangeQuery, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, Score, SegmentReader, Term};

use super::automata::{Fuzzy, Pattern, Utf8};
use super::computed::{ComputedQuery, push};
use super::expansion::{self, Expansion, Terms};
use super::limited::LimitedQuery;
use super::positions::{self, Positions, Test, Tree};
use super::{nearest, patterns};
use crate::error::{Error, Result};
use crate::index::definition::Definition;
use crate::index::reader::Reader;
use crate::index::schema::{self, Layout};
use crate::limits::SearchLimits;
use crate::query::{Boolean, Interval, Nearest, Query, Relative};
use crate::store::SlotKind;

type Boxed = Box<dyn Compiled>;

const MAX_DEPTH: usize = 200;

/// Maximum number of terms of a phrase that `tantivy` evaluates, in time proportional to the length of the document
/// times the number of terms.
const MAX_UNCHECKED_TERMS: usize = 8;

const MAX_TERMS: usize = 4_096;

const CLAUSE_BYTES: usize = 1 << 10;

const PATTERN_REFUSED: &str =
    "In a database with per-document access only administrators can use patterns in interval functions.";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checks {
    Steps,
    /// The caller charges the terms. Only such queries can skip documents in blocks.
    Nothing,
}

pub(super) struct Compiler<'a> {
    reader: &'a Reader,
    layout: &'a Layout,
    definition: &'a Definition,
    partition: Option<&'a str>,
    limits: &'a SearchLimits,
    checks: Checks,
    terms: RefCell<Vec<Term>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ValueKind {
    Text(Field),
    String(Field),
}

impl ValueKind {
    fn field(self) -> Field {
        match self {
            Self::Text(field) | Self::String(field) => field,
        }
    }
}

impl<'a> Compiler<'a> {
    pub(super) fn new(
        reader: &'a Reader,
        definition: &'a Definition,
        partition: Option<&'a str>,
        limits: &'a SearchLimits,
        checks: Checks,
    ) -> Self {
        let (layout, terms) = (reader.layout(), RefCell::default());
        Self { reader, layout, definition, partition, limits, checks, terms }
    }

    pub(super) fn into_terms(self) -> Vec<Term> {
        self.terms.into_inner()
    }

    pub(super) fn compile(&self, query: &Query, drilldown: &[Vec<String>]) -> Result<Boxed> {
        let query = self.in_partition(self.nested(query, 0)?);
        let wanted = drilldown.iter().filter_map(|values| values.split_first());
        let filters: Vec<Boxed> = wanted.map(|(field, values)| self.drilldown(field, values)).collect::<Result<_>>()?;
        if filters.is_empty() {
            return Ok(self.in_visible(query));
        }
        let filters = filters.into_iter().map(|filter| Box::new(ConstScoreQuery::new(filter, 0.0)) as Boxed);
        let clauses = filters.chain([query]).map(|clause| (Occur::Must, clause)).collect();
        Ok(self.in_visible(Box::new(BooleanQuery::new(clauses))))
    }

    fn in_partition(&self, query: Boxed) -> Boxed {
        let Some(partition) = self.partition else { return query };
        let term = Term::from_field_text(self.layout.partition, partition);
        let filter = Box::new(ConstScoreQuery::new(self.term_query(term, IndexRecordOption::Basic), 0.0));
        Box::new(BooleanQuery::new(vec![(Occur::Must, filter as Boxed), (Occur::Must, query)]))
    }

    /// Restricts a query to the visible documents. The query is enclosed, because `tantivy` omits a query of all
    /// documents, and its score, from a conjunction.
    fn in_visible(&self, query: Boxed) -> Boxed {
        let Some(visible) = self.reader.visible().cloned() else { return query };
        let find = move |reader: &SegmentReader| visible.matches(reader).map_err(Error::within_tantivy);
        let filter = Box::new(ConstScoreQuery::new(self.limited(ComputedQuery::new(find)), 0.0));
        Box::new(BooleanQuery::new(vec![(Occur::Must, filter as Boxed), (Occur::Must, self.limited(query))]))
    }

    fn drilldown(&self, field: &str, values: &[String]) -> Result<Boxed> {
        self.limits.check()?;
        self.limits.charge(values.len().saturating_mul(CLAUSE_BYTES))?;
        let mut steps = self.limits.steps();
        // A text with an additional column stores whole values there.
        let column = self.layout.slots_of(field).find(|(kind, ..)| *kind == SlotKind::Column);
        if let Some((_, _, Some(column))) = column {
            let is = |value: &String| {
                steps.take(1)?;
                let term = Bound::Included(Term::from_field_text(column, value));
                Ok(self.limited(RangeQuery::new(term.clone(), term)))
            };
            return Ok(any(values.iter().map(is).collect::<Result<_>>()?));
        }
        let places = self.places(field);
        let terms = values.iter().flat_map(|value| places.iter().map(move |place| (place, value)));
        let clauses = terms.map(|(place, value)| {
            steps.take(1)?;
            Ok(self.term_query(Term::from_field_text(place.field(), value), IndexRecordOption::Basic))
        });
        Ok(any(clauses.collect::<Result<_>>()?))
    }

    fn limited(&self, query: impl Compiled) -> Boxed {
        Box::new(LimitedQuery::new(query, self.limits))
    }

    fn term_query(&self, term: Term, option: IndexRecordOption) -> Boxed {
        let query = TermQuery::new(term.clone(), option);
        if self.checks == Checks::Nothing {
            self.terms.borrow_mut().push(term);
            return Box::new(query);
        }
        Box::new(LimitedQuery::of_terms(query, vec![term], false, self.limits))
    }

    fn term(&self, place: ValueKind, text: &str) -> Boxed {
        let option = match place {
            ValueKind::Text(_) => IndexRecordOption::WithFreqs,
            ValueKind::String(_) => IndexRecordOption::Basic,
        };
        self.term_query(Term::from_field_text(place.field(), text), option)
    }

    fn terms(&self, field: &str, terms: &Terms) -> Result<Boxed> {
        self.each(field, |place| Ok(self.limited(Expansion::new(place.field(), terms.clone(), self.limits))))
    }

    fn nested(&self, query: &Query, depth: usize) -> Result<Boxed> {
        if depth > MAX_DEPTH {
            return Err(Error::TooLarge(format!("a query is nested more than {MAX_DEPTH} deep")));
        }
        self.limits.check()?;
        Ok(match query {
            Query::All => Box::new(AllQuery),
            Query::None => Box::new(EmptyQuery),
            Query::Term { field, text } => self.each(field, |place| Ok(self.term(place, text)))?,
            Query::Number { field, value } => self.numbers(field, Bound::Included(*value), Bound::Included(*value)),
            Query::NumberRange { field, lower, upper } => self.numbers(field, *lower, *upper),
            Query::Phrase { field, terms, slop } => {
                self.each(field, |place| self.phrase(field, place, terms, *slop))?
            }
            Query::Prefix { field, prefix } => {
                let upper = patterns::after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
                self.strings(field, &Bound::Included(prefix.clone()), &upper)?
            }
            Query::Wildcard { field, .. } | Query::Regex { field, .. } | Query::Fuzzy { field, .. } => {
                self.terms(field, &self.set(query)?)?
            }
            Query::Range { field, lower, upper } => self.strings(field, lower, upper)?,
            Query::Exists { field } => self.exists(field),
            Query::Boolean(boolean) => self.boolean(boolean, depth)?,
            Query::Boost(inner, boost) => Box::new(BoostQuery::new(self.nested(inner, depth + 1)?, *boost)),
            Query::Constant(inner, score) => Box::new(ConstScoreQuery::new(self.nested(inner, depth + 1)?, *score)),
            Query::Intervals { field, source } => self.intervals(field, source)?,
            Query::Nearest(wanted) => self.nearest(wanted, depth)?,
        })
    }

    fn places(&self, field: &str) -> Vec<ValueKind> {
        if field == "_id" {
            return vec![ValueKind::String(self.layout.id)];
        }
        let place = |(kind, _, field): (SlotKind, usize, Option<Field>)| match kind {
            SlotKind::Text => field.map(ValueKind::Text),
            SlotKind::String => field.map(ValueKind::String),
            SlotKind::Double | SlotKind::Stored | SlotKind::Column | SlotKind::Vector => None,
        };
        self.layout.slots_of(field).filter_map(place).collect()
    }

    fn each(&self, field: &str, make: impl Fn(ValueKind) -> Result<Boxed>) -> Result<Boxed> {
        let mut queries = self.places(field).into_iter().map(make).collect::<Result<Vec<_>>>()?;
        Ok(match queries.len() {
            0 => Box::new(EmptyQuery),
            1 => queries.swap_remove(0),
            _ => Box::new(BooleanQuery::union(queries)),
        })
    }

    fn strings(&self, field: &str, lower: &Bound<String>, upper: &Bound<String>) -> Result<Boxed> {
        if matches!((lower, upper), (Bound::Unbounded, Bound::Unbounded)) {
            return Ok(self.exists(field));
        }
        self.terms(field, &Terms::Between(lower.clone(), upper.clone()))
    }

    fn set(&self, query: &Query) -> Result<Terms> {
        Ok(match query {
            Query::Fuzzy { text, edits, .. } => {
                self.limits.charge(Fuzzy::bytes_of(text))?;
                Terms::Fuzzy(Arc::new(Utf8(Fuzzy::new(text, *edits))))
            }
            Query::Wildcard { pattern, .. } => Terms::Pattern(Arc::new(Utf8(Pattern::wildcard(pattern, self.limits)?))),
            Query::Regex { pattern, .. } => Terms::Pattern(Arc::new(Utf8(Pattern::regex(pattern, self.limits)?))),
            other => return Err(Error::bad_request(format!("{other:?} is not a multi-term query"))),
        })
    }

    fn numbers(&self, name: &str, lower: Bound<f64>, upper: Bound<f64>) -> Boxed {
        let slot = self.layout.slots_of(name).find(|(kind, ..)| *kind == SlotKind::Double);
        let Some((_, number, Some(field))) = slot else { return Box::new(EmptyQuery) };
        if matches!((lower, upper), (Bound::Unbounded, Bound::Unbounded)) {
            let exists = self.limited(ExistsQuery::new(schema::column(number), false));
            return Box::new(ConstScoreQuery::new(exists, 1.0));
        }
        let bound = |bound: Bound<f64>| bound.map(|value| Term::from_field_f64(field, value));
        self.limited(RangeQuery::new(bound(lower), bound(upper)))
    }

    fn phrase(&self, name: &str, place: ValueKind, terms: &[(u32, String)], slop: u32) -> Result<Boxed> {
        let field = match place {
            ValueKind::Text(field) => field,
            ValueKind::String(_) => {
                let words: Vec<_> = terms.iter().map(|(_, text)| text.as_str()).collect();
                return Err(Error::bad_request(format!(
                    "field \"{name}\" was indexed without position data; cannot run PhraseQuery (phrase=\"{}\")",
                    words.join(" ")
                )));
            }
        };
        check_terms(terms.len())?;
        let mut offsets: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        let mut known = Numbers::default();
        for (offset, text) in terms {
            offsets.entry(*offset).or_default().push(known.of(Term::from_field_text(field, text)));
        }
        let is_plain = slop == 0 && offsets.len() == terms.len() && terms.len() <= MAX_UNCHECKED_TERMS;
        match terms {
            [] => return Ok(Box::new(EmptyQuery)),
            [(_, text)] => return Ok(self.term(place, text)),
            _ if is_plain => {
                let terms = terms.iter().map(|(offset, text)| (*offset as usize, Term::from_field_text(field, text)));
                let phrase = PhraseQuery::new_with_offset(terms.collect());
                return Ok(Box::new(LimitedQuery::of_terms(phrase, known.terms, true, self.limits)));
            }
            _ => {}
        }
        self.by_positions(field, known.terms, Test::Phrase(offsets.into_iter().collect(), slop))
    }

    fn by_positions(&self, field: Field, terms: Vec<Term>, test: Test) -> Result<Boxed> {
        if terms.is_empty() {
            return Ok(Box::new(EmptyQuery));
        }
        self.limits.check()?;
        let weight = Bm25Weight::for_terms(self.reader, &terms)?;
        let query = Positions { field, terms, test, weight, limits: self.limits.clone() };
        Ok(self.limited(ComputedQuery::new(move |reader| positions::find(&query, reader))))
    }

    fn exists(&self, field: &str) -> Boxed {
        if field == "_id" {
            return Box::new(AllQuery);
        }
        let queries = self.layout.slots_of(field).filter_map(|(kind, number, field)| match kind {
            SlotKind::String | SlotKind::Double | SlotKind::Column => {
                Some(self.limited(ExistsQuery::new(schema::column(number), false)))
            }
            SlotKind::Text => field.map(|field| {
                let limits = self.limits.clone();
                self.limited(ComputedQuery::new(move |reader| with_text(reader, field, &limits)))
            }),
            SlotKind::Stored | SlotKind::Vector => None,
        });
        Box::new(ConstScoreQuery::new(Box::new(BooleanQuery::union(queries.collect())), 1.0))
    }

    fn nearest(&self, wanted: &Nearest, depth: usize) -> Result<Boxed> {
        let filter = match &wanted.filter {
            Some(filter) => self.in_partition(self.nested(filter, depth + 1)?),
            None => self.in_partition(Box::new(AllQuery)),
        };
        let is_filtered = wanted.filter.is_some() || self.partition.is_some() || self.reader.visible().is_some();
        let filter = is_filtered.then(|| self.in_visible(filter));
        let found = nearest::find(self.reader, self.definition, wanted, filter, self.limits)?;
        Ok(self.limited(ComputedQuery::new(move |reader| {
            Ok(found.get(&reader.segment_id()).cloned().unwrap_or_default())
        })))
    }

    fn boolean(&self, boolean: &Boolean, depth: usize) -> Result<Boxed> {
        let Boolean { must, filter, should, must_not, minimum_should_match } = boolean;
        if *minimum_should_match > should.len() || (must.is_empty() && filter.is_empty() && should.is_empty()) {
            return Ok(Box::new(EmptyQuery));
        }
        let mut clauses: Vec<(Occur, Boxed)> = Vec::new();
        for (occur, queries) in [(Occur::Must, must), (Occur::Should, should), (Occur::MustNot, must_not)] {
            for query in queries {
                clauses.push((occur, self.nested(query, depth + 1)?));
            }
        }
        for query in filter {
            clauses.push((Occur::Must, Box::new(ConstScoreQuery::new(self.nested(query, depth + 1)?, 0.0))));
        }
        let is_optional = !must.is_empty() || !filter.is_empty();
        let least = if is_optional { *minimum_should_match } else { (*minimum_should_match).max(1) };
        Ok(Box::new(BooleanQuery::with_minimum_required_clauses(clauses, least)))
    }

    fn intervals(&self, field: &str, source: &Interval) -> Result<Boxed> {
        self.each(field, |place| match place {
            ValueKind::String(_) => Err(Error::bad_request(format!(
                "Cannot create intervals over field {field} because it has no indexed positions"
            ))),
            ValueKind::Text(field) => {
                let mut terms = Numbers::default();
                let tree = self.tree(field, source, &mut terms)?;
                self.by_positions(field, terms.terms, Test::Interval(tree))
            }
        })
    }

    fn tree(&self, field: Field, source: &Interval, terms: &mut Numbers) -> Result<Tree> {
        check_terms(terms.terms.len())?;
        let mut many = |parts: &[Interval]| -> Result<Vec<Tree>> {
            parts.iter().map(|part| self.tree(field, part, terms)).collect()
        };
        Ok(match source {
            Interval::Phrase(parts) => Tree::Phrase(many(parts)?),
            Interval::Ordered(parts) => Tree::Ordered(many(parts)?),
            Interval::Unordered(parts) => Tree::Unordered(many(parts)?),
            Interval::Or(parts) => Tree::Or(many(parts)?),
            Interval::AtLeast(count, parts) => Tree::AtLeast(*count, many(parts)?),
            Interval::Term(text) => Tree::Terms(vec![terms.of(Term::from_field_text(field, text))]),
            // The number of terms, which is limited and part of the score, depends on all documents.
            Interval::Terms(_) if self.reader.visible().is_some() => return Err(Error::bad_request(PATTERN_REFUSED)),
            Interval::Terms(query) => {
                let expanded = expansion::expand(self.reader.segments(), field, &self.set(query)?, self.limits)?;
                let number = |text: String| terms.of(Term::from_field_text(field, &text));
                Tree::Terms(expanded.into_iter().map(number).collect())
            }
            Interval::MaxWidth(width, part) => Tree::MaxWidth(*width, Box::new(self.tree(field, part, terms)?)),
            Interval::MaxGaps(gaps, part) => Tree::MaxGaps(*gaps, Box::new(self.tree(field, part, terms)?)),
            Interval::Extend(part, before, after) => {
                Tree::Extend(Box::new(self.tree(field, part, terms)?), *before, *after)
            }
            Interval::UnorderedNoOverlaps(first, second) => {
                let (first, second) = (self.tree(field, first, terms)?, self.tree(field, second, terms)?);
                Tree::NoOverlaps(Box::new(first), Box::new(second))
            }
            Interval::Filter(relation, part, other) => {
                let (part, other) = (self.tree(field, part, terms)?, self.tree(field, other, terms)?);
                Tree::Filter(*relation, Box::new(part), Box::new(other))
            }
            Interval::Within(part, places, other, is_within) => {
                let relation = if *is_within { Relative::Overlapping } else { Relative::NonOverlapping };
                let (part, other) = (self.tree(field, part, terms)?, self.tree(field, other, terms)?);
                Tree::Filter(relation, Box::new(part), Box::new(Tree::Extend(Box::new(other), *places, *places)))
            }
        })
    }
}

fn any(mut queries: Vec<Boxed>) -> Boxed {
    if queries.len() == 1 { queries.swap_remove(0) } else { Box::new(BooleanQuery::union(queries)) }
}

fn check_terms(count: usize) -> Result<()> {
    if count <= MAX_TERMS {
        return Ok(());
    }
    Err(Error::TooLarge(format!("a phrase or an interval has at most {MAX_TERMS} terms")))
}

#[derive(Default)]
struct Numbers {
    terms: Vec<Term>,
    numbers: HashMap<Term, usize>,
}

impl Numbers {
    fn of(&mut self, term: Term) -> usize {
        let next = self.terms.len();
        let number = *self.numbers.entry(term.clone()).or_insert(next);
        if number == next {
            self.terms.push(term);
        }
        number
    }
}

fn with_text(reader: &SegmentReader, field: Field, limits: &SearchLimits) -> tantivy::Result<Vec<(DocId, Score)>> {
    let Some(lengths) = reader.fieldnorms_readers().get_field(field)? else {
        return Ok(Vec::new());
    };
    let (mut found, mut steps) = (Vec::new(), limits.steps());
    for doc in (0..reader.max_doc()).filter(|&doc| lengths.fieldnorm_id(doc) > 0) {
        steps.take(1).and_then(|()| push(&mut found, doc, 1.0, limits)).map_err(Error::within_tantivy)?;
    }
    Ok(found)
}
