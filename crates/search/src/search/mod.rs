//! Execution of a search: the matching documents of each segment are iterated once, and the results are combined.

mod automata;
pub(crate) mod bookmark;
mod compile;
mod computed;
mod expansion;
mod facets;
mod groups;
mod highlight;
mod limited;
mod nearest;
mod order;
mod patterns;
mod positions;
mod render;
mod top;

use tantivy::query::{EnableScoring, Weight};
use tantivy::{DocId, Score, SegmentReader, TERMINATED, Term};

use self::compile::{Checks, Compiler};
use self::facets::Facets;
use self::groups::Groups;
use self::order::Keys;
use self::render::HitRenderer;
use self::top::{Candidate, Top};
use crate::answer::{Answer, Relation};
use crate::error::{Error, Result};
use crate::index::definition::Definition;
use crate::index::reader::Reader;
use crate::limits::SearchLimits;
use crate::query::{Boolean, Query};
use crate::request::{MAX_TOP_N, Request, Sort, SortBy};

/// Up to this number the count is exact even if not all hits are iterated.
const EXACT_HITS: u64 = 10_000;

/// Maximum number of postings of several terms that are skipped in blocks without checks, in about ten milliseconds.
const MAX_UNCHECKED_ENTRIES: u64 = 2_000_000;

pub(crate) fn search(
    reader: &Reader,
    definition: &Definition,
    request: &Request,
    limits: &SearchLimits,
) -> Result<Answer> {
    check(request)?;
    limits.check()?;
    let sorts = order::complete(&request.sort)?;
    let after = request.bookmark.as_deref().map(|bookmark| bookmark::decode(bookmark, sorts.len()));
    let after = after.transpose()?.flatten();
    let mut facets = Facets::new(reader, request, limits)?;
    let mut groups = Groups::new(reader, request, &sorts, limits)?;
    let may_skip = reader.visible().is_none()
        && facets.is_empty()
        && groups.is_none()
        && is_by_relevance(&sorts)
        && is_of_terms(request);
    let mut weights = Weights::new(reader, definition, request, limits, may_skip)?;
    let mut found: Vec<Candidate> = Vec::new();
    let (mut total, mut relation) = (0, Relation::EqualTo);
    for (number, segment) in reader.segments().iter().enumerate() {
        limits.check()?;
        let keys = Keys::open(reader, segment, &sorts)?;
        let after = after.as_ref().map(|values| keys.after(values)).transpose()?;
        let mut top = Top::new(&keys, request.limit, after, limits);
        if may_skip {
            let weight = weights.of(segment)?;
            if total < EXACT_HITS {
                total += count(weight, segment, request)?;
            }
            let alive = segment.alive_bitset();
            let mut offer = |doc, score| match alive {
                Some(alive) if alive.is_deleted(doc) => top.threshold(),
                _ => {
                    top.offer(doc, score);
                    top.threshold()
                }
            };
            weight.for_each_pruning(Score::NEG_INFINITY, segment, &mut offer)?;
        } else {
            let mut counted = facets.open(segment)?;
            let mut grouped = groups.as_ref().map(|groups| groups.open(reader, segment)).transpose()?;
            each(weights.of(segment)?, segment, limits, |doc, score| {
                total += 1;
                top.offer(doc, score);
                if let Some(grouped) = &mut grouped {
                    grouped.offer(doc, score)?;
                }
                Ok(1 + counted.count(doc))
            })?;
            facets.add(counted)?;
            if let (Some(groups), Some(grouped)) = (&mut groups, grouped) {
                groups.add(grouped.finish(number)?)?;
            }
        }
        // A query that exceeds a limit ends without an error.
        limits.check()?;
        found.extend(top.finish(number)?);
    }
    if may_skip && total >= EXACT_HITS && !matches!(request.query, Query::Term { .. }) {
        relation = Relation::GreaterThanOrEqualTo;
    }
    let mut found = limits.sort(found, |one, other| order::compare(&sorts, &one.order, &other.order))?;
    found.truncate(request.limit);
    let bookmark = bookmark::encode(found.last().map(|last| last.order.as_slice()), request.bookmark.as_deref());
    let shower = HitRenderer::new(reader, definition, request, limits)?;
    let groups = groups.map(|groups| groups.finish(&shower)).transpose()?;
    let hits = if groups.is_some() { Vec::new() } else { shower.hits(found)? };
    let (counts, ranges) = facets.finish()?;
    Ok(Answer { total_hits: total, relation, bookmark, hits, counts, ranges, groups })
}

fn check(request: &Request) -> Result<()> {
    if request.top_n.is_some_and(|top| top == 0 || top > MAX_TOP_N) {
        return Err(Error::bad_request(format!("top_n must be between 1 and {MAX_TOP_N}")));
    }
    Ok(())
}

struct Weights<'a> {
    reader: &'a Reader,
    definition: &'a Definition,
    request: &'a Request,
    limits: &'a SearchLimits,
    checked: Option<Box<dyn Weight>>,
    unchecked: Option<(Box<dyn Weight>, Vec<Term>)>,
}

impl<'a> Weights<'a> {
    fn new(
        reader: &'a Reader,
        definition: &'a Definition,
        request: &'a Request,
        limits: &'a SearchLimits,
        may_skip: bool,
    ) -> Result<Self> {
        let mut weights = Self { reader, definition, request, limits, checked: None, unchecked: None };
        match may_skip {
            true => weights.unchecked = Some(weights.compile(Checks::Nothing)?),
            false => weights.checked = Some(weights.compile(Checks::Steps)?.0),
        }
        Ok(weights)
    }

    fn compile(&self, checks: Checks) -> Result<(Box<dyn Weight>, Vec<Term>)> {
        let Self { reader, definition, request, limits, .. } = *self;
        let compiler = Compiler::new(reader, definition, request.partition.as_deref(), limits, checks);
        let query = compiler.compile(&request.query, &request.drilldown)?;
        let scoring = EnableScoring::Enabled { searcher: reader.searcher(), statistics_provider: reader };
        Ok((query.weight(scoring)?, compiler.into_terms()))
    }

    /// Returns the weight without checks if the segment needs little work.
    fn of(&mut self, segment: &SegmentReader) -> Result<&dyn Weight> {
        if let Some((_, terms)) = &self.unchecked {
            let entries = limited::charge_terms(segment, terms, false, self.limits)?;
            if terms.len() > 1 && entries > MAX_UNCHECKED_ENTRIES && self.checked.is_none() {
                self.checked = Some(self.compile(Checks::Steps)?.0);
            }
            let is_short = terms.len() <= 1 || entries <= MAX_UNCHECKED_ENTRIES;
            if let (true, Some((weight, _))) = (is_short, &self.unchecked) {
                return Ok(&**weight);
            }
        }
        self.checked.as_deref().ok_or_else(|| Error::Corrupt("a query that was not compiled".to_owned()))
    }
}

fn is_by_relevance(sorts: &[Sort]) -> bool {
    sorts.first().is_some_and(|first| *first == Sort { by: SortBy::Relevance, descending: false })
}

/// True if only the best hits must be iterated: others are skipped in blocks.
fn is_of_terms(request: &Request) -> bool {
    let is_term = |query: &Query| matches!(query, Query::Term { .. });
    let is_of_terms = match &request.query {
        Query::Boolean(Boolean { must, filter, should, must_not, minimum_should_match: 0 | 1 }) => {
            must.is_empty() && filter.is_empty() && must_not.is_empty() && should.iter().all(is_term)
        }
        query => is_term(query),
    };
    is_of_terms && request.partition.is_none() && request.drilldown.is_empty()
}

fn count(weight: &dyn Weight, segment: &SegmentReader, request: &Request) -> Result<u64> {
    if matches!(request.query, Query::Term { .. }) {
        return Ok(u64::from(weight.count(segment)?));
    }
    let mut hits = weight.scorer(segment, 1.0)?;
    let mut count = 0;
    while hits.doc() != tantivy::TERMINATED && count < EXACT_HITS {
        count += u64::from(!segment.is_deleted(hits.doc()));
        hits.advance();
    }
    Ok(count)
}

/// `call` returns the number of its steps.
fn each(
    weight: &dyn Weight,
    segment: &SegmentReader,
    limits: &SearchLimits,
    mut call: impl FnMut(DocId, Score) -> Result<usize>,
) -> Result<()> {
    let mut steps = limits.steps();
    let mut matches = weight.scorer(segment, 1.0)?;
    let alive = segment.alive_bitset();
    let mut doc = matches.doc();
    while doc != TERMINATED {
        if alive.is_none_or(|alive| alive.is_alive(doc)) {
            steps.take(call(doc, matches.score())?)?;
        }
        doc = matches.advance();
    }
    Ok(())
}
