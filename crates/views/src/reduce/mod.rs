//! Reduce functions. An [`Aggregate`] is a reduce function attached to an index; inner nodes of the tree contain its
//! stored reductions. `reduce` converts rows to a stored reduction, `rereduce` combines several, `finish` converts one
//! to JSON. Invariant: `rereduce` of partial reductions equals `reduce` of all rows.

mod builtin;
mod count;
mod distinct;
mod ends;
mod number;
mod rank;
mod stats;
mod sum;
#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::sync::Arc;

use settee_design::{CompileError, Growth, Language, Limits, ReduceRows, Reducer};
use settee_storage::StorageError;

use self::builtin::{Builtin, Input, OfValues, Values};
use crate::error::Result;
use crate::leaf::{EncodedLeaf, Group};

/// CouchDB compares only the prefix: `_sum` may be followed by any text, and `_top_N` by its number.
type Parse = fn(&str, Growth) -> Option<Box<dyn Builtin>>;

const BUILTINS: [Parse; 6] = [count::parse, distinct::parse, ends::parse, rank::parse, stats::parse, sum::parse];

fn builtin(source: &str, growth: Growth) -> Option<Box<dyn Builtin>> {
    BUILTINS.iter().find_map(|parse| parse(source, growth))
}

/// Returns CouchDB's reason for rejecting a design document (400 `invalid_design_doc`) whose reduce function `source`
/// starts with `_` and is not built in.
#[must_use]
pub fn unsupported_reduce(source: &str) -> String {
    match rank::refuse(source) {
        Some(invalid) => invalid.to_string(),
        None => format!("`{source}` is not a supported reduce function."),
    }
}

/// Returns true if `source` names a built-in reduce function, which needs no language; see [`unsupported_reduce`].
#[must_use]
pub fn is_builtin_reduce(source: &str) -> bool {
    builtin(source, Growth::default()).is_some()
}

pub(crate) struct Aggregate {
    kind: Kind,
    /// Name of the queried view as CouchDB passes it to query servers, for messages.
    context: Option<String>,
}

enum Kind {
    Builtin(Box<dyn Builtin>),
    Custom(Custom),
}

/// Compiled at the first call, because many queries need only a stored reduction.
struct Custom {
    source: Arc<str>,
    /// `None` if the function must not be called.
    language: Option<Arc<dyn Language>>,
    limits: Limits,
    reducer: Option<Box<dyn Reducer>>,
}

impl Custom {
    fn reducer(&mut self) -> Result<&mut dyn Reducer> {
        if self.reducer.is_none() {
            let language = self.language.as_ref().ok_or(StorageError::WouldBlock)?;
            self.reducer = Some(language.reducer(&self.source, self.limits)?);
        }
        Ok(&mut **self.reducer.as_mut().expect("it was set before"))
    }
}

impl Aggregate {
    pub(crate) fn open(source: &Arc<str>, language: &Arc<dyn Language>, limits: Limits) -> Result<Self> {
        if let Some(builtin) = builtin(source, limits.growth) {
            return Ok(Self { kind: Kind::Builtin(builtin), context: None });
        }
        if source.starts_with('_') {
            return Err(CompileError::Source(unsupported_reduce(source)).into());
        }
        let (source, language) = (Arc::clone(source), Some(Arc::clone(language)));
        let kind = Kind::Custom(Custom { source, language, limits, reducer: None });
        Ok(Self { kind, context: None })
    }

    pub(crate) fn with_context(mut self, context: String) -> Self {
        self.context = Some(context);
        self
    }

    /// Makes calls of a function of the design document, which runs in a process, fail with
    /// [`StorageError::WouldBlock`]. Its stored reductions remain available.
    pub(crate) fn without_calls(mut self) -> Self {
        if let Kind::Custom(custom) = &mut self.kind {
            custom.language = None;
        }
        self
    }

    pub(crate) fn take_log(&mut self) -> Vec<String> {
        match &mut self.kind {
            Kind::Custom(Custom { reducer: Some(reducer), .. }) => reducer.take_log(),
            _ => Vec::new(),
        }
    }

    /// Returns `None` if the function needs more than values. The leaf must not be empty.
    pub(crate) fn reduce_encoded(&self, leaf: &EncodedLeaf) -> Option<Vec<u8>> {
        let function = self.of_values()?;
        let mut out = Vec::new();
        function.reduce(&Values::Encoded(leaf), &mut out);
        Some(out)
    }

    pub(crate) fn reduces_encoded(&self) -> bool {
        self.of_values().is_some()
    }

    fn of_values(&self) -> Option<&dyn OfValues> {
        match &self.kind {
            Kind::Builtin(builtin) => match builtin.input() {
                Input::Values(function) => Some(function),
                Input::Rows(_) => None,
            },
            Kind::Custom(_) => None,
        }
    }

    /// Groups must not be empty.
    pub(crate) fn reduce(&mut self, groups: &[Group<'_>]) -> Result<Vec<Vec<u8>>> {
        match &mut self.kind {
            Kind::Builtin(builtin) => Ok(groups
                .iter()
                .map(|group| {
                    let mut out = Vec::new();
                    match builtin.input() {
                        Input::Values(function) => function.reduce(&Values::Of(group.clone()), &mut out),
                        Input::Rows(function) => function.reduce(group, &mut out),
                    }
                    out
                })
                .collect()),
            Kind::Custom(_) if groups.is_empty() => Ok(Vec::new()),
            Kind::Custom(custom) => {
                let ids: Vec<Vec<Cow<'_, str>>> =
                    groups.iter().map(|group| group.rows().map(|row| row.id()).collect()).collect();
                let groups = groups.iter().zip(&ids);
                Ok(custom.reducer()?.reduce(&groups.map(|(group, ids)| reduce_rows(group, ids)).collect::<Vec<_>>())?)
            }
        }
    }

    /// Groups must not be empty.
    pub(crate) fn rereduce(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>> {
        match &mut self.kind {
            Kind::Builtin(builtin) => Ok(groups
                .iter()
                .map(|partials| match partials[..] {
                    [partial] => partial.to_vec(),
                    _ => {
                        let mut out = Vec::new();
                        builtin.rereduce(partials, &mut out);
                        out
                    }
                })
                .collect()),
            Kind::Custom(custom) => rereduce_custom(custom, groups, |_| true),
        }
    }

    /// Returns stored reductions for clients. CouchDB passes the result of a single shard to the function again, which
    /// is visible if a function ignores `rereduce`.
    pub(crate) fn finalize(&mut self, groups: &[Vec<&[u8]>]) -> Result<Vec<Vec<u8>>> {
        let reductions = self.rereduce(groups)?;
        let Kind::Custom(custom) = &mut self.kind else { return Ok(reductions) };
        let singles: Vec<Vec<&[u8]>> = reductions.iter().map(|reduction| vec![reduction.as_slice()]).collect();
        rereduce_custom(custom, &singles, is_overflow)
    }

    pub(crate) fn finish(&self, stored: &[u8], out: &mut Vec<u8>) {
        match &self.kind {
            Kind::Builtin(builtin) => builtin.finish(stored, out),
            Kind::Custom(_) => match self.context.as_deref().and_then(|context| overflow_of(stored, context)) {
                Some(overflow) => out.extend_from_slice(overflow.as_bytes()),
                None => out.extend_from_slice(stored),
            },
        }
    }
}

fn reduce_rows<'a>(group: &Group<'a>, ids: &'a [Cow<'_, str>]) -> ReduceRows<'a> {
    ReduceRows { rows: group.rows().zip(ids).map(|(row, id)| (row.key, &**id, row.value)).collect() }
}

/// Calls the function for all groups except single partials with `is_known` and overflows, which are the result.
fn rereduce_custom(
    custom: &mut Custom,
    groups: &[Vec<&[u8]>],
    is_known: impl Fn(&[u8]) -> bool,
) -> Result<Vec<Vec<u8>>> {
    let known = |partials: &[&[u8]]| match partials {
        [partial] => is_known(partial).then(|| partial.to_vec()),
        _ => partials.iter().find(|partial| is_overflow(partial)).map(|partial| partial.to_vec()),
    };
    let mut reductions: Vec<Option<Vec<u8>>> = groups.iter().map(|partials| known(partials)).collect();
    let unknown = || groups.iter().zip(&reductions).filter(|(_, known)| known.is_none());
    let asked: Vec<Vec<&[u8]>> = unknown().map(|(partials, _)| partials.clone()).collect();
    if !asked.is_empty() {
        let mut answers = custom.reducer()?.rereduce(&asked)?.into_iter();
        reductions.iter_mut().filter(|known| known.is_none()).for_each(|known| *known = answers.next());
    }
    // A missing result is equivalent to `undefined`.
    Ok(reductions.into_iter().map(|reduction| reduction.unwrap_or_else(|| b"null".to_vec())).collect())
}

/// Returns the text of an overflow for a query of one view, whose name the stored text does not contain.
fn overflow_of(stored: &[u8], context: &str) -> Option<String> {
    let text = std::str::from_utf8(stored).ok()?.strip_prefix(OVERFLOW)?.strip_suffix("\"}")?;
    let (head, rest) = text.split_once("input size: ")?;
    let (input, output) = rest.split_once(" output size: ")?;
    let input = input.parse::<usize>().ok()? + context.len() + 3;
    output.parse::<usize>().ok()?;
    let mut quoted = Vec::new();
    settee_model::json::write_string(&mut quoted, context);
    let context = std::str::from_utf8(&quoted).ok()?.trim_matches('"').to_owned();
    Some(format!("{OVERFLOW}{head}input size: {input} output size: {output} context: {context}\"}}"))
}

/// Returns the reason of an overflow, or `None` for other reductions.
#[must_use]
pub fn overflow_reason(reduction: &[u8]) -> Option<&[u8]> {
    let reason = reduction.strip_prefix(OVERFLOW.as_bytes())?.strip_suffix(b"\"}")?;
    reason.starts_with(b"Reduce output must shrink more rapidly").then_some(reason)
}

const OVERFLOW: &str = "{\"reduce_overflow_error\":\"";

fn is_overflow(reduction: &[u8]) -> bool {
    reduction.starts_with(br#"{"error":"reduce_overflow_error""#)
        || reduction.starts_with(br#"{"reduce_overflow_error""#)
}
