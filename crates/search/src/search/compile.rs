//! From a [`Query`] to one of `tantivy`, for the fields that an index has.

use std::ops::Bound;

use tantivy::query::{
    AllQuery, Bm25Weight, BooleanQuery, BoostQuery, ConstScoreQuery, EmptyQuery, ExistsQuery, FuzzyTermQuery,
    InvertedIndexRangeQuery, Occur, PhraseQuery, Query as Compiled, RangeQuery, RegexQuery, TermQuery,
};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{SegmentReader, Term};

use super::by_hand::ByHand;
use super::positions::{self, Positions, Test, Tree};
use super::{nearest, patterns};
use crate::error::{Error, Result};
use crate::index::{Definition, Layout, Reader};
use crate::query::{Boolean, Interval, Nearest, Query, Relative};
use crate::store::SlotKind;

type Boxed = Box<dyn Compiled>;

/// The longest way from the top of a query to its ends.
const MAX_DEPTH: usize = 200;

/// The greatest number of terms that a pattern within intervals stands for: Lucene's.
const MAX_EXPANSIONS: usize = 128;

/// Makes queries of `tantivy` for an index.
pub(super) struct Compiler<'a> {
    reader: &'a Reader,
    layout: &'a Layout,
    definition: &'a Definition,
    partition: Option<&'a str>,
}

/// Where a string or a text is looked for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Text(Field),
    String(Field),
}

impl Place {
    fn field(self) -> Field {
        match self {
            Self::Text(field) | Self::String(field) => field,
        }
    }
}

impl<'a> Compiler<'a> {
    /// For queries of one partition, if so.
    pub(super) fn new(reader: &'a Reader, definition: &'a Definition, partition: Option<&'a str>) -> Self {
        Self { reader, layout: reader.layout(), definition, partition }
    }

    pub(super) fn compile(&self, query: &Query) -> Result<Boxed> {
        Ok(self.in_partition(self.nested(query, 0)?))
    }

    /// Only what is in the partition.
    fn in_partition(&self, query: Boxed) -> Boxed {
        let Some(partition) = self.partition else { return query };
        let term = Term::from_field_text(self.layout.partition, partition);
        both(Box::new(TermQuery::new(term, IndexRecordOption::Basic)), query)
    }

    /// Only what has one of these strings in a field.
    pub(super) fn drilldown(&self, field: &str, values: &[String], query: Boxed) -> Boxed {
        // Values as a whole are in a column, where a text has one beside its terms.
        let column = self.layout.slots_of(field).find(|(kind, ..)| *kind == SlotKind::Column);
        if let Some((_, _, Some(column))) = column {
            let is = |value: &String| {
                let term = Bound::Included(Term::from_field_text(column, value));
                Box::new(RangeQuery::new(term.clone(), term)) as Boxed
            };
            return both(Box::new(BooleanQuery::union(values.iter().map(is).collect())), query);
        }
        let places = self.places(field);
        let terms = values.iter().flat_map(|value| places.iter().map(move |place| (place, value)));
        let clauses = terms.map(|(place, value)| {
            let term = Term::from_field_text(place.field(), value);
            Box::new(TermQuery::new(term, IndexRecordOption::Basic)) as Boxed
        });
        both(Box::new(BooleanQuery::union(clauses.collect())), query)
    }

    fn nested(&self, query: &Query, depth: usize) -> Result<Boxed> {
        if depth > MAX_DEPTH {
            return Err(Error::TooLarge(format!("a query is nested more than {MAX_DEPTH} deep")));
        }
        Ok(match query {
            Query::All => Box::new(AllQuery),
            Query::None => Box::new(EmptyQuery),
            Query::Term { field, text } => self.each(field, |place| Ok(term(place, text)))?,
            Query::Number { field, value } => self.numbers(field, Bound::Included(*value), Bound::Included(*value)),
            Query::NumberRange { field, lower, upper } => self.numbers(field, *lower, *upper),
            Query::Phrase { field, terms, slop } => {
                self.each(field, |place| self.phrase(field, place, terms, *slop))?
            }
            Query::Prefix { field, prefix } => {
                let upper = patterns::after_prefix(prefix).map_or(Bound::Unbounded, Bound::Excluded);
                self.strings(field, &Bound::Included(prefix.clone()), &upper)?
            }
            Query::Wildcard { field, pattern } => {
                let pattern = patterns::of_wildcard(pattern)?;
                self.each(field, |place| Ok(Box::new(RegexQuery::from_pattern(&pattern, place.field())?)))?
            }
            Query::Regex { field, pattern } => {
                let pattern = patterns::of_regex(pattern)?;
                self.each(field, |place| Ok(Box::new(RegexQuery::from_pattern(&pattern, place.field())?)))?
            }
            Query::Fuzzy { field, text, edits } => self.each(field, |place| {
                let term = Term::from_field_text(place.field(), text);
                Ok(Box::new(FuzzyTermQuery::new(term, (*edits).min(2), true)))
            })?,
            Query::Range { field, lower, upper } => self.strings(field, lower, upper)?,
            Query::Exists { field } => self.exists(field),
            Query::Boolean(boolean) => self.boolean(boolean, depth)?,
            Query::Boost(inner, boost) => Box::new(BoostQuery::new(self.nested(inner, depth + 1)?, *boost)),
            Query::Constant(inner, score) => Box::new(ConstScoreQuery::new(self.nested(inner, depth + 1)?, *score)),
            Query::Intervals { field, source } => self.intervals(field, source)?,
            Query::Nearest(wanted) => self.nearest(wanted, depth)?,
        })
    }

    fn places(&self, field: &str) -> Vec<Place> {
        if field == "_id" {
            return vec![Place::String(self.layout.id)];
        }
        let place = |(kind, _, field): (SlotKind, usize, Option<Field>)| match kind {
            SlotKind::Text => field.map(Place::Text),
            SlotKind::String => field.map(Place::String),
            SlotKind::Double | SlotKind::Stored | SlotKind::Column | SlotKind::Vector => None,
        };
        self.layout.slots_of(field).filter_map(place).collect()
    }

    /// The same for texts and strings of a field, of which there is one at most in an index of `_nouveau`.
    fn each(&self, field: &str, make: impl Fn(Place) -> Result<Boxed>) -> Result<Boxed> {
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
        self.each(field, |place| {
            let bound = |bound: &Bound<String>| bound.as_ref().map(|text| Term::from_field_text(place.field(), text));
            Ok(Box::new(InvertedIndexRangeQuery::new(bound(lower), bound(upper))))
        })
    }

    fn numbers(&self, name: &str, lower: Bound<f64>, upper: Bound<f64>) -> Boxed {
        let slot = self.layout.slots_of(name).find(|(kind, ..)| *kind == SlotKind::Double);
        let Some((_, number, Some(field))) = slot else { return Box::new(EmptyQuery) };
        if matches!((lower, upper), (Bound::Unbounded, Bound::Unbounded)) {
            return Box::new(ConstScoreQuery::new(
                Box::new(ExistsQuery::new(crate::index::column(number), false)),
                1.0,
            ));
        }
        let bound = |bound: Bound<f64>| bound.map(|value| Term::from_field_f64(field, value));
        Box::new(RangeQuery::new(bound(lower), bound(upper)))
    }

    fn phrase(&self, name: &str, place: Place, terms: &[(u32, String)], slop: u32) -> Result<Boxed> {
        let field = match place {
            Place::Text(field) => field,
            Place::String(_) => {
                let words: Vec<_> = terms.iter().map(|(_, text)| text.as_str()).collect();
                return Err(Error::bad_request(format!(
                    "field \"{name}\" was indexed without position data; cannot run PhraseQuery (phrase=\"{}\")",
                    words.join(" ")
                )));
            }
        };
        let offsets: std::collections::BTreeSet<u32> = terms.iter().map(|(offset, _)| *offset).collect();
        let is_plain = slop == 0 && offsets.len() == terms.len();
        match terms {
            [] => return Ok(Box::new(EmptyQuery)),
            [(_, text)] => return Ok(term(place, text)),
            _ if is_plain => {
                let terms = terms.iter().map(|(offset, text)| (*offset as usize, Term::from_field_text(field, text)));
                return Ok(Box::new(PhraseQuery::new_with_offset(terms.collect())));
            }
            _ => {}
        }
        let mut known = Vec::new();
        let mut groups: Vec<(u32, Vec<usize>)> = offsets.into_iter().map(|offset| (offset, Vec::new())).collect();
        for (offset, text) in terms {
            let number = number_of(&mut known, Term::from_field_text(field, text));
            if let Some((_, group)) = groups.iter_mut().find(|(place, _)| place == offset) {
                group.push(number);
            }
        }
        self.by_positions(field, known, Test::Phrase(groups, slop))
    }

    fn by_positions(&self, field: Field, terms: Vec<Term>, test: Test) -> Result<Boxed> {
        if terms.is_empty() {
            return Ok(Box::new(EmptyQuery));
        }
        let weight = Bm25Weight::for_terms(self.reader, &terms)?;
        let query = Positions { field, terms, test, weight };
        Ok(Box::new(ByHand::new(move |reader| positions::find(&query, reader))))
    }

    fn exists(&self, field: &str) -> Boxed {
        if field == "_id" {
            return Box::new(AllQuery);
        }
        let queries = self.layout.slots_of(field).filter_map(|(kind, number, field)| match kind {
            SlotKind::String | SlotKind::Double | SlotKind::Column => {
                Some(Box::new(ExistsQuery::new(crate::index::column(number), false)) as Boxed)
            }
            SlotKind::Text => field.map(|field| Box::new(ByHand::new(move |reader| with_text(reader, field))) as Boxed),
            SlotKind::Stored | SlotKind::Vector => None,
        });
        Box::new(ConstScoreQuery::new(Box::new(BooleanQuery::union(queries.collect())), 1.0))
    }

    /// The documents with the nearest vectors of all segments, found before anything else is looked at.
    fn nearest(&self, wanted: &Nearest, depth: usize) -> Result<Boxed> {
        let filter = match &wanted.filter {
            Some(filter) => Some(self.in_partition(self.nested(filter, depth + 1)?)),
            None => self.partition.map(|_| self.in_partition(Box::new(AllQuery))),
        };
        let found = nearest::find(self.reader, self.definition, wanted, filter)?;
        Ok(Box::new(ByHand::new(move |reader| Ok(found.get(&reader.segment_id()).cloned().unwrap_or_default()))))
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
            Place::String(_) => Err(Error::bad_request(format!(
                "Cannot create intervals over field {field} because it has no indexed positions"
            ))),
            Place::Text(field) => {
                let mut terms = Vec::new();
                let tree = self.tree(field, source, &mut terms)?;
                self.by_positions(field, terms, Test::Interval(tree))
            }
        })
    }

    fn tree(&self, field: Field, source: &Interval, terms: &mut Vec<Term>) -> Result<Tree> {
        let mut many = |parts: &[Interval]| -> Result<Vec<Tree>> {
            parts.iter().map(|part| self.tree(field, part, terms)).collect()
        };
        Ok(match source {
            Interval::Phrase(parts) => Tree::Phrase(many(parts)?),
            Interval::Ordered(parts) => Tree::Ordered(many(parts)?),
            Interval::Unordered(parts) => Tree::Unordered(many(parts)?),
            Interval::Or(parts) => Tree::Or(many(parts)?),
            Interval::AtLeast(count, parts) => Tree::AtLeast(*count, many(parts)?),
            Interval::Term(text) => Tree::Terms(vec![number_of(terms, Term::from_field_text(field, text))]),
            Interval::Terms(query) => {
                let expanded = self.expand(field, query)?;
                Tree::Terms(expanded.into_iter().map(|term| number_of(terms, term)).collect())
            }
            Interval::MaxWidth(width, part) => Tree::MaxWidth(*width, Box::new(self.tree(field, part, terms)?)),
            Interval::MaxGaps(gaps, part) => Tree::MaxGaps(*gaps, Box::new(self.tree(field, part, terms)?)),
            Interval::Extend(part, before, after) => {
                Tree::Extend(Box::new(self.tree(field, part, terms)?), *before, *after)
            }
            Interval::UnorderedNoOverlaps(first, second) => {
                let ordered = |first: &Interval, second: &Interval, terms: &mut Vec<Term>| {
                    Ok::<_, Error>(Tree::Ordered(vec![
                        self.tree(field, first, terms)?,
                        self.tree(field, second, terms)?,
                    ]))
                };
                Tree::Or(vec![ordered(first, second, terms)?, ordered(second, first, terms)?])
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

    /// The terms of a field that a pattern stands for.
    fn expand(&self, field: Field, query: &Query) -> Result<Vec<Term>> {
        let is_wanted = |text: &str| match query {
            Query::Wildcard { pattern, .. } => patterns::is_like(text, pattern),
            Query::Prefix { prefix, .. } => text.starts_with(prefix.as_str()),
            Query::Fuzzy { text: wanted, edits, .. } => patterns::is_near(text, wanted, usize::from(*edits)),
            _ => false,
        };
        let mut texts = std::collections::BTreeSet::new();
        for segment in self.reader.segments() {
            let index = segment.inverted_index(field)?;
            let mut stream = index.terms().stream().map_err(Error::from_io)?;
            while stream.advance() {
                if let Ok(text) = std::str::from_utf8(stream.key())
                    && is_wanted(text)
                {
                    texts.insert(text.to_owned());
                    if texts.len() > MAX_EXPANSIONS {
                        return Err(Error::bad_request(format!(
                            "Automaton expanded to more than {MAX_EXPANSIONS} terms"
                        )));
                    }
                }
            }
        }
        Ok(texts.into_iter().map(|text| Term::from_field_text(field, &text)).collect())
    }
}

fn both(filter: Boxed, query: Boxed) -> Boxed {
    let filter = Box::new(ConstScoreQuery::new(filter, 0.0));
    Box::new(BooleanQuery::new(vec![(Occur::Must, filter as Boxed), (Occur::Must, query)]))
}

fn term(place: Place, text: &str) -> Boxed {
    let option = match place {
        Place::Text(_) => IndexRecordOption::WithFreqs,
        Place::String(_) => IndexRecordOption::Basic,
    };
    Box::new(TermQuery::new(Term::from_field_text(place.field(), text), option))
}

fn number_of(terms: &mut Vec<Term>, term: Term) -> usize {
    terms.iter().position(|known| *known == term).unwrap_or_else(|| {
        terms.push(term);
        terms.len() - 1
    })
}

/// The documents that have a word in a text.
fn with_text(reader: &SegmentReader, field: Field) -> tantivy::Result<Vec<(u32, f32)>> {
    let Some(lengths) = reader.fieldnorms_readers().get_field(field)? else {
        return Ok(Vec::new());
    };
    Ok((0..reader.max_doc()).filter(|&doc| lengths.fieldnorm_id(doc) > 0).map(|doc| (doc, 1.0)).collect())
}
