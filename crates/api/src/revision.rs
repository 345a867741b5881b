//! Encoding of a revision with the additional members that the reader requested.

pub(crate) mod attachments;
pub(crate) mod multipart;

use settee_database::{DatabaseError, DocRecord, ReadView};
use settee_model::json::{append_object, write_array};
use settee_service::revisions::{write_leaves, write_revisions};

use self::attachments::Text;
use crate::Error;
use crate::params::attachments::Shown;
use crate::params::document::Extras;

/// Dependencies of the encoded text, which determine if the revision can be its entity tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Encoded {
    ByRevision,
    /// The text also depends on other leaves or on the update sequence.
    ByDocument,
    /// The body was removed by a compaction.
    Gone,
}

/// Appends the revision at `node`. If it is the winner, the members about other leaves are added.
pub(crate) fn write(
    out: &mut Vec<u8>,
    view: &ReadView<'_>,
    id: &str,
    record: &DocRecord,
    node: u32,
    extras: Extras,
) -> Result<Encoded, Error> {
    write_with(out, view, id, record, node, extras, &Shown::default())
}

pub(crate) fn write_with(
    out: &mut impl Text,
    view: &ReadView<'_>,
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

pub(crate) fn write_winner(
    out: &mut impl Text,
    view: &ReadView<'_>,
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

pub(crate) fn unreadable(error: std::io::Error) -> Error {
    match error.downcast::<DatabaseError>() {
        Ok(error) => error.into(),
        Err(error) => Error::internal(format!("an attachment is not readable: {error}")),
    }
}

pub(crate) fn depends(view: &ReadView<'_>, record: &DocRecord, node: u32, extras: Extras) -> Result<Encoded, Error> {
    Ok(members(view, record, node, extras)?.0)
}

fn members(view: &ReadView<'_>, record: &DocRecord, node: u32, extras: Extras) -> Result<(Encoded, Vec<u8>), Error> {
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
        append_object(out, |object| {
            ancestor.rev.write_json(object.name("rev"));
            object.string("status", status);
        });
    });
}
