//! [`Access`]: the ranges of indexes that are read. Each document in them is tested.

use std::borrow::Cow;
use std::sync::Arc;

use settee_database::IdRange;
use settee_model::collate::Collation;
use settee_model::json::{Value, write_string};

use super::ranges::{self, FieldRanges};
use super::usable::{Source, implies, requires};
use crate::bounds::{Cut, Interval, Intervals, Key};
use crate::error::Refusal;
use crate::index::{Index, TextIndex};
use crate::options::FindOptions;
use crate::selector::Node;
use crate::text::clause::Clause;
use crate::text::sort::{self, SortKey};
use crate::text::translate::clause;

const MAX_COMBINATIONS: usize = 10_000;

/// Ids of design documents: start and exclusive end.
pub(crate) const DESIGN: (&[u8], &[u8]) = (b"_design/", b"_design0");

#[derive(Debug)]
pub(crate) enum Access<'a> {
    Primary(Vec<IdRange>),
    Index(&'a Index, Vec<KeyRange>),
    /// One index per alternative; documents are ordered by id.
    Union(Vec<Access<'a>>),
    Text(TextAccess<'a>),
}

#[derive(Debug)]
pub(crate) struct TextAccess<'a> {
    pub(crate) index: &'a TextIndex,
    pub(crate) clause: Clause,
    pub(crate) sort: Vec<SortKey>,
}

impl Access<'_> {
    /// True if every document is read.
    pub(crate) fn is_scan(&self) -> bool {
        let behind_design = |range: &IdRange| range.start.as_deref() == Some(DESIGN.1) && range.end.is_none();
        matches!(self, Self::Primary(ranges) if ranges.len() == 2 && ranges.iter().any(behind_design)
            && ranges.iter().any(|range| range.start.as_deref() == Some(b"")))
    }
}

/// Rows with `prefix` and a value of the next column between two cuts.
#[derive(Clone, Debug)]
pub(crate) struct KeyRange {
    pub(crate) prefix: Vec<Arc<Key>>,
    pub(crate) low: Cut,
    pub(crate) high: Cut,
}

impl KeyRange {
    /// Returns the range of all rows.
    pub(crate) fn all() -> Self {
        Self { prefix: Vec::new(), low: Cut::Start, high: Cut::End }
    }
}

/// Determines the ranges of the chosen index. Fails if a text index does not support the sort.
pub(crate) fn choose<'a>(
    options: &'a FindOptions,
    indexes: &'a [Index],
    source: Source<'a>,
) -> Result<Access<'a>, Refusal> {
    let node = options.selector.node();
    Ok(match source {
        Source::Json(index) => Access::Index(index, key_ranges(node, index)),
        Source::Text(index) => Access::Text(TextAccess { index, clause: clause(node)?, sort: sort::keys(options)? }),
        Source::Primary => {
            let ids = values(node, "_id", Collation::Raw);
            match ids.is_all().then(|| union(options, indexes).or_else(|| partial(options, indexes))).flatten() {
                Some(less) => less,
                None => Access::Primary(id_ranges(&within(ids, options))),
            }
        }
    })
}

pub(crate) fn primary(options: &FindOptions) -> Access<'static> {
    Access::Primary(id_ranges(&within(values(options.selector.node(), "_id", Collation::Raw), options)))
}

fn within(ids: Intervals, options: &FindOptions) -> Intervals {
    let Some(partition) = &options.partition else { return ids };
    let id = |separator: &str| {
        let mut json = Vec::new();
        write_string(&mut json, &format!("{partition}{separator}"));
        Cut::Before(Key::new(Value::trusted(&json), Collation::Raw))
    };
    // The semicolon follows the colon in the order of characters.
    ids.and(&Intervals::between(id(":"), id(";")))
}

fn union<'a>(options: &'a FindOptions, indexes: &'a [Index]) -> Option<Access<'a>> {
    let conjuncts = options.selector.node().conjuncts();
    conjuncts.iter().find_map(|conjunct| {
        let Node::Or(branches) = conjunct else { return None };
        if branches.is_empty() {
            return None;
        }
        branches
            .iter()
            .map(|branch| alternative(options, branch, indexes))
            .collect::<Option<Vec<_>>>()
            .map(Access::Union)
    })
}

/// Returns a partial index that contains all documents that can match, because the query implies its filter. CouchDB
/// uses such an index only if `use_index` names it.
fn partial<'a>(options: &'a FindOptions, indexes: &'a [Index]) -> Option<Access<'a>> {
    Some(Access::Union(vec![alternative(options, options.selector.node(), indexes)?]))
}

/// Returns `None` if only a full scan is possible.
fn alternative<'a>(options: &FindOptions, branch: &'a Node, indexes: &'a [Index]) -> Option<Access<'a>> {
    let ids = values(branch, "_id", Collation::Raw);
    if !ids.is_all() {
        return Some(Access::Primary(id_ranges(&within(ids, options))));
    }
    let helps = |index: &&'a Index| {
        index.is_partitioned == options.partition.is_some()
            && index.definition.filter.as_ref().is_none_or(|filter| implies(branch, filter))
            && requires(branch, index.definition.names())
            && (index.definition.filter.is_some()
                || index.definition.names().next().is_some_and(|first| !column_values(branch, first).is_all()))
    };
    let sources = indexes.iter().filter(helps).map(Source::Json).collect();
    let best = ranges::choose(sources, &FieldRanges::of(branch)).into_iter().next()?;
    best.source.index().map(|index| Access::Index(index, key_ranges(branch, index)))
}

fn values(node: &Node, field: &str, collation: Collation) -> Intervals {
    match node {
        Node::And(nodes) => {
            let mut parts: Vec<_> = nodes.iter().map(|node| values(node, field, collation)).collect();
            // The smallest set is first, so that intersections stay small.
            parts.sort_by_key(|part| part.as_slice().len());
            parts.into_iter().filter(|part| !part.is_all()).fold(Intervals::all(), |common, part| common.and(&part))
        }
        Node::Or(nodes) if !nodes.is_empty() => Intervals::any(nodes.iter().map(|node| values(node, field, collation))),
        // As in CouchDB, conditions on elements do not limit the values.
        Node::Field(name, condition) if name == field => match &**condition {
            Node::Leaf(operator, argument) => (operator.bounds)(argument.value(), collation),
            _ => Intervals::all(),
        },
        Node::Everything
        | Node::Or(_)
        | Node::Nor(_)
        | Node::Not(_)
        | Node::Field(..)
        | Node::ElemMatch(_)
        | Node::AllMatch(_)
        | Node::KeyMapMatch(_)
        | Node::Text(_)
        | Node::Leaf(..) => Intervals::all(),
    }
}

/// As [`values`], for a column of an index. Ids are compared by bytes, so only single ids can be used.
fn column_values(node: &Node, column: &str) -> Intervals {
    let values = values(node, column, Collation::Unicode);
    if column == "_id" && values.as_slice().iter().any(|interval| interval.point().is_none()) {
        return Intervals::all();
    }
    values
}

fn key_ranges(node: &Node, index: &Index) -> Vec<KeyRange> {
    let mut columns: Vec<Intervals> = Vec::new();
    let mut combinations = 1_usize;
    for name in index.definition.names() {
        let values = column_values(node, name);
        let count = values.as_slice().len();
        combinations = combinations.saturating_mul(count);
        if values.is_all() || (!columns.is_empty() && combinations > MAX_COMBINATIONS) {
            break;
        }
        columns.push(values);
    }
    let mut ranges = Vec::new();
    combine(&columns, Vec::new(), &mut ranges);
    ranges
}

fn combine(columns: &[Intervals], prefix: Vec<Arc<Key>>, out: &mut Vec<KeyRange>) {
    let Some((first, rest)) = columns.split_first() else {
        out.push(KeyRange { prefix, ..KeyRange::all() });
        return;
    };
    for interval in first.as_slice() {
        match interval.point() {
            Some(key) => {
                let mut longer = prefix.clone();
                longer.push(Arc::clone(key));
                combine(rest, longer, out);
            }
            None => {
                let Interval { low, high } = interval.clone();
                out.push(KeyRange { prefix: prefix.clone(), low, high });
            }
        }
    }
}

fn id_ranges(values: &Intervals) -> Vec<IdRange> {
    values
        .as_slice()
        .iter()
        .filter_map(id_range)
        .flat_map(|(start, end)| excluding_design_documents(start, end))
        .collect()
}

/// Values other than strings sort before all ids.
fn id_range(interval: &Interval) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let text = |key: &Key| key.json.value().string_bytes().map(Cow::into_owned);
    let after = |mut id: Vec<u8>| {
        id.push(0);
        id
    };
    let start = match &interval.low {
        Cut::Start | Cut::End => Vec::new(),
        Cut::Before(key) => text(key).unwrap_or_default(),
        Cut::After(key) => text(key).map(after).unwrap_or_default(),
    };
    let end = match &interval.high {
        Cut::End => None,
        Cut::Start => return None,
        Cut::Before(key) => Some(text(key)?),
        Cut::After(key) => Some(after(text(key)?)),
    };
    Some((start, end))
}

fn excluding_design_documents(start: Vec<u8>, end: Option<Vec<u8>>) -> impl Iterator<Item = IdRange> {
    let (first, behind) = DESIGN;
    let before_end = end.clone().filter(|end| end.as_slice() < first).unwrap_or_else(|| first.to_vec());
    let behind_start = start.clone().max(behind.to_vec());
    let before = (start < before_end).then_some(IdRange { start: Some(start), end: Some(before_end) });
    let is_there = end.as_ref().is_none_or(|end| behind_start < *end);
    let after = is_there.then_some(IdRange { start: Some(behind_start), end });
    before.into_iter().chain(after)
}
