//! [`Core`]: what all work on indexes needs. Queries, builds and their control are added to it where they are.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use settee_database::tasks::Tasks;
use settee_design::{DesignDocument, Growth, Language, Limits};
use settee_storage::Shard;

use crate::clock::Clock;
use crate::error::{Result, ViewError};
use crate::handle::{DatabaseIndexes, Databases, Handle};
use crate::host::IndexHost;
use crate::index::{IndexStore, Signature, Tokens};
use crate::indexer::Settings;
use crate::pace::Pace;
use crate::reduce::Aggregate;
use crate::tree::NodeCache;

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
    /// The subject.
    pub about: About<'a>,
    /// The exception, the line, or the reason.
    pub message: &'a str,
}

/// The subject of a line of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About<'a> {
    /// A function threw an exception for this document.
    Failure(&'a str),
    /// A function called `log`.
    Message,
    /// The engine of a function, and why it is not a faster one.
    Engine,
}

/// Everything but the catalog, so that tests may bring their own databases.
pub(crate) struct Core {
    languages: Languages,
    pub(crate) tasks: Tasks,
    pub(crate) log: Log,
    pub(crate) settings: Settings,
    tokens: Arc<Tokens>,
    /// Of all indexes.
    nodes: Arc<NodeCache>,
    pub(crate) pace: Pace,
    pub(crate) databases: Mutex<Databases>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) growth: Mutex<Growth>,
}

impl Core {
    pub(crate) fn new(languages: Languages, tasks: Tasks, log: Log, settings: Settings) -> Self {
        let tokens = Arc::new(Tokens::new(settings.seed));
        let (databases, is_stopping) = (Mutex::default(), AtomicBool::new(false));
        let pace = Pace::new(settings.clock.clone());
        let growth = Mutex::default();
        Self { languages, tasks, log, settings, tokens, nodes: Arc::default(), pace, databases, is_stopping, growth }
    }

    pub(crate) fn indexes_of(&self, database: Shard) -> Arc<DatabaseIndexes> {
        self.databases.lock().of(database)
    }

    /// The limits of functions that are called from now on.
    pub(crate) fn limits(&self) -> Limits {
        Limits { growth: *self.growth.lock(), ..self.settings.limits }
    }

    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    pub(crate) fn tasks(&self) -> &Tasks {
        &self.tasks
    }

    pub(crate) fn clock(&self) -> &Clock {
        &self.settings.clock
    }

    pub(crate) fn handle(&self, host: &dyn IndexHost, signature: Signature) -> Result<Arc<Handle>> {
        let indexes = self.indexes_of(host.shard());
        let now_us = self.clock().now_us();
        let mut handles = indexes.handles.lock();
        if let Some(handle) = handles.get(&signature) {
            handle.use_at(now_us);
            return Ok(Arc::clone(handle));
        }
        let shard = host.add_index(signature)?;
        let store =
            IndexStore::new(Arc::clone(host.engine()), shard, Arc::clone(&self.tokens), Arc::clone(&self.nodes));
        let handle = Arc::new(Handle::new(store));
        handle.use_at(now_us);
        handles.insert(signature, Arc::clone(&handle));
        Ok(handle)
    }

    pub(crate) fn language(&self, ddoc: &DesignDocument) -> Result<Arc<dyn Language>> {
        (self.languages)(&ddoc.language).ok_or_else(|| ViewError::UnknownLanguage(ddoc.language.to_string()))
    }

    pub(crate) fn aggregate(&self, ddoc: &DesignDocument, reduce: &Arc<str>) -> Result<Aggregate> {
        Aggregate::open(reduce, &self.language(ddoc)?, self.limits())
    }

    pub(crate) fn say(&self, host: &dyn IndexHost, ddoc: &DesignDocument, about: About<'_>, message: &str) {
        let (database, design_document) = (host.name(), &*ddoc.id);
        (self.log)(&LogLine { database, design_document, about, message });
    }
}
