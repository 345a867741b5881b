//! [`VisibleDocs`]: the documents of an index that a member of a database with per-document access sees. A reader that is
//! restricted to them answers as if no others existed: not only hits and counts, but also scores, which depend on the
//! frequency of terms, and the types of fields depend on them alone.

use std::collections::HashMap;

use parking_lot::Mutex;
use tantivy::index::SegmentId;
use tantivy::schema::{Field, IndexRecordOption};
use tantivy::{DocId, DocSet, Score, SegmentReader, TERMINATED, Term};

use super::schema::{Layout, column};
use super::strings::Strings;
use crate::error::{Error, Result};
use crate::limits::SearchLimits;
use crate::store::SlotKind;

const DOC_BYTES: usize = size_of::<DocId>();

pub(crate) struct VisibleDocs {
    /// Ascending.
    by_segment: HashMap<SegmentId, Vec<DocId>>,
    limits: SearchLimits,
    /// Numbers of tokens of the fields that were asked for.
    tokens: Mutex<HashMap<Field, u64>>,
}

impl VisibleDocs {
    pub(super) fn new(limits: &SearchLimits) -> Self {
        Self { by_segment: HashMap::new(), limits: limits.clone(), tokens: Mutex::default() }
    }

    /// Adds the documents with these ids, as far as the segments contain them.
    pub(super) fn add(&mut self, segments: &[SegmentReader], id_field: Field, ids: &[&str]) -> Result<()> {
        self.limits.check()?;
        self.limits.charge(ids.len() * DOC_BYTES)?;
        let mut steps = self.limits.steps();
        for segment in segments {
            let index = segment.inverted_index(id_field)?;
            let docs = self.by_segment.entry(segment.segment_id()).or_default();
            for id in ids {
                steps.take(1)?;
                let term = Term::from_field_text(id_field, id);
                let postings = index.read_postings(&term, IndexRecordOption::Basic).map_err(Error::from_io)?;
                let Some(mut postings) = postings else { continue };
                while postings.doc() != TERMINATED {
                    if !segment.is_deleted(postings.doc()) {
                        docs.push(postings.doc());
                    }
                    postings.advance();
                }
            }
        }
        Ok(())
    }

    /// Must be called after the last document was added.
    pub(super) fn sort(&mut self) {
        self.by_segment.values_mut().for_each(|docs| docs.sort_unstable());
    }

    pub(super) fn count(&self) -> u64 {
        self.by_segment.values().map(|docs| docs.len() as u64).sum()
    }

    fn of(&self, segment: &SegmentReader) -> &[DocId] {
        self.by_segment.get(&segment.segment_id()).map(Vec::as_slice).unwrap_or_default()
    }

    /// Returns the documents of a segment as matches without influence on scores.
    pub(crate) fn matches(&self, segment: &SegmentReader) -> Result<Vec<(DocId, Score)>> {
        let docs = self.of(segment);
        self.limits.charge(size_of_val(docs) + docs.len() * size_of::<Score>())?;
        Ok(docs.iter().map(|doc| (*doc, 0.0)).collect())
    }

    /// Number of documents that contain a term.
    pub(super) fn frequency(&self, segments: &[SegmentReader], term: &Term) -> Result<u64> {
        let (mut count, mut steps) = (0, self.limits.steps());
        for segment in segments {
            let index = segment.inverted_index(term.field())?;
            let postings = index.read_postings(term, IndexRecordOption::Basic).map_err(Error::from_io)?;
            let Some(mut postings) = postings else { continue };
            for doc in self.of(segment) {
                steps.take(1)?;
                let at = if postings.doc() < *doc { postings.seek(*doc) } else { postings.doc() };
                count += u64::from(at == *doc);
            }
        }
        Ok(count)
    }

    /// Number of tokens of a field. Each value of a string is one.
    pub(super) fn tokens(&self, segments: &[SegmentReader], field: Field) -> Result<u64> {
        if let Some(tokens) = self.tokens.lock().get(&field) {
            return Ok(*tokens);
        }
        let (mut tokens, mut steps) = (0, self.limits.steps());
        for segment in segments {
            let lengths = segment.fieldnorms_readers().get_field(field)?;
            let strings = match &lengths {
                Some(_) => None,
                None => Strings::open(segment, segment.schema().get_field_name(field))?,
            };
            for doc in self.of(segment) {
                steps.take(1)?;
                tokens += match (&lengths, &strings) {
                    (Some(lengths), _) => u64::from(lengths.fieldnorm(*doc)),
                    (None, Some(strings)) => strings.ords_of(*doc).count() as u64,
                    (None, None) => 0,
                };
            }
        }
        self.tokens.lock().insert(field, tokens);
        Ok(tokens)
    }

    /// Returns for each slot of the layout true if at least one of the documents has it. Slots without columns and
    /// terms, which have no influence on queries, count as missing.
    pub(super) fn slots(&self, segments: &[SegmentReader], layout: &Layout) -> Result<Vec<bool>> {
        let mut used = Vec::with_capacity(layout.slots.len());
        for (number, slot) in layout.slots.iter().enumerate() {
            let mut is_used = false;
            for segment in segments {
                is_used = is_used || self.has(segment, slot.kind, (number, layout.field(number)))?;
            }
            used.push(is_used);
        }
        Ok(used)
    }

    fn has(&self, segment: &SegmentReader, kind: SlotKind, (number, field): (usize, Option<Field>)) -> Result<bool> {
        let mut steps = self.limits.steps();
        let mut any = |has: &dyn Fn(DocId) -> bool| {
            for doc in self.of(segment) {
                steps.take(1)?;
                if has(*doc) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        match kind {
            SlotKind::String | SlotKind::Column => match Strings::open(segment, &column(number))? {
                Some(column) => any(&|doc| column.ords().first(doc).is_some()),
                None => Ok(false),
            },
            SlotKind::Double => match segment.fast_fields().column_opt::<f64>(&column(number))? {
                Some(column) => any(&|doc| column.first(doc).is_some()),
                None => Ok(false),
            },
            SlotKind::Text => match field.map(|field| segment.fieldnorms_readers().get_field(field)).transpose()? {
                Some(Some(lengths)) => any(&|doc| lengths.fieldnorm_id(doc) > 0),
                Some(None) | None => Ok(false),
            },
            SlotKind::Stored | SlotKind::Vector => Ok(false),
        }
    }
}
