//! [`Limits`]: size limits of documents, ids and partitions.

use hyper::StatusCode;
use settee_database::{Database, DocUpdate, Layout};
use settee_model::json::size::exceeds;
use settee_model::partition::validate_partitioned_id;
use settee_model::{Document, validate_doc_id};
use settee_settings::{Settings, couchdb};

use crate::Error;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    document_bytes: u64,
    id_bytes: u64,
    partition_bytes: u64,
}

impl Limits {
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self {
            document_bytes: couchdb::MAX_DOCUMENT_SIZE.of(settings),
            id_bytes: couchdb::MAX_DOCUMENT_ID_LENGTH.of(settings),
            partition_bytes: couchdb::MAX_PARTITION_SIZE.of(settings),
        }
    }

    /// As in CouchDB, the size excludes members of the server (revisions, attachments) and escapes.
    pub(crate) fn check_document(self, document: &Document) -> Result<(), Error> {
        if !exceeds(document.body.value(), self.document_bytes) {
            return Ok(());
        }
        let id = document.id.clone().unwrap_or_default();
        Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", id))
    }

    pub(crate) fn with_partition_limit(self, database: &Database, update: DocUpdate) -> DocUpdate {
        let is_limited = database.layout() == Layout::Partitioned && self.partition_bytes > 0;
        if is_limited { update.within(self.partition_bytes) } else { update }
    }

    pub(crate) fn check_id(self, database: &Database, id: &str) -> Result<(), Error> {
        validate_doc_id(id)?;
        check_partition(database, id)?;
        if id.len() as u64 > self.id_bytes {
            return Err(Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id is too long"));
        }
        Ok(())
    }
}

fn check_partition(database: &Database, id: &str) -> Result<(), Error> {
    match database.layout() {
        Layout::Whole => Ok(()),
        Layout::Partitioned => Ok(validate_partitioned_id(id)?),
    }
}
