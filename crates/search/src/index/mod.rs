//! [`Index`]: an index in its shard.

mod bloom;
pub(crate) mod definition;
mod merge;
pub(crate) mod reader;
pub(crate) mod schema;
mod segment;
mod state;
pub(crate) mod strings;
mod visible;
mod writer;

use std::sync::Arc;

use settee_storage::{Engine, Shard, StorageError};

pub use self::definition::Definition;
use self::reader::Reader;
use self::state::Inner;
pub use self::writer::Writer;
use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::field::FieldKind;
use crate::limits::SearchLimits;
use crate::query::Query;
use crate::request::Request;
use crate::search;
use crate::store::{Caches, FileStore, NewToken, SlotKind};
use crate::syntax::{self, Grammar, Locale};

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
    /// Reader of a restricted index; `None` means the current one.
    restricted: Option<Arc<Reader>>,
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
        Self { inner: Arc::new(Inner::new(file_store, definition)), restricted: None }
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

    /// Returns true if another process has committed since the last commit of the writer. The files that the writer
    /// reads may then be missing.
    pub fn is_overtaken(&self) -> Result<bool> {
        Ok(self.inner.file_store.find()?.state != self.inner.file_store.state())
    }

    /// Returns the state of this index after its last commit, restricted to the documents with the ids that `ids` passes
    /// to its second argument. The first one is the position of this commit. Queries must be parsed by the returned
    /// index, which answers as if no other documents existed.
    pub fn restricted<E: From<Error>>(
        &self,
        limits: &SearchLimits,
        ids: impl FnOnce(Option<&[u8]>, &mut dyn FnMut(&[&str]) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<Self, E> {
        let whole = self.inner.reader()?;
        let restricted = whole.restricted(limits, |each| ids(whole.record().position.as_deref(), each))?;
        Ok(Self { inner: Arc::clone(&self.inner), restricted: Some(Arc::new(restricted)) })
    }

    fn reader(&self) -> Result<Arc<Reader>> {
        match &self.restricted {
            Some(reader) => Ok(Arc::clone(reader)),
            None => self.inner.reader(),
        }
    }

    pub fn parse(&self, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Standard, text, locale, limits)
    }

    pub fn parse_classic(&self, text: &str, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Classic, text, Locale::default(), limits)
    }

    fn parse_by(&self, grammar: Grammar, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        let reader = self.reader()?;
        let analyzers = &self.inner.definition.analyzers;
        syntax::parse(&syntax::Context { grammar, analyzers, fields: reader.layout(), locale, limits }, text)
    }

    pub fn search(&self, request: &Request, limits: &SearchLimits) -> Result<Answer> {
        let outcome = search::search(&*self.reader()?, &self.inner.definition, request, limits);
        match self.inner.file_store.with_store_error(outcome) {
            // Another process has removed the files concurrently.
            Err(Error::Corrupt(_)) => {
                self.inner.release_reader();
                if self.restricted.is_some() {
                    // The query belongs to the restriction, so that the caller must repeat both.
                    return Err(Error::Contended);
                }
                search::search(&*self.inner.reader()?, &self.inner.definition, request, limits)
            }
            outcome => outcome,
        }
    }

    /// Returns the type of a field, if any document has it. For `_search`, texts have priority.
    pub fn kind(&self, field: &str) -> Result<Option<FieldKind>> {
        Ok(self.reader()?.layout().kinds(field).find_map(SlotKind::field_kind))
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
        self.inner.release_reader();
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

#[cfg(test)]
mod tests;
