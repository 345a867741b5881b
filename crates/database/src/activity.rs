//! Events of databases: [`Activity`] collects them in memory, and a background task of the server writes them to
//! `_global_changes`, from which `_db_updates` is read.
//!
//! As in CouchDB, each database has one document per kind of event, with the id `kind:database`. If the database
//! `_global_changes` does not exist, events are dropped. A crash can lose the most recent events.

use std::collections::HashSet;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use settee_model::json::Json;
use settee_model::{Document, Rev, RevisionHasher};

use crate::{Catalog, CommitClock, Counters, DatabaseError, DocUpdate, EditMode, Result, Work};

/// Name of the database that stores events.
pub const GLOBAL_CHANGES: &str = "_global_changes";

/// Name under which CouchDB stores the list of databases. Settee has no such database, but clients wait for its
/// updates.
const DATABASES: &str = "_dbs";

/// Revision limit of the event documents. It is low because these documents are written often and their old revisions
/// are not read.
const REMEMBERED_REVISIONS: u64 = 5;

/// Kind of an event of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// The database was created.
    Created,
    /// Documents were written.
    Updated,
    /// The database was deleted.
    Deleted,
}

impl Happened {
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

/// Events of the databases of a catalog since the last [`Self::take`].
#[derive(Default)]
pub struct Activity {
    state: Mutex<State>,
    pub(crate) counters: Counters,
    /// Source of the times of commits, if the server has set one.
    pub(crate) clock: OnceLock<CommitClock>,
    /// Total size of the design-document caches of all open databases.
    pub(crate) design_bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// Called when the first event is available; `None` disables the collection.
    wake: Option<Box<dyn Fn() + Send + Sync>>,
    events: Vec<(String, Happened)>,
    /// Databases that already have an update event in `events`.
    updated: HashSet<String>,
}

impl Activity {
    /// Starts the collection. `wake` is called by writing threads for the first event after each [`Self::take`]; it
    /// must return quickly.
    pub fn watch(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state.lock().wake = Some(Box::new(wake));
    }

    /// Removes and returns the collected events, oldest first. Several updates of one database are merged into one
    /// event.
    #[must_use]
    pub fn take(&self) -> Vec<(String, Happened)> {
        let mut state = self.state.lock();
        state.updated.clear();
        std::mem::take(&mut state.events)
    }

    /// Notes that a database was created or deleted, which also updates the list of databases.
    pub(crate) fn note_in_list(&self, database: &str, happened: Happened) {
        self.note(database, happened);
        self.note(DATABASES, Happened::Updated);
    }

    pub(crate) fn note(&self, database: &str, happened: Happened) {
        let mut state = self.state.lock();
        if state.wake.is_none() || database == GLOBAL_CHANGES {
            return;
        }
        match happened {
            Happened::Updated if state.updated.contains(database) => return,
            Happened::Updated => drop(state.updated.insert(database.to_owned())),
            // Later events belong to another database of this name.
            Happened::Created | Happened::Deleted => drop(state.updated.remove(database)),
        }
        state.events.push((database.to_owned(), happened));
        if state.events.len() == 1
            && let Some(wake) = &state.wake
        {
            wake();
        }
    }
}

impl Catalog {
    /// Writes events into `_global_changes` if that database exists.
    ///
    /// # Errors
    /// Fails if the events cannot be written.
    pub fn keep_events(&self, events: &[(String, Happened)]) -> Result<()> {
        let database = match self.database(GLOBAL_CHANGES) {
            Err(DatabaseError::NotFound) => return Ok(()),
            database => database?,
        };
        let view = database.read()?;
        if view.update_seq()? == 0 {
            database.update(Work::SetRevsLimit(REMEMBERED_REVISIONS))?;
        }
        let mut hasher = RevisionHasher::default();
        let mut ids: Vec<String> =
            events.iter().map(|(name, happened)| format!("{}:{name}", happened.name())).collect();
        // Of several equal ids only the last one is kept, because the order of the documents is the order of the
        // events.
        let mut seen = HashSet::new();
        ids.reverse();
        ids.retain(|id| seen.insert(id.clone()));
        let mut updates: Vec<DocUpdate> = Vec::new();
        for id in ids.into_iter().rev() {
            let rev = view.head(&id)?.filter(|head| !head.stored.deleted).map(|head| head.rev);
            updates.extend(DocUpdate::prepare(id, event(rev), EDIT, &mut hasher));
        }
        for work in DocUpdate::into_works(updates) {
            database.update(work)?;
        }
        Ok(())
    }
}

const EDIT: EditMode = EditMode::Interactive;

fn event(rev: Option<Rev>) -> Document {
    Document { id: None, rev, deleted: false, body: Json::empty_object(), attachments: None, revisions: None }
}
