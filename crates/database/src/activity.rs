//! Events of databases: [`Activity`] collects it cheaply, and a background task of the server keeps it in
//! `_global_changes`, from where `_db_updates` is read.
//!
//! As in CouchDB there is one document for each database and kind of event, whose id is `kind:database`; without the
//! database `_global_changes` nothing is kept. Events of the last moment before a crash may be missing.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use parking_lot::Mutex;
use settee_model::json::Json;
use settee_model::{Document, Rev, RevisionHasher};

use crate::{Catalog, Counters, DatabaseError, DocUpdate, EditMode, Result, Work};

/// The database that keeps events.
pub const GLOBAL_CHANGES: &str = "_global_changes";

/// Where CouchDB keeps which databases there are. It is no database here, but clients wait for its updates.
const DATABASES: &str = "_dbs";

/// The part of the past of an event's document that is remembered: nobody reads it, and it is written often.
const REMEMBERED_REVISIONS: u64 = 5;

/// The event that happened to a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Happened {
    /// It was created.
    Created,
    /// Documents were written.
    Updated,
    /// It was deleted.
    Deleted,
}

impl Happened {
    /// CouchDB's word.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
        }
    }

    /// Takes the id of an event's document apart.
    #[must_use]
    pub fn parse(id: &str) -> Option<(Self, &str)> {
        let (kind, database) = id.split_once(':')?;
        let kind = [Self::Created, Self::Updated, Self::Deleted].into_iter().find(|known| known.name() == kind)?;
        Some((kind, database))
    }
}

/// The events of the databases of a catalog since somebody last took them.
#[derive(Default)]
pub struct Activity {
    state: Mutex<State>,
    pub(crate) counters: Counters,
    /// The cache of design documents, of all databases in memory.
    pub(crate) design_bytes: Arc<AtomicUsize>,
}

#[derive(Default)]
struct State {
    /// Called when there is something to take; without it nothing is collected.
    wake: Option<Box<dyn Fn() + Send + Sync>>,
    events: Vec<(String, Happened)>,
    /// The databases whose updates are among the events already.
    updated: HashSet<String>,
}

impl Activity {
    /// Begins to collect. `wake` is called, from threads that write, when the first event after [`Self::take`] comes:
    /// it must be quick.
    pub fn watch(&self, wake: impl Fn() + Send + Sync + 'static) {
        self.state.lock().wake = Some(Box::new(wake));
    }

    /// Takes what happened, oldest first. Many updates of a database count as one.
    #[must_use]
    pub fn take(&self) -> Vec<(String, Happened)> {
        let mut state = self.state.lock();
        state.updated.clear();
        std::mem::take(&mut state.events)
    }

    /// A database was created or deleted, which also changes the list of all.
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
            // What comes after that is another database.
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
    /// Writes events into `_global_changes`, if that exists.
    ///
    /// # Errors
    /// When they could not be written.
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
        // Of several equal ones the last is where it belongs.
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
