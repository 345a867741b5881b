//! [`Layout`]: the fields of an index in `tantivy`, named by number in the order of their first use. A field is empty
//! in older segments.

use tantivy::schema::{BytesOptions, Field, IndexRecordOption, NumericOptions, Schema, TextFieldIndexing, TextOptions};
use tantivy::tokenizer::{RawTokenizer, TextAnalyzer, TokenizerManager};

use crate::error::{Error, Result};
use crate::field::{FieldKind, MAX_FIELDS};
use crate::index::definition::Definition;
use crate::store::{Files, Slot, SlotKind};
use crate::syntax::Fields;

#[derive(Clone)]
pub(crate) struct Layout {
    pub(crate) slots: Vec<Slot>,
    fields: Vec<Option<Field>>,
    /// Slots that queries must not use, because no visible document has them. Later slots may be used.
    hidden: Vec<bool>,
    pub(crate) schema: Schema,
    pub(crate) id: Field,
    pub(crate) partition: Field,
    pub(crate) stored: Field,
}

pub(crate) const ID: &str = "_id";
pub(crate) const PARTITION: &str = "_partition";

impl Layout {
    pub(crate) fn new(slots: Vec<Slot>) -> Self {
        let mut builder = Schema::builder();
        let id = builder.add_text_field(ID, strings().set_fast("raw"));
        let partition = builder.add_text_field(PARTITION, strings());
        let stored = builder.add_bytes_field("_fields", BytesOptions::default().set_stored());
        let fields = slots.iter().enumerate().map(|(number, slot)| {
            let name = column(number);
            Some(match slot.kind {
                SlotKind::Text => {
                    let indexing = TextFieldIndexing::default()
                        .set_tokenizer(&name)
                        .set_index_option(IndexRecordOption::WithFreqsAndPositions)
                        .set_fieldnorms(true);
                    builder.add_text_field(&name, TextOptions::default().set_indexing_options(indexing))
                }
                SlotKind::String => builder.add_text_field(&name, strings().set_fast("raw")),
                SlotKind::Column => builder.add_text_field(&name, TextOptions::default().set_fast("raw")),
                SlotKind::Double => builder.add_f64_field(&name, NumericOptions::default().set_fast()),
                SlotKind::Stored | SlotKind::Vector => return None,
            })
        });
        let fields = fields.collect();
        Self { slots, fields, hidden: Vec::new(), id, partition, stored, schema: builder.build() }
    }

    pub(crate) fn open(&self, files: Files, definition: &Definition) -> Result<tantivy::Index> {
        let settings = tantivy::IndexSettings {
            docstore_compression: tantivy::store::Compressor::None,
            docstore_compress_dedicated_thread: false,
            ..tantivy::IndexSettings::default()
        };
        let mut index = tantivy::Index::create(files, self.schema.clone(), settings)?;
        let tokenizers = TokenizerManager::new();
        tokenizers.register("raw", TextAnalyzer::builder(RawTokenizer::default()).build());
        // Fields without terms use the default name.
        tokenizers.register("default", TextAnalyzer::builder(RawTokenizer::default()).build());
        for (number, slot) in self.slots.iter().enumerate().filter(|(_, slot)| slot.kind == SlotKind::Text) {
            tokenizers.register(&column(number), definition.analyzers.of(&slot.name).chain().clone());
        }
        index.set_fast_field_tokenizers(tokenizers.clone());
        index.set_tokenizers(tokenizers);
        Ok(index)
    }

    pub(crate) fn find(&self, name: &str, kind: SlotKind) -> Option<usize> {
        self.slots.iter().position(|slot| slot.kind == kind && slot.name == name)
    }

    pub(crate) fn check_room(slots: &[Slot]) -> Result<()> {
        if slots.len() < 2 * MAX_FIELDS {
            return Ok(());
        }
        Err(Error::BadField(format!("an index has at most {MAX_FIELDS} fields")))
    }

    /// Returns the layout for queries of documents that have only the slots with true.
    pub(crate) fn restricted(&self, used: &[bool]) -> Self {
        Self { hidden: used.iter().map(|is_used| !is_used).collect(), ..self.clone() }
    }

    pub(crate) fn kinds(&self, name: &str) -> impl Iterator<Item = SlotKind> {
        self.slots_of(name).map(|(kind, ..)| kind)
    }

    pub(crate) fn slots_of(&self, name: &str) -> impl Iterator<Item = (SlotKind, usize, Option<Field>)> {
        let slots = self.slots.iter().zip(&self.fields).enumerate();
        let is_hidden = |number: usize| self.hidden.get(number).copied().unwrap_or(false);
        let slots = slots.filter(move |(number, (slot, _))| slot.name == name && !is_hidden(*number));
        slots.map(|(number, (slot, field))| (slot.kind, number, *field))
    }

    pub(crate) fn field(&self, number: usize) -> Option<Field> {
        self.fields.get(number).copied().flatten()
    }

    pub(crate) fn strings(&self, name: &str) -> Option<String> {
        if name == ID {
            return Some(ID.to_owned());
        }
        let is_string = |kind| matches!(kind, SlotKind::String | SlotKind::Column);
        self.slots_of(name).find(|(kind, ..)| is_string(*kind)).map(|(_, number, _)| column(number))
    }

    pub(crate) fn numbers(&self, name: &str) -> Option<String> {
        self.slots_of(name).find(|(kind, ..)| *kind == SlotKind::Double).map(|(_, number, _)| column(number))
    }
}

impl Fields for Layout {
    fn is_number(&self, field: &str) -> bool {
        self.kinds(field).any(|kind| kind == SlotKind::Double)
    }

    fn is_text(&self, field: &str) -> bool {
        self.kinds(field).any(|kind| matches!(kind, SlotKind::Text | SlotKind::String))
    }
}

impl SlotKind {
    /// Returns `None` for auxiliary slots.
    pub(crate) fn field_kind(self) -> Option<FieldKind> {
        Some(match self {
            Self::Text => FieldKind::Text,
            Self::String => FieldKind::String,
            Self::Double => FieldKind::Double,
            Self::Stored => FieldKind::Stored,
            Self::Vector => FieldKind::Vector,
            Self::Column => return None,
        })
    }
}

pub(crate) fn column(number: usize) -> String {
    format!("f{number}")
}

fn strings() -> TextOptions {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer("raw")
        .set_index_option(IndexRecordOption::Basic)
        .set_fieldnorms(false);
    TextOptions::default().set_indexing_options(indexing)
}
