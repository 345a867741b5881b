//! Searching: the query is compiled, the documents of each segment that match are walked through once, and hits, counts and
//! groups are put together from what the segments have.

pub(crate) mod bookmark;
mod by_hand;
mod compile;
mod facets;
mod groups;
mod highlight;
mod nearest;
mod order;
mod patterns;
mod positions;
mod top;

use tantivy::query::{EnableScoring, Weight};
use tantivy::{DocId, Score, SegmentReader};

use self::compile::Compiler;
use self::facets::Facets;
use self::groups::Groups;
use self::order::Keys;
use self::top::{Candidate, Top};
use crate::answer::{Answer, Hit, Relation};
use crate::error::{Error, Result};
use crate::field::StoredValue;
use crate::index::{Definition, Reader};
use crate::query::{Boolean, Query};
use crate::request::{MAX_LIMIT, MAX_TOP_N, Request, Sort, SortBy};

/// Where not all hits are looked at, they are counted up to here.
const EXACT_HITS: u64 = 10_000;

/// Searches what `reader` has.
pub(crate) fn search(reader: &Reader, definition: &Definition, request: &Request) -> Result<Answer> {
    check(request)?;
    let sorts = order::complete(&request.sort)?;
    let after = request.bookmark.as_deref().map(|bookmark| bookmark::decode(bookmark, sorts.len()));
    let after = after.transpose()?.flatten();
    let weight = weight(reader, definition, request)?;
    let mut facets = Facets::new(reader, request)?;
    let mut groups = Groups::new(reader, request, &sorts)?;
    let may_skip = facets.is_empty() && groups.is_none() && is_by_relevance(&sorts) && is_of_terms(request);
    let mut found: Vec<Candidate> = Vec::new();
    let (mut total, mut relation) = (0, Relation::EqualTo);
    for (number, segment) in reader.segments().iter().enumerate() {
        let keys = Keys::open(reader, segment, &sorts)?;
        let after = after.as_ref().map(|values| keys.after(values)).transpose()?;
        let mut top = Top::new(&keys, request.limit, after);
        if may_skip {
            if total < EXACT_HITS {
                total += count(&*weight, segment, request)?;
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
            each(&*weight, segment, |doc, score| {
                total += 1;
                top.offer(doc, score);
                counted.count(doc);
                if let Some(grouped) = &mut grouped {
                    grouped.offer(doc, score);
                }
            })?;
            facets.add(counted)?;
            if let (Some(groups), Some(grouped)) = (&mut groups, grouped) {
                groups.add(grouped.finish(number)?);
            }
        }
        found.extend(top.finish(number)?);
    }
    if may_skip && total >= EXACT_HITS && !matches!(request.query, Query::Term { .. }) {
        relation = Relation::GreaterThanOrEqualTo;
    }
    found.sort_by(|one, other| order::compare(&sorts, &one.order, &other.order));
    found.truncate(request.limit);
    let bookmark = bookmark::encode(found.last().map(|last| last.order.as_slice()), request.bookmark.as_deref());
    let shower = Shower { reader, definition, request };
    let groups = groups.map(|groups| groups.finish(&shower)).transpose()?;
    let hits = if groups.is_some() { Vec::new() } else { shower.hits(found)? };
    let (counts, ranges) = facets.finish();
    Ok(Answer { total_hits: total, relation, bookmark, hits, counts, ranges, groups })
}

fn check(request: &Request) -> Result<()> {
    if request.limit > MAX_LIMIT {
        return Err(Error::bad_request(format!("limit must be less than or equal to {MAX_LIMIT}")));
    }
    if request.top_n.is_some_and(|top| top == 0 || top > MAX_TOP_N) {
        return Err(Error::bad_request(format!("top_n must be between 1 and {MAX_TOP_N}")));
    }
    Ok(())
}

fn weight(reader: &Reader, definition: &Definition, request: &Request) -> Result<Box<dyn Weight>> {
    let compiler = Compiler::new(reader, definition, request.partition.as_deref());
    let mut query = compiler.compile(&request.query)?;
    for values in &request.drilldown {
        if let Some((field, values)) = values.split_first() {
            query = compiler.drilldown(field, values, query);
        }
    }
    let scoring = EnableScoring::Enabled { searcher: reader.searcher(), statistics_provider: reader };
    Ok(query.weight(scoring)?)
}

fn is_by_relevance(sorts: &[Sort]) -> bool {
    sorts.first().is_some_and(|first| *first == Sort { by: SortBy::Relevance, descending: false })
}

/// Whether only the best of the hits have to be looked at: those that are of no use are left out in blocks.
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

/// The number of hits in a segment; if that takes a walk, up to a limit.
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

/// Calls a function for each document of a segment that matches.
fn each(weight: &dyn Weight, segment: &SegmentReader, mut call: impl FnMut(DocId, Score)) -> Result<()> {
    match segment.alive_bitset() {
        None => weight.for_each(segment, &mut call)?,
        Some(alive) => weight.for_each(segment, &mut |doc, score| {
            if alive.is_alive(doc) {
                call(doc, score);
            }
        })?,
    }
    Ok(())
}

/// Makes hits of what was found.
struct Shower<'a> {
    reader: &'a Reader,
    definition: &'a Definition,
    request: &'a Request,
}

impl Shower<'_> {
    fn hits(&self, found: Vec<Candidate>) -> Result<Vec<Hit>> {
        found.into_iter().map(|candidate| self.hit(candidate)).collect()
    }

    fn hit(&self, candidate: Candidate) -> Result<Hit> {
        let Candidate { segment, doc, order } = candidate;
        let ids = self.reader.ids(segment)?;
        let mut id = String::new();
        let ord = ids.ords().first(doc).ok_or_else(|| Error::Corrupt("a document without id".to_owned()))?;
        ids.ord_to_str(ord, &mut id).map_err(Error::from_io)?;
        let stored = self.reader.stored(segment, doc)?;
        let highlights = match &self.request.highlight {
            Some(how) => highlight::highlights(&self.definition.analyzers, &self.request.query, how, &stored),
            None => Vec::new(),
        };
        Ok(Hit { id, order, fields: self.grouped(stored), highlights })
    }

    /// Values of the same field side by side.
    fn grouped(&self, stored: Vec<(String, StoredValue)>) -> Vec<(String, Vec<StoredValue>)> {
        let mut fields: Vec<(String, Vec<StoredValue>)> = Vec::new();
        let wanted = self.request.include_fields.as_ref();
        for (name, value) in stored.into_iter().filter(|(name, _)| wanted.is_none_or(|wanted| wanted.contains(name))) {
            match fields.iter_mut().find(|(known, _)| *known == name) {
                Some((_, values)) => values.push(value),
                None => fields.push((name, vec![value])),
            }
        }
        fields
    }
}
