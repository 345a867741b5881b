//! [`Content`]: reads of stored attachment contents by chunks.

use std::io::Read;
use std::ops::Range;
use std::sync::Arc;

use flate2::read::MultiGzDecoder;
use settee_storage::codec::{Reader, put_varint};
use settee_storage::{Keyspace, Snapshot};

use super::{Attachment, ContentEncoding, ContentId, io_error};
use crate::{DatabaseError, Result, keys};

/// The content of an attachment in one snapshot.
#[derive(Clone)]
pub struct Content<'a> {
    snapshot: Arc<dyn Snapshot + 'a>,
    blob: u64,
    length: u64,
    encoding: ContentEncoding,
}

/// Form in which the content is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// As stored.
    Stored,
    /// Decompressed.
    Identity,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ContentRecord {
    /// Key of the chunks.
    pub(crate) blob: u64,
    /// Number of references from attachments of stored revisions.
    pub(crate) references: u64,
    pub(crate) length: u64,
}

impl ContentRecord {
    pub(crate) fn encode(self, out: &mut Vec<u8>) {
        for value in [self.blob, self.references, self.length] {
            put_varint(out, value);
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self> {
        let mut reader = Reader::new(bytes, "attachment content");
        Ok(Self { blob: reader.varint()?, references: reader.varint()?, length: reader.varint()? })
    }

    pub(crate) fn read(snapshot: &dyn Snapshot, id: &ContentId) -> Result<Option<Self>> {
        let bytes = snapshot.get(Keyspace::Attachments, &keys::content(&id.0))?;
        bytes.map(|bytes| Self::decode(&bytes)).transpose()
    }

    pub(crate) fn chunks(self) -> u32 {
        chunk_count(self.length)
    }
}

pub(crate) fn chunk_count(length: u64) -> u32 {
    length.div_ceil(keys::ATTACHMENT_CHUNK_BYTES as u64) as u32
}

impl<'a> Content<'a> {
    pub(crate) fn open(snapshot: &Arc<dyn Snapshot + 'a>, attachment: &Attachment) -> Result<Self> {
        let record = ContentRecord::read(snapshot.as_ref(), &attachment.content)?;
        let record = record.filter(|record| record.length == attachment.stored_length);
        let record = record.ok_or(DatabaseError::Corrupt("attachment content"))?;
        let snapshot = Arc::clone(snapshot);
        Ok(Self { snapshot, blob: record.blob, length: record.length, encoding: attachment.encoding })
    }

    /// Stored size in bytes.
    #[must_use]
    pub fn stored_length(&self) -> u64 {
        self.length
    }

    /// Returns a reader of a range of the stored bytes.
    #[must_use]
    pub fn range(&self, range: Range<u64>) -> ContentReader<'a> {
        let end = range.end.min(self.length);
        ContentReader {
            content: self.clone(),
            at: range.start.min(end),
            end,
            chunk: Vec::new(),
            taken: 0,
            ahead: Vec::new().into_iter(),
            together: 1,
        }
    }

    /// Returns a reader of the whole content.
    #[must_use]
    pub fn reader(&self, form: Form) -> Box<dyn Read + Send + 'a> {
        let stored = self.range(0..self.length);
        match (form, self.encoding) {
            (Form::Identity, ContentEncoding::Gzip) => Box::new(MultiGzDecoder::new(stored)),
            _ => Box::new(stored),
        }
    }

    fn chunks(&self, numbers: Range<u64>) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<_> = numbers.map(|number| keys::attachment_chunk(self.blob, number as u32)).collect();
        let keys: Vec<&[u8]> = keys.iter().map(<[u8; 13]>::as_slice).collect();
        Ok(self.snapshot.multi_get(Keyspace::Attachments, &keys)?)
    }
}

/// Limits the chunks that stay in memory until the client has received them.
const CHUNKS_TOGETHER: u64 = 4;

/// Reads stored bytes in order, with few chunks in memory. An error that does not come from the engine means that
/// stored bytes are damaged.
pub struct ContentReader<'a> {
    content: Content<'a>,
    at: u64,
    end: u64,
    chunk: Vec<u8>,
    taken: usize,
    ahead: std::vec::IntoIter<Option<Vec<u8>>>,
    /// Number of chunks of the next read. It doubles with each read, because a client may stop early.
    together: u64,
}

impl ContentReader<'_> {
    fn load(&mut self) -> Result<()> {
        const CHUNK: u64 = keys::ATTACHMENT_CHUNK_BYTES as u64;
        let number = self.at / CHUNK;
        if self.ahead.len() == 0 {
            let last = self.end.div_ceil(CHUNK).min(number + self.together);
            self.ahead = self.content.chunks(number..last)?.into_iter();
            self.together = (2 * self.together).min(CHUNKS_TOGETHER);
        }
        self.chunk = self.ahead.next().flatten().ok_or(DatabaseError::Corrupt("attachment content"))?;
        self.taken = (self.at % CHUNK) as usize;
        let until = self.end.min((number + 1) * CHUNK);
        let length = (until - number * CHUNK) as usize;
        if self.chunk.len() < length {
            return Err(DatabaseError::Corrupt("attachment content"));
        }
        self.chunk.truncate(length);
        self.at = until;
        Ok(())
    }
}

impl Read for ContentReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> std::io::Result<usize> {
        if self.taken == self.chunk.len() && self.at < self.end {
            self.load().map_err(io_error)?;
        }
        let rest = &self.chunk[self.taken..];
        let length = rest.len().min(out.len());
        out[..length].copy_from_slice(&rest[..length]);
        self.taken += length;
        Ok(length)
    }
}
