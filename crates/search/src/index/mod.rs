//! [`Index`]: an index in its shard, to be searched and written to.

mod bloom;
mod merge;
mod reader;
mod schema;
mod segment;
mod writer;

use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use settee_storage::{Engine, Shard, StorageError};

pub(crate) use self::reader::{Reader, SegmentValues};
pub(crate) use self::schema::{Layout, column};
pub use self::writer::Writer;
use crate::analysis::{Analyzers, Dialect};
use crate::answer::Answer;
use crate::error::{Error, Result};
use crate::field::FieldKind;
use crate::limits::SearchLimits;
use crate::query::Query;
use crate::request::Request;
use crate::search;
use crate::store::{Caches, NewToken, Shelf, SlotKind};
use crate::syntax::{self, Grammar, Locale};
use crate::vectors::VectorField;

/// What decides how an index reads texts and queries.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Definition {
    /// Whose rules it goes by.
    pub dialect: Dialect,
    /// What makes terms of texts.
    pub analyzers: Analyzers,
    /// What vectors are like. A field that is not here has none.
    pub vectors: Vec<VectorField>,
}

impl Definition {
    /// What the vectors of a field are like.
    pub(crate) fn vectors_of(&self, field: &str) -> Option<&VectorField> {
        self.vectors.iter().find(|known| known.name == field)
    }
}

/// Numbers about an index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Info {
    /// Documents that can be found.
    pub docs: u64,
    /// Documents that were replaced or deleted, and still take room.
    pub deleted_docs: u64,
    /// The length of its files.
    pub file_bytes: u64,
    /// About how much they take on disk.
    pub disk_bytes: u64,
    /// How many parts it has.
    pub segments: usize,
}

/// An index in its shard. There is one of it in a process for each shard, to be cloned; all of its methods may block.
#[derive(Clone)]
pub struct Index {
    inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) definition: Definition,
    /// What searches read, as of the last of them.
    reader: Mutex<Option<Arc<Reader>>>,
    /// Everything that some search may still read.
    pub(crate) live: Mutex<Vec<Weak<Reader>>>,
}

impl Index {
    /// The index in `shard`, which may be empty.
    #[must_use]
    pub fn new(
        engine: Arc<dyn Engine>,
        shard: Shard,
        definition: Definition,
        new_token: NewToken,
        caches: Arc<Caches>,
    ) -> Self {
        let shelf = Arc::new(Shelf::new(engine, shard, new_token, caches));
        Self { inner: Arc::new(Inner { shelf, definition, reader: Mutex::default(), live: Mutex::default() }) }
    }

    /// Its shard.
    #[must_use]
    pub fn shard(&self) -> Shard {
        self.inner.shelf.shard()
    }

    /// What the last commit said it had seen; `None` if there was none, or what is there has another format.
    ///
    /// # Errors
    /// When the store fails; [`StorageError::Dropped`] if the index has another shard by now, or none.
    pub fn position(&self) -> Result<Option<Vec<u8>>> {
        let found = self.inner.shelf.find()?;
        if found.is_dropped {
            Err(StorageError::Dropped.into())
        } else {
            Ok(found.record.and_then(|record| record.position))
        }
    }

    /// Begins to write, and clears away what a crash left over. `None` if what is in the shard cannot be used: it was written
    /// by another program, or dropped. The index is then built anew, in another shard. Files get numbers from `first_file` on, so
    /// that they have none that a writer in another process gave out.
    ///
    /// # Errors
    /// When the store fails, or its contents are broken.
    pub fn writer(&self, first_file: u64) -> Result<Option<Writer>> {
        Writer::open(Arc::clone(&self.inner), first_file)
    }

    /// Reads a query of `_nouveau`.
    ///
    /// # Errors
    /// When it is none, or has a word where a number is due.
    pub fn parse(&self, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Standard, text, locale, limits)
    }

    /// Reads a query of `_search`.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse_classic(&self, text: &str, limits: &SearchLimits) -> Result<Query> {
        self.parse_by(Grammar::Classic, text, Locale::default(), limits)
    }

    fn parse_by(&self, grammar: Grammar, text: &str, locale: Locale, limits: &SearchLimits) -> Result<Query> {
        let reader = self.inner.reader()?;
        let analyzers = &self.inner.definition.analyzers;
        syntax::parse(&syntax::Context { grammar, analyzers, fields: reader.layout(), locale, limits }, text)
    }

    /// Searches what was committed, within the limits.
    ///
    /// # Errors
    /// If the request does not fit the fields of the index, exceeds a limit, or the store fails.
    pub fn search(&self, request: &Request, limits: &SearchLimits) -> Result<Answer> {
        let outcome = search::search(&*self.inner.reader()?, &self.inner.definition, request, limits);
        match self.inner.shelf.blame(outcome) {
            // Another process has removed the files meanwhile.
            Err(Error::Corrupt(_)) => {
                *self.inner.reader.lock() = None;
                search::search(&*self.inner.reader()?, &self.inner.definition, request, limits)
            }
            outcome => outcome,
        }
    }

    /// The type of a field, if a document has it. Of `_search`, texts come first.
    ///
    /// # Errors
    /// When the store fails.
    pub fn kind(&self, field: &str) -> Result<Option<FieldKind>> {
        Ok(self.inner.reader()?.layout().kinds(field).find_map(SlotKind::field_kind))
    }

    /// Numbers about it.
    ///
    /// # Errors
    /// When the store fails.
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

    /// Lets go of what is kept to search it.
    pub fn release(&self) {
        *self.inner.reader.lock() = None;
    }

    /// Lets the store give back the room of what was replaced.
    ///
    /// # Errors
    /// When the store fails.
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
    /// What was published last.
    pub(crate) fn reader(&self) -> Result<Arc<Reader>> {
        let mut kept = self.reader.lock();
        let record = self.shelf.find()?.record.unwrap_or_default();
        if let Some(reader) = kept.as_ref().filter(|reader| *reader.record() == record) {
            return Ok(Arc::clone(reader));
        }
        let reader = Arc::new(Reader::open(&self.shelf, &self.definition, record)?);
        let mut live = self.live.lock();
        live.retain(|reader| reader.strong_count() > 0);
        live.push(Arc::downgrade(&reader));
        *kept = Some(Arc::clone(&reader));
        Ok(reader)
    }
}

#[cfg(test)]
mod tests;
