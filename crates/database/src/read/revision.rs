//! [`Revision`]: a stored revision with its attachments.

use settee_model::{Document, Rev};

use crate::attachment::{Attachment, EncodingInfo, decode_all, write_stubs};
use crate::record::Stored;
use crate::{DatabaseError, Result};

/// A revision as it is stored.
#[derive(Clone, Debug, Default)]
pub struct Revision {
    /// Attachments in the order of the document.
    pub attachments: Vec<Attachment>,
    bytes: Vec<u8>,
    body_at: usize,
}

impl Revision {
    /// Returns the body: a JSON object without underscore members.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.bytes[self.body_at..]
    }

    /// Returns the body, owned.
    #[must_use]
    pub fn into_body(mut self) -> Vec<u8> {
        self.bytes.drain(..self.body_at);
        self.bytes
    }

    /// Appends the document, as [`ReadView::write_document`](crate::ReadView::write_document).
    pub fn write(&self, out: &mut Vec<u8>, id: &str, rev: &Rev, deleted: bool, extra: impl FnOnce(&mut Vec<u8>)) {
        self.write_without_attachments(out, id, rev, deleted, extra);
        write_stubs(out, &self.attachments, EncodingInfo::Hidden);
    }

    /// As [`Self::write`], without the attachments.
    pub fn write_without_attachments(
        &self,
        out: &mut Vec<u8>,
        id: &str,
        rev: &Rev,
        deleted: bool,
        extra: impl FnOnce(&mut Vec<u8>),
    ) {
        Document::write_json(out, id, rev, deleted, extra, self.body());
    }

    pub(crate) fn decode(stored: Stored, bytes: Vec<u8>) -> Result<Self> {
        let body_at = stored.attachments_size as usize;
        let attachments = match bytes.get(..body_at) {
            Some([]) => Vec::new(),
            Some(record) => decode_all(record)?,
            None => return Err(DatabaseError::Corrupt("attachments")),
        };
        Ok(Self { attachments, bytes, body_at })
    }
}
