//! Encoding a revision of a document with what its reader asked for beside it.

use settee_database::{DocRecord, ReadView, Stored};
use settee_model::Rev;
use settee_model::json;

use crate::Error;
use crate::params::document::Extras;

/// Whether members were added that depend on more than the revision, so that it cannot be the entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoded {
    /// The revision alone decides the text.
    ByRevision,
    /// So do other leaves, or the place in the database.
    ByDocument,
    /// The body was removed by a compaction.
    Gone,
}

/// Appends the revision at `node`. With `winner` the members that tell of other leaves are added.
pub(crate) fn write(
    out: &mut Vec<u8>,
    view: &ReadView,
    id: &str,
    record: &DocRecord,
    node: u32,
    extras: Extras,
) -> Result<Encoded, Error> {
    let revision = record.tree.node(node);
    let Some(stored) = revision.value else {
        return Ok(Encoded::Gone);
    };
    let mut members = Vec::new();
    if extras.revs {
        write_revisions(&mut members, record, node);
    }
    let plain = members.len();
    if extras.revs_info {
        write_revs_info(&mut members, record, node);
    }
    if extras.local_seq {
        members.extend_from_slice(format!(",\"_local_seq\":{}", record.seq).as_bytes());
    }
    if extras.conflicts {
        write_leaves(&mut members, "_conflicts", record, node, |stored| !stored.deleted);
    }
    if extras.deleted_conflicts {
        write_leaves(&mut members, "_deleted_conflicts", record, node, |stored| stored.deleted);
    }
    let encoded = if members.len() == plain { Encoded::ByRevision } else { Encoded::ByDocument };
    let found = view.write_document(out, id, &revision.rev, stored, |out| out.extend_from_slice(&members))?;
    Ok(if found { encoded } else { Encoded::Gone })
}

/// The node to read when a revision is asked for with all that descends from it.
pub(crate) fn rev_list(out: &mut Vec<u8>, revs: impl Iterator<Item = Rev>) {
    out.push(b'[');
    for (index, rev) in revs.enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_string(out, &rev.to_string());
    }
    out.push(b']');
}

fn write_revisions(out: &mut Vec<u8>, record: &DocRecord, node: u32) {
    let start = record.tree.node(node).rev.generation;
    out.extend_from_slice(format!(",\"_revisions\":{{\"start\":{start},\"ids\":[").as_bytes());
    for (index, ancestor) in record.tree.history(node).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        json::write_string(out, &record.tree.node(ancestor).rev.hash.to_string());
    }
    out.extend_from_slice(b"]}");
}

fn write_revs_info(out: &mut Vec<u8>, record: &DocRecord, node: u32) {
    out.extend_from_slice(b",\"_revs_info\":[");
    for (index, ancestor) in record.tree.history(node).enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let ancestor = record.tree.node(ancestor);
        let status = match ancestor.value {
            None => "missing",
            Some(stored) if stored.deleted => "deleted",
            Some(_) => "available",
        };
        out.extend_from_slice(format!("{{\"rev\":\"{}\",\"status\":\"{status}\"}}", ancestor.rev).as_bytes());
    }
    out.push(b']');
}

fn write_leaves(out: &mut Vec<u8>, name: &str, record: &DocRecord, node: u32, wanted: impl Fn(Stored) -> bool) {
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
