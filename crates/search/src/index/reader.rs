//! [`Reader`]: the opened segments of one record.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tantivy::query::Bm25StatisticsProvider;
use tantivy::schema::Field;
use tantivy::store::StoreReader;
use tantivy::{DocId, Searcher, SegmentReader, Term};

use super::definition::Definition;
use super::schema::{ID, Layout};
use super::segment;
use super::strings::Strings;
use super::visible::VisibleDocs;
use crate::error::{Error, Result};
use crate::field::StoredValue;
use crate::limits::SearchLimits;
use crate::store::{FileStore, Files, Record, SegmentRecord};
use crate::vectors::VectorFile;

/// Opened files of vectors by segment and slot; `None` if the file does not exist.
type OpenedVectors = HashMap<(usize, usize), Option<Arc<VectorFile>>>;

pub(crate) struct SegmentValues {
    pub(crate) ids: Strings,
    store: StoreReader,
}

pub(crate) struct Reader {
    record: Record,
    layout: Layout,
    segments: Vec<SegmentReader>,
    /// `tantivy` requires a searcher for the schema; it has no segments.
    searcher: Searcher,
    index: tantivy::Index,
    vectors: Arc<Mutex<OpenedVectors>>,
    restriction: Option<Restriction>,
    /// Maximum length of a file of vectors that is cached as a whole; longer files are read node by node.
    pub(crate) longest_vectors: usize,
}

/// A restricted reader keeps the unrestricted one, because the files of readers in use are not removed.
struct Restriction {
    visible: Arc<VisibleDocs>,
    _whole: Arc<Reader>,
}

impl Reader {
    pub(super) fn open(
        file_store: &Arc<FileStore>,
        definition: &Definition,
        record: Record,
        previous: Option<&Self>,
    ) -> Result<Self> {
        let layout = Layout::new(record.slots.clone());
        let index = layout.open(Files::of(file_store, &record, true), definition)?;
        let searcher = index.reader_builder().reload_policy(tantivy::ReloadPolicy::Manual).try_into()?.searcher();
        let previous = previous.filter(|previous| previous.record.slots == record.slots);
        let open = |segment: &SegmentRecord| match previous.and_then(|previous| previous.shared(segment)) {
            Some(opened) => Ok(opened),
            None => Ok(SegmentReader::open(&segment::open(&index, segment)?)?),
        };
        let segments = record.segments.iter().map(open).collect::<Result<_>>()?;
        let (vectors, longest_vectors) = (Arc::default(), file_store.longest_vectors());
        Ok(Self { record, layout, segments, searcher, index, vectors, restriction: None, longest_vectors })
    }

    /// Returns a reader of the documents whose ids `ids` passes to its argument.
    pub(super) fn restricted<E: From<Error>>(
        self: &Arc<Self>,
        limits: &SearchLimits,
        ids: impl FnOnce(&mut dyn FnMut(&[&str]) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let mut visible = VisibleDocs::new(limits);
        ids(&mut |ids| Ok(visible.add(&self.segments, self.layout.id, ids)?))?;
        visible.sort();
        let layout = self.layout.restricted(&visible.slots(&self.segments, &self.layout)?);
        Ok(Self {
            record: self.record.clone(),
            layout,
            segments: self.segments.clone(),
            searcher: self.searcher.clone(),
            index: self.index.clone(),
            vectors: Arc::clone(&self.vectors),
            restriction: Some(Restriction { visible: Arc::new(visible), _whole: Arc::clone(self) }),
            longest_vectors: self.longest_vectors,
        })
    }

    /// The documents to which the reader is restricted; `None` for a reader of all documents.
    pub(crate) fn visible(&self) -> Option<&Arc<VisibleDocs>> {
        self.restriction.as_ref().map(|restriction| &restriction.visible)
    }

    fn shared(&self, segment: &SegmentRecord) -> Option<SegmentReader> {
        let at = self.record.segments.iter().position(|known| known == segment)?;
        self.segments.get(at).cloned()
    }

    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    pub(crate) fn segments(&self) -> &[SegmentReader] {
        &self.segments
    }

    pub(crate) fn searcher(&self) -> &Searcher {
        &self.searcher
    }

    pub(crate) fn values(&self, segment: usize) -> Result<SegmentValues> {
        let ids = Strings::open(&self.segments[segment], ID)?;
        let ids = ids.ok_or_else(|| Error::Corrupt("a segment has no ids".to_owned()))?;
        let store = self.segments[segment].get_store_reader(4).map_err(Error::from_io)?;
        Ok(SegmentValues { ids, store })
    }

    pub(crate) fn stored(&self, values: &SegmentValues, doc: DocId) -> Result<Vec<(String, StoredValue)>> {
        let document: tantivy::TantivyDocument = values.store.get(doc)?;
        segment::stored(&document, &self.layout)
    }

    pub(crate) fn vectors(&self, segment: usize, slot: usize) -> Result<Option<Arc<VectorFile>>> {
        if let Some(opened) = self.vectors.lock().get(&(segment, slot)) {
            return Ok(opened.clone());
        }
        let record = &self.record.segments[segment];
        let opened = segment::open_vectors(self.index.directory(), record, slot)?.map(Arc::new);
        Ok(self.vectors.lock().entry((segment, slot)).or_insert(opened).clone())
    }
}

impl Bm25StatisticsProvider for Reader {
    fn total_num_tokens(&self, field: Field) -> tantivy::Result<u64> {
        if let Some(visible) = self.visible() {
            return visible.tokens(&self.segments, field).map_err(Error::within_tantivy);
        }
        self.segments.iter().map(|segment| Ok(segment.inverted_index(field)?.total_num_tokens())).sum()
    }

    fn total_num_docs(&self) -> tantivy::Result<u64> {
        if let Some(visible) = self.visible() {
            // An average length is divided by the number.
            return Ok(visible.count().max(1));
        }
        Ok(self.segments.iter().map(|segment| u64::from(segment.max_doc())).sum())
    }

    fn doc_freq(&self, term: &Term) -> tantivy::Result<u64> {
        if let Some(visible) = self.visible() {
            return visible.frequency(&self.segments, term).map_err(Error::within_tantivy);
        }
        let count = |segment: &SegmentReader| Ok(u64::from(segment.inverted_index(term.field())?.doc_freq(term)?));
        self.segments.iter().map(count).sum()
    }
}
