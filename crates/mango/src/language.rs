//! [`MangoLanguage`]: the language `query` of design documents, whose map functions are index definitions and whose
//! validation function is a selector.
//!
//! Definitions are evaluated in this process; the indexer, its progress and its tree are those of all views. A map that
//! is no definition emits nothing, as in CouchDB, instead of holding up the other indexes of its design document.

use settee_design::{
    Allowance, CompileError, DesignProgram, DesignSource, DocumentBatch, Emissions, Language, Limits, MapFailure,
    MapSource, Program, Reducer, RunError, SearchKind, TakeRows,
};
use settee_model::json::{Json, Value};

use crate::index::{Definition, LANGUAGE};
use crate::text::definition::TextDefinition;
use crate::text::fields::Mapper;
use crate::validation::{self, Validation};

/// The language `query`.
#[derive(Clone, Copy, Debug, Default)]
pub struct MangoLanguage;

impl Language for MangoLanguage {
    fn name(&self) -> &str {
        LANGUAGE
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        let definition = |text: &str| Definition::of_view(Json::parse(text.as_bytes()).ok()?.value());
        let definitions = source.functions.iter().map(|function| definition(function)).collect();
        Ok(Box::new(Definitions { definitions, limits, key: Vec::new() }))
    }

    fn index_program(
        &self,
        kind: SearchKind,
        source: &MapSource,
        limits: Limits,
    ) -> Result<Box<dyn Program>, CompileError> {
        let mapper = |text: &str| {
            let definition = TextDefinition::parse(kind, Json::parse(text.as_bytes()).ok()?.value()).ok()?;
            Some((Mapper::new(&definition), definition))
        };
        let mappers = source.functions.iter().map(|function| mapper(function)).collect();
        Ok(Box::new(TextDefinitions { mappers, limits }))
    }

    fn reducer(&self, source: &str, _: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Err(CompileError::Source(format!("`{source}` is not a reduce function of the language `{LANGUAGE}`")))
    }

    fn design_program(&self, source: &DesignSource, _: Limits) -> Result<Box<dyn DesignProgram>, CompileError> {
        Ok(Box::new(Validation::new(source)))
    }

    fn check_validation(&self, function: Value<'_>) -> Result<(), CompileError> {
        validation::check(function)
    }
}

/// The value of all rows.
const NULL: &[u8] = b"null";

struct Definitions {
    definitions: Vec<Option<Definition>>,
    limits: Limits,
    key: Vec<u8>,
}

impl Program for Definitions {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        for (index, document) in (0..).zip(batch.iter()) {
            // Only a design document with `include_design` brings others here; Mango never indexes them.
            if document.id.starts_with("_design/") {
                continue;
            }
            let value = Value::trusted(document.json);
            for (function, definition) in (0..).zip(&self.definitions) {
                let Some(definition) = definition else { continue };
                let mut allowance = Allowance::new(self.limits);
                if !write_key(definition, value, &mut self.key, allowance.key_room()) {
                    continue;
                }
                match allowance.take(self.key.len(), NULL.len()) {
                    Ok(()) => output.push(index, function, &self.key, NULL),
                    Err(excess) => {
                        output.failures.push(MapFailure { document: index, function, message: excess.to_string() });
                    }
                }
                output.hand_on(&self.limits, take)?;
            }
        }
        Ok(())
    }
}

/// The definitions of text indexes, ready to make fields.
struct TextDefinitions {
    mappers: Vec<Option<(Mapper, TextDefinition)>>,
    limits: Limits,
}

impl Program for TextDefinitions {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        for (index, document) in (0..).zip(batch.iter()) {
            if document.id.starts_with("_design/") {
                continue;
            }
            let value = Value::trusted(document.json);
            for (function, mapper) in (0..).zip(&self.mappers) {
                let Some((mapper, definition)) = mapper else { continue };
                if definition.filter.as_ref().is_some_and(|filter| !filter.matches(value)) {
                    continue;
                }
                let mut allowance = Allowance::new(self.limits);
                let mut counted = Ok(());
                mapper.map(value, &mut |key, value| {
                    if counted.is_ok() {
                        counted = allowance.take(key.len(), value.len());
                    }
                });
                // A document of which there is too much is not there at all.
                match counted {
                    Ok(()) => mapper.map(value, &mut |key, value| output.push(index, function, key, value)),
                    Err(excess) => {
                        output.failures.push(MapFailure { document: index, function, message: excess.to_string() });
                    }
                }
                output.hand_on(&self.limits, take)?;
            }
        }
        Ok(())
    }
}

/// Writes the values of the columns as an array, as long as that is not longer than `room`. `false` if one is missing or the
/// index does not hold the document.
fn write_key(definition: &Definition, document: Value<'_>, key: &mut Vec<u8>, room: u64) -> bool {
    key.clear();
    key.push(b'[');
    for (position, (_, path)) in definition.columns.iter().enumerate() {
        let Some(value) = path.find(document).value() else { return false };
        if position > 0 {
            key.push(b',');
        }
        if key.len() as u64 <= room {
            key.extend_from_slice(value.raw());
        }
    }
    key.push(b']');
    definition.filter.as_ref().is_none_or(|filter| filter.matches(document))
}
