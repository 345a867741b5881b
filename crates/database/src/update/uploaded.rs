//! [`Uploaded`]: a received content without a revision.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;

use crate::attachment::{ContentEncoding, ContentId};

/// Maximum size that an upload, and all attachments of a revision, keep in memory before they are stored.
pub(crate) const MEMORY_BYTES: usize = if cfg!(test) { 1000 } else { 256 << 10 };

/// A completely received content.
#[derive(Clone, Debug)]
pub struct Uploaded {
    pub(crate) encoding: ContentEncoding,
    pub(crate) digest: [u8; 16],
    pub(crate) length: u64,
    pub(crate) stored_length: u64,
    pub(crate) content: ContentId,
    pub(crate) source: Source,
    pub(super) received_md5: [u8; 16],
}

#[derive(Clone, Debug)]
pub(crate) enum Source {
    Stored,
    Memory(Bytes),
    Staged(Arc<Staged>),
}

/// Chunks without a revision. After a drop the next commit removes them, unless a revision refers to them by then.
#[derive(Debug)]
pub(crate) struct Staged {
    given_up: Arc<Mutex<Vec<u64>>>,
    pub(crate) blob: u64,
    pub(super) chunks: u32,
}

impl Drop for Staged {
    fn drop(&mut self) {
        self.given_up.lock().push(self.blob);
    }
}

impl Staged {
    /// The blob is added to `given_up` when the last owner drops it.
    pub(super) fn new(given_up: &Arc<Mutex<Vec<u64>>>, blob: u64) -> Self {
        Self { given_up: Arc::clone(given_up), blob, chunks: 0 }
    }
}

impl Source {
    pub(crate) fn held_bytes(&self) -> usize {
        match self {
            Self::Memory(bytes) => bytes.len(),
            Self::Stored | Self::Staged(_) => 0,
        }
    }
}

impl Uploaded {
    /// MD5 of the received bytes.
    #[must_use]
    pub fn received_md5(&self) -> [u8; 16] {
        self.received_md5
    }

    /// MD5 of the stored bytes.
    #[must_use]
    pub fn stored_md5(&self) -> [u8; 16] {
        self.digest
    }
}
