//! [`MangoLanguage`]: the language `query` of design documents. Map functions are index definitions, the validation
//! function is a selector. A map that is not a definition emits nothing, so that it does not block the other indexes.

use settee_design::{
    Allowance, CompileError, DesignProgram, DesignSource, DocumentBatch, Emissions, Excess, Language, Limits,
    MapFailure, MapSource, Program, Reducer, RunError, SearchKind, TakeRows,
};
use settee_model::json::{Json, Value};

use crate::index::{Definition, LANGUAGE};
use crate::text::definition::TextDefinition;
use crate::text::fields::Mapper;
use crate::validation::{self, Validation};

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

const NULL: &[u8] = b"null";

type FieldSink<'a> = dyn FnMut(&[u8], &[u8]) + 'a;

fn map_each<D>(
    definitions: &[Option<D>],
    limits: Limits,
    batch: &DocumentBatch,
    output: &mut Emissions,
    take: &mut TakeRows<'_>,
    mut map: impl FnMut(&D, Value<'_>, &mut Allowance, &mut FieldSink<'_>) -> Result<(), Excess>,
) -> Result<(), RunError> {
    // Mango never indexes design documents, which other languages get with `include_design`.
    for (document, found) in (0..).zip(batch.iter()).filter(|(_, found)| !found.id.starts_with("_design/")) {
        let value = Value::trusted(found.json);
        for (function, definition) in (0..).zip(definitions) {
            let Some(definition) = definition else { continue };
            let mut push = |key: &[u8], value: &[u8]| output.push(document, function, key, value);
            if let Err(excess) = map(definition, value, &mut Allowance::new(limits), &mut push) {
                output.failures.push(MapFailure { document, function, message: excess.to_string() });
            }
            output.hand_on(&limits, take)?;
        }
    }
    Ok(())
}

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
        let Self { definitions, limits, key } = self;
        map_each(definitions, *limits, batch, output, take, |definition, document, allowance, push| {
            if write_key(definition, document, key, allowance.key_room()) {
                allowance.take(key.len(), NULL.len())?;
                push(key, NULL);
            }
            Ok(())
        })
    }
}

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
        map_each(&self.mappers, self.limits, batch, output, take, |(mapper, definition), document, allowance, push| {
            if definition.filter.as_ref().is_some_and(|filter| !filter.matches(document)) {
                return Ok(());
            }
            let mut counted = Ok(());
            mapper.map(document, &mut |key, value| {
                if counted.is_ok() {
                    counted = allowance.take(key.len(), value.len());
                }
            });
            counted?;
            mapper.map(document, push);
            Ok(())
        })
    }
}

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
