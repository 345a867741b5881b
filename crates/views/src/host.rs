//! [`IndexHost`]: interface between indexes and their database, implemented for [`Database`].

use std::sync::Arc;

use settee_database::{
    Catalog, Change, Database, DatabaseError, IndexPosition, Layout, Leaves, MemoryGrant, ReadClient, ReadView, Reader,
    Waiting, Work,
};
use settee_design::DesignOptions;
use settee_storage::{Direction, Engine, Expect, Shard};

use crate::error::{Result, ViewError};
use crate::index::{Meta, Signature};
use crate::indexer::source::{ChangeBatch, ChangeSnapshot, Changes, Fill, is_left_out};
use crate::query::visible::VisibleDocuments;
use crate::records::{Family, IndexRecords};

pub(crate) trait IndexHost: Send + Sync {
    /// The shard identifies the database, also among those with the same name.
    fn shard(&self) -> Shard;

    fn name(&self) -> &str;

    fn layout(&self) -> Layout;

    fn engine(&self) -> &Arc<dyn Engine>;

    /// States whether the caller may wait. A host of an attempt must not be used for writes.
    fn waiting(&self) -> Waiting<'_>;

    fn read(&self) -> Result<Box<dyn ChangeSnapshot + '_>>;

    fn indexes(&self) -> Result<Vec<(Signature, Shard)>>;

    fn add_index(&self, signature: Signature) -> Result<Shard>;

    fn find_index(&self, signature: Signature) -> Result<Option<Shard>>;

    fn read_records(&self, keys: &[&str]) -> Result<Vec<Option<Vec<u8>>>>;

    fn record_keys(&self, prefix: &str) -> Result<Vec<String>>;

    fn write_record(&self, key: &str, value: Option<Vec<u8>>) -> Result<()>;

    /// Returns false, and writes nothing, if the stored record is not `before`.
    fn replace_record(&self, key: &str, before: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool>;

    /// Returns a number that changes when a change of records or index shards by another process is observed.
    fn changes_elsewhere(&self) -> u64;

    /// Replaces and removes `shard`, unless another process has already done so.
    fn replace_index(&self, signature: Signature, shard: Shard) -> Result<()>;

    fn remove_index(&self, signature: Signature, shard: Shard) -> Result<()>;
}

pub(crate) struct CatalogHost<'a> {
    pub(crate) catalog: &'a Catalog,
    pub(crate) database: &'a Arc<Database>,
    pub(crate) waiting: Waiting<'a>,
}

/// The documents that `reader` sees.
pub(crate) struct ReaderDocuments<'a> {
    pub(crate) database: &'a Arc<Database>,
    pub(crate) reader: &'a Reader,
    pub(crate) client: &'a ReadClient,
    pub(crate) waiting: Waiting<'a>,
}

impl VisibleDocuments for ReaderDocuments<'_> {
    fn for_each_batch(&self, meta: &Meta, each: &mut dyn FnMut(&[&str]) -> Result<()>) -> Result<()> {
        let view = self.database.read_as(self.reader, self.waiting)?.for_client(self.client);
        view.indexed_documents(IndexPosition { update_seq: meta.update_seq, purge_seq: meta.purge_seq }, each)
    }

    fn take_memory(&self, bytes: usize) -> Result<MemoryGrant> {
        match &self.client.memory {
            Some(memory) => memory.take(bytes).ok_or(ViewError::Memory),
            None => Ok(Box::new(())),
        }
    }
}

const RECORD_PREFIX: &str = "views/";

fn record_key(key: &str) -> Vec<u8> {
    format!("{RECORD_PREFIX}{key}").into_bytes()
}

impl CatalogHost<'_> {
    fn records(&self) -> IndexRecords<'_> {
        IndexRecords { catalog: self.catalog, database: self.database, family: Family::Views }
    }

    fn view(&self) -> Result<ReadView<'_>, DatabaseError> {
        self.database.read_as(&Reader::Administrator, self.waiting)
    }
}

impl From<DatabaseError> for ViewError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Storage(error) => Self::Storage(error),
            DatabaseError::Cancelled(cancelled) => Self::Disconnected(cancelled),
            error => Self::Source(error.to_string()),
        }
    }
}

impl IndexHost for CatalogHost<'_> {
    fn shard(&self) -> Shard {
        self.database.shard()
    }

    fn name(&self) -> &str {
        self.database.name()
    }

    fn layout(&self) -> Layout {
        self.database.layout()
    }

    fn engine(&self) -> &Arc<dyn Engine> {
        self.catalog.engine()
    }

    fn waiting(&self) -> Waiting<'_> {
        self.waiting
    }

    fn read(&self) -> Result<Box<dyn ChangeSnapshot + '_>> {
        Ok(Box::new(self.view()?))
    }

    fn indexes(&self) -> Result<Vec<(Signature, Shard)>> {
        self.records().all()
    }

    fn find_index(&self, signature: Signature) -> Result<Option<Shard>> {
        self.records().find(signature)
    }

    fn read_records(&self, keys: &[&str]) -> Result<Vec<Option<Vec<u8>>>> {
        let keys: Vec<Vec<u8>> = keys.iter().copied().map(record_key).collect();
        Ok(self.view()?.all_attached(&keys)?)
    }

    fn record_keys(&self, prefix: &str) -> Result<Vec<String>> {
        let records = self.view()?.attached_with_prefix(format!("{RECORD_PREFIX}{prefix}").as_bytes())?;
        let key = |key: &[u8]| Some(std::str::from_utf8(key).ok()?.strip_prefix(RECORD_PREFIX)?.to_owned());
        Ok(records.iter().filter_map(|(name, _)| key(name)).collect())
    }

    fn write_record(&self, key: &str, value: Option<Vec<u8>>) -> Result<()> {
        self.database.update(Work::Attach { key: record_key(key), value })?;
        Ok(())
    }

    fn replace_record(&self, key: &str, before: Option<Vec<u8>>, value: Vec<u8>) -> Result<bool> {
        let outcomes = self.database.update(Work::Replace { key: record_key(key), before, value: Some(value) })?;
        Ok(outcomes.is_empty())
    }

    fn changes_elsewhere(&self) -> u64 {
        self.database.attached_elsewhere()
    }

    fn add_index(&self, signature: Signature) -> Result<Shard> {
        self.records().add(signature)
    }

    fn replace_index(&self, signature: Signature, shard: Shard) -> Result<()> {
        self.records().replace(signature, shard)
    }

    fn remove_index(&self, signature: Signature, shard: Shard) -> Result<()> {
        self.records().remove(signature, shard)
    }
}

impl ChangeSnapshot for ReadView<'_> {
    fn update_seq(&self) -> Result<u64> {
        Ok(ReadView::update_seq(self)?)
    }

    fn count_after(&self, since: u64) -> Result<u64> {
        Ok(self.changes_after(since)?)
    }

    fn purge_seq(&self) -> Result<u64> {
        Ok(ReadView::purge_seq(self)?)
    }

    fn purges_forgotten(&self) -> Result<u64> {
        Ok(ReadView::purges_forgotten(self)?)
    }

    fn changes(&self, since: u64, purged_since: u64, expected: u64) -> Result<Box<dyn Changes + '_>> {
        // A purge before the first indexed change cannot have removed rows.
        let has_purges = since > 0 && purged_since < ReadView::purge_seq(self)?;
        let gone = if has_purges { purged_documents(self, purged_since)? } else { Vec::new() };
        let expect = Expect::Rows(usize::try_from(expected).unwrap_or(usize::MAX).saturating_add(1));
        let changes = self.changes_expecting(since, Direction::Forward, expect)?;
        Ok(Box::new(DatabaseChanges {
            view: self,
            gone: gone.into_iter(),
            since,
            changes,
            id: String::new(),
            conflicts: Vec::new(),
        }))
    }
}

/// Returns the purged documents without any remaining revision. The others have a later change.
fn purged_documents(view: &ReadView<'_>, since: u64) -> Result<Vec<String>> {
    let mut ids = Vec::new();
    view.purges(since, |_, purge| ids.push(purge.id))?;
    ids.sort_unstable();
    ids.dedup();
    let mut gone = Vec::new();
    for some in ids.chunks(LOOKUPS) {
        let some: Vec<&str> = some.iter().map(String::as_str).collect();
        let heads = view.heads(&some)?;
        gone.extend(some.iter().zip(heads).filter(|(_, head)| head.is_none()).map(|(id, _)| (*id).to_owned()));
    }
    Ok(gone)
}

const LOOKUPS: usize = 1000;

struct DatabaseChanges<'a> {
    view: &'a ReadView<'a>,
    gone: std::vec::IntoIter<String>,
    since: u64,
    changes: settee_database::Changes<'a>,
    id: String,
    conflicts: Vec<u8>,
}

impl Changes for DatabaseChanges<'_> {
    fn fill(&mut self, batch: &mut ChangeBatch, options: DesignOptions) -> Result<Fill> {
        while !batch.is_full() {
            if let Some(id) = self.gone.next() {
                batch.count(self.since);
                batch.removed.push(id);
                continue;
            }
            let Some(Change { seq, id, stored, leaves, .. }) = self.changes.next()? else {
                return Ok(Fill::End);
            };
            batch.count(seq);
            if is_left_out(id, options) {
                continue;
            }
            if stored.deleted {
                batch.removed.push(id.to_owned());
                continue;
            }
            self.id.clear();
            self.id.push_str(id);
            self.conflicts.clear();
            if leaves == Leaves::Several
                && !batch.hides_conflicts
                && let Some(record) = self.view.record(&self.id)?
            {
                record.write_conflicts(&mut self.conflicts);
            }
            let (changes, conflicts) = (&mut self.changes, &self.conflicts);
            batch.documents.push_with(seq, &self.id, |out| {
                changes.write_document(out, |out| {
                    out.extend_from_slice(conflicts);
                    if options.local_seq {
                        out.extend_from_slice(b",\"_local_seq\":");
                        settee_model::json::write_u64(out, seq);
                    }
                })
            })?;
        }
        Ok(Fill::Full)
    }
}
