//! Members of documents that contain revisions, and documents as functions of design documents see them.

use settee_database::{DocRecord, ReadView, Stored};
use settee_model::{Rev, json};

use crate::Error;

/// CouchDB's `[query_server_config] revs_limit`.
const FUNCTION_REVISIONS: usize = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conflicts {
    Shown,
    Hidden,
}

/// Appends the revision at `node` as functions of design documents see it: with the newest of its `_revisions`, and
/// with `_conflicts` for the functions that receive them in CouchDB. Returns `false` if its body was removed.
pub fn write_for_functions(
    out: &mut Vec<u8>,
    view: &ReadView<'_>,
    id: &str,
    record: &DocRecord,
    node: u32,
    conflicts: Conflicts,
) -> Result<bool, Error> {
    let revision = record.tree.node(node);
    let Some(stored) = revision.value else {
        return Ok(false);
    };
    let members = |out: &mut Vec<u8>| {
        write_revisions(out, record, node, FUNCTION_REVISIONS);
        if conflicts == Conflicts::Shown {
            write_leaves(out, "_conflicts", record, node, |stored| !stored.deleted);
        }
    };
    Ok(view.write_document(out, id, &revision.rev, stored, members)?)
}

pub fn rev_list(out: &mut Vec<u8>, revs: impl Iterator<Item = Rev>) {
    json::write_array(out, revs, |out, rev| rev.write_json(out));
}

pub fn write_revisions(out: &mut Vec<u8>, record: &DocRecord, node: u32, limit: usize) {
    let start = record.tree.node(node).rev.generation;
    out.extend_from_slice(format!(",\"_revisions\":{{\"start\":{start},\"ids\":[").as_bytes());
    for (index, ancestor) in record.tree.history(node).take(limit).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_string(out, &record.tree.node(ancestor).rev.hash.to_string());
    }
    out.extend_from_slice(b"]}");
}

pub fn write_leaves(out: &mut Vec<u8>, name: &str, record: &DocRecord, node: u32, wanted: impl Fn(Stored) -> bool) {
    let leaves = record.tree.leaves_by_rank(|stored| stored.deleted).into_iter().filter(|leaf| *leaf != node);
    let revs: Vec<Rev> = leaves
        .map(|leaf| record.tree.node(leaf))
        .filter(|leaf| leaf.value.is_some_and(&wanted))
        .map(|leaf| leaf.rev.clone())
        .collect();
    if !revs.is_empty() {
        out.extend_from_slice(format!(",\"{name}\":").as_bytes());
        rev_list(out, revs.into_iter());
    }
}
