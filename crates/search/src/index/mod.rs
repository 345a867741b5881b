//! [`Index`]: an index in its shard.

mod bloom;
mod merge;
mod reader;
mod schema;
mod segment;
mod strings;
mod writer;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use settee_storage::{Engine, Shard, StorageError, Version};

pub(crate) use self::reader::{Reader, SegmentValues};
pub(crate) use self::schema::{Layout, column};
pub(crate) use self::strings::Strings;
pub use self::writer::Writer;
use crate::analysis::{Analyzers, Dialect};
use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::field::FieldKind;
use crate::limits::SearchLimits;
use crate::query::Query;
use crate::request::Request;
use crate::search;
use crate::store::{Caches, FileRecord, FileStore, NewToken, SlotKind};
use crate::syntax::{self, Grammar, Locale};
use crate::vectors::VectorField;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    pub dialect: Dialect,
    pub analyzers: Analyzers,
    pub vectors: Vec<VectorField>,
}

impl Definition {
    pub(crate) fn vectors_of(&self, field: &str) -> Option<&VectorField> {
        self.vectors.iter().find(|known| known.name == field)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    pub docs: u64,
    /// Number of replaced or deleted documents that are still stored.
    pub deleted_docs: u64,
    pub file_bytes: u64,
    pub disk_bytes: u64,
    pub segments: usize,
}

/// A process must create one per shard and clone it. All methods may block.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) file_store: Arc<FileStore>,
    pub(crate) definition: Definition,
    reader: Mutex<Option<Arc<Reader>>>,
    pub(crate) live: Mutex<Vec<Weak<Reader>>>,
    /// The last commit of this process, and its files. After another commit the shard may contain leftovers.
    left: Mutex<Option<(Version, Vec<FileRecord>)>>,
}

impl Index {
    #[must_use]
    pub fn new(
        engine: Arc<dyn Engine>,
        shard: Shard,
        definition: Definition,
        new_token: NewToken,
        caches: Arc<Caches>,
    ) -> Self {
        let file_store = Arc::new(FileStore::new(engine, shard, new_token, caches));
        Self {
            inner: Arc::new(Inner {
                file_store,
                definition,
                reader: Mutex::default(),
                live: Mutex::default(),
                left: Mutex::default(),
            }),
        }
    }

    #[must_use]
    pub fn shard(&self) -> Shard {
        self.inner.file_store.shard()
    }

    /// Returns the position of the last commit of this format, if any. Returns [`StorageError::Dropped`] if the shard
    /// is not that of the index any more.
    pub fn position(&self) -> Result<Option<Vec<u8>>> {
        let found = self.inner.file_store.find()?;
        if found.is_dropped {
            Err(StorageError::Dropped.into())
        } else {
            Ok(found.record.and_then(|record| record.position))
        }
    }

    /// Opens a writer, and removes leftovers of a crash. Returns `None` if the index must be rebuilt in another shard.
    /// File numbers start at `first_file`, so that they differ from those of other processes.
    pub fn writer(&self, first_file: u64) -> Result<Option<Writer>> {
        Writer::open(Arc::clone(&self.inner), first_file)
    }

    pub fn parse(&self, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Standard, text, locale, limits)
    }

    pub fn parse_classic(&self, text: &str, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Classic, text, Locale::default(), limits)
    }

    fn parse_by(&self, grammar: Grammar, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        let reader = self.inner.reader()?;
        let analyzers = &self.inner.definition.analyzers;
        syntax::parse(&syntax::Context { grammar, analyzers, fields: reader.layout(), locale, limits }, text)
    }

    pub fn search(&self, request: &Request, limits: &SearchLimits) -> Result<Answer> {
        let outcome = search::search(&*self.inner.reader()?, &self.inner.definition, request, limits);
        match self.inner.file_store.with_store_error(outcome) {
            // Another process has removed the files concurrently.
            Err(Error::Corrupt(_)) => {
                *self.inner.reader.lock() = None;
                search::search(&*self.inner.reader()?, &self.inner.definition, request, limits)
            }
            outcome => outcome,
        }
    }

    /// Returns the type of a field, if any document has it. For `_search`, texts have priority.
    pub fn kind(&self, field: &str) -> Result<Option<FieldKind>> {
        Ok(self.inner.reader()?.layout().kinds(field).find_map(SlotKind::field_kind))
    }

    pub fn info(&self) -> Result<Info> {
        let record = self.inner.file_store.find()?.record.unwrap_or_default();
        let mut info = Info { disk_bytes: self.inner.file_store.approximate_size(), ..Info::default() };
        for segment in &record.segments {
            info.docs += u64::from(segment.alive());
            info.deleted_docs += u64::from(segment.deleted);
            info.segments += 1;
        }
        info.file_bytes = record.files().map(|file| file.bytes).sum();
        Ok(info)
    }

    pub fn release(&self) {
        *self.inner.reader.lock() = None;
    }

    pub fn reclaim(&self) -> Result<()> {
        self.inner.file_store.reclaim()
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("definition", &self.inner.definition).finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn reader(&self) -> Result<Arc<Reader>> {
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
}

#[cfg(test)]
mod tests;
