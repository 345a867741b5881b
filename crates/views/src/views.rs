//! [`Views`]: the one door to views. Finds the index of a view, has it brought up to date, and shows rows.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use parking_lot::Mutex;
use settee_database::tasks::Tasks;
use settee_database::{Catalog, Database, DatabaseError};
use settee_design::{Cancellation, DesignDocument, Growth, Language, Limits, ViewDefinition};
use settee_storage::Shard;

use crate::control::BuildState;
use crate::error::{Result, ViewError};
use crate::handle::{BuildControl, DatabaseIndexes};
use crate::host::{CatalogHost, IndexHost};
use crate::index::Signature;
use crate::index::identity::{definitions, layout_of, signature};
use crate::indexer::Settings;
use crate::indexer::runs::directories;
use crate::pace::{Budget, Pace, Urgency};
use crate::query::{Plan, RowSink, Shown, Update, ViewQuery};
use crate::shared::{About, Core, Languages, Log};

/// Whether the caller of a query has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// No.
    Complete,
    /// The client asked for an update after the answer: call [`Views::update`] on a thread that may block.
    UpdateWanted,
}

/// The figures in `_info` about the indexes of a design document.
#[derive(Clone, Debug)]
pub struct ViewInfo {
    /// The same for all design documents with the same views.
    pub signature: String,
    /// The language of the views.
    pub language: String,
    /// Whether an index is being brought up to date.
    pub updater_running: bool,
    /// The number of queries that wait for that.
    pub waiting_clients: u64,
    /// Whether a compaction was asked for that has not ended.
    pub compact_running: bool,
    /// The update sequence that all indexes have reached.
    pub update_seq: u64,
    /// The purge that all indexes have seen.
    pub purge_seq: u64,
    /// The number of changes that the last of them is behind.
    pub updates_pending: u64,
    /// Bytes on disk, about.
    pub file_bytes: u64,
    /// Bytes of ids, keys and values.
    pub external_bytes: u64,
    /// The error of the last build, if it failed.
    pub failure: Option<ViewError>,
}

/// The view indexes of all databases of a catalog.
pub struct Views {
    catalog: Arc<Catalog>,
    core: Core,
    /// Design documents whose indexes are being compacted, by the shard of their database; one may be named several times.
    compacting: Mutex<Vec<(Shard, String)>>,
}

/// A compaction of the indexes of a design document, from when it was asked for until this is dropped.
pub struct Compaction {
    views: Arc<Views>,
    database: Arc<Database>,
    ddoc: Arc<DesignDocument>,
}

impl Views {
    /// Views of the databases of `catalog`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, languages: Languages, tasks: Tasks, log: Log, settings: Settings) -> Self {
        let core = Core::new(languages, tasks, log, settings);
        core.follow(catalog.engine().as_ref());
        Self { catalog, core, compacting: Mutex::default() }
    }

    /// The limits of functions while indexes are built.
    #[must_use]
    pub fn limits(&self) -> Limits {
        self.core.limits()
    }

    /// Answers a query of the view `view` of `ddoc`. Blocks while the index is brought up to date and while `sink` does.
    ///
    /// # Errors
    /// Before the first call of `sink` for everything that can be known then; afterwards only when storage or a reduce
    /// function fails.
    pub fn query(
        &self,
        database: &Arc<Database>,
        ddoc: &DesignDocument,
        view: &str,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<Answer> {
        self.core.query(&self.host(database), ddoc, view, query, sink)
    }

    /// Brings all indexes of a design document up to date.
    ///
    /// # Errors
    /// When a function or storage failed, or when it was ended early.
    pub fn update(&self, database: &Arc<Database>, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        self.core.update(&self.host(database), ddoc, urgency)
    }

    /// The number of changes that the indexes of a design document are behind, if the background should see to them:
    /// nobody builds them, and they are neither paused nor left alone after a failure.
    ///
    /// # Errors
    /// When storage failed.
    pub fn lag(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<Option<u64>> {
        self.core.lag(&self.host(database), ddoc)
    }

    /// The state of the builds of a design document.
    ///
    /// # Errors
    /// When storage failed.
    pub fn build_state(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<BuildState> {
        self.core.build_state(&self.host(database), ddoc)
    }

    /// Ends the builds of a design document, keeping what they have done, and lets no other begin. Queries that need one get
    /// [`ViewError::Paused`].
    ///
    /// # Errors
    /// When storage failed.
    pub fn pause(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.pause(&self.host(database), ddoc)
    }

    /// Lets the indexes of a design document be built again: the caller may call [`Self::update`].
    ///
    /// # Errors
    /// When storage failed.
    pub fn resume(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.resume(&self.host(database), ddoc)
    }

    /// Ends the builds of a design document and forgets what they have done that is in no index yet. Queries that wait get
    /// [`ViewError::Cancelled`]; the next one that needs it starts over.
    ///
    /// # Errors
    /// When storage failed.
    pub fn cancel(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.cancel(&self.host(database), ddoc)
    }

    /// How administrators control the builds of a design document: all indexes that it asks for, of views or not.
    ///
    /// # Errors
    /// When storage failed.
    pub fn control(&self, database: &Arc<Database>, ddoc: &Arc<str>) -> Result<BuildControl> {
        self.core.control(&self.host(database), &self.core.indexes_of(database.shard()), ddoc)
    }

    /// What all builds of indexes keep to.
    #[must_use]
    pub fn pace(&self) -> &Pace {
        &self.core.pace
    }

    /// The catalog.
    #[must_use]
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    /// How indexes are built.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        self.core.settings()
    }

    /// The language that a design document names.
    ///
    /// # Errors
    /// When nothing runs it.
    pub fn language(&self, ddoc: &DesignDocument) -> Result<Arc<dyn Language>> {
        self.core.language(ddoc)
    }

    /// Sets what builds in the background may use.
    pub fn set_budget(&self, budget: Budget) {
        self.core.pace.set_budget(budget);
    }

    /// The databases that have builds which were interrupted when the last process ended.
    ///
    /// # Errors
    /// When the files cannot be listed.
    pub fn interrupted(&self) -> Result<BTreeSet<String>> {
        Ok(directories(&self.core.settings.run_directory)?.into_iter().filter_map(|(_, owner)| owner).collect())
    }

    /// The state of the indexes of a design document, as far as known.
    ///
    /// # Errors
    /// When storage failed.
    pub fn info(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<ViewInfo> {
        let is_this = |(shard, id): &(Shard, String)| (*shard, id.as_str()) == (database.shard(), &*ddoc.id);
        let compact_running = self.compacting.lock().iter().any(is_this);
        Ok(ViewInfo { compact_running, ..self.core.info(&self.host(database), ddoc)? })
    }

    /// Removes the indexes that none of `ddocs`, all design documents of the database, needs, and that nobody has needed
    /// or used for `grace_us`. Those that are being built stay. Answers how many went.
    ///
    /// # Errors
    /// When storage failed.
    pub fn cleanup(&self, database: &Arc<Database>, ddocs: &[DesignDocument], grace_us: u64) -> Result<usize> {
        self.core.collect(&self.host(database), ddocs, grace_us)
    }

    /// Removes what builds left on disk of indexes that are not there any more. Answers of how many.
    ///
    /// # Errors
    /// When storage failed.
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
        // An index that came meanwhile has not been found before.
        self.core.sweep(|shard| known.contains(&shard) || found.iter().all(|(known, _)| *known != shard))
    }

    /// Begins a compaction of the indexes of a design document: who asks for their state from now on sees it.
    pub fn begin_compaction(self: &Arc<Self>, database: &Arc<Database>, ddoc: Arc<DesignDocument>) -> Compaction {
        self.compacting.lock().push((database.shard(), ddoc.id.to_string()));
        Compaction { views: Arc::clone(self), database: Arc::clone(database), ddoc }
    }

    /// Ends all work on the indexes of a database and lets no other begin: to be called before the database is deleted.
    /// Queries that wait get [`ViewError::Stopped`].
    pub fn release(&self, database: &Arc<Database>) {
        self.core.indexes_of(database.shard()).stop_and_wait();
        // What is left then is swept away later.
        let _ = self.core.remove_runs(&self.host(database));
    }

    /// Sets the limit for reductions that do not shrink, from now on. Those that are in an index already stay what they
    /// are.
    pub fn set_growth(&self, growth: Growth) {
        *self.core.growth.lock() = growth;
    }

    /// Ends all work on indexes, for the end of the server. What was not finished is done again later.
    pub fn stop(&self) {
        self.core.stop();
    }

    pub(crate) fn core(&self) -> &Core {
        &self.core
    }

    fn host<'a>(&'a self, database: &'a Arc<Database>) -> CatalogHost<'a> {
        CatalogHost { catalog: &self.catalog, database }
    }
}

impl Compaction {
    /// The design document.
    #[must_use]
    pub fn ddoc(&self) -> &DesignDocument {
        &self.ddoc
    }

    /// Lets the engine give back the space of what was removed from the indexes. Blocks.
    ///
    /// # Errors
    /// When storage failed.
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
        host: &dyn IndexHost,
        ddoc: &DesignDocument,
        view: &str,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<Answer> {
        let definition = ddoc.view(view).ok_or(ViewError::MissingView)?;
        let shown = self.shown_instead(host, ddoc, definition)?;
        if let Some((shown, stale)) = &shown {
            sink.stale(stale);
            self.query_shown(host, shown, &shown.views[0], query, sink)?;
        } else {
            self.query_shown(host, ddoc, definition, query, sink)?;
        }
        let is_wanted = shown.is_some() || query.update == Update::Lazy;
        Ok(if is_wanted && self.lag(host, ddoc)?.is_some() { Answer::UpdateWanted } else { Answer::Complete })
    }

    fn query_shown(
        &self,
        host: &dyn IndexHost,
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
            let (handle, snapshot, meta) = self.shown(host, signature)?;
            // Even an index that need not be up to date may have been built before a view with this reduce function came.
            if meta.is_current(reduce.as_slice(), update_seq) {
                break (handle, snapshot, meta);
            }
            self.advance(host, ddoc, signature, update_seq, (Urgency::Client, &sink.cancellation()))?;
        };
        let shown = Shown { tree: handle.store().tree(&*snapshot), meta: &meta };
        let mut aggregate = match &reduce {
            Some(reduce) => {
                Some((self.aggregate(ddoc, reduce)?.with_context(context), meta.aggregate(reduce).unwrap_or(0)))
            }
            None => None,
        };
        let shown = plan.run(shown, aggregate.as_mut().map(|(aggregate, index)| (aggregate, *index)), sink);
        for message in aggregate.iter_mut().flat_map(|(aggregate, _)| aggregate.take_log()) {
            self.say(host, ddoc, About::Message, &message);
        }
        shown
    }

    pub(crate) fn update(&self, host: &dyn IndexHost, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        let result = self.try_update(host, ddoc, urgency);
        match &result {
            Ok(()) => self.end_rest(host, ddoc)?,
            Err(ViewError::Stopped | ViewError::Paused | ViewError::Cancelled) => {}
            Err(_) => self.rest_after_failure(host, ddoc)?,
        }
        result
    }

    fn try_update(&self, host: &dyn IndexHost, ddoc: &DesignDocument, urgency: Urgency) -> Result<()> {
        let update_seq = host.read()?.update_seq()?;
        let definitions = definitions(host.layout(), ddoc);
        for definition in &definitions {
            while !self.shown(host, definition.signature)?.2.is_current(&definition.reduces, update_seq) {
                self.advance(host, ddoc, definition.signature, update_seq, (urgency, &Cancellation::never()))?;
            }
        }
        let built: Vec<Signature> = definitions.iter().map(|definition| definition.signature).collect();
        self.note_served(host, ddoc, &built)
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
            let (handle, _, meta) = self.shown(host, definition.signature)?;
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

    /// Nodes that nothing refers to go with the commit that replaces them, so what is left is up to the engine.
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
