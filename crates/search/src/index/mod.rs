//! [`Index`]: an index in its shard, for searching and writing.

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
use crate::store::{Caches, FileRecord, NewToken, Shelf, SlotKind};
use crate::syntax::{self, Grammar, Locale};
use crate::vectors::VectorField;

/// Definition of an index: the treatment of texts and queries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Rules of the index.
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
    /// Approximate bytes on disk.
    pub disk_bytes: u64,
    pub segments: usize,
}

/// An index in its shard. A process must create one per shard and clone it; all methods may block.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) definition: Definition,
    /// Reader of the last published record.
    reader: Mutex<Option<Arc<Reader>>>,
    /// All readers that a search may still use.
    pub(crate) live: Mutex<Vec<Weak<Reader>>>,
    /// The version after the last commit of this process, and the files that it left for readers. A shard with another
    /// version may have any leftovers.
    left: Mutex<Option<(Version, Vec<FileRecord>)>>,
}

impl Index {
    /// Returns the index in `shard`, which may be empty.
    #[must_use]
    pub fn new(
        engine: Arc<dyn Engine>,
        shard: Shard,
        definition: Definition,
        new_token: NewToken,
        caches: Arc<Caches>,
    ) -> Self {
        let shelf = Arc::new(Shelf::new(engine, shard, new_token, caches));
        Self {
            inner: Arc::new(Inner {
                shelf,
                definition,
                reader: Mutex::default(),
                live: Mutex::default(),
                left: Mutex::default(),
            }),
        }
    }

    #[must_use]
    pub fn shard(&self) -> Shard {
        self.inner.shelf.shard()
    }

    /// Returns the position of the last commit; `None` if there was none, or the stored index has another format.
    ///
    /// # Errors
    /// If the store fails; [`StorageError::Dropped`] if the index has another shard now, or none.
    pub fn position(&self) -> Result<Option<Vec<u8>>> {
        let found = self.inner.shelf.find()?;
        if found.is_dropped {
            Err(StorageError::Dropped.into())
        } else {
            Ok(found.record.and_then(|record| record.position))
        }
    }

    /// Opens a writer, and removes leftovers of a crash. `None` if the contents of the shard are unusable, because they
    /// have another format or the shard was dropped; the index must then be rebuilt in another shard. Files get numbers
    /// from `first_file` on, so that they differ from those of writers in other processes.
    ///
    /// # Errors
    /// If the store fails, or its contents are damaged.
    pub fn writer(&self, first_file: u64) -> Result<Option<Writer>> {
        Writer::open(Arc::clone(&self.inner), first_file)
    }

    /// Parses a query of `_nouveau`.
    ///
    /// # Errors
    /// If it is invalid, or has a word in place of a number.
    pub fn parse(&self, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Standard, text, locale, limits)
    }

    /// Parses a query of `_search`.
    ///
    /// # Errors
    /// If it is invalid.
    pub fn parse_classic(&self, text: &str, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Classic, text, Locale::default(), limits)
    }

    fn parse_by(&self, grammar: Grammar, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        let reader = self.inner.reader()?;
        let analyzers = &self.inner.definition.analyzers;
        syntax::parse(&syntax::Context { grammar, analyzers, fields: reader.layout(), locale, limits }, text)
    }

    /// Searches the last published state, within the limits.
    ///
    /// # Errors
    /// If the request does not match the fields of the index, exceeds a limit, or the store fails.
    pub fn search(&self, request: &Request, limits: &SearchLimits) -> Result<Answer> {
        let outcome = search::search(&*self.inner.reader()?, &self.inner.definition, request, limits);
        match self.inner.shelf.blame(outcome) {
            // Another process has removed the files concurrently.
            Err(Error::Corrupt(_)) => {
                *self.inner.reader.lock() = None;
                search::search(&*self.inner.reader()?, &self.inner.definition, request, limits)
            }
            outcome => outcome,
        }
    }

    /// Returns the type of a field, if a document has it. For `_search`, texts have priority.
    pub fn kind(&self, field: &str) -> Result<Option<FieldKind>> {
        Ok(self.inner.reader()?.layout().kinds(field).find_map(SlotKind::field_kind))
    }

    /// Returns the statistics of the index.
    pub fn info(&self) -> Result<Info> {
        let record = self.inner.shelf.find()?.record.unwrap_or_default();
        let mut info = Info { disk_bytes: self.inner.shelf.approximate_size(), ..Info::default() };
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

    /// Makes the store reclaim the space of replaced files.
    pub fn reclaim(&self) -> Result<()> {
        self.inner.shelf.reclaim()
    }
}

impl std::fmt::Debug for Index {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Index").field("definition", &self.inner.definition).finish_non_exhaustive()
    }
}

impl Inner {
    /// Returns the reader of the last published state.
    pub(crate) fn reader(&self) -> Result<Arc<Reader>> {
        let mut kept = self.reader.lock();
        let record = self.shelf.find()?.record.unwrap_or_default();
        if let Some(reader) = kept.as_ref().filter(|reader| *reader.record() == record) {
            return Ok(Arc::clone(reader));
        }
        let reader = Arc::new(Reader::open(&self.shelf, &self.definition, record, kept.as_deref())?);
        let mut live = self.live.lock();
        live.retain(|reader| reader.strong_count() > 0);
        live.push(Arc::downgrade(&reader));
        *kept = Some(Arc::clone(&reader));
        Ok(reader)
    }
}

#[cfg(test)]
mod tests;
