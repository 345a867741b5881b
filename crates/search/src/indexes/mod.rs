//! [`Searches`]: the interface to the search indexes of design documents. Finds an index, updates it, and returns it
//! for searching. `settee_views` provides the source of changes, pacing, the right to build, and the control.

mod build;
mod definition;
mod error;
mod fields;
mod garbage;
mod pass;
mod position;
mod state;
#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "tests")]
mod tests;

use std::sync::Arc;

use settee_database::tasks::Tasks;
use settee_database::{AccessControl, Database, IndexPosition, ReadClient, Reader, Waiting};
use settee_design::{DesignDocument, SearchKind};
use settee_storage::{StorageError, Version};
use settee_views::{Claims, Clock, IndexRecords, LogLine, LogSubject, Signature, Tokens, Urgency, ViewError, Views};

use self::position::Position;
use self::state::{Databases, Indexes, SearchHandle};
use crate::{Caches, Error, Index, SearchLimits};

pub use self::definition::{SearchIndex, analyzer_of};
pub use self::error::SearchError;

type Result<T, E = SearchError> = std::result::Result<T, E>;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Freshness {
    #[default]
    Current,
    Any,
}

#[derive(Clone, Debug)]
pub struct SearchInfo {
    /// Equal for equal definitions.
    pub signature: String,
    pub update_seq: u64,
    pub purge_seq: u64,
    pub docs: u64,
    /// Number of deleted documents that are still stored.
    pub deleted_docs: u64,
    pub disk_bytes: u64,
    pub failure: Option<SearchError>,
}

pub struct Searches {
    views: Arc<Views>,
    tasks: Tasks,
    log: settee_views::Log,
    tokens: Arc<Tokens>,
    caches: Arc<Caches>,
    databases: Databases,
    claims: Claims,
}

impl Searches {
    /// `seed` must be random: it identifies the commits of this process.
    #[must_use]
    pub fn new(views: Arc<Views>, tasks: Tasks, log: settee_views::Log, caches: Caches, seed: u64) -> Self {
        let (tokens, caches) = (Arc::new(Tokens::new(seed)), Arc::new(caches));
        let known = Arc::clone(&caches);
        views.catalog().engine().subscribe(Box::new(move |shard, version| {
            // A failed store may assign file numbers again.
            if version == Version::default() {
                known.forget(shard);
            }
        }));
        Self { views, tasks, log, tokens, caches, databases: Databases::default(), claims: Claims::default() }
    }

    /// Returns the index `name` of `ddoc`. Blocks within the limits while it is updated.
    pub fn open(
        self: &Arc<Self>,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        kind: SearchKind,
        name: &str,
        freshness: Freshness,
        limits: &SearchLimits,
    ) -> Result<Index> {
        let wanted = SearchIndex::find(ddoc, kind, name)?;
        let update_seq = required_seq(database, freshness)?;
        loop {
            let (handle, position) = self.shown(database, &wanted)?;
            if position.update_seq >= update_seq {
                return Ok(handle.store().clone());
            }
            self.await_build(database, ddoc, &wanted, update_seq, limits)?;
        }
    }

    /// Returns `None` if the index must be updated first. Does not block.
    pub fn open_now(
        &self,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        kind: SearchKind,
        name: &str,
        freshness: Freshness,
    ) -> Result<Option<Index>> {
        let wanted = SearchIndex::find(ddoc, kind, name)?;
        let update_seq = required_seq(database, freshness)?;
        let (handle, position) = self.shown(database, &wanted)?;
        Ok((position.update_seq >= update_seq).then(|| handle.store().clone()))
    }

    pub fn update(&self, database: &Arc<Database>, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        let result = self.try_update(database, ddoc, urgency);
        match &result {
            Ok(()) => self.databases.of(database.shard()).end_backoff(&ddoc.id),
            Err(error) if error.is_end() => {}
            Err(_) => self.start_backoff(database, ddoc, self.clock().now_us().saturating_add(BACKOFF_US)),
        }
        result
    }

    fn try_update(&self, database: &Arc<Database>, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        let update_seq = database.read().map_err(ViewError::from)?.update_seq().map_err(ViewError::from)?;
        for wanted in SearchIndex::all(ddoc) {
            while self.shown(database, &wanted)?.1.update_seq < update_seq {
                self.advance(database, ddoc, &wanted, update_seq, urgency)?;
            }
        }
        Ok(())
    }

    pub fn info(
        &self,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        kind: SearchKind,
        name: &str,
    ) -> Result<SearchInfo> {
        let wanted = SearchIndex::find(ddoc, kind, name)?;
        let (handle, Position { update_seq, purge_seq }) = self.shown(database, &wanted)?;
        let info = handle.store().info()?;
        Ok(SearchInfo {
            signature: wanted.signature.to_string(),
            update_seq,
            purge_seq,
            docs: info.docs,
            deleted_docs: info.deleted_docs,
            disk_bytes: info.disk_bytes,
            failure: handle.failure().filter(|error| !error.is_end()),
        })
    }

    /// Stops all work on indexes. Unfinished work is repeated after the next start.
    pub fn stop(&self) {
        self.databases.stop_and_wait();
    }

    fn clock(&self) -> &Clock {
        &self.views.settings().clock
    }

    fn records<'a>(&'a self, database: &'a Arc<Database>) -> IndexRecords<'a> {
        IndexRecords { catalog: self.views.catalog(), database, family: settee_views::Family::Searches }
    }

    fn handle(&self, database: &Arc<Database>, wanted: &SearchIndex) -> Result<Arc<SearchHandle>> {
        let indexes = self.databases.of(database.shard());
        let now_us = self.clock().now_us();
        let mut handles = indexes.handles.lock();
        if let Some(handle) = handles.get(&wanted.signature) {
            handle.use_at(now_us);
            return Ok(Arc::clone(handle));
        }
        let shard = self.records(database).add(wanted.signature)?;
        let tokens = Arc::clone(&self.tokens);
        let engine = Arc::clone(self.views.catalog().engine());
        let definition = wanted.definition.clone();
        let index = Index::new(engine, shard, definition, Arc::new(move || tokens.next()), Arc::clone(&self.caches));
        let handle = Arc::new(SearchHandle::new(index));
        handle.use_at(now_us);
        handles.insert(wanted.signature, Arc::clone(&handle));
        Ok(handle)
    }

    /// Retries if another process has replaced the shard.
    fn shown(&self, database: &Arc<Database>, wanted: &SearchIndex) -> Result<(Arc<SearchHandle>, Position)> {
        let handle = self.handle(database, wanted)?;
        match Position::of(handle.store()) {
            Err(Error::Storage(StorageError::Dropped)) => {}
            position => return Ok((handle, position?)),
        }
        let shard = handle.store().shard();
        if self.records(database).find(wanted.signature)? != Some(shard) {
            let indexes = self.databases.of(database.shard());
            let mut handles = indexes.handles.lock();
            if handles.get(&wanted.signature).is_some_and(|known| Arc::ptr_eq(known, &handle)) {
                handles.remove(&wanted.signature);
            }
        }
        let handle = self.handle(database, wanted)?;
        match Position::of(handle.store()) {
            Err(Error::Storage(StorageError::Dropped)) => Ok((handle, Position::default())),
            position => Ok((handle, position?)),
        }
    }

    fn start_backoff(&self, database: &Arc<Database>, ddoc: &DesignDocument, until_us: u64) {
        self.databases.of(database.shard()).start_backoff(&ddoc.id, signature_of_all(ddoc), until_us);
    }

    fn log_event(&self, database: &Database, ddoc: &DesignDocument, subject: LogSubject<'_>, message: &str) {
        (self.log)(&LogLine { database: database.name(), design_document: &ddoc.id, subject, message });
    }

    fn indexes_of(&self, database: &Database) -> Arc<Indexes> {
        self.databases.of(database.shard())
    }
}

/// Returns the part of `index`, an index of `database`, with the documents that `reader` sees: both the present list
/// of a document and that of the indexed revision must grant access. Searches answer as if no others existed.
pub fn visible_part(
    index: Index,
    database: &Arc<Database>,
    (reader, client): (&Reader, &ReadClient),
    limits: &SearchLimits,
) -> Result<Index> {
    if *reader == Reader::Administrator || database.access() == AccessControl::PerDatabase {
        return Ok(index);
    }
    index.restricted(limits, |position, each| {
        let Position { update_seq, purge_seq } =
            position.map(Position::decode).transpose()?.flatten().unwrap_or_default();
        // The documents are read after the index, so that they are at least as recent.
        let view = database.read_as(reader, Waiting::Allowed)?.for_client(client);
        view.indexed_documents(IndexPosition { update_seq, purge_seq }, each)
    })
}

fn required_seq(database: &Arc<Database>, freshness: Freshness) -> Result<u64> {
    match freshness {
        Freshness::Current => Ok(database.read().map_err(ViewError::from)?.update_seq().map_err(ViewError::from)?),
        Freshness::Any => Ok(0),
    }
}

const BACKOFF_US: u64 = 60_000_000;

fn signature_of_all(ddoc: &DesignDocument) -> Signature {
    let signatures: Vec<String> = SearchIndex::all(ddoc).iter().map(|index| index.signature.to_string()).collect();
    Signature::of(signatures.iter().map(String::as_bytes))
}
