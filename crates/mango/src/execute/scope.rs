//! [`ReadScope`]: the documents and index rows that a query may read.

use std::sync::Arc;

use settee_database::{Database, ReadClient, ReadView, Reader, Waiting};
use settee_views::{Answer, RowSink, ViewQuery, Views};

use crate::error::Result;
use crate::index::Index;

/// Maximum number of queries of an index on behalf of a member, because each one reads the entries of all documents
/// that the member sees.
pub(super) const RESTRICTED_QUERIES_MAX: usize = if cfg!(test) { 2 } else { 8 };

#[derive(Clone, Copy)]
pub(super) struct ReadScope<'a> {
    pub(super) views: &'a Views,
    pub(super) database: &'a Arc<Database>,
    pub(super) reader: &'a Reader,
    pub(super) client: &'a ReadClient,
    pub(super) waiting: Waiting<'a>,
}

impl<'a> ReadScope<'a> {
    /// True if the reader sees only the documents whose lists name the reader.
    pub(super) fn is_restricted(&self) -> bool {
        *self.reader != Reader::Administrator
    }

    pub(super) fn documents(&self) -> Result<ReadView<'a>> {
        Ok(self.database.read_as(self.reader, self.waiting)?.for_client(self.client))
    }

    pub(super) fn query(&self, index: &Index, query: &ViewQuery, sink: &mut dyn RowSink) -> Result<Answer> {
        let reader = (self.reader, self.client, self.waiting);
        Ok(self.views.query_as(self.database, reader, &index.design, index.name(), query, sink)?)
    }
}
