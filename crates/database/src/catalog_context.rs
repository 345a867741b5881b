//! [`CatalogContext`]: state that the databases of a catalog share. It collects their events in memory; a background
//! task of the server writes them to `_global_changes`, from which `_db_updates` is read.

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use settee_cluster::Writers;

use crate::counters::Counters;
use crate::times::CommitClock;

/// Name of the database that stores events.
pub const GLOBAL_CHANGES: &str = "_global_changes";

/// CouchDB's name of the list of databases. Settee has no such database, but clients wait for its updates.
const DATABASES: &str = "_dbs";

/// Kind of an event of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DatabaseEventKind {
    /// A new database.
    Created,
    /// New documents or revisions.
    Updated,
    /// A deleted database.
    Deleted,
}

impl DatabaseEventKind {
    /// Returns CouchDB's name of the event.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }

    /// Splits the id of an event's document into the event and the name of the database.
    #[must_use]
    pub fn parse(id: &str) -> Option<(Self, &str)> {
        let (kind, database) = id.split_once(':')?;
        let kind = [Self::Created, Self::Updated, Self::Deleted].into_iter().find(|known| known.name() == kind)?;
        Some((kind, database))
    }
}

/// Shared state of the databases of a catalog, with their events since the last [`Self::take_events`].
#[derive(Default)]
pub struct CatalogContext {
    state: Mutex<State>,
    pub(crate) counters: Counters,
    pub(crate) clock: OnceLock<CommitClock>,
    /// Leases for commits of clients' writes; unset if no other process can write.
    pub(crate) writers: OnceLock<Arc<Writers>>,
    pub(crate) design_bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// Called for the first event; `None` disables the collection.
    wake: Option<Box<dyn Fn() + Send + Sync>>,
    events: Vec<(String, DatabaseEventKind)>,
    updated: HashSet<String>,
}

impl CatalogContext {
    /// Starts the collection of events. Writing threads call `wake` for the first event after each
    /// [`Self::take_events`]; it must be fast.
    pub fn subscribe(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state.lock().wake = Some(Box::new(wake));
    }

    /// Removes and returns the collected events, oldest first. Updates of one database are merged into one event.
    #[must_use]
    pub fn take_events(&self) -> Vec<(String, DatabaseEventKind)> {
        let mut state = self.state.lock();
        state.updated.clear();
        std::mem::take(&mut state.events)
    }

    pub(crate) fn record_list_change(&self, database: &str, kind: DatabaseEventKind) {
        self.record(database, kind);
        self.record(DATABASES, DatabaseEventKind::Updated);
    }

    pub(crate) fn record(&self, database: &str, kind: DatabaseEventKind) {
        let mut state = self.state.lock();
        if state.wake.is_none() || database == GLOBAL_CHANGES {
            return;
        }
        match kind {
            DatabaseEventKind::Updated if state.updated.contains(database) => return,
            DatabaseEventKind::Updated => drop(state.updated.insert(database.to_owned())),
            DatabaseEventKind::Created | DatabaseEventKind::Deleted => drop(state.updated.remove(database)),
        }
        state.events.push((database.to_owned(), kind));
        if state.events.len() == 1
            && let Some(wake) = &state.wake
        {
            wake();
        }
    }
}
