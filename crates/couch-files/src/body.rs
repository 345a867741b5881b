//! [`Contents`] of a revision: its body and attachments, stored in one chunk. The chunk contains a pair of the body and
//! the list of attachments: terms, since version 6 separately compressed. An attachment is a tuple of name, type,
//! chunks, stored length, length, generation of the revision that added it, MD5 and encoding, possibly in a pair with
//! further properties. Early files lack some of these. The chunks are a list of positions, or of pairs of position and
//! length. The MD5 covers the stored data.

use md5::{Digest as _, Md5};

use crate::compress::{decode, read_term};
use crate::error::{DocumentError, FileError};
use crate::json::write_members;
use crate::source::{Source, read_chunk};
use crate::term::{MAX_TERM_LEN, Tape, Term};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Contents {
    /// JSON object without `_id`, `_rev` and the other members that CouchDB adds.
    pub body: Vec<u8>,
    pub attachments: Vec<Attachment>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Attachment {
    pub name: String,
    pub content_type: String,
    pub revpos: u64,
    pub stored_len: u64,
    pub len: u64,
    /// MD5 of the stored data; early files lack it.
    pub md5: Option<[u8; 16]>,
    pub is_gzip: bool,
    chunks: Vec<u64>,
}

impl Contents {
    pub(crate) fn read(source: &dyn Source, position: u64) -> Result<Contents, DocumentError> {
        let malformed = || FileError::Structure { position, expected: "the body of a document" };
        let pair = read_term(source, position)?;
        let [body, attachments] = pair.root().array().ok_or_else(malformed)?;
        let unpacked = unpack(body, position)?;
        let body = write_body(unpacked.as_ref().map_or(body, Tape::root))?;
        let unpacked = unpack(attachments, position)?;
        let attachments = unpacked.as_ref().map_or(attachments, Tape::root).list().ok_or_else(malformed)?;
        let attachments = attachments.map(Attachment::parse).collect::<Result<_, _>>()?;
        Ok(Contents { body, attachments })
    }
}

pub(crate) fn write_body(body: Term<'_>) -> Result<Vec<u8>, DocumentError> {
    let members = body.array().map_or(body, |[members]| members).list().ok_or(DocumentError::Malformed)?;
    let mut out = Vec::new();
    write_members(&mut out, members)?;
    Ok(out)
}

/// Decodes a term that is stored as a binary. Returns `None` for other terms.
pub(crate) fn unpack(term: Term<'_>, position: u64) -> Result<Option<Tape>, FileError> {
    term.binary().map(|bytes| decode(bytes.to_vec(), position)).transpose()
}

impl Attachment {
    fn parse(term: Term<'_>) -> Result<Attachment, DocumentError> {
        let base = term.array().filter(|[base, _]| base.tuple().is_some()).map_or(term, |[base, _]| base);
        let fields: Vec<Term<'_>> = base.tuple().into_iter().flatten().take(9).collect();
        let none = None;
        let (name, content_type, chunks, stored_len, len, revpos, md5, encoding) = match fields[..] {
            [name, kind, chunks, stored, len, revpos, md5, encoding] => {
                (name, kind, chunks, stored, len, Some(revpos), Some(md5), Some(encoding))
            }
            [name, kind, chunks, len, revpos, md5] => (name, kind, chunks, len, len, Some(revpos), Some(md5), none),
            [name, old] => {
                let [kind, chunks, len] = old.array().ok_or(DocumentError::Malformed)?;
                (name, kind, chunks, len, len, none, none, none)
            }
            _ => return Err(DocumentError::Malformed),
        };
        let text = |term: Term<'_>| {
            String::from_utf8(term.to_text().ok_or(DocumentError::Malformed)?).map_err(|_| DocumentError::NotUtf8)
        };
        let stored_len = stored_len.unsigned().ok_or(DocumentError::Malformed)?;
        Ok(Attachment {
            name: text(name)?,
            content_type: text(content_type)?,
            revpos: revpos.and_then(Term::unsigned).unwrap_or(0),
            stored_len,
            len: len.unsigned().unwrap_or(stored_len),
            md5: md5.and_then(Term::binary).and_then(|md5| md5.try_into().ok()),
            is_gzip: encoding.is_some_and(|encoding| encoding.is_atom("gzip") || encoding.is_atom("true")),
            chunks: parse_chunks(chunks).ok_or(DocumentError::Malformed)?,
        })
    }

    /// Passes the stored data to `sink`. Length and MD5 are checked at the end, so after an error `sink` may have wrong
    /// data.
    pub(crate) fn read<E: From<DocumentError>>(
        &self,
        source: &dyn Source,
        mut sink: impl FnMut(Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut hasher, mut found) = (Md5::new(), 0);
        for position in &self.chunks {
            let chunk = read_chunk(source, *position, MAX_TERM_LEN as u64).map_err(DocumentError::from)?;
            found += chunk.len() as u64;
            if found > self.stored_len {
                break;
            }
            hasher.update(&chunk);
            sink(chunk)?;
        }
        if found != self.stored_len {
            let (name, expected) = (self.name.clone(), self.stored_len);
            return Err(DocumentError::AttachmentLength { name, expected, found }.into());
        }
        if self.md5.is_some_and(|md5| md5 != <[u8; 16]>::from(hasher.finalize())) {
            return Err(DocumentError::AttachmentDigest(self.name.clone()).into());
        }
        Ok(())
    }
}

fn parse_chunks(chunks: Term<'_>) -> Option<Vec<u64>> {
    if let Some(position) = chunks.unsigned() {
        return Some(vec![position]);
    }
    if chunks.is_atom("nil") {
        return Some(Vec::new());
    }
    if let crate::term::Kind::Bytes(positions) = chunks.kind() {
        return Some(positions.iter().map(|position| u64::from(*position)).collect());
    }
    let position = |chunk: Term<'_>| chunk.unsigned().or_else(|| chunk.tuple()?.next()?.unsigned());
    chunks.list()?.map(position).collect()
}
