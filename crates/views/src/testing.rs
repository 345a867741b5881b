//! Support for the tests of several modules.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use settee_design::{
    CompileError, DocumentBatch, Emissions, Language, Limits, MapFailure, MapSource, Program, ReduceRows, Reducer,
    RunError, TakeRows,
};
use settee_model::json::Value;

pub(crate) struct NoLanguage;

impl NoLanguage {
    pub(crate) fn shared() -> Arc<dyn Language> {
        Arc::new(Self)
    }
}

impl Language for NoLanguage {
    fn name(&self) -> &str {
        "none"
    }
}

/// A language of rules. Map functions: `value K V` emits the members K and V of documents that have K; `each K` emits
/// each element of the array K with its position; `none` emits nothing; `throw` throws for documents with the member
/// `t`; `fatal` ends the build for documents with the member `f`. Reduce functions: `count`; `summary` returns an
/// object with the number of rows, the sum of their values, and the least and the greatest of their ids.
pub(crate) struct Rules;

impl Rules {
    pub(crate) fn shared() -> Arc<dyn Language> {
        Arc::new(Self)
    }
}

#[derive(Clone, Default)]
pub(crate) struct CountedRules {
    pub(crate) mapped: Arc<AtomicU64>,
    pub(crate) watcher: Arc<Mutex<Option<Watcher>>>,
}

pub(crate) type Watcher = Box<dyn FnMut(u64) -> Result<(), RunError> + Send>;

impl Language for CountedRules {
    fn name(&self) -> &str {
        "rules"
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        Ok(Box::new(CountedProgram(Rules.program(source, limits)?, self.clone())))
    }

    fn reducer(&self, source: &str, limits: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        Rules.reducer(source, limits)
    }
}

struct CountedProgram(Box<dyn Program>, CountedRules);

impl Program for CountedProgram {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        let before = self.1.mapped.fetch_add(batch.len() as u64, Ordering::Relaxed);
        if let Some(watcher) = &mut *self.1.watcher.lock() {
            watcher(before)?;
        }
        self.0.map_in_parts(batch, output, take)
    }
}

impl Language for Rules {
    fn name(&self) -> &str {
        "rules"
    }

    fn program(&self, source: &MapSource, limits: Limits) -> Result<Box<dyn Program>, CompileError> {
        if source.functions.iter().any(|function| &**function == "wrong") {
            return Err(CompileError::Source("wrong".to_owned()));
        }
        Ok(Box::new(RuleProgram(source.functions.clone(), limits)))
    }

    fn reducer(&self, source: &str, _: Limits) -> Result<Box<dyn Reducer>, CompileError> {
        match source {
            "count" => Ok(Box::new(CountRule)),
            "summary" => Ok(Box::new(SummaryRule)),
            _ => Err(CompileError::Source(source.to_owned())),
        }
    }
}

struct RuleProgram(Vec<Arc<str>>, Limits);

impl Program for RuleProgram {
    fn map_in_parts(
        &mut self,
        batch: &DocumentBatch,
        output: &mut Emissions,
        take: &mut TakeRows<'_>,
    ) -> Result<(), RunError> {
        for (index, document) in (0..).zip(batch.iter()) {
            for (function, rule) in (0..).zip(&self.0) {
                output.hand_on(&self.1, take)?;
                let mut emit = |key: &[u8], value: &[u8]| output.push(index, function, key, value);
                match apply_rule(rule, Value::trusted(document.json), &mut emit) {
                    Ok(()) => {}
                    Err(message) if &**rule == "fatal" => {
                        return Err(RunError::Fatal { name: "map_runtime_error".to_owned(), reason: message });
                    }
                    Err(message) => output.failures.push(MapFailure { document: index, function, message }),
                }
            }
        }
        Ok(())
    }
}

pub(crate) fn apply_rule(rule: &str, document: Value<'_>, emit: &mut dyn FnMut(&[u8], &[u8])) -> Result<(), String> {
    let words: Vec<&str> = rule.split(' ').collect();
    let member = |name: &str| document.get(name).unwrap_or(Value::NULL);
    match words[..] {
        ["value", key, value] => {
            if let Some(key) = document.get(key) {
                emit(key.raw(), member(value).raw());
            }
        }
        ["each", key] => {
            let elements = member(key).elements().enumerate();
            elements.for_each(|(index, element)| emit(element.raw(), index.to_string().as_bytes()));
        }
        ["throw"] if document.get("t").is_some() => return Err("thrown".to_owned()),
        ["throw"] => emit(member("_id").raw(), b"1"),
        ["fatal"] if document.get("f").is_some() => return Err("the end".to_owned()),
        _ => {}
    }
    Ok(())
}

struct CountRule;

impl Reducer for CountRule {
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError> {
        assert!(groups.iter().all(|group| group.rows.iter().all(|(_, id, _)| !id.is_empty())));
        Ok(groups.iter().map(|group| group.rows.len().to_string().into_bytes()).collect())
    }

    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError> {
        let sum = |parts: &Vec<&[u8]>| parts.iter().filter_map(|part| Value::trusted(part).as_u64()).sum::<u64>();
        Ok(groups.iter().map(|parts| sum(parts).to_string().into_bytes()).collect())
    }
}

struct SummaryRule;

impl SummaryRule {
    fn text(parts: impl Iterator<Item = (u64, f64, String, String)>) -> Vec<u8> {
        let merge = |whole: (u64, f64, String, String), part: (u64, f64, String, String)| {
            (whole.0 + part.0, whole.1 + part.1, whole.2.min(part.2), whole.3.max(part.3))
        };
        let (rows, sum, least, greatest) = parts.reduce(merge).unwrap_or_default();
        let quoted = [least, greatest].map(|id| {
            let mut out = Vec::new();
            settee_model::json::write_string(&mut out, &id);
            String::from_utf8_lossy(&out).into_owned()
        });
        format!("{{\"rows\":{rows},\"sum\":{sum},\"ids\":[{}]}}", quoted.join(",")).into_bytes()
    }
}

impl Reducer for SummaryRule {
    fn reduce(&mut self, groups: &[ReduceRows<'_>]) -> Result<Vec<Vec<u8>>, RunError> {
        let row = |(_, id, value): &(&[u8], &str, &[u8])| {
            (1, Value::trusted(value).as_f64().unwrap_or_default(), (*id).to_owned(), (*id).to_owned())
        };
        Ok(groups.iter().map(|group| Self::text(group.rows.iter().map(row))).collect())
    }

    fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>, RunError> {
        let part = |text: &&[u8]| {
            let member = |name| Value::trusted(text).get(name).unwrap_or(Value::NULL);
            let id = |at| member("ids").elements().nth(at).and_then(Value::as_str).unwrap_or_default().into_owned();
            (member("rows").as_u64().unwrap_or_default(), member("sum").as_f64().unwrap_or_default(), id(0), id(1))
        };
        Ok(groups.iter().map(|parts| Self::text(parts.iter().map(part))).collect())
    }
}
