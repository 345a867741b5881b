//! [`Views`]: the interface to view indexes. Finds the index of a view, updates it, and returns rows.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use settee_database::tasks::Tasks;
use settee_database::{AccessControl, Catalog, Database, DatabaseError, ReadClient, Reader, Waiting};
use settee_design::{Cancellation, DesignDocument, Language, Limits, ViewDefinition};
use settee_storage::{Shard, StorageError};

use crate::control::BuildState;
use crate::error::{Result, ViewError};
use crate::handle::{BuildControl, DatabaseIndexes};
use crate::host::{CatalogHost, IndexHost, ReaderDocuments};
use crate::index::Signature;
use crate::index::identity::{definitions, layout_of, signature};
use crate::indexer::Settings;
use crate::indexer::runs::directories;
use crate::pace::{Budget, Pace, Urgency};
use crate::query::plan::{IndexSnapshot, Plan};
use crate::query::visible::{VisibleDocuments, VisibleRows};
use crate::query::{RowSink, Update, ViewQuery};
use crate::shared::{Core, Languages, Log, LogSubject};

/// Follow-up action of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// The caller need not do anything.
    Complete,
    /// The caller must call [`Views::update`] on a thread that may block.
    UpdateWanted,
}

/// Members of `_info` of a design document.
#[derive(Clone, Debug)]
pub struct ViewInfo {
    /// Equal for all design documents with the same views.
    pub signature: String,
    /// Language of the views.
    pub language: String,
    /// True if an update is running.
    pub updater_running: bool,
    /// Number of queries that wait for it.
    pub waiting_clients: u64,
    /// True from the request of a compaction to its end.
    pub compact_running: bool,
    /// Update sequence that all indexes have reached.
    pub update_seq: u64,
    /// Purge sequence that all indexes have reached.
    pub purge_seq: u64,
    /// Number of changes by which the most outdated index is behind.
    pub updates_pending: u64,
    /// Approximate bytes on disk.
    pub file_bytes: u64,
    /// Bytes of ids, keys and values.
    pub external_bytes: u64,
    /// Error of the last build, if it failed.
    pub failure: Option<ViewError>,
}

/// The view indexes of all databases of a catalog.
pub struct Views {
    catalog: Arc<Catalog>,
    core: Core,
    compacting: Mutex<Vec<(Shard, String)>>,
}

/// A compaction of the indexes of a design document, reported as running until dropped.
pub struct Compaction {
    views: Arc<Views>,
    database: Arc<Database>,
    ddoc: Arc<DesignDocument>,
}

impl Views {
    /// Creates the view indexes of the databases of `catalog`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, languages: Languages, tasks: Tasks, log: Log, settings: Settings) -> Self {
        let core = Core::new(languages, tasks, log, settings);
        core.follow(catalog.engine().as_ref());
        Self { catalog, core, compacting: Mutex::default() }
    }

    /// Returns the limits of functions for index builds.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.core.limits()
    }

    /// Executes a query. Blocks while the index is updated and while `sink` blocks. After the first call of `sink`,
    /// only storage or a reduce function can cause an error.
    pub fn query(
        &self,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        view: &str,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<Answer> {
        self.core.query((&self.host(database), None), ddoc, view, query, sink)
    }

    /// As [`Self::query`], with the rows of the documents that `reader` sees, as if no others existed. Fails with
    /// [`ViewError::Memory`] if the client's memory does not suffice for the keys of all rows that the reader sees.
    /// Blocks only if `waiting` permits it.
    pub fn query_as(
        &self,
        database: &Arc<Database>,
        (reader, client, waiting): (&Reader, &ReadClient, Waiting<'_>),
        ddoc: &DesignDocument,
        view: &str,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<Answer> {
        let documents = ReaderDocuments { database, reader, client, waiting };
        let is_restricted = *reader != Reader::Administrator && database.access() == AccessControl::PerDocument;
        let visible = is_restricted.then_some(&documents as &dyn VisibleDocuments);
        let host = CatalogHost { waiting, ..self.host(database) };
        self.core.query((&host, visible), ddoc, view, query, sink)
    }

    /// Updates all indexes of a design document. Fails if a function fails or the update is stopped.
    pub fn update(&self, database: &Arc<Database>, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        self.core.update(&self.host(database), ddoc, urgency)
    }

    /// Returns the number of changes by which the indexes are behind; `None` if no background build should run: they
    /// are current, being built, paused, or skipped after a failure.
    pub fn lag(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<Option<u64>> {
        self.core.lag(&self.host(database), ddoc)
    }

    /// Returns the state of the builds of a design document.
    pub fn build_state(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<BuildState> {
        self.core.build_state(&self.host(database), ddoc)
    }

    /// Stops the builds of a design document and keeps their progress. Queries that need a build fail with
    /// [`ViewError::Paused`].
    pub fn pause(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.pause(&self.host(database), ddoc)
    }

    /// Permits builds again. The caller may call [`Self::update`] to start one.
    pub fn resume(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.resume(&self.host(database), ddoc)
    }

    /// Stops the builds of a design document and discards the progress that is in no index yet. Waiting queries fail
    /// with [`ViewError::Cancelled`]; the next query that needs the build starts it from scratch.
    pub fn cancel(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.cancel(&self.host(database), ddoc)
    }

    /// Returns the control of the builds of all indexes of a design document, of views and searches.
    pub fn control(&self, database: &Arc<Database>, ddoc: &Arc<str>) -> Result<BuildControl> {
        self.core.control(&self.host(database), &self.core.indexes_of(database.shard()), ddoc)
    }

    /// Returns the pacing of all index builds.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.core.pace
    }

    /// Returns the catalog.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// Returns the settings of builds.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.core.settings()
    }

    /// Returns the language of a design document, or [`ViewError::UnknownLanguage`].
    pub fn language(&self, ddoc: &DesignDocument) -> Result<Arc<dyn Language>> {
        self.core.language(ddoc)
    }

    /// Sets the budget of background builds.
    pub fn set_budget(&self, budget: Budget) {
        self.core.pace.set_budget(budget);
    }

    /// Returns the databases with builds that the end of a previous process has interrupted.
    pub fn interrupted(&self) -> Result<BTreeSet<String>> {
        Ok(directories(&self.core.settings.run_directory)?.into_iter().filter_map(|(_, owner)| owner).collect())
    }

    /// Returns the state of the indexes of a design document.
    pub fn info(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<ViewInfo> {
        let is_this = |(shard, id): &(Shard, String)| (*shard, id.as_str()) == (database.shard(), &*ddoc.id);
        let compact_running = self.compacting.lock().iter().any(is_this);
        Ok(ViewInfo { compact_running, ..self.core.info(&self.host(database), ddoc)? })
    }

    /// Removes the indexes that were unused for `grace_us`. `ddocs` must be all design documents of the database. Keeps
    /// the indexes that they require or that a build writes. Returns the number of removed indexes.
    pub fn cleanup(&self, database: &Arc<Database>, ddocs: &[DesignDocument], grace_us: u64) -> Result<usize> {
        self.core.collect(&self.host(database), ddocs, grace_us)
    }

    /// Removes build files of indexes that do not exist any more. Returns the number of these indexes.
    pub fn sweep(&self) -> Result<usize> {
        let found = directories(&self.core.settings.run_directory)?;
        if found.is_empty() {
            return Ok(0);
        }
        let mut known = HashSet::new();
        for name in self.catalog.names()? {
            match self.catalog.database(&name) {
                Ok(database) => known.extend(self.host(&database).indexes()?.into_iter().map(|(_, shard)| shard)),
                Err(DatabaseError::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
        }
        // An index that was created concurrently had no files at the start.
        self.core.sweep(|shard| known.contains(&shard) || found.iter().all(|(known, _)| *known != shard))
    }

    /// Starts a compaction of the indexes of a design document, which [`Self::info`] reports.
    pub fn begin_compaction(self: &Arc<Self>, database: &Arc<Database>, ddoc: Arc<DesignDocument>) -> Compaction {
        self.compacting.lock().push((database.shard(), ddoc.id.to_string()));
        Compaction { views: Arc::clone(self), database: Arc::clone(database), ddoc }
    }

    /// Stops all work on the indexes of a database and prevents new work. The caller must call it before deleting the
    /// database. Waiting queries fail with [`ViewError::Stopped`].
    pub fn release(&self, database: &Arc<Database>) {
        self.core.indexes_of(database.shard()).stop_and_wait();
        let _ = self.core.remove_runs(&self.host(database));
    }

    /// Stops all work on indexes. Unfinished work is repeated after the next start.
    pub fn stop(&self) {
        self.core.stop();
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    fn host<'a>(&'a self, database: &'a Arc<Database>) -> CatalogHost<'a> {
        CatalogHost { catalog: &self.catalog, database, waiting: Waiting::Allowed }
    }
}

impl Compaction {
    /// Returns the design document.
    #[must_use]
    pub fn ddoc(&self) -> &DesignDocument {
        &self.ddoc
    }

    /// Makes the engine reclaim the space of removed parts of the indexes. Blocks.
    pub fn run(&self) -> Result<()> {
        self.views.core.compact(&self.views.host(&self.database), &self.ddoc)
    }
}

impl Drop for Compaction {
    fn drop(&mut self) {
        let mut compacting = self.views.compacting.lock();
        let own = (self.database.shard(), self.ddoc.id.to_string());
        if let Some(place) = compacting.iter().position(|other| *other == own) {
            compacting.swap_remove(place);
        }
    }
}

impl Core {
    pub(crate) fn query(
        &self,
        (host, visible): (&dyn IndexHost, Option<&dyn VisibleDocuments>),
        ddoc: &DesignDocument,
        view: &str,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<Answer> {
        let definition = ddoc.view(view).ok_or(ViewError::MissingView)?;
        if query.update == Update::Lazy {
            // The lag depends on other processes and running builds.
            host.waiting().may_block()?;
        }
        let serving = self.serving_definition(host, ddoc, definition)?;
        if let Some((serving, stale)) = &serving {
            sink.stale(stale);
            self.query_definition((host, visible), serving, &serving.views[0], query, sink)?;
        } else {
            self.query_definition((host, visible), ddoc, definition, query, sink)?;
        }
        let is_wanted = serving.is_some() || query.update == Update::Lazy;
        Ok(if is_wanted && self.lag(host, ddoc)?.is_some() { Answer::UpdateWanted } else { Answer::Complete })
    }

    fn query_definition(
        &self,
        (host, visible): (&dyn IndexHost, Option<&dyn VisibleDocuments>),
        ddoc: &DesignDocument,
        view: &ViewDefinition,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<()> {
        let context = format!("{}/{}/_view/{}", host.name(), ddoc.id, view.name);
        let plan = Plan::new(query, view.reduce.is_some(), view.collation, layout_of(host.layout(), ddoc))?;
        let reduce = view.reduce.clone().filter(|_| plan.reduces());
        let signature = signature(host.layout(), ddoc, view);
        let update_seq = match query.update {
            Update::True => host.read()?.update_seq()?,
            Update::False | Update::Lazy => 0,
        };
        let (handle, snapshot, meta) = loop {
            let (handle, snapshot, meta) = self.open_snapshot(host, signature)?;
            // An index that need not be updated may still lack this reduce function.
            if meta.is_current(reduce.as_slice(), update_seq) {
                break (handle, snapshot, meta);
            }
            // A build may wait for a repair of the store, which waits for snapshots.
            drop(snapshot);
            self.advance(host, ddoc, signature, update_seq, (Urgency::Client, &sink.cancellation()))?;
        };
        let tree = handle.store().tree(&*snapshot);
        // The documents are read after the index, so that they are at least as recent.
        let visible = visible.map(|documents| VisibleRows::read(tree, &meta, documents)).transpose()?;
        let index_snapshot = IndexSnapshot { tree, meta: &meta, visible: visible.as_ref() };
        let mut aggregate = match &reduce {
            Some(reduce) => {
                let aggregate = self.aggregate(ddoc, reduce)?.with_context(context);
                let aggregate = match host.waiting() {
                    Waiting::Allowed => aggregate,
                    Waiting::Refused(_) => aggregate.without_calls(),
                };
                Some((aggregate, meta.aggregate(reduce).unwrap_or(0)))
            }
            None => None,
        };
        let result = plan.run(index_snapshot, aggregate.as_mut().map(|(aggregate, index)| (aggregate, *index)), sink);
        for message in aggregate.iter_mut().flat_map(|(aggregate, _)| aggregate.take_log()) {
            self.log_event(host, ddoc, LogSubject::Message, &message);
        }
        // The reduce function of an attempt must be called.
        if let Err(ViewError::Storage(StorageError::WouldBlock)) = result {
            host.waiting().may_block()?;
        }
        result
    }

    pub(crate) fn update(&self, host: &dyn IndexHost, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        let result = self.try_update(host, ddoc, urgency);
        match &result {
            Ok(()) => self.end_backoff(host, ddoc)?,
            Err(ViewError::Stopped | ViewError::Paused | ViewError::Cancelled) => {}
            Err(_) => self.start_backoff(host, ddoc)?,
        }
        result
    }

    fn try_update(&self, host: &dyn IndexHost, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        let update_seq = host.read()?.update_seq()?;
        let definitions = definitions(host.layout(), ddoc);
        for definition in &definitions {
            while !self.open_snapshot(host, definition.signature)?.2.is_current(&definition.reduces, update_seq) {
                self.advance(host, ddoc, definition.signature, update_seq, (urgency, &Cancellation::never()))?;
            }
        }
        let built: Vec<Signature> = definitions.iter().map(|definition| definition.signature).collect();
        self.record_serving(host, ddoc, &built)
    }

    pub(crate) fn info(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<ViewInfo> {
        let definitions = definitions(host.layout(), ddoc);
        let database = host.read()?;
        let mut info = ViewInfo {
            signature: Signature::of_all(&definitions).to_string(),
            language: ddoc.language.to_string(),
            updater_running: false,
            waiting_clients: 0,
            compact_running: false,
            update_seq: if definitions.is_empty() { database.update_seq()? } else { u64::MAX },
            purge_seq: database.purge_seq()?,
            updates_pending: 0,
            file_bytes: 0,
            external_bytes: 0,
            failure: None,
        };
        for definition in &definitions {
            let (handle, _, meta) = self.open_snapshot(host, definition.signature)?;
            let (is_building, waiting) = handle.activity();
            info.updater_running |= is_building;
            info.waiting_clients += waiting;
            info.failure = info.failure.or_else(|| handle.failure());
            info.update_seq = info.update_seq.min(meta.update_seq);
            info.purge_seq = info.purge_seq.min(meta.purge_seq);
            info.file_bytes += handle.store().file_bytes();
            info.external_bytes += meta.content_bytes();
        }
        info.updates_pending = database.count_after(info.update_seq)?;
        Ok(info)
    }

    /// The commit that replaces nodes also removes them, so only the engine has work to do.
    pub(crate) fn compact(&self, host: &dyn IndexHost, ddoc: &DesignDocument) -> Result<()> {
        for definition in definitions(host.layout(), ddoc) {
            self.handle(host, definition.signature)?.store().reclaim()?;
        }
        Ok(())
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let databases: Vec<Arc<DatabaseIndexes>> = self.databases.lock().indexes.values().cloned().collect();
        databases.iter().for_each(|indexes| indexes.stop_and_wait());
    }
}
