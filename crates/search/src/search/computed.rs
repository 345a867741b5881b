//! [`ComputedQuery`]: a query of `tantivy` whose matches in a segment a function computes at once.

use std::fmt;
use std::sync::Arc;

use tantivy::query::{EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::{DocId, DocSet, Score, SegmentReader, TERMINATED, TantivyError};

use crate::error::Result;
use crate::limits::SearchLimits;

pub(super) type MatchFunction = dyn Fn(&SegmentReader) -> tantivy::Result<Vec<(DocId, Score)>> + Send + Sync;

#[derive(Clone)]
pub(super) struct ComputedQuery {
    find: Arc<MatchFunction>,
}

impl ComputedQuery {
    pub(super) fn new(
        find: impl Fn(&SegmentReader) -> tantivy::Result<Vec<(DocId, Score)>> + Send + Sync + 'static,
    ) -> Self {
        Self { find: Arc::new(find) }
    }
}

impl fmt::Debug for ComputedQuery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ByHand")
    }
}

impl Query for ComputedQuery {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for ComputedQuery {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(found((self.find)(reader)?, boost))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("nothing is explained".to_owned()))
    }
}

/// `docs` must be ordered.
pub(super) fn found(docs: Vec<(DocId, Score)>, boost: Score) -> Box<dyn Scorer> {
    Box::new(DocListScorer { docs, at: 0, boost })
}

pub(super) fn push(found: &mut Vec<(DocId, Score)>, doc: DocId, score: Score, limits: &SearchLimits) -> Result<()> {
    if found.len() == found.capacity() {
        limits.charge(found.len().max(64) * size_of::<(DocId, Score)>())?;
    }
    found.push((doc, score));
    Ok(())
}

struct DocListScorer {
    docs: Vec<(DocId, Score)>,
    at: usize,
    boost: Score,
}

impl DocSet for DocListScorer {
    fn advance(&mut self) -> DocId {
        self.at += 1;
        self.doc()
    }

    fn seek(&mut self, target: DocId) -> DocId {
        let rest = self.docs.get(self.at..).unwrap_or_default();
        self.at += rest.partition_point(|(doc, _)| *doc < target);
        self.doc()
    }

    fn doc(&self) -> DocId {
        self.docs.get(self.at).map_or(TERMINATED, |(doc, _)| *doc)
    }

    fn size_hint(&self) -> u32 {
        u32::try_from(self.docs.len()).unwrap_or(u32::MAX)
    }
}

impl Scorer for DocListScorer {
    fn score(&mut self) -> Score {
        self.docs.get(self.at).map_or(0.0, |(_, score)| score * self.boost)
    }
}
