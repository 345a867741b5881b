//! Incoming attachments: decides which entries of a document's `_attachments` are stored, kept or refused. The
//! functions of this module block on the database, except that an attempt may [`resolve`] contents of at most
//! [`Upload::MEMORY_BYTES`], which are not stored before their revision.

mod parts;
pub(crate) mod related;

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::StatusCode;
use settee_database::{
    Attachment, Compression, Database, EditMode, NewAttachment, NewAttachments, ParentAttachments, Reader, Upload,
    Uploaded, Waiting,
};
use settee_model::{AttachmentData, AttachmentMember, ContentEncoding, Document, Follows, Rev};
use settee_settings::{Settings, attachments, couchdb};

use crate::Error;

pub(crate) use parts::Parts;

#[derive(Clone, Debug)]
pub(crate) struct Policy {
    limit_bytes: u64,
    /// With level 0 no attachment is compressed.
    level: u32,
    compressible: Vec<String>,
}

impl Policy {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        let types = attachments::COMPRESSIBLE_TYPES.literal(settings);
        Self {
            limit_bytes: couchdb::MAX_ATTACHMENT_SIZE.of(settings),
            level: attachments::COMPRESSION_LEVEL.of(settings).min(9) as u32,
            compressible: types.split(',').map(|one| one.trim().to_ascii_lowercase()).collect(),
        }
    }

    pub(crate) fn compression(&self, content_type: &str) -> Compression {
        let essence = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        let matches = |pattern: &String| match pattern.split_once('*') {
            _ if pattern.is_empty() => false,
            Some((start, end)) => essence.starts_with(start) && essence[start.len()..].ends_with(end),
            None => *pattern == essence,
        };
        if self.level > 0 && self.compressible.iter().any(matches) {
            Compression::Gzip { level: self.level }
        } else {
            Compression::None
        }
    }

    pub(crate) fn check(&self, name: &str, bytes: u64) -> Result<(), Error> {
        if bytes <= self.limit_bytes {
            return Ok(());
        }
        Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "attachment_too_large", name.to_owned()))
    }
}

pub(crate) fn upload(
    database: &Arc<Database>,
    policy: &Policy,
    name: &str,
    compression: Compression,
    mut next: impl FnMut() -> Result<Option<Bytes>, Error>,
) -> Result<Uploaded, Error> {
    let mut upload = Upload::new(database, compression);
    while let Some(piece) = next()? {
        policy.check(name, upload.received() + piece.len() as u64)?;
        upload.write(&piece)?;
    }
    Ok(upload.finish()?)
}

/// Returns the attachments of the document `id` after an update by `reader`. `followed` has the data that was received
/// in separate parts.
pub(crate) fn resolve(
    (database, reader, id): (&Arc<Database>, &Reader, &str),
    policy: &Policy,
    document: &Document,
    mode: EditMode,
    mut followed: HashMap<String, Uploaded>,
    waiting: Waiting<'_>,
) -> Result<NewAttachments, Error> {
    let Some(attachments) = document.attachments.as_ref() else { return Ok(NewAttachments::none()) };
    let members = AttachmentMember::parse_all(attachments.value())?;
    if id.starts_with("_local/") {
        // The attachments of local documents are validated, but not stored.
        return Ok(NewAttachments::none());
    }
    let mut parent = None;
    if members.iter().any(|member| member.data == AttachmentData::Stub) {
        match database.read_as(reader, waiting)?.parent_attachments(id, &path(document), mode)? {
            ParentAttachments::Of(attachments) => parent = Some(attachments),
            ParentAttachments::Unneeded => return Ok(NewAttachments::left_out()),
        }
    }
    let mut list = Vec::with_capacity(members.len());
    for AttachmentMember { name, content_type, revpos, data } in members {
        let uploaded = match data {
            AttachmentData::Stub => {
                list.push(kept(parent.as_deref().unwrap_or_default(), id, &name, revpos)?);
                continue;
            }
            AttachmentData::Inline(bytes) => {
                let mut bytes = Some(Bytes::from(bytes));
                upload(database, policy, &name, policy.compression(&content_type), || Ok(bytes.take()))?
            }
            AttachmentData::Follows(_) => followed
                .remove(&name)
                .ok_or_else(|| Error::bad_request(format!("The data of attachment {name} does not follow")))?,
        };
        let revpos = (mode == EditMode::Replicated).then(|| revpos.unwrap_or_default());
        list.push(NewAttachment::uploaded(name, content_type, revpos, uploaded));
    }
    Ok(NewAttachments::new(database, list)?)
}

pub(crate) fn check(document: &Document) -> Result<(), Error> {
    if let Some(attachments) = &document.attachments {
        AttachmentMember::parse_all(attachments.value())?;
    }
    Ok(())
}

fn compression_of(policy: &Policy, content_type: &str, follows: &Follows) -> Compression {
    match follows.encoding {
        ContentEncoding::Identity => policy.compression(content_type),
        ContentEncoding::Gzip => Compression::Gzipped { length: follows.length },
    }
}

fn path(document: &Document) -> Vec<Rev> {
    match &document.revisions {
        Some(revisions) => revisions.path(),
        None => document.rev.iter().cloned().collect(),
    }
}

fn kept(parent: &[Attachment], id: &str, name: &str, revpos: Option<u64>) -> Result<NewAttachment, Error> {
    let found = parent.iter().find(|attachment| attachment.name == name);
    let found = found.filter(|attachment| revpos.is_none_or(|revpos| revpos == attachment.revpos));
    let missing = || {
        let reason = format!("Invalid attachment stub in {id} for {name}");
        Error::new(StatusCode::PRECONDITION_FAILED, "missing_stub", reason)
    };
    found.cloned().map(NewAttachment::kept).ok_or_else(missing)
}

#[cfg(test)]
mod tests;
