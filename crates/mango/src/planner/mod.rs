//! Planner: from a query and the indexes of a database to a [`Plan`]. It reads no documents and no index rows.
//!
//! 1. [`usable`] excludes unsuitable indexes with CouchDB's rules and reasons.
//! 2. [`choose`](ranges::choose) selects the index that CouchDB 3.5 would use.
//! 3. [`access`] determines the ranges to read, which may be smaller than CouchDB's: several ranges for `$in` and
//!    `$or`, several indexes where CouchDB would read all documents, none for conditions that exclude each other.

pub(crate) mod access;
pub(crate) mod explain;
pub(crate) mod ranges;
pub(crate) mod usable;

use crate::bookmark::{self, Bookmark};
use crate::error::Refusal;
use crate::index::{Index, Indexes, TextSearch};
use crate::options::FindOptions;
use crate::selector::Node;
use access::Access;
use ranges::{FieldRanges, Ranked};
use settee_design::SearchKind;
use usable::{Reason, Source};

pub(crate) struct Plan<'a> {
    /// The index that CouchDB would use.
    pub(crate) source: Source<'a>,
    /// Ranges of its first fields as CouchDB computes them.
    pub(crate) prefix: Vec<Option<crate::bounds::Interval>>,
    /// True if CouchDB executes nothing: its response contains documents only.
    pub(crate) is_noop: bool,
    pub(crate) access: Access<'a>,
    pub(crate) covering: bool,
}

pub(crate) struct Trace<'a> {
    pub(crate) classified: Vec<(Source<'a>, Option<Reason>)>,
    pub(crate) filtered: Vec<Source<'a>>,
    pub(crate) ranked: Vec<Ranked<'a>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Find,
    Explain,
}

/// Returns no plan if no index supports the sort. Errors: the index in `use_index` is mandatory and unsuitable; `$text`
/// has no index, several, or one that does not support the sort.
pub(crate) fn plan<'a>(
    purpose: Purpose,
    options: &'a FindOptions,
    indexes: &'a Indexes,
    search: TextSearch,
) -> Result<(Option<Plan<'a>>, Trace<'a>), Refusal> {
    let node = options.selector.node();
    let classified = usable::classify(options, indexes, search)?;
    let usable: Vec<Source<'a>> =
        classified.iter().filter(|(_, reason)| reason.is_none()).map(|(source, _)| *source).collect();
    // As in CouchDB a query reports the sort before a mandatory index, which a plan reports first.
    if usable.is_empty() && purpose == Purpose::Find {
        return Ok((None, Trace { classified, filtered: Vec::new(), ranked: Vec::new() }));
    }
    let named: Vec<Source<'a>> = usable.iter().filter(|source| source.is_named_by(options)).copied().collect();
    // CouchDB treats the only remaining index as the fallback, of any kind.
    let falls_back = if options.use_index.is_some() { named.is_empty() } else { usable.len() < 2 };
    if falls_back && !options.allow_fallback {
        return Err(unsuitable(options));
    }
    let filtered = if named.is_empty() { usable } else { named };
    let preferred = preferred(&filtered);
    if node.has_text() && !preferred.iter().any(|source| source.text().is_some()) {
        return Err(Refusal::NoTextIndex);
    }
    if preferred.len() > 1 && preferred.iter().any(|source| source.text().is_some()) {
        return Err(Refusal::MultipleTextIndexes);
    }
    let fields = FieldRanges::of(node);
    let ranked = ranges::choose(preferred, &fields);
    let plan = ranked.first().map(|best| {
        let covering = covers(options, best.source);
        let has_nothing = best.prefix.first().is_some_and(Option::is_none) || is_empty_list(node);
        let is_noop = has_nothing && best.source.text().is_none();
        let access = access::choose(options, &indexes.json, best.source)?;
        Ok::<_, Refusal>(Plan { source: best.source, prefix: best.prefix.clone(), is_noop, access, covering })
    });
    Ok((plan.transpose()?, Trace { classified, filtered, ranked }))
}

/// CouchDB prefers JSON indexes, then text indexes (the older type first), then the primary index.
fn preferred<'a>(sources: &[Source<'a>]) -> Vec<Source<'a>> {
    let kinds: [&dyn Fn(Source<'a>) -> bool; 4] = [
        &|source| source.index().is_some(),
        &|source| source.text().is_some_and(|index| index.definition.kind == SearchKind::Clouseau),
        &|source| source.text().is_some(),
        &|_| true,
    ];
    let of = |is_kind: &dyn Fn(Source<'a>) -> bool| {
        sources.iter().copied().filter(|source| is_kind(*source)).collect::<Vec<_>>()
    };
    kinds.into_iter().map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Makes a plan continue at the end of the previous page, even if another index would be chosen now. The bookmark must
/// be valid and belong to the query.
pub(crate) fn resume<'a>(plan: Plan<'a>, trace: &Trace<'a>, options: &'a FindOptions) -> Result<Plan<'a>, Refusal> {
    let Some(text) = options.bookmark_text.as_deref() else { return Ok(plan) };
    let invalid = || bookmark::invalid(text);
    let bookmark = options.bookmark.as_ref().ok_or_else(invalid)?;
    let usable = |wanted: &dyn Fn(Source<'a>) -> bool| {
        let found = trace.classified.iter().find(|(source, reason)| reason.is_none() && wanted(*source));
        found.map(|(source, _)| *source).ok_or_else(invalid)
    };
    let (source, access) = match (bookmark, &plan.access) {
        (Bookmark::Primary { .. }, Access::Primary(_) | Access::Union(_)) => return Ok(plan),
        (Bookmark::Primary { .. }, Access::Index(..) | Access::Text(_)) => {
            if options.selector.node().has_text() {
                return Err(invalid());
            }
            (usable(&|source| matches!(source, Source::Primary))?, access::primary(options))
        }
        (Bookmark::Text { design, name, .. }, Access::Text(text))
            if text.index.design_id() == design && text.index.name() == name =>
        {
            return Ok(plan);
        }
        (Bookmark::Text { design, name, .. }, _) => {
            let source = usable(&|source| source.text().is_some() && source.place() == (design, name))?;
            (source, access::choose(options, &[], source)?)
        }
        (Bookmark::Index { design, name, .. }, Access::Index(index, _))
            if index.design_id() == design && index.name() == name =>
        {
            return Ok(plan);
        }
        (Bookmark::Index { design, name, .. }, _) => {
            let source = usable(&|source| source.index().is_some() && source.place() == (design, name))?;
            (source, access::choose(options, &[], source)?)
        }
    };
    Ok(Plan { source, prefix: Vec::new(), is_noop: plan.is_noop, access, covering: covers(options, source) })
}

fn unsuitable(options: &FindOptions) -> Refusal {
    match &options.use_index {
        None => Refusal::NoFallbackWithoutIndex,
        Some(wanted) => Refusal::UnsuitableIndex(match &wanted.name {
            None => wanted.design.clone(),
            Some(name) => format!("{}, {name}", wanted.design),
        }),
    }
}

/// In CouchDB, a top-level combination of no conditions finds nothing, although within a selector it is no condition.
fn is_empty_list(node: &Node) -> bool {
    matches!(node, Node::And(nodes) | Node::Or(nodes) if nodes.is_empty())
}

fn covers(options: &FindOptions, source: Source<'_>) -> bool {
    let mut tested = Vec::new();
    names_in(options.selector.node(), &mut tested);
    covers_fields(options, source)
        && source.index().is_some_and(|index| tested.into_iter().all(|name| has(index, name)))
}

/// True if the index contains the requested fields, which CouchDB calls covering unless the index is chosen.
pub(crate) fn covers_fields(options: &FindOptions, source: Source<'_>) -> bool {
    match (source.index(), options.fields.names()) {
        (Some(index), Some(names)) => names.into_iter().all(|name| has(index, name)),
        _ => false,
    }
}

fn has(index: &Index, field: &str) -> bool {
    field == "_id" || index.definition.names().any(|column| column == field)
}

pub(crate) fn names_in<'n>(node: &'n Node, out: &mut Vec<&'n str>) {
    match node {
        Node::And(nodes) | Node::Or(nodes) | Node::Nor(nodes) => nodes.iter().for_each(|node| names_in(node, out)),
        Node::Not(node) => names_in(node, out),
        Node::Field(name, _) => out.push(name),
        Node::Text(_) => out.push("$default"),
        Node::Everything | Node::ElemMatch(_) | Node::AllMatch(_) | Node::KeyMapMatch(_) | Node::Leaf(..) => {}
    }
}
