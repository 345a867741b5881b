//! [`Inner`]: the state that the searches and the writer of an index share.

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use settee_storage::ShardState;

use super::definition::Definition;
use super::reader::Reader;
use crate::error::Result;
use crate::store::{FileRecord, FileStore};

pub(super) struct Inner {
    pub(super) file_store: Arc<FileStore>,
    pub(super) definition: Definition,
    reader: Mutex<Option<Arc<Reader>>>,
    pub(super) live: Mutex<Vec<Weak<Reader>>>,
    /// The last commit of this process, and the files that it left for readers. After another commit the shard may
    /// contain any leftovers.
    pub(super) left: Mutex<Option<(ShardState, Vec<FileRecord>)>>,
}

impl Inner {
    pub(super) fn new(file_store: Arc<FileStore>, definition: Definition) -> Self {
        let (reader, live, left) = (Mutex::default(), Mutex::default(), Mutex::default());
        Self { file_store, definition, reader, live, left }
    }

    pub(super) fn reader(&self) -> Result<Arc<Reader>> {
        let mut kept = self.reader.lock();
        let record = self.file_store.find()?.record.unwrap_or_default();
        if let Some(reader) = kept.as_ref().filter(|reader| *reader.record() == record) {
            return Ok(Arc::clone(reader));
        }
        let reader = Arc::new(Reader::open(&self.file_store, &self.definition, record, kept.as_deref())?);
        let mut live = self.live.lock();
        live.retain(|reader| reader.strong_count() > 0);
        live.push(Arc::downgrade(&reader));
        *kept = Some(Arc::clone(&reader));
        Ok(reader)
    }

    /// The next search opens the files of the last commit.
    pub(super) fn release_reader(&self) {
        *self.reader.lock() = None;
    }
}
