//! The model maps all documents, sorts by [`compare`], and evaluates queries by reading every row.

use std::cmp::Ordering;

use settee_design::{DesignDocument, ViewDefinition};
use settee_model::collate::{Collation, compare};
use settee_model::json::{Json, Value};
use settee_model::term_order;

use super::Rows;
use super::host::Documents;
use crate::leaf::{Group, Leaf, Row};
use crate::query::{End, Header, Inclusion, Keys, Order, Reduce, Start, ViewQuery};
use crate::reduce::Aggregate;
use crate::testing::{Rules, apply_rule};

#[derive(Clone, Debug)]
struct ModelRow {
    key: Json,
    id: String,
    value: String,
}

fn rows(documents: &Documents, ddoc: &DesignDocument, view: &ViewDefinition) -> Vec<ModelRow> {
    let mut rows = Vec::new();
    for (id, document) in &documents.by_id {
        let Some(json) = &document.json else { continue };
        if id.starts_with("_design/") && !ddoc.options.include_design {
            continue;
        }
        let mut emitted = Vec::new();
        let mut emit = |key: &[u8], value: &[u8]| {
            emitted.push(ModelRow { key: Json::trusted(key.to_vec()), id: id.clone(), value: super::text(value) });
        };
        let _ = apply_rule(&view.map, Value::trusted(json.as_bytes()), &mut emit);
        sort_repeated_keys(&mut emitted);
        rows.append(&mut emitted);
    }
    rows.sort_by(|a, b| by_key(&a.key, &b.key, view.collation).then_with(|| a.id.cmp(&b.id)));
    rows
}

fn sort_repeated_keys(rows: &mut [ModelRow]) {
    for end in (0..rows.len()).rev() {
        for at in 0..end {
            let next = (at + 1..rows.len()).find(|&next| rows[next].key == rows[at].key);
            let by_value = |a: &ModelRow, b: &ModelRow| {
                term_order::compare(Value::trusted(a.value.as_bytes()), Value::trusted(b.value.as_bytes()))
            };
            if let Some(next) = next.filter(|&next| by_value(&rows[at], &rows[next]).is_gt()) {
                rows.swap(at, next);
            }
        }
    }
}

fn by_key(a: &Json, b: &Json, collation: Collation) -> Ordering {
    compare(a.value(), b.value(), collation)
}

fn is_from(row: &ModelRow, start: &Start, order: Order, collation: Collation) -> bool {
    let by_id = || {
        start.docid.as_ref().map_or(Ordering::Equal, |id| {
            let by_id = row.id.cmp(id);
            if order == Order::Ascending { by_id } else { by_id.reverse() }
        })
    };
    directed(by_key(&row.key, &start.key, collation), order).then_with(by_id) != Ordering::Less
}

fn is_to(row: &ModelRow, end: &End, order: Order, collation: Collation) -> bool {
    let by_id = || end.docid.as_ref().map_or(Ordering::Equal, |id| directed(row.id.cmp(id), order));
    let place = directed(by_key(&row.key, &end.key, collation), order).then_with(by_id);
    place == Ordering::Less || place == Ordering::Equal && end.inclusion == Inclusion::Inclusive
}

fn directed(ordering: Ordering, order: Order) -> Ordering {
    if order == Order::Ascending { ordering } else { ordering.reverse() }
}

pub(super) fn answer(documents: &Documents, ddoc: &DesignDocument, view: &str, query: &ViewQuery) -> Rows {
    let view = ddoc.view(view).unwrap();
    let collation = view.collation;
    let mut all = rows(documents, ddoc, view);
    // `total_rows` and `offset` include the rows of all partitions.
    let mut before_partition = 0;
    let everything = all.len() as u64;
    if let Some(partition) = query.partition.as_ref() {
        let part = |row: &ModelRow| row.id.split(':').next().unwrap().to_owned();
        let behind = query.order == Order::Descending;
        before_partition =
            all.iter().filter(|row| (part(row) > *partition) == behind && part(row) != *partition).count();
        all.retain(|row| part(row) == *partition);
    }
    if query.order == Order::Descending {
        all.sort_by(|a, b| by_key(&b.key, &a.key, collation).then_with(|| b.id.cmp(&a.id)));
    }
    let in_range = |row: &&ModelRow, start: &Option<Start>, end: &Option<End>| {
        start.as_ref().is_none_or(|start| is_from(row, start, query.order, collation))
            && end.as_ref().is_none_or(|end| is_to(row, end, query.order, collation))
    };
    let mut ranges: Vec<Vec<ModelRow>> = Vec::new();
    let mut offset = 0;
    match &query.keys {
        Keys::Range { start, end } => {
            ranges.push(all.iter().filter(|row| in_range(row, start, end)).cloned().collect());
            let before =
                |row: &&ModelRow| start.as_ref().is_some_and(|start| !is_from(row, start, query.order, collation));
            // Without rows in a descending result, the offset counts the rows that precede its start.
            offset = all.iter().filter(before).count();
        }
        Keys::Many(keys, _) => {
            if keys.is_empty() {
                before_partition = 0;
            }
            let mut keys: Vec<&Json> = keys.iter().collect();
            if query.order == Order::Descending {
                keys.reverse();
            }
            if let Some(first) = keys.first() {
                let before = |row: &&ModelRow| directed(by_key(&row.key, first, collation), query.order).is_lt();
                offset = all.iter().filter(before).count();
            }
            let of_key =
                |key: &Json| all.iter().filter(|row| by_key(&row.key, key, collation).is_eq()).cloned().collect();
            ranges.extend(keys.into_iter().map(of_key));
        }
    }
    let skip = usize::try_from(query.skip).unwrap();
    let limit = query.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap());
    let update_seq = documents.update_seq;
    let Some(reduce) = view.reduce.as_ref().filter(|_| query.reduce != Reduce::Off) else {
        let total_rows = everything;
        let in_first_range = ranges.first().filter(|_| query.partition.is_some());
        let skipped = in_first_range.map_or(query.skip, |range| query.skip.min(range.len() as u64));
        let offset = ((before_partition + offset) as u64 + skipped).min(total_rows);
        let shown = ranges.into_iter().flatten().skip(skip).take(limit);
        return Rows {
            header: Some(Header::Map { total_rows, offset, update_seq }),
            map: shown.map(|row| (super::text(row.key.as_bytes()), row.id, row.value)).collect(),
            reduce: Vec::new(),
            stale: None,
        };
    };
    let mut groups: Vec<Vec<ModelRow>> = Vec::new();
    for range in ranges {
        let mut current: Option<Json> = None;
        for row in range {
            let key = group_key(&row.key, query.reduce);
            if !current.as_ref().is_some_and(|current| by_key(current, &key, collation).is_eq()) {
                groups.push(Vec::new());
                current = Some(key);
            }
            groups.last_mut().unwrap().push(row);
        }
    }
    let mut aggregate = Aggregate::open(reduce, &Rules::shared(), Default::default()).unwrap();
    let shown = groups.into_iter().skip(skip).take(limit);
    Rows {
        header: Some(Header::Reduce { update_seq }),
        map: Vec::new(),
        reduce: shown.map(|group| show_group(&group, query, collation, &mut aggregate)).collect(),
        stale: None,
    }
}

fn group_key(key: &Json, reduce: Reduce) -> Json {
    match reduce {
        Reduce::Exact => key.clone(),
        Reduce::Level(level) if level > 0 && key.value().is_array() => {
            let elements: Vec<String> =
                key.value().elements().take(level as usize).map(|element| super::text(element.raw())).collect();
            Json::trusted(format!("[{}]", elements.join(",")).into_bytes())
        }
        Reduce::Level(level) if level > 0 => key.clone(),
        _ => Json::trusted(b"null".to_vec()),
    }
}

fn show_group(
    group: &[ModelRow],
    query: &ViewQuery,
    collation: Collation,
    aggregate: &mut Aggregate,
) -> (String, String) {
    let key = group_key(&group[0].key, query.reduce);
    let mut ascending: Vec<&ModelRow> = group.iter().collect();
    ascending.sort_by(|a, b| by_key(&a.key, &b.key, collation).then_with(|| a.id.cmp(&b.id)));
    let mut leaf = Leaf::default();
    for (index, row) in ascending.into_iter().enumerate() {
        let mut row_key = Vec::new();
        settee_model::collate::encode(row.key.value(), collation, &mut row_key);
        let sort_len = row_key.len();
        crate::keys::finish_row_key(&mut row_key, row.id.as_bytes(), u32::try_from(index).unwrap());
        leaf.push(Row { row_key: &row_key, sort_len, key: row.key.as_bytes(), value: row.value.as_bytes() });
    }
    let reduction = aggregate.reduce(&[Group::whole(&leaf)]).unwrap().pop().unwrap();
    let mut value = Vec::new();
    aggregate.finish(&reduction, &mut value);
    (super::text(key.as_bytes()), super::text(&value))
}
