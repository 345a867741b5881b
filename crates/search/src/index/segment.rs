//! Segments one by one: how documents are put into one that grows in memory, and how one that is stored is opened.

use std::collections::HashMap;

use tantivy::indexer::{AddOperation, SegmentWriter};
use tantivy::schema::Value;
use tantivy::{DocId, Segment, TantivyDocument};

use super::bloom::Bloom;
use super::schema::Layout;
use crate::error::{Error, Result};
use crate::field::{Field, FieldValue, StoredValue};
use crate::store::codec::{Reader, push_bytes, push_number};
use crate::store::{SegmentRecord, SlotKind};

/// A document to be indexed.
pub(super) struct Document {
    pub(super) id: String,
    pub(super) partition: Option<String>,
    pub(super) fields: Vec<Field>,
}

/// A segment that grows in memory.
pub(super) struct Growing {
    writer: SegmentWriter,
    segment: Segment,
    /// The newest document of each id.
    ids: HashMap<String, DocId>,
    /// Documents that were replaced since.
    dead: Vec<DocId>,
    id_bytes: usize,
}

/// A segment as it was stored.
pub(super) struct Grown {
    pub(super) segment: Segment,
    pub(super) dead: Vec<DocId>,
    pub(super) bloom: Bloom,
}

impl Growing {
    pub(super) fn new(index: &tantivy::Index, memory_bytes: usize) -> Result<Self> {
        let segment = index.new_segment();
        let writer = SegmentWriter::for_segment(memory_bytes, segment.clone())?;
        Ok(Self { writer, segment, ids: HashMap::new(), dead: Vec::new(), id_bytes: 0 })
    }

    pub(super) fn memory_bytes(&self) -> usize {
        self.writer.mem_usage() + self.id_bytes
    }

    pub(super) fn add(&mut self, layout: &Layout, document: &Document) -> Result<()> {
        let doc = self.writer.max_doc();
        self.writer.add_document(AddOperation { opstamp: 0, document: convert(layout, document) })?;
        self.id_bytes += 2 * document.id.len() + 64;
        if let Some(replaced) = self.ids.insert(document.id.clone(), doc) {
            self.dead.push(replaced);
        }
        Ok(())
    }

    pub(super) fn delete(&mut self, id: &str) {
        self.dead.extend(self.ids.remove(id));
    }

    /// Stores it.
    pub(super) fn finish(self) -> Result<Grown> {
        let docs = self.writer.max_doc();
        self.writer.finalize()?;
        let bloom = Bloom::of(self.ids.keys().map(String::as_str));
        Ok(Grown { segment: self.segment.with_max_doc(docs), dead: self.dead, bloom })
    }
}

/// A stored segment.
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
                    // There is one zero.
                    out.add_f64(place, number + 0.0);
                }
            }
            FieldValue::Stored(_) => {}
        }
        push_stored(&mut stored, field);
    }
    if !stored.is_empty() {
        out.add_bytes(layout.stored, &stored);
    }
    out
}

/// Appends what is to come back with hits.
fn push_stored(out: &mut Vec<u8>, field: &Field) {
    let is_stored = field.options.store || matches!(field.value, FieldValue::Stored(_));
    if !is_stored {
        return;
    }
    let string = |out: &mut Vec<u8>, text: &str| {
        push_bytes(out, field.name.as_bytes());
        out.push(0);
        push_bytes(out, text.as_bytes());
    };
    match &field.value {
        FieldValue::Text(text) | FieldValue::String(text) | FieldValue::Stored(StoredValue::String(text)) => {
            string(out, text);
        }
        FieldValue::Double(number) | FieldValue::Stored(StoredValue::Double(number)) => {
            push_bytes(out, field.name.as_bytes());
            out.push(1);
            out.extend_from_slice(&number.to_be_bytes());
        }
        FieldValue::Stored(StoredValue::Bool(value)) => {
            push_bytes(out, field.name.as_bytes());
            out.push(2);
            push_number(out, u64::from(*value));
        }
    }
}

/// What [`push_stored`] appended.
pub(super) fn stored(document: &TantivyDocument, layout: &Layout) -> Result<Vec<(String, StoredValue)>> {
    let mut values = Vec::new();
    for value in document.get_all(layout.stored) {
        let bytes = value.as_bytes().ok_or_else(|| Error::Corrupt("stored fields".to_owned()))?;
        let mut reader = Reader::new(bytes);
        while !reader.is_at_end() {
            let name = reader.text()?;
            let value = match reader.byte()? {
                0 => StoredValue::String(reader.text()?),
                1 => StoredValue::Double(f64::from_be_bytes(reader.fixed()?)),
                _ => StoredValue::Bool(reader.number()? == 1),
            };
            values.push((name, value));
        }
    }
    Ok(values)
}
