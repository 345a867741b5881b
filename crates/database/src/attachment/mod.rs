//! Attachments: what is stored of them with a revision ([`Attachment`]), and how their bytes go out ([`Content`]). How bytes
//! come in is said where updates are.
//!
//! Bytes are addressed by their hash and stored once in a database, in chunks, however many revisions refer to them.
//! A count of references is beside them and changes in the commit that stores or removes a revision. What is being
//! uploaded is there too, under a mark that goes when a revision takes the bytes; marks that a crash left behind
//! are collected when the database is opened.

mod content;

pub use content::{Content, ContentReader, Form};
pub use settee_model::ContentEncoding;
use settee_model::json::write_string;
use settee_model::{AttachmentDigest, base64};
use settee_storage::codec::{Reader, put_bytes, put_varint};

pub(crate) use content::ContentRecord;

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
    /// The encoding in which its bytes are stored.
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
        self.write_name_and_type(out);
        out.extend_from_slice(format!(",\"revpos\":{},\"digest\":\"md5-", self.revpos).as_bytes());
        self.write_digest(out);
        out.push(b'"');
    }

    /// As [`Self::write_beginning`], for data whose revision is not written yet: its generation is 0, and it has no digest.
    pub(crate) fn write_unwritten_beginning(&self, out: &mut Vec<u8>) {
        self.write_name_and_type(out);
        out.extend_from_slice(b",\"revpos\":0");
    }

    fn write_name_and_type(&self, out: &mut Vec<u8>) {
        write_string(out, &self.name);
        out.extend_from_slice(b":{\"content_type\":");
        write_string(out, &self.content_type);
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
    write_members(out, attachments, |attachment, out| {
        attachment.write_beginning(out);
        attachment.write_mark(mark(attachment), out);
        attachment.write_end(info, out);
    });
}

/// Makes `_attachments` the last member of the document at the end of `out`, with the members that `write` appends. Nothing
/// without attachments.
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
