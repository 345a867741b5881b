//! Segments: [`SegmentBuilder`] in memory, and stored ones.

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use settee_storage::codec::{Reader, put_bytes, put_varint};
use tantivy::directory::{Directory, TerminatingWrite};
use tantivy::indexer::{AddOperation, SegmentWriter};
use tantivy::schema::Value;
use tantivy::{DocId, Segment, TantivyDocument};

use super::bloom::Bloom;
use super::definition::Definition;
use super::schema::Layout;
use crate::error::{Error, Result};
use crate::field::{Field, FieldValue, StoredValue};
use crate::store::{SegmentRecord, SlotKind, VECTORS};
use crate::vectors::{VectorFile, VectorSet};

pub(super) struct Document {
    pub(super) id: String,
    pub(super) partition: Option<String>,
    pub(super) fields: Vec<Field>,
}

pub(super) struct SegmentBuilder {
    writer: SegmentWriter,
    segment: Segment,
    ids: HashMap<String, DocId>,
    dead: Vec<DocId>,
    id_bytes: usize,
    vectors: BTreeMap<usize, VectorSet>,
}

pub(super) struct BuiltSegment {
    pub(super) segment: Segment,
    pub(super) dead: Vec<DocId>,
    pub(super) bloom: Bloom,
}

impl SegmentBuilder {
    pub(super) fn new(index: &tantivy::Index, memory_bytes: usize) -> Result<Self> {
        let segment = index.new_segment();
        let writer = SegmentWriter::for_segment(memory_bytes, segment.clone())?;
        let (ids, dead, vectors) = Default::default();
        Ok(Self { writer, segment, ids, dead, id_bytes: 0, vectors })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.writer.mem_usage() + self.id_bytes + self.vectors.values().map(VectorSet::size_bytes).sum::<usize>()
    }

    pub(super) fn add(&mut self, layout: &Layout, document: &Document) -> Result<()> {
        let doc = self.writer.max_doc();
        self.writer.add_document(AddOperation { opstamp: 0, document: convert(layout, document) })?;
        for field in &document.fields {
            if let FieldValue::Vector(vector) = &field.value
                && let Some(slot) = layout.find(&field.name, SlotKind::Vector)
            {
                self.vectors.entry(slot).or_default().push(doc, vector);
            }
        }
        self.id_bytes += 2 * document.id.len() + 64;
        if let Some(replaced) = self.ids.insert(document.id.clone(), doc) {
            self.dead.push(replaced);
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, id: &str) {
        self.dead.extend(self.ids.remove(id));
    }

    pub(super) fn finish(self, layout: &Layout, definition: &Definition) -> Result<BuiltSegment> {
        let docs = self.writer.max_doc();
        self.writer.finalize()?;
        let (index, id) = (self.segment.index(), self.segment.id().uuid_string());
        write_vectors(index.directory(), &id, layout, definition, self.vectors)?;
        let mut bloom = Bloom::with_room(self.ids.len());
        self.ids.keys().for_each(|id| bloom.add(id.as_bytes()));
        bloom.write(index.directory(), &id)?;
        Ok(BuiltSegment { segment: self.segment.with_max_doc(docs), dead: self.dead, bloom })
    }
}

pub(super) fn write_vectors(
    directory: &dyn Directory,
    segment: &str,
    layout: &Layout,
    definition: &Definition,
    vectors: BTreeMap<usize, VectorSet>,
) -> Result<()> {
    for (slot, vectors) in vectors {
        let known = layout.slots.get(slot).and_then(|slot| definition.vectors_of(&slot.name));
        let known = known.ok_or_else(|| Error::Corrupt("vectors that are not defined".to_owned()))?;
        let path = PathBuf::from(name_of_vectors(segment, slot));
        let mut out = directory.open_write(&path).map_err(tantivy::TantivyError::from)?;
        vectors.write(known, &mut out)?;
        out.terminate().map_err(Error::from_io)?;
    }
    Ok(())
}

pub(super) fn open_vectors(
    directory: &dyn Directory,
    segment: &SegmentRecord,
    slot: usize,
) -> Result<Option<VectorFile>> {
    let name = name_of_vectors(&segment.id, slot);
    if segment.files.iter().all(|file| file.name != name) {
        return Ok(None);
    }
    let file = directory.open_read(name.as_ref()).map_err(tantivy::TantivyError::from)?;
    VectorFile::open(&file).map(Some)
}

fn name_of_vectors(segment: &str, slot: usize) -> String {
    format!("{segment}.{slot}{VECTORS}")
}

pub(super) fn open(index: &tantivy::Index, record: &SegmentRecord) -> Result<Segment> {
    let id = tantivy::index::SegmentId::from_uuid_string(&record.id)
        .map_err(|_| Error::Corrupt("the name of a segment".to_owned()))?;
    let meta = index.new_segment_meta(id, record.docs);
    let meta = if record.deleted == 0 { meta } else { meta.with_delete_meta(record.deleted, record.deleted_at) };
    Ok(index.segment(meta))
}

fn convert(layout: &Layout, document: &Document) -> TantivyDocument {
    let mut out = TantivyDocument::new();
    out.add_text(layout.id, &document.id);
    if let Some(partition) = &document.partition {
        out.add_text(layout.partition, partition);
    }
    let mut stored = Vec::new();
    for field in &document.fields {
        let place = |kind| layout.find(&field.name, kind).and_then(|number| layout.field(number));
        match &field.value {
            FieldValue::Text(text) => {
                if let Some(place) = place(SlotKind::Text).filter(|_| field.options.index) {
                    out.add_text(place, text);
                }
                if let Some(place) = place(SlotKind::Column).filter(|_| field.options.facet) {
                    out.add_text(place, text);
                }
            }
            FieldValue::String(text) => {
                if let Some(place) = place(SlotKind::String) {
                    out.add_text(place, text);
                }
            }
            FieldValue::Double(number) => {
                if let Some(place) = place(SlotKind::Double) {
                    // Converts negative zero to zero.
                    out.add_f64(place, number + 0.0);
                }
            }
            FieldValue::Stored(_) | FieldValue::Vector(_) => {}
        }
        push_stored(&mut stored, field);
    }
    if !stored.is_empty() {
        out.add_bytes(layout.stored, &stored);
    }
    out
}

fn push_stored(out: &mut Vec<u8>, field: &Field) {
    let is_stored = field.options.store || matches!(field.value, FieldValue::Stored(_));
    if !is_stored {
        return;
    }
    let string = |out: &mut Vec<u8>, text: &str| {
        put_bytes(out, field.name.as_bytes());
        out.push(0);
        put_bytes(out, text.as_bytes());
    };
    match &field.value {
        FieldValue::Text(text) | FieldValue::String(text) | FieldValue::Stored(StoredValue::String(text)) => {
            string(out, text);
        }
        FieldValue::Double(number) | FieldValue::Stored(StoredValue::Double(number)) => {
            put_bytes(out, field.name.as_bytes());
            out.push(1);
            out.extend_from_slice(&number.to_be_bytes());
        }
        FieldValue::Stored(StoredValue::Bool(value)) => {
            put_bytes(out, field.name.as_bytes());
            out.push(2);
            put_varint(out, u64::from(*value));
        }
        FieldValue::Vector(_) => {}
    }
}

pub(super) fn stored(document: &TantivyDocument, layout: &Layout) -> Result<Vec<(String, StoredValue)>> {
    let mut values = Vec::new();
    for value in document.get_all(layout.stored) {
        let bytes = value.as_bytes().ok_or_else(|| Error::Corrupt("stored fields".to_owned()))?;
        let mut reader = Reader::new(bytes, "field of a hit");
        while !reader.is_at_end() {
            let name = reader.text()?.to_owned();
            let value = match reader.byte()? {
                0 => StoredValue::String(reader.text()?.to_owned()),
                1 => StoredValue::Double(f64::from_be_bytes(reader.array()?)),
                _ => StoredValue::Bool(reader.varint()? == 1),
            };
            values.push((name, value));
        }
    }
    Ok(values)
}
