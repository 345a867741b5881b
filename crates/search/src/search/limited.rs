//! [`LimitedQuery`]: a query of `tantivy` that ends when its search exceeds a limit. The innermost parts check it.

use tantivy::query::{EmptyScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{
    BitSet, COLLECT_BLOCK_BUFFER_LEN, DocId, DocSet, Score, SeekDangerResult, SegmentReader, TERMINATED, Term,
};

use crate::error::{Error, Result};
use crate::limits::{SearchLimits, Steps};

/// Approximate memory of the scorer of a term, in addition to its postings.
const SCORER_BYTES: usize = 4 << 10;

#[derive(Debug)]
pub(super) struct LimitedQuery {
    query: Box<dyn Query>,
    terms: Vec<Term>,
    has_positions: bool,
    limits: SearchLimits,
}

impl LimitedQuery {
    pub(super) fn new(query: impl Query, limits: &SearchLimits) -> Self {
        Self { query: Box::new(query), terms: Vec::new(), has_positions: false, limits: limits.clone() }
    }

    pub(super) fn of_terms(query: impl Query, terms: Vec<Term>, has_positions: bool, limits: &SearchLimits) -> Self {
        Self { query: Box::new(query), terms, has_positions, limits: limits.clone() }
    }
}

impl Clone for LimitedQuery {
    fn clone(&self) -> Self {
        let Self { query, terms, has_positions, limits } = self;
        let (query, terms) = (query.box_clone(), terms.clone());
        Self { query, terms, has_positions: *has_positions, limits: limits.clone() }
    }
}

impl Query for LimitedQuery {
    fn weight(&self, scoring: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        let Self { query, terms, has_positions, limits } = self;
        let (weight, terms) = (query.weight(scoring)?, terms.clone());
        Ok(Box::new(LimitedWeight { weight, terms, has_positions: *has_positions, limits: limits.clone() }))
    }
}

struct LimitedWeight {
    weight: Box<dyn Weight>,
    terms: Vec<Term>,
    has_positions: bool,
    limits: SearchLimits,
}

impl LimitedWeight {
    fn prepare(&self, reader: &SegmentReader) -> tantivy::Result<()> {
        charge_terms(reader, &self.terms, self.has_positions, &self.limits).map_err(Error::within_tantivy)?;
        Ok(())
    }

    /// `found` is [`SeekDangerResult::Found`] if the scorer is on a document or at its end.
    fn limit_scorer(&self, scorer: Box<dyn Scorer>, found: SeekDangerResult) -> Box<dyn Scorer> {
        // Queries recognize it by its type.
        if scorer.is::<EmptyScorer>() {
            return scorer;
        }
        Box::new(LimitedScorer { scorer, seek_bound: lower_bound(found), steps: self.limits.steps(), is_over: false })
    }
}

pub(super) fn charge_terms(
    reader: &SegmentReader,
    terms: &[Term],
    has_positions: bool,
    limits: &SearchLimits,
) -> Result<u64> {
    let mut entries = 0;
    let mut steps = limits.steps();
    limits.check()?;
    for term in terms {
        steps.take(8)?;
        let info = reader.inverted_index(term.field())?.get_term_info(term).map_err(Error::from_io)?;
        let Some(info) = info else { continue };
        let positions = if has_positions { info.positions_range.len() } else { 0 };
        limits.charge(SCORER_BYTES + info.postings_range.len() + positions)?;
        entries += u64::from(info.doc_freq);
    }
    Ok(entries)
}

pub(super) fn bits(max_doc: DocId, limits: &SearchLimits) -> Result<BitSet> {
    limits.charge(max_doc as usize / 8)?;
    Ok(BitSet::with_max_value(max_doc))
}

impl Weight for LimitedWeight {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        self.prepare(reader)?;
        Ok(self.limit_scorer(self.weight.scorer(reader, boost)?, SeekDangerResult::Found))
    }

    fn scorer_danger(
        &self,
        reader: &SegmentReader,
        target: DocId,
        boost: Score,
    ) -> tantivy::Result<(SeekDangerResult, Box<dyn Scorer>)> {
        self.prepare(reader)?;
        let (found, scorer) = self.weight.scorer_danger(reader, target, boost)?;
        let scorer = self.limit_scorer(scorer, found);
        Ok((found, scorer))
    }

    fn count(&self, reader: &SegmentReader) -> tantivy::Result<u32> {
        self.weight.count(reader)
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        self.weight.explain(reader, doc)
    }
}

struct LimitedScorer {
    scorer: Box<dyn Scorer>,
    /// Lower bound of the next document after a [`DocSet::seek_danger`] without match.
    seek_bound: Option<DocId>,
    steps: Steps,
    is_over: bool,
}

impl LimitedScorer {
    fn is_over(&mut self, steps: usize) -> bool {
        self.is_over = self.is_over || self.steps.take(steps).is_err();
        self.is_over
    }
}

fn lower_bound(found: SeekDangerResult) -> Option<DocId> {
    match found {
        SeekDangerResult::SeekLowerBound(bound) => Some(bound),
        SeekDangerResult::Found => None,
    }
}

impl DocSet for LimitedScorer {
    fn advance(&mut self) -> DocId {
        if self.is_over(1) { TERMINATED } else { self.scorer.advance() }
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.is_over(1) { TERMINATED } else { self.scorer.seek(target) }
    }

    fn seek_danger(&mut self, target: DocId) -> SeekDangerResult {
        if self.is_over(1) {
            return SeekDangerResult::SeekLowerBound(TERMINATED);
        }
        // An exclusion seeks documents before the first one of the excluded scorer; a phrase scorer then panics.
        let bound = self.seek_bound.unwrap_or_else(|| self.scorer.doc());
        if bound > target {
            return SeekDangerResult::SeekLowerBound(bound);
        }
        let found = self.scorer.seek_danger(target);
        self.seek_bound = lower_bound(found);
        found
    }

    fn fill_buffer(&mut self, buffer: &mut [DocId; COLLECT_BLOCK_BUFFER_LEN]) -> usize {
        if self.is_over(COLLECT_BLOCK_BUFFER_LEN) { 0 } else { self.scorer.fill_buffer(buffer) }
    }

    fn doc(&self) -> DocId {
        if self.is_over { TERMINATED } else { self.scorer.doc() }
    }

    fn size_hint(&self) -> u32 {
        self.scorer.size_hint()
    }

    fn cost(&self) -> u64 {
        self.scorer.cost()
    }
}

impl Scorer for LimitedScorer {
    fn score(&mut self) -> Score {
        if self.is_over { 0.0 } else { self.scorer.score() }
    }
}
