//! Taking bytes in: an [`Upload`] hashes, compresses and stores them as they come.
//!
//! Few bytes stay in memory and are written together with their revision. More are written in chunks meanwhile, each
//! some of them with a commit that does not wait for the disk: the commit of the revision does that for all.

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

use super::writer::upload_marks;
use super::{Stage, Work};
use crate::attachment::{ContentEncoding, ContentId, from_io};
use crate::{Database, Result, keys};

/// The number of bytes that an upload, and how many the attachments of a revision, keep in memory before they are
/// stored.
pub(crate) const MEMORY_BYTES: usize = if cfg!(test) { 1000 } else { 256 << 10 };

/// The operating system in the head of what zlib makes on Unix, which the digests of CouchDB's files tell.
const GZIP_OS_UNIX: u8 = 3;

/// The treatment of bytes that come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compression {
    /// Store them as they are.
    None,
    /// Compress them with zlib's level.
    Gzip {
        /// From 1 to 9.
        level: u32,
    },
    /// They are compressed already. Clients see `length` bytes.
    Gzipped {
        /// If it is known.
        length: Option<u64>,
    },
}

/// Bytes that are on their way in. Dropping it gives them up.
pub struct Upload {
    database: Arc<Database>,
    compression: Compression,
    encoder: Option<GzEncoder<Vec<u8>>>,
    received_md5: Md5,
    received: u64,
    /// As [`Self::received_md5`], if the bytes are compressed here.
    stored_md5: Option<Md5>,
    stored_sha: Sha256,
    stored: u64,
    /// The bytes that are to be stored and are not yet.
    buffer: Vec<u8>,
    staged: Option<Arc<Staged>>,
}

/// Bytes that came in whole.
#[derive(Clone, Debug)]
pub struct Uploaded {
    pub(crate) encoding: ContentEncoding,
    pub(crate) digest: [u8; 16],
    pub(crate) length: u64,
    pub(crate) stored_length: u64,
    pub(crate) content: ContentId,
    pub(crate) source: Source,
    received_md5: [u8; 16],
}

/// The place of the bytes of a new attachment.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// Stored under their hash.
    Stored,
    /// In memory.
    Memory(Arc<Database>, Bytes),
    /// Stored as an upload.
    Staged(Arc<Staged>),
}

/// Chunks that no revision refers to. Dropping it has them removed, unless one does by then.
#[derive(Debug)]
pub(crate) struct Staged {
    database: Arc<Database>,
    pub(crate) blob: u64,
    chunks: u32,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.database.discard(self.blob);
    }
}

impl Staged {
    fn begin(database: &Arc<Database>) -> Result<Self> {
        Ok(Self { database: Arc::clone(database), blob: database.next_blob()?, chunks: 0 })
    }

    /// Stores some bytes; all but the last are whole chunks.
    fn store(&mut self, bytes: &Bytes) -> Result<()> {
        let chunks: Vec<Bytes> = (0..bytes.len())
            .step_by(keys::ATTACHMENT_CHUNK_BYTES)
            .map(|at| bytes.slice(at..bytes.len().min(at + keys::ATTACHMENT_CHUNK_BYTES)))
            .collect();
        let count = chunks.len() as u32;
        self.database.update(Work::Stage(Stage { blob: self.blob, first: self.chunks, chunks }))?;
        self.chunks += count;
        Ok(())
    }
}

impl Source {
    /// The number of bytes that are in memory.
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Memory(_, bytes) => bytes.len(),
            Self::Stored | Self::Staged(_) => 0,
        }
    }

    /// Stores bytes that are in memory.
    pub(crate) fn store(&mut self) -> Result<()> {
        if let Self::Memory(database, bytes) = self {
            let mut staged = Staged::begin(database)?;
            for part in parts(bytes) {
                staged.store(&part)?;
            }
            *self = Self::Staged(Arc::new(staged));
        }
        Ok(())
    }
}

/// Parts that are not too much for one commit.
fn parts(bytes: &Bytes) -> impl Iterator<Item = Bytes> {
    const PART: usize = MEMORY_BYTES / keys::ATTACHMENT_CHUNK_BYTES * keys::ATTACHMENT_CHUNK_BYTES;
    (0..bytes.len()).step_by(PART).map(|at| bytes.slice(at..bytes.len().min(at + PART)))
}

impl Uploaded {
    /// MD5 of the bytes as they came.
    #[must_use]
    pub fn received_md5(&self) -> [u8; 16] {
        self.received_md5
    }

    /// MD5 of the bytes as they are stored.
    #[must_use]
    pub fn stored_md5(&self) -> [u8; 16] {
        self.digest
    }
}

impl Upload {
    /// Begins an upload into `database`.
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

    /// The number of bytes that have come.
    #[must_use]
    pub fn received(&self) -> u64 {
        self.received
    }

    /// Takes the next bytes. May wait for a commit.
    ///
    /// # Errors
    /// When they could not be stored.
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

    /// Ends the upload.
    ///
    /// # Errors
    /// When the last bytes could not be stored.
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
            None => Source::Memory(self.database, rest),
            Some(mut staged) => {
                if !rest.is_empty() {
                    Arc::get_mut(&mut staged).expect("nobody else has it yet").store(&rest)?;
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

    /// Takes bytes as they are to be stored.
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
            self.staged = Some(Arc::new(Staged::begin(&self.database)?));
        }
        let staged = self.staged.as_mut().and_then(Arc::get_mut).expect("nobody else has it yet");
        parts(&full).try_for_each(|part| staged.store(&part))
    }
}

impl Database {
    /// A number under which no chunks lie.
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

    /// A number that chunks are unlikely to be stored under: numbers begin somewhere at random in each process.
    pub(crate) fn random_blob(&self) -> u64 {
        self.next_token().0 as u64 & (u64::MAX >> 1)
    }

    /// Has the next commit remove an upload, unless a revision has taken its bytes.
    fn discard(&self, blob: u64) {
        self.given_up.lock().push(blob);
    }

    /// Removes what uploads have left behind whose processes have died since the database was opened.
    pub(crate) fn collect_uploads_of_the_dead(self: &Arc<Self>) -> Result<()> {
        self.collect_uploads(&upload_marks(self.engine().snapshot(self.shard())?.as_ref())?, Own::GoOn)
    }

    /// Removes what uploads that `marks` names have left behind, unless a live process goes on with them. `Own::Over`: in this process
    /// nobody does, because who uploads holds the database, and that was just opened.
    pub(crate) fn collect_uploads(self: &Arc<Self>, marks: &Page, own: Own) -> Result<()> {
        let members = self.engine().members();
        // What has no owner was given up.
        let owner = |mark: &[u8]| mark.try_into().map(u128::from_be_bytes).map(NodeId).ok();
        let mut over = HashMap::from([(members.this(), own == Own::Over)]);
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
        // A database that cannot be written can still be read.
        while !self.given_up.lock().is_empty() && self.update(Work::Documents(Vec::new())).is_ok() {}
        Ok(())
    }
}

/// Uploads of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Own {
    /// They may not have ended.
    GoOn,
    /// They have.
    Over,
}
