//! Documents of `_global_changes`. As in CouchDB, each database has one document per kind of event, with the id
//! `kind:database`. If the database `_global_changes` does not exist, events are dropped. A crash can lose the most
//! recent events.

use std::collections::HashSet;

use settee_model::json::Json;
use settee_model::{Document, Rev, RevisionHasher};

use crate::catalog_context::{DatabaseEventKind, GLOBAL_CHANGES};
use crate::{Catalog, DatabaseError, DocUpdate, EditMode, Result, Work};

/// Revision limit of the event documents. It is low because these documents are written often and their old revisions
/// are not read.
const REMEMBERED_REVISIONS: u64 = 5;

impl Catalog {
    /// Writes events, if `_global_changes` exists.
    ///
    /// # Errors
    /// Fails if the events cannot be written.
    pub fn keep_events(&self, events: &[(String, DatabaseEventKind)]) -> Result<()> {
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
