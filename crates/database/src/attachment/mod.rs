//! Attachments: the stored metadata of a revision ([`Attachment`]) and reads of their content ([`Content`]). Contents
//! are addressed by their hash and stored once per database, in chunks. Each content has a reference count, which
//! changes in the commit that stores or removes a revision. An upload in progress has a mark, which the commit of the
//! revision removes; opening the database collects the marks that a crash left.

mod content;

pub use content::{Content, ContentReader, Form};
pub use settee_model::ContentEncoding;
use settee_model::json::write_string;
use settee_model::{AttachmentDigest, base64};
use settee_storage::codec::{Reader, put_bytes, put_varint};

pub(crate) use content::ContentRecord;

use crate::{DatabaseError, Result, StorageError};

/// SHA-256 that identifies a content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ContentId(pub(crate) [u8; 32]);

/// An attachment of a stored revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attachment {
    /// Name of the attachment.
    pub name: String,
    /// Media type.
    pub content_type: String,
    /// Generation of the revision that added the attachment.
    pub revpos: u64,
    /// Encoding of the stored bytes.
    pub encoding: ContentEncoding,
    /// MD5 of the stored bytes.
    pub digest: [u8; 16],
    /// Size in bytes after decompression. As in CouchDB, equal to [`Self::stored_length`] if the content was uploaded
    /// compressed without its original size.
    pub length: u64,
    /// Stored size in bytes.
    pub stored_length: u64,
    /// Hash of the content.
    pub content: ContentId,
}

/// Inclusion of the encoding of attachments in documents (`att_encoding_info`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EncodingInfo {
    /// Not included.
    #[default]
    Hidden,
    /// Compressed attachments have `encoding` and `encoded_length`.
    Shown,
}

impl Attachment {
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

    /// Returns the properties that the revision hash contains.
    #[must_use]
    pub fn hashed(&self) -> AttachmentDigest<'_> {
        AttachmentDigest { name: &self.name, content_type: &self.content_type, md5: self.digest }
    }

    /// Appends the digest in base64, without the prefix `md5-`.
    pub fn write_digest(&self, out: &mut Vec<u8>) {
        base64::encode(&self.digest, out);
    }

    /// Appends the name of the member and the start of its object: content type, revpos and digest.
    pub fn write_beginning(&self, out: &mut Vec<u8>) {
        self.write_name_and_type(out);
        out.extend_from_slice(format!(",\"revpos\":{},\"digest\":\"md5-", self.revpos).as_bytes());
        self.write_digest(out);
        out.push(b'"');
    }

    /// As [`Self::write_beginning`], for data that is not stored yet: the revpos is 0, and the digest is absent.
    pub(crate) fn write_unwritten_beginning(&self, out: &mut Vec<u8>) {
        self.write_name_and_type(out);
        out.extend_from_slice(b",\"revpos\":0");
    }

    fn write_name_and_type(&self, out: &mut Vec<u8>) {
        write_string(out, &self.name);
        out.extend_from_slice(b":{\"content_type\":");
        write_string(out, &self.content_type);
    }

    /// Appends the length and `mark`: `stub` or `follows`.
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

/// Adds `_attachments` with stubs as the last member of the document at the end of `out`, unless the list is empty.
pub fn write_stubs(out: &mut Vec<u8>, attachments: &[Attachment], info: EncodingInfo) {
    write_marked(out, attachments, info, |_| "stub");
}

/// As [`write_stubs`], with the mark (`stub` or `follows`) that `mark` returns for each attachment.
pub fn write_marked(
    out: &mut Vec<u8>,
    attachments: &[Attachment],
    info: EncodingInfo,
    mark: impl Fn(&Attachment) -> &'static str,
) {
    write_members(out, attachments, |attachment, out| {
        attachment.write_beginning(out);
        attachment.write_mark(mark(attachment), out);
        attachment.write_end(info, out);
    });
}

/// As [`write_stubs`], with the members that `write` appends.
pub(crate) fn write_members<T>(out: &mut Vec<u8>, attachments: &[T], write: impl Fn(&T, &mut Vec<u8>)) {
    if attachments.is_empty() || out.pop().is_none() {
        return;
    }
    out.extend_from_slice(b",\"_attachments\":{");
    for (index, attachment) in attachments.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write(attachment, out);
    }
    out.extend_from_slice(b"}}");
}

/// The stored form of a revision's attachments precedes its body.
pub(crate) fn encode_all(attachments: &[Attachment], out: &mut Vec<u8>) {
    put_varint(out, attachments.len() as u64);
    for attachment in attachments {
        attachment.encode(out);
    }
}

pub(crate) fn decode_all(bytes: &[u8]) -> Result<Vec<Attachment>> {
    let mut reader = Reader::new(bytes, "attachments");
    let count = reader.varint()?;
    let attachments = (0..count).map(|_| Attachment::decode(&mut reader)).collect::<Result<_>>()?;
    if reader.rest().is_empty() { Ok(attachments) } else { Err(DatabaseError::Corrupt("attachments")) }
}

fn io_error(error: DatabaseError) -> std::io::Error {
    std::io::Error::other(error)
}

pub(crate) fn from_io(error: std::io::Error) -> DatabaseError {
    match error.downcast::<DatabaseError>() {
        Ok(error) => error,
        Err(error) => StorageError::Io(error.to_string()).into(),
    }
}
