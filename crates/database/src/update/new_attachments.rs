//! [`NewAttachments`]: the attachments of a revision to be written.

use settee_model::AttachmentDigest;

use super::uploaded::{Source, Uploaded};
use crate::attachment::Attachment;

/// An attachment of a revision to be written.
#[derive(Clone, Debug)]
pub struct NewAttachment {
    pub(crate) attachment: Attachment,
    pub(crate) source: Source,
    pub(crate) came: Came,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    Then,
    Now,
}

/// The attachments of a revision to be written, in order.
#[derive(Clone, Debug, Default)]
pub struct NewAttachments {
    pub(crate) list: Vec<NewAttachment>,
    /// False if stubs were omitted because the update will not be written.
    pub(crate) is_complete: bool,
}

impl NewAttachment {
    /// Keeps a stored attachment with its generation.
    #[must_use]
    pub fn kept(attachment: Attachment) -> Self {
        Self { attachment, source: Source::Stored, came: Came::Then }
    }

    /// Adds uploaded data. `revpos` is the generation that a replicator supplies; the default is that of the revision.
    #[must_use]
    pub fn uploaded(name: String, content_type: String, revpos: Option<u64>, uploaded: Uploaded) -> Self {
        let Uploaded { encoding, digest, length, stored_length, content, source, .. } = uploaded;
        let attachment = Attachment {
            name,
            content_type,
            revpos: revpos.unwrap_or_default(),
            encoding,
            digest,
            length,
            stored_length,
            content,
        };
        Self { attachment, source, came: if revpos.is_some() { Came::Then } else { Came::Now } }
    }

    /// Name of the attachment.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attachment.name
    }
}

impl NewAttachments {
    /// List of an update whose revision is stored or conflicts. If it is applied nevertheless, the outcome is a
    /// conflict.
    #[must_use]
    pub fn left_out() -> Self {
        Self { list: Vec::new(), is_complete: false }
    }

    /// No attachments.
    #[must_use]
    pub fn none() -> Self {
        Self { list: Vec::new(), is_complete: true }
    }

    pub(crate) fn hashed(&self) -> Vec<AttachmentDigest<'_>> {
        self.list.iter().map(|new| new.attachment.hashed()).collect()
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.list.iter().map(|new| new.source.held_bytes() + new.attachment.name.len() + 300).sum()
    }

    pub(crate) fn stored(&self, generation: u64) -> Vec<Attachment> {
        let stored = self.list.iter().map(|new| match new.came {
            Came::Then => new.attachment.clone(),
            Came::Now => Attachment { revpos: generation, ..new.attachment.clone() },
        });
        stored.collect()
    }
}
