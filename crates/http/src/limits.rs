//! [`Limits`]: how large documents may be, and which ids they may have; and which bodies are small.

use hyper::StatusCode;
use settee_database::{Database, DocUpdate, Layout};
use settee_model::json::size::exceeds;
use settee_model::partition::validate_partitioned_id;
use settee_model::{Document, validate_doc_id};
use settee_settings::{Settings, couchdb};

use crate::Error;

/// The most bytes of a small body. A larger one is work enough for a commit of its own, and for a trip before it.
pub(crate) const SMALL_BODY_BYTES_MAX: usize = 64 << 10;

/// How large documents and their ids may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    document_bytes: u64,
    id_bytes: u64,
    /// A partition that is as large as this is full.
    partition_bytes: u64,
}

impl Limits {
    /// The limits in force: `[couchdb] max_document_size`, `max_document_id_length` and `max_partition_size`.
    pub(crate) fn of(settings: &dyn Settings) -> Self {
        Self {
            document_bytes: couchdb::MAX_DOCUMENT_SIZE.of(settings),
            id_bytes: couchdb::MAX_DOCUMENT_ID_LENGTH.of(settings),
            partition_bytes: couchdb::MAX_PARTITION_SIZE.of(settings),
        }
    }

    /// Refuses a document whose body is too large. As in CouchDB, neither the server's members (revisions, attachments) nor
    /// escapes count.
    pub(crate) fn check_document(self, document: &Document) -> Result<(), Error> {
        if !exceeds(document.body.value(), self.document_bytes) {
            return Ok(());
        }
        let id = document.id.clone().unwrap_or_default();
        Err(Error::new(StatusCode::PAYLOAD_TOO_LARGE, "document_too_large", id))
    }

    /// The update, which keeps to the limit of its partition, if it has one.
    pub(crate) fn within(self, database: &Database, update: DocUpdate) -> DocUpdate {
        let is_limited = database.layout() == Layout::Partitioned && self.partition_bytes > 0;
        if is_limited { update.within(self.partition_bytes) } else { update }
    }

    /// Refuses an id that no document of `database` can have.
    pub(crate) fn check_id(self, database: &Database, id: &str) -> Result<(), Error> {
        validate_doc_id(id)?;
        check_partition(database, id)?;
        if id.len() as u64 > self.id_bytes {
            return Err(Error::new(StatusCode::BAD_REQUEST, "illegal_docid", "Document id is too long"));
        }
        Ok(())
    }
}

/// Refuses an id that no document of the database can have because of its partitions.
fn check_partition(database: &Database, id: &str) -> Result<(), Error> {
    match database.layout() {
        Layout::Whole => Ok(()),
        Layout::Partitioned => Ok(validate_partitioned_id(id)?),
    }
}
