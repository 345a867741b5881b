//! Attachments: what is stored of them with a revision ([`Attachment`]), how their bytes come in ([`Upload`]) and go
//! out ([`Content`]).
//!
//! Bytes are addressed by their hash and stored once in a database, in chunks, however many revisions refer to them.
//! A count of references is beside them and changes in the commit that stores or removes a revision. What is being
//! uploaded is there too, under a mark that goes when a revision takes the bytes; marks that a crash left behind
//! are collected when the database is opened. Which types are compressed and how large an attachment may be is the
//! caller's business.

mod content;
mod parent;
mod upload;

pub use content::{Content, ContentReader, Form};
pub use parent::ParentAttachments;
pub use settee_model::ContentEncoding;
use settee_model::json::write_string;
use settee_model::{AttachmentDigest, base64};
pub use upload::{Compression, Upload, Uploaded};

pub(crate) use content::ContentRecord;
pub(crate) use upload::Source;

use crate::codec::{Reader, put_bytes, put_varint};
use crate::{DatabaseError, Result, StorageError};

/// Names bytes by what they are: their SHA-256.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId(pub(crate) [u8; 32]);

/// An attachment of a stored revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Its name.
    pub name: String,
    /// Its media type.
    pub content_type: String,
    /// The generation in which it came.
    pub revpos: u64,
    /// How its bytes are stored.
    pub encoding: ContentEncoding,
    /// MD5 of the stored bytes.
    pub digest: [u8; 16],
    /// The number of bytes that clients see. Equal to [`Self::stored_length`] if the bytes came compressed and nobody
    /// told what is in them, as in CouchDB.
    pub length: u64,
    /// The number of bytes that are stored.
    pub stored_length: u64,
    /// The bytes.
    pub content: ContentId,
}

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

/// Whether clients are told how attachments are stored (`att_encoding_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodingInfo {
    /// No.
    #[default]
    Hidden,
    /// Those that are compressed have `encoding` and `encoded_length`.
    Shown,
}

impl Attachment {
    /// Appends the stored form.
    fn encode(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.name.as_bytes());
        put_bytes(out, self.content_type.as_bytes());
        put_varint(out, self.revpos);
        out.push(u8::from(self.encoding == ContentEncoding::Gzip));
        out.extend_from_slice(&self.digest);
        put_varint(out, self.length);
        put_varint(out, self.stored_length);
        out.extend_from_slice(&self.content.0);
    }

    fn decode(reader: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            name: reader.text()?.to_owned(),
            content_type: reader.text()?.to_owned(),
            revpos: reader.varint()?,
            encoding: match reader.byte()? {
                0 => ContentEncoding::Identity,
                _ => ContentEncoding::Gzip,
            },
            digest: reader.array()?,
            length: reader.varint()?,
            stored_length: reader.varint()?,
            content: ContentId(reader.array()?),
        })
    }

    /// The digest that enters into the revision hash.
    #[must_use]
    pub fn hashed(&self) -> AttachmentDigest<'_> {
        AttachmentDigest { name: &self.name, content_type: &self.content_type, md5: self.digest }
    }

    /// Appends the digest as clients see it, without its prefix `md5-`.
    pub fn write_digest(&self, out: &mut Vec<u8>) {
        base64::encode(&self.digest, out);
    }

    /// Appends the member's name and what its object begins with: content type, revpos and digest.
    pub fn write_beginning(&self, out: &mut Vec<u8>) {
        write_string(out, &self.name);
        out.extend_from_slice(b":{\"content_type\":");
        write_string(out, &self.content_type);
        out.extend_from_slice(format!(",\"revpos\":{},\"digest\":\"md5-", self.revpos).as_bytes());
        self.write_digest(out);
        out.push(b'"');
    }

    /// Appends the length and `mark`, which is `stub` or `follows`.
    pub fn write_mark(&self, mark: &str, out: &mut Vec<u8>) {
        out.extend_from_slice(format!(",\"length\":{},\"{mark}\":true", self.length).as_bytes());
    }

    /// Appends the end of the member's object.
    pub fn write_end(&self, info: EncodingInfo, out: &mut Vec<u8>) {
        if info == EncodingInfo::Shown && self.encoding == ContentEncoding::Gzip {
            out.extend_from_slice(
                format!(",\"encoding\":\"gzip\",\"encoded_length\":{}", self.stored_length).as_bytes(),
            );
        }
        out.push(b'}');
    }
}

/// Makes `_attachments` the last member of the document at the end of `out`: all of them as stubs. Nothing without
/// attachments.
pub fn write_stubs(out: &mut Vec<u8>, attachments: &[Attachment], info: EncodingInfo) {
    write_marked(out, attachments, info, |_| "stub");
}

/// As [`write_stubs`], with the mark that `mark` gives to each: `stub` or `follows`.
pub fn write_marked(
    out: &mut Vec<u8>,
    attachments: &[Attachment],
    info: EncodingInfo,
    mark: impl Fn(&Attachment) -> &'static str,
) {
    if attachments.is_empty() || out.pop().is_none() {
        return;
    }
    out.extend_from_slice(b",\"_attachments\":{");
    for (index, attachment) in attachments.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        attachment.write_beginning(out);
        attachment.write_mark(mark(attachment), out);
        attachment.write_end(info, out);
    }
    out.extend_from_slice(b"}}");
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
            if held <= upload::MEMORY_BYTES {
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

/// Appends the stored form of a revision's attachments, which is before its body.
pub(crate) fn encode_all(attachments: &[Attachment], out: &mut Vec<u8>) {
    put_varint(out, attachments.len() as u64);
    for attachment in attachments {
        attachment.encode(out);
    }
}

/// Reads what [`encode_all`] wrote.
pub(crate) fn decode_all(bytes: &[u8]) -> Result<Vec<Attachment>> {
    let mut reader = Reader::new(bytes, "attachments");
    let count = reader.varint()?;
    let attachments = (0..count).map(|_| Attachment::decode(&mut reader)).collect::<Result<_>>()?;
    if reader.rest().is_empty() { Ok(attachments) } else { Err(DatabaseError::Corrupt("attachments")) }
}

/// A failure of the engine on its way through an interface of bytes.
fn io_error(error: DatabaseError) -> std::io::Error {
    std::io::Error::other(error)
}

/// The failure that an interface of bytes reports.
pub(crate) fn from_io(error: std::io::Error) -> DatabaseError {
    match error.downcast::<DatabaseError>() {
        Ok(error) => error,
        Err(error) => StorageError::Io(error.to_string()).into(),
    }
}
