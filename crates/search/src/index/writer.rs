//! [`Writer`] adds documents to segments, stores these, and publishes them with a record.

use std::collections::HashMap;
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use settee_storage::ShardState;
use tantivy::directory::TerminatingWrite;
use tantivy::fastfield::write_alive_bitset;
use tantivy::index::SegmentComponent;
use tantivy::schema::IndexRecordOption;
use tantivy::{BitSet, Directory, DocSet, SegmentReader, TERMINATED, Term};

use super::bloom::Bloom;
use super::schema::Layout;
use super::segment::{self, BuiltSegment, Document, SegmentBuilder};
use super::state::Inner;
use crate::analysis::Dialect;
use crate::error::{Error, Result};
use crate::field::{self, Field, FieldValue};
use crate::store::{FileRecord, Files, Record, SegmentRecord, Slot, SlotKind};

const SEGMENT_BYTES: usize = if cfg!(test) { 3 << 20 } else { 96 << 20 };

/// For a segment with few documents. The limit determines the size of tables in `tantivy`.
const SMALL_SEGMENT_BYTES: usize = 1 << 20;

/// Documents are collected so that new fields are declared together.
const WAITING_DOCUMENTS: usize = if cfg!(test) { 10 } else { 1_000 };
const WAITING_BYTES: usize = 4 << 20;

/// At most one writer of an index may exist. It must be dropped after an error, with its uncommitted changes.
pub struct Writer {
    pub(super) inner: Arc<Inner>,
    pub(super) record: Record,
    was_entry: bool,
    /// Includes fields that are not in the layout yet.
    kinds: HashMap<String, Vec<SlotKind>>,
    slots: Vec<Slot>,
    pub(super) layout: Layout,
    pub(super) index: tantivy::Index,
    pub(super) files: Files,
    waiting: Vec<Change>,
    waiting_bytes: usize,
    segment_builder: Option<SegmentBuilder>,
    pub(super) parts: Vec<Part>,
    pub(super) obsolete: Vec<FileRecord>,
}

enum Change {
    Put(Document),
    Delete(String),
}

#[derive(Default)]
pub(super) struct Part {
    pub(super) reader: Option<SegmentReader>,
    /// Set if documents were deleted since the last commit.
    pub(super) alive: Option<BitSet>,
    pub(super) bloom: Option<Bloom>,
}

impl Writer {
    pub(super) fn open(inner: Arc<Inner>, first_file: u64) -> Result<Option<Self>> {
        let found = inner.file_store.find()?;
        let record = match found.record {
            Some(record) => record,
            None if found.state == ShardState::default() => Record::default(),
            None => return Ok(None),
        };
        inner.file_store.begin(found.state, record.next_file.max(first_file));
        let layout = Layout::new(record.slots.clone());
        let files = Files::of(&inner.file_store, &record, true);
        let index = layout.open(files.clone(), &inner.definition)?;
        let mut kinds: HashMap<String, Vec<SlotKind>> = HashMap::new();
        for slot in &record.slots {
            kinds.entry(slot.name.clone()).or_default().push(slot.kind);
        }
        let left = inner.left.lock().take().filter(|(state, _)| *state == found.state);
        let must_clear = left.is_none();
        let writer = Self {
            slots: record.slots.clone(),
            parts: record.segments.iter().map(|_| Part::default()).collect(),
            was_entry: found.is_entry,
            waiting: Vec::new(),
            waiting_bytes: 0,
            segment_builder: None,
            obsolete: left.map_or_else(Vec::new, |(_, files)| files),
            inner,
            record,
            kinds,
            layout,
            index,
            files,
        };
        if must_clear {
            writer.clear_leftovers()?;
        }
        Ok(Some(writer))
    }

    #[must_use]
    pub fn position(&self) -> Option<&[u8]> {
        self.record.position.as_deref()
    }

    /// Replaces the fields of a document; without fields, the document is removed. [`Error::TypeConflict`] and
    /// [`Error::BadField`] have no effect, and the writer remains usable.
    pub fn update(&mut self, id: &str, partition: Option<&str>, mut fields: Vec<Field>) -> Result<()> {
        if fields.is_empty() {
            return self.delete(id);
        }
        field::check(&fields)?;
        self.prepare_vectors(&mut fields)?;
        self.declare(&fields)?;
        let bytes = |field: &Field| match &field.value {
            FieldValue::Text(text) | FieldValue::String(text) => text.len() + 100,
            FieldValue::Double(_) | FieldValue::Stored(_) => 100,
            FieldValue::Vector(vector) => 4 * vector.len() + 100,
        };
        self.waiting_bytes += id.len() + fields.iter().map(bytes).sum::<usize>();
        let partition = partition.map(str::to_owned);
        self.wait(Change::Put(Document { id: id.to_owned(), partition, fields }))
    }

    fn prepare_vectors(&self, fields: &mut [Field]) -> Result<()> {
        let mut seen = HashSet::new();
        for Field { name, value, .. } in fields {
            let FieldValue::Vector(vector) = value else { continue };
            let known = self.inner.definition.vectors_of(name);
            let known = known.ok_or_else(|| {
                Error::BadField(format!("field {name} is a vector and not among the `vectors` of the index"))
            })?;
            if !seen.insert(&*name) {
                return Err(Error::BadField(format!("field {name} has more than one vector")));
            }
            *vector = known.prepare(std::mem::take(vector))?;
        }
        Ok(())
    }

    pub fn delete(&mut self, id: &str) -> Result<()> {
        self.wait(Change::Delete(id.to_owned()))
    }

    /// Publishes all changes since the last commit atomically with the position. A crash may lose the last commits.
    pub fn commit(&mut self, position: &[u8]) -> Result<()> {
        let outcome = self.try_commit(position);
        self.inner.file_store.with_store_error(outcome)
    }

    fn try_commit(&mut self, position: &[u8]) -> Result<()> {
        self.flush()?;
        self.finish()?;
        self.store_deletes()?;
        self.merge_small()?;
        self.record.position = Some(position.to_vec());
        self.publish()
    }

    pub(super) fn publish(&mut self) -> Result<()> {
        self.record.generation += 1;
        self.record.next_file = self.inner.file_store.next_file();
        self.record.slots.clone_from(&self.slots);
        self.was_entry = self.inner.file_store.publish(&self.record, self.was_entry)?;
        self.sweep()?;
        *self.inner.left.lock() = Some((self.inner.file_store.state(), self.obsolete.clone()));
        Ok(())
    }

    fn wait(&mut self, change: Change) -> Result<()> {
        self.waiting.push(change);
        if self.waiting.len() < WAITING_DOCUMENTS && self.waiting_bytes < WAITING_BYTES {
            return Ok(());
        }
        let outcome = self.flush();
        self.inner.file_store.with_store_error(outcome)
    }

    /// Declares new fields. If one is rejected, none is declared.
    fn declare(&mut self, fields: &[Field]) -> Result<()> {
        let known = self.slots.len();
        for field in fields {
            if let Err(error) = self.declare_one(field) {
                for slot in self.slots.drain(known..) {
                    if let Some(kinds) = self.kinds.get_mut(&slot.name) {
                        kinds.retain(|kind| *kind != slot.kind);
                    }
                }
                return Err(error);
            }
        }
        Ok(())
    }

    fn declare_one(&mut self, field: &Field) -> Result<()> {
        let kind = match &field.value {
            FieldValue::Text(_) => SlotKind::Text,
            FieldValue::String(_) => SlotKind::String,
            FieldValue::Double(_) => SlotKind::Double,
            FieldValue::Stored(_) => SlotKind::Stored,
            FieldValue::Vector(_) => SlotKind::Vector,
        };
        let is_faceted = kind == SlotKind::Text && field.options.facet;
        let kinds = self.kinds.get(&field.name).map_or(&[][..], Vec::as_slice);
        let (has, has_column) = (kinds.contains(&kind), kinds.contains(&SlotKind::Column));
        if has && (has_column || !is_faceted) {
            return Ok(());
        }
        let other = kinds.iter().copied().find(|other| *other != kind && *other != SlotKind::Column);
        if let Some(other) = other.and_then(SlotKind::field_kind)
            && self.inner.definition.dialect == Dialect::Nouveau
        {
            let (field, found) = (field.name.clone(), field.value.kind().name());
            return Err(Error::TypeConflict { field, found, expected: other.name() });
        }
        Layout::check_room(&self.slots)?;
        for (wanted, kind) in [(!has, kind), (is_faceted && !has_column, SlotKind::Column)] {
            if wanted {
                self.slots.push(Slot { name: field.name.clone(), kind });
                self.kinds.entry(field.name.clone()).or_default().push(kind);
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.slots.len() > self.layout.slots.len() {
            self.finish()?;
            self.layout = Layout::new(self.slots.clone());
            self.index = self.layout.open(self.files.clone(), &self.inner.definition)?;
        }
        self.waiting_bytes = 0;
        let waiting = std::mem::take(&mut self.waiting);
        let memory = if waiting.len() < WAITING_DOCUMENTS { SMALL_SEGMENT_BYTES } else { SEGMENT_BYTES };
        for change in waiting {
            match change {
                Change::Put(document) => {
                    self.delete_stored(&document.id)?;
                    let segment_builder = match &mut self.segment_builder {
                        Some(segment_builder) => segment_builder,
                        none => none.insert(SegmentBuilder::new(&self.index, memory)?),
                    };
                    segment_builder.add(&self.layout, &document)?;
                    if segment_builder.memory_bytes() >= SEGMENT_BYTES {
                        self.finish()?;
                        self.merge_many()?;
                    }
                }
                Change::Delete(id) => {
                    self.delete_stored(&id)?;
                    if let Some(segment_builder) = &mut self.segment_builder {
                        segment_builder.delete(&id);
                    }
                }
            }
        }
        Ok(())
    }

    fn delete_stored(&mut self, id: &str) -> Result<()> {
        for (part, record) in self.parts.iter_mut().zip(&self.record.segments) {
            if part.may_contain(&self.index, record, id)? {
                part.delete(&self.index, record, &Term::from_field_text(self.layout.id, id))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let Some(segment_builder) = self.segment_builder.take() else { return Ok(()) };
        let BuiltSegment { segment, dead, bloom } = segment_builder.finish(&self.layout, &self.inner.definition)?;
        let meta = segment.meta();
        let (id, docs) = (meta.id().uuid_string(), meta.max_doc());
        let mut part = Part { bloom: Some(bloom), ..Part::default() };
        if !dead.is_empty() {
            let mut alive = BitSet::with_max_value_and_full(docs);
            dead.into_iter().for_each(|doc| alive.remove(doc));
            part.alive = Some(alive);
        }
        let files = self.files.named(&id);
        self.push_segment(SegmentRecord { id, docs, deleted: 0, deleted_at: 0, slots: 0, files }, part);
        Ok(())
    }

    pub(super) fn push_segment(&mut self, mut segment: SegmentRecord, part: Part) {
        segment.slots = u32::try_from(self.layout.slots.len()).unwrap_or(u32::MAX);
        self.record.segments.push(segment);
        self.parts.push(part);
    }

    /// The files are removed once no search reads them.
    pub(super) fn take_segment(&mut self, at: usize) {
        let segment = self.record.segments.remove(at);
        self.obsolete.extend(segment.files);
        self.parts.remove(at);
    }

    pub(super) fn store_deletes(&mut self) -> Result<()> {
        let generation = self.record.generation + 1;
        for at in (0..self.parts.len()).rev() {
            let Some(alive) = self.parts[at].alive.take() else { continue };
            let segment = &mut self.record.segments[at];
            let count = u32::try_from(alive.len()).unwrap_or(u32::MAX);
            if count == 0 {
                self.take_segment(at);
                continue;
            }
            let former = segment.files.iter().position(|file| file.name.ends_with(".del"));
            if let Some(former) = former {
                let former = segment.files.remove(former);
                // The former file must not be found among those of the segment.
                let _ = self.files.delete(former.name.as_ref());
                self.obsolete.push(former);
            }
            (segment.deleted, segment.deleted_at) = (segment.docs - count, generation);
            let mut file = segment::open(&self.index, segment)?
                .open_write(SegmentComponent::Delete)
                .map_err(tantivy::TantivyError::from)?;
            write_alive_bitset(&alive, &mut file).and_then(|()| file.terminate()).map_err(Error::from_io)?;
            segment.files = self.files.named(&segment.id);
            self.parts[at].reader = None;
        }
        Ok(())
    }

    fn sweep(&mut self) -> Result<()> {
        if self.obsolete.is_empty() {
            return Ok(());
        }
        let read = self.files_being_read();
        let (later, now) = std::mem::take(&mut self.obsolete).into_iter().partition(|file| read.contains(&file.number));
        self.obsolete = later;
        self.inner.file_store.remove_files(&now)
    }

    fn files_being_read(&self) -> HashSet<u64> {
        let live = self.inner.live.lock();
        let readers = live.iter().filter_map(std::sync::Weak::upgrade);
        readers.flat_map(|reader| reader.record().files().map(|file| file.number).collect::<Vec<_>>()).collect()
    }

    fn clear_leftovers(&self) -> Result<()> {
        let mut used = self.files_being_read();
        used.extend(self.record.files().map(|file| file.number));
        let mut used: Vec<_> = used.into_iter().collect();
        used.sort_unstable();
        let mut gaps: Vec<Range<u64>> = Vec::new();
        let mut from = 0;
        for number in used.into_iter().chain([u64::MAX]) {
            if number > from {
                gaps.push(from..number);
            }
            from = number.saturating_add(1);
        }
        gaps.into_iter().try_for_each(|gap| self.inner.file_store.remove(gap))
    }
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("segments", &self.record.segments.len()).finish_non_exhaustive()
    }
}

impl Part {
    fn may_contain(&mut self, index: &tantivy::Index, record: &SegmentRecord, id: &str) -> Result<bool> {
        if self.bloom.is_none() {
            self.bloom = Bloom::open(index.directory(), record)?;
        }
        self.bloom.as_ref().map_or(Ok(true), |bloom| bloom.may_contain(id))
    }

    fn delete(&mut self, index: &tantivy::Index, record: &SegmentRecord, term: &Term) -> Result<()> {
        let reader = match &mut self.reader {
            Some(reader) => reader,
            none => none.insert(SegmentReader::open(&segment::open(index, record)?)?),
        };
        let ids = reader.inverted_index(term.field())?;
        let Some(mut docs) = ids.read_postings(term, IndexRecordOption::Basic).map_err(Error::from_io)? else {
            return Ok(());
        };
        let mut doc = docs.doc();
        while doc != TERMINATED {
            if !reader.is_deleted(doc) {
                self.alive.get_or_insert_with(|| alive(reader)).remove(doc);
            }
            doc = docs.advance();
        }
        Ok(())
    }
}

fn alive(reader: &SegmentReader) -> BitSet {
    let mut alive = BitSet::with_max_value_and_full(reader.max_doc());
    if let Some(stored) = reader.alive_bitset() {
        (0..reader.max_doc()).filter(|&doc| stored.is_deleted(doc)).for_each(|doc| alive.remove(doc));
    }
    alive
}
