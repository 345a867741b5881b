//! [`classify`]: the indexes that can answer a query, and reasons why the others cannot.

use std::collections::BTreeSet;

use settee_model::json::Json;

use crate::error::Refusal;
use crate::index::{Index, Indexes, TextIndex, TextSearch, write_primary};
use crate::operator::Operator;
use crate::options::FindOptions;
use crate::selector::{Node, Selector};
use crate::text::translate::clause;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Source<'a> {
    Primary,
    Json(&'a Index),
    Text(&'a TextIndex),
}

/// The names are CouchDB's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    IsPartial,
    ScopeMismatch,
    FieldMismatch,
    EmptySelector,
    NeedsTextSearch,
    SortOrderMismatch,
    ExcludedByUser,
    UnfavoredType,
    LessOverlap,
    TooManyFields,
    AlphabeticallyComesAfter,
}

impl Reason {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::IsPartial => "is_partial",
            Self::ScopeMismatch => "scope_mismatch",
            Self::FieldMismatch => "field_mismatch",
            Self::EmptySelector => "empty_selector",
            Self::NeedsTextSearch => "needs_text_search",
            Self::SortOrderMismatch => "sort_order_mismatch",
            Self::ExcludedByUser => "excluded_by_user",
            Self::UnfavoredType => "unfavored_type",
            Self::LessOverlap => "less_overlap",
            Self::TooManyFields => "too_many_fields",
            Self::AlphabeticallyComesAfter => "alphabetically_comes_after",
        }
    }
}

impl<'a> Source<'a> {
    pub(crate) fn index(self) -> Option<&'a Index> {
        match self {
            Self::Primary | Self::Text(_) => None,
            Self::Json(index) => Some(index),
        }
    }

    pub(crate) fn text(self) -> Option<&'a TextIndex> {
        match self {
            Self::Primary | Self::Json(_) => None,
            Self::Text(index) => Some(index),
        }
    }

    pub(crate) fn columns(self) -> Vec<&'a str> {
        match self {
            Self::Primary => vec!["_id"],
            Self::Json(index) => index.definition.names().collect(),
            Self::Text(_) => Vec::new(),
        }
    }

    pub(crate) fn write(self, out: &mut Vec<u8>) {
        match self {
            Self::Primary => write_primary(out),
            Self::Json(index) => index.write(out),
            Self::Text(index) => index.write(out),
        }
    }

    /// As [`Self::write`], without the definition of an index.
    pub(crate) fn write_name(self, out: &mut Vec<u8>) {
        match self {
            Self::Primary => write_primary(out),
            Self::Json(index) => index.write_name(out),
            Self::Text(index) => index.write_name(out),
        }
    }

    pub(crate) fn place(self) -> (&'a str, &'a str) {
        match self {
            Self::Primary => ("", "_all_docs"),
            Self::Json(index) => (index.design_id(), index.name()),
            Self::Text(index) => (index.design_id(), index.name()),
        }
    }

    pub(crate) fn is_named_by(self, options: &FindOptions) -> bool {
        let Some(wanted) = &options.use_index else { return false };
        let (design, name) = self.place();
        design == wanted.design && wanted.name.as_ref().is_none_or(|wanted| name == wanted)
    }
}

pub(crate) fn classify<'a>(
    options: &FindOptions,
    indexes: &'a Indexes,
    search: TextSearch,
) -> Result<Vec<(Source<'a>, Option<Reason>)>, Refusal> {
    let text = indexes.text(search).map(Source::Text);
    let sources = std::iter::once(Source::Primary).chain(indexes.json.iter().map(Source::Json)).chain(text);
    sources.map(|source| Ok((source, reason_unusable(options, source)?))).collect()
}

fn reason_unusable(options: &FindOptions, source: Source<'_>) -> Result<Option<Reason>, Refusal> {
    if let Source::Text(index) = source {
        return reason_text_unusable(options, source, index);
    }
    Ok(reason_ordered_unusable(options, source))
}

/// A text index can sort by all its fields, so only the fields of the selector matter.
fn reason_text_unusable(
    options: &FindOptions,
    source: Source<'_>,
    index: &TextIndex,
) -> Result<Option<Reason>, Refusal> {
    if index.definition.filter.is_some() && !source.is_named_by(options) {
        return Ok(Some(Reason::IsPartial));
    }
    if index.is_partitioned != options.partition.is_some() {
        return Ok(Some(Reason::ScopeMismatch));
    }
    let node = options.selector.node();
    if matches!(node, Node::Everything) {
        return Ok(Some(Reason::EmptySelector));
    }
    let clause = clause(node)?;
    let Some(columns) = index.definition.columns() else { return Ok(None) };
    let mut fields = Vec::new();
    clause.fields(&mut fields);
    Ok((!fields.iter().all(|field| columns.contains(field))).then_some(Reason::FieldMismatch))
}

fn reason_ordered_unusable(options: &FindOptions, source: Source<'_>) -> Option<Reason> {
    let node = options.selector.node();
    let sort = &options.sort.fields;
    match source {
        Source::Primary if sort.is_empty() => None,
        Source::Primary if !is_indexable(node, "_id") => Some(Reason::FieldMismatch),
        Source::Primary => (*sort != ["_id"]).then_some(Reason::SortOrderMismatch),
        Source::Text(_) => None,
        Source::Json(index) => {
            if index.definition.filter.is_some() && !source.is_named_by(options) {
                return Some(Reason::IsPartial);
            }
            if index.is_partitioned != options.partition.is_some() {
                return Some(Reason::ScopeMismatch);
            }
            if node.has_text() {
                return Some(Reason::NeedsTextSearch);
            }
            let columns = source.columns();
            if !requires(node, columns.iter().copied().filter(|name| !sort.iter().any(|field| field == name))) {
                return Some(Reason::FieldMismatch);
            }
            (!can_sort(&columns, sort, node)).then_some(Reason::SortOrderMismatch)
        }
    }
}

pub(crate) fn is_indexable(node: &Node, field: &str) -> bool {
    indexable_fields(node).contains(field)
}

pub(crate) fn indexable_fields(node: &Node) -> BTreeSet<&str> {
    comparisons(node).map(|(field, ..)| field).collect()
}

pub(crate) fn comparisons(node: &Node) -> impl Iterator<Item = (&str, &'static Operator, &Json)> {
    node.conjuncts().into_iter().filter_map(|node| match node {
        Node::Field(name, condition) => match &**condition {
            Node::Leaf(operator, argument) if operator.indexable => Some((name.as_str(), *operator, argument)),
            _ => None,
        },
        _ => None,
    })
}

/// True if every matching document has all these fields. Every document has `_id` and `_rev`.
pub(crate) fn requires<'n>(node: &Node, fields: impl Iterator<Item = &'n str>) -> bool {
    let wanted: BTreeSet<&str> = fields.filter(|name| !["_id", "_rev"].contains(name)).collect();
    missing(node, wanted).is_empty()
}

fn missing<'n>(node: &Node, mut wanted: BTreeSet<&'n str>) -> BTreeSet<&'n str> {
    if wanted.is_empty() {
        return wanted;
    }
    match node {
        Node::And(nodes) => nodes.iter().fold(wanted, |wanted, node| missing(node, wanted)),
        Node::Or(nodes) if nodes.is_empty() => wanted,
        Node::Or(nodes) => nodes.iter().flat_map(|node| missing(node, wanted.clone())).collect(),
        Node::Field(name, condition) => {
            if !matches!(&**condition, Node::Leaf(operator, argument)
                if operator.name == "$exists" && argument.value().as_bool() == Some(false))
            {
                wanted.remove(name.as_str());
            }
            wanted
        }
        Node::Everything
        | Node::Nor(_)
        | Node::Not(_)
        | Node::ElemMatch(_)
        | Node::AllMatch(_)
        | Node::KeyMapMatch(_)
        | Node::Text(_)
        | Node::Leaf(..) => wanted,
    }
}

/// Columns before those of the sort must be constant.
fn can_sort(columns: &[&str], sort: &[String], node: &Node) -> bool {
    let Some(first) = sort.first() else { return true };
    let constant = columns.iter().take_while(|column| *column != first && is_constant(node, column)).count();
    let rest = &columns[constant..];
    rest.len() >= sort.len() && sort.iter().zip(rest).all(|(field, column)| field == column)
}

fn is_constant(node: &Node, field: &str) -> bool {
    node.conjuncts().into_iter().any(|node| match node {
        Node::Field(name, condition) if name == field => {
            matches!(&**condition, Node::Leaf(operator, _) if operator.name == "$eq")
        }
        _ => false,
    })
}

/// True if the query contains all conditions of the filter, or requires a field that the filter only requires to exist.
pub(crate) fn implies(node: &Node, filter: &Selector) -> bool {
    let text = |node: &Node| {
        let mut out = Vec::new();
        node.write(&mut out);
        out
    };
    let stated: BTreeSet<Vec<u8>> = node.conjuncts().into_iter().map(text).collect();
    filter.node().conjuncts().into_iter().all(|wanted| {
        stated.contains(&text(wanted))
            || matches!(wanted, Node::Field(name, condition)
                if matches!(&**condition, Node::Leaf(operator, argument)
                    if operator.name == "$exists" && argument.value().as_bool() == Some(true))
                && requires(node, std::iter::once(name.as_str())))
    })
}
