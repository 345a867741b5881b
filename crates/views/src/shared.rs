//! [`Core`]: shared state of queries, builds and their control.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use settee_database::tasks::Tasks;
use settee_design::{DesignDocument, Language, Limits};
use settee_storage::nonblocking::Waiting;
use settee_storage::{Engine, Shard, Snapshot, StorageError, Version};

use crate::claims::Claims;
use crate::clock::Clock;
use crate::error::{Result, ViewError};
use crate::handle::{DatabaseIndexes, Databases, Handle};
use crate::host::IndexHost;
use crate::index::{IndexStore, Meta, Signature, Tokens};
use crate::indexer::Settings;
use crate::pace::Pace;
use crate::reduce::Aggregate;
use crate::tree::NodeCache;

/// Returns the language with this name.
pub type Languages = Arc<dyn Fn(&str) -> Option<Arc<dyn Language>> + Send + Sync>;

/// Receiver of exceptions of map functions, and of log lines of map and reduce functions.
pub type Log = Arc<dyn Fn(&LogLine<'_>) + Send + Sync>;

/// A log line about a function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLine<'a> {
    /// Name of the database.
    pub database: &'a str,
    /// Id of the design document.
    pub design_document: &'a str,
    /// Subject of the line.
    pub subject: LogSubject<'a>,
    /// The exception, the log line, or the reason.
    pub message: &'a str,
}

/// Subject of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogSubject<'a> {
    /// Id of the document for which a function threw an exception.
    Failure(&'a str),
    /// A function called `log`.
    Message,
    /// The engine of a function, and the reason why it is not a faster one.
    Engine,
}

/// Everything except the catalog, so that tests can supply their own databases.
pub(crate) struct Core {
    languages: Languages,
    pub(crate) tasks: Tasks,
    pub(crate) log: Log,
    pub(crate) settings: Settings,
    tokens: Arc<Tokens>,
    nodes: Arc<NodeCache>,
    pub(crate) pace: Pace,
    pub(crate) databases: Mutex<Databases>,
    pub(crate) is_stopping: AtomicBool,
    pub(crate) claims: Claims,
}

impl Core {
    pub(crate) fn new(languages: Languages, tasks: Tasks, log: Log, settings: Settings) -> Self {
        let tokens = Arc::new(Tokens::new(settings.seed));
        let (databases, is_stopping) = (Mutex::default(), AtomicBool::new(false));
        let pace = Pace::new(settings.clock.clone());
        let (nodes, claims) = (Arc::default(), Claims::default());
        Self { languages, tasks, log, settings, tokens, nodes, pace, databases, is_stopping, claims }
    }

    /// Subscribes to failures of the store: after one, node numbers may be reused, so cached nodes are evicted.
    pub(crate) fn follow(&self, engine: &dyn Engine) {
        let nodes = Arc::clone(&self.nodes);
        engine.subscribe(Box::new(move |shard, version| {
            if version == Version::default() {
                nodes.forget(shard);
            }
        }));
    }

    pub(crate) fn indexes_of(&self, database: Shard) -> Arc<DatabaseIndexes> {
        self.databases.lock().of(database)
    }

    pub(crate) fn limits(&self) -> Limits {
        self.settings.limits.current()
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
        // Another thread may add an index under this lock.
        let mut handles = match host.waiting() {
            Waiting::Allowed => indexes.handles.lock(),
            Waiting::Refused(attempt) => indexes.handles.try_lock().ok_or_else(|| attempt.refuse())?,
        };
        if let Some(handle) = handles.get(&signature) {
            handle.use_at(now_us);
            return Ok(Arc::clone(handle));
        }
        host.waiting().may_block()?;
        let shard = host.add_index(signature)?;
        let store =
            IndexStore::new(Arc::clone(host.engine()), shard, Arc::clone(&self.tokens), Arc::clone(&self.nodes));
        let handle = Arc::new(Handle::new(store));
        handle.use_at(now_us);
        handles.insert(signature, Arc::clone(&handle));
        Ok(handle)
    }

    /// Returns an index and its state in a snapshot; the state is empty if the index must be rebuilt.
    pub(crate) fn open_snapshot<'a>(
        &self,
        host: &'a dyn IndexHost,
        signature: Signature,
    ) -> Result<(Arc<Handle>, Arc<dyn Snapshot + 'a>, Meta)> {
        let mut handle = self.handle(host, signature)?;
        let mut is_known = false;
        loop {
            let snapshot = host.waiting().snapshot(host.engine().as_ref(), handle.store().shard())?;
            match handle.store().meta(&*snapshot) {
                Err(ViewError::Storage(StorageError::Dropped)) if !is_known => {
                    (handle, is_known) = (self.find_again(host, signature, &handle)?, true);
                }
                Err(ViewError::Storage(StorageError::Dropped)) => return Ok((handle, snapshot, Meta::new())),
                meta => return Ok((handle, snapshot, meta?.unwrap_or_else(Meta::new))),
            }
        }
    }

    pub(crate) fn find_again(
        &self,
        host: &dyn IndexHost,
        signature: Signature,
        gone: &Arc<Handle>,
    ) -> Result<Arc<Handle>> {
        host.waiting().may_block()?;
        if host.find_index(signature)? == Some(gone.store().shard()) {
            return Ok(Arc::clone(gone));
        }
        let indexes = self.indexes_of(host.shard());
        let mut handles = indexes.handles.lock();
        if handles.get(&signature).is_some_and(|handle| Arc::ptr_eq(handle, gone)) {
            handles.remove(&signature);
        }
        drop(handles);
        self.handle(host, signature)
    }

    pub(crate) fn language(&self, ddoc: &DesignDocument) -> Result<Arc<dyn Language>> {
        (self.languages)(&ddoc.language).ok_or_else(|| ViewError::UnknownLanguage(ddoc.language.to_string()))
    }

    pub(crate) fn aggregate(&self, ddoc: &DesignDocument, reduce: &Arc<str>) -> Result<Aggregate> {
        Aggregate::open(reduce, &self.language(ddoc)?, self.limits())
    }

    pub(crate) fn log_event(
        &self,
        host: &dyn IndexHost,
        ddoc: &DesignDocument,
        subject: LogSubject<'_>,
        message: &str,
    ) {
        let (database, design_document) = (host.name(), &*ddoc.id);
        (self.log)(&LogLine { database, design_document, subject, message });
    }
}
