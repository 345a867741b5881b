//! [`Expansion`]: a query for all terms of a field in a set, such as those with a prefix.

use std::ops::Bound;
use std::sync::Arc;
use std::{fmt, io};

use tantivy::postings::TermInfo;
use tantivy::query::{BitSetDocSet, ConstScorer, EnableScoring, Explanation, Query, Scorer, Weight};
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::termdict::{TermDictionary, TermStreamer, WithoutKeys};
use tantivy::{BitSet, DocId, InvertedIndexReader, Score, SegmentReader, TantivyError};

use super::automata::{Fuzzy, Pattern, Utf8};
use super::computed::found;
use crate::error::{Error, Result};
use crate::limits::{SearchLimits, Steps};

#[derive(Clone)]
pub(super) enum Terms {
    Fuzzy(Arc<Utf8<Fuzzy>>),
    Pattern(Arc<Utf8<Pattern>>),
    Between(Bound<String>, Bound<String>),
}

#[derive(Clone)]
pub(super) struct Expansion {
    field: Field,
    terms: Terms,
    limits: SearchLimits,
}

const DOC_BYTES: usize = size_of::<DocId>();

const CHARGED_TOGETHER: usize = 1_024;

impl Expansion {
    pub(super) fn new(field: Field, terms: Terms, limits: &SearchLimits) -> Self {
        Self { field, terms, limits: limits.clone() }
    }

    fn docs(&self, reader: &SegmentReader) -> Result<Docs<'_>> {
        let index = reader.inverted_index(self.field)?;
        let mut docs = Docs { max_doc: reader.max_doc(), limits: &self.limits, few: Vec::new(), many: None };
        let mut steps = self.limits.steps();
        self.limits.check()?;
        self.terms.each(index.terms(), |info| docs.add(&index, info, &mut steps))?;
        // An automaton that fails returns no more terms.
        self.limits.check()?;
        Ok(docs)
    }
}

impl Terms {
    fn each(&self, terms: &TermDictionary, take: impl FnMut(&TermInfo) -> Result<()>) -> Result<()> {
        match self {
            Self::Fuzzy(automaton) => walk(terms.search(&**automaton).without_keys().into_stream(), take),
            Self::Pattern(automaton) => walk(terms.search(&**automaton).without_keys().into_stream(), take),
            Self::Between(lower, upper) => {
                let range = terms.range();
                let range = match lower {
                    Bound::Included(text) => range.ge(text.as_bytes()),
                    Bound::Excluded(text) => range.gt(text.as_bytes()),
                    Bound::Unbounded => range,
                };
                let range = match upper {
                    Bound::Included(text) => range.le(text.as_bytes()),
                    Bound::Excluded(text) => range.lt(text.as_bytes()),
                    Bound::Unbounded => range,
                };
                walk(range.without_keys().into_stream(), take)
            }
        }
    }
}

fn walk<A: tantivy_fst::Automaton>(
    stream: io::Result<TermStreamer<'_, A, WithoutKeys>>,
    mut take: impl FnMut(&TermInfo) -> Result<()>,
) -> Result<()>
where
    A::State: Clone,
{
    let mut stream = stream.map_err(Error::from_io)?;
    while stream.advance() {
        take(stream.value())?;
    }
    Ok(())
}

struct Docs<'a> {
    max_doc: DocId,
    limits: &'a SearchLimits,
    few: Vec<DocId>,
    many: Option<BitSet>,
}

impl Docs<'_> {
    fn add(&mut self, index: &InvertedIndexReader, info: &TermInfo, steps: &mut Steps) -> Result<()> {
        steps.take(1)?;
        let scope = self.limits.scope();
        scope.charge(info.postings_range.len())?;
        let mut postings =
            index.read_block_postings_from_terminfo(info, IndexRecordOption::Basic).map_err(Error::from_io)?;
        while !postings.docs().is_empty() {
            steps.take(postings.docs().len() / 8)?;
            for doc in postings.docs() {
                self.push(*doc)?;
            }
            postings.advance();
        }
        Ok(())
    }

    fn push(&mut self, doc: DocId) -> Result<()> {
        if let Some(many) = &mut self.many {
            many.insert(doc);
            return Ok(());
        }
        if self.few.len().is_multiple_of(CHARGED_TOGETHER) {
            self.limits.charge(CHARGED_TOGETHER * DOC_BYTES)?;
        }
        self.few.push(doc);
        let bits = self.max_doc as usize / 8;
        if self.few.len() * DOC_BYTES > bits.max(CHARGED_TOGETHER * DOC_BYTES) {
            self.limits.charge(bits)?;
            let mut many = BitSet::with_max_value(self.max_doc);
            self.few.drain(..).for_each(|doc| {
                many.insert(doc);
            });
            self.many = Some(many);
        }
        Ok(())
    }

    fn scorer(self, boost: Score) -> Box<dyn Scorer> {
        if let Some(many) = self.many {
            return Box::new(ConstScorer::new(BitSetDocSet::from(many), boost));
        }
        let mut docs = self.few;
        docs.sort_unstable();
        docs.dedup();
        found(docs.into_iter().map(|doc| (doc, 1.0)).collect(), boost)
    }
}

impl fmt::Debug for Expansion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Expansion").field("field", &self.field).finish_non_exhaustive()
    }
}

impl Query for Expansion {
    fn weight(&self, _: EnableScoring<'_>) -> tantivy::Result<Box<dyn Weight>> {
        Ok(Box::new(self.clone()))
    }
}

impl Weight for Expansion {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        Ok(self.docs(reader).map_err(Error::within_tantivy)?.scorer(boost))
    }

    fn explain(&self, _: &SegmentReader, _: DocId) -> tantivy::Result<Explanation> {
        Err(TantivyError::InvalidArgument("nothing is explained".to_owned()))
    }
}

/// Maximum number of terms of a set within intervals, as in Lucene.
const MAX_EXPANSIONS: usize = 128;

pub(super) fn expand(
    segments: &[SegmentReader],
    field: Field,
    terms: &Terms,
    limits: &SearchLimits,
) -> Result<Vec<String>> {
    let mut texts = std::collections::BTreeSet::new();
    for segment in segments {
        let index = segment.inverted_index(field)?;
        limits.check()?;
        let mut ords = Vec::new();
        let dictionary = index.terms();
        let mut take = |ord| {
            ords.push(ord);
            if ords.len() > MAX_EXPANSIONS { Err(too_many()) } else { Ok(()) }
        };
        match terms {
            Terms::Fuzzy(automaton) => {
                ords_of(dictionary.search(&**automaton).without_keys().into_stream(), &mut take)?;
            }
            Terms::Pattern(automaton) => {
                ords_of(dictionary.search(&**automaton).without_keys().into_stream(), &mut take)?;
            }
            Terms::Between(..) => return Err(Error::bad_request("no range is a part of intervals")),
        }
        limits.check()?;
        for ord in ords {
            let mut bytes = Vec::new();
            dictionary.ord_to_term(ord, &mut bytes).map_err(Error::from_io)?;
            texts.insert(String::from_utf8_lossy(&bytes).into_owned());
        }
        if texts.len() > MAX_EXPANSIONS {
            return Err(too_many());
        }
    }
    Ok(texts.into_iter().collect())
}

fn too_many() -> Error {
    Error::bad_request(format!("Automaton expanded to more than {MAX_EXPANSIONS} terms"))
}

fn ords_of<A: tantivy_fst::Automaton>(
    stream: io::Result<TermStreamer<'_, A, WithoutKeys>>,
    take: &mut dyn FnMut(u64) -> Result<()>,
) -> Result<()>
where
    A::State: Clone,
{
    let mut stream = stream.map_err(Error::from_io)?;
    while stream.advance() {
        take(stream.term_ord())?;
    }
    Ok(())
}
