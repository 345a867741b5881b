//! [`Upload`]: hashes, compresses and stores the content of an attachment while it is received. A small content stays
//! in memory and is written together with its revision. A larger one is written in chunks by commits without a sync;
//! the commit of the revision syncs all of them.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::Write;
use std::sync::Arc;

use bytes::Bytes;
use flate2::write::GzEncoder;
use flate2::{Compression as Level, GzBuilder};
use md5::{Digest, Md5};
use settee_storage::members::NodeId;
use settee_storage::{Keyspace, Page};
use sha2::Sha256;

use super::new_attachments::{NewAttachment, NewAttachments};
use super::upload_marks::{self, OwnUploads};
use super::uploaded::{MEMORY_BYTES, Source, Staged, Uploaded};
use super::work::{Stage, Work};
use crate::attachment::{ContentEncoding, ContentId, from_io};
use crate::{Database, Result, keys};

/// Operating system in the gzip header of zlib on Unix, because the digests must equal those of CouchDB.
const GZIP_OS_UNIX: u8 = 3;

/// Compression of received data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Stores the data unchanged.
    None,
    /// Compresses the data with zlib.
    Gzip {
        /// Level from 1 to 9.
        level: u32,
    },
    /// The data is compressed already.
    Gzipped {
        /// Size after decompression, if the client sent it.
        length: Option<u64>,
    },
}

/// An upload in progress. Dropping it abandons the upload.
pub struct Upload {
    database: Arc<Database>,
    compression: Compression,
    encoder: Option<GzEncoder<Vec<u8>>>,
    received_md5: Md5,
    received: u64,
    stored_md5: Option<Md5>,
    stored_sha: Sha256,
    stored: u64,
    buffer: Vec<u8>,
    staged: Option<Arc<Staged>>,
}

fn stage(database: &Arc<Database>) -> Result<Staged> {
    Ok(Staged::new(&database.given_up, database.next_blob()?))
}

/// All but the last call must pass whole chunks.
fn store(database: &Arc<Database>, staged: &mut Staged, bytes: &Bytes) -> Result<()> {
    let chunks: Vec<Bytes> = (0..bytes.len())
        .step_by(keys::ATTACHMENT_CHUNK_BYTES)
        .map(|at| bytes.slice(at..bytes.len().min(at + keys::ATTACHMENT_CHUNK_BYTES)))
        .collect();
    let count = chunks.len() as u32;
    database.update(Work::Stage(Stage { blob: staged.blob, first: staged.chunks, chunks }))?;
    staged.chunks += count;
    Ok(())
}

fn parts(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    const PART: usize = MEMORY_BYTES / keys::ATTACHMENT_CHUNK_BYTES * keys::ATTACHMENT_CHUNK_BYTES;
    (0..bytes.len()).step_by(PART).map(|at| bytes.slice(at..bytes.len().min(at + PART)))
}

impl NewAttachments {
    /// Creates the list. Contents in memory that are too large for one commit are stored.
    pub fn new(database: &Arc<Database>, mut list: Vec<NewAttachment>) -> Result<Self> {
        let mut held: usize = list.iter().map(|new| new.source.held_bytes()).sum();
        for new in &mut list {
            if held <= MEMORY_BYTES {
                break;
            }
            if let Source::Memory(bytes) = &new.source {
                held -= bytes.len();
                let mut staged = stage(database)?;
                parts(bytes).try_for_each(|part| store(database, &mut staged, &part))?;
                new.source = Source::Staged(Arc::new(staged));
            }
        }
        Ok(Self { list, is_complete: true })
    }

    /// Puts new attachments first and removes old ones of the same names.
    pub fn replaced(self, database: &Arc<Database>, mut new: Vec<NewAttachment>) -> Result<Self> {
        let kept = self.list.into_iter().filter(|old| new.iter().all(|new| new.name() != old.name()));
        let kept: Vec<NewAttachment> = kept.collect();
        new.extend(kept);
        Ok(Self { is_complete: self.is_complete, ..Self::new(database, new)? })
    }
}

impl Upload {
    /// Maximum size of a content that stays in memory: its upload writes nothing.
    pub const MEMORY_BYTES: usize = MEMORY_BYTES;

    /// Starts an upload into `database`.
    #[must_use]
    pub fn new(database: &Arc<Database>, compression: Compression) -> Self {
        let encoder = match compression {
            Compression::None | Compression::Gzipped { .. } => None,
            Compression::Gzip { level } => {
                Some(GzBuilder::new().operating_system(GZIP_OS_UNIX).write(Vec::new(), Level::new(level.min(9))))
            }
        };
        Self {
            database: Arc::clone(database),
            compression,
            stored_md5: encoder.is_some().then(Md5::new),
            encoder,
            received_md5: Md5::new(),
            received: 0,
            stored_sha: Sha256::new(),
            stored: 0,
            buffer: Vec::new(),
            staged: None,
        }
    }

    /// Number of received bytes.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Adds received bytes. May wait for a commit. Fails if the bytes cannot be stored.
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.received_md5.update(bytes);
        self.received += bytes.len() as u64;
        match &mut self.encoder {
            Some(encoder) => {
                encoder.write_all(bytes).map_err(from_io)?;
                let compressed = std::mem::take(encoder.get_mut());
                self.keep(&compressed)
            }
            None => self.keep(bytes),
        }
    }

    /// Finishes the upload. Fails if the last bytes cannot be stored.
    pub fn finish(mut self) -> Result<Uploaded> {
        if let Some(encoder) = self.encoder.take() {
            let rest = encoder.finish().map_err(from_io)?;
            self.keep(&rest)?;
        }
        let received_md5 = self.received_md5.finalize().into();
        let (encoding, length) = match self.compression {
            Compression::None => (ContentEncoding::Identity, self.received),
            Compression::Gzip { .. } => (ContentEncoding::Gzip, self.received),
            Compression::Gzipped { length } => (ContentEncoding::Gzip, length.unwrap_or(self.received)),
        };
        let rest = Bytes::from(self.buffer);
        let source = match self.staged {
            None => Source::Memory(rest),
            Some(mut staged) => {
                if !rest.is_empty() {
                    let staged = Arc::get_mut(&mut staged).expect("no other owner exists yet");
                    store(&self.database, staged, &rest)?;
                }
                Source::Staged(staged)
            }
        };
        Ok(Uploaded {
            encoding,
            digest: self.stored_md5.map_or(received_md5, |md5| md5.finalize().into()),
            length,
            stored_length: self.stored,
            content: ContentId(self.stored_sha.finalize().into()),
            source,
            received_md5,
        })
    }

    fn keep(&mut self, bytes: &[u8]) -> Result<()> {
        if let Some(md5) = &mut self.stored_md5 {
            md5.update(bytes);
        }
        self.stored_sha.update(bytes);
        self.stored += bytes.len() as u64;
        self.buffer.extend_from_slice(bytes);
        if self.buffer.len() <= MEMORY_BYTES {
            return Ok(());
        }
        let whole = self.buffer.len() / keys::ATTACHMENT_CHUNK_BYTES * keys::ATTACHMENT_CHUNK_BYTES;
        let rest = self.buffer.split_off(whole);
        let full = Bytes::from(std::mem::replace(&mut self.buffer, rest));
        if self.staged.is_none() {
            self.staged = Some(Arc::new(stage(&self.database)?));
        }
        let staged = self.staged.as_mut().and_then(Arc::get_mut).expect("no other owner exists yet");
        parts(&full).try_for_each(|part| store(&self.database, staged, &part))
    }
}

impl Database {
    pub(crate) fn next_blob(&self) -> Result<u64> {
        let snapshot = self.engine().snapshot(self.shard())?;
        loop {
            let blob = self.random_blob();
            let taken = [&keys::attachment_chunk(blob, 0)[..], &keys::upload(blob)];
            let found = snapshot.multi_get(Keyspace::Attachments, &taken)?;
            if found.iter().all(Option::is_none) {
                return Ok(blob);
            }
        }
    }

    /// Returns a content number that is probably unused, because each process starts at a random number.
    pub(crate) fn random_blob(&self) -> u64 {
        self.next_token().0 as u64 & (u64::MAX >> 1)
    }

    pub(crate) fn collect_uploads_of_failed_nodes(self: &Arc<Self>) -> Result<()> {
        self.collect_uploads(&upload_marks::read(self.engine().snapshot(self.shard())?.as_ref())?, OwnUploads::GoOn)
    }

    /// Removes the uploads of failed processes. [`OwnUploads::Over`] requires that the database was just opened.
    pub(crate) fn collect_uploads(self: &Arc<Self>, marks: &Page, own: OwnUploads) -> Result<()> {
        let members = self.engine().members();
        // A mark without an owner belongs to an abandoned upload.
        let owner = |mark: &[u8]| mark.try_into().map(u128::from_be_bytes).map(NodeId).ok();
        let mut over = HashMap::from([(members.this(), own == OwnUploads::Over)]);
        let mut left = Vec::new();
        for (key, mark) in &marks.rows {
            let is_over = match owner(mark) {
                None => true,
                Some(owner) => match over.entry(owner) {
                    Entry::Occupied(known) => *known.get(),
                    Entry::Vacant(unknown) => *unknown.insert(members.is_gone(owner)?),
                },
            };
            if is_over {
                left.push(keys::decode_sequence(&key[keys::UPLOAD.len()..])?);
            }
        }
        self.given_up.lock().extend(left);
        // A database that cannot be written can still be read, so an error is ignored.
        while !self.given_up.lock().is_empty() && self.update(Work::Documents(Vec::new())).is_ok() {}
        Ok(())
    }
}
