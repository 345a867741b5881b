//! Encoding a revision of a document with what its reader asked for beside it.

pub(crate) mod attachments;
pub(crate) mod multipart;

use settee_database::{DatabaseError, DocRecord, ReadView};
use settee_model::json::write_array;
use settee_service::revisions::{write_leaves, write_revisions};

use self::attachments::Text;
use crate::Error;
use crate::params::attachments::Shown;
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
    write_with(out, view, id, record, node, extras, &Shown::default())
}

/// As [`write()`], with attachments as they are to be shown.
pub(crate) fn write_with(
    out: &mut impl Text,
    view: &ReadView,
    id: &str,
    record: &DocRecord,
    node: u32,
    extras: Extras,
    shown: &Shown,
) -> Result<Encoded, Error> {
    let revision = record.tree.node(node);
    let Some(stored) = revision.value else {
        return Ok(Encoded::Gone);
    };
    let (encoded, members) = members(view, record, node, extras)?;
    out.expect(stored.size as usize)?;
    let Some(read) = view.revision(stored)? else {
        return Ok(Encoded::Gone);
    };
    read.write_without_attachments(out.text(), id, &revision.rev, stored.deleted, |out| out.extend(members));
    attachments::write(out, view, &read.attachments, shown.wanted(record, node), shown.info)?;
    Ok(encoded)
}

/// Appends the winning revision, with attachments as they are to be shown.
pub(crate) fn write_winner(
    out: &mut impl Text,
    view: &ReadView,
    id: &str,
    extras: Extras,
    shown: &Shown,
) -> Result<Encoded, Error> {
    let record = view.record(id)?;
    let winner = record.as_deref().and_then(|record| record.tree.winner(|stored| stored.deleted));
    match (record, winner) {
        (Some(record), Some(winner)) => write_with(out, view, id, &record, winner, extras, shown),
        _ => Ok(Encoded::Gone),
    }
}

/// The failure to read the bytes of an attachment.
pub(crate) fn unreadable(error: std::io::Error) -> Error {
    match error.downcast::<DatabaseError>() {
        Ok(error) => error.into(),
        Err(error) => Error::internal(format!("an attachment is not readable: {error}")),
    }
}

/// The options that the text of the revision at `node` depends on.
pub(crate) fn depends(view: &ReadView, record: &DocRecord, node: u32, extras: Extras) -> Result<Encoded, Error> {
    Ok(members(view, record, node, extras)?.0)
}

/// The members that go behind the body, in CouchDB's order, and what they depend on.
fn members(view: &ReadView, record: &DocRecord, node: u32, extras: Extras) -> Result<(Encoded, Vec<u8>), Error> {
    let mut members = Vec::new();
    let limit = if extras.revs || extras.revs_info { view.revs_limit()? } else { 0 };
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    if extras.revs {
        write_revisions(&mut members, record, node, limit);
    }
    let plain = members.len();
    if extras.revs_info {
        write_revs_info(&mut members, record, node, limit);
    }
    if extras.conflicts {
        write_leaves(&mut members, "_conflicts", record, node, |stored| !stored.deleted);
    }
    if extras.deleted_conflicts {
        write_leaves(&mut members, "_deleted_conflicts", record, node, |stored| stored.deleted);
    }
    if extras.local_seq {
        members.extend_from_slice(format!(",\"_local_seq\":{}", record.seq).as_bytes());
    }
    let encoded = if members.len() == plain { Encoded::ByRevision } else { Encoded::ByDocument };
    Ok((encoded, members))
}

fn write_revs_info(out: &mut Vec<u8>, record: &DocRecord, node: u32, limit: usize) {
    out.extend_from_slice(b",\"_revs_info\":");
    write_array(out, record.tree.history(node).take(limit), |out, ancestor| {
        let ancestor = record.tree.node(ancestor);
        let status = match ancestor.value {
            None => "missing",
            Some(stored) if stored.deleted => "deleted",
            Some(_) => "available",
        };
        out.extend_from_slice(b"{\"rev\":");
        ancestor.rev.write_json(out);
        out.extend_from_slice(format!(",\"status\":\"{status}\"}}").as_bytes());
    });
}
