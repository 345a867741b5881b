//! [`Views`]: the one door to views. Finds the index of a view, has it brought up to date, and shows rows.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use settee_database::tasks::{TaskKind, Tasks};
use settee_database::{Catalog, Database};
use settee_design::{DesignDocument, DocumentBatch, Emissions, Language, MapSource};
use settee_storage::Shard;

use crate::error::{Result, ViewError};
use crate::handle::{BuildGuard, DatabaseIndexes, Handle, Turn};
use crate::home::{CatalogHome, Home};
use crate::index::identity::{definitions, layout_of, signature};
use crate::index::{IndexDefinition, IndexStore, Meta, Signature, Tokens};
use crate::indexer::source::ChangeSnapshot;
use crate::indexer::resume::resume;
use crate::indexer::runs::RunDirectory;
use crate::indexer::{Pass, PassIndex, Settings, attach};
use crate::query::{Plan, RowSink, Shown, Update, ViewQuery};
use crate::reduce::Column;

/// Finds the language that a design document names.
pub type Languages = Arc<dyn Fn(&str) -> Option<Arc<dyn Language>> + Send + Sync>;

/// Takes what map functions threw, and what map and reduce functions logged.
pub type Log = Arc<dyn Fn(&LogLine<'_>) + Send + Sync>;

/// Something that a function said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// The database.
    pub database: &'a str,
    /// The id of the design document.
    pub design_document: &'a str,
    /// The document for which a function threw an exception; absent if it called `log`.
    pub failed_document: Option<&'a str>,
    /// The exception or the line.
    pub message: &'a str,
}

/// Whether the caller of a query has something to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Answer {
    /// No.
    Complete,
    /// The client asked for an update after the answer: call [`Views::update`] on a thread that may block.
    UpdateWanted,
}

/// What `_info` tells about the indexes of a design document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewInfo {
    /// The same for all design documents with the same views.
    pub signature: String,
    /// The language of the views.
    pub language: String,
    /// Whether an index is being brought up to date.
    pub updater_running: bool,
    /// How many queries wait for that.
    pub waiting_clients: u64,
    /// The update sequence that all indexes have reached.
    pub update_seq: u64,
    /// The purge that all indexes have seen.
    pub purge_seq: u64,
    /// How many changes the last of them is behind.
    pub updates_pending: u64,
    /// Bytes on disk, about.
    pub file_bytes: u64,
    /// Bytes of ids, keys and values.
    pub external_bytes: u64,
}

/// The view indexes of all databases of a catalog.
pub struct Views {
    catalog: Arc<Catalog>,
    core: Core,
}

impl Views {
    /// Views of the databases of `catalog`.
    #[must_use]
    pub fn new(catalog: Arc<Catalog>, languages: Languages, tasks: Tasks, log: Log, settings: Settings) -> Self {
        Self { catalog, core: Core::new(languages, tasks, log, settings) }
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
        self.core.query(&self.home(database), ddoc, view, query, sink)
    }

    /// Brings all indexes of a design document up to date.
    ///
    /// # Errors
    /// When a function or storage failed.
    pub fn update(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.update(&self.home(database), ddoc)
    }

    /// What is known of the indexes of a design document.
    ///
    /// # Errors
    /// When storage failed.
    pub fn info(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<ViewInfo> {
        self.core.info(&self.home(database), ddoc)
    }

    /// Removes the indexes that none of `ddocs`, all design documents of the database, needs. Those that are being built
    /// stay. Answers how many went.
    ///
    /// # Errors
    /// When storage failed.
    pub fn cleanup(&self, database: &Arc<Database>, ddocs: &[DesignDocument]) -> Result<usize> {
        self.core.cleanup(&self.home(database), ddocs)
    }

    /// Lets the engine give back the space of what was removed from the indexes of a design document. Blocks.
    ///
    /// # Errors
    /// When storage failed.
    pub fn compact(&self, database: &Arc<Database>, ddoc: &DesignDocument) -> Result<()> {
        self.core.compact(&self.home(database), ddoc)
    }

    /// Ends all work on the indexes of a database and lets no other begin: to be called before the database is deleted.
    /// Queries that wait get [`ViewError::Stopped`].
    pub fn release(&self, database: &Arc<Database>) {
        self.core.indexes_of(database.shard()).stop_and_wait();
    }

    /// Ends all work on indexes, for the end of the server. What was not finished is done again later.
    pub fn stop(&self) {
        self.core.stop();
    }

    fn home<'a>(&'a self, database: &'a Arc<Database>) -> CatalogHome<'a> {
        CatalogHome { catalog: &self.catalog, database }
    }
}

/// Everything but the catalog, so that tests may bring their own databases.
pub(crate) struct Core {
    languages: Languages,
    tasks: Tasks,
    log: Log,
    settings: Settings,
    tokens: Arc<Tokens>,
    databases: Mutex<HashMap<Shard, Arc<DatabaseIndexes>>>,
    is_stopping: AtomicBool,
}

impl Core {
    pub(crate) fn new(languages: Languages, tasks: Tasks, log: Log, settings: Settings) -> Self {
        let tokens = Arc::new(Tokens::new(settings.seed));
        let databases = Mutex::default();
        Self { languages, tasks, log, settings, tokens, databases, is_stopping: AtomicBool::new(false) }
    }

    pub(crate) fn query(
        &self,
        home: &dyn Home,
        ddoc: &DesignDocument,
        view: &str,
        query: &ViewQuery,
        sink: &mut dyn RowSink,
    ) -> Result<Answer> {
        let context = format!("{}/{}/_view/{view}", home.name(), ddoc.id);
        let view = ddoc.view(view).ok_or(ViewError::MissingView)?;
        let plan = Plan::new(query, view.reduce.is_some(), view.collation, layout_of(home.layout(), ddoc))?;
        let reduce = view.reduce.clone().filter(|_| plan.reduces());
        let signature = signature(home.layout(), ddoc, view);
        let update_seq = match query.update {
            Update::True => home.read()?.update_seq()?,
            Update::False | Update::Lazy => 0,
        };
        let (handle, snapshot, meta) = loop {
            let handle = self.handle(home, signature)?;
            let snapshot = handle.store.snapshot()?;
            let meta = handle.store.meta(&*snapshot)?.unwrap_or_else(Meta::new);
            // Even an index that need not be up to date may have been built before a view with this reduce function came.
            if is_current(&meta, reduce.as_slice(), update_seq) {
                break (handle, snapshot, meta);
            }
            self.advance(home, ddoc, signature, update_seq)?;
        };
        let shown = Shown { tree: handle.store.tree(&*snapshot), meta: &meta };
        let mut column = match &reduce {
            Some(reduce) => Some((self.column(ddoc, reduce)?.with_context(context), meta.column(reduce).unwrap_or(0))),
            None => None,
        };
        let shown = plan.run(shown, column.as_mut().map(|(column, index)| (column, *index)), sink);
        for message in column.iter_mut().flat_map(|(column, _)| column.take_log()) {
            self.say(home, ddoc, None, &message);
        }
        shown?;
        Ok(if query.update == Update::Lazy { Answer::UpdateWanted } else { Answer::Complete })
    }

    pub(crate) fn update(&self, home: &dyn Home, ddoc: &DesignDocument) -> Result<()> {
        let update_seq = home.read()?.update_seq()?;
        for definition in definitions(home.layout(), ddoc) {
            while !is_current(&self.handle(home, definition.signature)?.meta()?, &definition.reduces, update_seq) {
                self.advance(home, ddoc, definition.signature, update_seq)?;
            }
        }
        Ok(())
    }

    pub(crate) fn info(&self, home: &dyn Home, ddoc: &DesignDocument) -> Result<ViewInfo> {
        let definitions = definitions(home.layout(), ddoc);
        let database = home.read()?;
        let mut info = ViewInfo {
            signature: Signature::of_all(&definitions).to_string(),
            language: ddoc.language.to_string(),
            updater_running: false,
            waiting_clients: 0,
            update_seq: if definitions.is_empty() { database.update_seq()? } else { u64::MAX },
            purge_seq: database.purge_seq()?,
            updates_pending: 0,
            file_bytes: 0,
            external_bytes: 0,
        };
        for definition in &definitions {
            let handle = self.handle(home, definition.signature)?;
            let meta = handle.meta()?;
            let (is_building, waiting) = handle.activity();
            info.updater_running |= is_building;
            info.waiting_clients += waiting;
            info.update_seq = info.update_seq.min(meta.update_seq);
            info.purge_seq = info.purge_seq.min(meta.purge_seq);
            info.file_bytes += handle.store.file_bytes();
            info.external_bytes += meta.content_bytes();
        }
        info.updates_pending = database.count_after(info.update_seq)?;
        Ok(info)
    }

    /// Nodes that nothing refers to go with the commit that replaces them, so what is left is up to the engine.
    pub(crate) fn compact(&self, home: &dyn Home, ddoc: &DesignDocument) -> Result<()> {
        for definition in definitions(home.layout(), ddoc) {
            self.handle(home, definition.signature)?.store.reclaim()?;
        }
        Ok(())
    }

    pub(crate) fn cleanup(&self, home: &dyn Home, ddocs: &[DesignDocument]) -> Result<usize> {
        let needed: HashSet<Signature> = ddocs
            .iter()
            .flat_map(|ddoc| definitions(home.layout(), ddoc))
            .map(|definition| definition.signature)
            .collect();
        let indexes = self.indexes_of(home.shard());
        let mut removed = 0;
        for (signature, shard) in home.indexes()? {
            if needed.contains(&signature) {
                continue;
            }
            let mut handles = indexes.handles.lock();
            let known = handles.get(&signature);
            let guard = match known.map(Handle::try_build) {
                Some(None) => continue,
                Some(guard) => guard,
                None => None,
            };
            home.remove_index(signature, shard)?;
            handles.remove(&signature);
            guard.into_iter().for_each(BuildGuard::retire);
            removed += 1;
        }
        Ok(removed)
    }

    pub(crate) fn stop(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        let databases: Vec<Arc<DatabaseIndexes>> = self.databases.lock().values().cloned().collect();
        databases.iter().for_each(|indexes| indexes.stop_and_wait());
    }

    pub(crate) fn indexes_of(&self, database: Shard) -> Arc<DatabaseIndexes> {
        Arc::clone(self.databases.lock().entry(database).or_default())
    }

    fn handle(&self, home: &dyn Home, signature: Signature) -> Result<Arc<Handle>> {
        let indexes = self.indexes_of(home.shard());
        let mut handles = indexes.handles.lock();
        if let Some(handle) = handles.get(&signature) {
            return Ok(Arc::clone(handle));
        }
        let shard = home.add_index(signature)?;
        let store = IndexStore::new(Arc::clone(home.engine()), shard, Arc::clone(&self.tokens));
        let handle = Arc::new(Handle::new(store));
        handles.insert(signature, Arc::clone(&handle));
        Ok(handle)
    }

    fn language(&self, ddoc: &DesignDocument) -> Result<Arc<dyn Language>> {
        (self.languages)(&ddoc.language).ok_or_else(|| ViewError::UnknownLanguage(ddoc.language.to_string()))
    }

    fn column(&self, ddoc: &DesignDocument, reduce: &Arc<str>) -> Result<Column> {
        Column::open(reduce, &self.language(ddoc)?, self.settings.limits)
    }

    /// Builds an index so that it shows the database at `update_seq` or later and has all reduce functions of `ddoc`, or
    /// waits until somebody else has built it. Other indexes of the design document that lag as well and that nobody
    /// builds are taken along.
    fn advance(&self, home: &dyn Home, ddoc: &DesignDocument, signature: Signature, update_seq: u64) -> Result<()> {
        let Turn::Build(guard) = self.handle(home, signature)?.take_turn()? else {
            return Ok(());
        };
        let mut wanted = Some(guard);
        let mut guards = Vec::new();
        let definitions = definitions(home.layout(), ddoc);
        for definition in &definitions {
            if definition.signature == signature {
                guards.extend(wanted.take().map(|guard| (definition, guard)));
                continue;
            }
            let handle = self.handle(home, definition.signature)?;
            if !is_current(&handle.meta()?, &definition.reduces, update_seq)
                && let Some(guard) = handle.try_build()
            {
                guards.push((definition, guard));
            }
        }
        let result = self.build(home, ddoc, &guards, update_seq);
        guards.into_iter().for_each(|(_, guard)| guard.finish(result.clone()));
        result
    }

    /// Builds indexes in as few passes as possible.
    fn build(
        &self,
        home: &dyn Home,
        ddoc: &DesignDocument,
        guards: &[(&IndexDefinition, BuildGuard)],
        update_seq: u64,
    ) -> Result<()> {
        let indexes = self.indexes_of(home.shard());
        if self.is_stopping.load(Ordering::Relaxed) || indexes.stop.load(Ordering::Relaxed) {
            return Err(ViewError::Stopped);
        }
        let language = self.language(ddoc)?;
        // Read after the right to build was taken, so that no index is ahead of it.
        let database = home.read()?;
        let mut lagging: Vec<(&IndexDefinition, PassIndex<'_>)> = Vec::new();
        for (definition, guard) in guards {
            let index = self.open(&guard.handle().store, definition, &language, database.purges_forgotten()?)?;
            if index.meta.update_seq < update_seq {
                lagging.push((definition, index));
            }
        }
        for pass in passes(lagging, database.update_seq()?) {
            self.run_pass(home, ddoc, &language, &*database, &indexes.stop, pass)?;
        }
        Ok(())
    }

    /// Prepares an index for a pass: it has what an interrupted load had found, and all reduce functions of the design
    /// document. One that did not see the purges up to `purges_forgotten` cannot follow any more and begins anew.
    fn open<'a>(
        &self,
        store: &'a IndexStore,
        definition: &IndexDefinition,
        language: &Arc<dyn Language>,
        purges_forgotten: u64,
    ) -> Result<PassIndex<'a>> {
        let limits = self.settings.limits;
        let open = || {
            let (mut meta, writer) = store.open()?;
            if meta.update_seq == 0 {
                meta.reduces = with_reduces(&meta, definition);
            }
            let IndexDefinition { collation, layout, .. } = *definition;
            let directory = RunDirectory::new(&self.settings.run_directory, store.shard());
            Ok::<_, ViewError>(PassIndex { store, collation, layout, meta, writer, directory })
        };
        let mut index = open()?;
        if index.meta.update_seq > 0 && index.meta.purge_seq < purges_forgotten {
            index.writer.begin_anew(&index.meta)?;
            index = open()?;
        }
        resume(index, language, limits, purges_forgotten)?;
        index = open()?;
        let reduces = with_reduces(&index.meta, definition);
        if reduces.len() > index.meta.reduces.len() {
            attach(index, reduces, language, limits)?;
            index = open()?;
        }
        Ok(index)
    }

    fn run_pass(
        &self,
        home: &dyn Home,
        ddoc: &DesignDocument,
        language: &Arc<dyn Language>,
        database: &dyn ChangeSnapshot,
        stop: &AtomicBool,
        indexes: Vec<(&IndexDefinition, PassIndex<'_>)>,
    ) -> Result<()> {
        let functions = indexes.iter().map(|(definition, _)| Arc::clone(&definition.map)).collect();
        let since = indexes.iter().map(|(_, index)| index.meta.update_seq).min().unwrap_or(0);
        let total_changes = database.count_after(since)?;
        let kind = TaskKind::Indexer { database: home.name().to_owned(), design_document: ddoc.id.to_string() };
        let task = self.tasks.start(kind, total_changes);
        let pass = Pass {
            settings: &self.settings,
            language,
            source: MapSource { functions, library: ddoc.library.clone() },
            options: ddoc.options,
            database,
            database_name: home.name(),
            control: &|| if stop.load(Ordering::Relaxed) { Err(ViewError::Stopped) } else { Ok(()) },
            progress: &|done| task.update(done, total_changes),
            report: &|documents, emissions| self.report(home, ddoc, documents, emissions),
        };
        pass.run(indexes.into_iter().map(|(_, index)| index).collect())
    }

    fn report(&self, home: &dyn Home, ddoc: &DesignDocument, documents: &DocumentBatch, emissions: &Emissions) {
        for failure in &emissions.failures {
            let failed_document = documents.get(failure.document as usize).id;
            self.say(home, ddoc, Some(failed_document), &failure.message);
        }
        for message in &emissions.log {
            self.say(home, ddoc, None, message);
        }
    }

    fn say(&self, home: &dyn Home, ddoc: &DesignDocument, failed_document: Option<&str>, message: &str) {
        let (database, design_document) = (home.name(), &*ddoc.id);
        (self.log)(&LogLine { database, design_document, failed_document, message });
    }
}

/// Lagging indexes, those that go through the changes together in one pass beside each other. One that is a little ahead
/// sees some changes again: that costs less than a pass of its own. Indexes without rows have no rows to take back, so they
/// keep to themselves.
fn passes<'a>(mut lagging: Vec<(&'a IndexDefinition, PassIndex<'a>)>, update_seq: u64) -> Vec<Vec<(&'a IndexDefinition, PassIndex<'a>)>> {
    lagging.sort_by_key(|(_, index)| index.meta.update_seq);
    let mut passes: Vec<Vec<(&IndexDefinition, PassIndex<'_>)>> = Vec::new();
    for lagging in lagging {
        let seq = lagging.1.meta.update_seq;
        let joins = |pass: &&mut Vec<(&IndexDefinition, PassIndex<'_>)>| {
            let since = pass[0].1.meta.update_seq;
            since == seq || since > 0 && seq - since <= update_seq.saturating_sub(since) / AHEAD_PART
        };
        match passes.last_mut().filter(joins) {
            Some(pass) => pass.push(lagging),
            None => passes.push(vec![lagging]),
        }
    }
    passes
}

/// An index joins the pass of another that has so many times as much to do as it is ahead.
const AHEAD_PART: u64 = 8;

/// The reduce functions of an index, those that a design document asks for included.
fn with_reduces(meta: &Meta, definition: &IndexDefinition) -> Vec<Arc<str>> {
    let new = definition.reduces.iter().filter(|reduce| meta.column(reduce).is_none());
    meta.reduces.iter().chain(new).cloned().collect()
}

/// Whether an index is as new as `update_seq` and has the reductions of `reduces`. Without rows there are none to have.
fn is_current(meta: &Meta, reduces: &[Arc<str>], update_seq: u64) -> bool {
    let has = |reduce: &Arc<str>| meta.column(reduce).is_some() || meta.rows.is_none();
    meta.update_seq >= update_seq && reduces.iter().all(has)
}
