//! [`explain`]: a plan in the format of CouchDB's `_explain`; the additional member `access` is the actual access path.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use settee_database::{Database, Layout, Reader};
use settee_design::SearchKind;
use settee_model::json::{Json, ObjectWriter, append_object, object, write_array};

use super::access::{Access, TextAccess};
use super::usable::{Reason, Source, indexable_fields};
use super::{Plan, Trace, covers_fields, names_in};
use crate::bounds::{Cut, Interval, Key};
use crate::error::Refusal;
use crate::index::TextSearch;
use crate::options::FindOptions;
use crate::sort::Order;
use crate::text::definition::type_name;
use crate::text::sort;
use crate::text::translate::clause;

/// CouchDB's text for the upper end of a range.
const MAX: &[u8] = b"\"<MAX>\"";

/// To a member only the names of indexes are written, because their definitions are parts of design documents.
pub(crate) fn explain(
    (database, reader): (&Database, &Reader),
    options: &FindOptions,
    plan: Option<&Plan<'_>>,
    trace: &Trace<'_>,
    search: TextSearch,
) -> Result<Vec<u8>, Refusal> {
    let mut hints = Vec::new();
    write_hints(options, search, &mut hints)?;
    Ok(object(|object| {
        object.string("dbname", database.name());
        match plan {
            Some(plan) if *reader == Reader::Administrator => plan.source.write(object.name("index")),
            Some(plan) => plan.source.write_name(object.name("index")),
            None => {
                object.json("index", b"null");
            }
        }
        object.value("partitioned", database.layout() == Layout::Partitioned);
        object.json("selector", options.selector.to_json().as_bytes());
        options.write(object.name("opts"));
        object.value("limit", options.limit).value("skip", options.skip);
        object.json("fields", options.fields.to_json().as_bytes());
        match reader {
            Reader::Administrator => write_candidates(options, plan, trace, object.name("index_candidates")),
            Reader::Member(_) => _ = object.json("index_candidates", b"[]"),
        }
        object.json("selector_hints", &hints);
        let Some(plan) = plan else { return };
        match &plan.access {
            Access::Text(text) => write_query(options, text, object),
            Access::Primary(_) | Access::Index(..) | Access::Union(_) => {
                object.object("mrargs", |object| write_arguments(options, plan, object));
                object.value("covering", plan.covering);
            }
        }
        write_access(&plan.access, object.name("access"));
    }))
}

fn write_query(options: &FindOptions, text: &TextAccess<'_>, object: &mut ObjectWriter<'_>) {
    let mut query = String::new();
    text.clause.write(&mut query);
    object.string("query", &query).string_or_null("partition", options.partition.as_deref());
    let sort = sort::explained(&text.sort, options.sort.order);
    match (sort.is_empty(), text.index.definition.kind) {
        (false, _) => object.strings("sort", sort),
        (true, SearchKind::Clouseau) => object.string("sort", "relevance"),
        (true, SearchKind::Nouveau) => object.json("sort", b"null"),
    };
}

/// Appends every unused index in CouchDB's order: design documents in reverse order, independent of rank.
fn write_candidates(options: &FindOptions, plan: Option<&Plan<'_>>, trace: &Trace<'_>, out: &mut Vec<u8>) {
    let is = |a: Source<'_>, b: Source<'_>| a.place() == b.place();
    let among = |sources: &[Source<'_>], source: Source<'_>| sources.iter().any(|other| is(*other, source));
    let usable = || trace.classified.iter().filter(|(_, reason)| reason.is_none()).map(|(source, _)| *source);
    let is_ranked = |source: Source<'_>| trace.ranked.iter().any(|ranked| is(ranked.source, source));
    let unfavored = trace.filtered.iter().any(|source| !is_ranked(*source));
    let excluded = usable().any(|source| !among(&trace.filtered, source));
    let has_reason =
        |wanted: &dyn Fn(Reason) -> bool| trace.classified.iter().any(|(_, reason)| reason.is_some_and(wanted));
    let unusable = has_reason(&|reason| ![Reason::IsPartial, Reason::ScopeMismatch].contains(&reason));
    let unfavored_rank = trace.ranked.len().max(1);
    let excluded_rank = unfavored_rank + usize::from(unfavored);
    let unusable_rank = excluded_rank + usize::from(excluded);
    let scope_rank = unusable_rank + usize::from(unusable);
    let partial_rank = scope_rank + usize::from(has_reason(&|reason| reason == Reason::ScopeMismatch));
    let mut rows: Vec<(usize, Source<'_>, bool, Reason)> = Vec::new();
    for (source, reason) in &trace.classified {
        let position = trace.ranked.iter().position(|ranked| is(ranked.source, *source));
        rows.push(match (reason, position) {
            (Some(Reason::IsPartial), _) => (partial_rank, *source, false, Reason::IsPartial),
            (Some(Reason::ScopeMismatch), _) => (scope_rank, *source, false, Reason::ScopeMismatch),
            (Some(reason), _) => (unusable_rank, *source, false, *reason),
            (None, Some(0)) if plan.is_some() => continue,
            (None, Some(position)) => (position, *source, true, trace.ranked[position].reason(&trace.ranked[0])),
            (None, None) if among(&trace.filtered, *source) => (unfavored_rank, *source, true, Reason::UnfavoredType),
            (None, None) => (excluded_rank, *source, true, Reason::ExcludedByUser),
        });
    }
    rows.sort_by_key(|(_, source, ..)| Reverse(source.place()));
    write_array(out, rows, |out, (ranking, source, usable, reason)| {
        append_object(out, |object| {
            source.write(object.name("index"));
            object.object("analysis", |analysis| {
                analysis.value("usable", usable);
                write_array(analysis.name("reasons"), [reason], |out, reason| {
                    append_object(out, |object| {
                        object.string("name", reason.name());
                    });
                });
                let covering = match source {
                    Source::Primary | Source::Text(_) => None,
                    Source::Json(_) => Some(covers_fields(options, source)),
                };
                analysis.value("ranking", ranking).value_or_null("covering", covering);
            });
        });
    });
}

fn write_hints(options: &FindOptions, search: TextSearch, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let node = options.selector.node();
    let mut hints = vec![("json", indexable_fields(node).into_iter().map(str::to_owned).collect::<BTreeSet<String>>())];
    for kind in [SearchKind::Clouseau, SearchKind::Nouveau].into_iter().filter(|kind| search.has(*kind)) {
        let mut fields = Vec::new();
        match clause(node) {
            Ok(clause) => clause.fields(&mut fields),
            Err(Refusal::InvalidFieldName(_)) => {}
            Err(refusal) => return Err(refusal),
        }
        hints.push((type_name(kind), fields.into_iter().map(|(name, _)| name).collect()));
    }
    let mut all = Vec::new();
    names_in(node, &mut all);
    all.sort_unstable();
    all.dedup();
    write_array(out, hints, |out, (kind, indexable)| {
        append_object(out, |object| {
            object.string("type", kind).strings("indexable_fields", &indexable);
            object.strings("unindexable_fields", all.iter().filter(|name| !indexable.contains(**name)));
        });
    });
    Ok(())
}

fn write_arguments(options: &FindOptions, plan: &Plan<'_>, object: &mut ObjectWriter<'_>) {
    let (start, end) = keys(plan);
    let (start, end, direction) = match options.sort.order {
        Order::Ascending => (start, end, "fwd"),
        Order::Descending => (end, start, "rev"),
    };
    object.value("include_docs", !plan.covering && options.quorum == 1).string("view_type", "map");
    object.value("reduce", false).string_or_null("partition", options.partition.as_deref());
    object.json("start_key", start.as_bytes()).json("end_key", end.as_bytes()).string("direction", direction);
    object.value("stable", options.stable || options.stale).value("update", options.updates());
    object.json("conflicts", if options.conflicts { b"true" } else { b"\"undefined\"" });
}

fn keys(plan: &Plan<'_>) -> (Json, Json) {
    if plan.is_noop {
        let null = || Json::trusted(b"null".to_vec());
        return (null(), null());
    }
    let key = |cut: &Cut| match cut {
        Cut::Start | Cut::End => None,
        Cut::Before(key) | Cut::After(key) => Some(key.clone()),
    };
    if matches!(plan.source, Source::Primary) {
        let (start, end) = match plan.prefix.first() {
            Some(Some(Interval { low, high })) => {
                let text = |key: std::sync::Arc<Key>| key.json.as_bytes().to_vec();
                (key(low).map_or_else(|| b"\"\"".to_vec(), text), key(high).map_or_else(|| MAX.to_vec(), text))
            }
            Some(None) | None => (b"null".to_vec(), MAX.to_vec()),
        };
        return (Json::trusted(start), Json::trusted(end));
    }
    let ranges: Vec<&Interval> = plan.prefix.iter().flatten().collect();
    let start = ranges.iter().map_while(|range| key(&range.low));
    let start: Vec<Vec<u8>> = start.map(|key| key.json.as_bytes().to_vec()).collect();
    let end = ranges.iter().map_while(|range| key(&range.high));
    let mut end: Vec<Vec<u8>> = end.map(|key| key.json.as_bytes().to_vec()).collect();
    end.push(MAX.to_vec());
    let list = |parts: Vec<Vec<u8>>| {
        let mut out = b"[".to_vec();
        out.extend_from_slice(&parts.join(&b','));
        out.push(b']');
        Json::trusted(out)
    };
    (list(start), list(end))
}

fn write_access(access: &Access<'_>, out: &mut Vec<u8>) {
    append_object(out, |object| {
        match access {
            Access::Primary(ranges) => object.string("type", "special").value("ranges", ranges.len()),
            Access::Index(index, ranges) => {
                object.string("type", "json").string("ddoc", index.design_id()).string("name", index.name());
                object.value("ranges", ranges.len())
            }
            Access::Union(parts) => {
                object.string("type", "union");
                write_array(object.name("parts"), parts, |out, part| write_access(part, out));
                object
            }
            Access::Text(text) => {
                object.string("type", type_name(text.index.definition.kind));
                object.string("ddoc", text.index.design_id()).string("name", text.index.name())
            }
        };
    });
}
