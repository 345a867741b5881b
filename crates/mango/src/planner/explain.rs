//! [`explain`]: a plan in the format of CouchDB's `_explain`; the additional member `access` is the actual access path.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use settee_database::{Database, Layout};
use settee_design::SearchKind;
use settee_model::json::{Json, write_array, write_string};

use super::access::{Access, TextAccess};
use super::usable::{Reason, Source, indexable_fields};
use super::{Plan, Trace, covers_fields, names_in};
use crate::bounds::{Cut, Interval, Key};
use crate::error::Refusal;
use crate::index::TextSearch;
use crate::options::{FindOptions, names};
use crate::selector::Node;
use crate::sort::Order;
use crate::text::definition::type_name;
use crate::text::sort;
use crate::text::translate::clause;

/// CouchDB's text for the upper end of a range.
const MAX: &[u8] = b"\"<MAX>\"";

pub(crate) fn explain(
    database: &Database,
    options: &FindOptions,
    plan: Option<&Plan<'_>>,
    trace: &Trace<'_>,
    search: TextSearch,
) -> Result<Vec<u8>, Refusal> {
    let mut out = b"{\"dbname\":".to_vec();
    write_string(&mut out, database.name());
    out.extend_from_slice(b",\"index\":");
    match plan {
        Some(plan) => plan.source.write(&mut out),
        None => out.extend_from_slice(b"null"),
    }
    let is_partitioned = database.layout() == Layout::Partitioned;
    out.extend_from_slice(format!(",\"partitioned\":{is_partitioned},\"selector\":").as_bytes());
    out.extend_from_slice(options.selector.to_json().as_bytes());
    out.extend_from_slice(b",\"opts\":");
    options.write(&mut out);
    out.extend_from_slice(format!(",\"limit\":{},\"skip\":{},\"fields\":", options.limit, options.skip).as_bytes());
    out.extend_from_slice(options.fields.to_json().as_bytes());
    out.extend_from_slice(b",\"index_candidates\":[");
    write_candidates(options, plan, trace, &mut out);
    out.extend_from_slice(b"],\"selector_hints\":[");
    write_hints(options, search, &mut out)?;
    out.push(b']');
    if let Some(plan) = plan {
        match &plan.access {
            Access::Text(text) => write_query(options, text, &mut out),
            Access::Primary(_) | Access::Index(..) | Access::Union(_) => {
                out.extend_from_slice(b",\"mrargs\":");
                write_arguments(options, plan, &mut out);
                out.extend_from_slice(format!(",\"covering\":{}", plan.covering).as_bytes());
            }
        }
        out.extend_from_slice(b",\"access\":");
        write_access(&plan.access, &mut out);
    }
    out.push(b'}');
    Ok(out)
}

fn write_query(options: &FindOptions, text: &TextAccess<'_>, out: &mut Vec<u8>) {
    let mut query = String::new();
    text.clause.write(&mut query);
    out.extend_from_slice(b",\"query\":");
    write_string(out, &query);
    out.extend_from_slice(b",\"partition\":");
    match &options.partition {
        Some(partition) => write_string(out, partition),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"sort\":");
    let sort = sort::explained(&text.sort, options.sort.order);
    match (sort.is_empty(), text.index.definition.kind) {
        (false, _) => out.extend_from_slice(names(sort.iter().map(String::as_str)).as_bytes()),
        (true, SearchKind::Clouseau) => out.extend_from_slice(b"\"relevance\""),
        (true, SearchKind::Nouveau) => out.extend_from_slice(b"null"),
    }
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
    for (index, (ranking, source, usable, reason)) in rows.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(b"{\"index\":");
        source.write(out);
        let covering = match source {
            Source::Primary | Source::Text(_) => "null".to_owned(),
            Source::Json(_) => covers_fields(options, source).to_string(),
        };
        out.extend_from_slice(
            format!(
                r#","analysis":{{"usable":{usable},"reasons":[{{"name":"{}"}}],"ranking":{ranking},"covering":{covering}}}}}"#,
                reason.name()
            )
            .as_bytes(),
        );
    }
}

fn write_hints(options: &FindOptions, search: TextSearch, out: &mut Vec<u8>) -> Result<(), Refusal> {
    let node = options.selector.node();
    write_hint("json", node, &indexable_fields(node), out);
    for kind in [SearchKind::Clouseau, SearchKind::Nouveau].into_iter().filter(|kind| search.has(*kind)) {
        let mut fields = Vec::new();
        match clause(node) {
            Ok(clause) => clause.fields(&mut fields),
            Err(Refusal::InvalidFieldName(_)) => {}
            Err(refusal) => return Err(refusal),
        }
        let fields: BTreeSet<&str> = fields.iter().map(|(name, _)| name.as_str()).collect();
        out.push(b',');
        write_hint(type_name(kind), node, &fields, out);
    }
    Ok(())
}

fn write_hint(kind: &str, node: &Node, indexable: &BTreeSet<&str>, out: &mut Vec<u8>) {
    let mut all = Vec::new();
    names_in(node, &mut all);
    all.sort_unstable();
    all.dedup();
    out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"indexable_fields\":").as_bytes());
    out.extend_from_slice(names(indexable.iter().copied()).as_bytes());
    out.extend_from_slice(b",\"unindexable_fields\":");
    out.extend_from_slice(names(all.into_iter().filter(|name| !indexable.contains(name))).as_bytes());
    out.push(b'}');
}

fn write_arguments(options: &FindOptions, plan: &Plan<'_>, out: &mut Vec<u8>) {
    let (start, end) = keys(plan);
    let (start, end, direction) = match options.sort.order {
        Order::Ascending => (start, end, "fwd"),
        Order::Descending => (end, start, "rev"),
    };
    let include_docs = !plan.covering && options.quorum == 1;
    out.extend_from_slice(
        format!(r#"{{"include_docs":{include_docs},"view_type":"map","reduce":false,"partition":"#).as_bytes(),
    );
    match &options.partition {
        Some(partition) => write_string(out, partition),
        None => out.extend_from_slice(b"null"),
    }
    out.extend_from_slice(b",\"start_key\":");
    out.extend_from_slice(start.as_bytes());
    out.extend_from_slice(b",\"end_key\":");
    out.extend_from_slice(end.as_bytes());
    let conflicts = if options.conflicts { "true" } else { "\"undefined\"" };
    out.extend_from_slice(
        format!(
            r#","direction":"{direction}","stable":{},"update":{},"conflicts":{conflicts}}}"#,
            options.stable || options.stale,
            options.updates()
        )
        .as_bytes(),
    );
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
    match access {
        Access::Primary(ranges) => {
            out.extend_from_slice(format!(r#"{{"type":"special","ranges":{}}}"#, ranges.len()).as_bytes());
        }
        Access::Index(index, ranges) => {
            out.extend_from_slice(b"{\"type\":\"json\",\"ddoc\":");
            write_string(out, index.design_id());
            out.extend_from_slice(b",\"name\":");
            write_string(out, index.name());
            out.extend_from_slice(format!(",\"ranges\":{}}}", ranges.len()).as_bytes());
        }
        Access::Union(parts) => {
            out.extend_from_slice(b"{\"type\":\"union\",\"parts\":");
            write_array(out, parts, |out, part| write_access(part, out));
            out.push(b'}');
        }
        Access::Text(text) => {
            let kind = type_name(text.index.definition.kind);
            out.extend_from_slice(format!("{{\"type\":\"{kind}\",\"ddoc\":").as_bytes());
            write_string(out, text.index.design_id());
            out.extend_from_slice(b",\"name\":");
            write_string(out, text.index.name());
            out.push(b'}');
        }
    }
}
