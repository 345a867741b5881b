//! Documents, revisions, JSON text and collation as values without I/O.
//!
//! A document enters as text: [`json::compact`] validates it, [`Document::parse`] separates the client's members from
//! those that start with an underscore, [`mod@revision_hash`] computes the id of the new revision, and
//! [`rev_tree::RevTree`] merges it into the revision tree. Views order emitted keys with [`collate`].

#![warn(missing_docs)]

mod attachment;
pub mod base64;
pub mod calendar;
pub mod collate;
mod document;
pub mod json;
pub mod limits;
pub mod partition;
mod rev;
pub mod rev_tree;
mod revision_hash;
pub mod term;
pub mod term_order;
#[expect(missing_docs, reason = "support of tests: the names state the results")]
pub mod testing;

pub use crate::attachment::{
    AttachmentData, AttachmentError, AttachmentMember, ContentEncoding, DEFAULT_CONTENT_TYPE, Follows,
    validate_attachment_name,
};
pub use crate::document::{
    Document, DocumentError, DocumentErrorKind, IllegalId, InvalidRevisions, Revisions, validate_doc_id,
};
pub use crate::rev::{InvalidRev, Rev, RevHash};
pub use crate::revision_hash::{AttachmentDigest, RevisionHasher, revision_hash};
