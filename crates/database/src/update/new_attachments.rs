//! The attachments of a revision that is to be written: [`NewAttachments`]. Which types are compressed and how large an
//! attachment may be is the caller's business.

use settee_model::AttachmentDigest;

use super::upload::{MEMORY_BYTES, Source, Uploaded};
use crate::Result;
use crate::attachment::Attachment;

/// An attachment of a revision that is to be written.
#[derive(Clone, Debug)]
pub struct NewAttachment {
    pub(crate) attachment: Attachment,
    pub(crate) source: Source,
    pub(crate) came: Came,
}

/// When an attachment came to its document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// In the generation that it says.
    Then,
    /// With the revision that is to be written.
    Now,
}

/// The attachments of a revision that is to be written, in its order.
#[derive(Clone, Debug, Default)]
pub struct NewAttachments {
    pub(crate) list: Vec<NewAttachment>,
    /// Whether stubs were left out because it was clear that nothing would be written.
    pub(crate) is_complete: bool,
}

impl NewAttachment {
    /// One that is stored already, with the generation in which it came.
    #[must_use]
    pub fn kept(attachment: Attachment) -> Self {
        Self { attachment, source: Source::Stored, came: Came::Then }
    }

    /// Uploaded data. `revpos` is the generation that a replicator tells; without one it is that of the revision.
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

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.attachment.name
    }
}

impl NewAttachments {
    /// These. What is held in memory and is too much for one commit is stored already.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn new(mut list: Vec<NewAttachment>) -> Result<Self> {
        let mut held: usize = list.iter().map(|new| new.source.held_bytes()).sum();
        for new in &mut list {
            if held <= MEMORY_BYTES {
                break;
            }
            held -= new.source.held_bytes();
            new.source.store()?;
        }
        Ok(Self { list, is_complete: true })
    }

    /// None, because the update will not be written: the revision is known, or it is a conflict. Should that turn
    /// out otherwise, it is answered as a conflict.
    #[must_use]
    pub fn left_out() -> Self {
        Self { list: Vec::new(), is_complete: false }
    }

    /// No attachments.
    #[must_use]
    pub fn none() -> Self {
        Self { list: Vec::new(), is_complete: true }
    }

    /// New ones in front, in the place of those that have their names.
    ///
    /// # Errors
    /// When the engine failed.
    pub fn replaced(self, mut new: Vec<NewAttachment>) -> Result<Self> {
        let kept = self.list.into_iter().filter(|old| new.iter().all(|new| new.name() != old.name()));
        let kept: Vec<NewAttachment> = kept.collect();
        new.extend(kept);
        Ok(Self { is_complete: self.is_complete, ..Self::new(new)? })
    }

    pub(crate) fn hashed(&self) -> Vec<AttachmentDigest<'_>> {
        self.list.iter().map(|new| new.attachment.hashed()).collect()
    }

    /// About how many bytes they add to a commit.
    pub(crate) fn size_bytes(&self) -> usize {
        self.list.iter().map(|new| new.source.held_bytes() + new.attachment.name.len() + 300).sum()
    }

    /// As they are stored with a revision of this generation.
    pub(crate) fn stored(&self, generation: u64) -> Vec<Attachment> {
        let stored = self.list.iter().map(|new| match new.came {
            Came::Then => new.attachment.clone(),
            Came::Now => Attachment { revpos: generation, ..new.attachment.clone() },
        });
        stored.collect()
    }
}
